// SPDX-License-Identifier: Apache-2.0
#include "planning/step/forecast.h"

#include "planning/step/own_time.h"

static ls_status read_config(ls_arena *arena, ls_run_file *run, ls_model_config *config, ls_layout *layout)
{
    if (run->model.from[0]) {
        return ls_fail(LS_ERR_UNSUPPORTED, "the model's sizes are in %s (model.from)", run->model.from);
    }
    if (!ls_run_file_adopt_own_vocab(run)) {
        return ls_fail(LS_ERR_UNSUPPORTED, "the vocabulary is in %s (tokenizer.file)", run->tokenizer.file);
    }
    LS_TRY(ls_run_file_model_config(run, config));
    LS_TRY(ls_model_config_check(config));
    const ls_option_strings *freeze = &run->train.freeze;
    return ls_layout_build_frozen(arena, config, freeze->items, freeze->count, layout);
}

/* Batches of an evaluation go through the forward steps, with the threads of all ranks. */
static double evaluations_s(const ls_run_file *run, const ls_calibration *calibration, const ls_plan *plan,
                            uint32_t threads, uint64_t steps)
{
    if (steps == 0 || run->eval.batches == 0) {
        return 0.0;
    }
    const uint64_t count =
        run->eval.every_steps > 0 ? (steps + run->eval.every_steps - 1) / run->eval.every_steps : 1;
    double forward_s = 0.0;
    for (uint32_t i = 0; i < plan->forward_steps; i++) {
        ls_term term;
        forward_s += ls_own_plan_step_s(calibration, plan, i, threads, 1, false, &term);
    }
    const double micro_batches = (double)(run->train.global_batch / run->train.micro_batch);
    return (double)count * (double)run->eval.batches * micro_batches * forward_s;
}

ls_status ls_forecast_make(ls_arena *arena, const ls_run_file *file, const ls_calibration *calibration,
                           uint32_t threads, uint32_t ranks_min, uint32_t ranks_max,
                           ls_forecast *forecast_out)
{
    ls_run_file run = *file;
    ls_model_config config;
    ls_layout layout;
    ls_plan plan;
    LS_TRY(read_config(arena, &run, &config, &layout));
    const ls_run_train *train = &run.train;
    const ls_plan_options options = {.sequences = (int64_t)train->micro_batch,
                                     .length = (int64_t)run.model.context,
                                     .training = true,
                                     .losses = true,
                                     .recompute = (ls_recompute)train->recompute,
                                     .tensor_cut = (uint32_t)train->tensor_cut};
    LS_TRY(ls_plan_build(arena, &config, &layout, &options, &plan));
    const uint32_t each = train->threads != LS_AUTO_U64 ? (uint32_t)train->threads : threads;
    const bool is_long = train->steps == LS_AUTO_U64 || train->epochs > 0.0;
    ls_forecast f = {.steps = is_long ? 0 : train->steps, .ranks_min = ranks_min};
    const uint64_t most = ranks_max < train->leaves ? ranks_max : train->leaves;
    for (uint32_t ranks = ranks_min; ranks <= most && f.count < LS_FORECAST_RANKS_MAX; ranks++) {
        const ls_own_run own = {.plan = &plan,
                                .leaves = (uint32_t)train->leaves,
                                .micro_batches =
                                    (uint32_t)(train->global_batch / train->leaves / train->micro_batch),
                                .ranks = ranks,
                                .threads = each};
        ls_own_time time;
        ls_own_time_compute(calibration, &own, &time);
        f.step_s[f.count++] = time.step_s;
    }
    f.evaluations_s = evaluations_s(&run, calibration, &plan, each * ranks_min, f.steps);
    *forecast_out = f;
    return LS_OK;
}

double ls_forecast_run_s(const ls_forecast *f, uint32_t ranks)
{
    if (f->steps == 0 || ranks < f->ranks_min || ranks - f->ranks_min >= f->count) {
        return 0.0;
    }
    return (double)f->steps * f->step_s[ranks - f->ranks_min] + f->evaluations_s;
}
