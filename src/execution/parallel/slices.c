// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/slices.h"

#include "base/assert.h"
#include "compute/kernels/elementwise.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t bucket_blocks(const ls_layout *layout, uint32_t bucket)
{
    return (layout->buckets[bucket].count + LS_NORM_BLOCK - 1) / LS_NORM_BLOCK;
}

int64_t ls_blocks_before(const ls_layout *layout, uint32_t bucket)
{
    int64_t blocks = 0;
    for (uint32_t b = 0; b < bucket; b++) {
        blocks += bucket_blocks(layout, b);
    }
    return blocks;
}

ls_slice ls_slice_of(const ls_layout *layout, uint32_t bucket, uint32_t ranks, uint32_t rank)
{
    LS_ASSERT(bucket < layout->bucket_count && ranks >= 1 && rank < ranks);
    const int64_t before = ls_blocks_before(layout, bucket), blocks = bucket_blocks(layout, bucket);
    const int64_t each = blocks / ranks, rest = blocks % ranks;
    /* `rest` ranks get one block more. They are the ranks from `turn` on, cyclically: the next ones
     * after those that got one more in the bucket before. */
    const int64_t turn = before % ranks;
    /* those of them that wrapped around: ranks [0, wrapped) */
    const int64_t wrapped = turn + rest > ranks ? turn + rest - ranks : 0;
    const int64_t below = smaller(rank, wrapped) + (rank > turn ? smaller(rank - turn, rest - wrapped) : 0);
    const bool has_more = rank < wrapped || (rank >= turn && rank < turn + rest);

    const ls_bucket *b = &layout->buckets[bucket];
    const int64_t first = rank * each + below, count = each + has_more;
    const int64_t begin = first * LS_NORM_BLOCK, end = smaller((first + count) * LS_NORM_BLOCK, b->count);
    return (ls_slice){
        .offset = b->offset + begin,
        .count = count > 0 ? end - begin : 0,
        .first_block = before + first,
        .block_count = count,
    };
}
