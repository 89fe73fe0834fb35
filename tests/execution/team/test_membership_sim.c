// SPDX-License-Identifier: Apache-2.0
/* The membership of one host in simulated worlds (membership_world.h): thousands of seeds, and
 * the named cases. */
#include "test.h"

#include "execution/team/membership_world.h"

#define CHECK(w, condition)                                                                                  \
    do {                                                                                                     \
        WORLD_CHECK(w, condition);                                                                           \
        if ((w)->wrong[0]) {                                                                                 \
            fail_msg("%s", (w)->wrong);                                                                      \
        }                                                                                                    \
    } while (0)

static void membership_survives_whatever_a_seed_draws(void **state)
{
    (void)state;
    char why[WORLD_TEXT];
    for (uint64_t seed = 1; seed <= 500; seed++) {
        if (!membership_world_run(seed, why, NULL)) {
            fail_msg("%s", why);
        }
    }
}

static void world_is_a_function_of_its_seed(void **state)
{
    (void)state;
    char why[WORLD_TEXT];
    uint64_t first = 0, second = 0, other = 0;
    assert_true(membership_world_run(9, why, &first));
    assert_true(membership_world_run(9, why, &second));
    assert_true(membership_world_run(10, why, &other));
    assert_true(first == second);
    assert_true(first != other);
}

static world *world_create(uint64_t seed, const world_settings *settings)
{
    world *w = calloc(1, sizeof *w);
    world_init(w, seed, settings);
    return w;
}

static void world_destroy(world *w)
{
    world_release(w);
    free(w);
}

/* No replacements: each loss shrinks the team, down to min_ranks; the next one ends the run
 * after a whole step. */
static void membership_shrinks_to_min_ranks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const world_settings settings = {.ranks = 4, .min_ranks = 2, .steps = 1000};
        world *w = world_create(seed, &settings);
        uint32_t alive = 4;
        world_run_until(w, WORLD_S);
        for (; alive > 1; alive--) {
            CHECK(w, w->aborts == 0 && w->running);
            world_kill_one(w, 4 - alive);
            world_run_until(w, ls_sim_now_ns(w->sim) + WORLD_S / 4);
        }
        world_run_until(w, ls_sim_now_ns(w->sim) + WORLD_S);
        CHECK(w, w->aborts == 1 && w->status == LS_ERR_RANKS_LOST && w->ended);
        CHECK(w, strstr(w->abort_text, "job.min_ranks is 2"));
        CHECK(w, w->lost == 3 && w->joined == 0 && w->recovered >= 2);
        uint64_t finished = 0;
        CHECK(w, ls_control_is_consistent(w->segment.control, &finished) && finished == w->told);
        world_destroy(w);
    }
}

/* Until `step` steps were reported to the trainer, and a little longer. */
static void pass_step(world *w, uint64_t step)
{
    while (w->told < step) {
        world_run_until(w, ls_sim_now_ns(w->sim) + 1 + ls_sim_random_u64(w->sim) % (5 * WORLD_MS));
    }
}

/* All at once, then time for what follows. */
static void kill_all(world *w, uint32_t ranks)
{
    for (uint32_t slot = 0; slot < ranks; slot++) {
        world_kill_one(w, slot);
    }
    world_run_until(w, ls_sim_now_ns(w->sim) + 10 * WORLD_S);
}

/* All at once: replacements finish the step that was interrupted. */
static void membership_finishes_the_step_when_all_are_lost(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const world_settings settings = {.ranks = 3, .min_ranks = 1, .max_replacements = 3, .steps = 60};
        world *w = world_create(seed, &settings);
        pass_step(w, 10);
        kill_all(w, settings.ranks);
        CHECK(w, w->told == 60 && w->lost == 3 && w->recovered >= 1 && w->aborts == 0);
        world_destroy(w);
    }
}

/* All at once, and none may be replaced: one more process finishes the step, so that what is
 * saved is complete, and the run ends. */
static void membership_ends_whole_when_all_are_lost(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const world_settings settings = {.ranks = 3, .min_ranks = 1, .max_replacements = 0, .steps = 60};
        world *w = world_create(seed, &settings);
        pass_step(w, 10);
        kill_all(w, settings.ranks);
        uint64_t finished = 0;
        CHECK(w, w->aborts == 1 && w->status == LS_ERR_RANKS_LOST && w->ended);
        CHECK(w, ls_control_is_consistent(w->segment.control, &finished) && finished == w->told);
        world_destroy(w);
    }
}

/* A stopped process is killed, and its part is taken over. */
static void membership_kills_who_does_not_park(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        const world_settings settings = {.ranks = 3, .min_ranks = 1, .max_replacements = 9, .steps = 400};
        world *w = world_create(seed, &settings);
        pass_step(w, 5);
        world_stop(w, 1, true);
        world_kill_one(w, 2);
        world_run_until(w, ls_sim_now_ns(w->sim) + 20 * WORLD_S);
        CHECK(w, w->told == 400 && w->lost == 2 && w->aborts == 0);
        world_destroy(w);
    }
}

static void membership_ends_when_a_leaf_kills_whoever_computes_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        const world_settings settings = {
            .ranks = 4, .min_ranks = 1, .max_replacements = 16, .steps = 20, .deadly_part = 2};
        world *w = world_create(seed, &settings);
        world_run_until(w, 10 * WORLD_S);
        CHECK(w, w->aborts == 1 && w->told == 2);
        CHECK(w,
              strstr(w->abort_text, "step 3, leaf 1 crashes every rank that computes it, 2 times in a row"));
        uint64_t finished = 0;
        CHECK(w, ls_control_is_consistent(w->segment.control, &finished) && finished == 2);
        world_destroy(w);
    }
}

/* Grown, shrunk, and one named rank leaves: no rank and no step is lost. */
static void membership_follows_requests_between_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        const world_settings settings = {.ranks = 2, .min_ranks = 1, .max_replacements = 0, .steps = 1000};
        world *w = world_create(seed, &settings);
        world_run_until(w, WORLD_S / 5);
        CHECK(w, ls_coordinator_resize(w->coordinator, 5) == LS_OK);
        world_run_until(w, WORLD_S / 2);
        CHECK(w, w->joined == 3 && w->segment.control->team.parts == 5);
        CHECK(w, ls_coordinator_leave(w->coordinator, 1) == LS_OK);
        world_run_until(w, 7 * WORLD_S / 10);
        CHECK(w,
              w->left == 1 && w->segment.control->team.parts == 4 && w->segment.control->team.holder[1] == 2);
        CHECK(w, ls_coordinator_resize(w->coordinator, 6) == LS_ERR_INVALID);
        CHECK(w, ls_coordinator_resize(w->coordinator, 0) == LS_ERR_INVALID);
        CHECK(w, ls_coordinator_resize(w->coordinator, 1) == LS_OK);
        world_run_until(w, WORLD_S);
        CHECK(w, w->left == 4 && w->segment.control->team.parts == 1 && w->lost == 0 && w->aborts == 0);
        world_destroy(w);
    }
}

/* In a team of two, one dies: the other has its part within milliseconds, and the replacement
 * joins at a step boundary. */
static void membership_replaces_a_rank(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        const world_settings settings = {.ranks = 2, .min_ranks = 1, .max_replacements = 1, .steps = 1000};
        world *w = world_create(seed, &settings);
        world_run_until(w, WORLD_S / 2 + ls_sim_random_u64(w->sim) % (10 * WORLD_MS));
        world_kill_one(w, 0);
        world_run_until(w, ls_sim_now_ns(w->sim) + 50 * WORLD_MS);
        CHECK(w, w->lost == 1 && w->recovered == 1);
        world_run_until(w, ls_sim_now_ns(w->sim) + WORLD_S / 4);
        CHECK(w, w->joined == 1 && w->segment.control->team.parts == 2);
        world_kill_one(w, 1); /* job.max_replacements is used up: the team stays smaller */
        world_run_until(w, ls_sim_now_ns(w->sim) + WORLD_S / 4);
        CHECK(w, w->joined == 1 && w->segment.control->team.parts == 1 && w->aborts == 0);
        world_destroy(w);
    }
}

/* Killed at any moment, the coordinator's successor continues with the ranks that are there:
 * none is lost, no step is left out or reported twice by the new one. */
static void membership_outlives_its_coordinator(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const world_settings settings = {
            .ranks = 3, .min_ranks = 1, .max_replacements = 0, .steps = 150, .lease_ns = WORLD_S};
        world *w = world_create(seed, &settings);
        world_run_until(w, WORLD_S / 5); /* all ranks are there */
        for (uint32_t i = 0; i < 3; i++) {
            world_run_until(w, ls_sim_now_ns(w->sim) + ls_sim_random_u64(w->sim) % (100 * WORLD_MS));
            world_kill_coordinator(w, true);
        }
        world_run_until(w, ls_sim_now_ns(w->sim) + 10 * WORLD_S);
        CHECK(w, w->told == 150 && w->lost == 0 && w->aborts == 0 && w->puppet_count == 3);
        world_destroy(w);
    }
}

/* A member of a crew dies at a chosen place of step 3, with every schedule: its replacement takes
 * its place, and the step is finished. */
static void membership_outlives_a_death_in_every_phase(void **state)
{
    (void)state;
    for (uint32_t phase = 0; phase <= CREW_PHASES + PUPPET_LEAVES; phase++) {
        uint32_t deaths = 0;
        for (uint32_t seed = 0; seed < 20; seed++) {
            world_settings settings = {.min_ranks = 1, .max_replacements = 1};
            world_draw_mesh(&settings, seed); /* ten meshes */
            settings.pipeline.micro_batches = 1 + seed / 4;
            settings.leaves = 3;
            settings.steps = 5;
            settings.deaths[0] =
                (world_death){.phase = phase, .slot = seed % settings.ranks, .nth = 1 + seed / 10, .step = 3};
            settings.deaths[1].nth = settings.deaths[2].nth = 0;
            world *w = world_create(seed, &settings);
            world_run_until(w, 20 * WORLD_S);
            CHECK(w, w->told == 5 && w->aborts == 0 && w->lost == w->deaths);
            deaths += w->deaths;
            world_destroy(w);
        }
        if (phase != CREW_PHASES + PUPPET_OPENS && phase != CREW_PHASES + PUPPET_COMPUTES) {
            assert_true(deaths >= 10); /* of those whose nth is 1, all */
        }
    }
}

static void ranks_end_when_nobody_comes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        const world_settings settings = {.ranks = 4, .min_ranks = 1, .steps = 100000, .lease_ns = WORLD_S};
        world *w = world_create(seed, &settings);
        world_run_until(w, WORLD_S / 5 + ls_sim_random_u64(w->sim) % WORLD_S);
        world_kill_coordinator(w, false);
        world_run_until(w, ls_sim_now_ns(w->sim) + WORLD_S + WORLD_S / 10);
        for (uint32_t i = 0; i < w->puppet_count; i++) {
            CHECK(w, !puppet_lives(w, i));
        }
        world_destroy(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(membership_survives_whatever_a_seed_draws),
        cmocka_unit_test(world_is_a_function_of_its_seed),
        cmocka_unit_test(membership_shrinks_to_min_ranks),
        cmocka_unit_test(membership_finishes_the_step_when_all_are_lost),
        cmocka_unit_test(membership_ends_whole_when_all_are_lost),
        cmocka_unit_test(membership_kills_who_does_not_park),
        cmocka_unit_test(membership_ends_when_a_leaf_kills_whoever_computes_it),
        cmocka_unit_test(membership_follows_requests_between_steps),
        cmocka_unit_test(membership_replaces_a_rank),
        cmocka_unit_test(membership_outlives_its_coordinator),
        cmocka_unit_test(membership_outlives_a_death_in_every_phase),
        cmocka_unit_test(ranks_end_when_nobody_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
