// SPDX-License-Identifier: Apache-2.0
#include "planning/step/memory.h"

#include "planning/step/memory_own.h"

#include <math.h>
#include <string.h>

/* ---- parameters ---- */

static double tensor_share(const ls_shape *shape, bool experts, double tp)
{
    double elements = 0.0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        const ls_shape_linear *l = &shape->linears[i];
        if (l->expert == experts) {
            elements += (double)l->in * (double)l->out / (l->replicated ? 1.0 : tp);
        }
    }
    return elements;
}

/* Matrices of a dense layer of a mixture; its attention is that of the other layers. */
static double dense_layer_share(const ls_shape *shape, double tp)
{
    double replicated = 0.0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        const ls_shape_linear *l = &shape->linears[i];
        const bool router = l->out == shape->moe.experts && l->replicated;
        replicated += l->replicated && !router ? (double)l->in * (double)l->out : 0.0;
    }
    return ((double)shape->dense_layer_matrices - replicated) / tp + replicated;
}

static void find_parameters(const ls_setting *setting, const ls_strategy *s, ls_memory_parts *parts)
{
    const ls_shape *shape = setting->shape;
    const bool first = parts->stage == 0, last = parts->stage == s->pp - 1;
    const double tp = (double)s->tp, left = (double)shape->moe.dense_layers;
    const double dense = !shape->moe.experts || !first ? 0.0 : fmin(left, parts->layers);
    const double mixtures = parts->layers - dense;
    parts->matrix_parameters = mixtures * tensor_share(shape, false, tp) +
                               (dense > 0.0 ? dense * dense_layer_share(shape, tp) : 0.0);
    parts->expert_parameters = shape->moe.experts ? mixtures * (double)shape->moe.experts / (double)s->ep *
                                                        tensor_share(shape, true, tp)
                                                  : 0.0;
    parts->vector_parameters =
        parts->layers * (double)shape->layer_vectors + (last ? (double)shape->final_norm : 0.0);
    const double table = (double)shape->config.width * (double)shape->config.vocab;
    const double positions = (double)shape->embedding - table;
    parts->embedding_parameters =
        (first ? table / tp + positions : 0.0) + (last && (!first || shape->head) ? table / tp : 0.0);
}

/* ---- bytes of a parameter ---- */

static bool is_fp32(ls_plan_precision precision)
{
    return precision == LS_PLAN_FP32 || precision == LS_PLAN_TF32;
}

static void find_parameter_bytes(const ls_setting *setting, const ls_strategy *s, ls_memory_parts *parts)
{
    static const double moments[] = {
        [LS_PLAN_ADAMW] = 8.0,      [LS_PLAN_ADAMW_NO_MASTER] = 8.0,
        [LS_PLAN_ADAMW_8BIT] = 2.0, [LS_PLAN_SGD_MOMENTUM] = 4.0,
        [LS_PLAN_MUON] = 4.0,
    };
    const bool fp32 = is_fp32(setting->precision);
    const double master = fp32 || setting->optimizer == LS_PLAN_ADAMW_NO_MASTER ? 0.0 : 4.0;
    parts->weight_bytes = fp32 ? 4.0 : 2.0;
    parts->gradient_bytes = fp32 ? 4.0 : (double)setting->stack->gradient_bytes;
    parts->optimizer_bytes = master + moments[setting->optimizer];
    parts->vector_optimizer_bytes =
        setting->optimizer == LS_PLAN_MUON ? master + 8.0 : parts->optimizer_bytes;
    parts->shards = (double)s->dp * (double)s->cp;
    parts->expert_shards = fmax(1.0, parts->shards / (double)s->ep);
}

/* Sums bytes per parameter over the GPU's parameters; experts are split over fewer GPUs. */
static double over_parameters(const ls_memory_parts *p, double bytes, double vector_bytes, bool sharded)
{
    const double dense =
        bytes * p->matrix_parameters + vector_bytes * (p->vector_parameters + p->embedding_parameters);
    const double experts = bytes * p->expert_parameters;
    return sharded ? dense / p->shards + experts / p->expert_shards : dense + experts;
}

/* ---- activations ---- */

double ls_memory_in_flight(const ls_strategy *s, int64_t stage, double micro_batches)
{
    const double p = (double)s->pp, behind = p - (double)stage, v = (double)s->vpp;
    double held = behind;
    if (s->schedule == LS_PIPELINE_GPIPE) {
        held = micro_batches;
    } else if (s->schedule == LS_PIPELINE_ZB_H2) {
        held = 2.0 * behind - 1.0;
    } else if (s->vpp > 1) {
        held = (2.0 * (behind - 1.0) + (v - 1.0) * p + 1.0) / v;
    }
    return fmin(held, micro_batches);
}

/* Selective recompute that keeps what products give, but for a share of them, and attention's
 * output: per token. */
static double op_selective_bytes(const ls_setting *setting, const ls_strategy *s, double entry_bytes,
                                 double value_bytes)
{
    const ls_shape *shape = setting->shape;
    const double tp = (double)s->tp, whole = s->sequence_parallel ? tp : 1.0;
    double products = 0.0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        const ls_shape_linear *l = &shape->linears[i];
        const double visits = l->expert ? (double)shape->moe.active : 1.0;
        products += visits * (double)l->out / (l->row_cut || l->replicated ? whole : tp);
    }
    const double attended =
        (double)shape->attention_width / tp * value_bytes + 4.0 * (double)shape->config.heads / tp;
    return entry_bytes + attended + (1.0 - setting->stack->selective_matmul) * products * value_bytes;
}

static void find_layer_values(const ls_setting *setting, const ls_strategy *s, ls_memory_parts *parts)
{
    const ls_shape *shape = setting->shape;
    const double tp = (double)s->tp, whole = s->sequence_parallel ? tp : 1.0;
    const double value_bytes = is_fp32(setting->precision) ? 4.0 : 2.0;
    double values = 0.0, statistics = 0.0, entry = 0.0;
    for (uint32_t i = 0; i < shape->saved_count; i++) {
        const ls_shape_saved *v = &shape->saved[i];
        const double cols = v->cols / (v->cut ? tp : whole);
        const bool lse = v->statistic && v->attention;
        if (!v->statistic) {
            values += value_bytes * cols * (v->entry ? 1.0 : setting->stack->saved_factor);
        } else if (!lse || setting->stack->flash) {
            statistics += 4.0 * cols;
        }
        entry += v->entry ? value_bytes * cols : 0.0;
    }
    const bool dropout = shape->dropout > 0.0;
    const double heads = (double)shape->config.heads / tp, length = (double)setting->length;
    parts->layer_values = parts->tokens * values;
    parts->layer_statistics = parts->tokens * statistics;
    parts->layer_masks = dropout ? parts->tokens * 2.0 * (double)shape->config.width / whole : 0.0;
    parts->layer_softmax = setting->stack->flash ? 0.0
                                                 : parts->tokens * heads * length *
                                                       (value_bytes + (dropout ? 1.0 + value_bytes : 0.0));
    const double all =
        parts->layer_values + parts->layer_statistics + parts->layer_masks + parts->layer_softmax;
    parts->layer_kept = all;
    if (s->recompute == LS_RECOMPUTE_FULL) {
        parts->layer_kept = parts->tokens * entry;
    } else if (s->recompute == LS_RECOMPUTE_SELECTIVE) {
        parts->layer_kept =
            setting->stack->selective_matmul > 0.0
                ? fmin(all, parts->tokens * op_selective_bytes(setting, s, entry, value_bytes))
                : all - parts->layer_softmax;
    }
    parts->layer_again = all - parts->layer_kept;
}

/* ---- buffers ---- */

static void find_buffers(const ls_setting *setting, const ls_strategy *s, ls_memory_parts *parts)
{
    const ls_shape *shape = setting->shape;
    const double tp = (double)s->tp, whole = s->sequence_parallel ? tp : 1.0;
    const double value_bytes = is_fp32(setting->precision) ? 4.0 : 2.0;
    const double layer = (parts->matrix_parameters + parts->expert_parameters) / parts->layers;
    const double stream = parts->tokens * (double)shape->config.width * value_bytes;
    if (s->zero >= 2 && parts->shards > 1.0) {
        /* In a pipeline, micro-batches in flight need the whole stage: weights are gathered once
         * per step, and gradients are summed before they are split. */
        const double stage =
            parts->matrix_parameters + parts->expert_parameters + parts->embedding_parameters;
        const double two = layer + fmax(layer, parts->embedding_parameters);
        parts->gathered = s->zero == 3 ? parts->weight_bytes * (s->pp > 1 ? stage : two) : 0.0;
        parts->bucket = s->pp > 1 ? fmax(parts->gradient_bytes, setting->stack->reduce_bytes) * stage
                                  : parts->gradient_bytes * layer;
    }
    const double copies = (s->tp > 1 ? 1.0 : 0.0) + (s->pp > 1 ? 2.0 / whole : 0.0) +
                          (s->ep > 1 ? 2.0 * (double)shape->moe.active : 0.0);
    const double ring = s->cp > 1 ? 2.0 * parts->tokens * (double)shape->kv_width / tp * value_bytes : 0.0;
    parts->exchange = copies * stream + ring;
    /* The backward of the widest product: the gradients of its input and its output, and of the
     * residual stream. */
    double widest = 0.0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        const ls_shape_linear *l = &shape->linears[i];
        const double visits = l->expert ? (double)shape->moe.active : 1.0;
        const double cols = l->row_cut ? (double)l->in / tp + (double)l->out
                                       : (double)l->in + (double)l->out / (l->replicated ? 1.0 : tp);
        widest = fmax(widest, visits * cols);
    }
    parts->transient = parts->tokens * widest * value_bytes + stream / whole;
}

/* Logits, their softmax and gradients; the final norm's input and output. */
static double loss_bytes(const ls_setting *setting, const ls_strategy *s, double tokens)
{
    const double value_bytes = is_fp32(setting->precision) ? 4.0 : 2.0;
    const double whole = s->sequence_parallel ? (double)s->tp : 1.0;
    return tokens * (double)setting->shape->config.vocab * setting->stack->logit_bytes / (double)s->tp +
           2.0 * value_bytes * tokens * (double)setting->shape->config.width / whole;
}

/* ---- a stage, and the fullest ---- */

double ls_memory_capacity(const ls_accelerator *accelerator)
{
    /* share that macOS lets the GPU use by default */
    const double unified_share = 0.75;
    return accelerator->memory_bytes * (accelerator->class == LS_CLASS_APPLE ? unified_share : 1.0);
}

void ls_memory_parts_compute(const ls_setting *setting, const ls_strategy *strategy, int64_t stage,
                             ls_memory_parts *parts_out)
{
    const int64_t layers = setting->shape->config.layers, left = layers % strategy->pp;
    const double micro_batches =
        (double)setting->global_batch / ((double)strategy->dp * (double)strategy->micro_batch);
    ls_memory_parts parts = {
        .stage = stage,
        .layers = (double)(layers / strategy->pp + (stage < left ? 1 : 0)),
        .in_flight = ls_memory_in_flight(strategy, stage, micro_batches),
        .tokens = (double)strategy->micro_batch * (double)setting->length / (double)strategy->cp,
    };
    find_parameters(setting, strategy, &parts);
    find_parameter_bytes(setting, strategy, &parts);
    find_layer_values(setting, strategy, &parts);
    parts.loss = stage == strategy->pp - 1 ? loss_bytes(setting, strategy, parts.tokens) : 0.0;
    find_buffers(setting, strategy, &parts);
    *parts_out = parts;
}

ls_memory_estimate ls_memory_of_stage(const ls_setting *setting, const ls_strategy *s, int64_t stage)
{
    ls_memory_parts p;
    ls_memory_parts_compute(setting, s, stage, &p);
    ls_memory_estimate m = {
        .weights = over_parameters(&p, p.weight_bytes, p.weight_bytes, s->zero >= 3),
        .gradients = over_parameters(&p, p.gradient_bytes, p.gradient_bytes, s->zero >= 2),
        .optimizer = over_parameters(&p, p.optimizer_bytes, p.vector_optimizer_bytes, s->zero >= 1),
        .activations = p.layers * p.in_flight * p.layer_kept + p.layer_again + p.loss,
        .buffers = p.gathered + p.bucket + p.exchange + p.transient,
        .capacity = ls_memory_capacity(setting->node->accelerator),
        .stage = stage,
    };
    const double asked = m.weights + m.gradients + m.optimizer + m.activations + m.buffers;
    m.buffers += asked * setting->stack->allocator_slack + setting->stack->context_bytes;
    m.total = m.weights + m.gradients + m.optimizer + m.activations + m.buffers;
    return m;
}

void ls_memory_compute(const ls_setting *setting, const ls_strategy *strategy, ls_memory_estimate *memory_out)
{
    if (strcmp(setting->stack->name, "lockstep") == 0 && ls_memory_own(setting, strategy, memory_out)) {
        return;
    }
    *memory_out = ls_memory_of_stage(setting, strategy, 0);
    if (strategy->pp > 1) {
        const ls_memory_estimate last = ls_memory_of_stage(setting, strategy, strategy->pp - 1);
        if (last.total > memory_out->total) {
            *memory_out = last;
        }
    }
}
