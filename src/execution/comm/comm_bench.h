// SPDX-License-Identifier: Apache-2.0
/*
 * How fast an all-reduce is on this machine, against the plain copies that are its limit.
 *
 * Processes of its own meet over a store in a temporary folder. The limit is `ranks` processes that each copy as many bytes at the same time
 * (an all-reduce in place reads and writes as much as they do together), with the C library or with stores past the caches, whichever is
 * faster. All three are measured in turn.
 */
#ifndef LS_EXECUTION_COMM_COMM_BENCH_H
#define LS_EXECUTION_COMM_COMM_BENCH_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_COMM_BENCH_ROUNDS_MAX = 99 };

typedef struct ls_comm_bench_options {
    uint32_t ranks;        /* 1..64 */
    const uint64_t *bytes; /* of float32, multiples of 4, >= 4 */
    uint32_t bytes_count;
    uint32_t rounds;      /* 1..LS_COMM_BENCH_ROUNDS_MAX; 0: 9 */
    bool without_shm;     /* TCP between the processes */
    bool any_order;       /* LS_COMM_ANY_ORDER: over TCP the ring */
    bool ordinary_memory; /* malloc instead of ls_comm_alloc */
} ls_comm_bench_options;

typedef struct ls_comm_bench_result {
    uint64_t bytes;
    double median_us;     /* of one all-reduce: over the rounds, of the rank that took longest */
    double best_us;       /* of the best round: on a busy machine the one that was disturbed least */
    double copy_us;       /* `ranks` copies at a time by the C library */
    double stream_us;     /* the same past the caches */
    double copy_limit_us; /* the better of the two */
} ls_comm_bench_result;

/* results_out: bytes_count of them. Sums are checked before and after. The calling process has one thread. Errors: LS_ERR_INVALID,
 * LS_ERR_MEMORY, LS_ERR_FAILED (a wrong sum, a process that ended badly). */
LS_MUST_CHECK ls_status ls_comm_bench(const ls_comm_bench_options *options,
                                      ls_comm_bench_result *results_out);

#endif
