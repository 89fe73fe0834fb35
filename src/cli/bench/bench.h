// SPDX-License-Identifier: Apache-2.0
/* Benchmarks that have a file of their own. */
#ifndef LS_CLI_BENCH_BENCH_H
#define LS_CLI_BENCH_BENCH_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>

typedef struct ls_bench_allreduce_settings {
    uint64_t ranks;
    /* "1KiB,64MiB"; "": sizes from 1 KiB to 64 MiB */
    const char *bytes;
    /* use TCP between the processes */
    bool without_shm;
    /* allow any order of additions: over TCP, the ring */
    bool any_order;
    uint64_t rounds;
} ls_bench_allreduce_settings;

/* rows_out: an array with one row per size. */
LS_MUST_CHECK ls_status ls_bench_allreduce(ls_arena *arena, const ls_bench_allreduce_settings *settings,
                                           json_t **rows_out);

/* row_out: evaluate_us, search_1024_s, search_16384_s, medians over `rounds`, at most 16. */
LS_MUST_CHECK ls_status ls_bench_plan(ls_arena *arena, uint64_t rounds, json_t **row_out);

typedef struct ls_bench_policy_settings {
    uint64_t nodes, gpus_per_node, pending, rounds;
} ls_bench_policy_settings;

/* row_out: decisions_per_s, placement_p99_us, pass_ms, why_p99_ms: medians over `rounds`, at most
 * 9, each with its own cluster and jobs. */
LS_MUST_CHECK ls_status ls_bench_policy(ls_arena *arena, const ls_bench_policy_settings *settings,
                                        json_t **row_out);

#endif
