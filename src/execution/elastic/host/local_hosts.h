// SPDX-License-Identifier: Apache-2.0
/*
 * Local steps (train/local.h) on several hosts: a worker's steps are made on its host alone, by all
 * ranks there together, and only the outer step and a few numbers of each step cross the link.
 *
 *   workers   0 1 2 3 4        consecutive workers to consecutive hosts, as leaves go to ranks
 *   host      0 0 1 1 2
 *
 * All ranks pass through all turns in order; in a turn of a worker that is elsewhere, a rank does
 * nothing. After the last worker's turn of a step all ranks tell each other losses, norms and
 * counts, so that each has the result of the step. In the outer turn the first rank of each host,
 * its leader, sends the differences of its workers, packed (ls_local.form), a share of the
 * parameters to each leader; each adds its share up in the tree over the workers and sends the
 * packed sum to all others. Shares are whole blocks. With P hosts that have w workers each, a
 * leader sends (w + 1) (P - 1) / P times what all parameters take in that form.
 *
 * With fragments the same holds for the parameters of each. With a delay the outer gradient is
 * exchanged by a thread, over a group of its own, while workers go on: what is sent is packed where
 * it is made, into a buffer for the largest fragment, and the turn that applies it waits for the
 * rest.
 *
 * Every host keeps the shared parameters and the outer momentum; a worker's parameters and moments
 * are on its host, and come to the first host before the trainer saves. Ranks come and go at the
 * end of a round; when one is lost, all return to the newest checkpoint (team/reform.h).
 *
 * Collective: all ranks make the same calls in the same order. A thread ends calls that wait for
 * other hosts when `interrupt` is set. Allocates during creation only, but for these threads.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_LOCAL_HOSTS_H
#define LS_EXECUTION_ELASTIC_HOST_LOCAL_HOSTS_H

#include "execution/train/segment.h"
#include "execution/train/step.h"
#include "lockstep/comm.h"

typedef struct ls_local_hosts ls_local_hosts;

/* comm, state, control: borrowed. comm NULL: the other hosts are lost, and this one has all
 * workers. first_rank: of this host in comm. Errors: LS_ERR_MEMORY, those of the communicator. */
LS_MUST_CHECK ls_status ls_local_hosts_create(ls_comm *comm, const ls_state *state, const ls_local *local,
                                              ls_control *control, uint32_t first_rank,
                                              ls_local_hosts **hosts_out);
void ls_local_hosts_destroy(ls_local_hosts *hosts); /* NULL allowed */

/* Sets what outer steps need of a stepper, and takes over its should_stop, on which the ranks agree
 * after the last worker's turn of a step. hosts NULL: nothing. */
void ls_local_hosts_enter(ls_local_hosts *hosts, ls_step_settings *settings);

/* Runs a turn; marks: of this rank's part. *result_out: with the last worker's turn of a step loss,
 * norm and tokens over all workers; with the turn that applies an outer gradient the bytes that
 * this rank sent for it. Errors: those of ls_stepper_run and of the communicator; LS_STOPPED. */
LS_MUST_CHECK ls_status ls_local_hosts_run(ls_local_hosts *hosts, ls_stepper *stepper, uint64_t turn,
                                           double lr, ls_part_marks *marks, ls_step_result *result_out);

/* Between steps: sends shared parameters and momentum of the first host to all, and the workers'
 * parameters and moments to their hosts from where they are (held, as ls_control.sources), which is
 * the first host if it is NULL; or the latter to the first host. Errors of the communicator. */
LS_MUST_CHECK ls_status ls_local_hosts_distribute(ls_local_hosts *hosts, const ls_cut *held);
LS_MUST_CHECK ls_status ls_local_hosts_gather(ls_local_hosts *hosts);

/* Whether a call failed because other hosts could not be reached. */
bool ls_local_hosts_is_cut_off(const ls_local_hosts *hosts);

#endif
