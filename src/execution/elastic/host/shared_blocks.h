// SPDX-License-Identifier: Apache-2.0
/* data.share_blocks: the readers of token sets on the hosts of a run find each other. */
#ifndef LS_EXECUTION_ELASTIC_HOST_SHARED_BLOCKS_H
#define LS_EXECUTION_ELASTIC_HOST_SHARED_BLOCKS_H

#include "data/stream/token_reader.h"
#include "execution/train/session.h"
#include "lockstep/comm.h"

/*
 * Called by all ranks of `comm`, which was opened with `options`, at each cut; giver->host is ""
 * the first time. Nothing without data.share_blocks or a token set. The first rank of each host
 * gives blocks to the others, at the address from which it reaches the coordinator. A host that
 * can't share logs why, and fetches for itself. Errors: those of ls_comm_all_gather.
 */
LS_MUST_CHECK ls_status ls_share_blocks(const ls_comm_options *options, ls_comm *comm,
                                        const ls_session *session, ls_block_peer *giver);

#endif
