// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/run_dir.h"

#include "telemetry/record/time_log.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define assert_seconds(seen, expected) assert_true(fabs((seen) - (expected)) < 1e-5)

static ls_time_history load(run_dir *run)
{
    ls_time_history history;
    assert_int_equal(ls_time_history_load(run->path, &history), LS_OK);
    return history;
}

/* Slices follow each other without a hole, hold nothing below zero, and add up to the total, class
 * by class. */
static void check_history(const ls_time_history *history)
{
    ls_goodput sum = {0};
    double at_s = 0.0;
    for (size_t i = 0; i < history->slice_count; i++) {
        const ls_time_slice *slice = &history->slices[i];
        assert_seconds(slice->begun_s, at_s);
        for (int c = 0; c < LS_TIME_CLASS_COUNT; c++) {
            assert_true(slice->seconds[c] >= 0.0);
            sum.seconds[c] += slice->seconds[c];
            at_s += slice->seconds[c];
        }
    }
    for (int c = 0; c < LS_TIME_CLASS_COUNT; c++) {
        assert_seconds(sum.seconds[c], history->total.seconds[c]);
    }
    if (history->start_count > 0) {
        const ls_time_start *last = &history->starts[history->start_count - 1];
        assert_seconds(ls_goodput_wall_s(&history->total),
                       last->begun_s + ls_goodput_wall_s(&last->time) - history->starts[0].begun_s);
    }
}

static void time_history_of_nothing_is_empty(void **state)
{
    run_dir *run = *state;
    ls_time_history history = load(run);
    assert_int_equal(history.start_count, 0);
    assert_seconds(ls_goodput_wall_s(&history.total), 0.0);
    ls_time_history_release(&history);
}

/* Three starts by hand: one lost in a step, one stopped, one finished. */
static void time_history_adds_starts_and_what_is_between(void **state)
{
    run_dir *run = *state;
    run_dir_write(
        run, "time.jsonl",
        "{\"start\": 1, \"begun\": 1000.0, \"restored\": 0, \"step\": 3, \"startup\": 1.0, \"compute\": "
        "4.0}\n"
        "{\"start\": 1, \"begun\": 1000.0, \"restored\": 0, \"step\": 5, \"unfinished_s\": 2.0, \"startup\": "
        "1.0, \"compute\": 9.0}\n"
        "{\"start\": 2, \"begun\": 1015.0, \"restored\": 4, \"step\": 8, \"startup\": 0.5, \"lost_work\": "
        "1.0, \"compute\": 3.5, \"ended\": \"stopped\", \"away\": true}\n"
        "{\"start\": 3, \"begun\": 1021.0, \"restored\": 8, \"step\": 9, \"compute\": 1.0, \"ended\": "
        "\"finished\", \"away\": false}\n"
        "{\"start\": 4, \"begun\": 1032.0, \"restored\": 9, \"step\": 10, \"compute\": 2.0, \"ended\": "
        "\"finished\", \"away\": false}\n");
    ls_time_history history = load(run);
    check_history(&history);
    assert_int_equal(history.start_count, 4);
    assert_int_equal(history.highest_step, 10);
    const double *total = history.total.seconds;
    assert_seconds(total[LS_TIME_COMPUTE], 7.0 + 3.5 + 1.0 + 2.0);
    assert_seconds(total[LS_TIME_LOST_WORK], 2.0 + 1.0);
    assert_seconds(total[LS_TIME_DOWN], 5.0 + 1.0);
    assert_seconds(total[LS_TIME_PAUSED], 10.0);
    assert_seconds(ls_goodput_wall_s(&history.total), 34.0);
    assert_seconds(ls_goodput_fraction(&history.total), 13.5 / 24.0);
    assert_false(history.starts[0].has_ended);
    assert_string_equal(history.starts[1].status, "stopped");
    ls_time_history_release(&history);
}

/* A step's time is split when it ends; what was communication before then lies in slices that said
 * compute. */
static void time_history_books_a_split_step_where_it_was(void **state)
{
    run_dir *run = *state;
    run_dir_write(run, "time.jsonl",
                  "{\"start\": 1, \"begun\": 0.0, \"step\": 0, \"compute\": 1.0}\n"
                  "{\"start\": 1, \"begun\": 0.0, \"step\": 0, \"compute\": 2.0}\n"
                  "{\"start\": 1, \"begun\": 0.0, \"step\": 1, \"compute\": 0.5, \"communication\": 2.5}\n");
    ls_time_history history = load(run);
    check_history(&history);
    assert_int_equal(history.slice_count, 3);
    assert_seconds(history.slices[2].seconds[LS_TIME_COMMUNICATION], 1.0);
    assert_seconds(history.slices[1].seconds[LS_TIME_COMMUNICATION], 1.0);
    assert_seconds(history.slices[0].seconds[LS_TIME_COMPUTE], 0.5);
    ls_time_history_release(&history);
}

static void time_history_goes_on_with_damage(void **state)
{
    run_dir *run = *state;
    run_dir_write(run, "time.jsonl",
                  "{\"start\": 1, \"begun\": 5.0, \"compute\": 1.0}\n"
                  "garbage\n\n[1]\n{\"start\": -1, \"begun\": 5.0}\n{\"start\": 1, \"begun\": \"x\"}\n"
                  "{\"start\": 1, \"begun\": 5.0, \"compute\": 0.25}\n" /* time does not go back */
                  "{\"start\": 1, \"begun\": 5.0, \"compute\": -3, \"data\": 1e400}\n"
                  "{\"start\": 2, \"begun\": 4.0, \"compute\": 2.0}\n" /* a wall clock that was set back */
                  "{\"start\": 2, \"begun\": 4.0, \"compute\": 9");
    ls_time_history history = load(run);
    assert_int_equal(history.start_count, 2);
    assert_seconds(history.total.seconds[LS_TIME_COMPUTE], 3.0);
    assert_seconds(history.total.seconds[LS_TIME_DOWN], 0.0);
    ls_time_history_release(&history);
}

static ls_time_log *open_log(run_dir *run, ls_goodput *goodput, double begun_s, uint64_t restored)
{
    ls_time_log *log = NULL;
    ls_goodput_begin(goodput, 0.0);
    goodput->since_s = 1e18; /* the real clock adds nothing: times are the test's */
    assert_int_equal(ls_time_log_open(run->path, goodput, begun_s, restored, &log), LS_OK);
    return log;
}

static void time_log_writes_over_its_last_line(void **state)
{
    run_dir *run = *state;
    ls_goodput goodput;
    ls_time_log *log = open_log(run, &goodput, 100.0, 7);
    for (int i = 0; i < 100000; i++) { /* ten thousand seconds, a tenth each */
        goodput.seconds[LS_TIME_COMPUTE] += 0.1;
        ls_time_log_step_ends(log, (uint64_t)(8 + i));
    }
    ls_time_log_end(log, "finished", false);
    ls_time_log_close(log);
    ls_time_history history = load(run);
    check_history(&history);
    assert_int_equal(history.start_count, 1);
    assert_int_equal(history.starts[0].restored, 7);
    assert_int_equal(history.starts[0].step, 100007);
    assert_true(fabs(history.total.seconds[LS_TIME_COMPUTE] - 1e4) < 1e-3);
    assert_true(history.slice_count > 500 && history.slice_count < 3000);
    ls_time_history_release(&history);
}

/* has_news: something rare happens 90 ms after the last line, and 0 ms before the end. */
static void check_killed(run_dir *run, bool has_news)
{
    const pid_t pid = fork();
    if (pid == 0) {
        ls_goodput goodput;
        ls_time_log *log = open_log(run, &goodput, 100.0, 0);
        goodput.seconds[LS_TIME_STARTUP] = 1.0;
        ls_time_log_step_begins(log);
        goodput.seconds[LS_TIME_COMPUTE] = 2.0;
        ls_time_log_step_ends(log, 1);
        ls_time_log_step_begins(log);
        goodput.seconds[LS_TIME_COMPUTE] = 2.5;
        ls_time_log_note(log);
        goodput.seconds[LS_TIME_COMPUTE] = 2.59;
        ls_time_log_note(log); /* too early for a line */
        if (has_news) {
            assert_true(ls_goodput_move(&goodput, LS_TIME_COMPUTE, LS_TIME_RECOVERY, 0.02) == 0.02);
            ls_time_log_write(log);
        }
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    ls_goodput goodput;
    ls_time_log *log = open_log(run, &goodput, 110.0, 1);
    goodput.seconds[LS_TIME_COMPUTE] = 4.0;
    ls_time_log_end(log, "finished", false);
    ls_time_log_close(log);
    ls_time_history history = load(run);
    check_history(&history);
    assert_int_equal(history.start_count, 2);
    assert_false(history.starts[0].has_ended);
    assert_int_equal(history.starts[0].step, 1);
    assert_seconds(history.total.seconds[LS_TIME_COMPUTE], 6.0);
    assert_seconds(history.total.seconds[LS_TIME_RECOVERY], has_news ? 0.02 : 0.0);
    assert_seconds(history.total.seconds[LS_TIME_LOST_WORK], has_news ? 0.57 : 0.5);
    assert_seconds(history.total.seconds[LS_TIME_DOWN], 10.0 - (has_news ? 3.59 : 3.5));
    ls_time_history_release(&history);
}

static void time_log_of_a_killed_process_has_its_last_tenth(void **state)
{
    check_killed(*state, false);
}

static void time_log_of_a_killed_process_has_what_was_rare(void **state)
{
    check_killed(*state, true);
}

/* Whatever its last bytes are, the next start's lines are whole. */
static void time_log_cuts_a_torn_end_off(void **state)
{
    run_dir *run = *state;
    run_dir_write(run, "time.jsonl", "{\"start\": 1, \"begun\": 1.0, \"compute\": 1.0}\n{\"start\": 1, \"be");
    ls_goodput goodput;
    ls_time_log *log = open_log(run, &goodput, 3.0, 0);
    goodput.seconds[LS_TIME_COMPUTE] = 1.0;
    ls_time_log_end(log, "finished", false);
    ls_time_log_close(log);
    ls_time_history history = load(run);
    check_history(&history);
    assert_int_equal(history.start_count, 2);
    assert_seconds(ls_goodput_wall_s(&history.total), 3.0);
    ls_time_history_release(&history);
}

#define run_case(name) cmocka_unit_test_setup_teardown(name, run_dir_setup, run_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        run_case(time_history_of_nothing_is_empty),
        run_case(time_history_adds_starts_and_what_is_between),
        run_case(time_history_books_a_split_step_where_it_was),
        run_case(time_history_goes_on_with_damage),
        run_case(time_log_writes_over_its_last_line),
        run_case(time_log_of_a_killed_process_has_its_last_tenth),
        run_case(time_log_of_a_killed_process_has_what_was_rare),
        run_case(time_log_cuts_a_torn_end_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
