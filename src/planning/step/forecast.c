// SPDX-License-Identifier: Apache-2.0
#include "planning/step/forecast.h"

#include "planning/step/own_time.h"

#include <string.h>

enum { ALIKE_LAYERS = 3 }; /* first, middle, last */

static ls_status read_config(ls_run_file *run, ls_model_config *config)
{
    if (run->model.from[0]) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "the model's sizes are in %s (model.from), which a forecast does not open",
                       run->model.from);
    }
    if (!ls_run_file_adopt_own_vocab(run)) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "the vocabulary is in %s (tokenizer.file), which a forecast does not open",
                       run->tokenizer.file);
    }
    LS_TRY(ls_run_file_model_config(run, config));
    LS_TRY(ls_model_config_check(config));
    const int64_t sequences = (int64_t)run->train.micro_batch;
    return sequences <= LS_FORECAST_TOKENS_MAX / config->context
               ? LS_OK
               : ls_fail(LS_ERR_UNSUPPORTED,
                         "a micro-batch of %lld sequences of %lld tokens is too large for a forecast, which "
                         "allows at most %lld tokens in all",
                         (long long)sequences, (long long)config->context, (long long)LS_FORECAST_TOKENS_MAX);
}

/* ---- the plan ---- */

typedef struct model {
    ls_layout built, whole; /* of the layers of the plan, of all */
    ls_plan plan;
    uint32_t middle_layers;
} model;

static bool is_soon_matched(const ls_option_strings *patterns)
{
    bool is_soon = patterns->count <= LS_FORECAST_PATTERNS_MAX;
    for (uint64_t i = 0; is_soon && i < patterns->count; i++) {
        const char *first = strchr(patterns->items[i], '*'), *second = first ? strchr(first + 1, '*') : NULL;
        is_soon = !second || !strchr(second + 1, '*');
    }
    return is_soon;
}

/* The layout of all layers from that of three: what its buckets hold. */
static void widen(ls_arena *arena, const ls_layout *built, uint32_t more, ls_layout *whole)
{
    const uint32_t middle = 1 + LS_OWN_MIDDLE_LAYER;
    const int64_t count = built->buckets[middle].count;
    *whole = *built;
    whole->buckets = ls_arena_new(arena, ls_bucket, built->bucket_count + more);
    whole->bucket_count = whole->section_count = built->bucket_count + more;
    for (uint32_t i = 0; i < whole->bucket_count; i++) {
        whole->buckets[i] = built->buckets[i < middle ? i : i < middle + more ? middle : i - more];
    }
    whole->float_count += count * more;
    whole->parameter_floats += count * more;
}

static ls_status build_model(ls_arena *arena, const ls_run_train *train, const ls_model_config *config,
                             model *m)
{
    const ls_option_strings *freeze = &train->freeze;
    const bool is_alike = freeze->count == 0 && config->window_first_layer == 0;
    ls_model_config few = *config;
    if (!is_alike && (config->layers > LS_FORECAST_FROZEN_LAYERS_MAX || !is_soon_matched(freeze))) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "no forecast is made for models whose layers differ: they are examined when the run starts");
    }
    if (is_alike && few.layers > ALIKE_LAYERS) {
        few.layers = ALIKE_LAYERS;
    }
    const uint32_t more = (uint32_t)(config->layers - few.layers);
    const ls_plan_options options = {.sequences = (int64_t)train->micro_batch,
                                     .length = config->context,
                                     .training = true,
                                     .losses = true,
                                     .recompute = (ls_recompute)train->recompute,
                                     .tensor_cut = (uint32_t)train->tensor_cut,
                                     .sequence_cut = (uint32_t)train->sequence_cut};
    LS_TRY(ls_layout_build_frozen(arena, &few, freeze->items, freeze->count, &m->built));
    LS_TRY(ls_plan_build(arena, &few, &m->built, &options, &m->plan));
    if (more > 0) {
        widen(arena, &m->built, more, &m->whole);
        m->plan.layout = &m->whole;
    }
    m->middle_layers = 1 + more;
    return LS_OK;
}

/* ---- its times ---- */

static double forward_s(const model *m, const ls_calibration *calibration, uint32_t threads)
{
    double sum_s = 0.0;
    for (uint32_t i = 0; i < m->plan.forward_steps; i++) {
        ls_term term;
        const bool is_middle = m->plan.ops[m->plan.steps[i].op].layer == LS_OWN_MIDDLE_LAYER;
        sum_s += (is_middle ? m->middle_layers : 1) *
                 ls_own_plan_step_s(calibration, &m->plan, i, threads, false, &term);
    }
    return sum_s;
}

/* The key of the memo: the numbers that matter, in this order. */
enum {
    MICRO_BATCH,
    MICRO_BATCHES,
    LEAVES,
    RECOMPUTE,
    CUT,
    THREADS,
    RANKS_MIN,
    RANKS_MAX,
    FROZEN,
    HASH_EVERY
};

static ls_status make(ls_arena *arena, const ls_run_train *train, ls_forecast_kept *k)
{
    const uint64_t *n = k->numbers, most = n[RANKS_MAX] < n[LEAVES] ? n[RANKS_MAX] : n[LEAVES];
    model m;
    LS_TRY(build_model(arena, train, &k->config, &m));
    ls_forecast f = {.ranks_min = (uint32_t)n[RANKS_MIN]};
    for (uint64_t ranks = n[RANKS_MIN]; ranks <= most && f.count < LS_FORECAST_RANKS_MAX; ranks++) {
        const ls_own_run own = {.plan = &m.plan,
                                .leaves = (uint32_t)n[LEAVES],
                                .micro_batches = (uint32_t)n[MICRO_BATCHES],
                                .ranks = (uint32_t)ranks,
                                .threads = (uint32_t)n[THREADS],
                                .hash_every_steps = n[HASH_EVERY],
                                .middle_layers = m.middle_layers};
        ls_own_time time;
        ls_own_time_compute(k->calibration, &own, &time);
        f.step_s[f.count++] = time.step_s;
    }
    /* Batches of an evaluation go through the forward steps, with the threads of all ranks. */
    k->forward_s = forward_s(&m, k->calibration, (uint32_t)(n[THREADS] * n[RANKS_MIN]));
    k->forecast = f;
    return LS_OK;
}

static double evaluations_s(const ls_run_file *run, double micro_batch_s, uint64_t steps)
{
    if (steps == 0 || run->eval.batches == 0) {
        return 0.0;
    }
    const uint64_t every = run->eval.every_steps, count = every > 0 ? steps / every + (steps % every > 0) : 1;
    const double micro_batches = (double)(run->train.global_batch / run->train.micro_batch);
    return (double)count * (double)run->eval.batches * micro_batches * micro_batch_s;
}

ls_status ls_forecast_make(ls_arena *arena, const ls_run_file *file, const ls_forecast_request *request,
                           ls_forecast_kept *kept, ls_forecast *forecast_out)
{
    const ls_calibration *calibration = request->calibration;
    ls_run_file run = *file;
    const ls_run_train *train = &run.train;
    ls_forecast_kept now = {.calibration = calibration, .made = kept->made + 1};
    LS_TRY(read_config(&run, &now.config));
    const uint64_t numbers[LS_FORECAST_NUMBERS] = {
        [MICRO_BATCH] = train->micro_batch,
        [MICRO_BATCHES] = train->global_batch / train->leaves / train->micro_batch,
        [LEAVES] = train->leaves,
        [RECOMPUTE] = (uint64_t)train->recompute,
        [CUT] = train->tensor_cut,
        [THREADS] = train->threads != LS_AUTO_U64 ? train->threads : request->threads,
        [RANKS_MIN] = request->ranks_min,
        [RANKS_MAX] = request->ranks_max,
        [FROZEN] = train->freeze.count, /* patterns are not compared */
        [HASH_EVERY] = train->hash_every_steps,
    };
    memcpy(now.numbers, numbers, sizeof numbers);
    const bool is_same = kept->calibration == calibration && train->freeze.count == 0 &&
                         memcmp(numbers, kept->numbers, sizeof numbers) == 0 &&
                         ls_model_config_equal(&now.config, &kept->config);
    if (!is_same) {
        LS_TRY(make(arena, train, &now));
        *kept = now;
    }
    ls_forecast f = kept->forecast;
    const bool is_long = train->steps == LS_AUTO_U64 || train->epochs > 0.0;
    f.steps = is_long ? 0 : train->steps;
    f.evaluations_s = evaluations_s(&run, kept->forward_s, f.steps);
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
