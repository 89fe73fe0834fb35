// SPDX-License-Identifier: Apache-2.0
/*
 * One question, one answer: what does a step of this model, on these GPUs, with this strategy, need
 * and take? The heart of planning; everything above it (search, goodput, power, cost, verdict,
 * pictures) reads ls_estimate. Pure, allocates nothing, and takes less than two microseconds.
 *
 * planning/step/memory.h has the memory formulas, planning/step/step_time.h those of time; both are
 * called by ls_estimate_compute.
 */
#ifndef LS_PLANNING_STEP_ESTIMATE_H
#define LS_PLANNING_STEP_ESTIMATE_H

#include "base/text.h"
#include "planning/hardware/catalogue.h"
#include "planning/hardware/stack.h"
#include "planning/step/strategy.h"

typedef enum ls_plan_precision {
    LS_PLAN_BF16,
    LS_PLAN_FP16,
    LS_PLAN_FP8,
    LS_PLAN_FP32,
    LS_PLAN_TF32
} ls_plan_precision;

typedef enum ls_plan_optimizer {
    LS_PLAN_ADAMW,           /* fp32 master, m, v: 12 B a parameter */
    LS_PLAN_ADAMW_NO_MASTER, /* 8 B */
    LS_PLAN_ADAMW_8BIT,      /* 2 B + 4 B master */
    LS_PLAN_SGD_MOMENTUM,    /* 4 B + 4 B master */
    LS_PLAN_MUON             /* matrices 4 B + 4 B master, the rest as AdamW */
} ls_plan_optimizer;

/* Everything that decides a step, except the strategy. What it points to must outlive it. */
typedef struct ls_setting {
    const ls_shape *shape;
    const ls_node *node; /* the node, and with it the accelerator and their number per node */
    const ls_stack *stack;
    int64_t gpus;
    int64_t length;       /* tokens per sequence */
    int64_t global_batch; /* sequences per step */
    ls_plan_precision precision;
    ls_plan_optimizer optimizer;
} ls_setting;

/* Bytes on the fullest GPU. */
typedef struct ls_memory_estimate {
    /* buffers: communication, context, allocator slack */
    double weights, gradients, optimizer, activations, buffers;
    double total, capacity;
    int64_t stage; /* the pipeline stage that is fullest */
} ls_memory_estimate;

typedef enum ls_fit {
    LS_FIT_YES,
    LS_FIT_TIGHT,
    LS_FIT_NO
} ls_fit; /* total / capacity <= 0.85, <= 0.95, above */
ls_fit ls_memory_judge(const ls_memory_estimate *memory);

/* Where a step's time goes. The terms add up to the step time. */
typedef enum ls_term {
    LS_TERM_MATMUL, /* matrix products, forward, backward and recomputed */
    /* tensor parallel communication that is not hidden by computation */
    LS_TERM_ATTENTION,
    /* norms, activations, residuals, softmax of the head: bound by memory */
    LS_TERM_ELEMENTWISE,
    /* waiting for the CPU to launch kernels, beyond the work itself */
    LS_TERM_LAUNCH,
    LS_TERM_TENSOR,
    /* context parallel */
    LS_TERM_CONTEXT,
    /* expert parallel */
    LS_TERM_EXPERT,
    LS_TERM_PIPELINE, /* sends between stages */
    LS_TERM_BUBBLE,   /* stages that wait for others */
    LS_TERM_DATA,     /* data parallel and ZeRO */
    LS_TERM_OPTIMIZER,
    /* the data feed, where it is slower than the step */
    LS_TERM_INPUT,
    LS_TERM_STRAGGLER,
    LS_TERM_FIXED,
    LS_TERM_COUNT
} ls_term;
const char *ls_term_name(ls_term term); /* "matmul", "attention", ...: keys of breakdown_s */

typedef struct ls_time_estimate {
    double step_s;
    double terms_s[LS_TERM_COUNT];
    /* For pictures and explanations. */
    /* one micro-batch on the slowest stage, communication included */
    double stage_forward_s, stage_backward_s;
    double hidden_data_s;  /* data parallel communication hidden under computation */
    int64_t micro_batches; /* per data parallel rank */
} ls_time_estimate;

typedef struct ls_estimate {
    ls_strategy strategy;
    ls_memory_estimate memory;
    ls_fit fit;
    ls_time_estimate time;
    double tokens_ps;
    /* of a step, all GPUs: full attention convention; hardware: with what is recomputed */
    double model_flops, hardware_flops;
    double tflops_per_gpu; /* model_flops over time and GPUs */
    double mfu, hfu;
} ls_estimate;

/* `strategy` has passed ls_strategy_check for this setting. */
void ls_estimate_compute(const ls_setting *setting, const ls_strategy *strategy, ls_estimate *estimate_out);

/* Explains a term (a name of ls_term_name, or of memory: weights, gradients, optimizer,
 * activations, buffers): the formula, then its values, one line per step, the result last. Errors:
 * LS_ERR_NOT_FOUND with the known terms. */
LS_MUST_CHECK ls_status ls_estimate_explain(const ls_setting *setting, const ls_strategy *strategy,
                                            const char *term, ls_text *text);

#endif
