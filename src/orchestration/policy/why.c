// SPDX-License-Identifier: Apache-2.0
/*
 * Why a job waits: the stage that stops it, the jobs in the way, when it will start, and what would
 * let it start now.
 *
 * A counterfactual is a copy of the job's record with one thing changed, tried against the same
 * free devices and against the reservations of the jobs that would then come before it. That is
 * what the next pass would do: no job before it can start, or the last pass would have started it.
 */
#include "orchestration/policy/state.h"

#include <inttypes.h>
#include <string.h>

/* ---- place in the order ---- */

/* Its place among the jobs that are not held; 0: it is held. */
static void count_rank(const ls_policy *policy, uint64_t id, ls_why *why)
{
    why->rank = why->pending = 0;
    for (uint32_t i = 0; i < policy->order_count; i++) {
        const entry *e = &policy->order[i];
        const bool counts = ls_entry_waits(policy, e) && !policy->jobs[e->slot].spec.held;
        why->pending += counts;
        if (counts && e->id == id) {
            why->rank = why->pending;
        }
    }
}

/* Whether an entry of the order comes before a job; `j` may be a changed copy. Its place is
 * computed for the time of the last pass, which made the order. */
static bool comes_before(const ls_policy *policy, const entry *e, const job *j)
{
    const entry mine = ls_order_entry(policy, j, policy->passed_ms);
    return e->id != j->spec.id && ls_entry_precedes(e, &mine);
}

/* How many reservations bind a job: those up to the last one of a job before it. */
static uint32_t bound_by(const ls_policy *policy, const job *j)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        count = comes_before(policy, &policy->reservations[i].place, j) ? i + 1 : count;
    }
    return count;
}

/* With the order fifo, no job passes the first one that waits only for devices. */
static bool is_behind_head(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    for (uint32_t i = 0; policy->settings.order == LS_ORDER_FIFO && i < policy->order_count; i++) {
        const job *other = &policy->jobs[policy->order[i].slot];
        if (ls_entry_waits(policy, &policy->order[i]) && comes_before(policy, &policy->order[i], j) &&
            ls_job_gate(policy, other, now_ms) == LS_WHY_STAGES) {
            return true;
        }
    }
    return false;
}

/*
 * What the next pass would do with a job, which may be a changed copy: the same gates, the same
 * order, the same reservations that bind it. Preemption is not tried: a change that would only help
 * by stopping other jobs is not offered.
 */
static bool would_start(ls_policy *policy, const job *j, uint64_t now_ms)
{
    return ls_job_gate(policy, j, now_ms) == LS_WHY_STAGES && !is_behind_head(policy, j, now_ms) &&
           ls_job_startable(policy, j, now_ms, bound_by(policy, j), false) > 0;
}

/* ---- stages ---- */

/* The first stage that stops it, in the order in which a pass asks: what is true of the job itself
 * comes before what other jobs cause. */
static ls_why_stage stage_of(ls_policy *policy, const job *j, uint64_t now_ms)
{
    if (j->state == JOB_RUNNING) {
        return LS_WHY_RUNNING;
    }
    if (j->state == JOB_CLAIMING) {
        return LS_WHY_STARTING;
    }
    if (j->failed_before || ls_job_check_possible(policy, j) != LS_OK) {
        ls_error_clear();
        return LS_WHY_IMPOSSIBLE;
    }
    const ls_why_stage gate = ls_job_gate(policy, j, now_ms);
    if (gate != LS_WHY_STAGES) {
        return gate;
    }
    /* Does it fit when no reservation counts? Then either the order or a reservation is in the way;
     * if it does not, devices are: too few of them (gang), or in the wrong places (placement). */
    const bool fits = ls_job_startable(policy, j, now_ms, 0, false) > 0;
    if (fits && is_behind_head(policy, j, now_ms)) {
        return LS_WHY_PRIORITY;
    }
    if (fits) {
        const bool now = ls_job_startable(policy, j, now_ms, bound_by(policy, j), false) > 0;
        return now ? LS_WHY_STARTING : LS_WHY_RESERVATION;
    }
    const ls_gang_shape shape = ls_job_shape(policy, j);
    ls_reserve_view(policy, 0, 0);
    const uint32_t free = policy->settings.pooled ? policy->pooled_free : ls_shape_free(&policy->map, &shape);
    return free < j->spec.min_ranks ? LS_WHY_GANG : LS_WHY_PLACEMENT;
}

/* The two numbers that belong to the stage: what it needs, and what there is. */
static void count_needed(ls_policy *policy, const job *j, uint64_t now_ms, ls_why *why)
{
    const uint32_t room = ls_quota_room(policy, j);
    why->needed = j->spec.min_ranks;
    why->level = LS_LEVEL_CLUSTER;
    why->available = why->free_most[LS_LEVEL_CLUSTER];
    switch (why->stage) {
    case LS_WHY_MAINTENANCE:
        why->window = *ls_job_window(policy, j, now_ms);
        break;
    case LS_WHY_QUOTA:
        why->available = room;
        break;
    case LS_WHY_PLACEMENT:
        /* Within its level; when it may be anywhere, the nodes themselves do not suit it. */
        why->level = j->spec.required < LS_LEVEL_CLUSTER ? j->spec.required : LS_LEVEL_NODE;
        why->needed =
            why->level == LS_LEVEL_NODE && j->spec.devices_per_node ? j->spec.devices_per_node : why->needed;
        why->available = why->free_most[why->level];
        break;
    case LS_WHY_DEPENDENCY:
        why->needed = j->waits_for;
        why->available = 0;
        break;
    case LS_WHY_GROUP:
        why->needed = j->spec.group_running_max;
        why->available = policy->groups[ls_index_find(&policy->group_ids, j->spec.group)].running;
        break;
    default:
        break;
    }
}

/* ---- blockers ---- */

static void add_blocker(const ls_policy *policy, const job *of, ls_why *why, uint32_t slot, uint64_t now_ms)
{
    const job *j = &policy->jobs[slot];
    if (why->blocker_count == LS_WHY_BLOCKERS_MAX) {
        return;
    }
    /* For a dependency or a group the job waits for an end; no job is stopped for that. */
    const bool is_in_way = why->stage != LS_WHY_DEPENDENCY && why->stage != LS_WHY_GROUP;
    const uint64_t ends_ms = j->state == JOB_PENDING ? UINT64_MAX : ls_running_ends(j, now_ms);
    why->blockers[why->blocker_count].job = j->spec.id;
    why->blockers[why->blocker_count].devices = j->ranks ? j->ranks : j->spec.min_ranks;
    why->blockers[why->blocker_count].ends_ms = ends_ms >= INT64_MAX ? 0 : ends_ms;
    why->blockers[why->blocker_count].kept = is_in_way ? ls_preempt_kept(policy, of, j, now_ms) : LS_KEPT_NOT;
    why->blocker_count++;
}

static bool waits_for(const ls_policy *policy, const job *on, uint32_t slot)
{
    for (uint32_t i = on->state == JOB_GONE ? (uint32_t)NO_SLOT : on->edges; i != NO_SLOT;
         i = policy->edges[i].next) {
        if (policy->edges[i].job == slot) {
            return true;
        }
    }
    return false;
}

/* Marks the devices of a plan, in scratch memory of the future map. */
static void mark_plan(ls_policy *policy, const ls_placement *plan)
{
    memset(policy->future.claimed, 0, policy->places.node_count * sizeof *policy->future.claimed);
    for (uint32_t i = 0; plan && i < plan->count; i++) {
        policy->future.claimed[plan->pieces[i].place] |= plan->pieces[i].devices;
    }
}

static bool has_marked(const ls_policy *policy, const job *other)
{
    for (uint32_t i = other->shares; i != NO_SLOT; i = policy->shares[i].next) {
        if (policy->future.claimed[policy->shares[i].place] & policy->shares[i].devices) {
            return true;
        }
    }
    return false;
}

/* Whether a running job is in the way, by stage. With a plan only jobs that have devices of it
 * count. */
static bool is_blocker(const ls_policy *policy, uint32_t slot, const job *j, uint32_t other_slot,
                       ls_why_stage stage, const ls_placement *plan)
{
    const job *other = &policy->jobs[other_slot];
    switch (stage) {
    case LS_WHY_GROUP:
        return other->spec.group == j->spec.group;
    case LS_WHY_QUOTA:
        return other->spec.account == j->spec.account || ls_quota_borrows(policy, other);
    case LS_WHY_STARTING: /* the jobs that give up devices for it */
        return other->for_job == slot;
    case LS_WHY_GANG:
    case LS_WHY_PLACEMENT:
        return policy->settings.pooled || !plan || has_marked(policy, other);
    default:
        return false;
    }
}

/* Lists the jobs in the way: those it depends on, those with a reservation or a place before it,
 * then running jobs in the order of their predicted ends. */
static void list_blockers(ls_policy *policy, uint32_t slot, ls_why *why, const ls_placement *plan,
                          uint64_t now_ms)
{
    const job *j = &policy->jobs[slot];
    mark_plan(policy, plan);
    if (why->stage == LS_WHY_DEPENDENCY) {
        for (uint32_t i = 0; i < policy->jobs_used; i++) {
            if (waits_for(policy, &policy->jobs[i], slot)) {
                add_blocker(policy, j, why, i, now_ms);
            }
        }
    }
    for (uint32_t i = 0; why->stage == LS_WHY_RESERVATION && i < bound_by(policy, j); i++) {
        if (policy->jobs[policy->reservations[i].job].spec.id == policy->reservations[i].id) {
            add_blocker(policy, j, why, policy->reservations[i].job, now_ms);
        }
    }
    for (uint32_t i = 0; why->stage == LS_WHY_PRIORITY && i < policy->order_count; i++) {
        if (ls_entry_waits(policy, &policy->order[i]) && comes_before(policy, &policy->order[i], j)) {
            add_blocker(policy, j, why, policy->order[i].slot, now_ms);
        }
    }
    for (uint32_t i = 0; i < policy->running_count && why->blocker_count < LS_WHY_BLOCKERS_MAX; i++) {
        const uint32_t other = policy->running[i].slot;
        if (other != slot && ls_entry_runs(policy, &policy->running[i]) &&
            is_blocker(policy, slot, j, other, why->stage, plan)) {
            add_blocker(policy, j, why, other, now_ms);
        }
    }
}

/* ---- when ---- */

/* The device-ms that waiting jobs before it without a reservation will need, divided by all
 * devices: a lower bound for how long they keep it waiting. */
static uint64_t work_ahead_ms(const ls_policy *policy, uint64_t id)
{
    uint64_t work = 0;
    for (uint32_t i = 0; i < policy->order_count && policy->order[i].id != id; i++) {
        const job *j = &policy->jobs[policy->order[i].slot];
        if (i >= policy->reservation_count && ls_entry_waits(policy, &policy->order[i])) {
            const uint64_t run_ms = ls_job_ends(j, 0, j->spec.ranks);
            work = add_u64(work, run_ms == UINT64_MAX ? 0 : run_ms * j->spec.ranks);
        }
    }
    return work / ls_max_u64(policy->places.devices, 1);
}

/* Stages that end when devices become free, so a start follows from the predicted ends of running
 * jobs. */
static bool needs_devices(ls_why_stage stage)
{
    return stage == LS_WHY_GANG || stage == LS_WHY_PLACEMENT || stage == LS_WHY_RESERVATION ||
           stage == LS_WHY_PRIORITY || stage == LS_WHY_QUOTA;
}

/* Estimates when it starts. plan_out: the devices it would have then; NULL: no time was found. */
static void estimate_start(ls_policy *policy, uint32_t slot, ls_why *why, uint64_t now_ms,
                           const ls_placement **plan_out)
{
    const job *j = &policy->jobs[slot];
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        const reservation *r = &policy->reservations[i];
        if (r->id == j->spec.id && r->starts_ms != UINT64_MAX) {
            why->eta_ms = ls_max_u64(r->starts_ms, now_ms);
            why->eta_is_reserved = true;
            *plan_out = &r->plan;
            return;
        }
    }
    if (why->stage == LS_WHY_BEGIN) {
        why->eta_ms = j->spec.begin_ms;
    } else if (why->stage == LS_WHY_MAINTENANCE) {
        why->eta_ms = why->window.end_ms;
    } else if (why->stage == LS_WHY_STARTING) {
        why->eta_ms = now_ms;
    } else if (needs_devices(why->stage)) {
        /* the pieces are those of policy->plan; only the count is a copy */
        reservation r = {.plan = policy->plan};
        if (ls_reserve_find(policy, slot, now_ms, true, &r)) {
            const bool known = r.starts_ms != UINT64_MAX;
            why->eta_ms = known ? add_u64(r.starts_ms, work_ahead_ms(policy, j->spec.id)) : 0;
            policy->plan.count = r.plan.count;
            *plan_out = &policy->plan;
        }
    }
}

/* ---- what would change it ---- */

typedef struct trial {
    uint32_t slot;
    uint64_t now_ms;
    ls_why *why;
} trial;

/* Whether the job would start at the next pass with this one change. A change that is not allowed
 * is no way to start. */
static bool starts_with(ls_policy *policy, const trial *t, ls_change_kind kind, uint64_t value)
{
    job changed;
    if (ls_job_changed(policy, &policy->jobs[t->slot], kind, value, &changed) != LS_OK) {
        ls_error_clear();
        return false;
    }
    return would_start(policy, &changed, t->now_ms);
}

/* Adds a counterfactual if it is true. */
static bool offer(ls_policy *policy, const trial *t, ls_change_kind kind, uint64_t value)
{
    ls_why *why = t->why;
    if (why->change_count == LS_WHY_CHANGES_MAX || !starts_with(policy, t, kind, value)) {
        return false;
    }
    why->changes[why->change_count].kind = kind;
    why->changes[why->change_count].value = value;
    why->changes[why->change_count].starts_ms = t->now_ms;
    why->change_count++;
    return true;
}

/* Offers the largest number of ranks with which it would start now, by bisection: what fits with
 * some number of ranks fits with fewer, too. */
static void offer_ranks(ls_policy *policy, const trial *t)
{
    const job *j = &policy->jobs[t->slot];
    const uint32_t step = j->spec.devices_per_node ? j->spec.devices_per_node : 1;
    /* with low x step it starts, with high x step it does not */
    uint32_t low = 0, high = (j->spec.min_ranks - 1) / step + 1;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (starts_with(policy, t, LS_CHANGE_RANKS, (uint64_t)middle * step)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (low > 0) {
        offer(policy, t, LS_CHANGE_RANKS, (uint64_t)low * step);
    }
}

/* Offers the longest time limit with which it would end before the reserved devices are needed.
 * Tries the reserved starts, latest first. */
static void offer_limit(ls_policy *policy, const trial *t)
{
    uint64_t below_ms = UINT64_MAX;
    for (uint32_t tries = 0; tries < policy->reservation_count; tries++) {
        uint64_t starts_ms = 0;
        for (uint32_t i = 0; i < policy->reservation_count; i++) {
            const uint64_t at_ms = policy->reservations[i].starts_ms;
            starts_ms = at_ms < below_ms && at_ms != UINT64_MAX ? ls_max_u64(starts_ms, at_ms) : starts_ms;
        }
        if (starts_ms <= t->now_ms || offer(policy, t, LS_CHANGE_LIMIT, starts_ms - t->now_ms)) {
            return;
        }
        below_ms = starts_ms;
    }
}

/* Offers the quota that its account lacks. Tried on the account itself, which is restored
 * afterwards. */
static void offer_quota(ls_policy *policy, const trial *t)
{
    const job *j = &policy->jobs[t->slot];
    account *a = &policy->accounts[j->spec.account];
    ls_quota *quota = &a->settings.quota[LS_RESOURCE_DEVICES];
    const uint32_t room = ls_quota_room(policy, j);
    const ls_quota before = *quota;
    ls_why *why = t->why;
    if (room >= j->spec.min_ranks || before.nominal == LS_UNLIMITED ||
        why->change_count == LS_WHY_CHANGES_MAX) {
        return;
    }
    const uint32_t more = j->spec.min_ranks - room;
    const ls_policy_account kept = a->settings;
    ls_policy_account tried = kept;
    tried.quota[LS_RESOURCE_DEVICES].nominal += more;
    ls_quota_recount(policy, a, &tried);
    if (would_start(policy, j, t->now_ms)) {
        why->changes[why->change_count].kind = LS_CHANGE_QUOTA;
        why->changes[why->change_count].value = more;
        why->changes[why->change_count].starts_ms = t->now_ms;
        why->change_count++;
    }
    ls_quota_recount(policy, a, &kept);
}

/* From the cheapest change for the user to the dearest; each kind at most once, up to
 * LS_WHY_CHANGES_MAX. */
static void offer_changes(ls_policy *policy, const trial *t)
{
    const job *j = &policy->jobs[t->slot];
    if (j->spec.held) {
        offer(policy, t, LS_CHANGE_HELD, 0);
    }
    if (j->spec.begin_ms > t->now_ms) {
        offer(policy, t, LS_CHANGE_BEGIN, 0);
    }
    if (t->why->stage == LS_WHY_MAINTENANCE && t->why->window.begin_ms > t->now_ms) {
        offer(policy, t, LS_CHANGE_LIMIT, t->why->window.begin_ms - t->now_ms);
    }
    if (t->why->stage == LS_WHY_GROUP) {
        offer(policy, t, LS_CHANGE_GROUP, t->why->available + 1);
    }
    offer_quota(policy, t);
    /* the first level that helps keeps the ranks closest together */
    for (int level = (int)j->spec.required + 1; level < LS_LEVEL_COUNT; level++) {
        if (offer(policy, t, LS_CHANGE_REQUIRED, (uint64_t)level)) {
            break;
        }
    }
    if (j->spec.devices_per_node) {
        offer(policy, t, LS_CHANGE_PER_NODE, 0);
    }
    if (j->spec.kind >= 0) {
        offer(policy, t, LS_CHANGE_KIND, 0);
    }
    if (!j->spec.spot) {
        offer(policy, t, LS_CHANGE_SPOT, 1);
    }
    offer_ranks(policy, t);
    if (t->why->stage != LS_WHY_MAINTENANCE) {
        offer_limit(policy, t);
    }
    if (j->spec.priority + 1 < LS_PRIORITIES) {
        offer(policy, t, LS_CHANGE_PRIORITY, LS_PRIORITIES - 1);
    }
}

/* Finds the stage and its numbers. Leaves the free map without anything withheld. */
static void look_at_stage(ls_policy *policy, const job *j, uint64_t now_ms, ls_why *why)
{
    const ls_gang_shape shape = ls_job_shape(policy, j);
    *why = (ls_why){.stage = stage_of(policy, j, now_ms)};
    ls_reserve_view(policy, 0, 0);
    ls_shape_free_most(&policy->map, &shape, why->free_most);
    if (policy->settings.pooled) {
        why->free_most[LS_LEVEL_CLUSTER] = policy->pooled_free;
    }
    why->pending = policy->order_count;
    count_needed(policy, j, now_ms, why);
}

static ls_status find_asked(const ls_policy *policy, uint64_t id, uint32_t *slot_out)
{
    *slot_out = ls_index_find(&policy->ids, id);
    return *slot_out == NO_SLOT ? ls_fail(LS_ERR_NOT_FOUND, "job %" PRIu64 " does not exist", id) : LS_OK;
}

ls_status ls_policy_stage(ls_policy *policy, uint64_t now_ms, uint64_t id, ls_why *why_out)
{
    uint32_t slot = 0;
    LS_TRY(find_asked(policy, id, &slot));
    look_at_stage(policy, &policy->jobs[slot], now_ms, why_out);
    /* counting takes a walk through the order, so only where the number is shown */
    if (why_out->stage == LS_WHY_PRIORITY) {
        count_rank(policy, id, why_out);
    }
    return LS_OK;
}

ls_status ls_policy_why(ls_policy *policy, uint64_t now_ms, uint64_t id, ls_why *why_out)
{
    uint32_t slot = 0;
    LS_TRY(find_asked(policy, id, &slot));
    const job *j = &policy->jobs[slot];
    const ls_placement *plan = NULL;
    look_at_stage(policy, j, now_ms, why_out);
    ls_job_factors(policy, j, now_ms, why_out->factors);
    for (int i = 0; i < 4; i++) {
        why_out->factor_sum += why_out->factors[i];
    }
    if (why_out->stage == LS_WHY_RUNNING) {
        return LS_OK;
    }
    count_rank(policy, id, why_out);
    /* In this order: the plan of the estimate decides which running jobs are in the way, and both
     * use the scratch memory of the future map. */
    estimate_start(policy, slot, why_out, now_ms, &plan);
    list_blockers(policy, slot, why_out, plan, now_ms);
    if (j->state == JOB_PENDING && why_out->stage != LS_WHY_STARTING && !j->failed_before) {
        offer_changes(policy, &(trial){.slot = slot, .now_ms = now_ms, .why = why_out});
    }
    /* the trials withheld reserved devices */
    ls_reserve_view(policy, 0, 0);
    return LS_OK;
}
