// SPDX-License-Identifier: Apache-2.0
/*
 * Software stacks: the constants that say how fast a GPU generation runs under a training program. They belong to a (generation, stack) pair: the same hardware
 * and shape run at clearly different speeds under different stacks (shared measurements: docs/planning.md has the error table of each).
 *
 * Every constant has a name, a value, and where it comes from (measured, fitted on which rows, or taken over from which pair): `plan --explain constants` lists them.
 */
#ifndef LS_PLANNING_STACK_H
#define LS_PLANNING_STACK_H

#include "planning/catalogue.h"

typedef struct ls_stack {
    const char *name;       /* "megatron-core" */
    const char *generation; /* of the accelerator these constants are for */
    double gemm_efficiency; /* e_max: best matrix rate over peak */
    double gemm_k_half;     /* K at which a product reaches half of e_max's rate: q_k = K / (K + this) */
    double gemm_fp8_efficiency;
    double attention_efficiency; /* flash kernels: FLOPs of the pairs computed over peak */
    bool flash;                  /* false: attention is two batched products and a softmax in memory */
    double memory_efficiency;    /* of memory_bytes_ps */
    double elementwise_factor;   /* bytes moved over those of one fused pass */
    double launch_s;             /* per kernel, on the CPU: the floor of small shapes */
    double kernel_s;             /* per kernel, on the GPU */
    double fixed_s;              /* per step */
    double scaleup_efficiency, nic_efficiency;
    double scaleup_alpha_s, nic_alpha_s;
    double tp_overlap, dp_overlap, fsdp_overlap,
        pp_overlap;             /* 0..1: share of the communication that can hide */
    double nics_per_gather;     /* NICs of a node that a sharded gather uses; 0: all */
    double straggler_sigma;     /* relative, per GPU and step: step * (1 + sigma sqrt(2 ln n)) */
    double context_bytes;       /* runtime, libraries and communicators per GPU */
    double allocator_slack;     /* share on top of what is asked for */
    int gradient_bytes;         /* per parameter: 2 or 4 */
    bool distributed_optimizer; /* ZeRO-1 is what it does by default */
} ls_stack;

/* The names of all stacks, NULL at the end: megatron-2021, megatron-core, fsdp, torchtitan-fsdp2, deepspeed-zero3-2021, lockstep, ... */
const char *const *ls_stack_names(void);

/* The constants of a pair; where a stack was never measured on a generation, those of its nearest one, and *taken_from_out says which (else NULL).
 * Errors: LS_ERR_NOT_FOUND with the stacks there are. */
LS_MUST_CHECK ls_status ls_stack_find(const char *name, const ls_accelerator *accelerator,
                                      ls_stack *stack_out, const char **taken_from_out);

#endif
