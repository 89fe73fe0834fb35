// SPDX-License-Identifier: Apache-2.0
/*
 * Which rank owns which floats of the flat buffers. Pure arithmetic.
 *
 * Each bucket is cut at norm blocks (LS_NORM_BLOCK floats, counted from its start; the last may be
 * shorter), so that one rank computes the squared sum of a block. Of each bucket a rank owns one
 * contiguous slice, in rank order. Slices of one bucket differ by at most one block. The ranks that
 * get one block more rotate from bucket to bucket, so that the total shares differ by at most one
 * block too:
 *
 *   5 blocks, 5 blocks, 1 block, 3 ranks      bucket 0: r0 r0 r1 r1 r2    bucket 1: r0 r0 r1 r2 r2    bucket 2: r1
 */
#ifndef LS_EXECUTION_PARALLEL_SLICES_H
#define LS_EXECUTION_PARALLEL_SLICES_H

#include "model/layout.h"

/* The slice that one rank owns of one bucket. */
typedef struct ls_slice {
    int64_t offset, count; /* floats of the flat buffer; count may be 0 */
    int64_t first_block;   /* index among all norm blocks of the layout, bucket after bucket */
    int64_t block_count;
} ls_slice;

/* Number of norm blocks of all buckets before `bucket` (bucket_count: of all). */
int64_t ls_blocks_before(const ls_layout *layout, uint32_t bucket);

/* The slice of bucket `bucket` that rank `rank` of `ranks` owns. */
ls_slice ls_slice_of(const ls_layout *layout, uint32_t bucket, uint32_t ranks, uint32_t rank);

#endif
