// SPDX-License-Identifier: Apache-2.0
/* bench plan: how long one estimate and a search over all strategies take. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/math.h"
#include "planning/step/search.h"

enum { EVALUATIONS = 20000, SEARCHES_MOST = 16 };

static ls_status build_setting(ls_arena *arena, ls_setting *setting)
{
    ls_catalogue *catalogue = ls_arena_new(arena, ls_catalogue, 1);
    ls_shape *shape = ls_arena_new(arena, ls_shape, 1);
    ls_stack *stack = ls_arena_new(arena, ls_stack, 1);
    const ls_accelerator *accelerator = NULL;
    const char *from = NULL;
    LS_TRY(ls_catalogue_load(arena, NULL, 0, catalogue));
    LS_TRY(ls_catalogue_find_accelerator(catalogue, "h100", &accelerator));
    LS_TRY(ls_shape_parse(arena, "gpt3-175b", shape));
    LS_TRY(ls_stack_find("megatron-core", accelerator, stack, &from));
    *setting = (ls_setting){.shape = shape,
                            .node = ls_catalogue_usual_node(catalogue, arena, accelerator),
                            .stack = stack,
                            .length = 2048};
    return LS_OK;
}

/* Median seconds of `rounds` searches. */
static ls_status time_search(ls_setting setting, int64_t gpus, uint64_t rounds, ls_search_result *result,
                             double *seconds_out)
{
    const ls_search_options options = {.top = 5};
    double seconds[SEARCHES_MOST];
    const uint64_t count = rounds < SEARCHES_MOST ? rounds : SEARCHES_MOST;
    setting.gpus = gpus;
    setting.global_batch = 2 * gpus; /* a batch that can be spread in many ways */
    for (uint64_t i = 0; i < count; i++) {
        const double start_s = ls_clock_monotonic_s();
        LS_TRY(ls_search_run(&setting, &options, result));
        seconds[i] = ls_clock_monotonic_s() - start_s;
    }
    *seconds_out = ls_median_f64(seconds, count);
    return LS_OK;
}

/* Median microseconds of one estimate. The micro-batch alternates, so nothing can be reused. */
static double time_evaluation(const ls_setting *setting, ls_strategy strategy, uint64_t rounds)
{
    ls_estimate estimate;
    double sum = 0.0, seconds[SEARCHES_MOST];
    const uint64_t count = rounds < SEARCHES_MOST ? rounds : SEARCHES_MOST;
    for (uint64_t round = 0; round < count; round++) {
        const double start_s = ls_clock_monotonic_s();
        for (int i = 0; i < EVALUATIONS; i++) {
            strategy.micro_batch = 1 + (i & 1);
            ls_estimate_compute(setting, &strategy, &estimate);
            sum += estimate.time.step_s;
        }
        seconds[round] = ls_clock_monotonic_s() - start_s;
    }
    return sum > 0.0 ? 1e6 * ls_median_f64(seconds, count) / EVALUATIONS : -1.0;
}

ls_status ls_bench_plan(ls_arena *arena, uint64_t rounds, json_t **row_out)
{
    ls_setting setting;
    LS_TRY(build_setting(arena, &setting));
    ls_search_result *result = ls_arena_new(arena, ls_search_result, 1);
    double small_s = 0.0, large_s = 0.0;
    LS_TRY(time_search(setting, 16384, rounds, result, &large_s));
    const uint64_t large_count = result->evaluated;
    LS_TRY(time_search(setting, 1024, rounds, result, &small_s));
    setting.gpus = 1024;
    setting.global_batch = 2 * setting.gpus;
    *row_out = json_pack("{s:f, s:f, s:f, s:I, s:I}", "evaluate_us",
                         time_evaluation(&setting, result->best.strategy, rounds), "search_1024_s", small_s,
                         "search_16384_s", large_s, "evaluated_1024", (json_int_t)result->evaluated,
                         "evaluated_16384", (json_int_t)large_count);
    return LS_OK;
}
