// SPDX-License-Identifier: Apache-2.0
/*
 * A strategy: how a model and its batch are split over GPUs.
 *
 *   tp   tensor parallel: each matrix is split; all-reduce twice per layer and direction
 *   pp   pipeline stages, vpp virtual stages (interleaving) on each
 *   cp   context parallel: the sequence is split, keys and values travel
 *   ep   expert parallel, inside the data parallel ranks: experts are split, tokens travel; divides
 *        dp * cp
 *   dp   data parallel: what is left; gpus = tp * pp * cp * dp
 *   zero 0: plain; 1: optimizer state; 2: + gradients; 3: + weights split over dp * cp (FSDP)
 */
#ifndef LS_PLANNING_STEP_STRATEGY_H
#define LS_PLANNING_STEP_STRATEGY_H

#include "planning/model/shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* A strategy in which fields left 0 are to be chosen (for zero, recompute, sequence_parallel and
 * schedule see the has_ fields). */
typedef struct ls_strategy_request {
    ls_strategy strategy;
    bool has_zero, has_recompute, has_sequence_parallel, has_schedule;
} ls_strategy_request;

/* "tp=8,pp=2,dp=16,cp=1,ep=1,vpp=4,mb=1,zero=1,recompute=selective,sp=1,schedule=1f1b", any subset,
 * any order; a key once. Blanks around words and capitals are fine. Errors: LS_ERR_INVALID with the
 * word, its value and what is allowed; request_out is then untouched. */
LS_MUST_CHECK ls_status ls_strategy_parse(const char *text, ls_strategy_request *request_out);

/* True when nothing is left to choose: tp, pp, cp, ep, mb, zero and recompute are given, and vpp
 * where pp > 1. dp follows from the others and the GPUs; sequence parallelism and schedule have
 * default values. */
bool ls_strategy_is_complete(const ls_strategy_request *request);

/* The strategy of a complete request: dp = gpus / (tp pp cp) unless given (rounded down:
 * ls_strategy_check says when it does not come out even), at least 1; sequence parallelism with
 * tensor parallelism, 1F1B. */
ls_strategy ls_strategy_resolve(const ls_strategy_request *request, int64_t gpus);

/* "TP 8 x PP 2 x DP 16, micro-batch 1, interleave 4, ZeRO-1, selective recompute"; what is 1 or off
 * is left out. Cut to fit. */
void ls_strategy_describe(const ls_strategy *strategy, char *text, size_t bytes);
/* Writes it as ls_strategy_parse reads it, complete. */
void ls_strategy_format(const ls_strategy *strategy, char *text, size_t bytes);

/* "none", "selective", "full" */
const char *ls_recompute_name(ls_recompute recompute);
/* "1f1b", "gpipe", "zb-h1", "zb-h2" */
const char *ls_pipeline_schedule_name(ls_pipeline_schedule schedule);

/*
 * Checks that the strategy can be run at all:
 *
 *   every degree is 1 or more, and tp * pp * cp * dp equals gpus
 *   heads, kv heads, ffn (of experts too) divide by tp; the vocabulary is padded
 *   pp is at most the layers, stages of one more or fewer layer are fine; vpp > 1 needs pp > 1, and
 *   ls_strategy_deals_out, with ends length divides by cp; experts divide by ep, and ep divides dp
 *   * cp global batch divides by dp * micro_batch zero is 0 to 3; zero-bubble schedules need pp >
 *   1, and interleaving goes with 1F1B alone
 *
 * Errors: LS_ERR_INVALID with the reason and what would be allowed.
 */
LS_MUST_CHECK ls_status ls_strategy_check(const ls_strategy *strategy, const ls_shape *shape, int64_t gpus,
                                          int64_t global_batch, int64_t length);

/*
 * True when the layers can be dealt out over pp * vpp chunks, none empty: vpp divides those of the
 * stages with more or with fewer; `with_ends`: or embedding and head count as a layer each (126
 * layers as 16 * 8 chunks of one), as Megatron can when told to.
 */
bool ls_strategy_deals_out(int64_t layers, int64_t pp, int64_t vpp, bool with_ends);

#endif
