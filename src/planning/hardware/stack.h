// SPDX-License-Identifier: Apache-2.0
/*
 * Software stacks: constants that state how fast a GPU generation runs under a training program.
 * They belong to a (generation, stack) pair: the same hardware and shape run at clearly different
 * speeds under different stacks (docs/planning-accuracy.md has the error table of each).
 *
 * Every constant has a name, a value and a source (measured, fitted on certain rows, or taken over
 * from another pair): `plan --explain constants` lists them.
 */
#ifndef LS_PLANNING_HARDWARE_STACK_H
#define LS_PLANNING_HARDWARE_STACK_H

#include "base/text.h"
#include "planning/hardware/catalogue.h"

typedef struct ls_stack {
    const char *name;       /* "megatron-core" */
    const char *generation; /* of the accelerator these constants are for */

    /* Matrix products: time = 2 M N K / (peak * gemm_efficiency * q_tile * q_wave * q_k), see
     * planning/step/step_time.h. */
    double gemm_efficiency;     /* best rate over peak */
    double gemm_fp8_efficiency; /* of the fp8 peak */
    /* K at which a product reaches half of that: q_k = K / (K + this) */
    double gemm_k_half;

    bool flash; /* false: attention is two batched products and a softmax in memory */
    /* Flash: FLOPs of the causal pairs over peak, for long sequences; else of the batched
     * products */
    double attention_efficiency;
    /* flash: length at which half of that is reached: s / (s + this) */
    double attention_half_length;

    double memory_efficiency;  /* of memory_bytes_ps */
    double elementwise_factor; /* bytes moved over those of one fused pass */
    double loss_bytes;         /* moved per logit by the loss, forward and backward */
    /* held per logit at the loss's peak: logits, their softmax, gradients */
    double logit_bytes;
    /* What a layer keeps for its backward over what fused kernels keep: eager programs keep
     * copies */
    double saved_factor;
    double optimizer_bytes; /* moved per parameter by an optimizer step */

    double launch_s;      /* per kernel, on the CPU: the floor of small shapes */
    double layer_kernels; /* launched per layer and forward; the backward launches twice as many */
    double kernel_s;      /* per kernel, on the GPU */
    double fixed_s;       /* per step */
    double micro_batch_s; /* per micro-batch */

    double scaleup_efficiency, nic_efficiency;
    double scaleup_alpha_s, nic_alpha_s;
    double nics_per_gather;    /* NICs of a node that a sharded gather uses; 0: all */
    bool in_network_reduction; /* SHARP, NVLS */

    /* Share of the communication that can hide under computation: tensor parallel, data parallel
     * (under the last backward), ZeRO-3 (under its layer), pipeline sends. */
    double tp_overlap, dp_overlap, fsdp_overlap, pp_overlap;
    /* Share of data parallel and ZeRO-3 traffic that never hides: the first and last bucket,
     * contention for memory and SMs */
    double dp_floor;

    /* Of a layer's forward that full recompute runs again: 1, or less where it stops once
     * everything the backward needs is there */
    double recompute_share;
    /* Share of a layer's products that "selective" runs again, besides the core of unfused
     * attention */
    double selective_matmul;

    double straggler_sigma; /* relative, per GPU and step: step * (1 + sigma sqrt(2 ln n)) */
    /* TDP of the card these were measured on: clocks follow the cube root of a lower limit; 0:
     * any */
    double power_w;

    /* Memory. */
    double context_bytes;       /* runtime, libraries and communicators per GPU */
    double allocator_slack;     /* share in addition to all allocations */
    int gradient_bytes;         /* per parameter in memory: 2 or 4 */
    double reduce_bytes;        /* per parameter on the wire */
    bool distributed_optimizer; /* ZeRO-1 is what it does by default */

    const char *source; /* where the constants come from */
} ls_stack;

/* The names of all stacks, NULL at the end: megatron-2021, megatron-core, fsdp, torchtitan-fsdp2,
 * deepspeed-zero3-2021, lockstep, ... */
const char *const *ls_stack_names(void);

/* The constants of a pair. Where a stack was never measured on a generation, those of the closest
 * one, which *taken_from_out names (else NULL). Errors: LS_ERR_NOT_FOUND with the known stacks. */
LS_MUST_CHECK ls_status ls_stack_find(const char *name, const ls_accelerator *accelerator,
                                      ls_stack *stack_out, const char **taken_from_out);

/* The constants of one pair of the table, to compare them with runs they were not fitted on. False:
 * the pair does not exist. */
bool ls_stack_of_pair(const char *name, const char *generation, ls_stack *stack_out);

/* Pair `index` of the table; false beyond its end. */
bool ls_stack_pair_at(size_t index, const char **name_out, const char **generation_out);

/*
 * Sets constants by their field names: "gemm_efficiency=0.71 launch_s=2e-6 flash=1". How the table
 * of pairs is written, how a calibration puts in what it measured, and how the fit tries values.
 * Errors: LS_ERR_INVALID with the word, its value and what is allowed; the stack is then untouched.
 */
LS_MUST_CHECK ls_status ls_stack_set(ls_stack *stack, const char *constants);

/* Writes one line per constant: name, value, meaning; the source last. For `plan --explain
 * constants`. */
void ls_stack_explain(const ls_stack *stack, ls_text *text);

#endif
