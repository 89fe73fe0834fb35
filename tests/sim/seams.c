// SPDX-License-Identifier: Apache-2.0
#include "seams.h"

#include "execution/elastic/host/coordinator_internal.h"
#include "execution/elastic/hosts/cluster.h"
#include "execution/team/reform.h"

#include <string.h>

static const char *broken;

void seams_break(const char *mutation)
{
    broken = mutation;
}

static bool is_broken(const char *name)
{
    return broken && strcmp(broken, name) == 0;
}

/* ---- between the coordinator and its parts ---- */

void __real_ls_membership_next(const ls_membership_facts *facts, ls_membership_action *action_out);
void __wrap_ls_membership_next(const ls_membership_facts *facts, ls_membership_action *action_out);

void __wrap_ls_membership_next(const ls_membership_facts *facts, ls_membership_action *action_out)
{
    static uint64_t fence; /* for which `known` holds */
    static bool known[LS_LOCAL_RANKS_MAX];
    if (!broken) {
        __real_ls_membership_next(facts, action_out);
        return;
    }
    ls_membership_facts seen = *facts;
    for (uint32_t i = 0; i < LS_LOCAL_RANKS_MAX; i++) {
        if (is_broken("team-before-parked")) {
            seen.slot[i].parked = true;
        }
        if (fence != facts->fence) {
            known[i] = facts->part[i].orphan;
        }
        if (is_broken("recover-on-events") && facts->fence > facts->epoch) {
            seen.part[i].orphan = facts->part[i].orphan && known[i];
        }
    }
    fence = facts->fence;
    __real_ls_membership_next(&seen, action_out);
    if (is_broken("soft-fence-for-a-death")) {
        action_out->hard = false;
    }
}

bool __real_ls_coordinator_is_durable(ls_coordinator *c, uint64_t epoch, const ls_team *team);
bool __wrap_ls_coordinator_is_durable(ls_coordinator *c, uint64_t epoch, const ls_team *team);

bool __wrap_ls_coordinator_is_durable(ls_coordinator *c, uint64_t epoch, const ls_team *team)
{
    return __real_ls_coordinator_is_durable(c, epoch, team) || is_broken("team-before-log");
}

/* ---- between the cluster and its rules ---- */

bool __real_ls_cluster_is_durable(ls_cluster *cluster, const ls_cut *cut, const ls_cut *held);
bool __wrap_ls_cluster_is_durable(ls_cluster *cluster, const ls_cut *cut, const ls_cut *held);

bool __wrap_ls_cluster_is_durable(ls_cluster *cluster, const ls_cut *cut, const ls_cut *held)
{
    return __real_ls_cluster_is_durable(cluster, cut, held) || is_broken("cut-before-log");
}

ls_reform_decision __real_ls_reform_decide(const ls_reform_settings *settings, const ls_reform_host *hosts,
                                           uint32_t count, const ls_cut *const *cuts, uint32_t cut_count,
                                           const ls_reform_fence *fence);
ls_reform_decision __wrap_ls_reform_decide(const ls_reform_settings *settings, const ls_reform_host *hosts,
                                           uint32_t count, const ls_cut *const *cuts, uint32_t cut_count,
                                           const ls_reform_fence *fence);

ls_reform_decision __wrap_ls_reform_decide(const ls_reform_settings *settings, const ls_reform_host *hosts,
                                           uint32_t count, const ls_cut *const *cuts, uint32_t cut_count,
                                           const ls_reform_fence *fence)
{
    static ls_reform_host seen[LS_REFORM_HOSTS_MAX];
    if (!broken || count > LS_REFORM_HOSTS_MAX) {
        return __real_ls_reform_decide(settings, hosts, count, cuts, cut_count, fence);
    }
    memcpy(seen, hosts, count * sizeof *seen);
    for (uint32_t i = 0; i < count; i++) {
        if (is_broken("status-of-any-epoch")) {
            seen[i].status.parked = seen[i].status.parked || hosts[i].status.fence != fence->epoch;
            seen[i].status.fence = fence->epoch;
        }
    }
    return __real_ls_reform_decide(settings, seen, count, cuts, cut_count, fence);
}

bool seams_forget_move(const ls_cut *cut, const ls_cut *held)
{
    bool has_newcomer = false;
    for (uint32_t i = 0; i < cut->host_count; i++) {
        has_newcomer = has_newcomer || ls_reform_parts(held, cut->hosts[i].host) == 0;
    }
    return has_newcomer && is_broken("newcomer-has-state");
}
