// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"
#include "execution/generate/generate.h"

#include <math.h>
#include <stdlib.h>

/* Below it, 1 / temperature may be infinite. */
static const double TEMPERATURE_MIN = 1e-6;

static int32_t likeliest(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        if (logits[i] > logits[best]) {
            best = (int32_t)i;
        }
    }
    return best;
}

/* By descending logit, ties by id: the same order on every machine. */
static int compare_by_logit(const void *a, const void *b, void *context)
{
    const float *logits = context;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (logits[x] != logits[y]) {
        return logits[x] > logits[y] ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

int32_t ls_sampling_draw(const ls_sampling *sampling, const float *logits, int64_t vocab, uint64_t position,
                         int32_t *order)
{
    const int32_t best = likeliest(logits, vocab);
    if (sampling->temperature < TEMPERATURE_MIN) {
        return best;
    }
    const double scale = 1.0 / sampling->temperature, top = (double)logits[best];
    int64_t kept = vocab;
    for (int64_t i = 0; i < vocab; i++) {
        order[i] = (int32_t)i;
    }
    if (sampling->top_k > 0 || sampling->top_p < 1.0) {
        qsort_r(order, (size_t)vocab, sizeof *order, compare_by_logit, (void *)(uintptr_t)logits);
        if (sampling->top_k > 0 && sampling->top_k < vocab) {
            kept = sampling->top_k;
        }
    }
    double total = 0.0;
    for (int64_t i = 0; i < kept; i++) {
        total += exp(((double)logits[order[i]] - top) * scale);
    }
    double reach = total;
    if (sampling->top_p < 1.0) {
        double sum = 0.0;
        int64_t i = 0;
        while (i < kept && sum < sampling->top_p * total) {
            sum += exp(((double)logits[order[i++]] - top) * scale);
        }
        kept = i > 0 ? i : 1;
        reach = sum;
    }
    double left =
        reach * ls_random_uniform64(ls_random_stream(sampling->seed, LS_RANDOM_SAMPLE), position, 0);
    for (int64_t i = 0; i < kept; i++) {
        left -= exp(((double)logits[order[i]] - top) * scale);
        if (left < 0.0) {
            return order[i];
        }
    }
    return order[kept - 1];
}

/* Puts a token among the likeliest so far, which are in order; equal ones by id. */
static void keep_if_likely(const float *logits, int32_t token, uint32_t most, ls_text_scores *scores)
{
    uint32_t at = scores->top_count;
    if (at == most && logits[token] <= logits[scores->top[at - 1]]) {
        return;
    }
    at = at == most ? at - 1 : at;
    for (; at > 0 && logits[token] > logits[scores->top[at - 1]]; at--) {
        scores->top[at] = scores->top[at - 1];
    }
    scores->top[at] = token;
    scores->top_count += scores->top_count < most;
}

void ls_text_score(const float *logits, int64_t vocab, int32_t token, uint32_t top_count,
                   ls_text_scores *scores_out)
{
    const uint32_t most = top_count < vocab ? top_count : (uint32_t)vocab;
    const double top = (double)logits[likeliest(logits, vocab)];
    double total = 0.0;
    scores_out->top_count = 0;
    for (int64_t i = 0; i < vocab; i++) {
        total += exp((double)logits[i] - top);
        if (most > 0) {
            keep_if_likely(logits, (int32_t)i, most, scores_out);
        }
    }
    const double all = top + log(total);
    scores_out->logprob = (double)logits[token] - all;
    for (uint32_t i = 0; i < scores_out->top_count; i++) {
        scores_out->top_logprob[i] = (double)logits[scores_out->top[i]] - all;
    }
}
