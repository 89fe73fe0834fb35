// SPDX-License-Identifier: Apache-2.0
/* The policy core on small traces that can be worked out by hand. */
#include "test.h"

#include "orchestration/simulate/cluster.h"
#include "orchestration/simulate/simulation_page.h"
#include "orchestration/simulate/simulator.h"

#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

/* fifo-skip on a cluster, 60 s lost at each restart and resize. */
static ls_simulator_options usual_options(ls_policy_order order)
{
    ls_simulator_options options = {.settings = ls_policy_settings_default(), .restart_cost_ms = 60000};
    options.settings.order = order;
    options.settings.elastic = options.settings.preempt = order == LS_ORDER_FAIR || order == LS_ORDER_LAS;
    return options;
}

static ls_sim_run run_text(const char *text, const char *spec, const ls_simulator_options *options)
{
    ls_trace *trace = ls_arena_new(&arena, ls_trace, 1);
    ls_policy_cluster cluster;
    ls_sim_run run;
    assert_int_equal(ls_trace_parse(&arena, text, strlen(text), "t.csv", LS_TRACE_AUTO, trace), LS_OK);
    assert_int_equal(ls_cluster_parse(&arena, spec, &cluster), LS_OK);
    assert_int_equal(ls_simulator_run(&arena, trace, &cluster, options, &run), LS_OK);
    return run;
}

static void expect_s(uint64_t ms, double seconds)
{
    assert_float_equal(1e-3 * (double)ms, seconds, 1e-9);
}

static void simulator_run_places_gangs_on_nodes(void **state)
{
    (void)state;
    /* Two nodes of 4. a takes three of one node, b three of the other: c wants two, which are free,
     * but on one node. */
    const ls_simulator_options options = usual_options(LS_ORDER_FIFO_SKIP);
    const ls_sim_run run = run_text(
        "submit_s,duration_s,gpus,level\n0,10,3,node\n0,20,3,node\n1,5,2,node\n2,5,2,\n", "2x4", &options);
    expect_s(run.jobs[0].first_start_ms, 0);
    expect_s(run.jobs[1].first_start_ms, 0);
    expect_s(run.jobs[2].first_start_ms, 10);
    expect_s(run.jobs[3].first_start_ms, 2); /* anywhere: one GPU of each */
    assert_int_equal(run.unfinished, 0);
}

static void simulator_run_stops_who_had_more_and_loses_the_restart(void **state)
{
    (void)state;
    /* One node of 4, queues at 1 GPU-hour. a is past it after 900 s; b comes at 2000 and runs at
     * once; a goes on when b ends, and loses 60 s. */
    ls_simulator_options options = usual_options(LS_ORDER_LAS);
    options.settings.las_thresholds_device_ms[0] = 3600000;
    options.settings.las_thresholds_device_ms[1] = 0;
    const ls_sim_run run = run_text("submit_s,duration_s,gpus\n0,5000,4\n2000,100,4\n", "1x4", &options);
    expect_s(run.jobs[1].first_start_ms, 2000);
    expect_s(run.jobs[1].end_ms, 2100);
    assert_int_equal(run.jobs[0].preemptions, 1);
    expect_s(run.jobs[0].end_ms, 5000 + 100 + 60);
    expect_s(run.jobs[0].held_ms, 5060);
    expect_s(run.jobs[0].lost_device_ms, 4 * 60);
    expect_s(run.jobs[1].lost_device_ms, 0);
}

static void simulator_run_waits_for_the_least_run_time(void **state)
{
    (void)state;
    /* As above, but b comes at 905, and a falls into the later queue at 900: it has run long
     * enough. With 1000 s to run at least, b waits until then. */
    ls_simulator_options options = usual_options(LS_ORDER_LAS);
    options.settings.las_thresholds_device_ms[0] = 3600000;
    options.settings.las_thresholds_device_ms[1] = 0;
    options.settings.min_run_ms = 1000000;
    const ls_sim_run run = run_text("submit_s,duration_s,gpus\n0,5000,4\n905,100,4\n", "1x4", &options);
    expect_s(run.jobs[1].first_start_ms, 1000);
}

static void simulator_run_shrinks_and_grows_by_the_curve(void **state)
{
    (void)state;
    /* a could run on 1 to 4 of 4, each adding as much: b gets two of them at 100, a goes on with
     * the others. At 700 a is alone again and grows. */
    ls_simulator_options options = usual_options(LS_ORDER_FAIR);
    options.settings.resize_pause_ms = 0;
    const ls_sim_run run = run_text(
        "submit_s,duration_s,gpus,min_gpus,max_gpus\n0,2000,4,1,4\n100,600,2,2,2\n", "1x4", &options);
    expect_s(run.jobs[1].first_start_ms, 100);
    expect_s(run.jobs[1].end_ms, 700);
    assert_int_equal(run.jobs[0].preemptions, 0);
    assert_int_equal(run.jobs[0].resizes, 2);
    /* 100 s on four, 60 s lost, 540 s on two (worth 270), 60 s lost, then 1630 s on four. */
    expect_s(run.jobs[0].end_ms, 700 + 60 + 1630);
    expect_s(run.jobs[0].lost_device_ms, 60 * 2 + 60 * 4);
    expect_s(run.jobs[0].held_device_ms, 100 * 4 + 600 * 2 + 1690 * 4);
}

static void simulator_run_ends_at_the_time_limit_and_refuses_what_never_fits(void **state)
{
    (void)state;
    const ls_simulator_options options = usual_options(LS_ORDER_FIFO_SKIP);
    const ls_sim_run run =
        run_text("submit_s,duration_s,gpus,limit_s,gpus_per_node,kind\n0,1000,4,300,,\n0,10,16,,,\n"
                 "0,10,6,,6,\n0,10,1,,,h100\n0,10,1,,,\n",
                 "2x4", &options);
    expect_s(run.jobs[0].end_ms, 300);
    assert_true(run.jobs[1].refused && run.jobs[2].refused && run.jobs[3].refused);
    expect_s(run.jobs[4].end_ms, 10);
    assert_int_equal(run.unfinished, 0);
}

static void simulator_run_knows_durations_only_for_the_oracles(void **state)
{
    (void)state;
    static const char text[] = "submit_s,duration_s,gpus\n0,10,4\n1,50,4\n2,5,4\n";
    const ls_simulator_options oracle = usual_options(LS_ORDER_SJF_ORACLE),
                               fair = usual_options(LS_ORDER_FAIR);
    const ls_sim_run known = run_text(text, "1x4", &oracle), unknown = run_text(text, "1x4", &fair);
    expect_s(known.jobs[2].first_start_ms, 10);
    expect_s(known.jobs[1].first_start_ms, 15);
    expect_s(unknown.jobs[1].first_start_ms, 10);
}

static void page_escapes_names_and_has_all_pictures(void **state)
{
    (void)state;
    const ls_simulator_options options = usual_options(LS_ORDER_FAIR);
    const ls_sim_run run =
        run_text("submit_s,duration_s,gpus,account\n0,10,4,<b>&\"\n5,3000,2,two\n", "1x4", &options);
    ls_sim_summary summary;
    ls_text text = {0};
    ls_sim_summarise(&arena, &run, &summary);
    ls_sim_page_append(&summary, "x <y>", &text);
    assert_null(strstr(ls_text_string(&text), "<b>&"));
    assert_non_null(strstr(ls_text_string(&text), "&lt;b&gt;&amp;"));
    static const char *const ids[] = {"use", "queue", "jct", "fairness", "accounts", "tables"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        assert_non_null(strstr(ls_text_string(&text), ls_arena_printf(&arena, "id=\"%s\"", ids[i])));
    }
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulator_run_places_gangs_on_nodes),
        cmocka_unit_test(simulator_run_stops_who_had_more_and_loses_the_restart),
        cmocka_unit_test(simulator_run_waits_for_the_least_run_time),
        cmocka_unit_test(simulator_run_shrinks_and_grows_by_the_curve),
        cmocka_unit_test(simulator_run_ends_at_the_time_limit_and_refuses_what_never_fits),
        cmocka_unit_test(simulator_run_knows_durations_only_for_the_oracles),
        cmocka_unit_test(page_escapes_names_and_has_all_pictures),
    };
    return cmocka_run_group_tests(tests, NULL, release_arena);
}
