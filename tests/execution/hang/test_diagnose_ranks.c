// SPDX-License-Identifier: Apache-2.0
/*
 * Diagnosis of real processes over ls_comm: ranks that call something else, in another order,
 * never, that are stopped, killed or slow. This process watches them as an agent does, on the real
 * env.
 */
#include "test.h"

#include "comm/group/comm_ranks.h"

#include "base/file.h"
#include "env/env.h"
#include "execution/hang/run_snapshot.h"
#include "execution/hang/watchdog.h"

#include <string.h>

enum { RANKS = 3, CALLS = 60, EVENTS_MAX = 16, CALL_MS = 15 };

typedef enum fault {
    FAULT_NONE,
    FAULT_COUNT,
    FAULT_DTYPE,
    FAULT_KIND,
    FAULT_ORDER,
    FAULT_NEVER,
    FAULT_DIE,
    FAULT_SLOW,
} fault;

static fault scenario;
static char run_dir[64];

static void sleep_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* ---- a rank ---- */

static float buffer[1000];
static int32_t numbers[1000];

/* Two groups of ranks 0 and 1, used in different orders. */
static ls_status call_groups(ls_comm *comm)
{
    ls_comm *rows = NULL, *columns = NULL;
    const bool is_in = ls_comm_rank(comm) < 2;
    LS_TRY(ls_comm_split(comm, is_in ? 0 : -1, 0, &rows));
    LS_TRY(ls_comm_split(comm, is_in ? 0 : -1, 0, &columns));
    if (!is_in) {
        return ls_comm_barrier(comm, NULL);
    }
    ls_comm *first = ls_comm_rank(comm) == 0 ? rows : columns, *second = first == rows ? columns : rows;
    LS_TRY(ls_comm_barrier(first, NULL));
    return ls_comm_barrier(second, NULL);
}

static ls_status call_once(ls_comm *comm, uint32_t call)
{
    const bool is_odd = ls_comm_rank(comm) == 1 && call == 20;
    sleep_ms(CALL_MS);
    if (is_odd && scenario == FAULT_COUNT) {
        return ls_comm_all_reduce(comm, buffer, buffer, 999, LS_F32, LS_COMM_SUM, NULL);
    }
    if (is_odd && scenario == FAULT_DTYPE) {
        return ls_comm_all_reduce(comm, numbers, numbers, 1000, LS_I32, LS_COMM_SUM, NULL);
    }
    if (is_odd && scenario == FAULT_KIND) {
        return ls_comm_barrier(comm, NULL);
    }
    if (is_odd && scenario == FAULT_NEVER) {
        sleep_ms(60000);
    }
    if (is_odd && scenario == FAULT_DIE) {
        raise(SIGKILL);
    }
    if (scenario == FAULT_SLOW && ls_comm_rank(comm) == 1) {
        sleep_ms(CALL_MS);
    }
    if (scenario == FAULT_ORDER && call == 20) {
        return call_groups(comm);
    }
    return ls_comm_all_reduce(comm, buffer, buffer, 1000, LS_F32, LS_COMM_SUM, NULL);
}

static int run_rank(const ls_comm_options *options)
{
    char path[96];
    snprintf(path, sizeof path, "%s/flight/rank-%u", run_dir, options->rank);
    ls_comm_options own = *options;
    own.flight_path = path;
    ls_comm *comm = NULL;
    EXPECT_OK(ls_comm_open(&own, &comm));
    ls_status status = LS_OK;
    for (uint32_t call = 0; call < CALLS && status == LS_OK; call++) {
        status = call_once(comm, call);
    }
    ls_comm_close(comm);
    return ls_status_exit_code(status);
}

/* ---- the observer ---- */

typedef struct observer {
    ls_env *env;
    ls_watchdog *watch;
    pid_t pids[RANKS];
    bool gone[RANKS];
    uint32_t event_count, fatal_count;
    char names[EVENTS_MAX][32];
    json_t *events[EVENTS_MAX];
    uint64_t event_ns[EVENTS_MAX], fatal_ns;
    char fatal[8192];
} observer;

static void on_event(void *context, const char *name, json_t *fields)
{
    observer *o = context;
    if (o->event_count == EVENTS_MAX) {
        json_decref(fields);
        return;
    }
    snprintf(o->names[o->event_count], sizeof o->names[0], "%s", name);
    o->event_ns[o->event_count] = ls_clock_monotonic_ns();
    o->events[o->event_count++] = fields;
}

static void on_fatal(void *context, ls_status status, const char *text)
{
    observer *o = context;
    (void)status;
    snprintf(o->fatal, sizeof o->fatal, "%s", text);
    o->fatal_ns = ls_clock_monotonic_ns();
    o->fatal_count++;
}

static void observer_start(observer *o, fault what, double hang_timeout_s)
{
    char flight[80];
    *o = (observer){0};
    scenario = what;
    snprintf(run_dir, sizeof run_dir, "/tmp/lockstep-ranks-XXXXXX");
    assert_non_null(mkdtemp(run_dir));
    snprintf(flight, sizeof flight, "%s/flight", run_dir);
    assert_int_equal(ls_dir_create(flight), LS_OK);
    meeting_open();
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const ls_comm_options options = rank_options(rank, RANKS);
        o->pids[rank] = start_rank(run_rank, &options);
    }
    assert_int_equal(ls_env_real_create(&o->env), LS_OK);
    const ls_watchdog_options options = {.env = o->env,
                                         .flight_dir = flight,
                                         .ranks = RANKS,
                                         .hang_timeout_s = hang_timeout_s,
                                         .event = on_event,
                                         .fatal = on_fatal,
                                         .context = o};
    assert_int_equal(ls_watchdog_create(&options, &o->watch), LS_OK);
}

static uint32_t left(observer *o)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int state = 0;
        if (!o->gone[rank] && waitpid(o->pids[rank], &state, WNOHANG) == o->pids[rank]) {
            char path[96];
            snprintf(path, sizeof path, "%s/flight/rank-%u", run_dir, rank);
            ls_flight_note_exit(path, state);
            o->gone[rank] = true;
            o->pids[rank] = state;
        }
        count += !o->gone[rank];
    }
    return count;
}

/* Watches until `seconds` have passed, all ranks are gone, or there are `events` events or
 * `fatals` ends (UINT32_MAX: no limit). */
static void observe(observer *o, double seconds, uint32_t events, uint32_t fatals)
{
    const double until_s = ls_clock_monotonic_s() + seconds;
    while (ls_clock_monotonic_s() < until_s && left(o) > 0 && o->event_count < events &&
           o->fatal_count < fatals) {
        (void)ls_env_poll(o->env, 20000000);
    }
}

static void observer_end(observer *o)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!o->gone[rank]) {
            kill(o->pids[rank], SIGKILL);
        }
    }
    for (int i = 0; i < 500 && left(o) > 0; i++) {
        sleep_ms(10);
    }
    ls_watchdog_destroy(o->watch);
    ls_env_real_destroy(o->env);
    meeting_close();
}

static void observer_release(observer *o)
{
    for (uint32_t i = 0; i < o->event_count; i++) {
        json_decref(o->events[i]);
    }
    assert_int_equal(ls_dir_remove(run_dir), LS_OK);
}

static int exit_code(const observer *o, uint32_t rank)
{
    const int state = o->pids[rank];
    return !o->gone[rank] ? -1 : WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

static const char *text_of(const observer *o, uint32_t event, const char *key)
{
    const char *text =
        event < o->event_count ? json_string_value(json_object_get(o->events[event], key)) : "";
    return text ? text : "";
}

/* What `lockstep diagnose` says afterwards. */
static ls_run_verdict judge_afterwards(char *sentence_out, size_t bytes)
{
    ls_arena arena = {0};
    ls_run_snapshot run;
    ls_text text = {0};
    const ls_culprit *culprit = NULL;
    assert_int_equal(ls_run_snapshot_open(&arena, run_dir, &run), LS_OK);
    const ls_run_verdict verdict = ls_run_snapshot_judge(&run, 5.0, NULL, &text, &culprit);
    snprintf(sentence_out, bytes, "%s", ls_text_string(&text));
    ls_text_release(&text);
    ls_run_snapshot_close(&run);
    ls_arena_release(&arena);
    return verdict;
}

/* ---- cases ---- */

static void ranks_without_fault_finish_without_a_word(void **state)
{
    (void)state;
    observer o;
    char sentence[4096];
    observer_start(&o, FAULT_NONE, 60);
    observe(&o, 30, UINT32_MAX, UINT32_MAX);
    observer_end(&o);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(exit_code(&o, rank), 0);
    }
    assert_int_equal(o.fatal_count, 0);
    assert_int_equal(judge_afterwards(sentence, sizeof sentence), LS_VERDICT_FINISHED);
    observer_release(&o);
}

static void mismatch(fault what, const char *odd_side)
{
    observer o;
    char sentence[4096];
    observer_start(&o, what, 60);
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    observe(&o, 20, UINT32_MAX, UINT32_MAX);
    observer_end(&o);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(exit_code(&o, rank), 6);
    }
    /* 20 calls of 15 ms, then detection at once: far below the limit of 20 s even on a busy
     * machine. */
    assert_true(ls_clock_monotonic_ns() - begin_ns < 10000000000u);
    assert_int_equal(judge_afterwards(sentence, sizeof sentence), LS_VERDICT_MISMATCH);
    expect_in(sentence, "ranks disagree about operation 21 of ");
    expect_in(sentence, "called all_reduce sum of 1000 f32 at tests/execution/hang/test_diagnose_ranks.c:");
    expect_in(sentence, odd_side);
    expect_in(sentence, "2 of 3 agree on all_reduce sum of 1000 f32: look at the others");
    observer_release(&o);
}

static void ranks_with_another_count_are_a_mismatch(void **state)
{
    (void)state;
    mismatch(FAULT_COUNT, "called all_reduce sum of 999 f32 at tests/execution/hang/test_diagnose_ranks.c:");
}

static void ranks_with_another_dtype_are_a_mismatch(void **state)
{
    (void)state;
    mismatch(FAULT_DTYPE, "called all_reduce sum of 1000 i32 at tests/execution/hang/test_diagnose_ranks.c:");
}

static void ranks_with_another_kind_are_a_mismatch(void **state)
{
    (void)state;
    mismatch(FAULT_KIND, "called barrier at tests/execution/hang/test_diagnose_ranks.c:");
}

static void ranks_in_another_order_are_a_deadlock(void **state)
{
    (void)state;
    observer o;
    observer_start(&o, FAULT_ORDER, 60);
    observe(&o, 15, UINT32_MAX, 1);
    observer_end(&o);
    assert_int_equal(o.fatal_count, 1);
    expect_in(o.fatal, "order deadlock: ");
    expect_in(o.fatal, "rank 0 waits for rank 1 in barrier");
    expect_in(o.fatal, "rank 1 waits for rank 0 in barrier");
    observer_release(&o);
}

static void rank_that_never_calls_is_late_and_then_a_hang(void **state)
{
    (void)state;
    observer o;
    observer_start(&o, FAULT_NEVER, 2);
    observe(&o, 15, UINT32_MAX, 1);
    observer_end(&o);
    assert_int_equal(o.fatal_count, 1);
    assert_string_equal(o.names[0], "late");
    assert_int_equal(json_integer_value(json_object_get(o.events[0], "rank")), 1);
    assert_string_equal(text_of(&o, 0, "why"), "other");
    expect_in(o.fatal, "hang: rank 1 (");
    expect_in(o.fatal, "ranks 0, 2 wait for it in all_reduce sum of 1000 f32 (number 21 of ");
    expect_in(o.fatal, "job.hang_timeout is 2 s");
    if (!strstr(o.fatal, "no stack")) {
        expect_in(o.fatal, "call_once at tests/execution/hang/test_diagnose_ranks.c:");
    }
    observer_release(&o);
}

static void rank_that_is_stopped_is_named_and_goes_on(void **state)
{
    (void)state;
    observer o;
    observer_start(&o, FAULT_NONE, 60);
    observe(&o, 0.5, UINT32_MAX, UINT32_MAX);
    const uint64_t stopped_ns = ls_clock_monotonic_ns();
    kill(o.pids[1], SIGSTOP);
    observe(&o, 10, 1, UINT32_MAX);
    const bool was_seen = o.event_count > 0;
    kill(o.pids[1], SIGCONT);
    observe(&o, 20, UINT32_MAX, UINT32_MAX);
    observer_end(&o);
    assert_true(was_seen);
    assert_string_equal(o.names[0], "late");
    assert_string_equal(text_of(&o, 0, "why"), "stopped");
    assert_int_equal(json_integer_value(json_object_get(o.events[0], "rank")), 1);
    print_message("named after %.2f s\n", 1e-9 * (double)(o.event_ns[0] - stopped_ns));
    assert_true(o.event_ns[0] - stopped_ns < 5000000000u);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(exit_code(&o, rank), 0);
    }
    observer_release(&o);
}

static void rank_that_is_killed_is_found_in_the_files(void **state)
{
    (void)state;
    observer o;
    char sentence[4096];
    observer_start(&o, FAULT_DIE, 60);
    observe(&o, 20, UINT32_MAX, UINT32_MAX);
    observer_end(&o);
    assert_int_equal(exit_code(&o, 0), 5);
    assert_int_equal(exit_code(&o, 1), 128 + SIGKILL);
    assert_int_equal(exit_code(&o, 2), 5);
    assert_int_equal(judge_afterwards(sentence, sizeof sentence), LS_VERDICT_DEAD);
    expect_in(sentence, "dead: rank 1 (");
    expect_in(sentence, "was killed by signal 9 (SIGKILL)");
    expect_in(sentence, "ranks 0, 2 wait for it in all_reduce sum of 1000 f32 (number 21 of ");
    observer_release(&o);
}

static void rank_that_is_slow_is_the_straggler(void **state)
{
    (void)state;
    observer o;
    observer_start(&o, FAULT_SLOW, 60);
    observe(&o, 30, UINT32_MAX, UINT32_MAX);
    observer_end(&o);
    ls_arena arena = {0};
    ls_run_snapshot run;
    assert_int_equal(ls_run_snapshot_open(&arena, run_dir, &run), LS_OK);
    json_t *report = ls_arrivals_to_json(run.arrivals);
    const json_t *first = json_array_get(json_object_get(report, "ranks"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "rank")), 1);
    assert_true(json_is_true(json_object_get(first, "straggler")));
    assert_true(json_real_value(json_object_get(first, "cost_s")) > 0.2);
    json_decref(report);
    ls_run_snapshot_close(&run);
    ls_arena_release(&arena);
    observer_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_without_fault_finish_without_a_word),
        cmocka_unit_test(ranks_with_another_count_are_a_mismatch),
        cmocka_unit_test(ranks_with_another_dtype_are_a_mismatch),
        cmocka_unit_test(ranks_with_another_kind_are_a_mismatch),
        cmocka_unit_test(ranks_in_another_order_are_a_deadlock),
        cmocka_unit_test(rank_that_never_calls_is_late_and_then_a_hang),
        cmocka_unit_test(rank_that_is_stopped_is_named_and_goes_on),
        cmocka_unit_test(rank_that_is_killed_is_found_in_the_files),
        cmocka_unit_test(rank_that_is_slow_is_the_straggler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
