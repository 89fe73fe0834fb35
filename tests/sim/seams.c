// SPDX-License-Identifier: Apache-2.0
#include "seams.h"

#include "execution/elastic/host/coordinator_internal.h"
#include "execution/elastic/hosts/cluster.h"
#include "execution/team/reform.h"
#include "model/pipeline.h"

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
        if (is_broken("parts-move-in-a-crew")) {
            seen.crew = 1;
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

const ls_pipeline_work *__real_ls_pipeline_list(ls_arena *arena, const ls_pipeline *pipeline, uint32_t stage);
const ls_pipeline_work *__wrap_ls_pipeline_list(ls_arena *arena, const ls_pipeline *pipeline, uint32_t stage);

const ls_pipeline_work *__wrap_ls_pipeline_list(ls_arena *arena, const ls_pipeline *pipeline, uint32_t stage)
{
    const ls_pipeline_work *list = __real_ls_pipeline_list(arena, pipeline, stage);
    const uint32_t length = ls_pipeline_length(pipeline);
    if (!is_broken("stage-with-another-schedule") || stage == 0) {
        return list;
    }
    ls_pipeline_work *other = ls_arena_new(arena, ls_pipeline_work, length);
    for (uint32_t i = 0; i < length; i++) {
        other[i] = list[i];
        other[i].micro_batch = pipeline->micro_batches - 1 - list[i].micro_batch;
    }
    return other;
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
    ls_reform_settings used = *settings;
    used.round = is_broken("cut-in-a-round") && !fence->hard ? 0 : used.round;
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
    return __real_ls_reform_decide(&used, seen, count, cuts, cut_count, fence);
}

bool seams_forget_move(const ls_cut *cut, const ls_cut *held)
{
    bool has_newcomer = false;
    for (uint32_t i = 0; i < cut->host_count; i++) {
        has_newcomer = has_newcomer || ls_reform_parts(held, cut->hosts[i].host) == 0;
    }
    return has_newcomer && is_broken("newcomer-has-state");
}
