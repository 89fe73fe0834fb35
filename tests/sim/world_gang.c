// SPDX-License-Identifier: Apache-2.0
/* The membership of one host: the world of tests/execution/team/membership_world.h, which lists
 * its rules, with the program broken on purpose at the seams between its parts (the linker's
 * --wrap; the program itself has no switch for it). */
#include "seams.h"
#include "worlds.h"

#include "execution/team/membership_world.h"

static void run_world(sim_run *run)
{
    char why[WORLD_TEXT] = "";
    seams_break(run->mutation);
    const bool good = membership_world_run(run->seed, why, NULL);
    seams_break(NULL);
    if (!good) {
        sim_fail(run, "%s", why);
    }
}

static const sim_mutation mutations[] = {
    {"team-before-parked", "a team is published while ranks may still act in the old one"},
    {"recover-on-events", "who dies behind a fence that stands already is overlooked"},
    {"soft-fence-for-a-death", "survivors of a death are asked to park behind the step, not in it"},
    {"parts-move-in-a-crew", "another member of a crew gets the part of the one that died"},
    {"stage-with-another-schedule", "stages compute the micro-batches in another order than the first one"},
    {"team-before-log", "a team is published before its epoch is durable"},
};

const sim_world sim_world_gang = {
    .name = "gang",
    .text = "the membership of one host, with crews and their schedules: deaths in every phase, stopped "
            "processes, late ones, resizes, power cuts, a bad disk under the log",
    .run = run_world,
    .weight = 4,
    .mutations = mutations,
    .mutation_count = sizeof mutations / sizeof mutations[0],
};
