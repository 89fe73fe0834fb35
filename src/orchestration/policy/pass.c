// SPDX-License-Identifier: Apache-2.0
/*
 * One pass: time limits and maintenance, then all waiting jobs in order, then jobs that may grow.
 *
 *   it fits (in what it may use)     -> START
 *   others may be stopped for it     -> PREEMPT, SHRINK or END for them; it claims their devices
 *                                       and starts when they have given them up
 *   it is one of the first K others  -> a reservation, which later jobs have to work around
 */
#include "orchestration/policy/state.h"

#include <string.h>

/* ---- actions ---- */

ls_action *ls_action_add(ls_policy *policy, ls_action_kind kind, uint32_t slot, uint32_t for_slot)
{
    ls_action *action = &policy->actions[policy->action_count++];
    *action = (ls_action){.kind = kind,
                          .job = policy->jobs[slot].spec.id,
                          .for_job = for_slot == NO_SLOT ? 0 : policy->jobs[for_slot].spec.id,
                          .shares = policy->action_shares};
    return action;
}

static int compare_shares(const ls_share *a, const ls_share *b)
{
    return a->node < b->node ? -1 : a->node > b->node;
}

/* Chains are built back to front and are short or nearly sorted: insertion sort from the end. */
static void sort_shares(ls_share *shares, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const ls_share share = shares[i];
        uint32_t at = i;
        while (at > 0 && compare_shares(&shares[at - 1], &share) > 0) {
            shares[at] = shares[at - 1];
            at--;
        }
        shares[at] = share;
    }
}

void ls_action_add_shares(ls_policy *policy, ls_action *action, const job *j)
{
    ls_share *shares = policy->action_shares + policy->action_share_count;
    uint32_t count = 0;
    for (uint32_t i = j->shares; i != NO_SLOT; i = policy->shares[i].next) {
        count++;
    }
    uint32_t at = count;
    for (uint32_t i = j->shares; i != NO_SLOT; i = policy->shares[i].next) {
        const share_node *share = &policy->shares[i];
        shares[--at] = (ls_share){.node = policy->places.nodes[share->place].node, .devices = share->devices};
    }
    sort_shares(shares, count);
    policy->action_share_count += count;
    action->shares = shares;
    action->share_count = count;
    action->ranks = j->ranks;
    action->level = ls_job_level(policy, j);
}

/* ---- gates ---- */

const ls_policy_window *ls_job_window(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    const uint64_t ends_ms = j->spec.limit_ms > 0 ? add_u64(now_ms, j->spec.limit_ms) : UINT64_MAX;
    for (uint32_t i = 0; i < policy->window_count; i++) {
        const ls_policy_window *window = &policy->windows[i];
        const bool is_open = window->begin_ms <= now_ms;
        if (window->end_ms > now_ms && (is_open || (!j->spec.preemptible && ends_ms > window->begin_ms))) {
            return window;
        }
    }
    return NULL;
}

ls_why_stage ls_job_gate(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    if (j->spec.held) {
        return LS_WHY_HOLD;
    }
    if (j->waits_for > 0) {
        return LS_WHY_DEPENDENCY;
    }
    if (j->spec.begin_ms > now_ms) {
        return LS_WHY_BEGIN;
    }
    if (ls_job_window(policy, j, now_ms)) {
        return LS_WHY_MAINTENANCE;
    }
    if (j->spec.group && j->spec.group_running_max) {
        const uint32_t index = ls_index_find(&policy->group_ids, j->spec.group);
        if (policy->groups[index].running >= j->spec.group_running_max) {
            return LS_WHY_GROUP;
        }
    }
    return ls_quota_room(policy, j) < j->spec.min_ranks ? LS_WHY_QUOTA : LS_WHY_STAGES;
}

/* ---- finding ---- */

uint32_t ls_round_ranks(const job *j, uint32_t ranks)
{
    ranks -= ranks % j->spec.ranks_multiple;
    return ranks < j->spec.min_ranks ? 0 : ranks;
}

bool ls_shape_same(const ls_gang_shape *a, const ls_gang_shape *b)
{
    return a->per_node == b->per_node && a->kind == b->kind && a->spot == b->spot &&
           a->cpus_per == b->cpus_per && a->memory_per == b->memory_per && a->required == b->required;
}

/* Within a pass, free devices only become fewer: a job that asks for as much as one that found no
 * place finds none either. Withholding more reservations does not help it. */
static bool has_failed(const ls_policy *policy, const ls_gang_shape *shape, uint32_t ranks, uint32_t withheld)
{
    for (uint32_t i = 0; i < policy->failure_count; i++) {
        const failure *f = &policy->failures[i];
        if (ranks >= f->ranks && (withheld & f->withheld) == f->withheld && ls_shape_same(shape, &f->shape)) {
            return true;
        }
    }
    return false;
}

static void remember_failure(ls_policy *policy, const ls_gang_shape *shape, uint32_t ranks, uint32_t withheld)
{
    for (uint32_t i = 0; i < policy->failure_count; i++) {
        failure *f = &policy->failures[i];
        if (f->withheld == withheld && ls_shape_same(shape, &f->shape)) {
            f->ranks = ranks < f->ranks ? ranks : f->ranks;
            return;
        }
    }
    if (policy->failure_count < FAILURES_MAX) {
        policy->failures[policy->failure_count++] =
            (failure){.shape = *shape, .ranks = ranks, .withheld = withheld};
    }
}

/* The largest number of ranks in [min, at_most] that finds a place; 0: none. The plan is
 * policy->plan. */
static uint32_t find_most(ls_policy *policy, const ls_free_map *map, const job *j, uint32_t at_most)
{
    const ls_gang_shape shape = ls_job_shape(policy, j);
    /*
     * Larger sizes do not fit where smaller ones do not, nearly always: so bisection between them.
     * A required level or devices per node may make an exception, which costs ranks, not
     * correctness.
     */
    uint32_t low = j->spec.min_ranks, high = ls_round_ranks(j, at_most);
    if (high < low || !ls_job_find(policy, map, &shape, low, &policy->plan)) {
        return 0;
    }
    if (high == low || ls_job_find(policy, map, &shape, high, &policy->plan)) {
        return high;
    }
    const uint32_t step = j->spec.ranks_multiple;
    while (high - low > step) { /* low fits, high does not */
        const uint32_t middle = low + (high - low) / step / 2 * step;
        if (ls_job_find(policy, map, &shape, middle, &policy->plan)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    LS_ASSERT(ls_job_find(policy, map, &shape, low, &policy->plan));
    return low;
}

/* The largest number of ranks with which this job could start now; the plan is policy->plan. The
 * first `first` reservations bind it. */
uint32_t ls_job_startable(ls_policy *policy, const job *j, uint64_t now_ms, uint32_t first, bool remember)
{
    /* its end when it runs as slowly as it may become */
    const uint64_t ends_ms = ls_job_ends(j, now_ms, j->spec.min_ranks);
    const uint32_t room = ls_quota_room_bound(policy, j, first);
    uint32_t most = j->spec.ranks < room ? j->spec.ranks : room;
    if (policy->settings.pooled) {
        const uint32_t spare = ls_reserve_spare(policy, ends_ms, first);
        most = ls_round_ranks(j, most < spare ? most : spare);
        policy->plan.count = 0;
        policy->plan.ranks = most;
        return most;
    }
    const ls_gang_shape shape = ls_job_shape(policy, j);
    const uint32_t withheld = ls_reserve_view(policy, ends_ms, first);
    const uint32_t free = ls_shape_free(&policy->map, &shape);
    most = most < free ? most : free;
    if (most < j->spec.min_ranks || (remember && has_failed(policy, &shape, j->spec.min_ranks, withheld))) {
        return 0;
    }
    const uint32_t found = find_most(policy, &policy->map, j, most);
    if (found == 0 && remember) {
        remember_failure(policy, &shape, j->spec.min_ranks, withheld);
    }
    return found;
}

/* ---- starting ---- */

/* Its devices are there: it runs as far as the policy is concerned, and gives up its reserved
 * place. */
static void begin(ls_policy *policy, uint32_t slot, uint64_t now_ms)
{
    job *j = &policy->jobs[slot];
    j->state = JOB_RUNNING;
    j->started = j->stopping = j->ending = j->resizing = false;
    j->started_ms = j->attained_ms = j->resized_ms = now_ms;
    j->checkpoint_ms = now_ms;
    j->turn = 0;
    ls_action_add_shares(policy, ls_action_add(policy, LS_ACTION_START, slot, NO_SLOT), j);
}

void ls_group_count(ls_policy *policy, const job *j, int change)
{
    if (j->spec.group) {
        policy->groups[ls_index_find(&policy->group_ids, j->spec.group)].running += (uint32_t)change;
    }
}

/* ---- the pass ---- */

static void end_over_limit(ls_policy *policy, uint64_t now_ms)
{
    for (uint32_t i = 0; i < policy->running_count; i++) {
        const uint32_t slot = policy->running[i].slot;
        job *j = &policy->jobs[slot];
        const bool over = j->state == JOB_RUNNING && j->started && j->spec.limit_ms > 0 && !j->ending &&
                          now_ms >= add_u64(j->started_ms, j->spec.limit_ms);
        if (over) {
            j->ending = true;
            ls_action_add(policy, LS_ACTION_END, slot, NO_SLOT);
        }
    }
}

static bool is_maintenance(const ls_policy *policy, uint64_t now_ms)
{
    for (uint32_t i = 0; i < policy->window_count; i++) {
        if (policy->windows[i].begin_ms <= now_ms && now_ms < policy->windows[i].end_ms) {
            return true;
        }
    }
    return false;
}

/* Nothing runs in a window of maintenance, and no job keeps a claim on devices. */
static void clear_for_maintenance(ls_policy *policy, uint64_t now_ms)
{
    for (uint32_t i = 0; is_maintenance(policy, now_ms) && i < policy->running_count; i++) {
        const uint32_t slot = policy->running[i].slot;
        job *j = &policy->jobs[slot];
        if (j->spec.id != policy->running[i].id) {
            continue; /* a stale entry */
        }
        if (j->state == JOB_CLAIMING) {
            ls_job_send_back(policy, now_ms, slot); /* its entry in the order is still there */
        } else if (j->state == JOB_RUNNING && !j->stopping && !j->ending) {
            j->stopping = true;
            ls_action_add(policy, j->spec.preemptible ? LS_ACTION_PREEMPT : LS_ACTION_END, slot, NO_SLOT)
                ->for_window = true;
        }
    }
}

typedef struct scan {
    uint64_t now_ms;
    uint32_t attempts; /* attempts to preempt that are left in this pass */
    bool strict, stopped;
} scan;

/* Starts a job that fits. An elastic job starts with fewer ranks than it wants only when the jobs
 * that must yield to it can't provide the others. */
static bool try_start(ls_policy *policy, uint32_t slot, scan *s)
{
    const uint64_t now_ms = s->now_ms;
    job *j = &policy->jobs[slot];
    uint32_t ranks = ls_job_startable(policy, j, now_ms, policy->reservation_count, true);
    if (policy->settings.preempt && job_is_elastic(j) && ranks < j->spec.ranks) {
        if (ls_preempt_for_all(policy, slot, now_ms, &s->attempts)) {
            policy->waiting_for_devices++;
            return true;
        }
        /* compute its plan again */
        ranks = ls_job_startable(policy, j, now_ms, policy->reservation_count, true);
    }
    if (ranks == 0) {
        return false;
    }
    if (policy->settings.pooled) {
        ls_reserve_spend(policy, ls_job_ends(j, now_ms, j->spec.min_ranks), ranks);
    }
    ls_job_take(policy, now_ms, slot, &policy->plan);
    ls_group_count(policy, j, 1);
    begin(policy, slot, now_ms);
    ls_running_add(policy, slot);
    return true;
}

static bool any_free(const ls_policy *policy)
{
    if (policy->settings.pooled) {
        return policy->pooled_free > 0;
    }
    for (uint32_t i = 0; i < policy->places.class_count; i++) {
        if (policy->map.class_free[i] > 0) {
            return true;
        }
    }
    return false;
}

/*
 * One waiting job, in order. A claiming job starts when the last device it claimed has come; until
 * then nobody else gets these devices. Other jobs pass the gates, then try in turn: free devices,
 * preemption, a reservation. With the order fifo the first job that gets nothing ends the scan.
 */
static void consider(ls_policy *policy, uint32_t slot, scan *s)
{
    job *j = &policy->jobs[slot];
    if (j->state == JOB_CLAIMING && ls_job_window(policy, j, s->now_ms)) {
        ls_job_send_back(policy, s->now_ms, slot); /* its devices came too late */
    }
    if (j->state == JOB_CLAIMING) {
        if (j->claim_missing == 0 && j->givers == 0) {
            begin(policy, slot, s->now_ms);
        } else {
            policy->waiting_for_devices++;
        }
        return;
    }
    if (j->failed_before) {
        ls_action_add(policy, LS_ACTION_CANNOT, slot, NO_SLOT);
        ls_job_remove(policy, s->now_ms, slot, false);
        return;
    }
    if (ls_job_gate(policy, j, s->now_ms) != LS_WHY_STAGES || try_start(policy, slot, s)) {
        return;
    }
    policy->waiting_for_devices++;
    if (policy->settings.preempt && ls_preempt_for(policy, slot, s->now_ms, &s->attempts)) {
        return;
    }
    if (policy->reservation_count < policy->settings.reservations) {
        ls_reserve_add(policy, slot, s->now_ms);
    }
    s->stopped = s->strict;
}

static void compact_order(ls_policy *policy)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < policy->order_count; i++) {
        if (ls_entry_waits(policy, &policy->order[i])) {
            policy->order[kept++] = policy->order[i];
        }
    }
    policy->order_count = kept;
}

void ls_policy_pass(ls_policy *policy, uint64_t now_ms, const ls_action **actions_out, uint32_t *count_out)
{
    scan s = {.now_ms = now_ms,
              .attempts = policy->settings.reservations > 8 ? policy->settings.reservations : 8,
              .strict = policy->settings.order == LS_ORDER_FIFO};
    policy->action_count = policy->action_share_count = 0;
    policy->failure_count = policy->offer_count = 0;
    policy->waiting_for_devices = 0;
    policy->passed_ms = now_ms;
    /* Reservations are made anew in each pass, in order: what is kept from the last pass is only
     * the turn of each job, and so its place. */
    ls_reserve_clear(policy);
    ls_running_update(policy, now_ms);
    end_over_limit(policy, now_ms);
    clear_for_maintenance(policy, now_ms);
    ls_order_update(policy, now_ms);
    for (uint32_t i = 0; i < policy->order_count && !s.stopped; i++) {
        consider(policy, policy->order[i].slot, &s);
    }
    compact_order(policy);
    /* Growing comes last and sees no reserved devices: no waiting job wants what is left. */
    if (policy->settings.elastic) {
        ls_reserve_view(policy, UINT64_MAX, policy->reservation_count);
        ls_elastic_resize(policy, now_ms);
        if (any_free(policy)) {
            ls_elastic_grow(policy, now_ms);
        }
    }
    ls_reserve_view(policy, 0, 0); /* nothing is withheld between passes */
    *actions_out = policy->actions;
    *count_out = policy->action_count;
}

/* ---- when the next pass is due ---- */

enum { OVERDUE_MS = 1000 };

/* When a running job makes a pass necessary: at its limit; when it falls into a later queue or may
 * be stopped, if others wait; when it may grow again. */
static uint64_t next_of_running(const ls_policy *policy, const job *j, bool others_wait)
{
    uint64_t next_ms = UINT64_MAX;
    if (j->spec.limit_ms > 0 && !j->ending) {
        next_ms = add_u64(j->started_ms, j->spec.limit_ms);
    }
    if (others_wait && policy->settings.preempt) {
        /* as seen by the last pass */
        const uint64_t attained = ls_job_attained(j, policy->passed_ms);
        const uint32_t queue = ls_job_queue(policy, attained);
        const uint64_t threshold =
            queue < LS_LAS_QUEUES_MAX ? policy->settings.las_thresholds_device_ms[queue] : 0;
        if (threshold > 0) {
            next_ms =
                ls_min_u64(next_ms, policy->passed_ms + (threshold - attained + j->ranks - 1) / j->ranks);
        }
        const uint64_t guard_ms = add_u64(j->started_ms, policy->settings.min_run_ms);
        next_ms = guard_ms > policy->passed_ms ? ls_min_u64(next_ms, guard_ms) : next_ms;
    }
    if (policy->settings.elastic && job_is_elastic(j) && j->ranks < j->spec.max_ranks) {
        const uint64_t pause_ms = add_u64(j->resized_ms, policy->settings.resize_pause_ms);
        next_ms = pause_ms > policy->passed_ms ? ls_min_u64(next_ms, pause_ms) : next_ms;
    }
    return next_ms;
}

uint64_t ls_policy_next_ms(const ls_policy *policy, uint64_t now_ms)
{
    uint64_t next_ms = UINT64_MAX;
    const bool others_wait = policy->waiting_for_devices > 0;
    for (uint32_t i = 0; i < policy->running_count; i++) {
        const job *j = &policy->jobs[policy->running[i].slot];
        if (j->state == JOB_RUNNING && !j->stopping) {
            next_ms = ls_min_u64(next_ms, next_of_running(policy, j, others_wait));
        }
    }
    for (uint32_t i = 0; i < policy->order_count; i++) {
        const job *j = &policy->jobs[policy->order[i].slot];
        if (j->state == JOB_PENDING && !j->spec.held && j->spec.begin_ms > policy->passed_ms) {
            next_ms = ls_min_u64(next_ms, j->spec.begin_ms);
        }
    }
    for (uint32_t i = 0; i < policy->window_count; i++) {
        const ls_policy_window *window = &policy->windows[i];
        next_ms = window->begin_ms > policy->passed_ms ? ls_min_u64(next_ms, window->begin_ms) : next_ms;
        next_ms = window->end_ms > policy->passed_ms ? ls_min_u64(next_ms, window->end_ms) : next_ms;
    }
    /* A reserved start that depends on an overdue end is "at any moment" in every pass: a pass is
     * due when that end comes, not by time. */
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        if (policy->reservations[i].starts_ms > add_u64(policy->passed_ms, OVERDUE_MS)) {
            next_ms = ls_min_u64(next_ms, policy->reservations[i].starts_ms);
        }
    }
    return next_ms == UINT64_MAX ? next_ms : ls_max_u64(next_ms, now_ms);
}
