// SPDX-License-Identifier: Apache-2.0
/* Devices of jobs: taken, given up, claimed from other jobs; and the shape that decides where a job
 * fits. */
#include "orchestration/policy/state.h"

void ls_holdings_init(ls_policy *policy)
{
    /* Each share holds a device, or claims one that another job holds: at most two per device. */
    const uint32_t count = 2 * policy->places.devices;
    policy->shares = ls_arena_new(&policy->arena, share_node, count);
    for (uint32_t i = 0; i < count; i++) {
        policy->shares[i].next = i + 1 < count ? i + 1 : (uint32_t)NO_SLOT;
    }
    policy->share_free = 0;
}

static void chain_add(ls_policy *policy, uint32_t *chain, uint32_t place, uint64_t devices)
{
    const uint32_t index = policy->share_free;
    LS_ASSERT(index != NO_SLOT);
    policy->share_free = policy->shares[index].next;
    policy->shares[index] = (share_node){.place = place, .devices = devices, .next = *chain};
    *chain = index;
}

/* A growing job may get more devices of a node it is on: there is one share per place. */
static void chain_join(ls_policy *policy, uint32_t *chain, uint32_t place, uint64_t devices)
{
    for (uint32_t i = *chain; i != NO_SLOT; i = policy->shares[i].next) {
        if (policy->shares[i].place == place) {
            policy->shares[i].devices |= devices;
            return;
        }
    }
    chain_add(policy, chain, place, devices);
}

static void free_chain(ls_policy *policy, uint32_t *chain)
{
    while (*chain != NO_SLOT) {
        const uint32_t index = *chain;
        *chain = policy->shares[index].next;
        policy->shares[index].next = policy->share_free;
        policy->share_free = index;
    }
}

/* ---- shapes ---- */

static const uint64_t *nodes_with(const ls_policy *policy, uint64_t dataset)
{
    for (uint32_t i = 0; dataset != 0 && i < policy->dataset_count; i++) {
        if (policy->datasets[i] == dataset) {
            return policy->dataset_nodes[i];
        }
    }
    return NULL;
}

ls_gang_shape ls_job_shape(const ls_policy *policy, const job *j)
{
    return (ls_gang_shape){.per_node = j->spec.devices_per_node,
                           .kind = j->spec.kind,
                           .spot = j->spec.spot,
                           .cpus_per = j->spec.cpus_per_rank,
                           .memory_per = j->spec.memory_mib_per_rank,
                           .required = j->spec.required,
                           .preferred = j->spec.preferred,
                           .distance = ls_distance_weight(j->spec.comm_bytes_per_step),
                           .cached = nodes_with(policy, j->spec.dataset)};
}

bool ls_job_find(ls_policy *policy, const ls_free_map *map, const ls_gang_shape *shape, uint32_t ranks,
                 ls_placement *plan)
{
    if (!policy->settings.pooled) {
        return ls_plan_find(&policy->placer, map, shape, ranks, plan);
    }
    plan->count = 0;
    plan->ranks = ranks;
    plan->level = LS_LEVEL_CLUSTER;
    return ranks <= (map == &policy->whole ? policy->places.devices : policy->pooled_free);
}

/* ---- take and give ---- */

static void take_piece(ls_policy *policy, const job *j, const ls_gang_piece *piece)
{
    ls_free_map_take(&policy->map, piece->place, piece->devices, j->spec.cpus_per_rank,
                     j->spec.memory_mib_per_rank);
}

void ls_job_take(ls_policy *policy, uint64_t now_ms, uint32_t slot, const ls_placement *plan)
{
    job *j = &policy->jobs[slot];
    const bool grows = j->shares != NO_SLOT;
    for (uint32_t i = 0; i < plan->count; i++) {
        const ls_gang_piece *piece = &plan->pieces[i];
        take_piece(policy, j, piece);
        (grows ? chain_join : chain_add)(policy, &j->shares, piece->place, piece->devices);
    }
    policy->pooled_free -= policy->settings.pooled ? plan->ranks : 0;
    ls_quota_charge(policy, now_ms, j, plan->ranks);
    j->ranks += plan->ranks;
}

void ls_job_claim(ls_policy *policy, uint64_t now_ms, uint32_t slot, const ls_placement *plan)
{
    job *j = &policy->jobs[slot];
    LS_ASSERT(j->ranks == 0 && j->claim_missing == 0);
    for (uint32_t i = 0; i < plan->count; i++) {
        const ls_gang_piece *piece = &plan->pieces[i];
        const uint64_t free = piece->devices & policy->map.free[piece->place];
        const uint64_t missing = piece->devices & ~free;
        take_piece(policy, j, &(ls_gang_piece){.place = piece->place, .devices = free});
        LS_ASSERT((policy->map.claimed[piece->place] & missing) == 0);
        policy->map.claimed[piece->place] |= missing;
        ls_free_map_promise(&policy->map, piece->place, (int32_t)bits_of(missing), j->spec.cpus_per_rank,
                            j->spec.memory_mib_per_rank);
        j->claim_missing += bits_of(missing);
        chain_add(policy, &j->shares, piece->place, piece->devices);
    }
    if (policy->settings.pooled) {
        const uint32_t free = plan->ranks < policy->pooled_free ? plan->ranks : policy->pooled_free;
        policy->pooled_free -= free;
        j->claim_missing = plan->ranks - free;
    }
    ls_quota_charge(policy, now_ms, j, plan->ranks);
    j->ranks = plan->ranks;
}

/* A job gives up devices: to the job that claimed them, otherwise they become free. */
static void give_share(ls_policy *policy, const job *j, uint32_t place, uint64_t devices)
{
    const uint64_t to_claim = devices & policy->map.claimed[place];
    ls_free_map_give(&policy->map, place, devices & ~to_claim, j->spec.cpus_per_rank,
                     j->spec.memory_mib_per_rank);
    if (to_claim) {
        LS_ASSERT(j->for_job != NO_SLOT);
        policy->map.claimed[place] &= ~to_claim;
        ls_free_map_promise(&policy->map, place, -(int32_t)bits_of(to_claim), j->spec.cpus_per_rank,
                            j->spec.memory_mib_per_rank);
        policy->jobs[j->for_job].claim_missing -= bits_of(to_claim);
    }
}

/* Gives up a claim: devices that have not come yet are claimed no longer. */
static void give_claim(ls_policy *policy, const job *j, uint32_t place, uint64_t devices)
{
    const uint64_t missing = devices & policy->map.claimed[place];
    policy->map.claimed[place] &= ~missing;
    ls_free_map_promise(&policy->map, place, -(int32_t)bits_of(missing), j->spec.cpus_per_rank,
                        j->spec.memory_mib_per_rank);
    ls_free_map_give(&policy->map, place, devices & ~missing, j->spec.cpus_per_rank,
                     j->spec.memory_mib_per_rank);
}

static void give_pooled(ls_policy *policy, const job *j, uint32_t ranks)
{
    if (!policy->settings.pooled) {
        return;
    }
    job *to = j->for_job != NO_SLOT ? &policy->jobs[j->for_job] : NULL;
    const uint32_t claimed = !to ? 0 : to->claim_missing < ranks ? to->claim_missing : ranks;
    if (to) {
        to->claim_missing -= claimed;
    }
    policy->pooled_free += ranks - claimed;
}

/* all that it was told to give up is given */
void ls_job_gave(ls_policy *policy, job *j)
{
    if (j->for_job != NO_SLOT) {
        policy->jobs[j->for_job].givers--;
        j->for_job = NO_SLOT;
    }
}

/* No job gives up anything for this one any more. */
static void forget_claimer(ls_policy *policy, uint32_t slot)
{
    for (uint32_t i = 0; i < policy->running_count; i++) {
        job *other = &policy->jobs[policy->running[i].slot];
        /* A stale entry does no harm: if the job that now has the slot gives something up, it has
         * an entry of its own. */
        other->for_job = other->for_job == slot ? (uint32_t)NO_SLOT : other->for_job;
    }
}

void ls_job_give_all(ls_policy *policy, uint64_t now_ms, uint32_t slot)
{
    job *j = &policy->jobs[slot];
    const bool claims = j->state == JOB_CLAIMING;
    policy->running_sorted = false;
    for (uint32_t i = j->shares; i != NO_SLOT; i = policy->shares[i].next) {
        const share_node *share = &policy->shares[i];
        if (claims) {
            give_claim(policy, j, share->place, share->devices);
        } else {
            give_share(policy, j, share->place, share->devices);
        }
    }
    free_chain(policy, &j->shares);
    give_pooled(policy, j, j->ranks - (claims ? j->claim_missing : 0));
    if (claims) {
        forget_claimer(policy, slot);
    }
    ls_quota_return(policy, now_ms, j, j->ranks);
    j->ranks = 0;
    j->claim_missing = 0;
    j->givers = 0;
    ls_job_give_leaving(policy, now_ms, slot);
    ls_job_gave(policy, j);
}

/* ---- shrinking ---- */

/* The share to give up next: on the node where the job has fewest devices, so that it ends up on
 * few nodes. */
static uint32_t least_share(const ls_policy *policy, const job *j, const ls_placement *given)
{
    uint32_t best = NO_SLOT;
    for (uint32_t i = j->shares; i != NO_SLOT; i = policy->shares[i].next) {
        bool gone = false;
        for (uint32_t k = 0; k < given->count; k++) {
            gone = gone || given->pieces[k].place == policy->shares[i].place;
        }
        if (!gone &&
            (best == NO_SLOT || bits_of(policy->shares[i].devices) < bits_of(policy->shares[best].devices))) {
            best = i;
        }
    }
    return best;
}

void ls_job_shed_plan(const ls_policy *policy, const job *j, uint32_t ranks, ls_placement *plan)
{
    plan->count = 0;
    plan->ranks = ranks;
    for (uint32_t left = ranks; left > 0 && !policy->settings.pooled;) {
        const share_node *share = &policy->shares[least_share(policy, j, plan)];
        const ls_cell *cell = &policy->places.cells[policy->places.nodes[share->place].cell];
        const uint32_t has = bits_of(share->devices), count = has < left ? has : left;
        plan->pieces[plan->count++] = (ls_gang_piece){
            .place = share->place,
            .devices = ls_devices_pick(share->devices, cell->devices, cell->island_devices, count)};
        left -= count;
    }
}

void ls_share_cut(ls_policy *policy, uint32_t *chain, const ls_gang_piece *piece)
{
    uint32_t *link = chain;
    while (policy->shares[*link].place != piece->place) {
        link = &policy->shares[*link].next;
    }
    share_node *share = &policy->shares[*link];
    share->devices &= ~piece->devices;
    if (share->devices == 0) {
        const uint32_t index = *link;
        *link = share->next;
        share->next = policy->share_free;
        policy->share_free = index;
    }
}

void ls_job_shed(ls_policy *policy, uint32_t slot, uint32_t ranks)
{
    job *j = &policy->jobs[slot];
    ls_placement *plan = &policy->try_plan;
    LS_ASSERT(j->leaving == NO_SLOT && ranks < j->ranks);
    ls_job_shed_plan(policy, j, ranks, plan);
    for (uint32_t i = 0; i < plan->count; i++) {
        ls_share_cut(policy, &j->shares, &plan->pieces[i]);
        chain_add(policy, &j->leaving, plan->pieces[i].place, plan->pieces[i].devices);
    }
    j->ranks -= ranks;
    j->ranks_leaving = ranks;
}

void ls_job_give_leaving(ls_policy *policy, uint64_t now_ms, uint32_t slot)
{
    job *j = &policy->jobs[slot];
    for (uint32_t i = j->leaving; i != NO_SLOT; i = policy->shares[i].next) {
        give_share(policy, j, policy->shares[i].place, policy->shares[i].devices);
    }
    free_chain(policy, &j->leaving);
    give_pooled(policy, j, j->ranks_leaving);
    ls_quota_return(policy, now_ms, j, j->ranks_leaving);
    j->ranks_leaving = 0;
}

ls_level ls_job_level(ls_policy *policy, const job *j)
{
    ls_placement *plan = &policy->try_plan;
    plan->count = 0;
    for (uint32_t i = j->shares; i != NO_SLOT; i = policy->shares[i].next) {
        plan->pieces[plan->count++] =
            (ls_gang_piece){.place = policy->shares[i].place, .devices = policy->shares[i].devices};
    }
    return ls_pieces_level(&policy->places, plan->pieces, plan->count);
}
