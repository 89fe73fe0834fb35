// SPDX-License-Identifier: Apache-2.0
/*
 * One pass: limits, then all who wait in order, then those who may grow.
 *
 *   fits (where it may use what is free)  -> START
 *   others may be stopped for it          -> PREEMPT, SHRINK, END; it claims their devices and starts when they are gone
 *   one of the first K who do not fit     -> a reservation, which those behind it work around
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

/* Chains are built back to front and are short or nearly in order: an insertion sort from the end. */
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

bool ls_shape_same(const ls_shape *a, const ls_shape *b)
{
    return a->per_node == b->per_node && a->kind == b->kind && a->spot == b->spot &&
           a->cpus_per == b->cpus_per && a->memory_per == b->memory_per && a->required == b->required;
}

/* In a pass free devices only become fewer: who asks for as much as one that found no place finds none. */
static bool has_failed(const ls_policy *policy, const ls_shape *shape, uint32_t ranks, uint32_t withheld)
{
    for (uint32_t i = 0; i < policy->failure_count; i++) {
        const failure *f = &policy->failures[i];
        if (ranks >= f->ranks && (withheld & f->withheld) == f->withheld && ls_shape_same(shape, &f->shape)) {
            return true;
        }
    }
    return false;
}

static void remember_failure(ls_policy *policy, const ls_shape *shape, uint32_t ranks, uint32_t withheld)
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

uint32_t ls_job_find_most(ls_policy *policy, const ls_free_map *map, const job *j, uint32_t at_most)
{
    const ls_shape shape = ls_job_shape(policy, j);
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

/* Most ranks that this job could start with now; the plan is policy->plan. `first` reservations bind it. */
uint32_t ls_job_startable(ls_policy *policy, const job *j, uint64_t now_ms, uint32_t first, bool remember)
{
    const uint64_t ends_ms = ls_job_ends(j, now_ms, j->spec.min_ranks); /* the slowest it may become */
    const uint32_t room = ls_quota_room_bound(policy, j, first);
    uint32_t most = j->spec.ranks < room ? j->spec.ranks : room;
    if (policy->settings.pooled) {
        const uint32_t spare = ls_reserve_spare(policy, ends_ms, first);
        most = ls_round_ranks(j, most < spare ? most : spare);
        policy->plan.count = 0;
        policy->plan.ranks = most;
        return most;
    }
    const ls_shape shape = ls_job_shape(policy, j);
    const uint32_t withheld = ls_reserve_view(policy, ends_ms, first);
    const uint32_t free = ls_shape_free(&policy->map, &shape);
    most = most < free ? most : free;
    if (most < j->spec.min_ranks || (remember && has_failed(policy, &shape, j->spec.min_ranks, withheld))) {
        return 0;
    }
    const uint32_t found = ls_job_find_most(policy, &policy->map, j, most);
    if (found == 0 && remember) {
        remember_failure(policy, &shape, j->spec.min_ranks, withheld);
    }
    return found;
}

/* ---- starting ---- */

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

typedef struct scan {
    uint64_t now_ms;
    uint32_t attempts; /* to preempt, that are worth a try */
    bool strict, stopped;
} scan;

/* With fewer ranks than it wants only when those who must yield to it can't give up the others. */
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
        ranks = ls_job_startable(policy, j, now_ms, policy->reservation_count, true); /* its plan again */
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

static void consider(ls_policy *policy, uint32_t slot, scan *s)
{
    job *j = &policy->jobs[slot];
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
    ls_reserve_clear(policy);
    ls_running_update(policy, now_ms);
    end_over_limit(policy, now_ms);
    ls_order_update(policy, now_ms);
    for (uint32_t i = 0; i < policy->order_count && !s.stopped; i++) {
        consider(policy, policy->order[i].slot, &s);
    }
    compact_order(policy);
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

static uint64_t next_of_running(const ls_policy *policy, const job *j, bool others_wait)
{
    uint64_t next_ms = UINT64_MAX;
    if (j->spec.limit_ms > 0 && !j->ending) {
        next_ms = add_u64(j->started_ms, j->spec.limit_ms);
    }
    if (others_wait && policy->settings.preempt) {
        const uint64_t attained = ls_job_attained(j, policy->passed_ms); /* what that pass has seen */
        const uint32_t queue = ls_job_queue(policy, attained);
        const uint64_t threshold =
            queue < LS_LAS_QUEUES_MAX ? policy->settings.las_thresholds_device_ms[queue] : 0;
        if (threshold > 0) {
            next_ms = min_u64(next_ms, policy->passed_ms + (threshold - attained + j->ranks - 1) / j->ranks);
        }
        const uint64_t guard_ms = add_u64(j->started_ms, policy->settings.min_run_ms);
        next_ms = guard_ms > policy->passed_ms ? min_u64(next_ms, guard_ms) : next_ms;
    }
    if (policy->settings.elastic && job_is_elastic(j) && j->ranks < j->spec.max_ranks) {
        const uint64_t pause_ms = add_u64(j->resized_ms, policy->settings.resize_pause_ms);
        next_ms = pause_ms > policy->passed_ms ? min_u64(next_ms, pause_ms) : next_ms;
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
            next_ms = min_u64(next_ms, next_of_running(policy, j, others_wait));
        }
    }
    for (uint32_t i = 0; i < policy->order_count; i++) {
        const job *j = &policy->jobs[policy->order[i].slot];
        if (j->state == JOB_PENDING && !j->spec.held && j->spec.begin_ms > policy->passed_ms) {
            next_ms = min_u64(next_ms, j->spec.begin_ms);
        }
    }
    /* A start that waits for an end that is overdue is "any moment now" at every pass: that end is the event, not the time. */
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        if (policy->reservations[i].starts_ms > add_u64(policy->passed_ms, OVERDUE_MS)) {
            next_ms = min_u64(next_ms, policy->reservations[i].starts_ms);
        }
    }
    return next_ms == UINT64_MAX ? next_ms : max_u64(next_ms, now_ms);
}
