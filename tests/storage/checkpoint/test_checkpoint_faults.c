// SPDX-License-Identifier: Apache-2.0
/*
 * Every disk call of a save and of a removal made to fail, one after another: k = 1, 2, ... until
 * it has fewer calls than k. On the simulated disk, where also the bulk writes are counted; and
 * once with threads on a real one. After each failure the error is named, the older checkpoint is
 * found and loads, and the next save cleans up.
 */
#include "storage/checkpoint/checkpoint_sim.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CALLS_MAX = 200 };

typedef void (*plan_fault)(ls_sim *sim, ls_sim_host host, uint64_t call, int error);

/* Fails call k of saving step 200 beside a good step 100; from there on all of them when `plan`
 * says so. False when there are fewer. */
static bool fail_call(fixture *f, plan_fault plan, int error, uint64_t call, int *failed)
{
    storage_sim *w = sim_create(f, call);
    sim_save_good(w, 100);
    const uint64_t before = ls_sim_disk_calls(w->sim, w->host);
    plan(w->sim, w->host, call, error);
    assert_true(sim_save(w, 200));
    const bool reached = ls_sim_disk_calls(w->sim, w->host) - before >= call;
    if (w->status != LS_OK) {
        ++*failed;
        const ls_status named = error == EIO ? LS_ERR_IO : LS_ERR_DISK;
        if (w->status != named || !strstr(w->text, "checkpoint of step 200 not saved: ")) {
            fail_msg("error %d call %d: %s: %s", error, (int)call, ls_status_name(w->status), w->text);
        }
    }
    const bool good = w->status == LS_OK;
    ls_sim_disk_fail(w->sim, w->host, 0, 0);
    ls_sim_host_crash(w->sim, w->host); /* whatever was said must also be so after this */
    sim_expect(w, good ? 200 : 100, 200);
    const bool has_200 = sim_expect(w, 100, 200) == 200;
    sim_save_good(w, 150);
    assert_int_equal(sim_name_count(w), has_200 ? 3 : 2);
    sim_destroy(w);
    return reached;
}

static void fail_every_call(fixture *f, plan_fault plan, int error)
{
    int failed = 0;
    uint64_t call = 1;
    while (fail_call(f, plan, error, call, &failed)) {
        call++;
        assert_true(call < CALLS_MAX);
    }
    assert_true(call > 25); /* the simulated disk is really used */
    /* All are noticed, but for short writes, which are continued. */
    assert_int_equal(failed, error == LS_SIM_SHORT_WRITE ? 0 : (int)call - 1);
}

static void save_error_at_every_call(void **state)
{
    const int errors[] = {EIO, ENOSPC, EROFS, LS_SIM_SHORT_WRITE};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        fail_every_call(*state, ls_sim_disk_fail, errors[i]);
    }
}

/* The disk goes away for good: nothing can be cleaned up either, until it is back. */
static void save_error_from_every_call_on(void **state)
{
    const int errors[] = {EIO, ENOSPC, EROFS};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        fail_every_call(*state, ls_sim_disk_fail_on, errors[i]);
    }
}

/* Room for one checkpoint and a bit: each further sector of room changes which call finds the disk
 * full. */
static void save_full_disk_of_every_size(void **state)
{
    int full = 0, fits = 0;
    for (uint64_t room = 0; room < 60; room++) {
        storage_sim *w = sim_create(*state, room);
        sim_save_good(w, 100);
        ls_sim_disk_capacity(w->sim, w->host, 40000 + room * 2048);
        assert_true(sim_save(w, 200));
        full += w->status == LS_ERR_DISK;
        fits += w->status == LS_OK;
        assert_true(w->status == LS_OK || strstr(w->text, "No space left"));
        sim_expect(w, w->status == LS_OK ? 200 : 100, 200);
        ls_sim_disk_capacity(w->sim, w->host, UINT64_MAX);
        const size_t names = w->status == LS_OK ? 3 : 2;
        sim_save_good(w, 150);
        assert_int_equal(sim_name_count(w), names);
        sim_destroy(w);
    }
    assert_true(full > 5 && fits > 5);
}

/* Saving over a checkpoint of the same step: whatever fails, once or for good, one of the two is
 * there, also after the power went. */
static void save_over_existing_error_at_every_call(void **state)
{
    const plan_fault plans[] = {ls_sim_disk_fail, ls_sim_disk_fail_on};
    for (int i = 0; i < 2; i++) {
        bool reached = true;
        for (uint64_t call = 1; reached; call++) {
            storage_sim *w = sim_create(*state, call);
            sim_save_good(w, 200);
            const uint64_t before = ls_sim_disk_calls(w->sim, w->host);
            plans[i](w->sim, w->host, call, EIO);
            assert_true(sim_save(w, 200));
            reached = ls_sim_disk_calls(w->sim, w->host) - before >= call;
            ls_sim_disk_fail(w->sim, w->host, 0, 0);
            ls_sim_host_crash(w->sim, w->host);
            sim_expect(w, 200, 200);
            sim_destroy(w);
            assert_true(call < CALLS_MAX);
        }
    }
}

/* A removal that fails says so or leaves the rest to the next one; what can be read is whole. */
static void removal_error_at_every_call(void **state)
{
    bool reached = true;
    int failed = 0;
    for (uint64_t call = 1; reached; call++) {
        storage_sim *w = sim_create(*state, call);
        sim_save_good(w, 100);
        sim_save_good(w, 200);
        w->victims[0] = "100";
        w->victim_count = 1;
        const uint64_t before = ls_sim_disk_calls(w->sim, w->host);
        ls_sim_disk_fail(w->sim, w->host, call, EIO);
        assert_true(sim_do(w, sim_collect_program));
        reached = ls_sim_disk_calls(w->sim, w->host) - before >= call;
        failed += w->status == LS_ERR_IO;
        ls_sim_disk_fail(w->sim, w->host, 0, 0);
        ls_sim_host_crash(w->sim, w->host);
        sim_expect(w, 200, 200);
        sim_save_good(w, 300);
        assert_true(sim_name_count(w) <= 3);
        sim_destroy(w);
        assert_true(call < CALLS_MAX);
    }
    assert_int_equal(failed, 2); /* the rename and the sync behind it; the others are warnings */
}

/* Two savers in one root by mistake, one starting at any moment of the other: both may fail, and
 * nothing acknowledged is lost. */
static void two_savers_lose_nothing(void **state)
{
    fixture *f = *state;
    int both = 0, hurt = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        storage_sim *w = sim_create(f, seed);
        sim_save_good(w, 100);
        storage_sim other = *w;
        fixture_fill(f, 200);
        w->ended = other.ended = false;
        w->options.meta = other.options.meta = &f->meta;
        ls_sim_start(w->sim, w->host, sim_save_program, w);
        ls_sim_run(w->sim, ls_sim_now_ns(w->sim) + ls_sim_random_u64(w->sim) % (SIM_S / 8), 100000);
        ls_sim_start(w->sim, w->host, sim_save_program, &other);
        sim_settle(w);
        assert_true(w->ended && other.ended);
        const bool saved = w->status == LS_OK || other.status == LS_OK;
        both += w->status == LS_OK && other.status == LS_OK;
        hurt += w->status != LS_OK;
        if (w->status != LS_OK && !strstr(w->text, "another process") && !strstr(w->text, "No such file")) {
            fail_msg("%s", w->text);
        }
        ls_sim_host_crash(w->sim, w->host);
        sim_expect(w, saved ? 200 : 100, 200);
        sim_destroy(w);
    }
    assert_true(both > 0 && hurt > 0);
}

/* What a person put there goes with it; a file with the name of a leftover, too. */
static void removal_takes_what_is_inside(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    char path[256];
    snprintf(path, sizeof path, "%s/100/notes/old", f->root);
    assert_int_equal(ls_dir_create(path), LS_OK);
    snprintf(path, sizeof path, "%s/100/notes/old/text", f->root);
    assert_int_equal(ls_file_write_atomic(path, "x", 1), LS_OK);
    snprintf(path, sizeof path, "%s/100/empty", f->root);
    assert_int_equal(ls_dir_create(path), LS_OK);
    snprintf(path, sizeof path, "%s/5.tmp-file", f->root);
    assert_int_equal(ls_file_write_atomic(path, "x", 1), LS_OK);
    fixture_save(f, 200); /* removes leftovers */
    const ls_checkpoint_prune_options options = {.keep_last = 1};
    ls_arena arena = {0};
    uint64_t *removed = NULL;
    size_t count = 0;
    char **names = NULL;
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(ls_dir_list(&arena, f->root, &names, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(names[0], "200");
    ls_arena_release(&arena);
}

/* Pinned after it was chosen: it gets its name back; and a save over it keeps it pinned. */
static void pin_outlives_removal_and_replacement(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    fixture_save(f, 200);
    char path[128];
    snprintf(path, sizeof path, "%s/100", f->root);
    assert_int_equal(ls_checkpoint_pin(path, true), LS_OK);
    fixture_save(f, 100);
    ls_checkpoint *checkpoint = NULL;
    assert_int_equal(ls_checkpoint_open(path, &checkpoint), LS_OK);
    assert_true(checkpoint->pinned);
    ls_checkpoint_close(checkpoint);

    /* As if it had been chosen before: left by a removal that was cut short behind its claim. */
    char gone[160];
    snprintf(gone, sizeof gone, "%s/100.tmp-0123456789abcdef-gone", f->root);
    assert_int_equal(rename(path, gone), 0);
    const ls_checkpoint_prune_options options = {.keep_last = 1};
    ls_arena arena = {0};
    uint64_t *removed = NULL;
    size_t count = 9;
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_arena_release(&arena);
    assert_int_equal(ls_checkpoint_open(path, &checkpoint), LS_OK);
    assert_true(checkpoint->pinned);
    ls_checkpoint_close(checkpoint);
}

/* ---- a real disk, with threads ---- */

static ls_env_calls faulty_calls;
static int64_t (*real_write_now)(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset);
static atomic_int writes_left; /* until one fails */

static int64_t faulty_write_now(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset)
{
    return atomic_fetch_sub(&writes_left, 1) == 1 ? -EIO : real_write_now(env, file, data, bytes, offset);
}

/* Half of it, and a byte less: not a multiple of a sector. */
static int64_t halving_write_now(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset)
{
    const int64_t wrote = real_write_now(env, file, data, bytes > 8192 ? bytes / 8192 * 4096 : bytes, offset);
    return wrote > 8192 ? wrote - 1 : wrote;
}

typedef struct real_save {
    ls_env *env;
    ls_status status;
} real_save;

static void real_saved(void *context, ls_status status, const ls_checkpoint_saved *saved)
{
    (void)saved;
    real_save *self = context;
    self->status = status;
    ls_env_stop(self->env, 0);
}

static ls_status save_with(fixture *f, uint64_t step,
                           int64_t (*write_now)(ls_env *, int64_t, const void *, size_t, uint64_t))
{
    ls_arena arena = {0};
    real_save self = {0};
    fixture_fill(f, step);
    ls_checkpoint_save_options options = fixture_options(f);
    options.threads = 4;
    assert_int_equal(ls_dir_create(f->root), LS_OK);
    assert_int_equal(ls_env_real_create(&self.env), LS_OK);
    faulty_calls = *self.env->calls;
    real_write_now = faulty_calls.disk_write_now;
    faulty_calls.disk_write_now = write_now;
    self.env->calls = &faulty_calls;
    assert_int_equal(ls_checkpoint_save_start(self.env, &arena, &options, real_saved, &self), LS_OK);
    ls_env_run(self.env);
    ls_env_real_destroy(self.env);
    ls_arena_release(&arena);
    return self.status;
}

static void save_eio_at_every_write_with_threads(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    ls_status status = LS_ERR_IO;
    int call = 0;
    while (status == LS_ERR_IO) {
        atomic_store(&writes_left, ++call);
        status = save_with(f, 200, faulty_write_now);
        fixture_expect_latest(f, status == LS_OK ? 200 : 100, 0);
        assert_true(call < CALLS_MAX);
    }
    assert_int_equal(status, LS_OK);
    assert_true(call > 5); /* two headers, and blocks of two files */
}

static void save_short_writes_are_continued(void **state)
{
    fixture *f = *state;
    assert_int_equal(save_with(f, 100, halving_write_now), LS_OK);
    fixture_expect_latest(f, 100, 0);
}

/* The process dies at any moment: what is on disk is the old state or the new one, never half. */
static void save_killed_keeps_one_whole(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    for (useconds_t delay_us = 0; delay_us < 30000; delay_us += 1500) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            fixture_save(f, 200);
            _exit(0);
        }
        usleep(delay_us);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        ls_arena arena = {0};
        ls_checkpoint_latest latest = {0};
        assert_int_equal(ls_checkpoint_find_latest(&arena, f->root, "f00d", UINT64_MAX, &latest), LS_OK);
        assert_non_null(latest.checkpoint);
        const uint64_t step = latest.checkpoint->meta.step;
        assert_true(step == 100 || step == 200);
        ls_checkpoint_close(latest.checkpoint);
        ls_arena_release(&arena);
        fixture_expect_latest(f, step, 0);
    }
}

/* Checkpoints come and go while a reader looks for the newest: it always gets a whole one, and
 * never an older one than before. */
static void load_latest_beside_saves_and_prunes(void **state)
{
    fixture *f = *state;
    fixture_save(f, 1);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (uint64_t step = 2; step <= 60; step++) {
            const ls_checkpoint_prune_options options = {.keep_last = 1};
            ls_arena arena = {0};
            uint64_t *removed = NULL;
            size_t count = 0;
            fixture_save(f, step);
            assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
            ls_arena_release(&arena);
        }
        _exit(0);
    }
    uint64_t newest = 1;
    for (int ended = 0; !ended; ended = waitpid(child, NULL, WNOHANG) == child) {
        ls_arena arena = {0};
        ls_checkpoint_latest latest = {0};
        fixture_clear(f);
        assert_int_equal(
            ls_checkpoint_load_latest(&arena, f->root, "f00d", f->tensors, FIXTURE_TENSORS, NULL, &latest),
            LS_OK);
        assert_non_null(latest.checkpoint);
        assert_true(latest.checkpoint->meta.step >= newest);
        newest = latest.checkpoint->meta.step;
        fixture_expect(f, newest);
        ls_checkpoint_close(latest.checkpoint);
        ls_arena_release(&arena);
    }
    fixture_expect_latest(f, 60, 0);
}

#define SMALL(function) cmocka_unit_test_setup_teardown(function, sim_fixture_create, fixture_remove)
#define CASE(function)  cmocka_unit_test_setup_teardown(function, fixture_create, fixture_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SMALL(save_error_at_every_call),
        SMALL(save_error_from_every_call_on),
        SMALL(save_full_disk_of_every_size),
        SMALL(save_over_existing_error_at_every_call),
        SMALL(removal_error_at_every_call),
        SMALL(two_savers_lose_nothing),
        SMALL(removal_takes_what_is_inside),
        SMALL(pin_outlives_removal_and_replacement),
        CASE(save_eio_at_every_write_with_threads),
        CASE(save_short_writes_are_continued),
        SMALL(save_killed_keeps_one_whole),
        SMALL(load_latest_beside_saves_and_prunes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
