// SPDX-License-Identifier: Apache-2.0
#include "planning/step/finetune.h"

#include "base/math.h"
#include "planning/step/memory.h"

#include <math.h>
#include <string.h>

#define NF4_BYTES     ((4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0)
#define BASE_BYTES    2.0 /* bf16 */
#define ADAPTER_BYTES 4.0 /* float32: a weight, its gradient, and each of two moments */
#define LOSS_CHUNKS   8.0 /* torchtune's number of them; others fuse the loss */
#define MICRO_MOST    8
#define TOKENS_LEAST  2048 /* fewer in a pass leave a GPU idle */

const char *const ls_finetune_names[LS_FINETUNE_KINDS + 1] = {"full", "lora", "qlora", NULL};

/* Products that are fused in the plan but have an adapter each. */
static double fused(const ls_shape *shape, const ls_shape_linear *linear)
{
    if (strcmp(linear->name, "qkv") == 0) {
        return shape->config.family == LS_FAMILY_GPT2 ? 1.0 : 3.0;
    }
    const bool is_up = strcmp(linear->name, "up") == 0 || strcmp(linear->name, "expert up") == 0;
    return is_up && shape->config.swiglu ? 2.0 : 1.0;
}

double ls_finetune_adapter_parameters(const ls_shape *shape, int64_t rank)
{
    double layer = 0.0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        const ls_shape_linear *l = &shape->linears[i];
        const double copies = l->expert ? (double)shape->moe.experts : 1.0;
        layer += copies * (fused(shape, l) * (double)l->in + (double)l->out);
    }
    return (double)shape->config.layers * (double)rank * layer;
}

static double largest_matrix(const ls_shape *shape)
{
    double largest = 0.0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        largest = fmax(largest, (double)shape->linears[i].in * (double)shape->linears[i].out);
    }
    return largest;
}

static void compute_memory(const ls_setting *setting, ls_finetune_estimate *e)
{
    ls_memory_parts p;
    ls_memory_parts_compute(setting, &e->strategy, 0, &p);
    const double matrices = p.matrix_parameters + p.expert_parameters;
    const double others = p.vector_parameters + p.embedding_parameters;
    const double adapters = ADAPTER_BYTES * e->adapter_parameters, gpus = (double)setting->gpus;
    ls_memory_estimate m = {
        .weights = adapters + BASE_BYTES * others +
                   (e->kind == LS_FINETUNE_QLORA ? NF4_BYTES : BASE_BYTES) * matrices,
        .gradients = adapters,
        .optimizer = 2.0 * adapters,
        .activations = p.layers * p.layer_kept + p.layer_again + p.loss / LOSS_CHUNKS,
        .buffers = p.gathered + p.bucket + p.transient,
        .capacity = ls_memory_capacity(setting->node->accelerator),
    };
    if (e->kind == LS_FINETUNE_FULL) {
        m.weights = p.weight_bytes * (matrices + others);
        m.gradients = p.gradient_bytes * (matrices + others);
        m.optimizer = p.optimizer_bytes * matrices + p.vector_optimizer_bytes * others;
    } else if (e->kind == LS_FINETUNE_QLORA) {
        m.buffers += BASE_BYTES * largest_matrix(setting->shape);
    }
    m.weights /= gpus;
    m.gradients /= gpus;
    m.optimizer /= gpus;
    const double asked = m.weights + m.gradients + m.optimizer + m.activations + m.buffers;
    m.buffers += asked * setting->stack->allocator_slack + setting->stack->context_bytes;
    m.total = m.weights + m.gradients + m.optimizer + m.activations + m.buffers;
    e->memory = m;
    e->fit = ls_memory_judge(&m);
}

static void compute_time(const ls_setting *setting, ls_finetune_estimate *e)
{
    ls_estimate whole;
    ls_estimate_compute(setting, &e->strategy, &whole);
    double step_s = whole.time.step_s;
    if (e->kind != LS_FINETUNE_FULL) {
        const double parts = e->strategy.recompute == LS_RECOMPUTE_FULL ? 4.0 : 3.0;
        step_s -= whole.time.terms_s[LS_TERM_MATMUL] / parts + whole.time.terms_s[LS_TERM_OPTIMIZER];
        if (e->kind == LS_FINETUNE_QLORA) {
            const double matrices = (double)setting->shape->config.layers *
                                    (double)(setting->shape->layer_matrices + setting->shape->layer_experts);
            const double moved = (parts - 1.0) * matrices * (NF4_BYTES + 2.0 * BASE_BYTES);
            step_s += (double)whole.time.micro_batches * moved /
                      (setting->node->accelerator->memory_bytes_ps * setting->stack->memory_efficiency);
        }
    }
    e->tokens_ps = (double)setting->global_batch * (double)setting->length / step_s;
}

static bool try_way(const ls_setting *setting, int64_t micro_batch, ls_recompute recompute,
                    ls_finetune_estimate *e)
{
    e->strategy.micro_batch = micro_batch;
    e->strategy.recompute = recompute;
    compute_memory(setting, e);
    return e->fit != LS_FIT_NO;
}

/* Tries what the request leaves open, the fastest first; the last one stays when nothing fits. */
static void choose(const ls_setting *setting, const ls_strategy_request *request, ls_finetune_estimate *e)
{
    const int64_t given = request->strategy.micro_batch;
    const int64_t share = ls_max_i64(setting->global_batch / setting->gpus, 1);
    const int64_t most = given ? given : MICRO_MOST, least = given ? given : 1;
    const ls_recompute kinds[] = {request->has_recompute ? request->strategy.recompute : LS_RECOMPUTE_NONE,
                                  LS_RECOMPUTE_FULL};
    for (size_t i = 0; i < (request->has_recompute ? 1 : 2); i++) {
        for (int64_t b = most; b >= least; b /= 2) {
            const bool is_small = kinds[i] == LS_RECOMPUTE_NONE && b * setting->length < TOKENS_LEAST;
            const bool is_skipped = !given && !request->has_recompute && is_small && b < share;
            if ((given || (b <= share && share % b == 0)) && !is_skipped &&
                try_way(setting, b, kinds[i], e)) {
                return;
            }
        }
    }
}

void ls_finetune_compute(const ls_setting *setting, ls_finetune_kind kind, int64_t rank,
                         const ls_strategy_request *request, ls_finetune_estimate *estimate_out)
{
    ls_finetune_estimate e = {
        .kind = kind,
        .adapter_parameters =
            kind == LS_FINETUNE_FULL ? 0.0 : ls_finetune_adapter_parameters(setting->shape, rank),
        .strategy = {.tp = 1, .pp = 1, .dp = setting->gpus, .cp = 1, .ep = 1, .vpp = 1},
    };
    e.strategy.zero = setting->gpus > 1 ? 3 : 0;
    choose(setting, request, &e);
    compute_time(setting, &e);
    *estimate_out = e;
}
