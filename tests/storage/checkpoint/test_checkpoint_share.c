// SPDX-License-Identifier: Apache-2.0
/*
 * Frozen tensors are stored once: their file is linked from checkpoint to checkpoint, stays while
 * one of them has it, is never linked when it is damaged, and is written where links can't be.
 * Every disk call of such a save fails once, and the power goes once at each.
 */
#include "storage/checkpoint/checkpoint_sim.h"

#include <fcntl.h>
#include <sys/stat.h>

#define FROZEN_FILE "model-00002-of-00002.safetensors"

static fixture *frozen_fixture(void **state)
{
    fixture *f = *state;
    f->tensors[2].frozen = true;
    return f;
}

static struct stat stat_of(const fixture *f, uint64_t step)
{
    struct stat info;
    char path[256];
    snprintf(path, sizeof path, "%s/%llu/" FROZEN_FILE, f->root, (unsigned long long)step);
    if (stat(path, &info) != 0) {
        fail_msg("no %s", path);
    }
    return info;
}

static void expect_good(const fixture *f, uint64_t step)
{
    char path[256];
    ls_checkpoint *checkpoint = NULL;
    snprintf(path, sizeof path, "%s/%llu", f->root, (unsigned long long)step);
    if (ls_checkpoint_open(path, &checkpoint) != LS_OK || ls_checkpoint_verify(checkpoint, 2) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    ls_checkpoint_close(checkpoint);
}

static void flip_byte(const fixture *f, uint64_t step, off_t offset)
{
    char path[256];
    unsigned char byte = 0;
    snprintf(path, sizeof path, "%s/%llu/" FROZEN_FILE, f->root, (unsigned long long)step);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static ls_checkpoint_saved save_real(fixture *f, uint64_t step)
{
    ls_checkpoint_saved saved = {0};
    fixture_fill(f, step);
    const ls_checkpoint_save_options options = fixture_options(f);
    if (ls_checkpoint_save(&options, &saved) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return saved;
}

/* ---- on a real disk ---- */

static void share_one_file_lasts_as_long_as_its_last_checkpoint(void **state)
{
    fixture *f = frozen_fixture(state);
    assert_int_equal(save_real(f, 100).linked_bytes, 0);
    for (uint64_t step = 200; step <= 400; step += 100) {
        const uint64_t linked = save_real(f, step).linked_bytes;
        assert_int_equal(linked, stat_of(f, step).st_size);
        assert_int_equal(stat_of(f, step).st_ino, stat_of(f, 100).st_ino);
    }
    assert_int_equal(stat_of(f, 100).st_nlink, 4);
    ls_arena arena = {0};
    uint64_t *removed = NULL;
    size_t count = 0;
    const ls_checkpoint_prune_options prune = {.keep_last = 1};
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &prune, &removed, &count), LS_OK);
    assert_int_equal(count, 3);
    ls_arena_release(&arena);
    assert_int_equal(stat_of(f, 400).st_nlink, 1);
    expect_good(f, 400);
    fixture_expect_latest(f, 400, 0);
    assert_true(save_real(f, 500).linked_bytes > 0);
    assert_true(save_real(f, 500).linked_bytes > 0); /* in place of itself */
    expect_good(f, 500);
}

static void share_damaged_file_is_written_anew_and_mends_the_older_one(void **state)
{
    fixture *f = frozen_fixture(state);
    save_real(f, 100);
    save_real(f, 200);
    flip_byte(f, 100, 4096 + 5); /* both of them: it is one file */
    assert_int_equal(save_real(f, 300).linked_bytes, 0);
    assert_int_not_equal(stat_of(f, 300).st_ino, stat_of(f, 200).st_ino);
    expect_good(f, 300);
    assert_int_equal(stat_of(f, 300).st_size, save_real(f, 400).linked_bytes);

    char path[256];
    ls_arena arena = {0};
    ls_checkpoint_mend *mends = NULL;
    size_t count = 0;
    snprintf(path, sizeof path, "%s/100", f->root);
    assert_int_equal(ls_checkpoint_repair(&arena, path, NULL, &mends, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(mends[0].file, FROZEN_FILE);
    ls_arena_release(&arena);
    expect_good(f, 100);
    assert_int_equal(stat_of(f, 200).st_nlink, 1); /* mended under its own name alone */
}

/* A header that differs, one that is cut off, one that is longer: each is written anew. */
static void share_needs_every_byte_and_the_end(void **state)
{
    fixture *f = frozen_fixture(state);
    char path[256];
    for (int kind = 0; kind < 3; kind++) {
        assert_int_equal(ls_dir_remove(f->root), LS_OK);
        save_real(f, 100);
        const off_t bytes = stat_of(f, 100).st_size;
        snprintf(path, sizeof path, "%s/100/" FROZEN_FILE, f->root);
        if (kind == 0) {
            flip_byte(f, 100, 40);
        } else {
            assert_int_equal(truncate(path, kind == 1 ? bytes - 3 : bytes + 1), 0);
        }
        assert_int_equal(save_real(f, 200).linked_bytes, 0);
        expect_good(f, 200);
    }
}

static void share_changed_values_are_never_linked(void **state)
{
    fixture *f = frozen_fixture(state);
    save_real(f, 100);
    fixture_fill(f, 200);
    f->tensors[2].value[3] += 1.0f;
    ls_checkpoint_saved saved;
    const ls_checkpoint_save_options options = fixture_options(f);
    assert_int_equal(ls_checkpoint_save(&options, &saved), LS_OK);
    assert_int_equal(saved.linked_bytes, 0);
    expect_good(f, 200);
}

static void share_refuses_moments_of_what_is_frozen(void **state)
{
    fixture *f = *state;
    f->tensors[1].frozen = true;
    const ls_checkpoint_save_options options = fixture_options(f);
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_ERR_INVALID);
}

/* ---- many tensors: frozen ones between the others, in several files, across blocks ---- */

enum { MANY = 24 };

static void fill_many(ls_checkpoint_tensor *tensors, char (*names)[16], float *values, uint64_t each,
                      bool bf16)
{
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "t%02d", i);
        const bool frozen = i % 3 == 1;
        float *at = values + 3 * each * (uint64_t)i;
        tensors[i] = (ls_checkpoint_tensor){.name = names[i],
                                            .rank = 1,
                                            .shape = {each - (uint64_t)i * 5},
                                            .value = at,
                                            .m = frozen || bf16 ? NULL : at + each,
                                            .v = frozen || bf16 ? NULL : at + 2 * each,
                                            .frozen = frozen};
    }
}

static void save_many(const fixture *f, bool bf16, uint64_t file_bytes_max)
{
    enum { EACH = 260011 }; /* more than a quarter of a block */
    static char names[MANY][16];
    ls_checkpoint_tensor tensors[MANY];
    float *values = calloc((size_t)3 * EACH * MANY, sizeof *values);
    char hash[LS_SHA256_HEX_BYTES], found[LS_SHA256_HEX_BYTES], path[256];
    fill_many(tensors, names, values, EACH, bf16);
    for (uint64_t step = 1; step <= 2; step++) {
        for (int i = 0; i < MANY; i++) {
            for (uint64_t k = 0; k < 3 * EACH; k++) { /* exact in bfloat16 */
                values[(uint64_t)i * 3 * EACH + k] =
                    (float)(int)((k + (uint64_t)i + (tensors[i].frozen ? 0 : step)) % 251);
            }
        }
        ls_checkpoint_meta meta = f->meta;
        meta.step = step;
        const ls_checkpoint_save_options options = {.root = f->root,
                                                    .meta = &meta,
                                                    .tensors = tensors,
                                                    .tensor_count = MANY,
                                                    .bf16_values = bf16,
                                                    .file_bytes_max = file_bytes_max};
        ls_checkpoint_saved saved;
        assert_int_equal(ls_checkpoint_save(&options, &saved), LS_OK);
        assert_true(step == 1 ? saved.linked_bytes == 0
                              : saved.linked_bytes > (uint64_t)EACH * (MANY / 3) * (bf16 ? 2 : 4) * 9 / 10);
        assert_int_equal(ls_state_hash(tensors, MANY, step, NULL, hash), LS_OK);
        snprintf(path, sizeof path, "%s/%d", f->root, (int)step);
        ls_checkpoint *checkpoint = NULL;
        assert_int_equal(ls_checkpoint_open(path, &checkpoint), LS_OK);
        assert_int_equal(ls_checkpoint_verify(checkpoint, 3), LS_OK);
        assert_int_equal(ls_checkpoint_state_hash(checkpoint, found), LS_OK);
        assert_string_equal(found, hash);
        memset(values, 0, (size_t)3 * EACH * MANY * sizeof *values);
        assert_int_equal(ls_checkpoint_load(checkpoint, tensors, MANY, NULL), LS_OK);
        assert_int_equal(ls_state_hash(tensors, MANY, step, NULL, found), LS_OK);
        assert_string_equal(found, hash);
        ls_checkpoint_close(checkpoint);
    }
    free(values);
    assert_int_equal(ls_dir_remove(f->root), LS_OK);
}

static void share_frozen_tensors_between_the_others_load_and_hash(void **state)
{
    const fixture *f = *state;
    save_many(f, false, 0);
    save_many(f, false, 3 << 20);
    save_many(f, true, 0);
    save_many(f, true, 2 << 20);
}

/* ---- on a simulated disk ---- */

typedef void (*plan_fault)(ls_sim *sim, ls_sim_host host, uint64_t call, int error);

/* As test_checkpoint_faults.c does; but what fails while a file is looked for or linked costs the
 * link, not the save. */
static bool fail_call(fixture *f, plan_fault plan, int error, uint64_t call, int *survived)
{
    storage_sim *w = sim_create(f, call);
    sim_save_good(w, 100);
    const uint64_t before = ls_sim_disk_calls(w->sim, w->host);
    plan(w->sim, w->host, call, error);
    assert_true(sim_save(w, 200));
    const bool reached = ls_sim_disk_calls(w->sim, w->host) - before >= call;
    const bool good = w->status == LS_OK;
    *survived += good;
    ls_sim_disk_fail(w->sim, w->host, 0, 0);
    ls_sim_host_crash(w->sim, w->host);
    sim_expect(w, good ? 200 : 100, 200);
    sim_save_good(w, 250);
    ls_sim_host_crash(w->sim, w->host);
    sim_expect(w, 250, 250);
    sim_destroy(w);
    return reached;
}

static void share_error_at_every_call_costs_at_most_the_save(void **state)
{
    fixture *f = frozen_fixture(state);
    const int errors[] = {EIO, ENOSPC};
    const plan_fault plans[] = {ls_sim_disk_fail, ls_sim_disk_fail_on};
    for (size_t i = 0; i < 2; i++) {
        for (size_t p = 0; p < 2; p++) {
            int survived = 0;
            uint64_t call = 1;
            while (fail_call(f, plans[p], errors[i], call, &survived)) {
                assert_true(++call < 200);
            }
            /* The last save meets no error; looking, opening, reading and linking are survived when
             * only they fail. */
            assert_true(p == 0 ? survived >= 5 : survived == 1);
        }
    }
}

static void share_power_cut_at_every_call_leaves_whole_checkpoints(void **state)
{
    fixture *f = frozen_fixture(state);
    bool reached = true;
    for (uint64_t call = 1; reached; call++) {
        storage_sim *w = sim_create(f, call);
        sim_save_good(w, 100);
        ls_sim_disk_fail(w->sim, w->host, call, LS_SIM_POWER_CUT);
        reached = !sim_save(w, 200);
        ls_sim_disk_fail(w->sim, w->host, 0, 0);
        sim_expect(w, 100, 200);
        sim_save_good(w, 300);
        ls_sim_host_crash(w->sim, w->host);
        sim_expect(w, 300, 300);
        sim_destroy(w);
        assert_true(call < 200);
    }
}

static uint64_t used_by_two_saves(fixture *f, const ls_env_calls *calls)
{
    storage_sim *w = sim_create(f, 1);
    sim_save_good(w, 100);
    const uint64_t one = ls_sim_disk_used(w->sim, w->host);
    w->calls = calls;
    sim_save_good(w, 200);
    const uint64_t more = ls_sim_disk_used(w->sim, w->host) - one;
    sim_expect(w, 200, 200);
    sim_destroy(w);
    return more;
}

static ls_env_calls refusing;

static void refuse_link(ls_env *env, const char *from, const char *to, ls_env_done done, void *context)
{
    (void)from;
    (void)to;
    const char *missing = "run/none";
    refusing.disk_unlink(env, missing, done, context); /* an error, later, that changes nothing */
}

static void take_calls(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    refusing = *env->calls;
    *(bool *)context = true;
}

/* A file system without links, or a prune that was faster: the file is copied. */
static void share_without_links_is_written_each_time(void **state)
{
    fixture *f = frozen_fixture(state);
    bool taken = false;
    storage_sim *w = sim_create(f, 1);
    ls_sim_start(w->sim, w->host, take_calls, &taken);
    sim_settle(w);
    sim_destroy(w);
    assert_true(taken);
    const uint64_t linked = used_by_two_saves(f, NULL);
    refusing.disk_link = refuse_link;
    const uint64_t copied = used_by_two_saves(f, &refusing);
    assert_true(copied - linked >= 4096); /* its header alone */
}

int main(void)
{
#define CASE(name, setup) cmocka_unit_test_setup_teardown(name, setup, fixture_remove)
    const struct CMUnitTest tests[] = {
        CASE(share_one_file_lasts_as_long_as_its_last_checkpoint, fixture_create),
        CASE(share_damaged_file_is_written_anew_and_mends_the_older_one, fixture_create),
        CASE(share_needs_every_byte_and_the_end, fixture_create),
        CASE(share_changed_values_are_never_linked, fixture_create),
        CASE(share_refuses_moments_of_what_is_frozen, fixture_create),
        CASE(share_frozen_tensors_between_the_others_load_and_hash, fixture_create),
        CASE(share_error_at_every_call_costs_at_most_the_save, sim_fixture_create),
        CASE(share_power_cut_at_every_call_leaves_whole_checkpoints, sim_fixture_create),
        CASE(share_without_links_is_written_each_time, sim_fixture_create),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
