// SPDX-License-Identifier: Apache-2.0
/*
 * Rank: what a process of a gang does that computes.
 *
 *   attach the segment -> open the session from the run file in it -> say hello -> loop: wait for a grant, run the step, publish its result
 *
 * A rank knows its agent by the segment's path, /proc/PID/fd/N, and never outlives it: the kernel kills it when the agent's thread that
 * started it ends, and it looks for itself whenever it waits. It ignores SIGINT and SIGHUP, which a terminal or a scheduler sends to
 * all processes of a job: the trainer decides, and tells it through the control page. It prints nothing: what goes wrong is in its slot.
 */
#ifndef LS_EXECUTION_ELASTIC_RANK_H
#define LS_EXECUTION_ELASTIC_RANK_H

#include "base/status.h"

#include <stdint.h>

typedef struct ls_rank_options {
    const char *segment; /* /proc/PID/fd/N */
    const char *run_dir; /* for the tokenizer that the run trained, and flight/ */
    uint32_t rank;       /* of the run */
    uint64_t threads;
} ls_rank_options;

/* Runs until told to end. The status is what went wrong, also in the slot; nobody need print it. */
LS_MUST_CHECK ls_status ls_rank_run(const ls_rank_options *options);

#endif
