// SPDX-License-Identifier: Apache-2.0
/*
 * Controller: the state machine of all jobs. Pure: no clock, no files, no processes; who owns it hands in what happened, and carries out what
 * comes out, in this order:
 *
 *      calls (API) ─┐                                   ┌─ rows and journal ──▶ store, one transaction
 *      reports ─────┼─▶ controller ─▶ ls_controller_turn ┤        │ on the disk
 *      time ────────┘     (state)       (policy's pass)  ├─ orders ▼──────────▶ engine
 *                                                        └─ replies ──────────▶ who asked
 *
 * A turn is all that came in since the last one. Nothing is ordered or answered before what led to it is on the disk, so a crash between any
 * two of these leaves rows from which ls_controller_restore goes on: it asks the engine what became of every job that had devices.
 *
 * Between ls_controller_turn and ls_controller_turn_done nothing else is called. One owner, one thread.
 */
#ifndef LS_ORCHESTRATION_CONTROL_CONTROLLER_H
#define LS_ORCHESTRATION_CONTROL_CONTROLLER_H

#include "base/json.h"
#include "base/status.h"
#include "orchestration/engines/engine.h"
#include "orchestration/job/job.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_controller ls_controller;

/* Who asks. */
typedef struct ls_caller {
    uint32_t uid, gid;
    const char *user; /* the name of uid, or its number */
    bool is_admin;    /* root, who runs the daemon, or who has its token */
} ls_caller;

typedef enum ls_verb {
    LS_VERB_SUBMIT, /* a request (ls_job_spec_parse), "avoid"?: [names under runs] -> 201 {"job", "state", "run_dir"} */
    LS_VERB_SWEEP, /* a request with "set": {key: [values]}, "running_max"?, "samples"? -> 201 {"jobs": [..], "group"} */
    /* {"all"?, "ended"?, "account"?, "user"?, "group"?, "state"?, "limit"?, "before"?} -> {"jobs": [..], "before"}: all that wait and run, unless ended or before;
     * of those that have ended the last `limit`, that ended before job `before`. By number; those that have ended alone, by end, the last first. */
    LS_VERB_LIST,
    LS_VERB_SHOW, /* {"job"} -> the job, all of it */
    LS_VERB_WHY, /* {"job"} -> {"job", "stage", "needed", "available", "blockers", "eta_s", "counterfactuals", "text", ...} */
    LS_VERB_EVENTS, /* {"job", "after"?, "limit"?} -> {"events": [{"id", "time", "from", "to", "epoch", "cause", "text"}]} */
    LS_VERB_CANCEL,   /* {"job"}; of a job that has ended: 409 */
    LS_VERB_HOLD,     /* {"job"}: a job that runs gives its devices back first */
    LS_VERB_RELEASE,  /* {"job"}; of a job that is not held: 409 */
    LS_VERB_RESIZE,   /* {"job", "ranks"} */
    LS_VERB_PRIORITY, /* {"job", "priority": "low" | "normal" | "high"} */
    LS_VERB_NODES,    /* -> {"nodes": [..]} */
    LS_VERB_ACCOUNTS, /* -> {"accounts": [..]} */
    LS_VERB_ACCOUNT, /* {"account", "weight"?, "quota"?, "borrow"?, "lend"?, "users"?, "priority_max"?}: admins; makes it when it is not there */
    LS_VERB_USAGE,   /* -> {"accounts": [..], "total": {..}} */
    LS_VERB_STATUS,  /* -> counts by state, devices, version */
    LS_VERB_DOWN,    /* {"cancel"?}: admins; ends the daemon, and with cancel the jobs first */
    LS_VERBS
} ls_verb;

/* "submit", ... */
const char *ls_verb_name(ls_verb verb);

/*
 * Called once for each call, from ls_controller_turn_done. status: as HTTP's; 2xx is success. answer: an object, an error is
 * {"error": TEXT}; valid during the call.
 */
typedef void (*ls_controller_reply)(void *context, int status, const json_t *answer);

/* A line of the journal: it goes into the store with the row. Also what /v1/events tells. */
typedef struct ls_transition {
    uint64_t job;
    uint32_t epoch;
    ls_job_state from, to;
    ls_job_cause cause;
    double time_s;
    const char *text; /* "" for none */
} ls_transition;

typedef enum ls_engine_order_kind {
    LS_DO_START,
    LS_DO_STOP,
    LS_DO_KILL,
    LS_DO_RESIZE,
    LS_DO_ADOPT,
    LS_DO_CHANGE,
    LS_DO_FORGET,
} ls_engine_order_kind;

typedef struct ls_engine_order {
    ls_engine_order_kind kind;
    const ls_job *job;
} ls_engine_order;

enum { LS_ACCOUNT_WEIGHT_MAX = 1000000, LS_ACCOUNT_USERS_BYTES_MAX = 1000 };

/* What an account may use and has used. */
typedef struct ls_account {
    char name[LS_JOB_ACCOUNT_BYTES_MAX + 1];
    uint32_t weight;                            /* of its fair share; 1 and more */
    uint32_t quota, borrow, lend;               /* devices; UINT32_MAX: no limit */
    ls_priority priority_max;                   /* of its jobs, unless who runs the queue says more */
    char users[LS_ACCOUNT_USERS_BYTES_MAX + 1]; /* "ann,bob": its members; "": everybody */
    uint64_t allocated_device_ms, idle_device_ms, waiting_device_ms, lost_device_ms;
    uint64_t jobs;
    uint64_t share_ms[3], share_at_ms; /* past usage as the policy weighs it (ls_policy_usage) */
} ls_account;

typedef struct ls_turn {
    double time_s;
    ls_job *const *created; /* to be inserted, with their requests; also among changed */
    uint32_t created_count;
    ls_job *const *changed; /* rows to be written */
    uint32_t changed_count;
    const ls_transition *transitions;
    uint32_t transition_count;
    const ls_account *const *accounts; /* rows to be written */
    uint32_t account_count;
    const ls_engine_order *orders;
    uint32_t order_count;
    bool must_be_written; /* there are rows */
} ls_turn;

/* What only its owner can know. */
typedef struct ls_controller_calls {
    void *context;
    /* Seconds since 1970. */
    double (*now_s)(void *context);
    /* The journal of a job from the store, for LS_VERB_EVENTS: entries behind number `after`, at most `limit`. An array; NULL: can't be read. */
    json_t *(*journal)(void *context, uint64_t job, uint64_t after, uint32_t limit);
    /* A job that is no longer in memory; the caller of this call destroys it. NULL: there is none. */
    ls_job *(*old_job)(void *context, uint64_t id);
    /* Is there a user of that name on this machine? NULL: nobody knows. */
    bool (*is_user)(void *context, const char *name);
    /* Fills job->plan of a new job, as far as anything can be said of it. NULL: nothing can. */
    void (*foresee)(void *context, ls_job *job);
} ls_controller_calls;

typedef struct ls_controller_settings {
    const char *order; /* "fair", "fifo", ...: a policy of `simulate` */
    bool preempt;
    uint32_t reservations;     /* jobs at the head that nobody behind them delays */
    double half_life_s;        /* of what an account has used */
    double min_run_s;          /* not preempted sooner */
    double resize_pause_s;     /* an elastic job is not grown sooner behind its start or last resize */
    double idle_s;             /* devices held idle for so long are reported; 0: never */
    uint32_t idle_permille;    /* busy below this is idle */
    double start_timeout_s;    /* STARTING for longer: lost */
    double price_per_device_h; /* of money in `usage`; 0: not known */
    const char *currency;
    bool strict_accounts;               /* else made when first used */
    uint32_t jobs_max, user_jobs_max;   /* that have not ended: all, of one user who does not run the queue */
    uint64_t bytes_max, user_bytes_max; /* of their requests */
    uint32_t ended_max;                 /* ended jobs kept in memory */
} ls_controller_settings;

ls_controller_settings ls_controller_settings_default(void);

/* engine: asked for its nodes, and whether it decides; never called. calls: copied. Errors: LS_ERR_INVALID (settings), LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_controller_create(const ls_controller_settings *settings, ls_engine *engine,
                                             const ls_controller_calls *calls,
                                             ls_controller **controller_out);
void ls_controller_destroy(ls_controller *controller);

/* ---- in ---- */

/* Before the first turn: what the store has. Takes over the job. */
void ls_controller_restore(ls_controller *controller, ls_job *job);
void ls_controller_restore_account(ls_controller *controller, const ls_account *account);
/* Weight and limits of an account, made when it is not there; at any time. Errors: LS_ERR_INVALID when there are too many. */
LS_MUST_CHECK ls_status ls_controller_set_account(ls_controller *controller, const ls_account *account);
/* 1 to LS_JOB_ACCOUNT_BYTES_MAX letters, digits, '.', '_' and '-', not beginning with '.' or '-'. */
bool ls_account_name_is_good(const char *name);
/* Weight 1, no limits, open to everybody, up to normal priority; no name. */
ls_account ls_account_default(void);
/* One more member. Errors: LS_ERR_INVALID: no name, or too many. */
LS_MUST_CHECK ls_status ls_account_add_user(ls_account *account, const char *user);
/* "low", "normal", "high". Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_account_set_priority(ls_account *account, const char *name);
/* Behind the last of them. next_job: number of the next one. */
void ls_controller_restored(ls_controller *controller, uint64_t next_job);

/*
 * Asks. arguments: an object, borrowed; NULL: none. reply comes with the end of a turn. refuse_changes as set by ls_controller_pause.
 */
void ls_controller_call(ls_controller *controller, const ls_caller *caller, ls_verb verb,
                        const json_t *arguments, ls_controller_reply reply, void *context);
/* Nobody waits for the answer any more. */
void ls_controller_forget(ls_controller *controller, void *context);

void ls_controller_report(ls_controller *controller, const ls_engine_report *report);

/* reason: why nothing can be changed for now ("the disk is full ..."); calls that change something are refused with 507. NULL: again. */
void ls_controller_pause(ls_controller *controller, const char *reason);

/* ---- out ---- */

/* Has anything come in, or is anything due, since the last turn? */
bool ls_controller_has_work(const ls_controller *controller);
/* LS_VERB_DOWN was called, and what it waits for, if anything, is over. */
bool ls_controller_is_down(const ls_controller *controller);
/* When a turn is due though nothing comes in, since 1970; 0: never. */
double ls_controller_next_s(const ls_controller *controller);

/* turn_out: valid until ls_controller_turn_done or ls_controller_turn_failed. */
void ls_controller_turn(ls_controller *controller, ls_turn *turn_out);
/* It is on the disk, and what was ordered is under way: replies are called. */
void ls_controller_turn_done(ls_controller *controller);
/* It could not be written, and no order of it may be carried out. Jobs that it created end as CANCELLED; everything else stays to be written, and comes
 * again with the next turn. Replies are called: what would have been changed is answered with 507. */
void ls_controller_turn_failed(ls_controller *controller, const char *error);

/* An ended job is to be forgotten for good: takes it out of memory. False when it has not ended, when that is not on the disk yet, or when a job waits for it. */
bool ls_controller_let_go(ls_controller *controller, uint64_t id);

/* ---- look ---- */

/* NULL: not in memory. */
const ls_job *ls_controller_job(const ls_controller *controller, uint64_t id);
/* Numbers for /metrics: the answer of LS_VERB_STATUS. A new object. */
json_t *ls_controller_status(ls_controller *controller);

#endif
