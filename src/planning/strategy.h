// SPDX-License-Identifier: Apache-2.0
/*
 * A strategy: how a model and its batch are split over GPUs.
 *
 *   tp   tensor parallel: each matrix is split; all-reduce twice per layer and direction
 *   pp   pipeline stages, vpp virtual stages (interleaving) on each
 *   cp   context parallel: the sequence is split, keys and values travel
 *   ep   expert parallel, inside the data parallel ranks: experts are split, tokens travel; divides dp * cp
 *   dp   data parallel: what is left; gpus = tp * pp * cp * dp
 *   zero 0: plain; 1: optimizer state; 2: + gradients; 3: + weights split over dp * cp (FSDP)
 */
#ifndef LS_PLANNING_STRATEGY_H
#define LS_PLANNING_STRATEGY_H

#include "planning/shape.h"

typedef enum ls_pipeline_schedule {
    LS_PIPELINE_1F1B,
    LS_PIPELINE_GPIPE,
    LS_PIPELINE_ZB_H1,
    LS_PIPELINE_ZB_H2
} ls_pipeline_schedule;

typedef struct ls_strategy {
    int64_t tp, pp, dp, cp, ep, vpp; /* >= 1 */
    int64_t micro_batch;             /* sequences */
    int zero;                        /* 0 to 3 */
    ls_recompute recompute;
    bool sequence_parallel; /* Megatron's: norms and residual stream split over tp too */
    ls_pipeline_schedule schedule;
} ls_strategy;

/* What is not given is to be chosen: fields left 0 (zero, recompute, sequence_parallel: see given). */
typedef struct ls_strategy_request {
    ls_strategy strategy;
    bool has_zero, has_recompute, has_sequence_parallel, has_schedule;
} ls_strategy_request;

/* "tp=8,pp=2,dp=16,cp=1,ep=1,vpp=4,mb=1,zero=1,recompute=selective,sp=1,schedule=1f1b", any subset, any order.
 * Errors: LS_ERR_INVALID with the word, its value and what is allowed. */
LS_MUST_CHECK ls_status ls_strategy_parse(const char *text, ls_strategy_request *request_out);

/* True when nothing is left to choose for `gpus` (a dp that follows from the others counts as given). */
bool ls_strategy_is_complete(const ls_strategy_request *request);

/* "TP 8 x PP 2 x DP 16, micro-batch 1, interleave 4, ZeRO-1, selective recompute"; what is 1 or off is left out. Cut to fit. */
void ls_strategy_describe(const ls_strategy *strategy, char *text, size_t bytes);
/* As ls_strategy_parse reads it. */
void ls_strategy_format(const ls_strategy *strategy, char *text, size_t bytes);

/* Checks that the strategy can be run at all: product equals gpus; heads, kv heads, ffn and vocabulary divide by tp; no more stages than layers; global batch
 * divides by dp * micro_batch; vpp divides layers / pp and needs pp > 1; ep divides experts; ... Errors: LS_ERR_INVALID with the reason and what would be allowed. */
LS_MUST_CHECK ls_status ls_strategy_check(const ls_strategy *strategy, const ls_shape *shape, int64_t gpus,
                                          int64_t global_batch, int64_t length);

#endif
