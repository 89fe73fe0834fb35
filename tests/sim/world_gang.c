// SPDX-License-Identifier: Apache-2.0
/*
 * The membership of one host: the world of tests/execution/membership_world.h, where its rules are written down, with the program broken on
 * purpose at the seams between its parts (the linker's --wrap; the program itself has no switch for it).
 */
#include "careless.h"
#include "worlds.h"

#include "execution/membership_world.h"

static const char *broken; /* the mutation, while a world of this kind runs */

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
            seen.place[i].parked = true;
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

/* ---- the world ---- */

static void run_world(sim_run *run)
{
    char why[WORLD_TEXT] = "";
    broken = run->mutation;
    const bool good = membership_world_run(run->seed, why, NULL);
    broken = NULL;
    if (!good) {
        sim_fail(run, "%s", why);
    }
}

static const sim_mutation mutations[] = {
    {"team-before-parked", "a team is published while ranks may still act in the old one"},
    {"recover-on-events", "who dies behind a fence that stands already is overlooked"},
    {"soft-fence-for-a-death", "survivors of a death are asked to park behind the step, not in it"},
    {"team-before-log", "a team is published before its epoch is durable"},
};

const sim_world sim_world_gang = {
    .name = "gang",
    .text = "the membership of one host: deaths, stopped processes, late ones, resizes, power cuts, a bad "
            "disk under the log",
    .run = run_world,
    .weight = 4,
    .mutations = mutations,
    .mutation_count = sizeof mutations / sizeof mutations[0],
};
