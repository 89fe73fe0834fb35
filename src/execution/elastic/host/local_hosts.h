// SPDX-License-Identifier: Apache-2.0
/*
 * Local steps (train/local.h) on several hosts, one rank on each: a worker's steps are made on its
 * host alone, and only the outer step and a few numbers of each step cross the link.
 *
 *   workers   0 1 2 3 4        consecutive workers to consecutive ranks, as leaves go to ranks
 *   rank      0 0 1 1 2
 *
 * All ranks pass through all turns in order; in a turn of a worker that is elsewhere, a rank does
 * nothing. After the last worker's turn of a step all ranks tell each other losses, norms and
 * counts, so that each has the result of the step. In the outer turn each rank sends the
 * differences of its workers, packed (ls_local.form), a share of the parameters to each rank; each
 * adds its share up in the tree over the workers and sends the packed sum to all others. Shares are
 * whole blocks. With P ranks that have w workers each, a rank sends (w + 1) (P - 1) / P times what
 * all parameters take in that form.
 *
 * Every rank keeps the shared parameters and the outer momentum; a worker's parameters and moments
 * are on its host, and come to the first host before the trainer saves. The loss of a rank ends the
 * run, which continues from its newest checkpoint.
 *
 * Collective: all ranks make the same calls in the same order. Allocates during creation only.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_LOCAL_HOSTS_H
#define LS_EXECUTION_ELASTIC_HOST_LOCAL_HOSTS_H

#include "execution/train/step.h"
#include "lockstep/comm.h"

typedef struct ls_local_hosts ls_local_hosts;

/* comm, state: borrowed. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_local_hosts_create(ls_comm *comm, const ls_state *state, const ls_local *local,
                                              ls_local_hosts **hosts_out);
void ls_local_hosts_destroy(ls_local_hosts *hosts); /* NULL allowed */

/* Sets what outer steps need of a stepper, whose should_stop is then NULL: ranks agree on it in
 * ls_local_hosts_end_step. hosts NULL: nothing. */
void ls_local_hosts_enter(ls_local_hosts *hosts, ls_step_settings *settings);

/* Whether the worker is on this host. */
bool ls_local_hosts_has(const ls_local_hosts *hosts, uint32_t worker);

/* Keeps the result of a worker of this host, until the step is over. */
void ls_local_hosts_note(ls_local_hosts *hosts, uint32_t worker, const ls_step_result *result);
/* After the last worker's turn: writes loss, norm and tokens of the step, over all workers, to
 * *result_inout. stop_inout: whether this rank is to stop; afterwards whether any is. Errors of the
 * communicator. */
LS_MUST_CHECK ls_status ls_local_hosts_end_step(ls_local_hosts *hosts, ls_step_result *result_inout,
                                                bool *stop_inout);

/* Bytes of outer gradients that this rank has sent to others since the last call. */
uint64_t ls_local_hosts_sent(ls_local_hosts *hosts);

/* Between steps: sends shared parameters and momentum of the first host to all, and the workers'
 * parameters and moments from it to their hosts; or the latter back. Errors of the communicator. */
LS_MUST_CHECK ls_status ls_local_hosts_distribute(ls_local_hosts *hosts);
LS_MUST_CHECK ls_status ls_local_hosts_gather(ls_local_hosts *hosts);

#endif
