// SPDX-License-Identifier: Apache-2.0
#include "planning/step/memory_own.h"

#include "config/run_file.h"
#include "planning/step/memory.h"

#include <string.h>

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

ls_memory_estimate ls_own_memory_estimate(const ls_memory_plan *memory, double capacity_bytes)
{
    ls_memory_estimate m = {.weights = (double)memory->parameters,
                            .gradients = (double)(memory->gradients + memory->tree),
                            .optimizer = (double)(memory->optimizer + memory->residuals),
                            .activations = (double)(memory->activations + memory->logits),
                            .total = (double)memory->total,
                            .capacity = capacity_bytes};
    m.buffers = m.total - (m.weights + m.gradients + m.optimizer + m.activations);
    return m;
}

bool ls_own_memory_explain(const ls_memory_plan *memory, double capacity_bytes, const char *name,
                           ls_text *text)
{
    static const double GIB = 1073741824.0;
    const ls_memory_plan *p = memory;
    const ls_memory_estimate m = ls_own_memory_estimate(memory, capacity_bytes);
    if (strcmp(name, "weights") == 0) {
        ls_text_printf(text, "weights = one flat buffer of fp32 = %.4f GiB\n", m.weights / GIB);
    } else if (strcmp(name, "gradients") == 0) {
        ls_text_printf(text,
                       "gradients = one flat buffer %.4f + %u more for the tree of leaves %.4f = %.4f GiB\n",
                       (double)p->gradients / GIB, p->tree_buffers > 0 ? p->tree_buffers - 1 : 0,
                       (double)p->tree / GIB, m.gradients / GIB);
    } else if (strcmp(name, "optimizer") == 0) {
        ls_text_printf(text, "optimizer = two moments of AdamW, fp32 %.4f", (double)p->optimizer / GIB);
        if (p->residuals > 0) {
            ls_text_printf(text, " + what compression left out of each group's gradients %.4f",
                           (double)p->residuals / GIB);
        }
        ls_text_printf(text, " = %.4f GiB\n", m.optimizer / GIB);
    } else if (strcmp(name, "activations") == 0) {
        ls_text_printf(
            text,
            "activations = arena of the op plan %.4f + the chunk of logits %.4f = %.4f GiB   (each value "
            "occupies its place from the step that writes it to the last step that reads it)\n",
            (double)p->activations / GIB, (double)p->logits / GIB, m.activations / GIB);
    } else if (strcmp(name, "buffers") == 0) {
        ls_text_printf(
            text, "buffers = tables, sums for the norm, tokens, the gradient of a tied head = %.4f GiB\n",
            m.buffers / GIB);
    } else if (strcmp(name, "memory") == 0) {
        ls_text_printf(text,
                       "memory = weights %.4f + gradients %.4f + optimizer %.4f + activations %.4f + buffers "
                       "%.4f = %.4f GiB of %.2f (%.0f %%)\n",
                       m.weights / GIB, m.gradients / GIB, m.optimizer / GIB, m.activations / GIB,
                       m.buffers / GIB, m.total / GIB, capacity_bytes / GIB,
                       100.0 * m.total / capacity_bytes);
    } else {
        return false;
    }
    ls_text_append(text, "Lockstep allocates exactly this before the first step (ls_plan_memory)\n");
    return true;
}
