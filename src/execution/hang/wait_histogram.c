// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/wait_histogram.h"

enum { FADE_AT = 2048 };

/* Waits of 0 to 3 us have a bucket each; longer ones have 4 buckets per octave. */
static uint32_t bucket_of(uint64_t us)
{
    if (us < 4) {
        return (uint32_t)us;
    }
    const uint32_t octave = 63 - (uint32_t)__builtin_clzll(us);
    const uint32_t bucket = 4 * (octave - 1) + (uint32_t)(us >> (octave - 2) & 3);
    return bucket < LS_WAIT_HISTOGRAM_BUCKETS ? bucket : LS_WAIT_HISTOGRAM_BUCKETS - 1;
}

/* The longest wait of a bucket. */
static uint64_t top_of(uint32_t bucket)
{
    if (bucket < 4) {
        return bucket;
    }
    const uint32_t octave = bucket / 4 + 1;
    return ((4ull + bucket % 4 + 1) << (octave - 2)) - 1;
}

void ls_wait_histogram_add(ls_wait_histogram *waits, uint64_t wait_us)
{
    waits->buckets[bucket_of(wait_us)]++;
    if (++waits->count < FADE_AT) {
        return;
    }
    waits->count = 0;
    for (uint32_t i = 0; i < LS_WAIT_HISTOGRAM_BUCKETS; i++) {
        waits->buckets[i] /= 2;
        waits->count += waits->buckets[i];
    }
}

uint64_t ls_wait_histogram_p99_us(const ls_wait_histogram *waits)
{
    const uint32_t above_max = waits->count / 100;
    uint32_t above = 0;
    for (uint32_t i = LS_WAIT_HISTOGRAM_BUCKETS; i-- > 0;) {
        above += waits->buckets[i];
        if (above > above_max) {
            return top_of(i);
        }
    }
    return 0;
}
