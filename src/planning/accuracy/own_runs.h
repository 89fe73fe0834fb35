// SPDX-License-Identifier: Apache-2.0
/*
 * Own runs: predictions and measurements of this user's runs.
 * $LOCKSTEP_HOME/accuracy.jsonl has one line per run:
 *
 *   {"time": "2026-11-21T20:30:00Z", "run": "small", "model": "llama", "parameters": 10738560,
 *   "layers": 6, "width": 384,
 *    "device": "AMD EPYC, avx512", "ranks": 2, "threads": 1, "tokens_per_step": 1024, "steps": 500,
 *    "calibration": "2026-11-21T20:10:00Z", "predicted": {"step_s": 0.2, "tokens_per_s": 5120,
 *    "memory_bytes": 3.1e8, "checkpoint_stall_s": 0.1}, "measured": {the same}}
 *
 * An unknown number is null or missing; "calibration" is null when times were not predicted. Pure.
 */
#ifndef LS_PLANNING_ACCURACY_OWN_RUNS_H
#define LS_PLANNING_ACCURACY_OWN_RUNS_H

#include "base/arena.h"
#include "base/json.h"

/* NaN: not known. */
typedef struct ls_own_run_side {
    double step_s, tokens_ps, memory_bytes, checkpoint_stall_s;
} ls_own_run_side;

typedef struct ls_own_run_row {
    const char *time, *run, *model, *device;
    const char *calibration; /* date of the calibration; NULL: none */
    uint64_t parameters, layers, width, ranks, threads, tokens_per_step, steps;
    ls_own_run_side predicted, measured;
} ls_own_run_row;

/* Lines that are not such a row (cut off by a crash, for example) are left out and counted. The
 * rows keep the order of the file and live in `arena`. */
void ls_own_runs_parse(ls_arena *arena, const char *text, size_t bytes, ls_own_run_row **rows_out,
                       size_t *count_out, size_t *bad_out);

/* The JSON object of a line; the caller drops it. */
json_t *ls_own_run_to_json(const ls_own_run_row *row);

#endif
