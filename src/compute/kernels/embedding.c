// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/embedding.h"

#include "compute/kernels/shape.h"

ls_status ls_embedding_forward(ls_queue *queue, const int32_t *tokens, const ls_tensor *table,
                               const ls_tensor *position_table, const ls_positions *positions,
                               const ls_tensor *out)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, out);
    LS_ASSERT(ls_tensor_is(out, dtype, out->rows, out->cols));
    LS_ASSERT(ls_tensor_is(table, dtype, table->rows, out->cols));
    LS_ASSERT(ls_positions_are_valid(positions) && (tokens || out->rows == 0));
    if (ls_tensor_is_present(position_table)) {
        LS_ASSERT(ls_tensor_is(position_table, dtype, position_table->rows, out->cols));
        LS_ASSERT(positions->past + ls_min64(out->rows, positions->length) <= position_table->rows);
    }
    return queue->backend->embedding_forward(queue, tokens, table, position_table, positions, out);
}

ls_status ls_embedding_backward(ls_queue *queue, const int32_t *tokens, const ls_tensor *dout,
                                const ls_positions *positions, const ls_tensor *dtable,
                                const ls_tensor *dpositions)
{
    LS_ASSERT(ls_tensor_is(dout, ls_kernel_dtype(queue, dout), dout->rows, dout->cols));
    LS_ASSERT(ls_positions_are_valid(positions) && (tokens || dout->rows == 0));
    LS_ASSERT(!ls_tensor_is_present(dtable) || ls_tensor_is(dtable, LS_F32, dtable->rows, dout->cols));
    if (ls_tensor_is_present(dpositions)) {
        LS_ASSERT(ls_tensor_is(dpositions, LS_F32, dpositions->rows, dout->cols));
        LS_ASSERT(positions->past + ls_min64(dout->rows, positions->length) <= dpositions->rows);
    }
    return queue->backend->embedding_backward(queue, tokens, dout, positions, dtable, dpositions);
}
