// SPDX-License-Identifier: Apache-2.0
/*
 * Rank: what a process does that computes.
 *
 *   attach the segment -> open the session from the run file in it -> report ready -> loop: wait
 *   for a grant, run the step, publish its result
 *
 * A rank knows its agent by the path of the segment, /proc/PID/fd/N, and does not outlive it: the
 * kernel kills the rank when the thread of the agent that started it ends, and the rank checks for
 * itself whenever it waits. It ignores SIGINT and SIGHUP, which a terminal or a scheduler sends to
 * all processes of a job: the trainer decides, and tells the rank through the control page. A rank
 * prints nothing; its errors are in its slot.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_RANK_H
#define LS_EXECUTION_ELASTIC_HOST_RANK_H

#include "base/status.h"

#include <stdint.h>

typedef struct ls_rank_options {
    const char *segment; /* /proc/PID/fd/N */
    const char *run_dir; /* for flight/, and the tokenizer if the run trained one */
    uint32_t rank;       /* number in the run */
    uint64_t threads;
} ls_rank_options;

/* Runs until told to end. The status says what went wrong; it is in the slot, too, so the caller
 * need not print it. */
LS_MUST_CHECK ls_status ls_rank_run(const ls_rank_options *options);

#endif
