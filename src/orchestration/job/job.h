// SPDX-License-Identifier: Apache-2.0
/*
 * Job: one entry of the queue: what was asked for, and what became of it so far.
 *
 *   request   what was submitted: the run file's text, folder, overrides. Kept as JSON; changes only
 *             as a whole (ls_job_take_request).
 *   spec      what the request means, parsed: ranks, limits, placement, dependencies
 *             (ls_job_spec_parse).
 *   record    everything else in ls_job: state, epoch, devices, times. Changes with each
 *             transition, and is written to the store in the same transaction as the journal.
 *
 * States as people see them; a job has devices in those marked *:
 *
 *   HELD ⇄ QUEUED ──▶ STARTING* ──▶ RUNNING* ──▶ SUCCEEDED | FAILED
 *             ▲           │          │   ⇅ RESIZING*
 *             ├── RECOVERING ◀── lost┤
 *             ├───── PREEMPTING* ◀───┤
 *             └─▶ CANCELLED ◀── STOPPING* (cancel, time limit: then FAILED)
 *
 * An epoch is one start. Its number grows by one each time and is on the disk before anything is
 * started; every report carries it, so a late process of an earlier epoch changes nothing.
 *
 * Times are seconds since 1970 when they end in _s, and device-milliseconds when they end in
 * _device_ms.
 */
#ifndef LS_ORCHESTRATION_JOB_JOB_H
#define LS_ORCHESTRATION_JOB_JOB_H

#include "base/arena.h"
#include "base/json.h"
#include "base/options.h"
#include "base/status.h"
#include "config/run_file.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_job_state {
    LS_JOB_QUEUED,
    LS_JOB_HELD,
    LS_JOB_STARTING,
    LS_JOB_RUNNING,
    LS_JOB_RESIZING,
    LS_JOB_PREEMPTING,
    /* its processes were lost; what is left of them is killed before it may start again */
    LS_JOB_RECOVERING,
    LS_JOB_STOPPING,
    LS_JOB_SUCCEEDED,
    LS_JOB_FAILED,
    LS_JOB_CANCELLED,
    LS_JOB_STATES
} ls_job_state;

/* "QUEUED", ... */
const char *ls_job_state_name(ls_job_state state);
/* In any case. LS_JOB_STATES when there is no state of that name. */
ls_job_state ls_job_state_named(const char *name);
/* The job has ended. */
bool ls_job_state_is_final(ls_job_state state);
/* The job waits for devices. */
bool ls_job_state_is_waiting(ls_job_state state);

/* Why a job ended or gave up its devices, and so who has to look at it. */
typedef enum ls_job_cause {
    LS_CAUSE_NONE,
    LS_CAUSE_PROGRAM,    /* its own exit code or signal */
    LS_CAUSE_MEMORY,     /* exit code 4, or killed by the kernel for memory */
    LS_CAUSE_START,      /* it could not be started: no such folder or program */
    LS_CAUSE_LOST,       /* the machine, or the process that ran it, died */
    LS_CAUSE_LIMIT,      /* its time limit was reached */
    LS_CAUSE_DEPENDENCY, /* a job it waited for failed */
    LS_CAUSE_USER,       /* a user cancelled or held it */
    LS_CAUSE_PREEMPTED,  /* its devices were needed */
    LS_CAUSE_IMPOSSIBLE, /* it can never start on the nodes there are now */
    LS_CAUSE_SWEEP,      /* its sweep paused, promoted or stopped it */
    LS_CAUSE_DISK,       /* it could not be saved, and was never reported as accepted */
    LS_CAUSE_BUDGET,     /* its cap, or the budget of its account, was reached */
    LS_CAUSE_IDLE,       /* its devices did nothing for too long */
    LS_CAUSES
} ls_job_cause;

/* "program", ... */
const char *ls_job_cause_name(ls_job_cause cause);
ls_job_cause ls_job_cause_named(const char *name); /* LS_CAUSE_NONE for others */

/* Who holds a job, and so what lets it continue. */
typedef enum ls_job_hold {
    LS_HOLD_USER,   /* a user, until it is released */
    LS_HOLD_IDLE,   /* its devices did nothing; until it is released */
    LS_HOLD_CAP,    /* job.max_cost, until it is raised */
    LS_HOLD_BUDGET, /* the budget of its account, until it is raised or the next month begins */
    LS_HOLDS
} ls_job_hold;

/* Whether money is the reason: nobody releases the job, but a cap or budget is raised. */
static inline bool ls_job_hold_is_money(ls_job_hold hold)
{
    return hold == LS_HOLD_CAP || hold == LS_HOLD_BUDGET;
}

/* "low", "normal", "high". */
const char *ls_priority_name(ls_priority priority);
/* false when there is none of that name; NULL is allowed. */
bool ls_priority_parse(const char *name, ls_priority *priority_out);

enum {
    LS_JOB_FILE_BYTES_MAX = 256 * 1024, /* of a run file */
    LS_JOB_PATH_BYTES_MAX = 4000,
    LS_JOB_NAME_BYTES_MAX = 128,
    LS_JOB_KEY_BYTES_MAX = 128,
    LS_JOB_ACCOUNT_BYTES_MAX = 64,
    LS_JOB_LIST_MAX = 4096, /* words, overrides or variables of one job */
    LS_JOB_AFTER_MAX = 64,  /* dependencies of one job */
    LS_JOB_RANKS_MAX = 1 << 20,
    LS_JOB_KIND_BYTES_MAX = 63,
};

/* What a request means. Strings live in the arena that ls_job_spec_parse was given. */
typedef struct ls_job_spec {
    const char *name;
    const char *account; /* "": the account named like the user */
    /* absolute; where it was submitted, and where its processes start */
    const char *directory;
    const char *file;          /* text of the run file */
    const char *file_name;     /* its name, for people */
    ls_option_strings set;     /* overrides, for the command line of train */
    ls_option_strings command; /* empty: `lockstep train` */
    const char *image;         /* of a container, for the command; "": none */
    ls_option_strings image_options;
    ls_option_strings metrics;   /* of the command: absolute, or "stdout" */
    ls_option_strings variables; /* NAME=VALUE, of the submitter, then of job.environment */
    ls_option_strings share;
    ls_priority priority;
    uint32_t ranks, min_ranks, max_ranks; /* equal unless elastic */
    uint32_t leaves;                      /* leaves of a training step; 0: not known */
    uint32_t threads;                     /* threads per rank; 0: the file does not say */
    /* steps of a training run; 0: not known before it has read its data */
    uint64_t steps;
    uint64_t step_tokens;    /* tokens of a training step; 0: not known */
    uint32_t ranks_per_node; /* 0: any */
    uint32_t cpus_per_rank, memory_mib_per_rank;
    ls_nearness required, preferred;
    bool spot, hold, restartable;
    bool interactive; /* gives its devices back when idle, and is held until a person wants it */
    uint32_t restarts_max;
    /* 0: none. begin_s and deadline_s count from the submission */
    double time_limit_s, begin_s, deadline_s;
    double max_cost_usd; /* of all its starts together; 0: no cap */
    double stall_s;      /* alert when it has no step for so long (alerts.stall); 0: never */
    double grace_s;
    uint64_t log_bytes_max;
    uint32_t umask;  /* file mode creation mask of the submitter */
    uint64_t *after; /* numbers of jobs, ascending, each once */
    uint32_t after_count;
    bool after_any;
    /* chosen by the submitter, so that a request sent twice makes one job; "": none */
    const char *key;
    const char *group; /* "": none */
    uint32_t group_running_max;
    ls_run_asha asha; /* of a sweep */
    /* a hash of where its data are, so that jobs with the same data can be placed on the same
     * nodes; 0: none */
    uint64_t data_hash;
} ls_job_spec;

/*
 * Reads and checks a request:
 *
 *   {"file": TEXT, "directory": ABSOLUTE, "file_name"?, "name"?, "ranks"?, "set"?: ["key=value"],
 *   "account"?, "priority"?, "hold"?, "after"?: [..],
 *    "environment"?: {NAME: VALUE}, "key"?}
 *
 * Members beside the file win over what the file says. Unknown members are errors. Pure: what is on
 * the disk is not looked at. spec_out: strings in `arena`, and in `request` as long as it lives.
 * Errors: LS_ERR_INVALID, with the key, the value and what is allowed.
 */
LS_MUST_CHECK ls_status ls_job_spec_parse(const json_t *request, ls_arena *arena, ls_job_spec *spec_out);

/*
 * The devices of a job in one place (engines/engine.h: a node, or a part of a large one), as bits.
 */
typedef struct ls_job_share {
    uint32_t node;
    uint64_t devices;
} ls_job_share;

enum { LS_JOB_CURVE_MAX = 64 };

/* What was predicted about a training run before it started, from its run file and the measurements
 * of this machine. Never changes. */
typedef struct ls_job_plan {
    double run_s;     /* of the whole run at `ranks`; 0: not known */
    double low, high; /* a tenth of such runs take less or more than these multiples of run_s */
    /* [i]: speed at spec.min_ranks + i ranks, in thousandths of the first; count 0: not known */
    uint32_t curve_count, curve[LS_JOB_CURVE_MAX];
    char source[64]; /* what it is based on: "calibration of DATE" */
} ls_job_plan;

/*
 * Predictions about a job and what happened: each is kept as it was first made, with the time when
 * it was made and the time when it came true. Times are seconds since 1970; 0: not predicted, or
 * not happened.
 */
typedef struct ls_job_foresight {
    double start_s, start_said_s, started_s; /* its first start, predicted while it waited */
    /*
     * the end of its current or last epoch, predicted from its own steps; ended_s is when it ended
     */
    double end_s, end_said_s;
} ls_job_foresight;

/* What the newest steps of a training run came to, as its last start left them. */
typedef struct ls_job_result {
    uint64_t step;         /* 0: not known */
    double loss, val_loss; /* mean of the last steps, at most 20; of `step`. NaN: not known */
    /* what its folder held at the end; what was sent to its mirror, in the job by all starts */
    uint64_t stored_bytes, sent_bytes;
} ls_job_result;

typedef struct ls_job {
    uint64_t id; /* from 1 */
    uint32_t uid, gid;
    const char *user;     /* the name of uid when it was submitted, or its number as text */
    const char *account;  /* resolved */
    json_t *request;      /* owned; NULL when it was dropped (ls_job_drop_request) */
    bool has_new_request; /* it and `account` differ from what the store has */
    ls_job_spec spec;
    const char *run_dir; /* of a training job; otherwise "" */
    ls_arena arena;      /* holds the strings above */

    /* The record. */
    ls_job_state state;
    ls_job_cause cause; /* why it last left RUNNING, or ended */
    uint32_t epoch;     /* number of starts so far */
    bool held;          /* goes to HELD instead of QUEUED when it has given its devices back */
    ls_job_hold hold;   /* while `held` */
    bool cancelled;     /* a user asked for its end */
    /* it has trained to stop_step and waits, HELD, for what its sweep decides */
    bool paused;
    uint64_t stop_step; /* it is to train only to here, the schedule unchanged; 0: to its end */
    ls_job_result result;
    bool handed_over; /* an engine that decides has it in this epoch */
    ls_priority priority;
    uint32_t ranks;      /* number of ranks it wants */
    uint32_t ranks_max;  /* most ranks it may grow to, set by a resize; 0: spec.max_ranks */
    uint32_t ranks_now;  /* number of ranks it has; 0: none */
    uint32_t ranks_next; /* RESIZING: number of ranks it will have */
    /* from malloc (ls_job_set_shares); while it shrinks, all it has until that is done */
    ls_job_share *shares;
    uint32_t share_count;
    /* kinds (telemetry/record/alert.h) that were told and still hold, as bits */
    uint32_t alerts;
    uint32_t alerts_heard; /* how many it told of itself in this epoch */
    int exit_code;         /* exit code of the last end; -1: none yet */
    uint32_t restarts;     /* restarts after losses */
    uint32_t preemptions;
    double submitted_s, queued_s /* last */, started_s /* last */, ended_s; /* 0: not yet */
    double run_s;         /* time with devices in earlier epochs */
    double booked_s;      /* its device-milliseconds are booked up to here */
    double saved_s;       /* time of the last known checkpoint; 0: none */
    uint64_t step, steps; /* a training run: steps done, and of how many; 0: not known */
    /* time left as of left_at_s, on the devices it has or will have; 0: not known */
    double left_s, left_at_s;
    ls_job_plan plan;
    ls_job_foresight foresight;
    char kind[LS_JOB_KIND_BYTES_MAX + 1]; /* of the nodes of its last start; "": not known */
    /* Of a device for an hour, in this epoch; not in the record; 0: not known. For the kinds of
     * nodes in the list, which outlives the job ("KIND=PRICE"), the price there. */
    double price_usd;
    ls_option_strings kind_prices;
    double storage_usd; /* of a GB for a month; likewise */
    /* up to booked_s (orchestration/control/usage.c); priced: allocated, each at the price of its
     * kind as a multiple of price_usd */
    uint64_t allocated_device_ms, idle_device_ms, waiting_device_ms, lost_device_ms, priced_device_ms;
    uint64_t energy_mj; /* millijoules used; 0: not known */
    char *text;         /* from malloc: the last word about it, for people; NULL: none */
    char *engine_ref;   /* from malloc: the engine's name for it; NULL: none */
} ls_job;

/* A new job; takes over `request`. LS_ERR_INVALID as ls_job_spec_parse; the request is then
 * dropped. */
LS_MUST_CHECK ls_status ls_job_create(uint64_t id, json_t *request, ls_job **job_out);
void ls_job_destroy(ls_job *job);

/* Gives the job the request, spec and account of `from`, a job of the same number, which is
 * destroyed. */
void ls_job_take_request(ls_job *job, ls_job *from);
void ls_job_set_user(ls_job *job, uint32_t uid, uint32_t gid, const char *user);
void ls_job_set_account(ls_job *job, const char *account);
void ls_job_set_run_dir(ls_job *job, const char *run_dir);
/* Copies the shares; count 0: none. */
void ls_job_set_shares(ls_job *job, const ls_job_share *shares, uint32_t count);
void ls_job_set_text(ls_job *job, const char *text);
void ls_job_set_engine_ref(ls_job *job, const char *ref);
/* Adds a difference of clocks to all of its times. */
void ls_job_shift(ls_job *job, double by_s);
/* Frees run file and variables of a job that has ended: the store has them. */
void ls_job_drop_request(ls_job *job);

/* The smallest and largest number of ranks it may have: `ranks` and `ranks_max` may have been
 * changed by a resize, and then bound the range. */
uint32_t ls_job_ranks_min(const ls_job *job);
uint32_t ls_job_ranks_max(const ls_job *job);

/* The threads of a rank on a machine with `cores` cores for `devices` devices: train.threads,
 * otherwise an equal part, at least 1. */
uint32_t ls_job_rank_threads(const ls_job *job, uint32_t cores, uint32_t devices);

/* The price of a kind in a list of "KIND=PRICE"; of one that is not in it, `otherwise`. */
double ls_price_of_kind(const ls_option_strings *kind_prices, const char *kind, double otherwise);

/* Of a device on the nodes of its last start; what it has cost up to booked_s. */
double ls_job_price_usd(const ls_job *job);
double ls_job_spent_usd(const ls_job *job);

/* Whether it may not start now: held by a user, or paused by its sweep. */
static inline bool ls_job_is_kept(const ls_job *job)
{
    return job->held || job->paused;
}

/* Whether it has devices: STARTING to STOPPING, except RECOVERING. */
bool ls_job_has_devices(const ls_job *job);

/* The record as JSON, and back. Members that another version did not write get their defaults.
 * Errors: LS_ERR_DATA. */
json_t *ls_job_record_json(const ls_job *job);
LS_MUST_CHECK ls_status ls_job_record_read(ls_job *job, const json_t *record);

/* The same for a result alone; NULL, and all unknown, when there is none. */
json_t *ls_job_result_json(const ls_job_result *result);
ls_job_result ls_job_result_read(const json_t *object);

/* Whether a user may see and change the job. is_admin: as in ls_caller. user: the name of uid. */
bool ls_job_is_open_to(const ls_job *job, uint32_t uid, const char *user, bool is_admin);

#endif
