// SPDX-License-Identifier: Apache-2.0
/*
 * A histogram of waits at one call site, with four buckets per octave. Old waits fade: at 2,048
 * samples all counts are halved.
 *
 * Plain data with one owner.
 */
#ifndef LS_EXECUTION_HANG_WAIT_HISTOGRAM_H
#define LS_EXECUTION_HANG_WAIT_HISTOGRAM_H

#include <stdint.h>

enum { LS_WAIT_HISTOGRAM_BUCKETS = 128 };

typedef struct ls_wait_histogram {
    uint32_t count;
    uint32_t buckets[LS_WAIT_HISTOGRAM_BUCKETS];
} ls_wait_histogram;

void ls_wait_histogram_add(ls_wait_histogram *waits, uint64_t wait_us);
/* The 99th percentile, rounded up to the end of its bucket; 0 without any waits. */
uint64_t ls_wait_histogram_p99_us(const ls_wait_histogram *waits);

#endif
