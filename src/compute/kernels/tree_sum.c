// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/tree_sum.h"

#include "base/assert.h"
#include "compute/backend.h"

ls_status ls_tree_sum_run(ls_queue *queue, const ls_tree_sum *sum, const float *const *inputs, int64_t count,
                          float *out, double *square_sums)
{
    LS_ASSERT(sum->input_count >= 1 && sum->input_count <= LS_TREE_SUM_INPUTS_MAX);
    LS_ASSERT(sum->length == 2 * sum->input_count - 1);
    LS_ASSERT(sum->depth >= 1 && sum->depth <= LS_TREE_SUM_DEPTH_MAX);
    LS_ASSERT(count >= 0 && (count == 0 || out));
    return queue->backend->tree_sum(queue, sum, inputs, count, out, square_sums);
}
