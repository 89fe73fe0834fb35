// SPDX-License-Identifier: Apache-2.0
/*
 * Advice about the training itself: how many tokens, which batch. The laws are published ones, with
 * their names; none of them knows your data.
 *
 * Pure; any thread.
 */
#ifndef LS_PLANNING_STEP_ADVICE_H
#define LS_PLANNING_STEP_ADVICE_H

#include "base/status.h"

#include <stdint.h>

/* Constants of L(N, D) = E + A / N^alpha + B / D^beta, in nats per token. */
typedef struct ls_loss_law {
    const char *name;
    double e, a, alpha, b, beta;
} ls_loss_law;

/* Hoffmann and others, "Training compute-optimal large language models", 2022, approach 3. */
extern const ls_loss_law ls_loss_law_chinchilla;
/* Besiroglu and others (Epoch), "Chinchilla scaling: a replication attempt", 2024. */
extern const ls_loss_law ls_loss_law_epoch;

/* Loss of a model of `parameters` after `tokens`, both > 0. */
double ls_advice_loss(const ls_loss_law *law, double parameters, double tokens);

/* The compute-optimal number of tokens: 20 per parameter (Hoffmann and others). */
double ls_advice_optimal_tokens(double parameters);

/* The compute-optimal number of parameters for 6 N D = flops at 20 tokens each: sqrt(flops /
 * 120). */
double ls_advice_optimal_parameters(double flops);

typedef enum ls_tokens_verdict {
    /* fewer than 10 per parameter: for the same compute, a smaller model on more tokens is
     * better */
    /* 40 to 500: more compute than this loss needs, for a smaller model that is cheaper to serve */
    LS_TOKENS_FEW,
    /* 10 to 40 */
    LS_TOKENS_OPTIMAL,
    LS_TOKENS_MANY,
    LS_TOKENS_EXTREME /* above 500: such as Llama 3 8B at 1,875; repeated data are likely */
} ls_tokens_verdict;
ls_tokens_verdict ls_advice_judge_tokens(double parameters, double tokens);
const char *ls_tokens_verdict_text(ls_tokens_verdict verdict);

/* Critical batch in tokens: above it, more data parallelism gains little. A fit to practice, not a
 * law: B_c = 3e6 * (N / 7e9)^0.412, through the 2 to 4 million tokens of 7B models and the 16
 * million of 405B. A measured noise scale of your own run is better. */
double ls_advice_critical_batch_tokens(double parameters);

/* McCandlish and others, "An empirical model of large-batch training", 2018, relative to the least
 * possible: steps S / S_min = 1 + B_c / B, tokens E / E_min = 1 + B / B_c. Both batches in the same
 * unit, > 0. */
double ls_advice_steps_factor(double batch, double critical_batch);
double ls_advice_tokens_factor(double batch, double critical_batch);

/* A global batch in sequences, where none is given: near the critical batch, and a power of two
 * times the odd part of `gpus`, so that it can be divided evenly. */
int64_t ls_advice_global_batch(double parameters, int64_t length, int64_t gpus);

#endif
