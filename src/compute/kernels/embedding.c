// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/embedding.h"

#include "compute/kernels/shape.h"

ls_status ls_embedding_forward(ls_queue *queue, const int32_t *tokens, const ls_tensor *table,
                               const ls_tensor *positions, int64_t positions_per_sequence,
                               int64_t first_position, const ls_tensor *out)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, out);
    LS_ASSERT(ls_tensor_is(out, dtype, out->rows, out->cols));
    LS_ASSERT(ls_tensor_is(table, dtype, table->rows, out->cols));
    LS_ASSERT(positions_per_sequence >= 1 && first_position >= 0 && (tokens || out->rows == 0));
    if (ls_tensor_is_present(positions)) {
        LS_ASSERT(ls_tensor_is(positions, dtype, positions->rows, out->cols));
        LS_ASSERT(first_position + ls_min64(out->rows, positions_per_sequence) <= positions->rows);
    }
    return queue->backend->embedding_forward(queue, tokens, table, positions, positions_per_sequence,
                                             first_position, out);
}

ls_status ls_embedding_backward(ls_queue *queue, const int32_t *tokens, const ls_tensor *dout,
                                int64_t positions_per_sequence, const ls_tensor *dtable,
                                const ls_tensor *dpositions)
{
    LS_ASSERT(ls_tensor_is(dout, ls_kernel_dtype(queue, dout), dout->rows, dout->cols));
    LS_ASSERT(positions_per_sequence >= 1 && (tokens || dout->rows == 0));
    LS_ASSERT(!ls_tensor_is_present(dtable) || ls_tensor_is(dtable, LS_F32, dtable->rows, dout->cols));
    if (ls_tensor_is_present(dpositions)) {
        LS_ASSERT(ls_tensor_is(dpositions, LS_F32, dpositions->rows, dout->cols));
        LS_ASSERT(ls_min64(dout->rows, positions_per_sequence) <= dpositions->rows);
    }
    return queue->backend->embedding_backward(queue, tokens, dout, positions_per_sequence, dtable,
                                              dpositions);
}
