// SPDX-License-Identifier: Apache-2.0
/*
 * How long a step takes, and where the time goes.
 *
 *   step = (m (T_slowest + sends) + (p - 1) T_mean / v + exposed data parallel + optimizer + fixed)
 *          * (1 + sigma sqrt(2 ln n))
 *
 * m micro-batches per data parallel rank, p stages, v virtual stages on each; T is forward and
 * backward of one micro-batch on a stage:
 *
 *   product (M, N, K)   max(2 M N K / (peak e q_tile q_wave q_k), bytes / bandwidth) + kernel
 *                       q_tile: M N over that of whole 128 x 128 tiles; q_wave: tiles / SMs over
 *                       its ceiling, at least 0.55; q_k = K / (K + k_half);
 *                       backward: the gradients of input and weight, two products with the sizes
 *                       swapped
 *   attention           flash: FLOPs of the pairs / (peak e s / (s + s_half c)), backward 2.5 times
 *                       the FLOPs at 0.9 of the rate; else two batched products and a softmax in
 *                       memory
 *   elementwise         (24 h + 4 f (n_m - 1) + 4 (h + 2 g d)) bytes a token over bandwidth,
 *                       backward 1.7 times that
 *   launch floor        launching a layer's forward takes the CPU layer_kernels * launch_s, its
 *                       backward twice that
 *   tensor parallel     two all-reduces of the stream forward, two backward (with sequence
 *                       parallelism: gathers and scatters, which move as much)
 *   recompute           full: the layer's forward again; selective: the core of unfused attention
 *   ZeRO-3              gathers and scatters per layer and micro-batch, hidden under the layer's
 *                       computation as far as the stack can
 *
 * Constants: planning/hardware/stack.h. Sources: Narayanan et al. 2021 (arXiv 2104.04473),
 * Korthikanti et al. 2022 (2205.05198), Qi et al. 2023 (zero bubble, 2401.10241). Pure, allocates
 * nothing, any thread.
 */
#ifndef LS_PLANNING_STEP_STEP_TIME_H
#define LS_PLANNING_STEP_STEP_TIME_H

#include "planning/step/estimate.h"

/* Forward, backward, and what is recomputed in it, of one layer and one micro-batch on one GPU,
 * seconds. */
typedef struct ls_direction_cost {
    double forward_s, backward_s, again_s;
} ls_direction_cost;

/* What decides how fast products of a precision run. */
typedef struct ls_gemm_rates {
    double flops_ps; /* at best: peak * clock * efficiency */
    double bytes_ps;
    double element_bytes;
    double k_half, kernel_s, sms;
} ls_gemm_rates;
ls_gemm_rates ls_gemm_rates_of(const ls_stack *stack, const ls_accelerator *accelerator,
                               ls_plan_precision precision);

/* (m, k) x (k, n), `groups` times at once (their tiles share waves): seconds. */
double ls_gemm_s(const ls_gemm_rates *rates, double m, double n, double k, double groups);

/* What the formula above is put together from; for explanations and tests. */
typedef struct ls_step_parts {
    double micro_batches;      /* m */
    double tokens;             /* of a micro-batch on one GPU */
    ls_gemm_rates rates;       /* of the layers' products */
    double bandwidth_bytes_ps; /* of the memory, as the stack reaches it */
    double clock;              /* of the card over that of the constants' card */
    ls_direction_cost matmul, attention, elementwise, tensor, context, expert;
    double launch_forward_s, launch_backward_s; /* idle: what the floor adds to computation */
    double gather_forward_s, gather_backward_s; /* ZeRO-3, exposed */
    double gather_raw_s;                        /* both, before overlap */
    double head_matmul_s, head_elementwise_s;   /* the last stage's */
    double layers_slowest;                      /* on the stage that decides */
    double layers_mean;
    bool slowest_has_head;
    double send_s; /* a micro-batch's stream to the next stage, exposed */
    double data_raw_s, data_window_s;
    double optimizer_s;
    double owned_parameters; /* on the fullest GPU, before ZeRO shards them */
    double layer_s;          /* forward and backward of a layer, everything in it */
} ls_step_parts;

void ls_step_parts_compute(const ls_setting *setting, const ls_strategy *strategy, ls_step_parts *parts_out);

/* `strategy` has passed ls_strategy_check for this setting. */
void ls_step_time_compute(const ls_setting *setting, const ls_strategy *strategy, ls_time_estimate *time_out);

/* FLOP/s that products of this precision can reach at most, and bytes of an activation. */
double ls_peak_flops(const ls_accelerator *accelerator, ls_plan_precision precision);
double ls_activation_bytes(ls_plan_precision precision);

/* The explanation of a term of ls_term_name; see ls_estimate_explain. False when there is no such
 * term. */
bool ls_step_time_explain(const ls_setting *setting, const ls_strategy *strategy, const char *term,
                          ls_text *text);

#endif
