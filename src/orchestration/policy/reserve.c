// SPDX-License-Identifier: Apache-2.0
/*
 * Reservations: the first K jobs that do not fit get a start time and the devices they will have
 * then.
 *
 *   free now   |  1 2 . . .       the head needs 4: at t2, when A and B have ended, it has 1 2 3 4
 *   A ends t1  |  . . 3 . .   ->  1 and 2 are withheld from every job that would not end by t2;
 *   B ends t2  |  . . . 4 5       5 is not part of the plan, and free for anyone at t2
 *
 * Later reservations are planned around the earlier ones, so no job can delay one before it. A job
 * with a reservation is first in its class at the next pass (its turn), so no later job gets in
 * front of it. Where no end can be predicted, there is no start time; a job that has waited long
 * then has devices kept as they become free, so that it does not starve. policy.h says what a
 * reservation promises.
 */
#include "orchestration/policy/state.h"

#include <string.h>

/* ---- what is withheld ---- */

/* Takes what is free of a reservation's devices out of the free map, or puts it back. */
static void set_withheld(ls_policy *policy, reservation *r, bool withhold)
{
    if (r->withheld == withhold) {
        return;
    }
    for (uint32_t i = 0; i < r->plan.count; i++) {
        const ls_gang_piece *piece = &r->plan.pieces[i];
        if (withhold) {
            r->held[i] = piece->devices & policy->map.free[piece->place];
            ls_free_map_take(&policy->map, piece->place, r->held[i], r->cpus_per, r->memory_per);
        } else {
            ls_free_map_give(&policy->map, piece->place, r->held[i], r->cpus_per, r->memory_per);
        }
    }
    r->withheld = withhold;
}

uint32_t ls_reserve_view(ls_policy *policy, uint64_t ends_ms, uint32_t count)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        reservation *r = &policy->reservations[i];
        const bool in_time = r->starts_ms != UINT64_MAX && ends_ms <= r->starts_ms;
        const bool withhold = i < count && !in_time;
        set_withheld(policy, r, withhold);
        bits |= withhold ? 1u << i : 0;
    }
    return bits;
}

uint32_t ls_reserve_spare(const ls_policy *policy, uint64_t ends_ms, uint32_t count)
{
    uint32_t spare = policy->pooled_free;
    for (uint32_t i = 0; i < count; i++) {
        const reservation *r = &policy->reservations[i];
        if (r->starts_ms == UINT64_MAX || ends_ms > r->starts_ms) {
            spare = r->spare < spare ? r->spare : spare;
        }
    }
    return spare;
}

void ls_reserve_spend(ls_policy *policy, uint64_t ends_ms, uint32_t ranks)
{
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        reservation *r = &policy->reservations[i];
        if (r->starts_ms == UINT64_MAX || ends_ms > r->starts_ms) {
            r->spare -= ranks;
        }
    }
}

void ls_reserve_clear(ls_policy *policy)
{
    ls_reserve_view(policy, 0, 0);
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        const ls_placement *plan = &policy->reservations[i].plan;
        for (uint32_t k = 0; k < plan->count; k++) {
            policy->reserved[plan->pieces[k].place] = 0;
        }
    }
    policy->reservation_count = policy->reserve_tries = 0;
}

/* ---- the earliest start ---- */

/* Frees in the future map what a job has when it ends, except what is reserved or claimed. Returns
 * whether that may matter to `shape`. */
static bool release(ls_policy *policy, const job *j, uint32_t chain, const ls_gang_shape *shape)
{
    /* a job that is claiming has got its devices by the time it ends */
    const uint64_t *kept = j->state == JOB_CLAIMING ? policy->reserved : policy->future.claimed;
    bool matters = false;
    for (uint32_t i = chain; i != NO_SLOT; i = policy->shares[i].next) {
        const share_node *share = &policy->shares[i];
        /* Between passes predictions may have changed since a reservation of these devices was
         * made; then they are free in the future map already. */
        const uint64_t devices = share->devices & ~kept[share->place] & ~policy->future.free[share->place];
        ls_free_map_give(&policy->future, share->place, devices, j->spec.cpus_per_rank,
                         j->spec.memory_mib_per_rank);
        const ls_place_node *node = &policy->places.nodes[share->place];
        matters = matters || ls_shape_takes(shape, &policy->places.cells[node->cell]);
    }
    return matters;
}

/*
 * Frees what a reserved job has when it ends, except what other reservations have from then on.
 * `claimed` of the future map marks what is kept: first all devices of this reservation are
 * unmarked, then those of the ones not yet released are marked again.
 */
static void release_reserved(ls_policy *policy, const reservation *r, uint64_t *done)
{
    uint64_t *kept = policy->future.claimed;
    *done |= UINT64_C(1) << (r - policy->reservations);
    for (uint32_t i = 0; i < r->plan.count; i++) {
        kept[r->plan.pieces[i].place] &= ~r->plan.pieces[i].devices;
    }
    for (uint32_t k = 0; k < policy->reservation_count; k++) {
        const ls_placement *other = &policy->reservations[k].plan;
        for (uint32_t i = 0; i < other->count && !(*done >> k & 1); i++) {
            kept[other->pieces[i].place] |= other->pieces[i].devices;
        }
    }
    for (uint32_t i = 0; i < r->plan.count; i++) {
        const ls_gang_piece *piece = &r->plan.pieces[i];
        const uint64_t devices = piece->devices & ~kept[piece->place] & ~policy->future.free[piece->place];
        ls_free_map_give(&policy->future, piece->place, devices, r->cpus_per, r->memory_per);
    }
}

/* The reservation that ends next, of those not released yet: reserved jobs end, too. */
static reservation *next_reserved_end(ls_policy *policy, uint64_t done)
{
    reservation *next = NULL;
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        reservation *r = &policy->reservations[i];
        if (!(done >> i & 1) && r->ends_ms != UINT64_MAX && (!next || r->ends_ms < next->ends_ms)) {
            next = r;
        }
    }
    return next;
}

/*
 * A job that has waited this long gets devices kept free even where no end is known. A job that has
 * had much service has to wait half as long as it has run: without that, jobs that ran for days and
 * were stopped for newcomers would be back at once, and the newcomers would wait.
 */
static bool is_starved(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    const uint64_t has_run_ms = j->attained_device_ms / j->spec.ranks;
    const uint64_t waits_ms = now_ms - ls_min_u64(now_ms, j->pending_ms);
    if (ls_job_queue(policy, j->attained_device_ms) == 0) {
        return waits_ms >= policy->settings.patience_ms;
    }
    return waits_ms >= ls_max_u64(policy->settings.patience_served_ms, has_run_ms / 2);
}

/* Whether devices may be kept free for this job although its start is not known. Only for one job
 * at a time: otherwise everything would stand idle for everyone. */
static bool may_drain(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        if (policy->reservations[i].starts_ms == UINT64_MAX) {
            return false;
        }
    }
    return is_starved(policy, j, now_ms);
}

/* How often a walk tries to place the job. Placing is expensive: where ends are known it is tried
 * after each; where they are not, it is tried after 1, 2, 4, 8, ... more ends. */
typedef struct walk {
    uint32_t skip, skipped;
} walk;

static bool try_fit(ls_policy *policy, const job *j, const ls_gang_shape *shape, bool known, walk *w,
                    ls_placement *plan)
{
    if (ls_shape_free(&policy->future, shape) < j->spec.min_ranks) {
        return false;
    }
    if (!known && w->skipped < w->skip) {
        w->skipped++;
        return false;
    }
    if (ls_plan_find(&policy->placer, &policy->future, shape, j->spec.min_ranks, plan)) {
        return true;
    }
    w->skip = known ? 0 : 2 * w->skip + 1;
    w->skipped = 0;
    return false;
}

/*
 * Finds the earliest time at which the job fits. Walks through the predicted ends in order of time,
 * frees what each sets free in a copy of the free map, and tries to place the job. With open_end it
 * goes on through jobs whose end is not known, those that started last first: a job that has run
 * for long will probably run for long. Ends of reserved jobs are merged into the walk in order of
 * time.
 */
static bool find_start(ls_policy *policy, const job *j, uint64_t now_ms, bool open_end, reservation *r)
{
    const ls_gang_shape shape = ls_job_shape(policy, j);
    uint64_t done = 0;
    walk w = {0};
    if (!open_end && policy->reservation_count == 0 &&
        (policy->running_count == 0 || policy->running[0].key >= END_UNKNOWN)) {
        return false;
    }
    ls_reserve_view(policy, UINT64_MAX, policy->reservation_count);
    ls_free_map_copy(&policy->future, &policy->map);
    for (uint32_t i = 0; i < policy->places.node_count && policy->reservation_count > 0; i++) {
        policy->future.claimed[i] |= policy->reserved[i];
    }
    for (uint32_t i = 0; i < policy->running_count;) {
        const reservation *reserved = next_reserved_end(policy, done);
        uint64_t at_ms = (uint64_t)policy->running[i].key;
        bool matters = false;
        if (at_ms >= END_UNKNOWN && !reserved && !open_end) {
            return false;
        }
        if (reserved && reserved->ends_ms <= at_ms) {
            at_ms = reserved->ends_ms;
            release_reserved(policy, reserved, &done);
            matters = true;
        } else {
            for (; i < policy->running_count && (uint64_t)policy->running[i].key == at_ms; i++) {
                const job *other = &policy->jobs[policy->running[i].slot];
                matters |= release(policy, other, other->shares, &shape);
                matters |= release(policy, other, other->leaving, &shape);
            }
        }
        const bool known = at_ms < END_UNKNOWN, last = i == policy->running_count;
        if ((matters || last) && try_fit(policy, j, &shape, known || last, &w, &r->plan)) {
            r->starts_ms = known ? ls_max_u64(at_ms, now_ms) : UINT64_MAX;
            return true;
        }
    }
    for (reservation *left = next_reserved_end(policy, done); left; left = next_reserved_end(policy, done)) {
        release_reserved(policy, left, &done);
        if (try_fit(policy, j, &shape, true, &w, &r->plan)) {
            r->starts_ms = ls_max_u64(left->ends_ms, now_ms);
            return true;
        }
    }
    return false;
}

/* How many devices earlier reservations still have at a time. */
static uint32_t reserved_at(const ls_policy *policy, uint64_t at_ms)
{
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < policy->reservation_count; i++) {
        const reservation *r = &policy->reservations[i];
        ranks += at_ms < r->ends_ms ? r->plan.ranks : 0;
    }
    return ranks;
}

static bool find_start_pooled(ls_policy *policy, const job *j, uint64_t now_ms, reservation *r)
{
    uint32_t all_free = policy->pooled_free;
    r->plan.count = 0;
    r->plan.ranks = j->spec.min_ranks;
    for (uint32_t i = 0; i < policy->running_count; i++) {
        const uint64_t at_ms = (uint64_t)policy->running[i].key;
        const uint32_t reserved = reserved_at(policy, at_ms);
        all_free += policy->jobs[policy->running[i].slot].ranks;
        const uint32_t free = all_free > reserved ? all_free - reserved : 0;
        const bool more = i + 1 < policy->running_count && (uint64_t)policy->running[i + 1].key == at_ms;
        if (!more && free >= j->spec.min_ranks) {
            r->starts_ms = at_ms >= END_UNKNOWN ? UINT64_MAX : ls_max_u64(at_ms, now_ms);
            r->spare = free - j->spec.min_ranks;
            return true;
        }
    }
    return false;
}

bool ls_reserve_find(ls_policy *policy, uint32_t slot, uint64_t now_ms, bool open_end, reservation *r)
{
    const job *j = &policy->jobs[slot];
    if (!policy->running_sorted) {
        ls_running_update(policy, now_ms);
    }
    r->job = slot;
    r->id = j->spec.id;
    r->withheld = false;
    r->cpus_per = j->spec.cpus_per_rank;
    r->memory_per = j->spec.memory_mib_per_rank;
    const bool found = policy->settings.pooled ? find_start_pooled(policy, j, now_ms, r)
                                               : find_start(policy, j, now_ms, open_end, r);
    if (found) {
        r->ends_ms =
            r->starts_ms == UINT64_MAX ? UINT64_MAX : ls_job_ends(j, r->starts_ms, j->spec.min_ranks);
    }
    return found;
}

enum { DRAINED_KEPT_MS = 600000 };

static void copy_plan(ls_placement *to, const ls_placement *from)
{
    memcpy(to->pieces, from->pieces, from->count * sizeof from->pieces[0]);
    to->count = from->count;
    to->ranks = from->ranks;
    to->level = from->level;
}

/* How many devices of a plan are in use. */
static uint32_t missing(const ls_policy *policy, const ls_placement *plan)
{
    uint32_t devices = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        devices += bits_of(plan->pieces[i].devices & ~policy->map.free[plan->pieces[i].place]);
    }
    return devices;
}

/*
 * Keeps free what was kept free for this job at the last pass, unless fewer devices are missing
 * elsewhere. Choosing anew at each pass would keep free now these devices, now those, and collect
 * none.
 */
static void keep_drained(ls_policy *policy, reservation *r, uint64_t now_ms)
{
    const bool same =
        policy->drained.id == r->id && now_ms - ls_min_u64(now_ms, policy->drained.made_ms) < DRAINED_KEPT_MS;
    if (r->starts_ms != UINT64_MAX || policy->reservation_count > 0 || policy->settings.pooled) {
        return;
    }
    if (same && missing(policy, &r->plan) >= missing(policy, &policy->drained.plan)) {
        copy_plan(&r->plan, &policy->drained.plan);
        return;
    }
    policy->drained.id = r->id;
    policy->drained.made_ms = now_ms;
    copy_plan(&policy->drained.plan, &r->plan);
}

void ls_reserve_add(ls_policy *policy, uint32_t slot, uint64_t now_ms)
{
    if (policy->reserve_tries >= 2 * policy->settings.reservations) {
        return; /* no known end would help the jobs at the head */
    }
    reservation *r = &policy->reservations[policy->reservation_count];
    job *j = &policy->jobs[slot];
    /* what would have to be borrowed is promised to no job */
    const bool own = ls_quota_is_own(policy, j, j->spec.min_ranks);
    const bool drains = own && may_drain(policy, j, now_ms);
    policy->reserve_tries++;
    if (!ls_reserve_find(policy, slot, now_ms, drains, r) || (r->starts_ms == UINT64_MAX && !drains)) {
        return;
    }
    keep_drained(policy, r, now_ms);
    j->turn = !own ? 0 : j->turn ? j->turn : ++policy->turns;
    r->place = ls_order_entry(policy, j, now_ms);
    for (uint32_t i = 0; i < r->plan.count; i++) {
        policy->reserved[r->plan.pieces[i].place] |= r->plan.pieces[i].devices;
    }
    policy->reservation_count++;
}
