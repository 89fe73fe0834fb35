// SPDX-License-Identifier: Apache-2.0
/*
 * Compressed sums of gradients. For execution/parallel only.
 *
 *   leaves        [ 0   1 ] [ 2   3 ] [ 4   5 ] [ 6   7 ]      G = 4 groups of the tree
 *   group sums       g0        g1        g2        g3          exact, as without compression
 *   packed        q0 = pack(g0 + r0), ...                      r: residuals; r0' = g0 + r0 - q0
 *   whole            ((q0 + q1) + (q2 + q3)) = s               in the order of the tree
 *   packed again  q = pack(s + r)                              r' = s + r - q;  q is the gradient
 *
 * With topk groups pack AdamW's updates of moments of their own (compute/kernels/compress.h), and
 * the whole is added to the weights as it comes.
 *
 * Instead of the second packing, changes of weights can be packed: the owner alone makes the update
 * from s (ZeRO stage 1) and sends by how much its weights w changed; all add this to theirs:
 *
 *   packed changes   d = pack(w_new - w + r)                   r' = w_new - w + r - d;  w' = w + d
 *
 * Which leaves are a group belongs to the identity of a run, and everything happens inside blocks
 * of LS_NORM_BLOCK floats: so the bits do not depend on ranks and hosts. Residuals are state
 * (executor/state.h).
 *
 * Who packs what: the owner of a slice packs the whole of it. A group is packed where all its
 * leaves are: on the owner's host by the owner, on another host by the owner's handler there, which
 * sends it packed. The owner also packs groups whose leaves are on several hosts; their nodes
 * travel as floats. The whole goes packed from the owner to all other hosts, which make the same
 * update (ZeRO stage 0), or the changes do.
 */
#ifndef LS_EXECUTION_PARALLEL_COMPRESSED_H
#define LS_EXECUTION_PARALLEL_COMPRESSED_H

#include "compute/kernels/compress.h"
#include "execution/parallel/data_parallel_internal.h"

typedef struct ls_compressed ls_compressed;

/* nodes: `count` of them, the inputs of an owner on this host as whole_inputs_at (buckets.c) lists
 * them. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_compressed_create(ls_data_parallel *parallel,
                                             const ls_data_parallel_options *options,
                                             const ls_leaf_range *nodes, uint32_t count,
                                             ls_compressed **compressed_out);
void ls_compressed_destroy(ls_compressed *compressed); /* NULL allowed */

/* Begins a step: how much is kept, which residuals are read and which written. */
void ls_compressed_enter(ls_compressed *compressed, uint64_t step);

/* Makes the sum of a slice, or its beginning, of the bucket at position `at`. inputs: as
 * whole_inputs_at gives them. square_sums: of its norm blocks. */
LS_MUST_CHECK ls_status ls_compressed_sum_own(ls_compressed *compressed, ls_queue *queue, uint32_t at,
                                              const ls_slice *slice, const float *const *inputs, float *out,
                                              double *square_sums);

/* Packs a node of this host that is a whole group, for the owner of a slice on another host.
 * inputs: the local nodes in it, at the slice. out: ls_hosts_sent. */
LS_MUST_CHECK ls_status ls_compressed_pack(ls_compressed *compressed, ls_queue *queue, ls_leaf_range node,
                                           ls_slice slice, const float *const *inputs, float *out);

/* Squared sum of what this process has left over of gradients in this step. */
ls_exact_sum ls_compressed_left_over(const ls_compressed *compressed);

/* ls_data_parallel_change of a slice that begins at `offset`, in the bucket at position `at`. */
ls_packed_change ls_compressed_change(const ls_compressed *compressed, uint32_t at, int64_t offset);

/*
 * Residuals between steps, with several hosts: those after `step` steps. Those of a group are on
 * the host that has all its leaves, the others where the slices are.
 *
 *   gather    brings all of them to host 0
 *   scatter   brings them from host 0 to where they are used
 *   collect   brings those of an earlier cut to host 0
 *
 * Collective. Errors of waiting and of the communicator.
 */
LS_MUST_CHECK ls_status ls_compressed_gather(ls_compressed *compressed, uint64_t step);
LS_MUST_CHECK ls_status ls_compressed_scatter(ls_compressed *compressed, uint64_t step);
LS_MUST_CHECK ls_status ls_compressed_collect(ls_compressed *compressed, uint64_t step,
                                              const ls_state_sources *sources);

#endif
