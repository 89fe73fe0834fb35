// SPDX-License-Identifier: Apache-2.0
/* A small cluster with a policy, for tests: jobs from a few numbers, and passes whose actions are
 * carried out at once. */
#ifndef LS_TESTS_ORCHESTRATION_POLICY_WORLD_H
#define LS_TESTS_ORCHESTRATION_POLICY_WORLD_H

#include "test.h"

#include "orchestration/policy/policy.h"

#include <string.h>

enum { MINUTE = 60000, HOUR = 60 * MINUTE };

typedef struct world {
    ls_arena arena;
    ls_policy_cluster cluster;
    ls_policy *policy;
    uint64_t now;
    const ls_action *actions;
    uint32_t count;
} world;

/* Orders that only the settings named here change: no preemption, no growth, no guards. */
static inline ls_policy_settings plain_settings(ls_policy_order order)
{
    ls_policy_settings s = ls_policy_settings_default();
    s.order = order;
    s.preempt = s.elastic = false;
    s.min_run_ms = 0;
    s.resize_pause_ms = 0;
    s.jobs_max = 64;
    s.accounts_max = 8;
    return s;
}

static inline void world_open_on(world *w, const ls_policy_cluster *cluster,
                                 const ls_policy_settings *settings)
{
    w->cluster = *cluster;
    w->now = 1000;
    assert_int_equal(ls_policy_create(&w->cluster, settings, &w->policy), LS_OK);
}

static inline void world_open(world *w, uint32_t nodes, uint16_t devices, uint32_t per_leaf,
                              const ls_policy_settings *settings)
{
    ls_policy_cluster cluster;
    *w = (world){0};
    ls_arena_init(&w->arena);
    ls_cluster_uniform(&w->arena, nodes, devices, per_leaf, 2, &cluster);
    world_open_on(w, &cluster, settings);
}

static inline void world_close(world *w)
{
    ls_policy_destroy(w->policy);
    ls_arena_release(&w->arena);
}

static inline ls_policy_job a_job(uint64_t id, uint32_t ranks)
{
    ls_policy_job job = ls_policy_job_default();
    job.id = id;
    job.ranks = job.min_ranks = job.max_ranks = ranks;
    return job;
}

static inline void submit(world *w, ls_policy_job job)
{
    job.submit_ms = job.submit_ms ? job.submit_ms : w->now;
    if (ls_policy_submit(w->policy, w->now, &job) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
}

static inline void check(world *w)
{
    if (ls_policy_check(w->policy) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
}

/* One pass at w->now; nothing is carried out. */
static inline void pass(world *w)
{
    ls_policy_pass(w->policy, w->now, &w->actions, &w->count);
    check(w);
}

static inline const ls_action *find_action(const world *w, ls_action_kind kind, uint64_t job)
{
    for (uint32_t i = 0; i < w->count; i++) {
        if (w->actions[i].kind == kind && w->actions[i].job == job) {
            return &w->actions[i];
        }
    }
    return NULL;
}

static inline bool starts(const world *w, uint64_t job)
{
    return find_action(w, LS_ACTION_START, job) != NULL;
}

static inline void end(world *w, uint64_t job)
{
    assert_int_equal(ls_policy_ended(w->policy, w->now, job, true), LS_OK);
    check(w);
}

static inline ls_why why(world *w, uint64_t job)
{
    ls_why answer;
    assert_int_equal(ls_policy_why(w->policy, w->now, job, &answer), LS_OK);
    return answer;
}

/* Three nodes of 8: one of kind a, one of kind b, and a spot node of kind a. */
static inline void world_open_kinds(world *w, const ls_policy_settings *settings)
{
    static const char *kinds[] = {"a", "b"};
    ls_policy_cluster cluster;
    ls_arena_init(&w->arena);
    ls_cluster_uniform(&w->arena, 3, 8, 0, 0, &cluster);
    cluster.kinds = kinds;
    cluster.kind_count = 2;
    cluster.nodes[1].kind = 1;
    cluster.nodes[2].spot = true;
    world_open_on(w, &cluster, settings);
}

#endif
