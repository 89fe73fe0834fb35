// SPDX-License-Identifier: Apache-2.0
/*
 * Evaluation: mean loss of a model over a stream of tokens.
 *
 * The stream is cut in windows of the plan's length, each starting where the last one ended, every token but the first being a
 * target once; the last window may be short. Loss sums are taken in window order in float64, so the result does not depend on
 * how many windows run at once.
 *
 * An evaluator owns its walk. Not thread-safe.
 */
#ifndef LS_EXECUTION_EVALUATE_H
#define LS_EXECUTION_EVALUATE_H

#include "execution/walk.h"

/* Writes tokens [first, first + count) of the stream. */
typedef ls_status (*ls_stream_fn)(void *context, uint64_t first, uint64_t count, int32_t *tokens_out);

typedef struct ls_evaluator ls_evaluator;

typedef struct ls_evaluation {
    double loss;     /* mean over targets, nats per token */
    uint64_t tokens; /* targets */
} ls_evaluation;

/* sequences: windows at once, length: tokens per window (<= context). Errors: LS_ERR_INVALID, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_evaluator_create(ls_queue *queue, const ls_model_config *config,
                                            const ls_layout *layout, int64_t sequences, int64_t length,
                                            ls_evaluator **evaluator_out);
void ls_evaluator_destroy(ls_evaluator *evaluator);

/*
 * Evaluates the first `windows_max` windows (0: all) of a stream of `token_count` >= 2 tokens. Ids must be below the vocabulary.
 * Errors: LS_ERR_DATA for a stream that is too short or an id out of range; those of `stream`.
 */
LS_MUST_CHECK ls_status ls_evaluator_run(ls_evaluator *evaluator, const float *parameters,
                                         ls_stream_fn stream, void *stream_context, uint64_t token_count,
                                         uint64_t windows_max, ls_evaluation *result_out);

#endif
