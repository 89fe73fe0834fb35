// SPDX-License-Identifier: Apache-2.0
/*
 * Controller: the state machine of all jobs. It is pure: it has no clock, files or processes. Its
 * owner hands in what happened and carries out what comes out, in this order:
 *
 *   calls (API) ─┐                                   ┌─ rows and journal ──▶ store, one transaction
 *   reports ─────┼─▶ controller ─▶ ls_controller_turn ┤        │ on the disk
 *   time ────────┘     (state)       (policy's pass)  ├─ orders ▼──────────▶ engine
 *                                                     └─ replies ──────────▶ callers
 *
 * A turn handles all that came in since the last one. An order or a reply leaves only after what
 * led to it is on the disk, so a crash between any two of these steps leaves rows from which
 * ls_controller_restore can continue: it asks the engine what became of every job that had devices.
 *
 * Between ls_controller_turn and ls_controller_turn_done no other function is called. One owner,
 * one thread.
 */
#ifndef LS_ORCHESTRATION_CONTROL_CONTROLLER_H
#define LS_ORCHESTRATION_CONTROL_CONTROLLER_H

#include "base/json.h"
#include "base/status.h"
#include "orchestration/engines/engine.h"
#include "orchestration/job/job.h"
#include "telemetry/record/alert.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_controller ls_controller;

/* The user who makes a call. */
typedef struct ls_caller {
    uint32_t uid, gid;
    const char *user; /* the name of uid, or its number */
    bool is_admin;    /* root, the user who runs the daemon, or a caller with its token */
} ls_caller;

/* What a caller can ask for. Arguments -> answer; ? marks what may be missing. */
typedef enum ls_verb {
    /* A request (ls_job_spec_parse), "avoid"?: [names under runs]
     *   -> 201 {"job", "state", "run_dir"}; 200 when the user has a job with the same "key"
     *   already */
    LS_VERB_SUBMIT,
    /* A request with "set": {key: [values]}, "running_max"?, "samples"?
     *   -> 201 {"jobs": [..], "group"} */
    LS_VERB_SWEEP,
    /*
     * {"all"?, "ended"?, "account"?, "user"?, "group"?, "state"?, "limit"?, "before"?}
     *   -> {"jobs": [..], "before"}
     * All waiting and running jobs (not with ended or before), and the last `limit` ended ones,
     * only those that ended before job `before`. Sorted by number; ended jobs alone by end, the
     * last first.
     */
    LS_VERB_LIST,
    /* -> {"sweeps": [..]}: those of the caller; of all users for an administrator */
    LS_VERB_SWEEPS,
    /* {"job"} -> the sweep that the job belongs to, with all its jobs; 404: none */
    LS_VERB_SWEEP_OF,
    /* {"job"} -> everything about the job */
    LS_VERB_SHOW,
    /*
     * {"job"}
     *   -> {"job", "stage", "needed", "available", "blockers", "eta_s", "counterfactuals", "text",
     *   ..}
     */
    LS_VERB_WHY,
    /* {"job", "after"?, "limit"?}
     *   -> {"events": [{"id", "time", "from", "to", "epoch", "cause", "text"}]} */
    LS_VERB_EVENTS,
    /* {"job"}; 409 when the job has ended */
    LS_VERB_CANCEL,
    /* {"job"}; a running job first gives its devices back */
    LS_VERB_HOLD,
    /* {"job"}; 409 when the job is not held */
    LS_VERB_RELEASE,
    /* {"job", "ranks"?, "max_ranks"?} -> {"job", "state", "ranks", "ranks_now", "min_ranks",
     * "max_ranks", "text"} */
    LS_VERB_RESIZE,
    /* {"job", "priority": "low" | "normal" | "high"} */
    LS_VERB_PRIORITY,
    /* {"job", "time_limit_s"?, "account"?, "after"?: [..], "priority"?, "max_cost"?}; 409 unless it
     * waits, or max_cost is all that changes; null: no cap */
    LS_VERB_CHANGE,
    /*
     * The queue as a whole; administrators only. Each answers with the state of all: {"paused",
     * "drained", "maintenance"} (control/upkeep.c). {"reason"?}: no job starts until RESUME
     */
    LS_VERB_PAUSE,
    LS_VERB_RESUME,
    /* {"node"?, "reason"?}: no job starts on that node until UNDRAIN */
    LS_VERB_DRAIN,
    LS_VERB_UNDRAIN,
    /* {"begin", "end", "reason"?}: nothing runs in that time; {"window"}: calls it off */
    LS_VERB_MAINTAIN,
    LS_VERB_MAINTAIN_NOT,
    /* -> {"nodes": [..]} */
    LS_VERB_NODES,
    /* -> {"accounts": [..]} */
    LS_VERB_ACCOUNTS,
    /* {"account", "weight"?, "quota"?, "borrow"?, "lend"?, "users"?, "priority_max"?, "budget"?}
     * Administrators only; creates the account when there is none of that name. */
    LS_VERB_ACCOUNT,
    /*
     * {"since"?, "user"?} -> {"accounts": [..], "total": {..}}
     * With one of them, the sums over jobs that ended at that time or later, or have not ended, by
     * account and user; callers who are not administrators get their own.
     */
    LS_VERB_USAGE,
    /* {"after"?} -> {"alerts": [{"id", "kind", "time", "job", "account", "text"}]}, the oldest
     * first, those after number `after`; of jobs only those that the caller may see */
    LS_VERB_ALERTS,
    /* -> counts by state, devices, version */
    LS_VERB_STATUS,
    /* {"config", "changed": [..], "restart": [..]}, what the daemon has done already -> the same;
     * administrators only */
    LS_VERB_RELOAD,
    /* {"cancel"?}; administrators only; ends the daemon, and with cancel all jobs first */
    LS_VERB_DOWN,
    LS_VERBS
} ls_verb;

/*
 * Called once for each call, from ls_controller_turn_done. status: an HTTP status; 2xx is success.
 * answer: an object, {"error": TEXT} for an error; valid during the call.
 */
typedef void (*ls_controller_reply)(void *context, int status, const json_t *answer);

/* A line of the journal, written to the store together with the row. /v1/events shows the same. */
typedef struct ls_transition {
    uint64_t job; /* 0: about the queue as a whole; only the text counts */
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

#define LS_BUDGET_USD_MIN 0.01
#define LS_BUDGET_USD_MAX 1e9
enum { LS_ACCOUNT_WEIGHT_MAX = 1000000, LS_ACCOUNT_USERS_BYTES_MAX = 1000 };

/* What an account may use and has used. */
typedef struct ls_account {
    char name[LS_JOB_ACCOUNT_BYTES_MAX + 1];
    uint32_t weight;              /* in fair share, 1 or more */
    uint32_t quota, borrow, lend; /* devices; UINT32_MAX: no limit */
    /* highest priority of its jobs; administrators may go beyond */
    ls_priority priority_max;
    char users[LS_ACCOUNT_USERS_BYTES_MAX + 1]; /* "ann,bob": its members; "": open to everyone */
    uint64_t allocated_device_ms, idle_device_ms, waiting_device_ms, lost_device_ms;
    /* allocated, each at the price of its kind as a multiple of the price of a device; so are those
     * of a month */
    uint64_t priced_device_ms;
    uint64_t energy_mj; /* millijoules; 0: not known */
    uint64_t jobs;
    uint64_t share_ms[3], share_at_ms; /* past usage as the policy weighs it (ls_policy_usage) */
    double budget_usd;                 /* of a calendar month (UTC); 0: no limit */
    /* What was booked in `month`, 12 * year + month, since month_from_s of the wall clock, and in
     * the month before; the share of the budget that was told: 0, 80 or 100 per cent. */
    uint32_t month, month_told;
    double month_from_s;
    uint64_t month_device_ms, last_month_device_ms;
    bool is_deleted; /* its row is to be removed; it is not listed, and may be created anew */
} ls_account;

/* What a person is to be told. Texts of jobs come from their users; they have no control
 * characters. */
typedef struct ls_alert {
    uint64_t id; /* from 1 */
    ls_alert_kind kind;
    double time_s;                              /* of the wall clock */
    uint64_t job;                               /* 0: about an account, or the queue as a whole */
    char account[LS_JOB_ACCOUNT_BYTES_MAX + 1]; /* "": none */
    char text[LS_ALERT_TEXT_BYTES];
} ls_alert;
/* {"id", "kind", "time", "job", "account", "text"}, a new object. */
json_t *ls_alert_json(const ls_alert *alert);

typedef struct ls_turn {
    double time_s;
    ls_job *const *created; /* to be inserted with their requests; they are also among `changed` */
    uint32_t created_count;
    ls_job *const *changed; /* rows to be written */
    uint32_t changed_count;
    const ls_transition *transitions;
    uint32_t transition_count;
    const ls_account *const *accounts; /* rows to be written */
    uint32_t account_count;
    const ls_alert *alerts; /* to be told once the turn is written; their text is in transitions */
    uint32_t alert_count;
    const json_t *upkeep; /* to be written; NULL: unchanged */
    const json_t *sweeps; /* rows to be written, {"first", "count", "state"}; NULL: none */
    const ls_engine_order *orders;
    uint32_t order_count;
    bool must_be_written; /* there are rows to write */
} ls_turn;

/* What the controller has to ask its owner. */
typedef struct ls_controller_calls {
    void *context;
    /* Seconds since 1970, by a clock that does not jump. */
    double (*now_s)(void *context);
    /* How far the clock of the wall is ahead of it. Times in answers, in reports and of jobs that
     * have ended are those of the wall. NULL: the two are the same. */
    double (*ahead_s)(void *context);
    /* The journal of a job from the store, for LS_VERB_EVENTS: at most `limit` entries after number
     * `after`. An array; NULL: it cannot be read. */
    json_t *(*journal)(void *context, uint64_t job, uint64_t after, uint32_t limit);
    /* A job that is no longer in memory; the controller destroys it. NULL: there is none. */
    ls_job *(*old_job)(void *context, uint64_t id);
    /* The state of such a job, without reading its request; LS_JOB_STATES: there is none. */
    ls_job_state (*old_state)(void *context, uint64_t id);
    /* Sums over the jobs that ended at since_s or later: an array of {"account", "user", "jobs",
     * "allocated", "idle", "waiting", "lost", "priced"}, in device-milliseconds, "energy" in
     * millijoules, and "stored" and "sent" in bytes.
     * NULL: it cannot be read. */
    json_t *(*used)(void *context, double since_s);
    /* The number of the user's job with that key, of those that are no longer in memory; 0: none.
     * NULL: there are none. */
    uint64_t (*keyed_job)(void *context, uint32_t uid, const char *key);
    /* Whether this machine has a user of that name. NULL: not known. */
    bool (*is_user)(void *context, const char *name);
    /* Fills job->plan of a new job as far as predictions are possible. NULL: none are. */
    void (*foresee)(void *context, ls_job *job);
} ls_controller_calls;

typedef struct ls_controller_settings {
    /* of a GB: for a month, and sent; 0: not known */
    double storage_price, egress_price;
    const char *order; /* "fair", "fifo", ...: a policy of `simulate` */
    bool preempt;
    uint32_t reservations; /* jobs at the head of the queue that get a reserved start */
    double half_life_s;    /* half-life of past usage in fair share */
    double min_run_s;      /* a job is not preempted sooner after its start */
    /* minimum time after a start or resize before an elastic job may grow */
    double resize_pause_s;
    double idle_s;                 /* devices idle for this long are reported; 0: never */
    double idle_stop_s;            /* jobs with devices idle for this long are stopped; 0: never */
    double idle_interactive_s;     /* the same for interactive jobs that are not used; 0: never */
    uint32_t idle_permille;        /* devices less busy than this count as idle */
    double busy_for_s, busy_below; /* alert: devices busy for less than that share; 0: never */
    double start_timeout_s;        /* a job STARTING for longer counts as lost */
    double price_per_device_h;     /* price of a device-hour in `usage`; 0: not known */
    /* "KIND=PRICE", for nodes of those kinds; must outlive the controller */
    ls_option_strings kind_prices;
    const char *currency;
    bool strict_accounts;   /* accounts must exist; otherwise they are created when first used */
    bool own_accounts_only; /* ordinary users create only their own */
    bool show_names;        /* names and users of all jobs are shown to all users */
    /* limits on jobs that have not ended: in total, and per user (administrators are exempt) */
    uint32_t jobs_max, user_jobs_max;
    uint64_t bytes_max, user_bytes_max; /* limits on the bytes of their requests */
    uint32_t ended_max;                 /* ended jobs kept in memory */
} ls_controller_settings;

/* engine: only asked for its nodes and whether it decides; it is given no orders. calls: copied.
 * Errors: LS_ERR_INVALID (settings), LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_controller_create(const ls_controller_settings *settings, ls_engine *engine,
                                             const ls_controller_calls *calls,
                                             ls_controller **controller_out);
void ls_controller_destroy(ls_controller *controller);
/* New settings, at any time. order, reservations, half_life_s and jobs_max keep their values. */
void ls_controller_configure(ls_controller *controller, const ls_controller_settings *settings);

/* ---- in ---- */

/* Before the first turn: the jobs of the store. Takes over the job. */
void ls_controller_restore(ls_controller *controller, ls_job *job);
void ls_controller_restore_account(ls_controller *controller, const ls_account *account);
/* Sets weight and limits of an account, at any time; creates it when there is none of that name.
 * Errors: LS_ERR_INVALID when there are too many accounts. */
LS_MUST_CHECK ls_status ls_controller_set_account(ls_controller *controller, const ls_account *account);
/* Whether it has 1 to LS_JOB_ACCOUNT_BYTES_MAX letters, digits, '.', '_' and '-', and does not
 * begin with '.' or '-'. */
bool ls_account_name_is_good(const char *name);
/* Weight 1, no limits, open to everyone, up to normal priority; without a name. */
ls_account ls_account_default(void);
/* Adds a member. Errors: LS_ERR_INVALID: not a name, or too many members. */
LS_MUST_CHECK ls_status ls_account_add_user(ls_account *account, const char *user);
/* "low", "normal", "high". Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_account_set_priority(ls_account *account, const char *name);
/* Pauses, drained nodes and maintenance, as a turn has handed them out. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_controller_restore_upkeep(ls_controller *controller, const json_t *upkeep);
/* The state of a sweep, as a turn has handed it out. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_controller_restore_sweep(ls_controller *controller, const json_t *state);
/* To be called after the last of them. next_job: the number of the next job. */
void ls_controller_restored(ls_controller *controller, uint64_t next_job);

/*
 * Makes a call. arguments: an object, borrowed; NULL: none. The reply comes at the end of a turn.
 */
void ls_controller_call(ls_controller *controller, const ls_caller *caller, ls_verb verb,
                        const json_t *arguments, ls_controller_reply reply, void *context);
/* The caller has gone; its reply is not called. */
void ls_controller_forget(ls_controller *controller, void *context);

void ls_controller_report(ls_controller *controller, const ls_engine_report *report);

/* Tells of something that is no report of an engine: little space on a disk. */
void ls_controller_alert(ls_controller *controller, ls_alert_kind kind, const char *text);

/* reason: why changes are not possible ("the disk is full ..."); calls that change something,
 * other than LS_VERB_CANCEL, are then refused with 507, and nothing is started. NULL: changes are
 * possible again. */
void ls_controller_pause(ls_controller *controller, const char *reason);

/* ---- out ---- */

/* Whether something came in, or became due, since the last turn. */
bool ls_controller_has_work(const ls_controller *controller);
/* LS_VERB_DOWN was called, and the jobs it waits for, if any, have ended. */
bool ls_controller_is_down(const ls_controller *controller);
/* When a turn is due even if nothing comes in, in seconds since 1970; 0: never. */
double ls_controller_next_s(const ls_controller *controller);

/* turn_out: valid until ls_controller_turn_done or ls_controller_turn_failed. */
void ls_controller_turn(ls_controller *controller, ls_turn *turn_out);
/* The turn is on the disk and its orders are under way: calls the replies. */
void ls_controller_turn_done(ls_controller *controller);
/*
 * An order that only stops a job which runs already: it is carried out even when the turn cannot be
 * written, because the job may be what fills the disk.
 */
bool ls_turn_is_urgent(const ls_turn *turn, uint32_t order);
/*
 * The turn could not be written. Its urgent orders have been carried out and do not come again;
 * none of the others may be. Jobs that it created end as CANCELLED; everything else comes again
 * with the next turn. Calls the replies: changes are answered with 507.
 */
void ls_controller_turn_failed(ls_controller *controller, const char *error);

/* Takes an ended job out of memory for good. false: it has not ended, its end is not on the disk
 * yet, or a job waits for it. */
bool ls_controller_let_go(ls_controller *controller, uint64_t id);

/* ---- look ---- */

/* NULL: it is not in memory. */
const ls_job *ls_controller_job(const ls_controller *controller, uint64_t id);

#endif
