// SPDX-License-Identifier: Apache-2.0
#include "planning/step/memory_own.h"

#include "config/run_file.h"
#include "planning/step/memory.h"

static bool can_run(const ls_setting *setting, const ls_strategy *s)
{
    const ls_shape *shape = setting->shape;
    const bool gpt2 = shape->config.family == LS_FAMILY_GPT2;
    return s->tp == 1 && s->pp == 1 && s->cp == 1 && s->ep == 1 &&
           shape->moe.experts == shape->config.experts && shape->latent.kv_rank == 0 &&
           setting->length <= shape->config.context && shape->config.swiglu == !gpt2;
}

bool ls_memory_own(const ls_setting *setting, const ls_strategy *s, ls_memory_estimate *memory_out)
{
    if (!can_run(setting, s)) {
        return false;
    }
    ls_arena arena = {0};
    ls_layout layout;
    ls_plan plan, evaluation;
    ls_plan_options options = {
        .sequences = s->micro_batch,
        .length = setting->length,
        .training = true,
        .losses = true,
        .recompute = s->recompute,
        .tensor_cut = 1,
    };
    const ls_model_config *config = &setting->shape->config;
    ls_layout_build(&arena, config, &layout);
    bool built = ls_plan_build(&arena, config, &layout, &options, &plan) == LS_OK;
    options.training = false;
    built = built && ls_plan_build(&arena, config, &layout, &options, &evaluation) == LS_OK;
    if (built) {
        const uint64_t most = s->dp > LS_RUN_FILE_MAX_RANKS ? (uint64_t)s->dp : LS_RUN_FILE_MAX_RANKS;
        const uint64_t leaves = ls_run_file_auto_leaves(
            (uint64_t)setting->global_batch, (uint64_t)s->micro_batch, (uint64_t)setting->length, most);
        const uint64_t own = (leaves + (uint64_t)s->dp - 1) / (uint64_t)s->dp; /* of one rank */
        const ls_memory_plan memory = ls_plan_memory(&plan, (uint32_t)own, 0, 0);
        const double ranks = (double)s->dp;
        ls_memory_estimate m = {
            .weights = (double)memory.parameters / ranks,
            .gradients = (double)(memory.gradients + memory.tree),
            .optimizer = (double)memory.optimizer / ranks,
            .activations = (double)(memory.activations + memory.logits),
            .buffers = (double)memory.other + 4.0 * (double)evaluation.arena_floats / ranks +
                       setting->stack->context_bytes,
            .capacity = ls_memory_capacity(setting->node->accelerator),
        };
        m.total = m.weights + m.gradients + m.optimizer + m.activations + m.buffers;
        *memory_out = m;
    }
    ls_arena_release(&arena);
    return built;
}
