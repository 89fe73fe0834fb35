// SPDX-License-Identifier: Apache-2.0
/*
 * Every disk call of a save made to fail, one after another: k = 1, 2, ... until a save passes because it has
 * fewer calls than k. After each failure the older checkpoint must be found and load, and the next save must
 * clean up.
 */
#include "storage/checkpoint_fixture.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum fault_kind {
    FAULT_ENOSPC,    /* this call fails, later ones work */
    FAULT_EIO,       /* this call fails, later ones work */
    FAULT_FULL_DISK, /* this and every later write or reservation fails */
    FAULT_READ_ONLY, /* this and every later call fails: the disk went away, nothing can be cleaned up either
                      */
    FAULT_SHORT,     /* a write does half, and the next one fails */
    FAULT_CRASH,     /* the process is gone */
    FAULT_KINDS,
} fault_kind;

typedef struct faulty_disk {
    fault_kind kind;
    int fail_at; /* which call, from 1 */
    atomic_int calls;
    bool seen; /* the fault happened */
} faulty_disk;

/* 0, or minus errno when this call is to fail. is_write: takes space. */
static int fault(void *context, bool is_write)
{
    faulty_disk *disk = context;
    const int call = atomic_fetch_add(&disk->calls, 1) + 1;
    if (call == disk->fail_at && disk->kind == FAULT_CRASH) {
        _exit(42);
    }
    if (call == disk->fail_at) {
        disk->seen |= disk->kind != FAULT_FULL_DISK && disk->kind != FAULT_SHORT;
    }
    switch (disk->kind) {
    case FAULT_ENOSPC:
        return call == disk->fail_at ? -ENOSPC : 0;
    case FAULT_EIO:
        return call == disk->fail_at ? -EIO : 0;
    case FAULT_READ_ONLY:
        return call >= disk->fail_at ? -EROFS : 0;
    case FAULT_FULL_DISK:
    case FAULT_SHORT:
        if (is_write && (disk->kind == FAULT_SHORT ? disk->seen : call >= disk->fail_at)) {
            disk->seen = true;
            return -ENOSPC;
        }
        return 0;
    default:
        return 0;
    }
}

#define FAULT_OR(is_write, call)                                                                             \
    const int error = fault(context, is_write);                                                              \
    return error ? error : ls_disk_system()->call

static int faulty_open(void *context, const char *path, int flags)
{
    FAULT_OR(false, open(NULL, path, flags));
}
static int faulty_allocate(void *context, int fd, uint64_t bytes)
{
    FAULT_OR(true, allocate(NULL, fd, bytes));
}
static int64_t faulty_write_at(void *context, int fd, const void *data, size_t bytes, uint64_t offset)
{
    faulty_disk *disk = context;
    const int error = fault(context, true);
    if (error) {
        return error;
    }
    if (disk->kind == FAULT_SHORT && atomic_load(&disk->calls) >= disk->fail_at && bytes >= 8192) {
        disk->seen = true;
        bytes = bytes / 2 / 4096 * 4096; /* what a filling disk does */
    }
    return ls_disk_system()->write_at(NULL, fd, data, bytes, offset);
}
static int faulty_truncate(void *context, int fd, uint64_t bytes)
{
    FAULT_OR(false, truncate(NULL, fd, bytes));
}
static int faulty_sync(void *context, int fd)
{
    FAULT_OR(false, sync(NULL, fd));
}
static int faulty_close(void *context, int fd)
{
    const int closed = ls_disk_system()->close(NULL, fd), error = fault(context, false);
    return error ? error : closed;
}
static int faulty_make_dir(void *context, const char *path)
{
    FAULT_OR(false, make_dir(NULL, path));
}
static int faulty_sync_dir(void *context, const char *path)
{
    FAULT_OR(false, sync_dir(NULL, path));
}
static int faulty_rename(void *context, const char *from, const char *to)
{
    FAULT_OR(false, rename(NULL, from, to));
}
static int faulty_exchange(void *context, const char *a, const char *b)
{
    FAULT_OR(false, exchange(NULL, a, b));
}
static int faulty_remove(void *context, const char *path)
{
    FAULT_OR(false, remove(NULL, path));
}

static ls_disk faulty_table(faulty_disk *disk)
{
    return (ls_disk){
        .context = disk,
        .open = faulty_open,
        .allocate = faulty_allocate,
        .write_at = faulty_write_at,
        .truncate = faulty_truncate,
        .sync = faulty_sync,
        .close = faulty_close,
        .make_dir = faulty_make_dir,
        .sync_dir = faulty_sync_dir,
        .rename = faulty_rename,
        .exchange = faulty_exchange,
        .remove = faulty_remove,
    };
}

static ls_status save_faulty(fixture *f, uint64_t step, faulty_disk *faulty, unsigned threads)
{
    const ls_disk disk = faulty_table(faulty);
    const ls_checkpoint_attachment attachment = {"config.json", "{}", 2};
    fixture_fill(f, step);
    ls_checkpoint_save_options options = fixture_options(f);
    options.attachments = &attachment;
    options.attachment_count = 1;
    options.threads = threads;
    options.disk = &disk;
    return ls_checkpoint_save(&options, NULL);
}

static size_t folder_count(const fixture *f)
{
    ls_arena arena = {0};
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(ls_dir_list(&arena, f->root, &names, &count), LS_OK);
    ls_arena_release(&arena);
    return count;
}

/* The newest checkpoint is whole, and it is the old one or the new one. Returns its step. */
static uint64_t expect_whole(fixture *f, uint64_t old_step, uint64_t new_step)
{
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    assert_int_equal(ls_checkpoint_find_latest(&arena, f->root, "f00d", UINT64_MAX, &latest), LS_OK);
    assert_non_null(latest.checkpoint);
    assert_int_equal(latest.skipped_count, 0); /* not even a damaged one is visible */
    const uint64_t step = latest.checkpoint->meta.step;
    ls_checkpoint_close(latest.checkpoint);
    ls_arena_release(&arena);
    assert_true(step == old_step || step == new_step);
    fixture_expect_latest(f, step, 0);
    return step;
}

/* Fails call k of saving step 200 beside a good step 100. False when the save has fewer calls than k. */
static bool fail_call(fixture *f, fault_kind kind, int k, unsigned threads, int *failed)
{
    faulty_disk faulty = {.kind = kind, .fail_at = k};
    const ls_status status = save_faulty(f, 200, &faulty, threads);
    if (status == LS_OK && faulty.calls < k) {
        return false;
    }
    if (status == LS_OK) {
        /* Only a fault that no write met may pass: a full disk after the last write. */
        assert_true(!faulty.seen);
        assert_int_equal(expect_whole(f, 200, 200), 200);
    } else {
        ++*failed;
        if ((status != LS_ERR_DISK && status != LS_ERR_IO) ||
            !strstr(ls_error_text(), "step 200 not saved")) {
            fail_msg("kind %d call %d: %s: %s", kind, k, ls_status_name(status), ls_error_text());
        }
        assert_int_equal(status, kind == FAULT_EIO ? LS_ERR_IO : LS_ERR_DISK);
        expect_whole(f, 100, 200);
    }
    /* Whatever is left, the next save removes it. */
    fixture_save(f, 150);
    char path[128];
    snprintf(path, sizeof path, "%s/200", f->root);
    assert_int_equal(folder_count(f), 2 + (ls_path_exists(path) ? 1 : 0));
    assert_int_equal(ls_dir_remove(path), LS_OK);
    snprintf(path, sizeof path, "%s/150", f->root);
    assert_int_equal(ls_dir_remove(path), LS_OK);
    return true;
}

static void fail_every_call(fixture *f, fault_kind kind, unsigned threads)
{
    fixture_save(f, 100);
    int k = 1, failed = 0;
    while (fail_call(f, kind, k, threads, &failed)) {
        k++;
        assert_true(k < 200);
    }
    assert_true(k > 25);     /* the table is really used: about 30 calls */
    assert_true(failed > 7); /* and its failures are noticed; of a full disk, those before the last write */
}

static void save_enospc_at_every_call(void **state)
{
    fail_every_call(*state, FAULT_ENOSPC, 1);
}
static void save_eio_at_every_call(void **state)
{
    fail_every_call(*state, FAULT_EIO, 1);
}
static void save_full_disk_from_every_call(void **state)
{
    fail_every_call(*state, FAULT_FULL_DISK, 1);
}
static void save_read_only_disk_from_every_call(void **state)
{
    fail_every_call(*state, FAULT_READ_ONLY, 1);
}
static void save_short_write_at_every_call(void **state)
{
    fail_every_call(*state, FAULT_SHORT, 1);
}
static void save_eio_at_every_call_with_threads(void **state)
{
    fail_every_call(*state, FAULT_EIO, 4);
}

/* A short write alone is no error: the rest is written and the result is whole. */
static int64_t halving_write_at(void *context, int fd, const void *data, size_t bytes, uint64_t offset)
{
    (void)context;
    const size_t half = bytes > 8192 ? bytes / 2 + 1 : bytes; /* not a multiple of a sector */
    return ls_disk_system()->write_at(NULL, fd, data, half >= 4096 ? half / 4096 * 4096 : half, offset) -
           (half > 8192 ? 1 : 0);
}

static void save_short_writes_are_continued(void **state)
{
    fixture *f = *state;
    ls_disk disk = *ls_disk_system();
    disk.write_at = halving_write_at;
    ls_checkpoint_save_options options = fixture_options(f);
    options.disk = &disk;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK);
    fixture_expect_latest(f, 100, 0);
}

/* The process dies before call k: what is on disk is the old state or the new one, never half. */
static void save_crash_at_every_call(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    bool crashed = true;
    bool was_new = false;
    for (int k = 1; crashed; k++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            faulty_disk faulty = {.kind = FAULT_CRASH, .fail_at = k};
            _exit(save_faulty(f, 200, &faulty, 1) == LS_OK ? 0 : 1);
        }
        int wait_status = 0;
        assert_int_equal(waitpid(child, &wait_status, 0), child);
        assert_true(WIFEXITED(wait_status));
        crashed = WEXITSTATUS(wait_status) == 42;
        assert_true(crashed || WEXITSTATUS(wait_status) == 0);
        was_new |= expect_whole(f, 100, 200) == 200;
        assert_true(k < 200);
    }
    assert_true(was_new);
    assert_int_equal(expect_whole(f, 200, 200), 200);
    assert_int_equal(folder_count(f), 2);
}

/* Replacing a checkpoint of the same step: at every call the one or the other is there. */
static void save_over_existing_crash_keeps_one_whole(void **state)
{
    fixture *f = *state;
    fixture_save(f, 200);
    bool crashed = true;
    for (int k = 20; crashed; k++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            faulty_disk faulty = {.kind = FAULT_CRASH, .fail_at = k};
            _exit(save_faulty(f, 200, &faulty, 1) == LS_OK ? 0 : 1);
        }
        int wait_status = 0;
        assert_int_equal(waitpid(child, &wait_status, 0), child);
        crashed = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 42;
        assert_int_equal(expect_whole(f, 200, 200), 200);
        assert_true(k < 200);
    }
}

/* Pruning dies at any call: every checkpoint is whole or gone, and the newest is there. */
static void prune_crash_at_every_call(void **state)
{
    fixture *f = *state;
    for (int k = 1; k <= 7; k++) {
        fixture_save(f, 100);
        fixture_save(f, 200);
        fixture_save(f, 300);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            faulty_disk faulty = {.kind = FAULT_CRASH, .fail_at = k};
            const ls_disk disk = faulty_table(&faulty);
            const ls_checkpoint_prune_options options = {.keep_last = 1, .disk = &disk};
            ls_arena arena = {0};
            uint64_t *removed = NULL;
            size_t count = 0;
            _exit(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count) == LS_OK && count == 2
                      ? 0
                      : 1);
        }
        int wait_status = 0;
        assert_int_equal(waitpid(child, &wait_status, 0), child);
        assert_int_equal(WEXITSTATUS(wait_status), k <= 6 ? 42 : 0); /* 3 calls for each of two */
        ls_arena arena = {0};
        ls_checkpoint_entry *entries = NULL;
        size_t count = 0;
        assert_int_equal(ls_checkpoint_list(&arena, f->root, &entries, &count), LS_OK);
        for (size_t i = 0; i < count; i++) {
            assert_null(entries[i].problem);
        }
        assert_true(count >= 1 && entries[count - 1].step == 300);
        ls_arena_release(&arena);
    }
}

/* One small block per file is enough where threads play no part; in memory, because this is thousands of
 * fsyncs. */
static int small_create(void **state)
{
    const int result = fixture_create_in(state, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    ((fixture *)*state)->tensors[0].shape[0] = 3000;
    return result;
}

#define SMALL(function) cmocka_unit_test_setup_teardown(function, small_create, fixture_remove)
#define CASE(function)  cmocka_unit_test_setup_teardown(function, fixture_create, fixture_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SMALL(save_enospc_at_every_call),
        SMALL(save_eio_at_every_call),
        SMALL(save_full_disk_from_every_call),
        SMALL(save_read_only_disk_from_every_call),
        SMALL(save_short_write_at_every_call),
        CASE(save_eio_at_every_call_with_threads),
        CASE(save_short_writes_are_continued),
        SMALL(save_crash_at_every_call),
        SMALL(save_over_existing_crash_keeps_one_whole),
        SMALL(prune_crash_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
