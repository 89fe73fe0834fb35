// SPDX-License-Identifier: Apache-2.0
/*
 * Power loss at every disk call of a save, of a save over an older checkpoint of the same step, and
 * of a removal, on a disk that keeps of unsynced data and names what it likes. The real loader must
 * find every acknowledged checkpoint whole.
 */
#include "storage/checkpoint/checkpoint_sim.h"

enum { SEEDS = 12, CALLS_MAX = 200 };

static void save_power_loss_at_every_call_leaves_one_whole(void **state)
{
    int old_count = 0, new_count = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool cut = true;
        for (uint64_t call = 1; cut; call++) {
            storage_sim *w = sim_create(*state, seed * 1000 + call);
            sim_save_good(w, 100);
            ls_sim_disk_fail(w->sim, w->host, call, LS_SIM_POWER_CUT);
            cut = !sim_save(w, 200);
            ls_sim_host_crash(w->sim, w->host);
            assert_true(cut || w->status == LS_OK);
            const uint64_t step = sim_expect(w, cut ? 100 : 200, 200);
            old_count += step == 100;
            new_count += step == 200;
            ls_sim_disk_fail(w->sim, w->host, 0, 0);
            sim_save_good(w, 300); /* and nothing is left lying about */
            assert_int_equal(sim_name_count(w), step == 200 ? 3 : 2);
            sim_destroy(w);
            assert_true(call < CALLS_MAX);
        }
    }
    assert_true(old_count > 20 * SEEDS);
    /* also some where the rename survived although nobody was told */
    assert_true(new_count > SEEDS);
}

/* The first one: the root itself is new. */
static void save_first_acknowledged_survives_power_loss(void **state)
{
    for (uint64_t seed = 1; seed <= 5 * SEEDS; seed++) {
        storage_sim *w = sim_create(*state, seed);
        sim_save_good(w, 100);
        ls_sim_host_crash(w->sim, w->host);
        sim_expect(w, 100, 100);
        sim_destroy(w);
    }
}

static void save_over_existing_power_loss_keeps_one_whole(void **state)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool cut = true;
        for (uint64_t call = 20; cut; call++) {
            storage_sim *w = sim_create(*state, seed * 1000 + call);
            sim_save_good(w, 200);
            ls_sim_disk_fail(w->sim, w->host, call, LS_SIM_POWER_CUT);
            cut = !sim_save(w, 200);
            ls_sim_host_crash(w->sim, w->host);
            sim_expect(w, 200, 200);
            sim_destroy(w);
            assert_true(call < CALLS_MAX);
        }
    }
}

/* Two older ones go; each is whole or gone, and the newest stays. */
static void removal_power_loss_at_every_call_leaves_whole_or_nothing(void **state)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool cut = true;
        for (uint64_t call = 1; cut; call++) {
            storage_sim *w = sim_create(*state, seed * 1000 + call);
            sim_save_good(w, 100);
            sim_save_good(w, 200);
            sim_save_good(w, 300);
            w->victims[0] = "100";
            w->victims[1] = "200";
            w->victim_count = 2;
            ls_sim_disk_fail(w->sim, w->host, call, LS_SIM_POWER_CUT);
            cut = !sim_do(w, sim_collect_program);
            ls_sim_host_crash(w->sim, w->host);
            sim_expect(w, 300, 300);
            sim_destroy(w);
            assert_true(call < CALLS_MAX);
        }
    }
}

/* ---- the test of the test: a disk where one kind of promise is not kept ---- */

static bool without_files, without_inner, without_root, without_parent;
static ls_env_calls lying_calls;
static void (*honest_sync)(ls_env *, int64_t, ls_env_done, void *);
static void (*honest_sync_dir)(ls_env *, const char *, ls_env_done, void *);

static void lie_sync(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    static char nothing;
    if (without_files) {
        /* completes with 0, makes nothing durable */
        ls_env_disk_read(env, file, &nothing, 0, 0, done, context);
        return;
    }
    honest_sync(env, file, done, context);
}

static void lie_sync_dir(ls_env *env, const char *path, ls_env_done done, void *context)
{
    const bool is_root = strcmp(path, SIM_ROOT) == 0, is_parent = strcmp(path, "run") == 0;
    if (is_root ? without_root : is_parent ? without_parent : without_inner) {
        ls_env_disk_rename(env, path, path, done, context); /* onto itself: nothing */
        return;
    }
    honest_sync_dir(env, path, done, context);
}

static void keep_calls_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    (void)context;
    lying_calls = *env->calls;
    honest_sync = lying_calls.disk_sync;
    honest_sync_dir = lying_calls.disk_sync_dir;
    lying_calls.disk_sync = lie_sync;
    lying_calls.disk_sync_dir = lie_sync_dir;
}

static int count_losses(fixture *f)
{
    int losses = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        storage_sim *w = sim_create(f, seed);
        ls_sim_start(w->sim, w->host, keep_calls_program, w);
        w->calls = &lying_calls;
        sim_save_good(w, 200);
        ls_sim_host_crash(w->sim, w->host);
        size_t skipped = 0;
        losses += sim_load(w, &skipped) != 200 || skipped > 0;
        sim_destroy(w);
    }
    return losses;
}

static void save_without_a_sync_is_noticed(void **state)
{
    assert_int_equal(count_losses(*state), 0);
    bool *const switches[] = {&without_files, &without_inner, &without_root, &without_parent};
    for (size_t i = 0; i < 4; i++) {
        *switches[i] = true;
        assert_true(count_losses(*state) > 0);
        *switches[i] = false;
    }
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, sim_fixture_create, fixture_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(save_power_loss_at_every_call_leaves_one_whole),
        CASE(save_first_acknowledged_survives_power_loss),
        CASE(save_over_existing_power_loss_keeps_one_whole),
        CASE(removal_power_loss_at_every_call_leaves_whole_or_nothing),
        CASE(save_without_a_sync_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
