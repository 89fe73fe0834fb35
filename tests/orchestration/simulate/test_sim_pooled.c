// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "orchestration/simulate/pooled.h"
#include "orchestration/simulate/summary.h"

#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static ls_sim_run run_text(const char *text, uint32_t gpus, ls_pooled_policy policy)
{
    ls_trace *trace = ls_arena_new(&arena, ls_trace, 1);
    ls_sim_run run;
    assert_int_equal(ls_trace_parse(&arena, text, strlen(text), "t.csv", LS_TRACE_AUTO, trace), LS_OK);
    ls_pooled_run(&arena, trace, gpus, policy, &run);
    return run;
}

/* Starts in seconds, in the order of the trace. */
static void expect_starts(const char *text, uint32_t gpus, ls_pooled_policy policy, const int *starts_s)
{
    const ls_sim_run run = run_text(text, gpus, policy);
    for (size_t i = 0; i < run.trace->job_count; i++) {
        assert_int_equal(run.jobs[i].first_start_ms, 1000 * starts_s[i]);
        assert_int_equal(run.jobs[i].end_ms, run.jobs[i].first_start_ms + run.trace->jobs[i].run_ms);
    }
}

/*
 * Four GPUs. a has three until 10; b wants four and is first to be blocked; c (one GPU, 5 s) and d
 * (one, 20 s) and e (two, 3 s) come behind.
 */
static const char five[] = "job,submit_s,duration_s,gpus\n"
                           "a,0,10,3\nb,1,10,4\nc,2,5,1\nd,3,20,1\ne,4,3,2\n";

static void pooled_run_fifo_stops_at_who_does_not_fit(void **state)
{
    (void)state;
    expect_starts(five, 4, LS_POOLED_FIFO, (int[]){0, 10, 20, 20, 20});
}

static void pooled_run_fifo_skip_lets_others_pass(void **state)
{
    (void)state;
    /* c at once; d when c ends at 7; at 10, b does not fit beside d, e does; b when d ends at
     * 27. */
    expect_starts(five, 4, LS_POOLED_FIFO_SKIP, (int[]){0, 27, 2, 7, 10});
}

static void pooled_run_easy_lets_pass_who_does_not_delay_the_first(void **state)
{
    (void)state;
    /* b is reserved 10: c ends at 7 and passes, d would not and b takes all. b runs 10..20. */
    expect_starts(five, 4, LS_POOLED_EASY, (int[]){0, 10, 2, 20, 20});
}

static void pooled_run_easy_gives_away_what_the_first_leaves_over(void **state)
{
    (void)state;
    /* b is reserved 10 and leaves one GPU over: d takes it although it runs longer; e does not find
     * another. */
    expect_starts("job,submit_s,duration_s,gpus\na,0,10,3\nb,1,10,4\nc,2,20,1\nd,2,20,1\n", 5, LS_POOLED_EASY,
                  (int[]){0, 10, 2, 20});
}

static void pooled_run_sjf_takes_the_shortest_that_fits(void **state)
{
    (void)state;
    /* At 10 all wait but a: e (3 s), then c ran 2..7, d since 7; b fits when d has ended. */
    expect_starts("job,submit_s,duration_s,gpus\na,0,10,4\nb,1,9,4\nc,2,5,2\nd,3,7,2\ne,3,5,2\n", 4,
                  LS_POOLED_SJF_ORACLE, (int[]){0, 22, 10, 15, 10});
}

static void pooled_run_small_first_counts_gpus_too(void **state)
{
    (void)state;
    /* 9 s on one GPU is less than 5 s on two. */
    expect_starts("job,submit_s,duration_s,gpus\na,0,10,2\nb,1,5,2\nc,2,9,1\n", 2, LS_POOLED_SMALL_FIRST,
                  (int[]){0, 19, 10});
}

static void pooled_run_refuses_what_is_larger_than_the_cluster(void **state)
{
    (void)state;
    const ls_sim_run run = run_text("submit_s,duration_s,gpus\n0,10,2\n0,10,5\n1,10,4\n", 4, LS_POOLED_FIFO);
    ls_sim_summary summary;
    ls_sim_summarise(&arena, &run, &summary);
    assert_true(run.jobs[1].refused);
    assert_int_equal(summary.refused, 1);
    assert_int_equal(summary.all.jobs, 2);
    assert_int_equal(run.jobs[2].first_start_ms, 10000);
}

static void pooled_run_frees_before_it_starts(void **state)
{
    (void)state;
    /* An end and a submission at the same second. */
    expect_starts("submit_s,duration_s,gpus\n0,5,4\n5,5,4\n5,1,1\n", 4, LS_POOLED_FIFO, (int[]){0, 5, 10});
}

static void summary_has_hand_worked_numbers(void **state)
{
    (void)state;
    const ls_sim_run run = run_text(five, 4, LS_POOLED_FIFO);
    ls_sim_summary s;
    ls_sim_summarise(&arena, &run, &s);
    /* JCT: 10, 19, 23, 37, 19; waits 0, 9, 18, 17, 16. */
    assert_float_equal(3600.0 * s.all.jct_h, (10 + 19 + 23 + 37 + 19) / 5.0, 1e-9);
    assert_float_equal(3600.0 * s.all.wait_h, (0 + 9 + 18 + 17 + 16) / 5.0, 1e-9);
    assert_float_equal(3600.0 * s.all.wait_p99_h, 18.0, 1e-9);
    assert_float_equal(3600.0 * s.makespan_h, 40.0, 1e-9);
    assert_float_equal(s.utilization, (30 + 40 + 5 + 20 + 6) / (4 * 40.0), 1e-9);
    /* More is asked for than is free from 1 to 20; 3 are allocated until 10, then 4. */
    assert_float_equal(3600.0 * s.short_h, 19.0, 1e-9);
    assert_float_equal(s.allocated_when_short, (9 * 3 + 10 * 4) / (4 * 19.0), 1e-9);
    assert_int_equal(s.sizes[0].jobs, 2);
    assert_int_equal(s.sizes[1].jobs, 3);
}

static void summary_fairness_is_what_accounts_had_of_their_share(void **state)
{
    (void)state;
    /* Two accounts, four GPUs. a has all for 10 s while b asks for two (its fair share): had 2 (a's
     * share) of 2 + 2. Then b alone: all of its share. */
    const ls_sim_run run =
        run_text("submit_s,duration_s,gpus,account\n0,10,4,a\n0,10,2,b\n", 4, LS_POOLED_FIFO);
    ls_sim_summary s;
    ls_sim_summarise(&arena, &run, &s);
    assert_float_equal(s.fairness, (2 * 10 + 2 * 10) / (4 * 10 + 2 * 10.0), 1e-9);
}

static void run_keeps_means_however_long_it_takes(void **state)
{
    (void)state;
    const ls_sim_run run =
        run_text("submit_s,duration_s,gpus\n0,1000000,2\n500000,1000000,1\n", 4, LS_POOLED_FIFO);
    double device_s = 0.0;
    assert_true(run.bucket_count > LS_SIM_BUCKETS / 2 && run.bucket_count <= LS_SIM_BUCKETS);
    for (size_t i = 0; i < run.bucket_count; i++) {
        const uint64_t end_ms = (i + 1) * run.bucket_ms < run.now_ms ? (i + 1) * run.bucket_ms : run.now_ms;
        device_s += ls_sim_run_mean(&run, i).allocated * 1e-3 * (double)(end_ms - i * run.bucket_ms);
    }
    assert_float_equal(device_s, 3e6, 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooled_run_fifo_stops_at_who_does_not_fit),
        cmocka_unit_test(pooled_run_fifo_skip_lets_others_pass),
        cmocka_unit_test(pooled_run_easy_lets_pass_who_does_not_delay_the_first),
        cmocka_unit_test(pooled_run_easy_gives_away_what_the_first_leaves_over),
        cmocka_unit_test(pooled_run_sjf_takes_the_shortest_that_fits),
        cmocka_unit_test(pooled_run_small_first_counts_gpus_too),
        cmocka_unit_test(pooled_run_refuses_what_is_larger_than_the_cluster),
        cmocka_unit_test(pooled_run_frees_before_it_starts),
        cmocka_unit_test(summary_has_hand_worked_numbers),
        cmocka_unit_test(summary_fairness_is_what_accounts_had_of_their_share),
        cmocka_unit_test(run_keeps_means_however_long_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, release_arena);
}
