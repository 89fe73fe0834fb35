// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/compress.h"

#include "base/assert.h"
#include "compute/backend.h"
#include "compute/kernels/elementwise.h"

_Static_assert((int)LS_COMPRESSION_BLOCK == (int)LS_NORM_BLOCK, "ranks own whole blocks of both kinds");

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

void ls_decompress(ls_queue *queue, const ls_compression *compression, const unsigned char *packed,
                   int64_t count, float *out)
{
    LS_ASSERT(queue->backend->decompress);
    queue->backend->decompress(queue, compression, packed, count, out);
}
