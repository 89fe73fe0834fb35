// SPDX-License-Identifier: Apache-2.0
/*
 * Generation: one token after another, with a cache of keys and values.
 *
 * A generator runs the same forward ops as training, first over the prompt in blocks, then one
 * position at a time. When the context is full, it starts again from the newest half of it.
 *
 * The token at position p of a text is drawn with random number p of stream (seed,
 * LS_RANDOM_SAMPLE): the same prompt, settings and seed give the same text.
 *
 * Not thread-safe.
 */
#ifndef LS_EXECUTION_GENERATE_GENERATE_H
#define LS_EXECUTION_GENERATE_GENERATE_H

#include "execution/executor/executor.h"

typedef struct ls_sampling {
    double temperature; /* >= 0; 0: always the likeliest token */
    uint32_t top_k;     /* keep the k likeliest; 0: all */
    double top_p;       /* keep the smallest set whose probabilities add up to it, (0, 1] */
    uint64_t seed;
} ls_sampling;

/* Draws a token from `logits` (vocab floats, not changed). order: scratch for vocab ints. position:
 * the number of the random number in the stream. */
int32_t ls_sampling_draw(const ls_sampling *sampling, const float *logits, int64_t vocab, uint64_t position,
                         int32_t *order);

typedef struct ls_generator ls_generator;

/*
 * parameters are borrowed and may change between texts (as during training). capacity: positions
 * the cache holds, 2 to config->context; 0 or more than that: config->context. Errors:
 * LS_ERR_INVALID for a context of one token, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_generator_create(const ls_model_on_device *model, int64_t capacity,
                                            ls_generator **generator_out);
void ls_generator_destroy(ls_generator *generator);

typedef struct ls_text_request {
    const int32_t *prompt; /* ids below the vocabulary */
    size_t prompt_count;   /* >= 1 */
    uint64_t count;        /* new tokens, at most */
    const int32_t *stops;  /* ids that end the text and are not reported */
    size_t stop_count;
    ls_sampling sampling;
    /* called with each new token; false ends the text */
    bool (*on_token)(void *context, int32_t token);
    void *context;
} ls_text_request;

/* Continues the prompt. Errors: LS_ERR_INVALID for an empty prompt or an id out of range. */
LS_MUST_CHECK ls_status ls_generator_run(ls_generator *generator, const ls_text_request *request);

/* Logits (vocab floats, valid until the next call) after `count` tokens of a fresh text. For tests
 * and scoring. */
LS_MUST_CHECK ls_status ls_generator_logits(ls_generator *generator, const int32_t *tokens, size_t count,
                                            const float **logits_out);

#endif
