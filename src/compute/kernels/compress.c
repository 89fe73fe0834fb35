// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/compress.h"

#include "base/assert.h"
#include "compute/backend.h"
#include "compute/kernels/elementwise.h"

#include <math.h>

_Static_assert((int)LS_COMPRESSION_BLOCK == (int)LS_NORM_BLOCK, "ranks own whole blocks of both kinds");

void ls_exact_sum_add(ls_exact_sum *sum, ls_exact_sum more)
{
    const bool carries = __builtin_add_overflow(sum->low, more.low, &sum->low);
    if (__builtin_add_overflow(sum->high, more.high, &sum->high) ||
        __builtin_add_overflow(sum->high, (uint64_t)carries, &sum->high)) {
        sum->high = UINT64_MAX;
    }
}

ls_exact_sum ls_exact_sum_of(double square)
{
    if (!(square < 0x1p63)) {
        return (ls_exact_sum){.high = UINT64_MAX};
    }
    const double whole = floor(square);
    return (ls_exact_sum){.low = (uint64_t)((square - whole) * 0x1p64), .high = (uint64_t)whole};
}

double ls_exact_sum_value(ls_exact_sum sum)
{
    return sum.high == UINT64_MAX ? NAN : (double)sum.high + 0x1p-64 * (double)sum.low;
}

ls_status ls_compressed_sum_run(ls_queue *queue, const ls_compressed_sum *sum, int64_t count, float *out,
                                double *square_sums)
{
    LS_ASSERT(sum->order->input_count >= 1 && sum->order->depth <= LS_TREE_SUM_DEPTH_MAX);
    LS_ASSERT(sum->order->length == 2 * sum->order->input_count - 1 && count >= 0);
    if (!queue->backend->compressed_sum) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "this device cannot compress gradients: set train.compression.kind to none, or train "
                       "on a CPU");
    }
    return queue->backend->compressed_sum(queue, sum, count, out, square_sums);
}

void ls_compress_change(ls_queue *queue, const ls_compression *compression, const ls_compressed_term *change,
                        const float *old, int64_t count, float *weights)
{
    LS_ASSERT(queue->backend->compress_change && count >= 1 && count <= LS_COMPRESSION_BLOCK);
    queue->backend->compress_change(queue, compression, change, old, count, weights);
}

void ls_decompress(ls_queue *queue, const ls_compression *compression, const unsigned char *packed,
                   int64_t count, float *out, bool adds)
{
    LS_ASSERT(queue->backend->decompress);
    queue->backend->decompress(queue, compression, packed, count, out, adds);
}
