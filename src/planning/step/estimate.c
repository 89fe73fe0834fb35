// SPDX-License-Identifier: Apache-2.0
#include "planning/step/estimate.h"

#include "planning/step/memory.h"
#include "planning/step/step_time.h"

#include <string.h>

static const double fits_below = 0.85, tight_below = 0.95; /* of the memory */

const char *ls_term_name(ls_term term)
{
    static const char *const names[LS_TERM_COUNT] = {
        "matmul",   "attention", "elementwise", "launch",    "tensor", "context",   "expert",
        "pipeline", "bubble",    "data",        "optimizer", "input",  "straggler", "fixed"};
    return names[term];
}

ls_fit ls_memory_judge(const ls_memory_estimate *memory)
{
    const double share = memory->total / memory->capacity;
    return share <= fits_below ? LS_FIT_YES : share <= tight_below ? LS_FIT_TIGHT : LS_FIT_NO;
}

/* What recompute adds to a sequence's model FLOPs. */
static double recomputed_flops(const ls_setting *setting, const ls_strategy *strategy, double forward)
{
    const ls_shape *shape = setting->shape;
    const double s = (double)setting->length;
    const double head = 2 * s * (double)shape->config.width * (double)shape->config.vocab;
    /* the other half */
    const double attention = 2 * (forward - ls_shape_forward_flops(shape, setting->length, LS_FLOPS_CAUSAL));
    switch (strategy->recompute) {
    case LS_RECOMPUTE_FULL:
        return forward - head;
    case LS_RECOMPUTE_SELECTIVE:
        return setting->stack->flash ? setting->stack->selective_matmul * (forward - head - attention)
                                     : attention;
    case LS_RECOMPUTE_NONE:
        break;
    }
    return 0;
}

void ls_estimate_compute(const ls_setting *setting, const ls_strategy *strategy, ls_estimate *estimate_out)
{
    ls_estimate *e = estimate_out;
    e->strategy = *strategy;
    ls_memory_compute(setting, strategy, &e->memory);
    e->fit = ls_memory_judge(&e->memory);
    ls_step_time_compute(setting, strategy, &e->time);

    const double sequences = (double)setting->global_batch;
    const double forward = ls_shape_forward_flops(setting->shape, setting->length, LS_FLOPS_FULL_ATTENTION);
    e->tokens_ps = sequences * (double)setting->length / e->time.step_s;
    e->model_flops = 3 * forward * sequences;
    e->hardware_flops = e->model_flops + sequences * recomputed_flops(setting, strategy, forward);
    const double gpu_seconds = e->time.step_s * (double)setting->gpus;
    const double peak = ls_peak_flops(setting->node->accelerator, setting->precision);
    e->tflops_per_gpu = e->model_flops / gpu_seconds / 1e12;
    e->mfu = e->model_flops / gpu_seconds / peak;
    e->hfu = e->hardware_flops / gpu_seconds / peak;
}

ls_status ls_estimate_explain(const ls_setting *setting, const ls_strategy *strategy, const char *term,
                              ls_text *text)
{
    /* "optimizer" is a term of both. */
    const bool is_time = ls_step_time_explain(setting, strategy, term, text);
    if (ls_memory_explain(setting, strategy, term, text) || is_time) {
        return LS_OK;
    }
    if (strcmp(term, "constants") == 0) {
        ls_stack_explain(setting->stack, text);
        return LS_OK;
    }
    char names[256] = "";
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        strncat(names, ls_term_name((ls_term)i), sizeof(names) - strlen(names) - 1);
        strncat(names, ", ", sizeof(names) - strlen(names) - 1);
    }
    return ls_fail(
        LS_ERR_NOT_FOUND,
        "term %s is unknown; terms of time are %sthose of memory are weights, gradients, optimizer, "
        "activations, buffers, memory; `constants` shows what is assumed about the training software",
        term, names);
}
