// SPDX-License-Identifier: Apache-2.0
/*
 * Generation: one token after another, with a cache of keys and values.
 *
 * A generator walks the same forward ops as training, first over the prompt in blocks, then one position at a time. When the
 * context is full it starts again from the newest half of it.
 *
 * The token at position p of a text is drawn with random number p of stream (seed, LS_RANDOM_SAMPLE): the same prompt, settings and seed
 * give the same text.
 *
 * Not thread-safe.
 */
#ifndef LS_EXECUTION_GENERATE_GENERATE_H
#define LS_EXECUTION_GENERATE_GENERATE_H

#include "execution/walk.h"

typedef struct ls_sampling {
    double temperature; /* >= 0; 0: always the likeliest token */
    uint32_t top_k;     /* keep the k likeliest; 0: all */
    double top_p;       /* keep the smallest set whose probabilities reach it, (0, 1] */
    uint64_t seed;
} ls_sampling;

/* Draws a token from `logits` (vocab floats, left as they are). order: vocab ints of scratch. position: which random number. */
int32_t ls_sampling_draw(const ls_sampling *sampling, const float *logits, int64_t vocab, uint64_t position,
                         int32_t *order);

typedef struct ls_generator ls_generator;

/*
 * parameters are borrowed and may change between texts (as during training). capacity: positions the cache
 * holds, 2 to config->context; 0 or more than that: config->context. Errors: LS_ERR_INVALID for a context of
 * one token, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_generator_create(ls_queue *queue, const ls_model_config *config,
                                            const ls_layout *layout, const float *parameters,
                                            int64_t capacity, ls_generator **generator_out);
void ls_generator_destroy(ls_generator *generator);
/* Called with each new token; false ends the text. */
typedef bool (*ls_token_fn)(void *context, int32_t token);

/*
 * Continues `prompt` (prompt_count >= 1 ids below the vocabulary) by at most `count` tokens, calling `on_token` for each; ends early after
 * stop_token (-1: none), which is not reported. Errors: LS_ERR_INVALID for an empty prompt or an id out of range.
 */
LS_MUST_CHECK ls_status ls_generator_run(ls_generator *generator, const int32_t *prompt, size_t prompt_count,
                                         uint64_t count, const ls_sampling *sampling, int32_t stop_token,
                                         ls_token_fn on_token, void *context);

/* Logits (vocab floats, valid until the next call) after `count` tokens of a fresh text. For tests and scoring. */
LS_MUST_CHECK ls_status ls_generator_logits(ls_generator *generator, const int32_t *tokens, size_t count,
                                            const float **logits_out);

#endif
