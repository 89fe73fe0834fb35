// SPDX-License-Identifier: Apache-2.0
/* The same work on more and on fewer GPUs: the scaling curve, and the ladder of stages. */
#include "planning/answer/answer_internal.h"

#include <string.h>

#define CURVE_GPUS_MOST 16384

/* The goodput for the setting's number of GPUs, all else as in the answer. */
static double goodput_of(void *context, const ls_setting *setting, const ls_estimate *estimate)
{
    (void)estimate;
    const ls_plan_answer *answer = context;
    ls_failure_setting failure = answer->failure_setting;
    ls_failure_estimate result;
    failure.gpus = setting->gpus;
    ls_failure_compute(&failure, &result);
    return result.goodput;
}

/* The request for other GPU counts. A fully given strategy changes only dp. With a partly given
 * one, what is chosen at this count must be what was chosen in the answer. */
static ls_strategy_request request_for_any_count(const ls_plan_answer *answer)
{
    const ls_strategy *own = &answer->estimate.strategy;
    ls_strategy_request request = answer->request;
    if (ls_strategy_is_complete(&answer->request)) {
        request.strategy = *own;
        request.has_zero = request.has_recompute = request.has_sequence_parallel = request.has_schedule =
            true;
    } else if (answer->search && request.strategy.dp > 0) {
        request.strategy.tp = own->tp;
        request.strategy.pp = own->pp;
        request.strategy.cp = own->cp;
    }
    request.strategy.dp = 0;
    return request;
}

static int64_t smallest_of(const ls_plan_answer *answer)
{
    int64_t gpus = answer->setting.gpus;
    while (gpus % 2 == 0 && gpus > 1) {
        gpus /= 2;
    }
    return gpus;
}

ls_status ls_plan_scale(ls_plan_answer *answer)
{
    if (ls_plan_is_here(answer, &answer->node)) { /* only one of it exists */
        return LS_OK;
    }
    const int64_t gpus = answer->setting.gpus;
    const bool curve = answer->asked->scaling || answer->asked->draw;
    const ls_scaling_options options = {
        .search = {.request = request_for_any_count(answer),
                   .any_schedule = answer->asked->schedule == LS_PLAN_SCHEDULE_ANY},
        .gpus_min = curve           ? smallest_of(answer)
                    : gpus % 2 == 0 ? gpus / 2
                                    : gpus,
        .gpus_max = curve && gpus < CURVE_GPUS_MOST ? CURVE_GPUS_MOST : 2 * gpus,
        .tokens = answer->tokens,
        .price_gpu_hour = answer->outcome ? answer->outcome->usd_per_gpu_hour : 0.0,
        .goodput = goodput_of,
        .context = answer,
    };
    answer->curve = ls_arena_new(answer->arena, ls_scaling, 1);
    return ls_scaling_compute(&answer->setting, &options, answer->curve);
}

/* ---- the ladder ---- */

/* Finds the fewest GPUs, a tenth or more, that hold the model, with the best strategy there. False:
 * nothing smaller than the full run does. */
static bool find_tenth(ls_plan_answer *answer, const ls_strategy_request *request, ls_ladder_setting *setting)
{
    int64_t sizes[LS_LADDER_TENTHS];
    const size_t count = ls_ladder_tenths(&answer->node, answer->setting.gpus, sizes);
    ls_search_result *result = ls_arena_new(answer->arena, ls_search_result, 1);
    const ls_search_options options = {.request = *request};
    for (size_t i = 0; i < count; i++) {
        ls_setting smaller = answer->setting;
        smaller.gpus = sizes[i];
        if (ls_search_run(&smaller, &options, result) == LS_OK) {
            char strategy[192];
            ls_strategy_describe(&result->best.strategy, strategy, sizeof strategy);
            setting->tenth_gpus = sizes[i];
            setting->tenth_tokens_ps = result->best.tokens_ps;
            setting->tenth_memory_gib = result->best.memory.total / LS_PLAN_GIB;
            setting->tenth_strategy = ls_arena_strdup(answer->arena, strategy);
            return true;
        }
        ls_error_clear();
    }
    return false;
}

/* With the given strategy where possible, else with any. */
static void set_tenth(ls_plan_answer *answer, ls_ladder_setting *setting)
{
    const ls_strategy_request open = {.has_zero = false};
    ls_strategy_request same = answer->request;
    same.strategy.dp = 0;
    if (!find_tenth(answer, &same, setting)) {
        find_tenth(answer, &open, setting);
    }
}

void ls_plan_climb(ls_plan_answer *answer)
{
    const ls_estimate *estimate = &answer->estimate;
    ls_ladder_setting setting = {
        .node = &answer->node,
        .is_exact = strcmp(answer->setting.stack->name, "lockstep") == 0,
        .gpus = answer->setting.gpus,
        .step_s = estimate->time.step_s,
        .step_band = {answer->band.low_s / estimate->time.step_s,
                      answer->band.high_s / estimate->time.step_s},
        .memory_gib = estimate->memory.total / LS_PLAN_GIB,
        .run_days = answer->days,
        .goodput = answer->failure.goodput,
        .usd_per_gpu_hour = answer->outcome ? answer->outcome->usd_per_gpu_hour : 0.0,
        .interval_s = answer->failure.interval_s,
        .restart_s = answer->failure_setting.restart_s > 0.0 ? answer->failure_setting.restart_s
                                                             : LS_FAILURE_RESTART_S,
    };
    set_tenth(answer, &setting);
    ls_ladder_compute(&setting, &answer->ladder);
}
