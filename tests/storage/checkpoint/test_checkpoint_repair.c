// SPDX-License-Identifier: Apache-2.0
/*
 * Damage is found, and mended from files or memory with the same bytes: flipped bits, torn and
 * missing files; and every read made to fail.
 */
#include "storage/checkpoint/checkpoint_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

static const char *const MODEL = "model.safetensors", *const MOMENTS = "optimizer-00002-of-00002.safetensors";
static const char CONFIG[] = "{\"a\": 1}";

static const char *path_of(const fixture *f, uint64_t step, const char *name, char path[200])
{
    snprintf(path, 200, "%s/%llu%s%s", f->root, (unsigned long long)step, name[0] ? "/" : "", name);
    return path;
}

static void flip_byte(const fixture *f, uint64_t step, const char *name, uint64_t offset)
{
    char path[200];
    unsigned char byte = 0;
    const int fd = open(path_of(f, step, name, path), O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* Steps 100 and 200 with the same values: as frozen tensors have. */
static void save_twins(fixture *f)
{
    const ls_checkpoint_attachment attachment = {"config.json", CONFIG, sizeof CONFIG - 1};
    fixture_fill(f, 100);
    for (uint64_t step = 100; step <= 200; step += 100) {
        f->meta.step = step;
        ls_checkpoint_save_options options = fixture_options(f);
        options.attachments = &attachment;
        options.attachment_count = 1;
        assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK);
    }
}

static void expect_good(const fixture *f, uint64_t step)
{
    char path[200];
    ls_checkpoint *checkpoint = NULL;
    assert_int_equal(ls_checkpoint_open(path_of(f, step, "", path), &checkpoint), LS_OK);
    if (ls_checkpoint_verify(checkpoint, 0) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    ls_checkpoint_close(checkpoint);
}

/* Repairs step 200 and expects one mend, of `name` and `block`, with its bytes from step 100. */
static void expect_mended(const fixture *f, const char *name, uint64_t block)
{
    ls_arena arena = {0};
    char path[200], source[200];
    ls_checkpoint_mend *mends = NULL;
    size_t count = 0;
    if (ls_checkpoint_repair(&arena, path_of(f, 200, "", path), NULL, &mends, &count) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    assert_int_equal(count, 1);
    assert_string_equal(mends[0].file, name);
    assert_true(mends[0].block == block);
    assert_string_equal(mends[0].source, path_of(f, 100, name, source));
    expect_good(f, 200);
    assert_int_equal(ls_checkpoint_repair(&arena, path, NULL, &mends, &count), LS_OK);
    assert_int_equal(count, 0); /* nothing is left to do */
    ls_arena_release(&arena);
}

static void repair_takes_good_bytes_from_a_twin(void **state)
{
    fixture *f = *state;
    char path[200];
    save_twins(f);
    flip_byte(f, 200, MODEL, 4096 + (4 << 20) + 5);
    expect_mended(f, MODEL, 1);
    flip_byte(f, 200, MOMENTS, 4096 + 9);
    expect_mended(f, MOMENTS, 0);
    flip_byte(f, 200, MODEL, 20);
    expect_mended(f, MODEL, LS_CHECKPOINT_HEADER);
    /* torn in block 1 */
    assert_int_equal(truncate(path_of(f, 200, MODEL, path), 4096 + (4 << 20) + 100), 0);
    expect_mended(f, MODEL, 1);
    flip_byte(f, 200, "config.json", 1);
    expect_mended(f, "config.json", LS_CHECKPOINT_HEADER);
    assert_int_equal(unlink(path_of(f, 200, "config.json", path)), 0);
    expect_mended(f, "config.json", LS_CHECKPOINT_HEADER);
    expect_good(f, 100);
}

static void repair_missing_file_and_one_that_is_too_long(void **state)
{
    fixture *f = *state;
    char path[200];
    ls_arena arena = {0};
    ls_checkpoint_mend *mends = NULL;
    size_t count = 0;
    save_twins(f);
    assert_int_equal(unlink(path_of(f, 200, MODEL, path)), 0);
    assert_int_equal(ls_checkpoint_repair(&arena, path_of(f, 200, "", path), NULL, &mends, &count), LS_OK);
    assert_int_equal(count, 3); /* header and two blocks */
    expect_good(f, 200);
    assert_int_equal(truncate(path_of(f, 200, MODEL, path), 30 << 20), 0);
    assert_int_equal(ls_checkpoint_repair(&arena, path_of(f, 200, "", path), NULL, &mends, &count), LS_OK);
    expect_good(f, 200);
    ls_arena_release(&arena);
}

/* Each has what the other lacks; and when both lack the same block there is memory, or nothing. */
static void repair_both_damaged(void **state)
{
    fixture *f = *state;
    char path[200];
    ls_arena arena = {0};
    ls_checkpoint_mend *mends = NULL;
    size_t count = 0;
    save_twins(f);
    flip_byte(f, 100, MODEL, 4096 + 5);
    flip_byte(f, 200, MODEL, 4096 + (4 << 20) + 5);
    expect_mended(f, MODEL, 1);
    flip_byte(f, 200, MODEL, 4096 + 77);
    assert_int_equal(ls_checkpoint_repair(&arena, path_of(f, 200, "", path), NULL, &mends, &count),
                     LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "200/model.safetensors: block 0"));
    assert_non_null(strstr(ls_error_text(), "no good copy"));
    /* Memory of another step does not pass for it. */
    ls_checkpoint_repair_options options = {.memory = f->tensors, .memory_count = FIXTURE_TENSORS};
    fixture_fill(f, 101);
    assert_int_equal(ls_checkpoint_repair(&arena, path, &options, &mends, &count), LS_ERR_DATA);
    fixture_fill(f, 100);
    assert_int_equal(ls_checkpoint_repair(&arena, path, &options, &mends, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(mends[0].source, "memory");
    expect_good(f, 200);
    ls_arena_release(&arena);
}

/* Loading mends by itself where it can, and says so; where it can't, the older one is used. */
static void load_latest_mends_or_falls_back(void **state)
{
    fixture *f = *state;
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    save_twins(f);
    flip_byte(f, 200, MOMENTS, 4096 + 5);
    fixture_clear(f);
    assert_int_equal(
        ls_checkpoint_load_latest(&arena, f->root, "f00d", f->tensors, FIXTURE_TENSORS, NULL, &latest),
        LS_OK);
    assert_int_equal(latest.checkpoint->meta.step, 200);
    assert_int_equal(latest.skipped_count, 0);
    assert_int_equal(latest.mend_count, 1);
    fixture_expect(f, 100); /* the values of step 100, which step 200 shares */
    ls_checkpoint_close(latest.checkpoint);
    expect_good(f, 200);

    fixture_save(f, 300); /* other values: nobody has its bytes */
    flip_byte(f, 300, MOMENTS, 4096 + 5);
    assert_int_equal(
        ls_checkpoint_load_latest(&arena, f->root, "f00d", f->tensors, FIXTURE_TENSORS, NULL, &latest),
        LS_OK);
    assert_int_equal(latest.checkpoint->meta.step, 200);
    assert_int_equal(latest.skipped_count, 1);
    assert_int_equal(latest.mend_count, 0);
    assert_non_null(strstr(latest.skipped[0].problem, "block 0"));
    ls_checkpoint_close(latest.checkpoint);
    ls_arena_release(&arena);
}

/* ---- reads that fail ---- */

typedef struct faulty_reads {
    int fail_at; /* which call, from 1; 0: none */
    int error;   /* -EIO, ...; 0: a read gives half, always */
    atomic_int calls;
} faulty_reads;

static bool fails_now(faulty_reads *faulty)
{
    return atomic_fetch_add(&faulty->calls, 1) + 1 == faulty->fail_at;
}

static int faulty_open(void *context, const char *path, int flags)
{
    faulty_reads *faulty = context;
    return fails_now(faulty) && faulty->error ? faulty->error
                                              : ls_read_calls_system()->open(NULL, path, flags);
}

static int64_t faulty_read_at(void *context, int fd, void *data, size_t bytes, uint64_t offset)
{
    faulty_reads *faulty = context;
    if (fails_now(faulty) && faulty->error) {
        return faulty->error;
    }
    const size_t part = !faulty->error && bytes > 8192 ? bytes / 2 + 1 : bytes;
    const int64_t got = ls_read_calls_system()->read_at(NULL, fd, data, bytes, offset);
    return got > (int64_t)part ? (int64_t)part : got;
}

static int faulty_close(void *context, int fd)
{
    (void)context;
    return ls_read_calls_system()->close(NULL, fd);
}

static ls_read_calls calls_of(faulty_reads *faulty)
{
    return (ls_read_calls){
        .context = faulty, .open = faulty_open, .read_at = faulty_read_at, .close = faulty_close};
}

static ls_status load_faulty(fixture *f, faulty_reads *faulty, unsigned threads)
{
    char path[200];
    const ls_read_calls calls = calls_of(faulty);
    const ls_checkpoint_load_options options = {.threads = threads, .calls = &calls};
    ls_checkpoint *checkpoint = NULL;
    assert_int_equal(ls_checkpoint_open(path_of(f, 200, "", path), &checkpoint), LS_OK);
    fixture_clear(f);
    const ls_status status = ls_checkpoint_load(checkpoint, f->tensors, FIXTURE_TENSORS, &options);
    ls_checkpoint_close(checkpoint);
    return status;
}

/* EIO, a file that is gone, one that ends too early: at every call, with one thread and several. */
static void load_fails_at_every_read(void **state)
{
    fixture *f = *state;
    const int errors[] = {-EIO, -ENOENT, -EINTR};
    save_twins(f);
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        int k = 1, failed = 0;
        for (bool more = true; more; k++) {
            faulty_reads faulty = {.fail_at = k, .error = errors[e]};
            const ls_status status = load_faulty(f, &faulty, 1 + (unsigned)(k % 3));
            more = faulty.calls >= k;
            if (status == LS_OK) {
                fixture_expect(f, 100); /* never half of it */
            } else {
                failed++;
                assert_true(status == LS_ERR_IO || status == LS_ERR_NOT_FOUND);
                assert_non_null(strstr(ls_error_text(), ".safetensors"));
            }
            assert_true(k < 100);
        }
        assert_true(k > 8);
        /* A read that was only interrupted is made again; an open is told. */
        errors[e] == -EINTR ? assert_true(failed <= 4) : assert_true(failed > 8);
    }
    faulty_reads halving = {0};
    assert_int_equal(load_faulty(f, &halving, 3), LS_OK);
    fixture_expect(f, 100);
}

static void repair_with_every_read_failing_once(void **state)
{
    fixture *f = *state;
    char path[200];
    save_twins(f);
    int k = 1;
    for (bool more = true; more; k++) {
        ls_arena arena = {0};
        faulty_reads faulty = {.fail_at = k, .error = -EIO};
        const ls_read_calls calls = calls_of(&faulty);
        const ls_checkpoint_repair_options options = {.calls = &calls};
        ls_checkpoint_mend *mends = NULL;
        size_t count = 0;
        flip_byte(f, 200, MODEL, 4096 + 31);
        const ls_status status =
            ls_checkpoint_repair(&arena, path_of(f, 200, "", path), &options, &mends, &count);
        more = faulty.calls >= k;
        /* the twin could not be read just then: nothing is worse than before */
        if (status != LS_OK) {
            assert_int_equal(ls_checkpoint_repair(&arena, path, NULL, &mends, &count), LS_OK);
        }
        expect_good(f, 200);
        ls_arena_release(&arena);
        assert_true(k < 100);
    }
    assert_true(k > 10);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_create, fixture_remove)
    const struct CMUnitTest tests[] = {
        CASE(repair_takes_good_bytes_from_a_twin),
        CASE(repair_missing_file_and_one_that_is_too_long),
        CASE(repair_both_damaged),
        CASE(load_latest_mends_or_falls_back),
        CASE(load_fails_at_every_read),
        CASE(repair_with_every_read_failing_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
