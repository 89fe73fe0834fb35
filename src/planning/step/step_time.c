// SPDX-License-Identifier: Apache-2.0
#include "planning/step/step_time.h"

#include "planning/step/collective.h"

#include <math.h>

enum { TILE = 128, HEAD_TILE = 64 };
/* lower limit of q_wave: a nearly empty last wave costs no more than this */
static const double wave_floor = 0.55;
static const double backward_flash_flops = 2.5; /* over the forward's: five products for two */
static const double backward_flash_rate = 0.9;  /* of the forward's */
static const double backward_elementwise = 1.7; /* bytes over the forward's */
/* forward; the backward launches half as many more */
static const double elementwise_kernels = 8;
/* share of attention that hides exchanged keys and values */
static const double context_window = 0.8;
/* share of a micro-batch on a stage under which gradients travel */
static const double data_window = 0.66;
/* speed at which a node reads and sends tokens, conservatively */
static const double loader_bytes_ps = 1e9;
static const double token_bytes = 4;

double ls_activation_bytes(ls_plan_precision precision)
{
    return precision == LS_PLAN_FP32 || precision == LS_PLAN_TF32 ? 4 : 2;
}

double ls_peak_flops(const ls_accelerator *accelerator, ls_plan_precision precision)
{
    /* The peak for a precision. Without matrix units fp32 is as fast as any other; with them fp32
     * runs on the vector units, at a sixteenth where their rate is unknown. */
    const bool has_matrix_units = accelerator->class == LS_CLASS_GPU || accelerator->class == LS_CLASS_TPU;
    const double fp32 = accelerator->fp32_flops > 0 ? accelerator->fp32_flops
                        : has_matrix_units          ? accelerator->bf16_flops / 16
                                                    : accelerator->bf16_flops;
    switch (precision) {
    case LS_PLAN_FP8:
        return accelerator->fp8_flops > 0 ? accelerator->fp8_flops : accelerator->bf16_flops;
    case LS_PLAN_TF32:
        return accelerator->tf32_flops > 0 ? accelerator->tf32_flops : fp32;
    case LS_PLAN_FP32:
        return fp32;
    case LS_PLAN_BF16:
    case LS_PLAN_FP16:
        break;
    }
    return accelerator->bf16_flops;
}

/* Below the power for which the constants were measured, clocks fall with its cube root (power goes
 * with f V^2, and V with f). */
static double clock_factor(const ls_stack *stack, const ls_accelerator *accelerator)
{
    return stack->power_w > 0 && accelerator->tdp_w > 0 && accelerator->tdp_w < stack->power_w
               ? cbrt(accelerator->tdp_w / stack->power_w)
               : 1;
}

static double memory_bytes_ps(const ls_stack *stack, const ls_accelerator *accelerator)
{
    return accelerator->memory_bytes_ps * stack->memory_efficiency;
}

ls_gemm_rates ls_gemm_rates_of(const ls_stack *stack, const ls_accelerator *accelerator,
                               ls_plan_precision precision)
{
    const bool fp8 = precision == LS_PLAN_FP8 && accelerator->fp8_flops > 0;
    const double efficiency = fp8 ? stack->gemm_fp8_efficiency : stack->gemm_efficiency;
    return (ls_gemm_rates){.flops_ps = ls_peak_flops(accelerator, precision) *
                                       clock_factor(stack, accelerator) * efficiency,
                           .bytes_ps = memory_bytes_ps(stack, accelerator),
                           .element_bytes = ls_activation_bytes(precision),
                           .k_half = stack->gemm_k_half,
                           .kernel_s = stack->kernel_s,
                           .sms = accelerator->sms > 0 ? (double)accelerator->sms : 1};
}

double ls_gemm_s(const ls_gemm_rates *rates, double m, double n, double k, double groups)
{
    if (m <= 0 || n <= 0 || k <= 0) {
        return 0;
    }
    const double tiles = ceil(m / TILE) * ceil(n / TILE);
    const double waves = tiles * groups / rates->sms;
    const double q_wave = fmax(wave_floor, waves / ceil(waves));
    /* 2 m n k over q_tile = m n / (tiles * TILE^2) and q_k = k / (k + k_half) */
    const double flops = 2.0 * TILE * TILE * tiles * (k + rates->k_half) / q_wave;
    const double bytes = rates->element_bytes * (m * n + m * k + n * k);
    return groups * fmax(flops / rates->flops_ps, bytes / rates->bytes_ps) + rates->kernel_s;
}

/* Experts that lie on one GPU, and the tokens each of them gets when all get the same. */
static double expert_groups(const ls_shape *shape, const ls_strategy *strategy)
{
    return fmax(1, (double)shape->moe.experts / (double)strategy->ep);
}

static double expert_tokens(const ls_shape *shape, const ls_strategy *strategy, double tokens)
{
    return tokens * (double)strategy->ep * (double)shape->moe.active / (double)shape->moe.experts;
}

static void add_linear(const ls_setting *setting, const ls_strategy *strategy, const ls_shape_linear *linear,
                       ls_step_parts *parts)
{
    const double in = (double)linear->in / (double)(linear->row_cut ? strategy->tp : 1);
    const double out = (double)linear->out / (double)(linear->row_cut ? 1 : strategy->tp);
    const double rows =
        linear->expert ? expert_tokens(setting->shape, strategy, parts->tokens) : parts->tokens;
    const double groups = linear->expert ? expert_groups(setting->shape, strategy) : 1;
    parts->matmul.forward_s += ls_gemm_s(&parts->rates, rows, out, in, groups);
    parts->matmul.backward_s +=
        ls_gemm_s(&parts->rates, rows, in, out, groups) + ls_gemm_s(&parts->rates, in, out, rows, groups);
}

static void cost_matmul(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_shape *shape = setting->shape;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        add_linear(setting, strategy, &shape->linears[i], parts);
    }
}

static void cost_flash(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_stack *stack = setting->stack;
    const double length = (double)setting->length;
    /* Of a layer in the middle, half of the diagonal left out as in s^2 / 2. */
    const double pairs =
        ls_shape_causal_pairs(setting->shape, setting->length) / (double)setting->shape->config.layers -
        length / 2;
    const double inner = (double)setting->shape->attention_width / (double)strategy->tp;
    const double flops = 4 * (double)strategy->micro_batch * pairs * inner / (double)strategy->cp;
    const double part = length / (double)strategy->cp; /* the part that one kernel sees */
    const double peak = ls_peak_flops(setting->node->accelerator,
                                      setting->precision == LS_PLAN_FP8 ? LS_PLAN_BF16 : setting->precision);
    const double rate =
        peak * parts->clock * stack->attention_efficiency * part / (part + stack->attention_half_length);
    parts->attention.forward_s = flops / rate + stack->kernel_s;
    parts->attention.backward_s =
        backward_flash_flops * flops / (rate * backward_flash_rate) + stack->kernel_s;
}

/* Two batched products over all pairs and a softmax that reads and writes scores; dropout on them
 * moves a byte of mask besides. */
static void cost_unfused_attention(const ls_setting *setting, const ls_strategy *strategy,
                                   ls_step_parts *parts)
{
    const ls_stack *stack = setting->stack;
    const ls_model_config *config = &setting->shape->config;
    const double b = (double)strategy->micro_batch, s = (double)setting->length, c = (double)strategy->cp;
    const double heads = (double)config->heads / (double)strategy->tp, d = (double)config->head_dim;
    const double peak = ls_peak_flops(setting->node->accelerator, setting->precision) * parts->clock;
    const double bandwidth = parts->bandwidth_bytes_ps;
    const double padded = HEAD_TILE * ceil(d / HEAD_TILE); /* heads of 96 cost as much as 128 */
    const double product = fmax(2 * b * s * s * heads * padded / c / (stack->attention_efficiency * peak),
                                2 * b * heads * (s * s + 2 * s * d) / c / bandwidth);
    const double scores = b * heads * s * s / c;
    const double dropout = 5;
    parts->attention.forward_s = 2 * product + (4 + dropout) * scores / bandwidth + 3 * stack->kernel_s;
    parts->attention.backward_s = 4 * product + (6 + dropout) * scores / bandwidth + 5 * stack->kernel_s;
}

/* Width of all the MLPs that a token visits. */
static double mlp_width(const ls_shape *shape)
{
    return shape->moe.experts > 0 ? (double)(shape->moe.ffn * (shape->moe.active + shape->moe.shared))
                                  : (double)shape->config.ffn;
}

static void cost_elementwise(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_stack *stack = setting->stack;
    const ls_model_config *config = &setting->shape->config;
    const double t = (double)strategy->tp, stream_cut = strategy->sequence_parallel ? t : 1;
    const double matrices = config->swiglu ? 3 : 2;
    const double h = (double)config->width;
    const double routed = setting->shape->moe.experts > 0 ? 4.0 * h * (double)setting->shape->moe.active
                                                          : /* sorting tokens to experts and back */
                              0;
    const double token = 24 * h / stream_cut + 4 * mlp_width(setting->shape) * (matrices - 1) / t + routed +
                         4 * (h + (double)setting->shape->kv_width) / t;
    const double time = stack->elementwise_factor * token * parts->tokens *
                        ls_activation_bytes(setting->precision) / 2 / parts->bandwidth_bytes_ps;
    parts->elementwise.forward_s = time + elementwise_kernels * stack->kernel_s;
    parts->elementwise.backward_s = backward_elementwise * time + 1.5 * elementwise_kernels * stack->kernel_s;
}

static void cost_tensor(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    if (strategy->tp == 1) {
        return;
    }
    const ls_stack *stack = setting->stack;
    const ls_group group = ls_group_place(setting->node, stack, strategy->tp, 1);
    const double bytes =
        ls_activation_bytes(setting->precision) * parts->tokens * (double)setting->shape->config.width;
    const double exposed = 1 - stack->tp_overlap;
    parts->tensor.forward_s = 2 * exposed * ls_all_reduce_cost(&group, bytes).time_s;
    parts->tensor.backward_s = parts->tensor.forward_s;
    if (strategy->sequence_parallel) {
        /* The inputs that lie cut are gathered once more for the gradients of the weights. */
        parts->tensor.backward_s += 2 * exposed * ls_all_gather_cost(&group, bytes).time_s;
    }
}

static void cost_context(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    if (strategy->cp == 1) {
        return;
    }
    const ls_group group = ls_group_place(setting->node, setting->stack, strategy->cp, strategy->tp);
    const double bytes = ls_activation_bytes(setting->precision) * parts->tokens * (double)strategy->cp *
                         (double)setting->shape->kv_width / (double)strategy->tp;
    const double exchange = ls_all_gather_cost(&group, bytes).time_s;
    parts->context.forward_s = fmax(0, exchange - context_window * parts->attention.forward_s);
    parts->context.backward_s = fmax(0, 2 * exchange - context_window * parts->attention.backward_s);
}

static void cost_expert(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    if (setting->shape->moe.experts == 0 || strategy->ep == 1) {
        return;
    }
    const ls_group group = ls_group_place(setting->node, setting->stack, strategy->ep, strategy->tp);
    const double bytes = ls_activation_bytes(setting->precision) * parts->tokens *
                         (double)setting->shape->moe.active * (double)setting->shape->config.width /
                         (double)strategy->tp;
    parts->expert.forward_s = 2 * ls_all_to_all_cost(&group, bytes).time_s;
    parts->expert.backward_s = parts->expert.forward_s;
}

static void cost_recompute(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_stack *stack = setting->stack;
    if (strategy->recompute == LS_RECOMPUTE_FULL) {
        ls_direction_cost *const all[] = {&parts->matmul, &parts->attention, &parts->elementwise,
                                          &parts->tensor, &parts->context,   &parts->expert};
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            all[i]->again_s = stack->recompute_share * all[i]->forward_s;
        }
    } else if (strategy->recompute == LS_RECOMPUTE_SELECTIVE) {
        parts->attention.again_s = stack->flash ? 0 : parts->attention.forward_s;
        parts->matmul.again_s = stack->selective_matmul * parts->matmul.forward_s;
        parts->elementwise.again_s = stack->selective_matmul > 0 ? parts->elementwise.forward_s : 0;
    }
}

/* The time the GPU waits for the CPU to launch kernels. Communication comes on top: all of a group
 * wait for the slowest launcher. */
static void cost_launch(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_stack *stack = setting->stack;
    const double floor_s = stack->layer_kernels * stack->launch_s;
    const double forward =
        parts->matmul.forward_s + parts->attention.forward_s + parts->elementwise.forward_s;
    const double backward =
        parts->matmul.backward_s + parts->attention.backward_s + parts->elementwise.backward_s;
    parts->launch_forward_s = fmax(0, floor_s - forward);
    parts->launch_backward_s = fmax(0, 2 * floor_s - backward);
    if (strategy->recompute == LS_RECOMPUTE_FULL) {
        parts->launch_backward_s += parts->launch_forward_s * stack->recompute_share;
    }
}

static double sum_forward(const ls_step_parts *parts)
{
    return parts->matmul.forward_s + parts->attention.forward_s + parts->elementwise.forward_s +
           parts->tensor.forward_s + parts->context.forward_s + parts->expert.forward_s +
           parts->launch_forward_s;
}

static double with_again(const ls_direction_cost *cost)
{
    return cost->backward_s + cost->again_s;
}

static double sum_backward(const ls_step_parts *parts)
{
    return with_again(&parts->matmul) + with_again(&parts->attention) + with_again(&parts->elementwise) +
           with_again(&parts->tensor) + with_again(&parts->context) + with_again(&parts->expert) +
           parts->launch_backward_s;
}

/* Parameters of a layer on one GPU: matrices cut by tp, experts by ep too. */
static double layer_parameters(const ls_shape *shape, const ls_strategy *strategy)
{
    return ((double)shape->layer_matrices + (double)shape->layer_experts / (double)strategy->ep) /
               (double)strategy->tp +
           (double)shape->layer_vectors;
}

/* ZeRO-3 gathers each layer's weights forward and backward and scatters its gradients; ZeRO-2 of an
 * FSDP stack gathers once a step. */
static void cost_gather(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_stack *stack = setting->stack;
    const bool once = strategy->zero == 2 && stack->fsdp_overlap > 0;
    const int64_t members = strategy->dp * strategy->cp;
    if (members == 1 || (strategy->zero != 3 && !once)) {
        return;
    }
    const ls_group group = ls_group_place(setting->node, stack, members, strategy->tp);
    const double parameters = layer_parameters(setting->shape, strategy);
    const double gather =
        ls_all_gather_cost(&group, ls_activation_bytes(setting->precision) * parameters).time_s;
    const double scatter = ls_all_gather_cost(&group, stack->reduce_bytes * parameters).time_s;
    const double forward = once ? gather / parts->micro_batches : gather;
    const double backward = once ? scatter : gather + scatter;
    parts->gather_raw_s = forward + backward;
    parts->gather_forward_s =
        fmax(stack->dp_floor * forward, forward - stack->fsdp_overlap * sum_forward(parts));
    parts->gather_backward_s =
        fmax(stack->dp_floor * backward, backward - stack->fsdp_overlap * sum_backward(parts));
}

static void cost_head(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_stack *stack = setting->stack;
    const ls_accelerator *gpu = setting->node->accelerator;
    const ls_plan_precision precision = setting->precision == LS_PLAN_FP8 ? LS_PLAN_BF16 : setting->precision;
    const double h = (double)setting->shape->config.width;
    const double v = (double)setting->shape->config.vocab / (double)strategy->tp;
    const double tokens = parts->tokens;
    const ls_gemm_rates rates = ls_gemm_rates_of(stack, gpu, precision);
    parts->head_matmul_s = ls_gemm_s(&rates, tokens, v, h, 1) + ls_gemm_s(&rates, tokens, h, v, 1) +
                           ls_gemm_s(&rates, h, v, tokens, 1);
    parts->head_elementwise_s =
        (stack->loss_bytes * tokens * v + 10 * tokens * h) / parts->bandwidth_bytes_ps;
}

/* The number of layers on the slowest stage. Where layers do not divide evenly, the last stage,
 * which has the head, gets the fewest. */
static void place_layers(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const double layers = (double)setting->shape->config.layers;
    const double p = (double)strategy->pp, v = (double)strategy->vpp;
    const double most = fmax(ceil(layers / p), v);
    const double last = fmax(0, layers - (p - 1) * most);
    const double head = parts->head_matmul_s + parts->head_elementwise_s;
    parts->layers_mean = layers / p;
    parts->slowest_has_head = last * parts->layer_s + head >= most * parts->layer_s;
    parts->layers_slowest = parts->slowest_has_head ? last : most;
}

static void cost_send(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    if (strategy->pp == 1) {
        return;
    }
    const ls_stack *stack = setting->stack;
    const double stream =
        ls_activation_bytes(setting->precision) * parts->tokens * (double)setting->shape->config.width;
    const bool between_nodes = setting->gpus > ls_node_domain(setting->node);
    /* Each member of a tensor parallel group sends its part; the receiver gathers the whole inside
     * its node. */
    const double part = stream / (double)strategy->tp;
    double send = ls_send_s(setting->node, stack, part, between_nodes);
    if (strategy->tp > 1) {
        const ls_group group = ls_group_place(setting->node, stack, strategy->tp, 1);
        send += ls_all_gather_cost(&group, stream).time_s;
    }
    parts->send_s = (1 - stack->pp_overlap) * send;
}

/* Parameters that the optimizer of one GPU updates: from ZeRO-1 on dp * cp share those that all
 * have, dp * cp / ep those of an expert. */
static double updated_parameters(const ls_setting *setting, const ls_strategy *strategy,
                                 const ls_step_parts *parts)
{
    const double ep = (double)strategy->ep, members = (double)(strategy->dp * strategy->cp);
    const double experts =
        parts->layers_mean * (double)setting->shape->layer_experts / ep / (double)strategy->tp;
    return strategy->zero == 0
               ? parts->owned_parameters
               : (parts->owned_parameters - experts) / members + experts / fmax(1, members / ep);
}

static void cost_data(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    const ls_shape *shape = setting->shape;
    const ls_stack *stack = setting->stack;
    const double ends = (double)(strategy->pp > 1 ? shape->embedding : shape->embedding + shape->head);
    const double t = (double)strategy->tp;
    parts->owned_parameters = layer_parameters(shape, strategy) * parts->layers_mean + ends / t;
    const int64_t members = strategy->dp * strategy->cp;
    const ls_group group = ls_group_place(setting->node, stack, members, strategy->tp);
    const double gradients = stack->reduce_bytes * parts->owned_parameters;
    const double weights = ls_activation_bytes(setting->precision) * parts->owned_parameters;
    if (strategy->zero == 0) {
        parts->data_raw_s = ls_all_reduce_cost(&group, gradients).time_s;
    } else if (strategy->zero == 1 || (strategy->zero == 2 && stack->fsdp_overlap == 0)) {
        parts->data_raw_s =
            ls_all_gather_cost(&group, gradients).time_s + ls_all_gather_cost(&group, weights).time_s;
    }
    parts->data_window_s = data_window * parts->layers_mean * parts->layer_s;
    if (strategy->pp > 1 && shape->config.tied) {
        /* First and last stage hold the same table: their gradients are added. */
        const ls_group ends_group =
            ls_group_place(setting->node, stack, 2, strategy->tp * strategy->cp * strategy->dp);
        parts->data_raw_s +=
            ls_all_reduce_cost(&ends_group, stack->reduce_bytes * (double)shape->embedding / t).time_s;
    }
    parts->optimizer_s =
        stack->optimizer_bytes * updated_parameters(setting, strategy, parts) / parts->bandwidth_bytes_ps;
}

void ls_step_parts_compute(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts)
{
    *parts = (ls_step_parts){
        .micro_batches =
            fmax(1, (double)setting->global_batch / (double)(strategy->dp * strategy->micro_batch)),
        .tokens = (double)(strategy->micro_batch * setting->length) / (double)strategy->cp,
        .rates = ls_gemm_rates_of(setting->stack, setting->node->accelerator, setting->precision),
        .bandwidth_bytes_ps = memory_bytes_ps(setting->stack, setting->node->accelerator),
        .clock = clock_factor(setting->stack, setting->node->accelerator),
    };
    cost_matmul(setting, strategy, parts);
    if (setting->stack->flash) {
        cost_flash(setting, strategy, parts);
    } else {
        cost_unfused_attention(setting, strategy, parts);
    }
    cost_elementwise(setting, strategy, parts);
    cost_tensor(setting, strategy, parts);
    cost_context(setting, strategy, parts);
    cost_expert(setting, strategy, parts);
    cost_recompute(setting, strategy, parts);
    cost_launch(setting, strategy, parts);
    cost_gather(setting, strategy, parts);
    parts->layer_s =
        sum_forward(parts) + sum_backward(parts) + parts->gather_forward_s + parts->gather_backward_s;
    cost_head(setting, strategy, parts);
    place_layers(setting, strategy, parts);
    cost_send(setting, strategy, parts);
    cost_data(setting, strategy, parts);
}

static double whole(const ls_direction_cost *cost)
{
    return cost->forward_s + cost->backward_s + cost->again_s;
}

/* How long a stage waits while the pipeline fills and drains. */
static double bubble_s(const ls_strategy *strategy, const ls_step_parts *parts)
{
    const double p = (double)strategy->pp, v = (double)strategy->vpp;
    const double stage = parts->layers_mean * parts->layer_s + 2 * v * parts->send_s;
    /* Zero bubble: the gradients of weights W, half of the backward's products, are computed where
     * a stage would wait: F + B - W, or with twice the memory F + B - 2 W, where B is the backward
     * without W. */
    const double weights = parts->layers_mean * parts->matmul.backward_s / 2;
    switch (strategy->schedule) {
    case LS_PIPELINE_ZB_H1:
        return (p - 1) * fmax(0, stage - 2 * weights) / v;
    case LS_PIPELINE_ZB_H2:
        return (p - 1) * fmax(0, stage - 3 * weights) / v;
    case LS_PIPELINE_1F1B:
    case LS_PIPELINE_GPIPE:
        break;
    }
    return (p - 1) * stage / v;
}

void ls_step_time_compute(const ls_setting *setting, const ls_strategy *strategy, ls_time_estimate *time_out)
{
    const ls_stack *stack = setting->stack;
    ls_step_parts parts;
    ls_step_parts_compute(setting, strategy, &parts);
    const double m = parts.micro_batches, layers = m * parts.layers_slowest;
    const double head = parts.slowest_has_head ? m : 0;
    const double exposed_data =
        fmax(stack->dp_floor * parts.data_raw_s, parts.data_raw_s - stack->dp_overlap * parts.data_window_s);

    ls_time_estimate time = {.micro_batches = (int64_t)(m + 0.5)};
    double *terms = time.terms_s;
    terms[LS_TERM_MATMUL] = layers * whole(&parts.matmul) + head * parts.head_matmul_s;
    terms[LS_TERM_ATTENTION] = layers * whole(&parts.attention);
    terms[LS_TERM_ELEMENTWISE] = layers * whole(&parts.elementwise) + head * parts.head_elementwise_s;
    terms[LS_TERM_LAUNCH] =
        layers * (parts.launch_forward_s + parts.launch_backward_s) + m * stack->micro_batch_s;
    terms[LS_TERM_TENSOR] = layers * whole(&parts.tensor);
    terms[LS_TERM_CONTEXT] = layers * whole(&parts.context);
    terms[LS_TERM_EXPERT] = layers * whole(&parts.expert);
    terms[LS_TERM_PIPELINE] = m * 2 * (double)strategy->vpp * parts.send_s;
    terms[LS_TERM_BUBBLE] = bubble_s(strategy, &parts);
    terms[LS_TERM_DATA] = layers * (parts.gather_forward_s + parts.gather_backward_s) + exposed_data;
    terms[LS_TERM_OPTIMIZER] = parts.optimizer_s;
    terms[LS_TERM_FIXED] = stack->fixed_s;
    double step = 0;
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        step += terms[term];
    }
    if (setting->gpus > 1) {
        terms[LS_TERM_STRAGGLER] = step * stack->straggler_sigma * sqrt(2 * log((double)setting->gpus));
        step += terms[LS_TERM_STRAGGLER];
    }
    const double nodes =
        ceil((double)setting->gpus / (double)(setting->node->count > 0 ? setting->node->count : 1));
    const double feed =
        (double)(setting->global_batch * setting->length) * token_bytes / (loader_bytes_ps * nodes);
    terms[LS_TERM_INPUT] = fmax(0, feed - step);
    time.step_s = step + terms[LS_TERM_INPUT];
    time.stage_forward_s =
        parts.layers_slowest * (sum_forward(&parts) + parts.gather_forward_s) +
        (parts.slowest_has_head ? parts.head_matmul_s / 3 + parts.head_elementwise_s / 2 : 0);
    time.stage_backward_s = parts.layers_slowest * parts.layer_s +
                            (parts.slowest_has_head ? parts.head_matmul_s + parts.head_elementwise_s : 0) -
                            time.stage_forward_s;
    time.hidden_data_s = parts.data_raw_s - exposed_data +
                         layers * (parts.gather_raw_s - parts.gather_forward_s - parts.gather_backward_s);
    *time_out = time;
}
