// SPDX-License-Identifier: Apache-2.0
/*
 * Replicas: every host has a copy of the weights, and the copies must have the same bits before
 * each step.
 *
 * The ranks of a host divide its buckets among themselves and hash them; the sum of the hashes
 * travels with the agreement (ls_rank_note). Only if the sums of the hosts differ do the ranks
 * exchange the hashes of all buckets, to find the bucket and, with three hosts or more, the host.
 */
#ifndef LS_EXECUTION_INTEGRITY_REPLICAS_H
#define LS_EXECUTION_INTEGRITY_REPLICAS_H

#include "execution/integrity/flat_hash.h"
#include "execution/parallel/data_parallel.h"

typedef struct ls_replicas {
    ls_data_parallel *parallel; /* borrowed */
    const ls_layout *layout;    /* borrowed */
    uint32_t rank;
    ls_flat_hasher hasher; /* over this rank's buckets */
    ls_hash128 *pieces;    /* their hashes */
    ls_hash128 *buckets;   /* the same, by bucket; zeros for those of other ranks */
} ls_replicas;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_replicas_init(ls_replicas *replicas, ls_data_parallel *parallel,
                                         const ls_layout *layout);
void ls_replicas_release(ls_replicas *replicas); /* a zeroed one is allowed */

/* Hashes this rank's share of `parameters`; returns the sum of the hashes, for the note. */
ls_hash128 ls_replicas_hash(ls_replicas *replicas, ls_queue *queue, const ls_master *parameters);

/* Collective, after the sums differed: names bucket and host; all ranks get the same text. Errors:
 * LS_ERR_MISMATCH; errors of waiting; LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_replicas_fail(ls_replicas *replicas, uint64_t step, ls_step_fault *fault_out);

#endif
