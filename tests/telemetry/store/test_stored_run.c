// SPDX-License-Identifier: Apache-2.0
/* Store files that are torn at any byte, damaged, of another run, on a full disk, or held by another. */
#include "test.h"

#include "base/file.h"
#include "telemetry/store/stored_run.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 60000, SLICE_BYTES = 256 * 1024 };

static char folder[64], path[128];

/* About 6 MB of lines; every 100th has one more metric. */
static void make_lines(ls_text *text, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        ls_text_printf(text,
                       "{\"step\": %" PRIu64 ", \"loss\": %.6f, \"lr\": 0.001, \"speed\": %" PRIu64
                       ", \"pad\": \"%060d\"",
                       i, 1.0 / (double)(i + 1), i % 977, 0);
        ls_text_append(text, i % 100 == 0 ? ", \"val_loss\": 2.5}\n" : "}\n");
    }
}

/* Reads all of `text` into the run, as a server does. */
static void read_all(ls_stored_run *run, const ls_text *text)
{
    for (;;) {
        ls_feed *feed = ls_stored_run_feed(run, "metrics.jsonl");
        const uint64_t from = ls_feed_from(feed);
        const size_t left = text->bytes > from ? text->bytes - (size_t)from : 0;
        const size_t part = left < SLICE_BYTES ? left : SLICE_BYTES;
        const ls_feed_next next =
            ls_feed_take(feed, &run->data, from, text->data + (left > 0 ? from : 0), part, SLICE_BYTES);
        if (next == LS_FEED_REWOUND) {
            ls_stored_run_clear(run);
        }
        ls_stored_run_keep(run);
        if (next == LS_FEED_END) {
            return;
        }
    }
}

static void check_all(const ls_stored_run *run, uint64_t lines)
{
    const ls_series *loss = ls_run_metrics_find(&run->data, "loss");
    assert_non_null(loss);
    assert_int_equal(loss->points, lines);
    assert_int_equal(loss->last.step, lines - 1);
    assert_int_equal(ls_run_metrics_find(&run->data, "val_loss")->points, (lines + 99) / 100);
    assert_int_equal(run->data.cut, 0);
    ls_steps_span span;
    ls_series_columns(loss, 0, lines - 1, lines, &span);
    assert_int_equal(span.count, lines);
    assert_true(span.high == 1.0);
}

static size_t size_of(const char *of)
{
    struct stat info = {0};
    return stat(of, &info) == 0 ? (size_t)info.st_size : 0;
}

static void stored_run_is_there_after_a_restart(void **state)
{
    (void)state;
    ls_text text = {0};
    make_lines(&text, 0, LINES);
    ls_stored_run run = {0};
    ls_stored_run_open(&run, path, "a run");
    read_all(&run, &text);
    check_all(&run, LINES);
    ls_stored_run_release(&run); /* as a kill does: nothing more is written */
    ls_stored_run_open(&run, path, "a run");
    assert_true(ls_run_metrics_find(&run.data, "loss")->points > LINES / 2);
    assert_true(run.files[0].feed.offset > text.bytes / 2);
    make_lines(&text, LINES, 2 * LINES); /* it has grown meanwhile */
    read_all(&run, &text);
    check_all(&run, 2 * LINES);
    ls_stored_run_release(&run);
    /* Another run's file is not taken. */
    ls_stored_run_open(&run, path, "another run");
    assert_int_equal(run.data.count, 0);
    ls_stored_run_release(&run);
    unlink(path);
    ls_text_release(&text);
}

/* Power fails, or the process is killed, at any byte of the file. */
static void stored_run_is_whole_wherever_its_file_ends(void **state)
{
    (void)state;
    ls_text text = {0};
    make_lines(&text, 0, LINES);
    ls_stored_run run = {0};
    ls_stored_run_open(&run, path, "a run");
    read_all(&run, &text);
    ls_stored_run_release(&run);
    const size_t bytes = size_of(path);
    assert_true(bytes > 100000);
    for (size_t end = bytes; end > 0; end = end > bytes / 23 ? end - bytes / 23 : 0) {
        assert_int_equal(truncate(path, (off_t)end), 0);
        ls_stored_run_open(&run, path, "a run");
        read_all(&run, &text);
        check_all(&run, LINES);
        ls_stored_run_release(&run);
    }
    unlink(path);
    ls_text_release(&text);
}

static void stored_run_that_is_damaged_is_made_anew(void **state)
{
    (void)state;
    ls_text text = {0};
    make_lines(&text, 0, LINES);
    ls_stored_run run = {0};
    for (size_t at = 3; at < 200000; at = 2 * at + 1) {
        ls_stored_run_open(&run, path, "a run");
        read_all(&run, &text);
        ls_stored_run_release(&run);
        const int fd = open(path, O_WRONLY);
        assert_true(fd >= 0 && pwrite(fd, "\xa5\x5a", 2, (off_t)at) == 2);
        close(fd);
        ls_stored_run_open(&run, path, "a run");
        read_all(&run, &text);
        check_all(&run, LINES);
        ls_stored_run_release(&run);
    }
    unlink(path);
    ls_text_release(&text);
}

/* The run was cut back by a resume while no server was there. */
static void stored_run_follows_a_file_that_was_cut_back(void **state)
{
    (void)state;
    ls_text text = {0}, shorter = {0};
    make_lines(&text, 0, LINES);
    ls_stored_run run = {0};
    ls_stored_run_open(&run, path, "a run");
    read_all(&run, &text);
    ls_stored_run_release(&run);
    make_lines(&shorter, 0, LINES / 3);
    ls_stored_run_open(&run, path, "a run");
    read_all(&run, &shorter);
    check_all(&run, LINES / 3);
    ls_stored_run_release(&run);
    ls_stored_run_open(&run, path, "a run");
    read_all(&run, &shorter);
    check_all(&run, LINES / 3);
    ls_stored_run_release(&run);
    unlink(path);
    ls_text_release(&text);
    ls_text_release(&shorter);
}

static void stored_run_does_without_a_file(void **state)
{
    (void)state;
    ls_text text = {0};
    make_lines(&text, 0, LINES);
    ls_stored_run first = {0}, second = {0}, full = {0};
    ls_stored_run_open(&first, path, "a run");
    ls_stored_run_open(&second, path, "a run"); /* held by the first */
    read_all(&first, &text);
    read_all(&second, &text);
    check_all(&first, LINES);
    check_all(&second, LINES);
    ls_stored_run_release(&first);
    ls_stored_run_release(&second);
    const struct rlimit small = {.rlim_cur = 50000, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    unlink(path);
    ls_stored_run_open(&full, path, "a run");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0); /* a full disk */
    read_all(&full, &text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_all(&full, LINES);
    assert_false(ls_path_exists(path));
    ls_stored_run_release(&full);
    unlink(path);
    ls_text_release(&text);
}

static void stored_runs_trim_removes_the_old(void **state)
{
    (void)state;
    char other[160], old[160];
    snprintf(old, sizeof old, "%s/old.metrics", folder);
    snprintf(other, sizeof other, "%s/old.txt", folder);
    const struct timespec times[2] = {{.tv_sec = time(NULL) - 86400 * (LS_STORED_AGE_DAYS + 1)},
                                      {.tv_sec = time(NULL) - 86400 * (LS_STORED_AGE_DAYS + 1)}};
    const char *const names[] = {path, old, other};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ls_file_write_atomic(names[i], "x", 1), LS_OK);
        assert_int_equal(i == 0 ? 0 : utimensat(AT_FDCWD, names[i], times, 0), 0);
    }
    ls_stored_runs_trim(folder);
    assert_true(ls_path_exists(path));
    assert_false(ls_path_exists(old));
    assert_true(ls_path_exists(other));
    unlink(path);
    unlink(other);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep_stored_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.metrics", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return ls_dir_remove(folder) == LS_OK ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_run_is_there_after_a_restart),
        cmocka_unit_test(stored_run_is_whole_wherever_its_file_ends),
        cmocka_unit_test(stored_run_that_is_damaged_is_made_anew),
        cmocka_unit_test(stored_run_follows_a_file_that_was_cut_back),
        cmocka_unit_test(stored_run_does_without_a_file),
        cmocka_unit_test(stored_runs_trim_removes_the_old),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
