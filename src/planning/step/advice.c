// SPDX-License-Identifier: Apache-2.0
#include "planning/step/advice.h"

#include "base/assert.h"

#include <math.h>

#define TOKENS_PER_PARAMETER 20.0

const ls_loss_law ls_loss_law_chinchilla = {
    .name = "Chinchilla (2022)", .e = 1.69, .a = 406.4, .alpha = 0.34, .b = 410.7, .beta = 0.28};
const ls_loss_law ls_loss_law_epoch = {
    .name = "Epoch's refit (2024)", .e = 1.8172, .a = 482.01, .alpha = 0.3478, .b = 2085.43, .beta = 0.3658};

double ls_advice_loss(const ls_loss_law *law, double parameters, double tokens)
{
    LS_ASSERT(parameters > 0.0 && tokens > 0.0);
    return law->e + law->a / pow(parameters, law->alpha) + law->b / pow(tokens, law->beta);
}

double ls_advice_optimal_tokens(double parameters)
{
    return TOKENS_PER_PARAMETER * parameters;
}

double ls_advice_optimal_parameters(double flops)
{
    return sqrt(flops / (6.0 * TOKENS_PER_PARAMETER));
}

ls_tokens_verdict ls_advice_judge_tokens(double parameters, double tokens)
{
    const double ratio = tokens / parameters;
    return ratio < 10.0    ? LS_TOKENS_FEW
           : ratio <= 40.0 ? LS_TOKENS_OPTIMAL
           : ratio <= 500  ? LS_TOKENS_MANY
                           : LS_TOKENS_EXTREME;
}

const char *ls_tokens_verdict_text(ls_tokens_verdict verdict)
{
    static const char *const texts[] = {
        [LS_TOKENS_FEW] = "few; for the same compute, a smaller model on more tokens would be better",
        [LS_TOKENS_OPTIMAL] = "near the compute-optimal number (20), within a factor of two",
        [LS_TOKENS_MANY] =
            "more than the compute-optimal number (20); sensible if the model will serve many requests",
        [LS_TOKENS_EXTREME] =
            "far more than the compute-optimal number (20); check that there is enough distinct text",
    };
    return texts[verdict];
}

double ls_advice_critical_batch_tokens(double parameters)
{
    LS_ASSERT(parameters > 0.0);
    return 3e6 * pow(parameters / 7e9, 0.412);
}

double ls_advice_steps_factor(double batch, double critical_batch)
{
    return 1.0 + critical_batch / batch;
}

double ls_advice_tokens_factor(double batch, double critical_batch)
{
    return 1.0 + batch / critical_batch;
}

int64_t ls_advice_global_batch(double parameters, int64_t length, int64_t gpus)
{
    LS_ASSERT(length > 0 && gpus > 0);
    int64_t odd = gpus;
    while (odd % 2 == 0) {
        odd /= 2;
    }
    const double sequences = ls_advice_critical_batch_tokens(parameters) / (double)length;
    const double power = round(log2(sequences / (double)odd));
    return odd * (power > 0.0 ? (int64_t)1 << (int)fmin(power, 40.0) : 1);
}
