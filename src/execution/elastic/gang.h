// SPDX-License-Identifier: Apache-2.0
/*
 * A gang: the ranks that compute the steps of one run, as the trainer sees them.
 *
 *   lockstep train --ranks 4            the process a person starts: coordinator, agent of this host, and trainer
 *     ├─ main thread: trainer           loop, evaluation, samples, checkpoints, metrics: as with one rank, on the shared state
 *     ├─ service thread: coordinator    base/env loop: store, membership, watches ranks, late and mismatched ones, aborts
 *     ├─ lockstep rank 0 (process)  ┐
 *     ├─ ...                        ├── map the host's segment: weights, moments, gradients; compute leaves; update their slices
 *     └─ lockstep rank 3 (process)  ┘
 *   other hosts: lockstep agent         one per host: starts and watches its ranks, owns that host's segment
 *
 * The segment (elastic/segment.h) is a memfd of the agent that all ranks of the host map; it outlives any rank. Weights exist once per
 * host. The trainer reads and writes them between steps, when all ranks wait: it initialises, restores, evaluates, samples and saves.
 *
 * Ranks run ahead without asking: the trainer grants steps up to a number (until the next evaluation, sample or checkpoint), rank 0 reads
 * the grant and tells the others inside the step's own agreement, so that all decide alike. Results come back through a ring.
 *
 * One gang per process. Functions are called from the trainer's thread.
 */
#ifndef LS_EXECUTION_ELASTIC_GANG_H
#define LS_EXECUTION_ELASTIC_GANG_H

#include "execution/state.h"
#include "execution/train/session.h"
#include "execution/train/step.h"

typedef struct ls_gang ls_gang;

typedef struct ls_gang_options {
    const ls_session *session;
    const char *run_dir; /* run.yaml is there, fully resolved; flight/ is made here */
    uint32_t ranks;      /* 2..leaves */
    uint64_t threads;    /* per rank; 0: cores / ranks, at least 1 */
    const char *hosts;   /* file of hosts, NULL: this one alone */
    const char *listen;  /* coordinator's address for agents of other hosts, NULL: chosen */
} ls_gang_options;

/*
 * Creates the segment, starts service thread, agents and ranks, and waits until all have passed the pre-flight check (same binary,
 * configuration, op plan and collective schedule). The state's buffers are ready to be filled afterwards (ls_gang_state). On error
 * everything that was started is ended. Errors: LS_ERR_MISMATCH (pre-flight: who differs in what), LS_ERR_TIMEOUT (who did not come),
 * LS_ERR_RANKS_LOST (a rank ended, with its last words), LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_gang_start(const ls_gang_options *options, ls_gang **gang_out);

/* Parameters and moments in the segment, without gradient buffers. */
ls_status ls_gang_state(ls_gang *gang, ls_queue *queue, const ls_layout *layout, ls_state *state_out);

/*
 * The result of step `step`; ranks may compute up to, not including, step `until` without waiting for the next call (step < until).
 * After the result of step until - 1 all ranks wait and the state is the trainer's. Errors: as ls_stepper_run; LS_STOPPED after
 * ls_gang_stop when the step was given up: the state is as before it; LS_ERR_RANKS_LOST, LS_ERR_MISMATCH, LS_ERR_TIMEOUT with who and
 * where; then *consistent_out says whether the state is that of a finished step and *finished_out of which.
 */
LS_MUST_CHECK ls_status ls_gang_step(ls_gang *gang, uint64_t step, uint64_t until,
                                     ls_step_result *result_out);

/* After an error: true when no rank had begun an update, so that the state is that after `*finished_out` steps. */
bool ls_gang_is_consistent(const ls_gang *gang, uint64_t *finished_out);

/* Asks ranks to give up the step they are in. Safe in a signal handler. */
void ls_gang_stop(ls_gang *gang);

/* Ends ranks and agents (politely, then with SIGKILL), the service thread, and frees the segment. NULL allowed. */
void ls_gang_destroy(ls_gang *gang);

#endif
