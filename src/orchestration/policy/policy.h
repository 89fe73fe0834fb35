// SPDX-License-Identifier: Apache-2.0
/*
 * Policy: which job runs next, where, and why the others wait. The pure core of the queue.
 *
 * Events go in (a job is submitted, ends or changes; a node comes or goes; time passes). A pass
 * returns actions (start a job on these devices, preempt, shrink, grow, end). `why` says for each
 * waiting job what it waits for. There is no clock, no I/O, no thread, no floating point in
 * decisions and no allocation after creation: the same events give the same bytes of actions, in
 * the daemon, in the simulator and in tests.
 *
 *   submit -> pending --START--> running --ended--> gone
 *               ^                  |
 *               |                  |  PREEMPT, SHRINK, GROW, END: the caller carries them out
 *               +----requeued------+  and reports requeued, resized or ended
 *
 * Time is in milliseconds, on a clock of the caller that never goes back; every event carries it.
 * All ranks of a job start at once or none does (a gang). The caller carries out the actions and
 * reports the result of each; until then the devices count as taken.
 *
 * One owner, one thread. Nodes are named by their index in the ls_policy_cluster, jobs by the id
 * they were submitted with. Errors of events: LS_ERR_NOT_FOUND for a job that is not here,
 * LS_ERR_INVALID for an event that is not possible; the state is then unchanged.
 */
#ifndef LS_ORCHESTRATION_POLICY_POLICY_H
#define LS_ORCHESTRATION_POLICY_POLICY_H

#include "orchestration/policy/topology.h"

#include <stddef.h>

typedef struct ls_policy ls_policy;

/* ---- settings ---- */

typedef enum ls_policy_order {
    /* priority, fair share, age and size, weighted */
    LS_ORDER_FAIR,
    /* by id; a job that does not fit stops all jobs after it */
    LS_ORDER_FIFO,
    /* by id; a job that does not fit is skipped */
    LS_ORDER_FIFO_SKIP,
    /* by id; the first job that does not fit gets a reservation, and others may start if they do
     * not delay it */
    LS_ORDER_EASY,
    /* shortest expected_ms first, jobs that do not fit are skipped; needs known run times */
    LS_ORDER_SJF_ORACLE,
    /* least attained service first, in queues; needs no predictions */
    LS_ORDER_LAS,
    LS_ORDER_COUNT
} ls_policy_order;

/* The names that lockstep simulate takes: fair fifo fifo-skip easy sjf-oracle las. */
const char *ls_order_name(ls_policy_order order);
LS_MUST_CHECK ls_status ls_order_parse(const char *name, ls_policy_order *order_out);

enum {
    LS_LAS_QUEUES_MAX = 8,
    LS_RESERVATIONS_MAX = 32,
    LS_PRIORITIES = 3, /* 0 low, 1 normal, 2 high */
    LS_GAINS_MAX = 64, /* points of a speed curve that are kept */
    LS_AFTER_MAX = 64,
    LS_WINDOWS_MAX = 16,
    LS_JOBS_MAX = 1 << 20
};

/* No quota, no limit. */
#define LS_UNLIMITED UINT64_MAX

typedef struct ls_policy_settings {
    ls_policy_order order;
    /* Weights of the factors of a job's rank, named as in Slurm's multifactor plugin. A factor is
     * 0 to 65536. */
    uint32_t weight_priority, weight_fair, weight_age, weight_size;
    /* half-life of an account's past usage; 0: usage never decays */
    uint64_t half_life_ms;
    /* the age at which the age factor reaches its maximum */
    uint64_t age_max_ms;
    /* A job that has waited this long gets devices kept free as they become free, even when no end
     * can be predicted. In a later queue of LAS it has to wait for patience_served_ms, and for half
     * as long as it has run before. */
    uint64_t patience_ms;
    uint64_t patience_served_ms;
    /* jobs at the head of the queue that get a reserved start; see ls_policy_pass for what a
     * reservation promises */
    uint32_t reservations;
    bool preempt, elastic;
    /* a job that started less long ago is not preempted */
    uint64_t min_run_ms;
    /* most preemptions of one job within preemption_window_ms */
    uint32_t preemptions_max;
    uint64_t preemption_window_ms;
    /* what a stop and a start cost, besides the work since the last checkpoint */
    uint64_t restart_cost_ms;
    /* a job is in queue i while its attained service is below [i]; 0 ends the list */
    uint64_t las_thresholds_device_ms[LS_LAS_QUEUES_MAX];
    /* Hysteresis: an elastic job does not grow sooner than this after a start or resize, and only
     * when growing makes it faster by resize_gain_permille. */
    uint64_t resize_pause_ms;
    uint32_t resize_gain_permille;
    /* capacity: all memory is allocated at creation */
    uint32_t jobs_max, accounts_max, datasets_max;
    /* count devices and ignore nodes: for comparisons */
    bool pooled;
} ls_policy_settings;

ls_policy_settings ls_policy_settings_default(void);

/* ---- accounts ---- */

typedef enum ls_resource {
    LS_RESOURCE_DEVICES,
    LS_RESOURCE_CPUS,
    LS_RESOURCE_MEMORY,
    LS_RESOURCES
} ls_resource;

typedef struct ls_quota {
    /* the account's own; LS_UNLIMITED: no quota, so that it never borrows */
    uint64_t nominal;
    /* what it may use beyond nominal while others do not use it; they can reclaim it */
    uint64_t borrow_max;
    /* the part of nominal that others may use while this account does not */
    uint64_t lend_max;
} ls_quota;

typedef struct ls_policy_account {
    uint32_t weight;              /* share of the cluster relative to other accounts, >= 1 */
    ls_quota quota[LS_RESOURCES]; /* devices, cores, MiB */
} ls_policy_account;

/* Weight 1, no quota. */
ls_policy_account ls_policy_account_default(void);

/* Past usage of an account, halved every half_life_ms: fractions of the cluster's capacity (2^20 is
 * all of it) times milliseconds. */
typedef struct ls_policy_usage {
    uint64_t share_ms[LS_RESOURCES];
    uint64_t at_ms;
} ls_policy_usage;

/* ---- jobs ---- */

typedef struct ls_policy_job {
    uint64_t id;      /* unique, not 0; later jobs have larger ids */
    uint32_t account; /* below accounts_max */
    uint32_t user;
    uint8_t priority; /* 0 low, 1 normal, 2 high */
    /*
     * Devices wanted, >= 1. Elastic when min < max; it starts with as many of [min, ranks] as fit.
     */
    uint32_t ranks, min_ranks, max_ranks;
    uint32_t ranks_multiple;   /* sizes are multiples of this, >= 1; it divides the three above */
    uint32_t devices_per_node; /* exactly this many on each node; 0: any number */
    int32_t kind;              /* of device; -1: any */
    uint32_t cpus_per_rank, memory_mib_per_rank;
    /* all ranks must be within one of these; LS_LEVEL_CLUSTER: anywhere */
    ls_level required;
    /* up to this level spreading out does no harm, and is done when it keeps blocks whole or finds
     * the job's data */
    ls_level preferred;
    bool spot;        /* may run on spot nodes; preempted first */
    bool preemptible; /* saves its state when told to stop, and continues later */
    uint64_t submit_ms;
    uint64_t begin_ms;          /* does not start before this time */
    uint64_t limit_ms;          /* longest run time of one start, then it is ended; 0: none */
    uint64_t expected_ms;       /* run time at `ranks`, predicted or known; 0: not known */
    uint64_t deadline_ms;       /* raises its rank as it comes nearer; 0: none */
    uint64_t group;             /* array or sweep; 0: none */
    uint32_t group_running_max; /* most jobs of the group that run at once; 0: no limit */
    /* Starts when these jobs have succeeded (with after_any: have ended). Ids that are not here
     * count as succeeded. Copied; after_count <= LS_AFTER_MAX. */
    const uint64_t *after;
    uint32_t after_count;
    bool after_any;
    uint64_t dataset;             /* what it reads; 0: not known */
    uint64_t comm_bytes_per_step; /* says how much distance matters; 0: not known */
    /* [i]: throughput at min_ranks + i ranks in thousandths of that at min_ranks; from the planner.
     * Copied; gain_count 0: not known. */
    const uint32_t *gain_permille;
    uint32_t gain_count;
    bool held;
} ls_policy_job;

/* One rank anywhere, normal priority, preemptible, not spot. */
ls_policy_job ls_policy_job_default(void);

typedef struct ls_share {
    uint32_t node;    /* index in the cluster */
    uint64_t devices; /* bit mask on that node */
} ls_share;

/* ---- what a pass decides ---- */

typedef enum ls_action_kind {
    /* Start it on `shares`. Report started; or requeued or ended when that was not possible. */
    LS_ACTION_START,
    /* Save and stop it. Report requeued (or ended). */
    LS_ACTION_PREEMPT,
    /* Keep only `shares`. Report resized. */
    LS_ACTION_SHRINK,
    /* Continue on `shares`. Report resized. */
    LS_ACTION_GROW,
    /* End it: its time limit is reached (for_job 0, not for_window), or its devices are needed, or
     * maintenance begins, and it can't save. Report ended. */
    LS_ACTION_END,
    /* It will never start, because a job it waits for has failed. The job is gone. */
    LS_ACTION_CANNOT,
} ls_action_kind;

const char *ls_action_name(ls_action_kind kind);

typedef struct ls_action {
    ls_action_kind kind;
    /* for_job: the job that gets what PREEMPT, SHRINK or END sets free; 0: none */
    uint64_t job, for_job;
    /* all that the job has after this action; valid until the next pass; none when pooled */
    const ls_share *shares;
    uint32_t share_count;
    bool for_window; /* PREEMPT, END: because maintenance begins */
    uint32_t ranks;  /* after this action; PREEMPT, END, CANNOT: 0 */
    ls_level level;  /* START, SHRINK, GROW: the lowest level that holds all shares */
} ls_action;

/* ---- life cycle ---- */

/*
 * Errors: LS_ERR_INVALID (a setting, the cluster). The cluster is copied as far as needed. Tables
 * for jobs_max jobs (0.4 KiB each) and for all nodes are in an arena (base/arena.h); the process
 * stops when there is not enough memory.
 */
LS_MUST_CHECK ls_status ls_policy_create(const ls_policy_cluster *cluster, const ls_policy_settings *settings,
                                         ls_policy **policy_out);
void ls_policy_destroy(ls_policy *policy); /* NULL is allowed */

/* What may change while there are jobs; the next pass decides by it. */
typedef struct ls_policy_tuning {
    bool preempt;
    uint64_t min_run_ms, resize_pause_ms;
} ls_policy_tuning;
void ls_policy_tune(ls_policy *policy, const ls_policy_tuning *tuning);

/* ---- events ---- */

/* A new or changed account; accounts that were never set have the default. */
LS_MUST_CHECK ls_status ls_policy_account_set(ls_policy *policy, uint64_t now_ms, uint32_t account,
                                              const ls_policy_account *value);
/* Past usage, which the caller has to bring back after a restart. */
LS_MUST_CHECK ls_status ls_policy_usage_get(const ls_policy *policy, uint64_t now_ms, uint32_t account,
                                            ls_policy_usage *usage_out);
LS_MUST_CHECK ls_status ls_policy_usage_set(ls_policy *policy, uint32_t account,
                                            const ls_policy_usage *usage);

/* Errors: LS_ERR_INVALID with the reason when a field is out of range or the job can never run
 * here; LS_ERR_MEMORY when there are jobs_max jobs already. */
LS_MUST_CHECK ls_status ls_policy_submit(ls_policy *policy, uint64_t now_ms, const ls_policy_job *job);

/* What is known of a job that already runs when the caller restarts. */
typedef struct ls_policy_running {
    const ls_share *shares; /* NULL when pooled */
    uint32_t share_count, ranks;
    uint64_t started_ms, checkpoint_ms; /* of this start; last checkpoint, 0: none */
    uint64_t attained_device_ms;        /* of earlier starts */
    uint32_t preemptions;
} ls_policy_running;
/* Submits a running job. Errors: LS_ERR_INVALID when devices are taken or do not exist. */
LS_MUST_CHECK ls_status ls_policy_restore_running(ls_policy *policy, uint64_t now_ms,
                                                  const ls_policy_job *job, const ls_policy_running *running);

/* All its ranks run. */
LS_MUST_CHECK ls_status ls_policy_started(ls_policy *policy, uint64_t now_ms, uint64_t job);
/*
 * The job ended, by itself or because it was told to, in any state: a pending job can be cancelled.
 */
LS_MUST_CHECK ls_status ls_policy_ended(ls_policy *policy, uint64_t now_ms, uint64_t job, bool succeeded);
/* The job was stopped, or could not start, and waits again. */
LS_MUST_CHECK ls_status ls_policy_requeued(ls_policy *policy, uint64_t now_ms, uint64_t job);
/* SHRINK or GROW is done. */
LS_MUST_CHECK ls_status ls_policy_resized(ls_policy *policy, uint64_t now_ms, uint64_t job);
LS_MUST_CHECK ls_status ls_policy_hold(ls_policy *policy, uint64_t now_ms, uint64_t job, bool held);
LS_MUST_CHECK ls_status ls_policy_checkpointed(ls_policy *policy, uint64_t now_ms, uint64_t job);
/* How long the job will still run at its current ranks (`ranks` when it waits), from telemetry. */
LS_MUST_CHECK ls_status ls_policy_progress(ls_policy *policy, uint64_t now_ms, uint64_t job,
                                           uint64_t left_ms);

/* What can be changed about a job, and what a counterfactual of `why` changes. */
typedef enum ls_change_kind {
    /* ranks, and min_ranks down to it; the next pass resizes a running elastic job to it */
    LS_CHANGE_RANKS,
    LS_CHANGE_PRIORITY, /* 0..2 */
    LS_CHANGE_LIMIT,    /* limit_ms */
    LS_CHANGE_REQUIRED, /* an ls_level */
    LS_CHANGE_PER_NODE, /* devices_per_node */
    LS_CHANGE_KIND,     /* kind + 1; 0: any */
    LS_CHANGE_SPOT,     /* 0, 1 */
    LS_CHANGE_HELD,     /* 0, 1 */
    LS_CHANGE_BEGIN,    /* begin_ms */
    LS_CHANGE_GROUP,    /* group_running_max */
    /* of an elastic job; a running one with more ranks shrinks at the next pass */
    LS_CHANGE_MAX_RANKS,
    LS_CHANGE_ACCOUNT, /* of a waiting job; it keeps its group */
    /* in `why` only: devices that its account may use beyond what it may use now */
    LS_CHANGE_QUOTA,
    LS_CHANGE_COUNT
} ls_change_kind;

const char *ls_change_name(ls_change_kind kind);
/* Errors: LS_ERR_INVALID for values out of range, and when the job could then never run. */
LS_MUST_CHECK ls_status ls_policy_change(ls_policy *policy, uint64_t now_ms, uint64_t job,
                                         ls_change_kind kind, uint64_t value);

/*
 * Replaces what a waiting job waits for: `after`, `after_count` and `after_any` of ls_policy_job.
 * The caller sees to it that no two jobs wait for each other.
 */
LS_MUST_CHECK ls_status ls_policy_depend(ls_policy *policy, uint64_t now_ms, uint64_t job,
                                         const uint64_t *after, uint32_t after_count, bool after_any);

typedef enum ls_node_state { LS_NODE_UP, LS_NODE_DRAINING, LS_NODE_DOWN } ls_node_state;
/* No job starts on a node that is not up. Jobs that ran on a node that is down are reported as
 * requeued or ended by the caller. */
LS_MUST_CHECK ls_status ls_policy_node_set(ls_policy *policy, uint64_t now_ms, uint32_t node,
                                           ls_node_state state);
/*
 * Replaces the windows of maintenance, in which nothing runs. A job that saves when told to stop
 * may start before a window and is preempted when it begins; any other job starts only if its time
 * limit ends before the window. Whatever still runs when a window begins is told to stop.
 */
typedef struct ls_policy_window {
    uint64_t begin_ms, end_ms; /* begin_ms < end_ms */
} ls_policy_window;
/* Errors: LS_ERR_INVALID: more than LS_WINDOWS_MAX, or a window that ends before it begins. */
LS_MUST_CHECK ls_status ls_policy_windows_set(ls_policy *policy, const ls_policy_window *windows,
                                              uint32_t count);
/*
 * Whether the node has the data set in its cache. Beyond datasets_max different data sets nothing
 * is remembered. Not needed for a cluster of one node: its jobs share one cache
 * (storage/cache/cache.h).
 */
LS_MUST_CHECK ls_status ls_policy_dataset_set(ls_policy *policy, uint32_t node, uint64_t dataset,
                                              bool cached);

/* ---- decisions ---- */

/*
 * What a reserved start promises. The first `reservations` jobs that do not fit get a start time
 * and devices where ends are predicted (left_ms, limits). Where they are not, a job that has waited
 * for patience_ms has devices kept free as they become free, one job at a time.
 *
 *   Place: a job with a reservation keeps its place in the order until it starts. No job of its
 *   priority class that is submitted later, or ranks higher later, comes before it.
 *
 *   Time: the first of all jobs never starts later than was first promised, except for: a job of a
 *   higher class; a node that is lost, drained or comes back; an end that was predicted wrong
 *   (starts and stops take time); a change of quota or of the job itself (another priority or a
 *   hold gives the place up). The jobs after the first keep their place, not their time: when one
 *   before them is planned anew on other devices, they may move either way.
 *
 *   Quota: what is the account's own is kept for the job. What it would have to borrow is promised
 *   to no job, and other accounts may reclaim theirs first.
 *
 *   Running jobs grow, and are shrunk, only where reservations allow it.
 *
 * A restart of the caller forgets places and patience: they are given anew, by rank.
 */

/* Decides. The actions are valid until the next pass, in the order in which they are to be carried
 * out. */
void ls_policy_pass(ls_policy *policy, uint64_t now_ms, const ls_action **actions_out, uint32_t *count_out);

/* When a pass is due even without an event (a time limit, a begin time, a reservation, a queue of
 * LAS); UINT64_MAX: never. */
uint64_t ls_policy_next_ms(const ls_policy *policy, uint64_t now_ms);

/* ---- why ---- */

/* What a job waits for: the first stage that it does not pass. */
typedef enum ls_why_stage {
    LS_WHY_IMPOSSIBLE,  /* it can never run as it is */
    LS_WHY_HOLD,        /* it is held */
    LS_WHY_DEPENDENCY,  /* it waits for other jobs */
    LS_WHY_BEGIN,       /* its begin time has not come */
    LS_WHY_MAINTENANCE, /* there is maintenance, or it could run into some */
    LS_WHY_GROUP,       /* as many jobs of its group run as may */
    LS_WHY_QUOTA,       /* its account may not use more now */
    LS_WHY_PRIORITY,    /* other jobs come first */
    LS_WHY_GANG,        /* fewer devices are free than it needs */
    LS_WHY_PLACEMENT,   /* enough are free, but too far apart, or of another kind */
    LS_WHY_RESERVATION, /* the free devices are reserved, and it would not end in time */
    LS_WHY_STARTING,    /* its devices are being freed, or the next pass starts it */
    LS_WHY_RUNNING,     /* it does not wait */
    LS_WHY_STAGES
} ls_why_stage;

/* "impossible", "hold", ... */
const char *ls_why_stage_name(ls_why_stage stage);

/* Why a running job that ranks below a waiting one is not stopped for it. */
typedef enum ls_kept {
    LS_KEPT_NOT,     /* it does not rank below, or may be stopped */
    LS_KEPT_UNSAVED, /* it does not save when told to stop */
    LS_KEPT_YOUNG,   /* it started less than min_run_ms ago */
    LS_KEPT_OFTEN,   /* it was stopped preemptions_max times within the window */
} ls_kept;

enum { LS_WHY_BLOCKERS_MAX = 8, LS_WHY_CHANGES_MAX = 8 };

/* A job in the way. Stage dependency: a job it waits for; priority, reservation: a job that comes
 * first; otherwise a job that has the devices it needs. */
typedef struct ls_blocker {
    uint64_t job;
    uint32_t devices;
    uint64_t ends_ms; /* predicted; 0: not known */
    ls_kept kept;
} ls_blocker;

/* A counterfactual: with this one change the job would start at starts_ms. */
typedef struct ls_counterfactual {
    ls_change_kind kind;
    uint64_t value;     /* as for ls_policy_change */
    uint64_t starts_ms; /* now_ms: at the next pass */
} ls_counterfactual;

typedef struct ls_why {
    ls_why_stage stage;
    /* devices at least; quota: devices beyond what the account may use; dependency, group: jobs */
    uint32_t needed;
    /* most free devices in one domain of `level`; quota: what the account may still use */
    uint32_t available;
    ls_level level;          /* where the devices are needed */
    ls_policy_window window; /* maintenance: the one in its way */
    /* most free devices (of its kind) in one island, node, leaf, spine, and in the cluster */
    uint32_t free_most[LS_LEVEL_COUNT];
    /* its place in the order, from 1, as of the last pass; 0: not in the order yet */
    uint32_t rank, pending;
    int64_t factors[4], factor_sum; /* priority, fair, age, size: weight x factor */
    ls_blocker blockers[LS_WHY_BLOCKERS_MAX];
    uint32_t blocker_count;
    uint64_t eta_ms;      /* expected start; 0: not known */
    bool eta_is_reserved; /* it is reserved, not only estimated */
    ls_counterfactual changes[LS_WHY_CHANGES_MAX];
    uint32_t change_count;
} ls_why;

/*
 * Why a job waits, as of the last pass. Counterfactuals are tried on a copy of the job's record
 * against the same free devices and reservations; the state does not change. Errors:
 * LS_ERR_NOT_FOUND.
 */
LS_MUST_CHECK ls_status ls_policy_why(ls_policy *policy, uint64_t now_ms, uint64_t job, ls_why *why_out);
/* Only the stage and its numbers (stage, needed, available, level, free_most, rank, pending; the
 * rest is 0), for lists of many jobs. Errors: LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_policy_stage(ls_policy *policy, uint64_t now_ms, uint64_t job, ls_why *why_out);

/* ---- the whole ---- */

/* Checks all invariants by a full walk: no device is given twice, counts are sums, gangs are whole.
 * Errors: LS_ERR_FAILED, naming what is wrong. */
LS_MUST_CHECK ls_status ls_policy_check(ls_policy *policy);

typedef struct ls_policy_counts {
    uint32_t pending, running, devices, devices_free; /* devices on nodes that are up */
} ls_policy_counts;
ls_policy_counts ls_policy_count(const ls_policy *policy);

/* A reserved start of the last pass. */
typedef struct ls_policy_reservation {
    uint64_t job;
    uint64_t starts_ms; /* 0: devices are kept as they become free; the time is not known */
} ls_policy_reservation;
/* Up to `max` of them, in the order in which they were made. Returns how many there are. */
uint32_t ls_policy_reservations(const ls_policy *policy, ls_policy_reservation *reservations, uint32_t max);

#endif
