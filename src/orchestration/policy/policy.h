// SPDX-License-Identifier: Apache-2.0
/*
 * Policy: who runs next, where, and why the others wait. The pure core of the queue.
 *
 * Events go in (a job is submitted, ends, changes; a node comes or goes; time passes), a pass makes actions (start these devices for that
 * job, preempt, shrink, grow, end), and `why` says for each waiting job what it waits for. No clock, no I/O, no threads, no floating point,
 * no allocation after creation: the same events give the same bytes of actions, in the daemon, in the simulator, in tests.
 *
 *   submit -> pending --START--> running --ended--> gone
 *               ^                  |  PREEMPT, SHRINK, GROW, END: the caller does it and reports requeued, resized, ended
 *               +----requeued------+
 *
 * Time: milliseconds on a clock of the caller's that never goes back; every event carries it. Gang: all ranks of a job start at once or
 * none. The caller carries out actions and reports what became of them; until then their devices are taken.
 *
 * One owner, one thread. Nodes are named by their index in the ls_cluster, jobs by the id they were submitted with.
 * Errors of events: LS_ERR_NOT_FOUND for a job that is not here, LS_ERR_INVALID for what can't be; the state is then untouched.
 */
#ifndef LS_ORCHESTRATION_POLICY_POLICY_H
#define LS_ORCHESTRATION_POLICY_POLICY_H

#include "orchestration/policy/topology.h"

#include <stddef.h>

typedef struct ls_policy ls_policy;

/* ---- settings ---- */

typedef enum ls_order {
    LS_ORDER_FAIR,      /* priority, fair share, age and size, weighted */
    LS_ORDER_FIFO,      /* by id; who does not fit stops all behind it */
    LS_ORDER_FIFO_SKIP, /* by id; who does not fit is skipped */
    LS_ORDER_EASY, /* by id; one reservation for the first who does not fit, others may start if that is not delayed */
    LS_ORDER_SJF_ORACLE, /* shortest expected_ms first, the others skipped: needs to know run times */
    LS_ORDER_LAS,        /* who got least service so far, in queues: needs to know nothing */
    LS_ORDER_COUNT
} ls_order;

/* Names as lockstep simulate takes them: fair fifo fifo-skip easy sjf-oracle las. */
const char *ls_order_name(ls_order order);
LS_MUST_CHECK ls_status ls_order_parse(const char *name, ls_order *order_out);

enum {
    LS_LAS_QUEUES_MAX = 8,
    LS_RESERVATIONS_MAX = 32,
    LS_PRIORITIES = 3, /* 0 low, 1 normal, 2 high */
    LS_GAINS_MAX = 64, /* points of a curve that are kept */
    LS_AFTER_MAX = 64,
    LS_JOBS_MAX = 1 << 20
};

/* A quota or limit that is not there. */
#define LS_UNLIMITED UINT64_MAX

typedef struct ls_policy_settings {
    ls_order order;
    uint32_t weight_priority, weight_fair, weight_age,
        weight_size; /* factors of a rank, named as Slurm's multifactor plugin names them; a factor is 0..65536 */
    uint64_t half_life_ms; /* of an account's past usage; 0: it is never forgotten */
    uint64_t age_max_ms;   /* the age at which its factor is 1 */
    uint64_t
        patience_ms; /* who has waited so long has devices kept free as they come, even where no end can be predicted .. */
    uint64_t
        patience_served_ms; /* .. in a later queue of LAS: so long, and half as long as it has run before */
    uint32_t
        reservations; /* K: jobs at the head that get a reserved start; what that promises: above ls_policy_pass */
    bool preempt, elastic;
    uint64_t min_run_ms;      /* a job that has run for less since its last start is not preempted */
    uint32_t preemptions_max; /* of one job within preemption_window_ms */
    uint64_t preemption_window_ms;
    uint64_t restart_cost_ms; /* lost by a stop and a start, beside the work since the last checkpoint */
    uint64_t las_thresholds_device_ms
        [LS_LAS_QUEUES_MAX]; /* a job is in queue i while its service is below [i]; 0 ends */
    uint64_t
        resize_pause_ms; /* hysteresis: an elastic job is not grown again sooner after a start or a resize */
    uint32_t resize_gain_permille;                 /* and only when it becomes so much faster by it */
    uint32_t jobs_max, accounts_max, datasets_max; /* capacity: all memory is allocated at creation */
    bool pooled;                                   /* count devices, ignore nodes: for comparisons */
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
    uint64_t nominal;    /* the account's own; LS_UNLIMITED: no quota, never a borrower */
    uint64_t borrow_max; /* beyond nominal, of what others do not use; given back when they want it */
    uint64_t lend_max;   /* of nominal, what others may use while this account does not */
} ls_quota;

typedef struct ls_policy_account {
    uint32_t weight;              /* share of the cluster relative to other accounts, >= 1 */
    ls_quota quota[LS_RESOURCES]; /* devices, cores, MiB */
} ls_policy_account;

/* Weight 1, no quota. */
ls_policy_account ls_policy_account_default(void);

/* Past usage of an account, halved every half_life_ms: parts of the cluster's capacity (2^20 = all of it) times milliseconds. */
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
    uint32_t ranks, min_ranks,
        max_ranks; /* devices wanted, >= 1; elastic when min < max; starts with as many of [min, ranks] as fit */
    uint32_t ranks_multiple;   /* sizes are multiples of this, >= 1; divides the three above */
    uint32_t devices_per_node; /* exactly so many on each node; 0: any */
    int32_t kind;              /* of device; -1: any */
    uint32_t cpus_per_rank, memory_mib_per_rank;
    ls_level required; /* all ranks within one such; LS_LEVEL_CLUSTER: anywhere */
    ls_level
        preferred; /* up to here the job does not mind to be spread out, if that keeps blocks whole or finds its data */
    bool spot;        /* may run on spot nodes, and is preempted first */
    bool preemptible; /* saves when told to and goes on later */
    uint64_t submit_ms;
    uint64_t begin_ms;          /* not before */
    uint64_t limit_ms;          /* run time of one start after which it is ended; 0: none */
    uint64_t expected_ms;       /* whole run time at `ranks`, predicted or known; 0: not known */
    uint64_t deadline_ms;       /* 0: none; raises rank as it nears */
    uint64_t group;             /* array or sweep; 0: none */
    uint32_t group_running_max; /* at most so many of the group at once; 0: no limit */
    const uint64_t
        *after; /* starts when these have succeeded; ids that are not here count as succeeded; copied */
    uint32_t after_count;         /* <= LS_AFTER_MAX */
    bool after_any;               /* .. have ended, however */
    uint64_t dataset;             /* 0, or what it reads */
    uint64_t comm_bytes_per_step; /* how much distance matters; 0: not known */
    const uint32_t *
        gain_permille; /* [i]: throughput at ranks min + i over that at min, 1000 = same; from the planner; copied */
    uint32_t gain_count; /* 0: not known */
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
    LS_ACTION_START,   /* with `shares`. The caller reports started, or requeued or ended when it could not */
    LS_ACTION_PREEMPT, /* save and stop; report requeued (or ended) */
    LS_ACTION_SHRINK,  /* keep only `shares`; report resized */
    LS_ACTION_GROW,    /* go on with `shares`; report resized */
    LS_ACTION_END, /* time limit is over (for_job 0), or devices are needed and it can't save; report ended */
    LS_ACTION_CANNOT, /* will never start: what it waits for has failed. The job is gone */
} ls_action_kind;

const char *ls_action_name(ls_action_kind kind);

typedef struct ls_action {
    ls_action_kind kind;
    uint64_t job, for_job; /* for_job: who gets what PREEMPT, SHRINK, END set free; 0: nobody */
    const ls_share
        *shares; /* all that the job has behind this action; valid until the next pass. None when pooled */
    uint32_t share_count;
    uint32_t ranks; /* behind this action; PREEMPT, END, CANNOT: 0 */
    ls_level level; /* START, SHRINK, GROW: the lowest level that holds all of them */
} ls_action;

/* ---- life ---- */

/* Errors: LS_ERR_INVALID (a setting, the cluster). The cluster is copied as far as it is needed. Without memory the process stops: tables of jobs_max jobs
 * (0.4 KiB each) and of all nodes are an arena's (base/arena.h). */
LS_MUST_CHECK ls_status ls_policy_create(const ls_cluster *cluster, const ls_policy_settings *settings,
                                         ls_policy **policy_out);
void ls_policy_destroy(ls_policy *policy); /* NULL: nothing */

/* ---- events ---- */

/* New or changed; accounts that were never set have the default. */
LS_MUST_CHECK ls_status ls_policy_account_set(ls_policy *policy, uint64_t now_ms, uint32_t account,
                                              const ls_policy_account *value);
/* What a restart has to bring back. */
LS_MUST_CHECK ls_status ls_policy_usage_get(const ls_policy *policy, uint64_t now_ms, uint32_t account,
                                            ls_policy_usage *usage_out);
LS_MUST_CHECK ls_status ls_policy_usage_set(ls_policy *policy, uint32_t account,
                                            const ls_policy_usage *usage);

/* Errors: LS_ERR_INVALID with the reason when a field is out of range or the job can never run here; LS_ERR_MEMORY when jobs_max are here. */
LS_MUST_CHECK ls_status ls_policy_submit(ls_policy *policy, uint64_t now_ms, const ls_policy_job *job);

typedef struct ls_policy_running { /* of a job that already runs, after a restart of the caller */
    const ls_share *shares;        /* NULL when pooled */
    uint32_t share_count, ranks;
    uint64_t started_ms, checkpoint_ms; /* of this start; last checkpoint, 0: none */
    uint64_t attained_device_ms;        /* of earlier starts */
    uint32_t preemptions;
} ls_policy_running;
/* Submits a job that runs. Errors: LS_ERR_INVALID when devices are taken or do not exist. */
LS_MUST_CHECK ls_status ls_policy_restore_running(ls_policy *policy, uint64_t now_ms,
                                                  const ls_policy_job *job, const ls_policy_running *running);

LS_MUST_CHECK ls_status ls_policy_started(ls_policy *policy, uint64_t now_ms,
                                          uint64_t job); /* its ranks run */
/* Ended by itself or as told, wherever it was: pending jobs may end too (cancelled). */
LS_MUST_CHECK ls_status ls_policy_ended(ls_policy *policy, uint64_t now_ms, uint64_t job, bool succeeded);
/* Stopped (or its start failed) and waits again. */
LS_MUST_CHECK ls_status ls_policy_requeued(ls_policy *policy, uint64_t now_ms, uint64_t job);
LS_MUST_CHECK ls_status ls_policy_resized(ls_policy *policy, uint64_t now_ms,
                                          uint64_t job); /* SHRINK, GROW done */
LS_MUST_CHECK ls_status ls_policy_hold(ls_policy *policy, uint64_t now_ms, uint64_t job, bool held);
LS_MUST_CHECK ls_status ls_policy_checkpointed(ls_policy *policy, uint64_t now_ms, uint64_t job);
/* How long it will still run at the ranks it has now (`ranks` when it waits), from telemetry. */
LS_MUST_CHECK ls_status ls_policy_progress(ls_policy *policy, uint64_t now_ms, uint64_t job,
                                           uint64_t left_ms);

typedef enum ls_change_kind { /* also what a counterfactual changes */
                              LS_CHANGE_RANKS, /* ranks, and min_ranks down to it; a running elastic job is resized to it at the next pass */
                              LS_CHANGE_PRIORITY, /* 0..2 */
                              LS_CHANGE_LIMIT,    /* limit_ms */
                              LS_CHANGE_REQUIRED, /* an ls_level */
                              LS_CHANGE_PER_NODE, /* devices_per_node */
                              LS_CHANGE_KIND,     /* + 1; 0: any */
                              LS_CHANGE_SPOT,     /* 0, 1 */
                              LS_CHANGE_HELD,     /* 0, 1 */
                              LS_CHANGE_BEGIN,    /* begin_ms */
                              LS_CHANGE_GROUP,    /* group_running_max */
                              LS_CHANGE_QUOTA, /* of why only: devices that its account may use beyond what it may now */
                              LS_CHANGE_COUNT
} ls_change_kind;

const char *ls_change_name(ls_change_kind kind);
/* Errors: LS_ERR_INVALID for values out of range, and for jobs that could then never run. */
LS_MUST_CHECK ls_status ls_policy_change(ls_policy *policy, uint64_t now_ms, uint64_t job,
                                         ls_change_kind kind, uint64_t value);

typedef enum ls_node_state { LS_NODE_UP, LS_NODE_DRAINING, LS_NODE_DOWN } ls_node_state;
/* Nothing new starts on a node that is not up. Jobs that ran on one that is down, the caller reports as requeued or ended. */
LS_MUST_CHECK ls_status ls_policy_node_set(ls_policy *policy, uint64_t now_ms, uint32_t node,
                                           ls_node_state state);
/* The node has the data set in its cache, or not any more. Beyond datasets_max different ones nothing is remembered. A cluster of one node has nothing to tell: its jobs share one cache (storage/cache.h). */
LS_MUST_CHECK ls_status ls_policy_dataset_set(ls_policy *policy, uint32_t node, uint64_t dataset,
                                              bool cached);

/* ---- decisions ---- */

/*
 * What a reserved start promises. The first `reservations` jobs that do not fit get a start time and devices, where ends are predicted (left_ms, limits); else
 * who has waited for patience_ms has devices kept free as they come, one job at a time.
 *
 *   Who has got one keeps its place until it starts: in its priority class nobody who comes later, or ranks higher later, is put before it.
 *   The first of all is never later than first said, but for: a job of a higher class; a node that is lost, drained or comes back; an end that was predicted
 *   wrong, which includes starts and stops that take time; a change of quota, or of the job itself (another priority or a hold gives the place up).
 *   Those behind the first keep their place, not their time: when one before them is planned anew, on other devices, they may move, either way.
 *   Quota: what is its account's own is kept for it. What it would have to borrow is promised to nobody, and others may be given theirs back first.
 *   Jobs that run grow, and are shrunk, only beside it.
 *
 * The caller's restart forgets places and patience: they are given anew, by rank.
 */

/* Decides. The actions are valid until the next pass; they are in the order in which they are to be carried out. */
void ls_policy_pass(ls_policy *policy, uint64_t now_ms, const ls_action **actions_out, uint32_t *count_out);

/* When a pass is due without an event (a time limit, a begin time, a reservation, a queue of LAS); UINT64_MAX: never. */
uint64_t ls_policy_next_ms(const ls_policy *policy, uint64_t now_ms);

/* ---- why ---- */

/* What a job waits for: the first stage that fails. */
typedef enum ls_why_stage {
    LS_WHY_IMPOSSIBLE, /* can never run as it is */
    LS_WHY_HOLD,
    LS_WHY_DEPENDENCY,
    LS_WHY_BEGIN,
    LS_WHY_GROUP,       /* so many of its group run already */
    LS_WHY_QUOTA,       /* its account may not use more now */
    LS_WHY_PRIORITY,    /* others come first */
    LS_WHY_GANG,        /* fewer devices are free than it needs */
    LS_WHY_PLACEMENT,   /* enough are free, but not near enough to each other, or not of its kind */
    LS_WHY_RESERVATION, /* what is free is reserved, and it would not be done in time */
    LS_WHY_STARTING,    /* its devices are being freed, or the next pass starts it */
    LS_WHY_RUNNING,     /* it does not wait */
    LS_WHY_STAGES
} ls_why_stage;

/* "impossible", "hold", ... */
const char *ls_why_stage_name(ls_why_stage stage);

/* Why a running job that comes after another one is not stopped for it. */
typedef enum ls_kept {
    LS_KEPT_NOT,     /* it does not come after, or may be stopped */
    LS_KEPT_UNSAVED, /* it does not save when told to */
    LS_KEPT_YOUNG,   /* it started less than min_run_ms ago */
    LS_KEPT_OFTEN,   /* it was stopped preemptions_max times within the window */
} ls_kept;

enum { LS_WHY_BLOCKERS_MAX = 8, LS_WHY_CHANGES_MAX = 8 };

typedef struct ls_why {
    ls_why_stage stage;
    uint32_t needed; /* devices at least; quota: beyond what the account may use; dependency, group: jobs */
    uint32_t
        available; /* at `level`: most free devices that one such has; quota: what the account may still use */
    ls_level level; /* where they are needed */
    uint32_t free_most
        [LS_LEVEL_COUNT]; /* most free devices (of its kind) in one island, node, leaf, spine, and in the cluster */
    uint32_t rank, pending; /* its place in the order, from 1, as of the last pass; 0: not in it yet */
    int64_t factors[4], factor_sum; /* priority, fair, age, size: weight x factor */
    struct {
        uint64_t job;
        uint32_t devices;
        uint64_t ends_ms; /* predicted; 0: not known */
        ls_kept kept;
    } blockers
        [LS_WHY_BLOCKERS_MAX]; /* who has what it needs; dependency: whom it waits for; priority, reservation: who comes first */
    uint32_t blocker_count;
    uint64_t eta_ms;      /* expected start; 0: not known */
    bool eta_is_reserved; /* reserved, not only estimated */
    struct {
        ls_change_kind kind;
        uint64_t value;            /* in terms of ls_policy_change */
        uint64_t starts_ms;        /* now_ms: at the next pass */
    } changes[LS_WHY_CHANGES_MAX]; /* counterfactuals: with this one change it starts then */
    uint32_t change_count;
} ls_why;

/*
 * Why a job waits, as of the last pass. Counterfactuals are tried on a copy of the job's record before the same free devices and
 * reservations; the state does not change. Errors: LS_ERR_NOT_FOUND.
 */
LS_MUST_CHECK ls_status ls_policy_why(ls_policy *policy, uint64_t now_ms, uint64_t job, ls_why *why_out);
/* The stage and its numbers alone (stage, needed, available, level, free_most, rank, pending; the rest is 0): for lists of many jobs. Errors: as above. */
LS_MUST_CHECK ls_status ls_policy_stage(ls_policy *policy, uint64_t now_ms, uint64_t job, ls_why *why_out);

/* ---- as a whole ---- */

/* All invariants, by a full walk: nothing is given twice, counts are sums, gangs are whole. Errors: LS_ERR_FAILED, naming what is wrong. */
LS_MUST_CHECK ls_status ls_policy_check(ls_policy *policy);

typedef struct ls_policy_counts {
    uint32_t pending, running, devices, devices_free; /* devices on nodes that are up */
} ls_policy_counts;
ls_policy_counts ls_policy_count(const ls_policy *policy);

/* The reserved starts of the last pass, in the order in which they were made: up to `max` of them. Returns how many there are. */
typedef struct ls_policy_reservation {
    uint64_t job, starts_ms; /* 0: devices are kept free as they come, the time is not known */
} ls_policy_reservation;
uint32_t ls_policy_reservations(const ls_policy *policy, ls_policy_reservation *reservations, uint32_t max);

#endif
