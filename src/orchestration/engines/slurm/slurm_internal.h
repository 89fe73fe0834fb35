// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of the Slurm engine share.
 *
 *   slurm.c       orders from the controller
 *   sbatch.c      submits jobs
 *   look.c        reads squeue and reports what became of jobs
 *   accounting.c  reads sacct
 *   entry.c       entries and their files
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_SLURM_INTERNAL_H
#define LS_ORCHESTRATION_ENGINES_SLURM_SLURM_INTERNAL_H

#include "orchestration/engines/engine.h"
#include "orchestration/engines/slurm/script.h"
#include "orchestration/engines/slurm/squeue.h"

enum { LS_SLURM_REF_BYTES = 40, LS_SLURM_ARRAY_MAX = 1000, LS_SLURM_MISSED_MAX = 3 };
#define LS_SLURM_ANSWER_S 30.0 /* how long a command of Slurm may take */
#define LS_SLURM_NODES_S  30.0 /* between two looks at the nodes */
#define LS_SLURM_AGAIN_S  5.0  /* pause after a command that failed because Slurm did not respond */
#define LS_SLURM_SOON_S   0.3  /* from a submission to a look at it */
#define LS_SLURM_REPEAT_S 30.0 /* a word to Slurm of which nothing came is said again */

typedef enum ls_slurm_phase {
    PHASE_NEW,   /* not submitted yet */
    PHASE_ASKED, /* sbatch runs */
    PHASE_WAITS, /* waits in Slurm's queue */
    PHASE_RUNS,
    PHASE_ENDED,
} ls_slurm_phase;

/* A job in one epoch. */
typedef struct ls_slurm_entry {
    struct ls_slurm_entry *next;
    struct ls_slurm_engine *engine;
    const ls_job *job; /* belongs to the controller; valid until `forget` */
    uint64_t id;
    uint32_t epoch;
    ls_slurm_phase phase;
    char ref[LS_SLURM_REF_BYTES];
    /* the job named in Slurm's record: the first of its array; 0: not known yet */
    uint64_t first;
    uint32_t restarts;           /* number of restarts in Slurm's record in this epoch */
    uint32_t missed;             /* consecutive looks in which Slurm did not know the job */
    bool is_stopping, is_killed; /* told to stop; without a grace period */
    bool is_held;                /* Slurm was told to hold it, and accepted */
    bool is_held_there;          /* held by its user according to squeue, whether here or there */
    ls_priority priority;        /* the priority, time limit and account that Slurm knows */
    double limit_s;
    char account[LS_JOB_ACCOUNT_BYTES_MAX + 1];
    /* when Slurm was told to stop or hold it; it is told again when nothing happens */
    double told_s;
    bool is_adopted; /* started by an earlier daemon, and not looked at yet */
    double started_s;
    ls_env_id grace; /* timer of the grace period */
    ls_slurm_shape shape;
} ls_slurm_entry;

typedef struct ls_slurm_engine {
    ls_engine base;
    ls_env *env;
    ls_engine_hear hear;
    void *context;
    ls_arena arena; /* holds the site and the nodes */
    ls_slurm_site site;
    double poll_s;
    ls_engine_node *nodes;
    uint32_t node_count;
    ls_slurm_entry *entries;
    ls_env_id look_timer, submit_timer;
    uint64_t look_due_ns;
    bool is_looking, is_submitting;
    bool is_asking;  /* sacct is running */
    bool no_history; /* Slurm keeps no accounting here */
    double nodes_seen_s;
    bool is_silent; /* Slurm does not respond, and the log says so */
} ls_slurm_engine;

/* ---- entries (entry.c) ---- */

/* NULL: there is none. */
ls_slurm_entry *ls_slurm_find(const ls_slurm_engine *self, uint64_t id);
/* Reports to the controller; fills in job, epoch and ranks. */
void ls_slurm_tell(ls_slurm_engine *self, const ls_slurm_entry *one, ls_engine_report report);

/* Writes a file that only its owner can read. */
LS_MUST_CHECK ls_status ls_slurm_write(const ls_job *job, const char *path, const char *text);
/* Writes the folder, run file, script and ticket of its epoch. */
LS_MUST_CHECK ls_status ls_slurm_write_files(ls_arena *arena, const ls_slurm_engine *self,
                                             const ls_slurm_entry *one);
/* true: the script has not taken the ticket, and no longer can. */
bool ls_slurm_withdraw_ticket(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* Removes the claims of all its epochs: whatever Slurm still starts of a job that has ended will do
 * nothing. */
void ls_slurm_drop_claims(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* Reads its number in Slurm and the number of its run from the file of its epoch. Its user may have
 * written anything there: see ls_slurm_is_its_own. */
bool ls_slurm_read_ref(const ls_slurm_engine *self, ls_slurm_entry *one);
void ls_slurm_write_ref(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* Removes the file about its end: its run has not begun, so the file is about another one. */
void ls_slurm_drop_end(const ls_slurm_engine *self, const ls_slurm_entry *one);
/* How its run ended according to its script. false: the script has not written that. result_out: of
 * a training run; NULL is allowed. */
bool ls_slurm_read_end(const ls_slurm_engine *self, const ls_slurm_entry *one, int *code_out,
                       double *time_out, ls_job_result *result_out);

/* Starts a command whose answer only matters when it fails: it is logged, and ls_slurm_repeat
 * repeats the hold or release of that job. job 0: of no job. */
void ls_slurm_command(ls_slurm_engine *self, uint64_t job, const char *const *argv);
void ls_slurm_cancel(ls_slurm_engine *self, const char *ref);

/* Tells Slurm to end it: USR1 and a grace period when it runs. Does nothing while its state in
 * Slurm is not known. */
void ls_slurm_stop_now(ls_slurm_engine *self, ls_slurm_entry *one);

/* Repeats orders that had no effect: Slurm may not have responded to a command. */
void ls_slurm_repeat(ls_slurm_engine *self, ls_slurm_entry *one);
/* Tells Slurm to hold or release it, as in the queue. */
void ls_slurm_hold_now(ls_slurm_engine *self, ls_slurm_entry *one);

/* ---- submitting (sbatch.c) ---- */

void ls_slurm_submit_in(ls_slurm_engine *self, double seconds);
/* Slurm's error in one line, without the name of the program. In the arena. */
const char *ls_slurm_words(ls_arena *arena, const char *error);

/*
 * Reports later, from the event loop, because orders are carried out without reports. text: copied.
 */
void ls_slurm_tell_later(ls_slurm_engine *self, const ls_slurm_entry *of, double seconds,
                         ls_engine_report report, const char *text);

/* ---- looking (look.c) ---- */

extern const char *const ls_slurm_sinfo_argv[];
/* Looks in this many seconds, or earlier if that was ordered before. */
void ls_slurm_look_in(ls_slurm_engine *self, double seconds);

/* Whether the row belongs to the entry: it is of the same user, and names its job or the first job
 * of its array, which is recorded if it was not known. */
bool ls_slurm_is_its_own(const ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row);

/* It has ended as the row says: reports its start, if that was not known, and its end. */
void ls_slurm_take_end(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row);

/* ---- looking back (accounting.c) ---- */

/* Asks sacct about jobs that squeue has missed too often. false: there is no accounting to ask. */
bool ls_slurm_ask_history(ls_slurm_engine *self);

#endif
