// SPDX-License-Identifier: Apache-2.0
/*
 * Replay: one leaf of one step of a run, computed again, alone, from the run directory.
 *
 * A leaf is a pure function of (state, step, leaf), so the same bits come out as in training, on any machine of the same determinism
 * class, with any number of threads: a value that is not finite shows up again in the same element of the same op, and the hash of a leaf's
 * gradient says who computed it right.
 *
 * The state is that of the newest checkpoint before the step (or the run file's weights). When it is older than the step needs, the steps
 * between are computed first, and their losses compared with those that metrics.jsonl has. Nothing is written; the run may be going on.
 */
#ifndef LS_EXECUTION_DIAGNOSE_REPLAY_H
#define LS_EXECUTION_DIAGNOSE_REPLAY_H

#include "base/arena.h"
#include "base/json.h"

#include <stdio.h>

typedef struct ls_replay_options {
    const char *run_dir;
    uint64_t step;    /* 1-based, as metrics.jsonl counts: step N makes state N of state N - 1 */
    uint32_t leaf;    /* LS_NO_LEAF: leaf after leaf, until one is not finite */
    bool op_trace;    /* show what each step of the plan wrote */
    uint64_t threads; /* 0: as the run file says */
    FILE *out;        /* for people: what is being done, the trace, the result; NULL: nothing */
} ls_replay_options;

/*
 * Replays. result_out: everything, for --json; the caller drops it; NULL when it failed before the leaf was computed.
 *
 * Errors: LS_ERR_FAILED when the leaf holds a value that is not finite, with leaf, layer, op, row and column; LS_ERR_INVALID for a step or
 * leaf that the run does not have, or data that are not the run's; LS_ERR_NOT_FOUND, LS_ERR_DATA, LS_ERR_MEMORY, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_replay(const ls_replay_options *options, json_t **result_out);

/* A word as a shell reads it, in quotes when it needs them; in `arena`. */
const char *ls_shell_quote(ls_arena *arena, const char *word);

/* The command that replays this leaf (LS_NO_LEAF: whichever is not finite) with its op trace, quoted for a shell; in `arena`. */
const char *ls_replay_command(ls_arena *arena, const char *run_dir, uint64_t step, uint32_t leaf);

#endif
