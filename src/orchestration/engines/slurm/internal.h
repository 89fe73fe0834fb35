// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of the Slurm engine share: slurm.c takes orders, submit.c hands jobs to sbatch, look.c reads squeue, history.c sacct, entry.c keeps entries and their files.
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_INTERNAL_H
#define LS_ORCHESTRATION_ENGINES_SLURM_INTERNAL_H

#include "orchestration/engines/engine.h"
#include "orchestration/engines/slurm/queue.h"
#include "orchestration/engines/slurm/script.h"

enum { LS_SLURM_REF_BYTES = 40, LS_SLURM_ARRAY_MAX = 1000, LS_SLURM_MISSED_MAX = 3 };
#define LS_SLURM_ANSWER_S 30.0 /* how long a command of Slurm may take */
#define LS_SLURM_NODES_S  30.0 /* between two looks at the nodes */
#define LS_SLURM_AGAIN_S  5.0  /* behind a command that failed because Slurm did not answer */
#define LS_SLURM_SOON_S   0.3  /* from a submission to a look at it */
#define LS_SLURM_REPEAT_S 30.0 /* a word to Slurm of which nothing came is said again */

typedef enum ls_slurm_phase {
    PHASE_NEW,   /* not handed to sbatch yet */
    PHASE_ASKED, /* sbatch runs */
    PHASE_WAITS, /* in Slurm's queue */
    PHASE_RUNS,
    PHASE_ENDED,
} ls_slurm_phase;

/* A job in one epoch. */
typedef struct ls_slurm_entry {
    struct ls_slurm_entry *next;
    struct ls_slurm_engine *engine;
    const ls_job *job; /* of the queue; valid until it is forgotten */
    uint64_t id;
    uint32_t epoch;
    ls_slurm_phase phase;
    char ref[LS_SLURM_REF_BYTES];
    uint64_t first; /* the job whose name Slurm's record carries: the first of its array; 0: not known yet */
    uint32_t restarts;           /* of Slurm's record, in this epoch */
    uint32_t missed;             /* looks in which Slurm did not know it */
    bool is_stopping, is_killed; /* told to; without grace */
    bool is_held;                /* Slurm was told to hold it, and heard it */
    bool is_held_there;          /* by its user, as squeue says; here or there */
    ls_priority priority;        /* that Slurm was told of */
    double told_s;               /* when Slurm was told to stop or hold it: again when nothing comes of it */
    bool is_adopted;             /* of an earlier daemon, and not looked at yet */
    double started_s;
    ls_env_id grace; /* timer */
    ls_slurm_shape shape;
} ls_slurm_entry;

typedef struct ls_slurm_engine {
    ls_engine base;
    ls_env *env;
    ls_engine_hear hear;
    void *context;
    ls_arena arena; /* of the site and the nodes */
    ls_slurm_site site;
    double poll_s;
    ls_engine_node *nodes;
    uint32_t node_count;
    ls_slurm_entry *entries;
    ls_env_id look_timer, submit_timer;
    uint64_t look_due_ns;
    bool is_looking, is_submitting;
    bool is_asking;  /* sacct runs */
    bool no_history; /* there is no accounting here */
    double nodes_seen_s;
    bool is_silent; /* Slurm does not answer: said once */
} ls_slurm_engine;

/* ---- entries (entry.c) ---- */

/* NULL: there is none. */
ls_slurm_entry *ls_slurm_find(const ls_slurm_engine *self, uint64_t id);
/* Fills in job, epoch and ranks. */
void ls_slurm_tell(ls_slurm_engine *self, const ls_slurm_entry *one, ls_engine_report report);

/* HOME/jobs/N/KIND-EPOCH SUFFIX */
const char *ls_slurm_job_file(ls_arena *arena, const ls_slurm_engine *self, const ls_slurm_entry *one,
                              const char *kind, const char *suffix);
/* A file that is its owner's alone. */
LS_MUST_CHECK ls_status ls_slurm_write(const ls_job *job, const char *path, const char *text);
/* The folder, run file, script and ticket of its epoch. */
LS_MUST_CHECK ls_status ls_slurm_write_files(ls_arena *arena, const ls_slurm_engine *self,
                                             const ls_slurm_entry *one);
/* True when nobody has taken the ticket, and nobody can any more. */
bool ls_slurm_withdraw_ticket(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* Of all its epochs: whatever Slurm still starts of a job that has ended does nothing. */
void ls_slurm_drop_claims(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* What Slurm calls it and which of its runs it is, from the file of its epoch. Its user may have written anything there: see ls_slurm_is_its_own. */
bool ls_slurm_read_ref(const ls_slurm_engine *self, ls_slurm_entry *one);
void ls_slurm_write_ref(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* Its run is yet to begin: what is said of it is of another. */
void ls_slurm_drop_end(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* How its run ended, as its script said. */
bool ls_slurm_read_end(const ls_slurm_engine *self, const ls_slurm_entry *one, int *code_out,
                       double *time_out);

/* Starts a command whose answer only matters when it fails: for the log, and for ls_slurm_repeat of that job's hold or release. job 0: of nobody's. */
void ls_slurm_command(ls_slurm_engine *self, uint64_t job, const char *const *argv);
void ls_slurm_cancel(ls_slurm_engine *self, const char *ref);

/* Tells Slurm to end it: USR1 and a time of grace when it runs. Does nothing while it is not known where it is. */
void ls_slurm_stop_now(ls_slurm_engine *self, ls_slurm_entry *one);

/* Says again what nothing has come of: a command may have met a Slurm that did not answer. */
void ls_slurm_repeat(ls_slurm_engine *self, ls_slurm_entry *one);
/* Tells Slurm to hold or release it, as the queue has it. */
void ls_slurm_hold_now(ls_slurm_engine *self, ls_slurm_entry *one);

/* ---- submitting (submit.c) ---- */

void ls_slurm_submit_in(ls_slurm_engine *self, double seconds);
/* Slurm's words for people: without the name of the program, one line. In the arena. */
const char *ls_slurm_words(ls_arena *arena, const char *error);

/* What is told from the loop, for orders are carried out without reports. text: copied. */
void ls_slurm_tell_later(ls_slurm_engine *self, const ls_slurm_entry *of, double seconds,
                         ls_engine_report report, const char *text);

/* ---- looking (look.c) ---- */

extern const char *const ls_slurm_sinfo_argv[];
/* In so many seconds, or earlier when that was said before. */
void ls_slurm_look_in(ls_slurm_engine *self, double seconds);

/* The row is of its user, and carries its name or that of the first of its array, which is written down where it was not known. */
bool ls_slurm_is_its_own(const ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row);

/* It has ended as the row says: tells that it began, if that was not known, and how it ended. */
void ls_slurm_take_end(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row);

/* ---- looking back (history.c) ---- */

/* Asks sacct for those that squeue has missed too often. False: nobody can be asked. */
bool ls_slurm_ask_history(ls_slurm_engine *self);

#endif
