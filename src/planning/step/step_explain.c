// SPDX-License-Identifier: Apache-2.0
/* Terms of a step in words and numbers: the formula, the formula with this setting's values, the
 * result last. */
#include "planning/step/collective.h"
#include "planning/step/step_time.h"

#include <math.h>
#include <string.h>

typedef struct explainer {
    const ls_setting *setting;
    const ls_strategy *strategy;
    ls_step_parts parts;
    ls_time_estimate time;
    ls_text *text;
} explainer;

#define SAY(e, ...) ls_text_printf((e)->text, __VA_ARGS__)

static double ms(double seconds)
{
    return seconds * 1e3;
}

static double sum(const ls_direction_cost *cost)
{
    return cost->forward_s + cost->backward_s + cost->again_s;
}

static void say_result(explainer *e, ls_term term)
{
    const double s = e->time.terms_s[term];
    SAY(e, "= %.6g s of a step of %.6g s, %.1f %%\n", s, e->time.step_s, 100 * s / e->time.step_s);
}

/* m micro-batches x layers on the slowest stage x one layer's cost */
static void say_layers(explainer *e, const ls_direction_cost *cost)
{
    const ls_step_parts *p = &e->parts;
    SAY(e, "one layer, one micro-batch: forward %.4g + backward %.4g + recomputed %.4g = %.4g ms\n",
        ms(cost->forward_s), ms(cost->backward_s), ms(cost->again_s), ms(sum(cost)));
    SAY(e, "micro-batches x layers on the slowest stage x this: %.6g x %.6g x %.4g ms = %.6g s\n",
        p->micro_batches, p->layers_slowest, ms(sum(cost)), p->micro_batches * p->layers_slowest * sum(cost));
}

static void explain_linear(explainer *e, const ls_shape_linear *linear)
{
    const ls_step_parts *p = &e->parts;
    const ls_shape_moe *moe = &e->setting->shape->moe;
    const double tp = (double)e->strategy->tp;
    const double k = (double)linear->in / (linear->row_cut ? tp : 1),
                 n = (double)linear->out / (linear->row_cut ? 1 : tp);
    const double groups = linear->expert ? fmax(1, (double)moe->experts / (double)e->strategy->ep) : 1;
    const double m = linear->expert
                         ? p->tokens * (double)e->strategy->ep * (double)moe->active / (double)moe->experts
                         : p->tokens;
    const double tiles = ceil(m / 128) * ceil(n / 128) * groups, waves = tiles / p->rates.sms;
    SAY(e,
        "  %.6g x (%.6g, %.6g, %.6g): %.6g tiles on %.6g SMs = %.4g waves, q_wave %.3f, q_k %.3f: %.4g ms\n",
        groups, m, n, k, tiles, p->rates.sms, waves, fmax(0.55, waves / ceil(waves)),
        k / (k + p->rates.k_half), ms(ls_gemm_s(&p->rates, m, n, k, groups)));
}

static void explain_matmul(explainer *e)
{
    const ls_step_parts *p = &e->parts;
    const ls_shape *shape = e->setting->shape;
    SAY(e, "product (M, N, K) = max(2 M N K / (rate q_tile q_wave q_k), bytes / bandwidth) + kernel; "
           "backward: the same for each of the two gradients\n");
    SAY(e,
        "rate %.4g TFLOP/s (peak x clock x efficiency), bandwidth %.4g TB/s, q_k = K / (K + %.4g), kernel "
        "%.3g us\n",
        p->rates.flops_ps / 1e12, p->rates.bytes_ps / 1e12, p->rates.k_half, p->rates.kernel_s * 1e6);
    SAY(e, "forward of one layer, %.6g tokens, split by tp %lld:\n", p->tokens, (long long)e->strategy->tp);
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        explain_linear(e, &shape->linears[i]);
    }
    say_layers(e, &p->matmul);
    if (p->slowest_has_head) {
        SAY(e, "head, three products: %.4g ms a micro-batch, %.6g s\n", ms(p->head_matmul_s),
            p->micro_batches * p->head_matmul_s);
    }
    say_result(e, LS_TERM_MATMUL);
}

static void explain_attention(explainer *e)
{
    const ls_stack *stack = e->setting->stack;
    if (stack->flash) {
        SAY(e, "flash: 4 b pairs heads d / (t c) FLOPs, pairs = s^2 / 2; backward 2.5 times the FLOPs at 0.9 "
               "of the rate\n");
        SAY(e, "rate = peak x clock x %.3g x s / (s + %.4g c), s = %lld\n", stack->attention_efficiency,
            stack->attention_half_length, (long long)e->setting->length);
    } else {
        SAY(e,
            "two batched products over all s^2 pairs at %.3g of the peak, softmax and dropout 9 b a s^2 / t "
            "bytes forward, 11 backward; s = %lld\n",
            stack->attention_efficiency, (long long)e->setting->length);
    }
    say_layers(e, &e->parts.attention);
    say_result(e, LS_TERM_ATTENTION);
}

static void explain_elementwise(explainer *e)
{
    SAY(e,
        "bytes a token and layer = 24 h%s + 4 f (matrices - 1) / t + 4 (h + 2 g d) / t, times %.3g of the "
        "stack, over %.4g TB/s; backward 1.7 times that\n",
        e->strategy->sequence_parallel ? " / t" : "", e->setting->stack->elementwise_factor,
        e->parts.bandwidth_bytes_ps / 1e12);
    say_layers(e, &e->parts.elementwise);
    if (e->parts.slowest_has_head) {
        SAY(e, "loss, %.3g bytes a logit: %.4g ms a micro-batch, %.6g s\n", e->setting->stack->loss_bytes,
            ms(e->parts.head_elementwise_s), e->parts.micro_batches * e->parts.head_elementwise_s);
    }
    say_result(e, LS_TERM_ELEMENTWISE);
}

static void explain_launch(explainer *e)
{
    const ls_stack *stack = e->setting->stack;
    const ls_step_parts *p = &e->parts;
    SAY(e,
        "for a layer's forward the CPU needs kernels x launch time = %.4g x %.3g us = %.4g ms, for its "
        "backward twice that; if the GPU finishes first, it waits for the CPU to launch the next kernels\n",
        stack->layer_kernels, stack->launch_s * 1e6, ms(stack->layer_kernels * stack->launch_s));
    SAY(e, "work forward %.4g ms: waits %.4g; backward: waits %.4g ms\n",
        ms(p->matmul.forward_s + p->attention.forward_s + p->elementwise.forward_s), ms(p->launch_forward_s),
        ms(p->launch_backward_s));
    const double layers = p->micro_batches * p->layers_slowest;
    SAY(e, "micro-batches x layers x both waits = %.6g x %.6g x %.4g ms = %.6g s\n", p->micro_batches,
        p->layers_slowest, ms(p->launch_forward_s + p->launch_backward_s),
        layers * (p->launch_forward_s + p->launch_backward_s));
    SAY(e, "further cost of each micro-batch: %.6g x %.3g s = %.6g s\n", p->micro_batches,
        stack->micro_batch_s, p->micro_batches * stack->micro_batch_s);
    say_result(e, LS_TERM_LAUNCH);
}

static void say_group(explainer *e, const ls_group *g)
{
    SAY(e,
        "group of %lld: %lld per node, %lld nodes; %.4g GB/s inside a node, %.4g GB/s per NIC, each way, as "
        "the stack reaches them\n",
        (long long)g->members, (long long)g->members_per_node, (long long)g->nodes, g->link_bytes_ps / 1e9,
        g->nic_bytes_ps / 1e9);
}

static void say_collective(explainer *e, const char *what, double bytes, const ls_collective_cost *cost)
{
    SAY(e, "%s of %.4g MB: %.4g MB on the wire, %s, latency %.4g ms: %.4g ms\n", what, bytes / 1e6,
        cost->wire_bytes / 1e6, ls_collective_algorithm_name(cost->algorithm), ms(cost->latency_s),
        ms(cost->time_s));
}

static void explain_tensor(explainer *e)
{
    if (e->strategy->tp == 1) {
        SAY(e, "tp is 1: nothing is exchanged\n");
        say_result(e, LS_TERM_TENSOR);
        return;
    }
    const ls_group group = ls_group_place(e->setting->node, e->setting->stack, e->strategy->tp, 1);
    const double bytes = ls_activation_bytes(e->setting->precision) * e->parts.tokens *
                         (double)e->setting->shape->config.width;
    const ls_collective_cost cost = ls_all_reduce_cost(&group, bytes);
    say_group(e, &group);
    SAY(e, "all-reduce = 2 (n-1)/n S / B + latency, twice forward and twice backward%s; exposed share %.3g\n",
        e->strategy->sequence_parallel
            ? " (as gathers and scatters, and the inputs once more for the weights' gradients)"
            : "",
        1 - e->setting->stack->tp_overlap);
    say_collective(e, "all-reduce", bytes, &cost);
    say_layers(e, &e->parts.tensor);
    say_result(e, LS_TERM_TENSOR);
}

static void explain_context(explainer *e)
{
    if (e->strategy->cp == 1) {
        SAY(e, "cp is 1: nothing is exchanged\n");
        say_result(e, LS_TERM_CONTEXT);
        return;
    }
    const ls_group group =
        ls_group_place(e->setting->node, e->setting->stack, e->strategy->cp, e->strategy->tp);
    say_group(e, &group);
    SAY(e, "keys and values of the whole sequence pass each GPU, 2 s g d / t values; the part that 0.8 of "
           "attention does not hide is exposed; twice as much in the backward\n");
    say_layers(e, &e->parts.context);
    say_result(e, LS_TERM_CONTEXT);
}

static void explain_expert(explainer *e)
{
    if (e->strategy->ep == 1 || e->setting->shape->moe.experts == 0) {
        SAY(e, "no experts on other GPUs: nothing is exchanged\n");
        say_result(e, LS_TERM_EXPERT);
        return;
    }
    const ls_group group =
        ls_group_place(e->setting->node, e->setting->stack, e->strategy->ep, e->strategy->tp);
    say_group(e, &group);
    SAY(e,
        "each token goes to %lld experts and back: all-to-all of tokens x k x h / t values, twice forward, "
        "twice backward\n",
        (long long)e->setting->shape->moe.active);
    say_layers(e, &e->parts.expert);
    say_result(e, LS_TERM_EXPERT);
}

static void explain_pipeline(explainer *e)
{
    SAY(e, "micro-batches x 2 x vpp x send = %.6g x 2 x %lld x %.4g ms\n", e->parts.micro_batches,
        (long long)e->strategy->vpp, ms(e->parts.send_s));
    say_result(e, LS_TERM_PIPELINE);
}

/* The gradients of weights that zero-bubble schedules compute while a stage would wait. */
static int fillers(const ls_strategy *strategy)
{
    return strategy->schedule == LS_PIPELINE_ZB_H1 ? 2 : strategy->schedule == LS_PIPELINE_ZB_H2 ? 3 : 0;
}

static void explain_bubble(explainer *e)
{
    const ls_step_parts *p = &e->parts;
    const int count = fillers(e->strategy);
    SAY(e, "(p - 1) x T_stage / vpp, T_stage = layers x layer + 2 vpp send%s\n",
        count > 0 ? " - gradients of weights computed meanwhile, at least 0" : "");
    SAY(e, "(%lld - 1) x (%.6g x %.4g ms + 2 x %lld x %.4g ms", (long long)e->strategy->pp, p->layers_mean,
        ms(p->layer_s), (long long)e->strategy->vpp, ms(p->send_s));
    if (count > 0) {
        SAY(e, " - %d x %.6g x %.4g ms", count, p->layers_mean, ms(p->matmul.backward_s / 2));
    }
    SAY(e, ") / %lld = %.6g s\n", (long long)e->strategy->vpp, e->time.terms_s[LS_TERM_BUBBLE]);
    SAY(e, "share of the pipeline (p - 1) / (vpp m) = %.4g\n",
        (double)(e->strategy->pp - 1) / ((double)e->strategy->vpp * p->micro_batches));
    say_result(e, LS_TERM_BUBBLE);
}

static void explain_data(explainer *e)
{
    const ls_step_parts *p = &e->parts;
    const ls_stack *stack = e->setting->stack;
    const int64_t members = e->strategy->dp * e->strategy->cp;
    const ls_group group = ls_group_place(e->setting->node, stack, members, e->strategy->tp);
    say_group(e, &group);
    SAY(e, "%.6g million parameters on the GPU, gradients of %.3g B each\n", p->owned_parameters / 1e6,
        stack->reduce_bytes);
    if (p->gather_raw_s > 0) {
        SAY(e,
            "gathers and scatters of a layer: %.4g ms, of which %.4g forward and %.4g backward are exposed: "
            "max(%.3g of them, them - %.3g of the layer's work)\n",
            ms(p->gather_raw_s), ms(p->gather_forward_s), ms(p->gather_backward_s), stack->dp_floor,
            stack->fsdp_overlap);
        SAY(e, "x %.6g micro-batches x %.6g layers = %.6g s\n", p->micro_batches, p->layers_slowest,
            p->micro_batches * p->layers_slowest * (p->gather_forward_s + p->gather_backward_s));
    }
    if (p->data_raw_s > 0) {
        SAY(e,
            "once per step: %s, %.4g ms; exposed max(%.3g of that, that - %.3g x %.4g ms, the last backward) "
            "= %.6g s\n",
            e->strategy->zero == 0 ? "all-reduce of the gradients"
                                   : "scatter of the gradients, gather of the weights",
            ms(p->data_raw_s), stack->dp_floor, stack->dp_overlap, ms(p->data_window_s),
            fmax(stack->dp_floor * p->data_raw_s, p->data_raw_s - stack->dp_overlap * p->data_window_s));
    }
    say_result(e, LS_TERM_DATA);
}

static void explain_optimizer(explainer *e)
{
    const bool sharded = e->strategy->zero >= 1;
    SAY(e, "%.4g bytes a parameter x %.6g million parameters", e->setting->stack->optimizer_bytes,
        e->parts.owned_parameters / 1e6);
    if (sharded) {
        SAY(e, " / %lld (dp cp)", (long long)(e->strategy->dp * e->strategy->cp));
    }
    SAY(e, " / %.4g TB/s\n", e->parts.bandwidth_bytes_ps / 1e12);
    say_result(e, LS_TERM_OPTIMIZER);
}

static void explain_input(explainer *e)
{
    const double count = (double)(e->setting->node->count > 0 ? e->setting->node->count : 1);
    SAY(e,
        "4 bytes per token x %lld x %lld tokens / (1 GB/s x %.0f nodes): the time by which that exceeds the "
        "step\n",
        (long long)e->setting->global_batch, (long long)e->setting->length,
        ceil((double)e->setting->gpus / count));
    say_result(e, LS_TERM_INPUT);
}

static void explain_straggler(explainer *e)
{
    const double without =
        e->time.step_s - e->time.terms_s[LS_TERM_STRAGGLER] - e->time.terms_s[LS_TERM_INPUT];
    SAY(e, "the slowest of n GPUs: step x sigma sqrt(2 ln n) = %.6g s x %.3g x sqrt(2 ln %lld)\n", without,
        e->setting->stack->straggler_sigma, (long long)e->setting->gpus);
    say_result(e, LS_TERM_STRAGGLER);
}

static void explain_fixed(explainer *e)
{
    SAY(e, "per step, for %s on %s: logging, the loss, and whatever no other term covers\n",
        e->setting->stack->name, e->setting->stack->generation);
    say_result(e, LS_TERM_FIXED);
}

bool ls_step_time_explain(const ls_setting *setting, const ls_strategy *strategy, const char *term,
                          ls_text *text)
{
    static void (*const explain[LS_TERM_COUNT])(explainer *) = {
        explain_matmul,    explain_attention, explain_elementwise, explain_launch, explain_tensor,
        explain_context,   explain_expert,    explain_pipeline,    explain_bubble, explain_data,
        explain_optimizer, explain_input,     explain_straggler,   explain_fixed,
    };
    explainer e = {.setting = setting, .strategy = strategy, .text = text};
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        if (strcmp(term, ls_term_name((ls_term)i)) == 0) {
            ls_step_parts_compute(setting, strategy, &e.parts);
            ls_step_time_compute(setting, strategy, &e.time);
            explain[i](&e);
            return true;
        }
    }
    return false;
}
