// SPDX-License-Identifier: Apache-2.0
/*
 * Evaluation: mean loss of a model over a stream of tokens, or over samples.
 *
 * A stream is cut into windows of the plan's length. Each window starts where the last one ended,
 * so every token except the first is a target exactly once; the last window may be short. Losses
 * are added in window order in float64, so the result does not depend on how many windows run at
 * once.
 *
 * Samples hold records (data/dataset.h). The losses of a record are added up in float64 from its
 * first token on, and then the sums of the records in order: the sum of a record has the same bits
 * whatever lies beside it in its window.
 *
 * An evaluator owns its executor. Not thread-safe.
 */
#ifndef LS_EXECUTION_TRAIN_EVALUATE_H
#define LS_EXECUTION_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "execution/executor/executor.h"

typedef struct ls_token_stream {
    /* Writes tokens [first, first + count) of the stream. */
    ls_status (*read)(void *context, uint64_t first, uint64_t count, int32_t *tokens_out);
    void *context;
    uint64_t token_count; /* >= 2 */
} ls_token_stream;

typedef struct ls_sample_list {
    /* Writes sample `index`, `length` entries per array, with `first` and `record`. */
    ls_status (*read)(void *context, uint64_t index, const ls_sample *sample);
    void *context;
    uint64_t count; /* >= 1 */
} ls_sample_list;

typedef struct ls_evaluator ls_evaluator;

/* A part of the stream: what was evaluated of it. */
typedef struct ls_evaluation_part {
    double loss_sum;
    uint64_t tokens; /* targets; 0: none was reached */
} ls_evaluation_part;

typedef struct ls_evaluation {
    double loss;     /* mean over targets, nats per token */
    uint64_t tokens; /* targets */
    /* of ls_evaluator_divide, in its order, until the next evaluation; NULL: not divided */
    const ls_evaluation_part *parts;
} ls_evaluation;

/* sequences: windows per pass; length: tokens per window (<= context). Errors: LS_ERR_INVALID,
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_evaluator_create(const ls_model_on_device *model, int64_t sequences,
                                            int64_t length, ls_evaluator **evaluator_out);
void ls_evaluator_destroy(ls_evaluator *evaluator);

/* Divides the stream: part i ends before token ends[i], or before record ends[i] of samples, in
 * rising order. From then on results have parts, and an evaluation of fewer windows than there are
 * takes them evenly from the whole stream instead of its beginning, so that each part is
 * represented. */
void ls_evaluator_divide(ls_evaluator *evaluator, const uint64_t *ends, size_t count);

/*
 * Evaluates the first `windows_max` windows (0: all) of a stream. Ids must be below the vocabulary.
 * Errors: LS_ERR_DATA for a stream that is too short or an id out of range; those of `stream`.
 */
LS_MUST_CHECK ls_status ls_evaluator_run(ls_evaluator *evaluator, const ls_token_stream *stream,
                                         uint64_t windows_max, ls_evaluation *result_out);

/*
 * Evaluates the first `samples_max` samples (0: all), or, if the data are divided, as many taken
 * evenly from all of them. Errors: LS_ERR_DATA if no token has a target; those of `samples`.
 */
LS_MUST_CHECK ls_status ls_evaluator_run_samples(ls_evaluator *evaluator, const ls_sample_list *samples,
                                                 uint64_t samples_max, ls_evaluation *result_out);

#endif
