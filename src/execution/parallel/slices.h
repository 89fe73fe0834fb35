// SPDX-License-Identifier: Apache-2.0
/*
 * Who owns what: the flat buffers cut among ranks. Pure arithmetic.
 *
 * Each bucket is cut at norm blocks (LS_NORM_BLOCK floats, counted from its start; the last may be shorter), so that the square sum of a
 * block is one rank's. Of each bucket a rank owns one contiguous slice, in rank order; slices of one bucket differ by at most one block, and
 * who gets one more goes round from bucket to bucket, so that whole shares differ by at most one block too:
 *
 *   5 blocks, 5 blocks, 1 block, 3 ranks      bucket 0: r0 r0 r1 r1 r2    bucket 1: r0 r0 r1 r2 r2    bucket 2: r1
 */
#ifndef LS_EXECUTION_PARALLEL_SLICES_H
#define LS_EXECUTION_PARALLEL_SLICES_H

#include "model/layout.h"

/* What one rank owns of one bucket. */
typedef struct ls_slice {
    int64_t offset, count; /* floats of the flat buffer; count may be 0 */
    int64_t first_block;   /* of all norm blocks of the layout, bucket after bucket */
    int64_t block_count;
} ls_slice;

/* Norm blocks of bucket `bucket`, of the buckets before it, and of all. */
int64_t ls_bucket_blocks(const ls_layout *layout, uint32_t bucket);
int64_t ls_blocks_before(const ls_layout *layout, uint32_t bucket);

/* What rank `rank` of `ranks` owns of bucket `bucket`. */
ls_slice ls_slice_of(const ls_layout *layout, uint32_t bucket, uint32_t ranks, uint32_t rank);

#endif
