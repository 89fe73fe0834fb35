// SPDX-License-Identifier: Apache-2.0
#include "model/plan_stage.h"

#include "base/assert.h"
#include "model/plan_internal.h"

/* ---- cutting ---- */

/* The best way to cut the layers before one into a number of runs: FLOPs of its fullest run, the
 * sum of their squares to choose among ways with equal ones, and where the last run begins. */
typedef struct cut {
    double fullest, squares;
    uint32_t first;
} cut;

/* FLOPs of the layers before each layer, in training; the last entry has the head. */
static double *sums_before(ls_arena *scratch, const ls_plan *whole)
{
    const uint32_t layers = whole->options.layer_count;
    double *sums = ls_arena_new(scratch, double, layers + 1);
    for (uint32_t i = 0; i < whole->step_count; i++) {
        const int32_t layer = whole->ops[whole->steps[i].op].layer;
        sums[layer >= 0 ? (uint32_t)layer + 1 : layers] += ls_plan_step_flops(whole, i);
    }
    for (uint32_t i = 1; i <= layers; i++) {
        sums[i] += sums[i - 1];
    }
    return sums;
}

static bool is_better(const cut *a, const cut *b)
{
    return a->fullest < b->fullest || (a->fullest <= b->fullest && a->squares < b->squares);
}

/* Fills row `run` of the table: the best cuts of the first 1, 2, ... layers into run + 1 runs. */
static void find_cuts(const double *sums, uint32_t layers, uint32_t run, const cut *before, cut *row)
{
    for (uint32_t past = run + 1; past <= layers; past++) {
        bool found = false;
        for (uint32_t first = run; first < past; first++) {
            if (run == 0 && first > 0) {
                break;
            }
            const double own = sums[past] - sums[first];
            const cut base = run == 0 ? (cut){0} : before[first];
            const cut candidate = {.fullest = own > base.fullest ? own : base.fullest,
                                   .squares = base.squares + own * own,
                                   .first = first};
            if (!found || is_better(&candidate, &row[past])) {
                row[past] = candidate;
                found = true;
            }
        }
    }
}

ls_status ls_plan_cut_layers(ls_arena *scratch, const ls_plan *whole, uint32_t runs, uint32_t *first_out)
{
    const uint32_t layers = whole->options.layer_count;
    LS_ASSERT(runs >= 1 && whole->stage.in == LS_NONE && whole->stage.out == LS_NONE);
    if (runs > layers) {
        return ls_fail(
            LS_ERR_INVALID,
            "pipeline: %u stages (times chunks) are more than the model's %u layers; use at most %u", runs,
            layers, layers);
    }
    const double *sums = sums_before(scratch, whole);
    cut *table = ls_arena_new(scratch, cut, (size_t)runs * (layers + 1));
    for (uint32_t run = 0; run < runs; run++) {
        cut *row = table + (size_t)run * (layers + 1);
        find_cuts(sums, layers, run, run > 0 ? row - (layers + 1) : NULL, row);
    }
    first_out[runs] = layers;
    for (uint32_t run = runs; run-- > 0;) {
        first_out[run] = table[(size_t)run * (layers + 1) + first_out[run + 1]].first;
    }
    return LS_OK;
}

/* ---- plans ---- */

ls_status ls_plan_build_stage(ls_arena *arena, const ls_plan *whole, const ls_pipeline *pipeline,
                              uint32_t stage, const ls_pipeline_work *list, ls_plan *plans_out)
{
    LS_TRY(ls_pipeline_check(pipeline));
    LS_ASSERT(stage < pipeline->stages);
    const uint32_t runs = pipeline->stages * pipeline->chunks;
    uint32_t *first = ls_arena_new(arena, uint32_t, runs + 1);
    LS_TRY(ls_plan_cut_layers(arena, whole, runs, first));
    ls_plan_options options = whole->options;
    options.slots = ls_pipeline_slots(pipeline, list);
    options.split_backward = ls_pipeline_splits_backward(pipeline);
    for (uint32_t chunk = 0; chunk < pipeline->chunks; chunk++) {
        const uint32_t run = chunk * pipeline->stages + stage;
        options.first_layer = first[run];
        options.layer_count = first[run + 1] - first[run];
        LS_TRY(ls_plan_build(arena, &whole->config, whole->layout, &options, &plans_out[chunk]));
    }
    return LS_OK;
}
