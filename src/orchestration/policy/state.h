// SPDX-License-Identifier: Apache-2.0
/*
 * State: what the parts of the policy share. Private to this folder: outside, orchestration/policy/policy.h.
 *
 *   policy.c    creation, names, settings          order.c     rank factors, the order of who waits
 *   events.c    what callers report                 reserve.c   reserved starts, what may not be touched
 *   holdings.c  devices of jobs: take, give, claim   preempt.c   whom to stop for whom
 *   quota.c     accounts: usage, borrowing, decay    elastic.c   growing
 *   check.c     all invariants
 *   pass.c      one pass over all that wait          why.c       why a job waits, and what would change it
 */
#ifndef LS_ORCHESTRATION_POLICY_STATE_H
#define LS_ORCHESTRATION_POLICY_STATE_H

#include "orchestration/policy/index.h"
#include "orchestration/policy/placement.h"
#include "orchestration/policy/policy.h"

#include "base/arena.h"
#include "base/assert.h"

enum { NO_SLOT = LS_INDEX_NONE, FACTOR_ONE = 65536, AGES_MOST = 2, FAILURES_MAX = 32 };
#define NO_TURN UINT64_MAX
/* Keys of running jobs whose end nobody knows: behind all that are known, who started last first. */
#define END_UNKNOWN (INT64_MAX / 2)

typedef enum job_state {
    JOB_GONE,
    JOB_PENDING,
    JOB_CLAIMING, /* will start with its shares when those it took them from have stopped */
    JOB_RUNNING,  /* START is out, or more */
} job_state;

/* Shares live in one pool, chained; a chain is all that a job has. */
typedef struct share_node {
    uint32_t place, next;
    uint64_t devices;
} share_node;

typedef struct edge { /* a job that waits for another */
    uint32_t job, next;
} edge;

typedef struct job {
    ls_policy_job spec; /* its arrays are not kept here */
    job_state state;
    bool started, stopping, ending,
        resizing;             /* ending: the limit's END is out; stopping: PREEMPT or END is */
    bool failed_before;       /* what it waits for has failed: it cannot start any more */
    uint32_t ranks;           /* it has, or will have when its claim is complete */
    uint32_t shares, leaving; /* chains: held; still held by a SHRINK that is not done */
    uint32_t ranks_leaving;
    uint32_t claim_missing;    /* devices others have not given up yet */
    uint32_t givers;           /* jobs that were told to give up something for this one and have not yet */
    uint32_t for_job;          /* slot of who gets what this one gives up; NO_SLOT */
    uint32_t waits_for, edges; /* jobs it waits for; who waits for it */
    uint32_t preemptions;
    uint32_t ranks_wanted; /* LS_CHANGE_RANKS of a running job; 0: none */
    uint64_t window_ms, started_ms, checkpoint_ms, resized_ms, attained_ms, attained_device_ms;
    uint64_t pending_ms; /* since when it waits */
    uint64_t turn;    /* its place among those that got a reserved start, until it starts; 0: it has none */
    uint64_t left_ms; /* of expected_ms, at `ranks` */
    uint32_t gain_count;
    uint32_t gain[LS_GAINS_MAX]; /* throughput over that at min, at ranks spread evenly over [min, max] */
} job;

typedef struct entry { /* of a list that is kept sorted: by key, then turn, then id */
    int64_t key;
    uint64_t turn; /* who waits: NO_TURN without a reserved start; who runs: 0 */
    uint64_t id;
    uint32_t slot;
    uint32_t
        hint; /* running: what decides whether it may be asked to yield (preempt.c), as of the last update */
} entry;

typedef struct account {
    ls_policy_account settings;
    uint64_t used[LS_RESOURCES];
    ls_policy_usage usage; /* at_ms: as of then; halvings are done in steps of half_life / 256 */
    uint64_t decayed_ms;   /* .. until here */
    uint32_t fair;         /* factor, as of the last pass */
} account;

typedef struct group {
    uint32_t members, running;
} group;

typedef struct reservation {
    uint32_t job;
    uint64_t id;
    entry place;                 /* in the order, from the next pass on */
    uint64_t starts_ms, ends_ms; /* UINT64_MAX: not known */
    ls_plan plan;                /* pieces: what it will have */
    uint64_t *held;              /* per piece: of those, the devices withheld in the free map now */
    uint32_t cpus_per, memory_per;
    uint32_t spare; /* pooled: devices beyond its ranks that are free at starts_ms */
    bool withheld;
} reservation;

typedef struct failure { /* shapes that found no place in this pass: more of the same do not either */
    ls_shape shape;
    uint32_t ranks, withheld;
} failure;

typedef struct victim {
    uint32_t job, tier;
    uint32_t queue; /* of LAS: who had more service gives first */
    uint32_t devices;
    uint64_t cost;  /* device-ms lost */
    bool reclaimed; /* only because its account borrows */
    bool taken;
} victim;

typedef struct asking { /* what jobs alike could get by preemption in this pass */
    uint32_t account, queue, devices;
    uint8_t priority;
    bool spot, own, equals;
    ls_shape
        failed; /* what could not be freed though the count would have done, and for how many ranks; 0: nothing was tried */
    uint32_t failed_ranks;
} asking;

enum { OFFERS_MAX = 256 };
enum { TIER_SHRINK, TIER_REQUEUE, TIER_END };

struct ls_policy {
    ls_arena arena;
    ls_policy_settings settings;
    ls_places places;
    ls_free_map map, whole, future; /* what is free now; all of it; scratch */
    ls_placer placer;
    ls_plan plan, try_plan; /* scratch */

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
        *merge; /* who waits, first first; who has devices, by predicted end; scratch of sorting */
    uint32_t order_count, running_count;
    bool running_sorted;
    account *accounts;
    uint64_t used[LS_RESOURCES],
        guaranteed[LS_RESOURCES]; /* guaranteed: over accounts, the larger of used and not lent */
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
    uint64_t turns;     /* given so far */
    bool *hidden;       /* by place: taken out of sight for the moment */
    uint64_t *reserved; /* by place: all devices of reservations, free or not */
    failure failures[FAILURES_MAX];
    uint32_t failure_count;
    struct
        drained { /* the devices that are kept free for a job whose start nobody can tell: the same from pass to pass */
        uint64_t id, made_ms; /* id 0: none, or to be chosen anew */
        ls_plan plan;
    } drained;
    victim *victims;
    uint32_t victims_missing; /* devices, of who asks */
    bool
        any_quota; /* an account has or had one: without, nobody borrows, and it does not matter to preemption whose a job is */
    asking offers[OFFERS_MAX];
    uint32_t offer_count;
    uint64_t *domain_cost;
    uint32_t *domain_freed, *domain_seen;
    uint32_t waiting_for_devices; /* in the last pass: pending jobs that devices alone would help */
    uint64_t passed_ms;
    bool restored_any,
        quota_lowered; /* what callers brought about is not held against the policy by ls_policy_check */
};

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
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
ls_shape ls_job_shape(const ls_policy *policy, const job *j);
/* Finds devices for a job: in map, or by count when pooled. */
bool ls_job_find(ls_policy *policy, const ls_free_map *map, const ls_shape *shape, uint32_t ranks,
                 ls_plan *plan);
void ls_job_take(ls_policy *policy, uint64_t now_ms, uint32_t slot,
                 const ls_plan *plan); /* appends to its shares */
/* Like take; what others still have of the plan is claimed, and counted in claim_missing. */
void ls_job_claim(ls_policy *policy, uint64_t now_ms, uint32_t slot, const ls_plan *plan);
void ls_job_give_all(ls_policy *policy, uint64_t now_ms, uint32_t slot);
/* Moves `count` devices from shares to leaving: whole nodes where it has least first. */
void ls_job_shed(ls_policy *policy, uint32_t slot, uint32_t ranks);
/* The same devices as ls_job_shed would move, without moving them: into plan. */
void ls_job_shed_plan(const ls_policy *policy, const job *j, uint32_t ranks, ls_plan *plan);
void ls_job_gave(ls_policy *policy, job *j); /* all that it was told to give up for another is given */
void ls_job_give_leaving(ls_policy *policy, uint64_t now_ms, uint32_t slot);
void ls_share_cut(ls_policy *policy, uint32_t *chain,
                  const ls_piece *piece); /* takes devices of one place out of a chain */
void ls_share_chain_free(ls_policy *policy, uint32_t *chain);
ls_level ls_job_level(ls_policy *policy, const job *j);

/* ---- quota.c ---- */
void ls_usage_advance(const ls_policy *policy, account *a, uint64_t now_ms);
/* used += ranks of this job (or -=). */
void ls_quota_charge(ls_policy *policy, uint64_t now_ms, const job *j, uint32_t ranks);
void ls_quota_return(ls_policy *policy, uint64_t now_ms, const job *j, uint32_t ranks);
void ls_quota_recount(ls_policy *policy, account *a, const ls_policy_account *settings);
/* Most ranks that the account may still use for such a job. */
uint32_t ls_quota_room(const ls_policy *policy, const job *j);
/* The same beside the first reservations, which have what is their account's own; 0 when its group is full with them. However soon the job would end: an
 * account that is full has no reserved start. */
uint32_t ls_quota_room_bound(const ls_policy *policy, const job *j, uint32_t first);

/* Whether the account stays within its own with `ranks` more. */
bool ls_quota_is_own(const ls_policy *policy, const job *j, uint32_t ranks);
/* Whether the account uses more than its own of something the job holds. */
bool ls_quota_borrows(const ls_policy *policy, const job *j);
/* What other accounts don't lend of a resource: never to be had. */
uint64_t ls_quota_of_others(const ls_policy *policy, uint32_t index, int r);
bool ls_quota_ever(const ls_policy *policy, const job *j, uint32_t ranks);
void ls_account_touch(ls_policy *policy, uint32_t index);            /* it is in use from now on */
uint32_t ls_usage_factor(const ls_policy *policy, const account *a); /* 0..65536: 2^-(usage / share) */

/* ---- order.c ---- */
uint64_t ls_job_attained(const job *j, uint64_t now_ms);
void ls_job_advance(job *j, uint64_t now_ms); /* service and time left, up to now */
uint32_t ls_job_queue(const ls_policy *policy, uint64_t attained_device_ms);
void ls_job_factors(const ls_policy *policy, const job *j, uint64_t now_ms, int64_t factors_out[4]);
int64_t ls_job_key(const ls_policy *policy, const job *j, uint64_t now_ms); /* lower is earlier */
/* A job's place in the order, as it would be sorted. */
entry ls_order_entry(const ls_policy *policy, const job *j, uint64_t now_ms);
bool ls_entry_precedes(const entry *a, const entry *b);
void ls_order_add(ls_policy *policy, uint32_t slot);
void ls_order_update(ls_policy *policy, uint64_t now_ms);
void ls_running_add(ls_policy *policy, uint32_t slot);
bool ls_entry_runs(const ls_policy *policy, const entry *e);
void ls_running_update(ls_policy *policy, uint64_t now_ms); /* sorts by predicted end */
void ls_entries_sort(entry *entries, entry *scratch, uint32_t count);
bool ls_entry_waits(const ls_policy *policy, const entry *e);
/* Throughput of a job at `ranks`, relative: that at min_ranks is 1000. */
uint64_t ls_job_gain(const job *j, uint32_t ranks);
/* When it will end if it has `ranks` from `from_ms`; UINT64_MAX: not known. */
uint64_t ls_job_ends(const job *j, uint64_t from_ms, uint32_t ranks);
uint64_t ls_running_ends(const job *j, uint64_t now_ms);

/* ---- events.c ---- */
void ls_job_remove(ls_policy *policy, uint64_t now_ms, uint32_t slot, bool succeeded);
/* Whether it could run if nothing else did, as small as it can be made. Errors: LS_ERR_INVALID with the reason. */
LS_MUST_CHECK ls_status ls_job_check_possible(ls_policy *policy, const job *j);
/* A copy of a job with one thing changed. Errors: LS_ERR_INVALID, also when it could then never run. */
LS_MUST_CHECK ls_status ls_job_changed(ls_policy *policy, const job *j, ls_change_kind kind, uint64_t value,
                                       job *changed_out);

/* ---- pass.c ---- */
ls_action *ls_action_add(ls_policy *policy, ls_action_kind kind, uint32_t slot, uint32_t for_slot);
void ls_action_add_shares(ls_policy *policy, ls_action *action, const job *j);
/* What stops it before devices are looked at; LS_WHY_STAGES: nothing. */
ls_why_stage ls_job_gate(const ls_policy *policy, const job *j, uint64_t now_ms);
/* Most ranks in [min, at_most] that find a place; 0: none. The plan is policy->plan. */
uint32_t ls_job_find_most(ls_policy *policy, const ls_free_map *map, const job *j, uint32_t at_most);
uint32_t ls_job_startable(ls_policy *policy, const job *j, uint64_t now_ms, uint32_t first, bool remember);
void ls_group_count(ls_policy *policy, const job *j, int change);
uint32_t ls_round_ranks(const job *j, uint32_t ranks); /* down to a size allowed */

/* ---- reserve.c ---- */
/* The earliest start of a job when those that run end as predicted, with the reservations made so far kept; open_end: also when ends have to come that nobody
 * knows. False: none is found. */
bool ls_reserve_find(ls_policy *policy, uint32_t slot, uint64_t now_ms, bool open_end, reservation *r);
void ls_reserve_add(ls_policy *policy, uint32_t slot, uint64_t now_ms);
void ls_reserve_withhold(ls_policy *policy, reservation *r, bool withhold);
/* Sets the free map up for a job that ends then: it sees reserved devices only if it is gone in time. Returns who is withheld, as bits. */
uint32_t ls_reserve_view(ls_policy *policy, uint64_t ends_ms, uint32_t count);
/* Pooled: devices that may be used by a job that ends then. */
uint32_t ls_reserve_spare(const ls_policy *policy, uint64_t ends_ms, uint32_t count);
void ls_reserve_spend(ls_policy *policy, uint64_t ends_ms, uint32_t ranks);
void ls_reserve_clear(ls_policy *policy);

/* Whether two shapes are placed alike. */
bool ls_shape_same(const ls_shape *a, const ls_shape *b);

/* ---- preempt.c ---- */
enum { HINT_UNKNOWN = 1 << 31 };
/* Queue, priority, spot and surplus of a running job in one word, so that most are passed over without a look at them. */
uint32_t ls_preempt_hint(const ls_policy *policy, const job *j, uint64_t now_ms);
/* Why another is not stopped for a job, though it comes after it. */
ls_kept ls_preempt_kept(const ls_policy *policy, const job *j, const job *other, uint64_t now_ms);
/* Stops others so that the job can start, if that is allowed and enough; then it is claiming. */
bool ls_preempt_for(ls_policy *policy, uint32_t slot, uint64_t now_ms, uint32_t *attempts);
/* The same so that an elastic job can start with all ranks it wants, from those alone that must yield to it. */
bool ls_preempt_for_all(ls_policy *policy, uint32_t slot, uint64_t now_ms, uint32_t *attempts);

/* ---- elastic.c ---- */
void ls_elastic_resize(ls_policy *policy, uint64_t now_ms); /* what was asked for by ls_policy_change */
void ls_elastic_grow(ls_policy *policy, uint64_t now_ms);

#endif
