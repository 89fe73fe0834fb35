// SPDX-License-Identifier: Apache-2.0
/*
 * State: what the parts of the policy share. Private to this folder; other folders use policy.h.
 *
 *   policy.c     creation, names, settings
 *   events.c     what callers report
 *   pass.c       one pass over all waiting jobs
 *   order.c      rank factors, the order of waiting jobs
 *   placement.c  which free devices a job gets; free_map.c what is free
 *   holdings.c   devices of jobs: take, give, claim
 *   reserve.c    reserved starts, and what they withhold
 *   preempt.c    which jobs to stop for which
 *   elastic.c    growing and resizing
 *   quota.c      accounts: usage, borrowing, decay
 *   why.c        why a job waits, and what would change it
 *   check.c      all invariants
 *
 * A job lives in a slot (index into `jobs`) from submission to its end. Lists hold entries (key,
 * id, slot) and may be stale: an entry is valid while the slot still has the job of that id in the
 * right state (ls_entry_waits, ls_entry_runs).
 */
#ifndef LS_ORCHESTRATION_POLICY_STATE_H
#define LS_ORCHESTRATION_POLICY_STATE_H

#include "orchestration/policy/index.h"
#include "orchestration/policy/placement.h"
#include "orchestration/policy/policy.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/math.h"

enum { NO_SLOT = LS_INDEX_NONE, FACTOR_ONE = 65536, AGES_MOST = 2, FAILURES_MAX = 32 };
#define NO_TURN UINT64_MAX
/* Keys of running jobs whose end is not known lie after all known ones; the job that started last
 * comes first. */
#define END_UNKNOWN (INT64_MAX / 2)

typedef enum job_state {
    JOB_GONE,
    JOB_PENDING,
    JOB_CLAIMING, /* it starts with its shares when the jobs that have them have given them up */
    JOB_RUNNING,  /* its START was issued */
} job_state;

/* Shares live in one pool and are chained; a chain is all that a job has. */
typedef struct share_node {
    uint32_t place, next;
    uint64_t devices;
} share_node;

typedef struct edge { /* a dependency between two jobs */
    uint32_t job, next;
} edge;

typedef struct job {
    ls_policy_job spec; /* its arrays are not kept */
    job_state state;
    /* ending: END was issued for its limit; stopping: PREEMPT or END was issued */
    bool started, stopping, ending, resizing;
    bool failed_before; /* a job it waits for has failed, so that it can never start */
    uint32_t ranks;     /* what it has, or will have when its claim is complete */
    /* chains: what it holds; what it still holds until a SHRINK is done */
    uint32_t shares, leaving;
    uint32_t ranks_leaving;
    uint32_t claim_missing; /* claimed devices that other jobs have not given up yet */
    /* number of jobs that still have to give something up for this one */
    uint32_t givers;
    uint32_t for_job;          /* slot of the job that gets what this one gives up; NO_SLOT */
    uint32_t waits_for, edges; /* number of jobs it waits for; chain of jobs that wait for it */
    uint32_t preemptions;
    uint32_t ranks_wanted; /* size asked for by LS_CHANGE_RANKS while it runs; 0: none */
    uint64_t window_ms, started_ms, checkpoint_ms, resized_ms, attained_ms, attained_device_ms;
    uint64_t pending_ms; /* since when it has been waiting */
    /* its place among the jobs with a reserved start, until it starts; 0: none */
    uint64_t turn;
    uint64_t left_ms; /* time left at spec.ranks; 0: not known */
    uint32_t gain_count;
    /* throughput relative to that at min_ranks (1000), at sizes spread evenly over [min, max] */
    uint32_t gain[LS_GAINS_MAX];
} job;

typedef struct entry { /* in a list that is sorted by key, then turn, then id */
    int64_t key;
    uint64_t turn; /* waiting: NO_TURN without a reserved start; running: 0 */
    uint64_t id;
    uint32_t slot;
    /* running: what decides whether it may be asked to yield (ls_preempt_hint), as of the last
     * update */
    uint32_t hint;
} entry;

typedef struct account {
    ls_policy_account settings;
    uint64_t used[LS_RESOURCES];
    ls_policy_usage usage; /* as of at_ms; it decays in steps of half_life / 256 */
    uint64_t decayed_ms;   /* decayed up to here */
    uint32_t fair;         /* fair-share factor as of the last pass */
} account;

typedef struct group {
    uint32_t members, running;
} group;

typedef struct reservation {
    uint32_t job;
    uint64_t id;
    entry place;                 /* its place in the order from the next pass on */
    uint64_t starts_ms, ends_ms; /* UINT64_MAX: not known */
    ls_placement plan;           /* the devices it will have */
    uint64_t *held;              /* per piece: which of them are withheld from the free map now */
    uint32_t cpus_per, memory_per;
    uint32_t spare; /* pooled: devices beyond its ranks that are free at starts_ms */
    bool withheld;
} reservation;

/* A shape that found no place in this pass: the same or larger ones need not be tried. */
typedef struct failure {
    ls_gang_shape shape;
    uint32_t ranks, withheld;
} failure;

typedef struct victim {
    uint32_t job, tier;
    uint32_t queue; /* queue of LAS: jobs with more service give first */
    uint32_t devices;
    uint64_t cost;  /* device-ms that would be lost */
    bool reclaimed; /* only because its account borrows */
    bool taken;
} victim;

typedef struct asking { /* what jobs with the same signature could get by preemption in this pass */
    uint32_t account, queue, devices;
    uint8_t priority;
    bool spot, own, equals;
    /* a shape and size for which enough devices could be freed, but not in the right places; 0:
     * none */
    ls_gang_shape failed;
    uint32_t failed_ranks;
} asking;

enum { OFFERS_MAX = 256 };
enum { TIER_SHRINK, TIER_REQUEUE, TIER_END };

struct ls_policy {
    ls_arena arena;
    ls_policy_settings settings;
    ls_places places;
    ls_free_map map, whole, future; /* what is free now; everything free; scratch */
    ls_placer placer;
    ls_placement plan, try_plan; /* scratch */

    job *jobs;
    uint32_t jobs_used, *jobs_free, jobs_free_count;
    ls_index ids, group_ids;
    group *groups;
    uint32_t *groups_free, groups_free_count;
    edge *edges;
    uint32_t edge_free, edge_count, edges_used;
    share_node *shares;
    uint32_t share_free;

    entry *order, *running,
        /* waiting jobs in order; jobs with devices, by predicted end; scratch for sorting */
        *merge;
    uint32_t order_count, running_count;
    bool running_sorted;
    account *accounts;
    /* guaranteed: sum over accounts of the larger of what it uses and what it does not lend */
    uint64_t used[LS_RESOURCES], guaranteed[LS_RESOURCES];
    uint64_t total_weight;
    uint32_t accounts_used;
    uint32_t pooled_free;

    uint64_t *datasets; /* ids */
    uint64_t **dataset_nodes;
    uint32_t dataset_count;

    ls_action *actions;
    ls_share *action_shares;
    uint32_t action_count, action_share_count;

    reservation reservations[LS_RESERVATIONS_MAX];
    uint32_t reservation_count, reserve_tries;
    uint64_t turns;     /* number of turns given so far */
    bool *hidden;       /* by place: hidden from searches for the moment */
    uint64_t *reserved; /* by place: all devices of reservations, free or not */
    failure failures[FAILURES_MAX];
    uint32_t failure_count;
    /* The devices that are kept free for a job whose start is not known, the same from pass to
     * pass. */
    struct drained {
        uint64_t id, made_ms; /* id 0: none, or to be chosen anew */
        ls_placement plan;
    } drained;
    victim *victims;
    uint32_t victims_missing; /* devices that the asking job lacks */
    /* Some account has or had a quota. Without, no account borrows, and preemption need not
     * distinguish accounts. */
    bool any_quota;
    asking offers[OFFERS_MAX];
    uint32_t offer_count;
    uint64_t *domain_cost;
    uint32_t *domain_freed, *domain_seen;
    ls_policy_window windows[LS_WINDOWS_MAX];
    uint32_t window_count;
    uint32_t waiting_for_devices; /* in the last pass: pending jobs that wait for devices only */
    uint64_t passed_ms;
    /* what callers caused is not an error for ls_policy_check */
    bool restored_any, quota_lowered;
};

/* a + b, at most UINT64_MAX. */
static inline uint64_t add_u64(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
static inline uint32_t bits_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

static inline bool job_is_elastic(const job *j)
{
    return j->spec.min_ranks < j->spec.max_ranks;
}

/* ---- holdings.c ---- */
void ls_holdings_init(ls_policy *policy);
ls_gang_shape ls_job_shape(const ls_policy *policy, const job *j);
/* Finds devices for a job in the map, or by count when pooled. */
bool ls_job_find(ls_policy *policy, const ls_free_map *map, const ls_gang_shape *shape, uint32_t ranks,
                 ls_placement *plan);
/* Gives it the devices of a plan, in addition to its shares. */
void ls_job_take(ls_policy *policy, uint64_t now_ms, uint32_t slot, const ls_placement *plan);
/* The same; devices of the plan that other jobs still have are claimed and counted in
 * claim_missing. */
void ls_job_claim(ls_policy *policy, uint64_t now_ms, uint32_t slot, const ls_placement *plan);
void ls_job_give_all(ls_policy *policy, uint64_t now_ms, uint32_t slot);
/* Moves `ranks` devices from shares to leaving: from the nodes where the job has fewest, whole
 * nodes first. */
void ls_job_shed(ls_policy *policy, uint32_t slot, uint32_t ranks);
/* Writes the devices that ls_job_shed would move to plan, without moving them. */
void ls_job_shed_plan(const ls_policy *policy, const job *j, uint32_t ranks, ls_placement *plan);
/* it has given up all it was told to give up for another job */
void ls_job_gave(ls_policy *policy, job *j);
void ls_job_give_leaving(ls_policy *policy, uint64_t now_ms, uint32_t slot);
/* Takes devices of one place out of a chain. */
void ls_share_cut(ls_policy *policy, uint32_t *chain, const ls_gang_piece *piece);
ls_level ls_job_level(ls_policy *policy, const job *j);

/* ---- quota.c ---- */
void ls_usage_advance(const ls_policy *policy, account *a, uint64_t now_ms);
/* Adds ranks of this job to what its account uses, or subtracts them. */
void ls_quota_charge(ls_policy *policy, uint64_t now_ms, const job *j, uint32_t ranks);
void ls_quota_return(ls_policy *policy, uint64_t now_ms, const job *j, uint32_t ranks);
void ls_quota_recount(ls_policy *policy, account *a, const ls_policy_account *settings);
/* How many more ranks of such a job the account may use. */
uint32_t ls_quota_room(const ls_policy *policy, const job *j);
/*
 * The same when the first `first` reservations get what is their accounts' own; 0 when the job's
 * group is full with them. It does not matter how soon the job would end: an account that is full
 * has no reserved start.
 */
uint32_t ls_quota_room_bound(const ls_policy *policy, const job *j, uint32_t first);

/* Whether the account stays within its nominal quota with `ranks` more. */
bool ls_quota_is_own(const ls_policy *policy, const job *j, uint32_t ranks);
/* Whether the account uses more than its nominal quota of something the job holds. */
bool ls_quota_borrows(const ls_policy *policy, const job *j);
/* What other accounts do not lend of a resource: it can never be had. */
uint64_t ls_quota_of_others(const ls_policy *policy, uint32_t index, int r);
bool ls_quota_ever(const ls_policy *policy, const job *j, uint32_t ranks);
void ls_account_touch(ls_policy *policy, uint32_t index); /* the account is in use from now on */
/* 0..65536: 2^-(usage / share) */
uint32_t ls_usage_factor(const ls_policy *policy, const account *a);

/* ---- order.c ---- */
uint64_t ls_job_attained(const job *j, uint64_t now_ms);
void ls_job_advance(job *j, uint64_t now_ms); /* brings service and time left up to now */
uint32_t ls_job_queue(const ls_policy *policy, uint64_t attained_device_ms);
void ls_job_factors(const ls_policy *policy, const job *j, uint64_t now_ms, int64_t factors_out[4]);
/* The entry of a job as it would be sorted into the order. */
entry ls_order_entry(const ls_policy *policy, const job *j, uint64_t now_ms);
bool ls_entry_precedes(const entry *a, const entry *b);
void ls_order_add(ls_policy *policy, uint32_t slot);
void ls_order_update(ls_policy *policy, uint64_t now_ms);
void ls_running_add(ls_policy *policy, uint32_t slot);
bool ls_entry_runs(const ls_policy *policy, const entry *e);
/* sorts running jobs by predicted end */
void ls_running_update(ls_policy *policy, uint64_t now_ms);
bool ls_entry_waits(const ls_policy *policy, const entry *e);
/* Throughput of a job at `ranks`; that at min_ranks is 1000. */
uint64_t ls_job_gain(const job *j, uint32_t ranks);
/* When it will end if it runs on `ranks` from from_ms on; UINT64_MAX: not known. */
uint64_t ls_job_ends(const job *j, uint64_t from_ms, uint32_t ranks);
uint64_t ls_running_ends(const job *j, uint64_t now_ms);

/* ---- events.c ---- */
/* The job waits again, after running or after a claim that broke. */
void ls_job_send_back(ls_policy *policy, uint64_t now_ms, uint32_t slot);
void ls_job_remove(ls_policy *policy, uint64_t now_ms, uint32_t slot, bool succeeded);
/* Whether it could run if nothing else did, as small as it may be. Errors: LS_ERR_INVALID with the
 * reason. */
LS_MUST_CHECK ls_status ls_job_check_possible(ls_policy *policy, const job *j);
/* A copy of a job with one thing changed. Errors: LS_ERR_INVALID, also when it could then never
 * run. */
LS_MUST_CHECK ls_status ls_job_changed(ls_policy *policy, const job *j, ls_change_kind kind, uint64_t value,
                                       job *changed_out);

/* ---- pass.c ---- */
ls_action *ls_action_add(ls_policy *policy, ls_action_kind kind, uint32_t slot, uint32_t for_slot);
void ls_action_add_shares(ls_policy *policy, ls_action *action, const job *j);
/* The stage that stops it before devices are looked at; LS_WHY_STAGES: none. */
ls_why_stage ls_job_gate(const ls_policy *policy, const job *j, uint64_t now_ms);
/* The maintenance that keeps it from starting; NULL: none does. */
const ls_policy_window *ls_job_window(const ls_policy *policy, const job *j, uint64_t now_ms);
uint32_t ls_job_startable(ls_policy *policy, const job *j, uint64_t now_ms, uint32_t first, bool remember);
void ls_group_count(ls_policy *policy, const job *j, int change);
/* down to a size that is allowed; 0: below min_ranks */
uint32_t ls_round_ranks(const job *j, uint32_t ranks);

/* ---- reserve.c ---- */
/* The earliest start of a job if running jobs end as predicted, around the reservations made so
 * far. open_end: also count on ends that are not known. false: none is found. */
bool ls_reserve_find(ls_policy *policy, uint32_t slot, uint64_t now_ms, bool open_end, reservation *r);
void ls_reserve_add(ls_policy *policy, uint32_t slot, uint64_t now_ms);
/* Sets the free map up for a job that ends at ends_ms: it sees reserved devices only if it ends in
 * time. Only the first `count` reservations count. Returns the withheld ones as bits. */
uint32_t ls_reserve_view(ls_policy *policy, uint64_t ends_ms, uint32_t count);
/* Pooled: devices that a job ending at ends_ms may use. */
uint32_t ls_reserve_spare(const ls_policy *policy, uint64_t ends_ms, uint32_t count);
void ls_reserve_spend(ls_policy *policy, uint64_t ends_ms, uint32_t ranks);
void ls_reserve_clear(ls_policy *policy);

/* Whether two shapes are placed alike. */
bool ls_shape_same(const ls_gang_shape *a, const ls_gang_shape *b);

/* ---- preempt.c ---- */
enum { HINT_UNKNOWN = 1 << 31 };
/* Queue, priority, spot and surplus of a running job in one word, so that most jobs are passed over
 * without looking at them. */
uint32_t ls_preempt_hint(const ls_policy *policy, const job *j, uint64_t now_ms);
/* Why `other`, which ranks below `j`, is not stopped for it. */
ls_kept ls_preempt_kept(const ls_policy *policy, const job *j, const job *other, uint64_t now_ms);
/*
 * Stops other jobs so that this one can start, if that is allowed and enough; then it is claiming.
 */
bool ls_preempt_for(ls_policy *policy, uint32_t slot, uint64_t now_ms, uint32_t *attempts);
/* The same for all ranks that an elastic job wants, only from jobs that must yield to it. */
bool ls_preempt_for_all(ls_policy *policy, uint32_t slot, uint64_t now_ms, uint32_t *attempts);

/* ---- elastic.c ---- */
/* carries out LS_CHANGE_RANKS of running jobs */
void ls_elastic_resize(ls_policy *policy, uint64_t now_ms);
void ls_elastic_grow(ls_policy *policy, uint64_t now_ms);

#endif
