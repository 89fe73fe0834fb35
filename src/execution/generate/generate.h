// SPDX-License-Identifier: Apache-2.0
/*
 * Generation: continues several texts at once, one token after another, with a cache of keys and
 * values.
 *
 * A generator has slots, one for each text under way. A step is one forward pass over the newest
 * token of every text and a piece of the prompts that are not read yet:
 *
 *     slot 0   "... once upon" ───▶ 1 row  ┐                    ┌─▶ next token of slot 0
 *     slot 1   "The"           ───▶ 1 row  ├─▶ forward pass ────┼─▶ next token of slot 1
 *     slot 2   a long prompt   ───▶ n rows ┘  (all of the ops   └─▶ none until the prompt is read
 *                                              of training)
 *
 * Texts join and leave between steps. A text has the same logits, bit for bit on the CPU, alone or
 * beside others and however its prompt is cut, because what an op computes for a row depends on
 * that row and its own text only. When the capacity is full, a text starts again from the newest
 * half of it.
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
    double temperature; /* >= 0; below 1e-6: always the likeliest token */
    uint32_t top_k;     /* keep the k likeliest; 0: all */
    double top_p;       /* keep the smallest set whose probabilities add up to it, (0, 1] */
    uint64_t seed;
} ls_sampling;

/* Draws a token from `logits` (vocab floats, not changed). order: scratch for vocab ints. position:
 * the number of the random number in the stream. */
int32_t ls_sampling_draw(const ls_sampling *sampling, const float *logits, int64_t vocab, uint64_t position,
                         int32_t *order);

enum { LS_TEXT_TOP_MAX = 20 };

/* Natural logarithms of probabilities at temperature 1. */
typedef struct ls_text_scores {
    double logprob; /* of the token */
    uint32_t top_count;
    int32_t top[LS_TEXT_TOP_MAX]; /* the likeliest tokens at this place, best first */
    double top_logprob[LS_TEXT_TOP_MAX];
} ls_text_scores;

/* Computes the scores of `token` and of the `top_count` likeliest tokens from logits (vocab
 * floats). */
void ls_text_score(const float *logits, int64_t vocab, int32_t token, uint32_t top_count,
                   ls_text_scores *scores_out);

typedef struct ls_generator ls_generator;

typedef struct ls_generator_options {
    int64_t slots;    /* texts at once, >= 1 */
    int64_t capacity; /* positions of a text, at least 2; 0 or too many: the context */
    int64_t rows;     /* of a forward pass at most, >= slots; 0: 64 */
    int64_t scored;   /* rows whose logits are there at once; 0: slots */
    /* The weights never change: what a slot still holds of an earlier text is used again for a
     * prompt that begins with it. */
    bool keeps_texts;
} ls_generator_options;

/*
 * The weights are borrowed and may change between texts (as during training).
 * Errors: LS_ERR_INVALID for a context of one token, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_generator_create(const ls_model_on_device *model,
                                            const ls_generator_options *options,
                                            ls_generator **generator_out);
void ls_generator_destroy(ls_generator *generator);

/* Bytes that a generator allocates: for each slot, and for all of them together. */
LS_MUST_CHECK ls_status ls_generator_memory(const ls_model_on_device *model,
                                            const ls_generator_options *options, uint64_t *slot_bytes_out,
                                            uint64_t *other_bytes_out);

typedef enum ls_text_end {
    LS_TEXT_STOPPED, /* one of `stops` was drawn */
    LS_TEXT_FULL,    /* `count` tokens were drawn */
    LS_TEXT_REFUSED, /* on_token returned false */
} ls_text_end;

typedef struct ls_text_request {
    const int32_t *prompt; /* ids below the vocabulary; copied */
    size_t prompt_count;   /* >= 1 */
    uint64_t count;        /* new tokens, at most; 0 only with scores_prompt */
    const int32_t *stops;  /* ids that end the text; live until on_end */
    size_t stop_count;
    bool reports_stop; /* on_token gets the id that ends the text, too */
    ls_sampling sampling;
    bool scores;        /* on_token gets scores */
    bool scores_prompt; /* the prompt's tokens are scored too, and reported first */
    size_t scored_from; /* with scores_prompt: from this token of the prompt on */
    uint32_t top_count; /* likeliest tokens in the scores, at most LS_TEXT_TOP_MAX */
    /*
     * Called for each new token, and before them, with scores_prompt, for each token of the prompt
     * from `scored_from` on (without scores for the first of the prompt). False ends the text.
     */
    bool (*on_token)(void *context, int32_t token, const ls_text_scores *scores);
    /* The text's last call; its slot is free. NULL: not called. */
    void (*on_end)(void *context, ls_text_end end);
    void *context;
} ls_text_request;

/*
 * Begins a text in a free slot. The callbacks are called from ls_generator_step, and must not call
 * the generator. There must be a free slot (ls_generator_texts < slots).
 * Errors: LS_ERR_INVALID for an empty prompt, an id out of range, or a prompt beyond the capacity
 * that is to be scored.
 */
LS_MUST_CHECK ls_status ls_generator_start(ls_generator *generator, const ls_text_request *request,
                                           size_t *slot_out);

/* Ends a text at once; none of its callbacks is called. */
void ls_generator_cancel(ls_generator *generator, size_t slot);

/* Texts under way. */
size_t ls_generator_texts(const ls_generator *generator);

/* One forward pass, for at least one text. An error is one of the device, and ends all texts. */
LS_MUST_CHECK ls_status ls_generator_step(ls_generator *generator);

/* Continues one prompt to its end, in a generator without other texts. */
LS_MUST_CHECK ls_status ls_generator_run(ls_generator *generator, const ls_text_request *request);

#endif
