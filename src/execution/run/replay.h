// SPDX-License-Identifier: Apache-2.0
/*
 * Replay: computes one leaf of one step of a run again, alone, from the run directory.
 *
 * A leaf is a pure function of (state, step, leaf), so the result has the same bits as in training,
 * on any machine of the same determinism class and with any number of threads. A value that is not
 * finite appears again in the same element of the same op, and the hash of the leaf's gradient
 * shows which rank computed it correctly.
 *
 * The state comes from the newest checkpoint before the step, or from the run file's weights. If it
 * is older than the step needs, the steps in between are computed first, and their losses compared
 * with those in metrics.jsonl. Nothing is written, and the run may be training meanwhile.
 */
#ifndef LS_EXECUTION_RUN_REPLAY_H
#define LS_EXECUTION_RUN_REPLAY_H

#include "base/arena.h"
#include "base/json.h"

#include <stdio.h>

typedef struct ls_replay_options {
    const char *run_dir;
    uint64_t step;    /* counted from 1: step N turns state N - 1 into state N */
    uint32_t leaf;    /* LS_NO_LEAF: all leaves in turn until one is not finite */
    bool op_trace;    /* print what each step of the plan wrote */
    uint64_t threads; /* 0: as in the run file */
    FILE *out;        /* progress, trace and result for people; NULL: nothing */
} ls_replay_options;

/*
 * Replays. result_out: the whole result for --json, which the caller drops; NULL if it failed
 * before the leaf was computed.
 *
 * Errors: LS_ERR_FAILED if the leaf holds a value that is not finite, with leaf, layer, op, row and
 * column; LS_ERR_INVALID for a step or leaf that the run does not have, or for data that have
 * changed since the run; LS_ERR_NOT_FOUND, LS_ERR_DATA, LS_ERR_MEMORY, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_replay(const ls_replay_options *options, json_t **result_out);

/* The word quoted for a shell if it needs quotes; in `arena`. */
const char *ls_shell_quote(ls_arena *arena, const char *word);

/* The shell command that replays this leaf (LS_NO_LEAF: the first that is not finite) with its op
 * trace; in `arena`. */
const char *ls_replay_command(ls_arena *arena, const char *run_dir, uint64_t step, uint32_t leaf);

#endif
