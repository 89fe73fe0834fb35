// SPDX-License-Identifier: Apache-2.0
/* All invariants of the state, by a full walk. */
#include "orchestration/policy/state.h"

#include <inttypes.h>

typedef struct walk {
    uint64_t used[LS_RESOURCES];
    uint32_t ranks, claimed;
} walk;

static ls_status wrong(const job *j, const char *what)
{
    return ls_fail(LS_ERR_FAILED, "job %" PRIu64 ": %s", j->spec.id, what);
}

/* Marks a chain as taken in the future map, which serves as scratch memory; that finds overlaps. */
static ls_status walk_chain(ls_policy *policy, const job *j, uint32_t chain, uint32_t *devices_out)
{
    uint32_t devices = 0;
    for (uint32_t i = chain; i != NO_SLOT; i = policy->shares[i].next) {
        const share_node *share = &policy->shares[i];
        const uint64_t here =
            j->state == JOB_CLAIMING ? share->devices & ~policy->map.claimed[share->place] : share->devices;
        const ls_place_node *node = &policy->places.nodes[share->place];
        const ls_gang_shape shape = ls_job_shape(policy, j);
        if (share->devices == 0 || (share->devices & ~node->all)) {
            return wrong(j, "has devices that do not exist");
        }
        if (here & ~policy->future.free[share->place]) {
            return wrong(j, "has devices that another job has too");
        }
        if (here & policy->map.free[share->place]) {
            return wrong(j, "has devices that count as free");
        }
        if (!ls_shape_takes(&shape, &policy->places.cells[node->cell])) {
            return wrong(j, "is on nodes that it may not use");
        }
        ls_free_map_take(&policy->future, share->place, here, j->spec.cpus_per_rank,
                         j->spec.memory_mib_per_rank);
        devices += bits_of(share->devices);
    }
    *devices_out = devices;
    return LS_OK;
}

static ls_status check_holder(ls_policy *policy, const job *j, walk *w)
{
    uint32_t held = 0, leaving = 0;
    LS_TRY(walk_chain(policy, j, j->shares, &held));
    LS_TRY(walk_chain(policy, j, j->leaving, &leaving));
    if (!policy->settings.pooled && (held != j->ranks || leaving != j->ranks_leaving)) {
        return wrong(j, "has a number of devices that differs from its ranks");
    }
    const bool asked = policy->restored_any ||
                       j->ranks_wanted > 0 || /* asked to change its size, not done yet */
                       (j->ranks >= j->spec.min_ranks && j->ranks <= j->spec.max_ranks);
    if (!asked || j->ranks == 0) {
        return wrong(j, "runs with a number of ranks outside of its range");
    }
    if (!policy->settings.pooled && !policy->restored_any && ls_job_level(policy, j) > j->spec.required &&
        j->spec.required != LS_LEVEL_CLUSTER) {
        return wrong(j, "is spread wider than it may be");
    }
    for (uint32_t i = j->shares; i != NO_SLOT && j->spec.devices_per_node && !policy->restored_any;
         i = policy->shares[i].next) {
        if (bits_of(policy->shares[i].devices) != j->spec.devices_per_node) {
            return wrong(j, "has another number of devices on a node than it asked for");
        }
    }
    const uint64_t all = j->ranks + j->ranks_leaving;
    w->used[LS_RESOURCE_DEVICES] += all;
    w->used[LS_RESOURCE_CPUS] += all * j->spec.cpus_per_rank;
    w->used[LS_RESOURCE_MEMORY] += all * j->spec.memory_mib_per_rank;
    w->ranks += j->ranks + j->ranks_leaving - j->claim_missing;
    w->claimed += j->claim_missing;
    return LS_OK;
}

static ls_status check_job_state(const ls_policy *policy, const job *j, uint32_t slot)
{
    if (ls_index_find(&policy->ids, j->spec.id) != slot) {
        return wrong(j, "is not found by its id");
    }
    if (j->state == JOB_PENDING && (j->ranks || j->shares != NO_SLOT || j->leaving != NO_SLOT)) {
        return wrong(j, "waits and has devices");
    }
    if (j->for_job != NO_SLOT && policy->jobs[j->for_job].state != JOB_CLAIMING) {
        return wrong(j, "gives up devices for a job that is not waiting for them");
    }
    if (j->state != JOB_CLAIMING && (j->claim_missing > 0 || j->givers > 0)) {
        return wrong(j, "is not claiming, but devices are missing");
    }
    uint32_t givers = 0;
    for (uint32_t i = 0; i < policy->jobs_used && j->state == JOB_CLAIMING; i++) {
        givers += policy->jobs[i].state == JOB_RUNNING && policy->jobs[i].for_job == slot;
    }
    if (givers != j->givers) {
        return wrong(j, "counts a different number of jobs that give up something for it");
    }
    return LS_OK;
}

/* Cores and memory may be overdrawn only where a job waits for the one that still has them. */
static ls_status check_overdrawn(const ls_policy *policy, uint32_t place)
{
    bool claimed = policy->map.cpus[place] >= 0 && policy->map.memory_mib[place] >= 0;
    for (uint32_t slot = 0; slot < policy->jobs_used && !claimed; slot++) {
        const job *j = &policy->jobs[slot];
        for (uint32_t i = j->state == JOB_CLAIMING ? j->shares : (uint32_t)NO_SLOT; i != NO_SLOT;
             i = policy->shares[i].next) {
            claimed = claimed || policy->shares[i].place == place;
        }
    }
    return claimed ? LS_OK
                   : ls_fail(LS_ERR_FAILED,
                             "the jobs on node %u use %d cores and %d MiB of memory more than it has",
                             policy->places.nodes[place].node, -policy->map.cpus[place],
                             -policy->map.memory_mib[place]);
}

static ls_status check_maps(ls_policy *policy, const walk *w)
{
    uint32_t claimed = 0;
    if (!ls_free_map_is_valid(&policy->map)) {
        return ls_fail(LS_ERR_FAILED, "the scheduler's table of free devices is inconsistent: its totals are "
                                      "not the sums of its parts");
    }
    for (uint32_t place = 0; place < policy->places.node_count; place++) {
        claimed += bits_of(policy->map.claimed[place]);
        if (!policy->restored_any) {
            LS_TRY(check_overdrawn(policy, place));
        }
        if (policy->map.free[place] != policy->future.free[place] && !policy->settings.pooled) {
            return ls_fail(LS_ERR_FAILED,
                           "node %u: the scheduler counts the devices in bit mask 0x%" PRIx64
                           " as free, but its jobs leave 0x%" PRIx64 " free",
                           policy->places.nodes[place].node, policy->map.free[place],
                           policy->future.free[place]);
        }
    }
    if (!policy->settings.pooled && claimed != w->claimed) {
        return ls_fail(LS_ERR_FAILED,
                       "%u devices are set aside for jobs about to start, but these jobs still need %u",
                       claimed, w->claimed);
    }
    if (policy->settings.pooled && policy->pooled_free + w->ranks != policy->places.devices) {
        return ls_fail(LS_ERR_FAILED, "%u free and %u used devices do not add up to the cluster's %u",
                       policy->pooled_free, w->ranks, policy->places.devices);
    }
    return LS_OK;
}

static ls_status check_accounts(const ls_policy *policy, const walk *w)
{
    for (int r = 0; r < LS_RESOURCES; r++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < policy->settings.accounts_max; i++) {
            const account *a = &policy->accounts[i];
            const uint64_t most = add_u64(a->settings.quota[r].nominal, a->settings.quota[r].borrow_max);
            sum += a->used[r];
            if (a->used[r] > most && !policy->quota_lowered) {
                return ls_fail(LS_ERR_FAILED,
                               "account %u uses %" PRIu64 " units of resource number %d; at most %" PRIu64
                               " are allowed",
                               i, a->used[r], r, most);
            }
        }
        if (sum != policy->used[r] || sum != w->used[r]) {
            return ls_fail(LS_ERR_FAILED,
                           "all accounts together use %" PRIu64
                           " units of resource number %d, but all jobs together use %" PRIu64,
                           sum, r, w->used[r]);
        }
    }
    return LS_OK;
}

static ls_status check_groups(const ls_policy *policy)
{
    for (uint32_t slot = 0; slot < policy->jobs_used; slot++) {
        const job *j = &policy->jobs[slot];
        uint32_t running = 0;
        if (j->state == JOB_GONE || j->spec.group == 0) {
            continue;
        }
        for (uint32_t i = 0; i < policy->jobs_used; i++) {
            const job *other = &policy->jobs[i];
            running += other->spec.group == j->spec.group && other->state > JOB_PENDING;
        }
        const uint32_t index = ls_index_find(&policy->group_ids, j->spec.group);
        if (index == NO_SLOT || policy->groups[index].running != running) {
            return wrong(j, "is in a group that is counted wrongly");
        }
    }
    return LS_OK;
}

ls_status ls_policy_check(ls_policy *policy)
{
    walk w = {0};
    ls_free_map_copy(&policy->future, &policy->whole);
    for (uint32_t slot = 0; slot < policy->jobs_used; slot++) {
        const job *j = &policy->jobs[slot];
        if (j->state == JOB_GONE) {
            continue;
        }
        LS_TRY(check_job_state(policy, j, slot));
        if (j->state != JOB_PENDING) {
            LS_TRY(check_holder(policy, j, &w));
        }
    }
    LS_TRY(check_maps(policy, &w));
    LS_TRY(check_accounts(policy, &w));
    return check_groups(policy);
}
