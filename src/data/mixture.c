// SPDX-License-Identifier: Apache-2.0
#include "data/mixture.h"

#include "base/assert.h"
#include "base/random.h"

#include <math.h>

enum { SHARE_BITS = 63 };
static const double SMALLEST_SHARE = 1e-9;

static double sum_of(const double *weights, uint32_t begin, uint32_t end)
{
    double sum = 0.0;
    for (uint32_t i = begin; i < end; i++) {
        sum += weights[i];
    }
    return sum;
}

/* A node is the interval [begin, end) of corpora. It splits at its middle, which also identifies
 * it. */
static uint32_t middle_of(uint32_t begin, uint32_t end)
{
    return begin + (end - begin) / 2;
}

static void fill_shares(const double *weights, uint32_t begin, uint32_t end, ls_mixture *mixture)
{
    if (end - begin < 2) {
        return;
    }
    const uint32_t middle = middle_of(begin, end);
    const double share = sum_of(weights, begin, middle) / sum_of(weights, begin, end);
    mixture->left_share[middle] = (uint64_t)ldexp(share, SHARE_BITS);
    fill_shares(weights, begin, middle, mixture);
    fill_shares(weights, middle, end, mixture);
}

ls_status ls_mixture_init(const double *weights, uint32_t count, ls_mixture *mixture_out)
{
    if (count < 1 || count > LS_MIXTURE_MAX) {
        return ls_fail(LS_ERR_INVALID, "the mixture has %u data sources; 1 to %d are allowed", count,
                       LS_MIXTURE_MAX);
    }
    const double sum = sum_of(weights, 0, count);
    for (uint32_t i = 0; i < count; i++) {
        if (!isfinite(weights[i]) || !(weights[i] > 0.0) || !isfinite(sum)) {
            return ls_fail(LS_ERR_INVALID, "weight %g of corpus %u must be a finite number above 0",
                           weights[i], i);
        }
        if (weights[i] < SMALLEST_SHARE * sum) {
            return ls_fail(LS_ERR_INVALID,
                           "weight %g of corpus %u is below a billionth of the sum of all weights, %g: "
                           "remove the corpus or raise its weight",
                           weights[i], i, sum);
        }
    }
    ls_mixture mixture = {.count = count};
    fill_shares(weights, 0, count, &mixture);
    *mixture_out = mixture;
    return LS_OK;
}

static uint64_t left_before(uint64_t position, uint64_t share, uint64_t phase)
{
    return (uint64_t)(((unsigned __int128)position * share + phase) >> SHARE_BITS);
}

ls_mixture_draw ls_mixture_at(const ls_mixture *mixture, uint64_t seed, uint64_t position)
{
    LS_ASSERT(position < UINT64_C(1) << 62);
    const ls_random_key key = ls_random_stream(seed, LS_RANDOM_MIXTURE);
    uint32_t begin = 0, end = mixture->count;
    while (end - begin > 1) {
        const uint32_t middle = middle_of(begin, end);
        const uint64_t share = mixture->left_share[middle];
        const uint64_t phase = ls_random_u64(key, middle, 0) >> (64 - SHARE_BITS);
        const uint64_t left = left_before(position, share, phase);
        if (left_before(position + 1, share, phase) > left) {
            end = middle;
            position = left;
        } else {
            begin = middle;
            position -= left;
        }
    }
    return (ls_mixture_draw){.corpus = begin, .position = position};
}
