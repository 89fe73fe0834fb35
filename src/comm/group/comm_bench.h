// SPDX-License-Identifier: Apache-2.0
/*
 * Measures how fast an all-reduce is on this machine, compared with plain copies, which are its
 * limit.
 *
 * The benchmark starts its own processes, which meet at a store in a temporary folder. The limit is
 * the time in which `ranks` processes each copy the same number of bytes at once, because an
 * all-reduce in place reads and writes as much memory as these copies together. Copies are made by
 * the C library and with stores that bypass the caches; the faster counts. The three are measured
 * in turn.
 */
#ifndef LS_COMM_GROUP_COMM_BENCH_H
#define LS_COMM_GROUP_COMM_BENCH_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_COMM_BENCH_ROUNDS_MAX = 99 };

typedef struct ls_comm_bench_options {
    /* Number of processes, 1 to 64. */
    uint32_t ranks;
    /* Sizes to measure, in bytes of float32: multiples of 4, at least 4. */
    const uint64_t *bytes;
    uint32_t bytes_count;
    /* 1 to LS_COMM_BENCH_ROUNDS_MAX; 0: 9. */
    uint32_t rounds;
    /* Use TCP between the processes. */
    bool without_shm;
    /* LS_COMM_ANY_ORDER: the ring over TCP. */
    bool any_order;
    /* Use malloc instead of ls_comm_alloc. */
    bool ordinary_memory;
} ls_comm_bench_options;

typedef struct ls_comm_bench_result {
    uint64_t bytes;
    /* Time of one all-reduce on the slowest rank: the median of the rounds, and the best round,
     * which on a busy machine was disturbed least. */
    double median_us;
    double best_us;
    /* Time of `ranks` simultaneous copies: by the C library, or with stores that bypass the caches,
     * whichever takes less. */
    double copy_limit_us;
} ls_comm_bench_result;

/* results_out: one result for each size. The sums are checked before and after the measurement. The
 * calling process must have a single thread, since it forks.
 * Errors: LS_ERR_INVALID, LS_ERR_MEMORY, LS_ERR_FAILED (a wrong sum, or a process that failed). */
LS_MUST_CHECK ls_status ls_comm_bench(const ls_comm_bench_options *options,
                                      ls_comm_bench_result *results_out);

#endif
