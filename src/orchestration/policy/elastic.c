// SPDX-License-Identifier: Apache-2.0
/*
 * Elastic jobs: free devices that nobody waits for go, a step at a time, to the job that gains most by them.
 *
 *   gain of a step = (throughput after - before) / throughput at min_ranks / devices of the step
 *
 * so that of two jobs on the same curve the smaller one grows, and none grows past the flat part of its curve. Hysteresis: not within resize_pause_ms
 * of a start or resize, and not for less than resize_gain_permille. Shrinking is preemption's first choice (preempt.c), or asked for by name.
 */
#include "orchestration/policy/state.h"

enum { GROWING_MOST = 128, STEPS_AHEAD = 8 };

typedef struct growing {
    uint32_t slot, ranks; /* it should have */
    uint32_t next;        /* its best next size; 0: none */
    uint64_t gain;        /* of getting there, per device, in millionths */
} growing;

/* What is left of its account's quota beside those with a reserved start. */
static uint32_t room_to_grow(const ls_policy *policy, const job *j)
{
    return ls_quota_room_bound(policy, j, policy->reservation_count);
}

/* Beyond what it asked for only while nobody waits for devices. */
static uint32_t most_ranks(const ls_policy *policy, const job *j)
{
    return policy->waiting_for_devices > 0 ? j->spec.ranks : j->spec.max_ranks;
}

static bool may_grow(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    return j->state == JOB_RUNNING && j->started && !j->stopping && !j->ending && !j->resizing &&
           job_is_elastic(j) && j->ranks < most_ranks(policy, j) &&
           now_ms >= add_u64(j->resized_ms, policy->settings.resize_pause_ms);
}

/* The size within reach that gains most per device. */
static void look_ahead(const ls_policy *policy, growing *g, uint32_t free, uint32_t room)
{
    const job *j = &policy->jobs[g->slot];
    const uint64_t here = ls_job_gain(j, g->ranks);
    const uint32_t step = j->spec.ranks_multiple;
    g->next = 0;
    g->gain = 0;
    for (uint32_t i = 1; i <= STEPS_AHEAD; i++) {
        const uint32_t more = i * step, ranks = g->ranks + more;
        if (ranks > most_ranks(policy, j) || more > free || ranks - j->ranks > room) {
            return;
        }
        const uint64_t there = ls_job_gain(j, ranks);
        const uint64_t gain = there > here ? (there - here) * 1000 / more : 0;
        if (gain > g->gain) {
            g->gain = gain;
            g->next = ranks;
        }
    }
}

static bool grows_before(const ls_policy *policy, const growing *a, const growing *b)
{
    return a->gain != b->gain ? a->gain > b->gain
                              : policy->jobs[a->slot].spec.id < policy->jobs[b->slot].spec.id;
}

/* Of more than there is room for, those that gain most. Returns 1 when the list has become longer. */
static uint32_t keep_best(const ls_policy *policy, growing *list, uint32_t count, const growing *g)
{
    if (g->next == 0) {
        return 0;
    }
    if (count < GROWING_MOST) {
        list[count] = *g;
        return 1;
    }
    growing *worst = &list[0];
    for (uint32_t i = 1; i < count; i++) {
        worst = grows_before(policy, worst, &list[i]) ? &list[i] : worst;
    }
    if (grows_before(policy, g, worst)) {
        *worst = *g;
    }
    return 0;
}

static uint32_t list_growing(const ls_policy *policy, growing *list, uint32_t free, uint64_t now_ms)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < policy->running_count; i++) {
        const job *j = &policy->jobs[policy->running[i].slot];
        if (may_grow(policy, j, now_ms)) {
            growing g = {.slot = policy->running[i].slot, .ranks = j->ranks};
            look_ahead(policy, &g, free, room_to_grow(policy, j));
            count += keep_best(policy, list, count, &g);
        }
    }
    return count;
}

/* Shares the free devices out in thought. */
static void share_out(const ls_policy *policy, growing *list, uint32_t count, uint32_t free)
{
    while (free > 0) {
        growing *best = NULL;
        for (uint32_t i = 0; i < count; i++) {
            best = list[i].next && (!best || grows_before(policy, &list[i], best)) ? &list[i] : best;
        }
        if (!best) {
            return;
        }
        if (best->next - best->ranks > free) {
            look_ahead(policy, best, free, room_to_grow(policy, &policy->jobs[best->slot]));
            continue;
        }
        free -= best->next - best->ranks;
        best->ranks = best->next;
        look_ahead(policy, best, free, room_to_grow(policy, &policy->jobs[best->slot]));
    }
}

/* ---- more devices, near those it has ---- */

/* Nodes that have as many of its devices as it asked for must not get more: they are out of sight while it looks for others. */
static void hide_own_nodes(ls_policy *policy, const job *j, bool hide)
{
    for (uint32_t i = j->shares; i != NO_SLOT && j->spec.devices_per_node; i = policy->shares[i].next) {
        const uint32_t place = policy->shares[i].place;
        const bool hidden = policy->hidden[place];
        if (hide && policy->map.up[place]) {
            policy->hidden[place] = true;
            ls_free_map_set_up(&policy->map, place, false);
        } else if (!hide && hidden) {
            policy->hidden[place] = false;
            ls_free_map_set_up(&policy->map, place, true);
        }
    }
}

static uint32_t take_within(ls_policy *policy, uint64_t now_ms, uint32_t slot, ls_range leaves,
                            uint32_t ranks)
{
    const job *j = &policy->jobs[slot];
    const ls_shape shape = ls_job_shape(policy, j);
    hide_own_nodes(policy, j, true);
    const uint32_t found =
        ls_plan_find_within(&policy->placer, &policy->map, &shape, leaves, ranks, &policy->plan);
    hide_own_nodes(policy, j, false);
    if (found > 0) {
        ls_job_take(policy, now_ms, slot, &policy->plan);
    }
    return found;
}

/* Free devices of the nodes it is on. */
static uint32_t take_own_nodes(ls_policy *policy, uint64_t now_ms, uint32_t slot, uint32_t ranks)
{
    job *j = &policy->jobs[slot];
    const ls_shape shape = ls_job_shape(policy, j);
    ls_plan *plan = &policy->plan;
    plan->count = plan->ranks = 0;
    for (uint32_t i = j->shares; i != NO_SLOT && plan->ranks < ranks && shape.per_node == 0;
         i = policy->shares[i].next) {
        const uint32_t place = policy->shares[i].place;
        const ls_cell *cell = &policy->places.cells[policy->places.nodes[place].cell];
        const uint32_t fit = ls_shape_fit(&policy->map, &shape, place), left = ranks - plan->ranks;
        const uint32_t count = fit < left ? fit : left;
        if (count > 0) {
            const uint64_t usable = ls_free_map_usable(&policy->map, place);
            plan->pieces[plan->count++] =
                (ls_piece){.place = place,
                           .devices = ls_devices_pick(usable, cell->devices, cell->island_devices, count)};
            plan->ranks += count;
        }
    }
    const uint32_t taken = plan->ranks;
    if (taken > 0) {
        ls_job_take(policy, now_ms, slot, plan);
    }
    return taken;
}

/* Own nodes, then the leaf of the first, its spine, everywhere; as far as the job's required level lets it. Returns how many. */
static uint32_t take_more(ls_policy *policy, uint64_t now_ms, uint32_t slot, uint32_t ranks)
{
    const job *j = &policy->jobs[slot];
    const ls_level level = j->spec.required;
    if (policy->settings.pooled) {
        policy->plan.count = 0;
        policy->plan.ranks = ranks < policy->pooled_free ? ranks : policy->pooled_free;
        ls_job_take(policy, now_ms, slot, &policy->plan);
        return policy->plan.ranks;
    }
    uint32_t taken = level == LS_LEVEL_ISLAND ? 0 : take_own_nodes(policy, now_ms, slot, ranks);
    const ls_place_node *node = &policy->places.nodes[policy->shares[j->shares].place];
    const ls_range ranges[3] = {{.first = node->leaf, .count = 1},
                                policy->places.spine_leaves[node->spine],
                                {.count = policy->places.leaf_count}};
    for (int i = 0; i < 3 && taken < ranks && (int)level >= LS_LEVEL_LEAF + i; i++) {
        taken += take_within(policy, now_ms, slot, ranges[i], ranks - taken);
    }
    return taken;
}

static void tell_resize(ls_policy *policy, uint32_t slot, ls_action_kind kind, uint64_t now_ms)
{
    job *j = &policy->jobs[slot];
    j->resizing = true;
    j->resized_ms = now_ms;
    ls_action_add_shares(policy, ls_action_add(policy, kind, slot, NO_SLOT), j);
}

static void remember_shares(ls_policy *policy, const job *j)
{
    ls_plan *before = &policy->try_plan;
    before->count = 0;
    for (uint32_t i = j->shares; i != NO_SLOT; i = policy->shares[i].next) {
        before->pieces[before->count++] =
            (ls_piece){.place = policy->shares[i].place, .devices = policy->shares[i].devices};
    }
}

static uint64_t had_before(const ls_policy *policy, uint32_t place)
{
    for (uint32_t i = 0; i < policy->try_plan.count; i++) {
        if (policy->try_plan.pieces[i].place == place) {
            return policy->try_plan.pieces[i].devices;
        }
    }
    return 0;
}

/* Devices beyond a size that is allowed, of those that are new: they go back at once, nobody was told of them. */
static void give_back(ls_policy *policy, uint64_t now_ms, uint32_t slot, uint32_t ranks)
{
    job *j = &policy->jobs[slot];
    policy->pooled_free += policy->settings.pooled ? ranks : 0;
    ls_quota_return(policy, now_ms, j, ranks);
    j->ranks -= ranks;
    for (uint32_t i = j->shares, next = NO_SLOT; i != NO_SLOT && ranks > 0; i = next) {
        const share_node share = policy->shares[i];
        ls_piece piece = {.place = share.place};
        next = share.next;
        for (uint64_t new = share.devices & ~had_before(policy, share.place); new &&ranks > 0;
             new &= new - 1) {
            piece.devices |= new & -new;
            ranks--;
        }
        if (piece.devices) {
            ls_share_cut(policy, &j->shares, &piece);
            ls_free_map_give(&policy->map, piece.place, piece.devices, j->spec.cpus_per_rank,
                             j->spec.memory_mib_per_rank);
        }
    }
}

static void grow(ls_policy *policy, uint32_t slot, uint32_t ranks, uint64_t now_ms)
{
    job *j = &policy->jobs[slot];
    const uint32_t before = j->ranks;
    ls_job_advance(j, now_ms);
    remember_shares(policy, j);
    take_more(policy, now_ms, slot, ranks - before);
    give_back(policy, now_ms, slot, (j->ranks - before) % j->spec.ranks_multiple);
    if (j->ranks > before) {
        tell_resize(policy, slot, LS_ACTION_GROW, now_ms);
    }
}

void ls_elastic_grow(ls_policy *policy, uint64_t now_ms)
{
    growing list[GROWING_MOST];
    const ls_shape any = {.kind = -1, .spot = true};
    const uint32_t free = policy->settings.pooled ? policy->pooled_free : ls_shape_free(&policy->map, &any);
    const uint32_t count = list_growing(policy, list, free, now_ms);
    share_out(policy, list, count, free);
    for (uint32_t i = 0; i < count; i++) {
        const job *j = &policy->jobs[list[i].slot];
        const uint64_t before = ls_job_gain(j, j->ranks), after = ls_job_gain(j, list[i].ranks);
        const bool worth = (after - before) * 1000 >= before * policy->settings.resize_gain_permille;
        const uint32_t room = room_to_grow(policy, j);
        if (list[i].ranks > j->ranks && worth && list[i].ranks - j->ranks <= room) {
            grow(policy, list[i].slot, list[i].ranks, now_ms);
        }
    }
}

/* ---- sizes asked for by name ---- */

static void resize_to(ls_policy *policy, uint32_t slot, uint64_t now_ms)
{
    job *j = &policy->jobs[slot];
    const uint32_t wanted = j->ranks_wanted;
    if (wanted < j->ranks) {
        ls_job_advance(j, now_ms);
        ls_job_shed(policy, slot, j->ranks - wanted);
        tell_resize(policy, slot, LS_ACTION_SHRINK, now_ms);
    } else if (wanted > j->ranks && room_to_grow(policy, j) >= wanted - j->ranks) {
        grow(policy, slot, wanted, now_ms);
    }
    j->ranks_wanted = j->ranks == wanted ? 0 : wanted;
}

void ls_elastic_resize(ls_policy *policy, uint64_t now_ms)
{
    for (uint32_t i = 0; i < policy->running_count; i++) {
        const job *j = &policy->jobs[policy->running[i].slot];
        if (j->state == JOB_RUNNING && j->ranks_wanted && j->started && !j->stopping && !j->ending &&
            !j->resizing) {
            resize_to(policy, policy->running[i].slot, now_ms);
        }
    }
}
