// SPDX-License-Identifier: Apache-2.0
/*
 * Elastic jobs: free devices that no waiting job wants go, one step at a time, to the job that
 * gains most from them.
 *
 *   gain of a step = (throughput after - before) / throughput at min_ranks / devices of the step
 *
 * So of two jobs with the same curve the smaller one grows, and no job grows past the flat part of
 * its curve. Hysteresis: a job does not grow within resize_pause_ms of its start or last resize,
 * nor for a gain below resize_gain_permille. Jobs shrink for others (preempt.c, its first choice)
 * or on request.
 */
#include "orchestration/policy/state.h"

enum { GROWING_MOST = 128, STEPS_AHEAD = 8 };

typedef struct growing {
    uint32_t slot, ranks; /* the number of ranks it should have */
    uint32_t next;        /* its best next size; 0: none */
    uint64_t gain;        /* gain of growing to `next`, per device, in millionths */
} growing;

/* What its account may still use beside the jobs with a reserved start. */
static uint32_t room_to_grow(const ls_policy *policy, const job *j)
{
    return ls_quota_room_bound(policy, j, policy->reservation_count);
}

/* The most ranks it may grow to: more than it asked for only while no job waits for devices. */
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

/* The next size within STEPS_AHEAD steps with the highest gain per device. Looking further than one
 * step matters where a curve rises in steps, as with a number of leaves that few sizes divide. */
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

/* Adds to a list of limited length, which keeps the jobs that gain most. Returns 1 when the list
 * has become longer. */
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

/* Distributes the free devices among the jobs on the list; nothing is taken yet. */
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

/*
 * Hides the nodes that already have devices_per_node of the job's devices: they must not get more.
 */
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
    const ls_gang_shape shape = ls_job_shape(policy, j);
    hide_own_nodes(policy, j, true);
    const uint32_t found =
        ls_plan_find_within(&policy->placer, &policy->map, &shape, leaves, ranks, &policy->plan);
    hide_own_nodes(policy, j, false);
    if (found > 0) {
        ls_job_take(policy, now_ms, slot, &policy->plan);
    }
    return found;
}

/* Takes free devices of the nodes it is on. */
static uint32_t take_own_nodes(ls_policy *policy, uint64_t now_ms, uint32_t slot, uint32_t ranks)
{
    job *j = &policy->jobs[slot];
    const ls_gang_shape shape = ls_job_shape(policy, j);
    ls_placement *plan = &policy->plan;
    plan->count = plan->ranks = 0;
    for (uint32_t i = j->shares; i != NO_SLOT && plan->ranks < ranks && shape.per_node == 0;
         i = policy->shares[i].next) {
        const uint32_t place = policy->shares[i].place;
        const ls_cell *cell = &policy->places.cells[policy->places.nodes[place].cell];
        const uint32_t fit = ls_shape_fit(&policy->map, &shape, place), left = ranks - plan->ranks;
        const uint32_t count = fit < left ? fit : left;
        if (count > 0) {
            const uint64_t usable = ls_free_map_usable(&policy->map, place);
            plan->pieces[plan->count++] = (ls_gang_piece){
                .place = place,
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

/* Takes devices near those it has: its own nodes, then the leaf of its first node, its spine, then
 * anywhere, as far as its required level allows. Returns how many. */
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
    ls_placement *before = &policy->try_plan;
    before->count = 0;
    for (uint32_t i = j->shares; i != NO_SLOT; i = policy->shares[i].next) {
        before->pieces[before->count++] =
            (ls_gang_piece){.place = policy->shares[i].place, .devices = policy->shares[i].devices};
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

/* Gives back new devices beyond an allowed size, at once: no caller has heard of them. */
static void give_back(ls_policy *policy, uint64_t now_ms, uint32_t slot, uint32_t ranks)
{
    job *j = &policy->jobs[slot];
    policy->pooled_free += policy->settings.pooled ? ranks : 0;
    ls_quota_return(policy, now_ms, j, ranks);
    j->ranks -= ranks;
    for (uint32_t i = j->shares, next = NO_SLOT; i != NO_SLOT && ranks > 0; i = next) {
        const share_node share = policy->shares[i];
        ls_gang_piece piece = {.place = share.place};
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
    const ls_gang_shape any = {.kind = -1, .spot = true};
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

/* ---- resizing on request ---- */

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
