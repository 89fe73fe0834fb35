// SPDX-License-Identifier: Apache-2.0
/*
 * Scoring: the log-probability a model gives to the end of a text.
 *
 * A scorer remembers the keys and values of the text it scored last. What the next text has in
 * common with it, from its first token on, is not computed again: the endings of one context cost
 * their own tokens, and examples that begin every prompt are computed once. The bits are those of
 * the whole text computed alone, whatever was scored before and whatever the number of threads,
 * because neither attention with a cache nor a product depends on the rows beside it.
 *
 * Not thread-safe.
 */
#ifndef LS_EXECUTION_JUDGE_SCORER_H
#define LS_EXECUTION_JUDGE_SCORER_H

#include "execution/executor/executor.h"

typedef struct ls_scorer ls_scorer;

/* model: borrowed, with what it points to; its weights must not change. capacity: tokens of the
 * longest text, 1 to the model's context. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_scorer_create(const ls_model_on_device *model, int64_t capacity,
                                         ls_scorer **scorer_out);
void ls_scorer_destroy(ls_scorer *scorer);

typedef struct ls_ending_score {
    double log_probability; /* sum over the tokens of the ending, natural logarithm */
    bool is_likeliest;      /* each token of the ending is the likeliest at its place */
} ls_ending_score;

/*
 * Scores tokens[first .. count - 1] after tokens[0 .. first - 1]. 1 <= first < count <= capacity.
 * Errors: LS_ERR_DATA for an id outside the vocabulary.
 */
LS_MUST_CHECK ls_status ls_scorer_score(ls_scorer *scorer, const int32_t *tokens, size_t count, size_t first,
                                        ls_ending_score *score_out);

/* Positions computed so far, those of the texts less what they had in common. */
uint64_t ls_scorer_positions(const ls_scorer *scorer);

#endif
