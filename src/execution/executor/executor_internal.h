// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the executor; not for inclusion elsewhere. */
#ifndef LS_EXECUTION_EXECUTOR_EXECUTOR_INTERNAL_H
#define LS_EXECUTION_EXECUTOR_EXECUTOR_INTERNAL_H

#include "execution/executor/executor.h"

/* A flat buffer in the layout of the plan. Kernels take mutable views; their headers say which of
 * them they only read. */
typedef struct ls_flat {
    void *data; /* NULL: absent */
    ls_dtype dtype;
} ls_flat;

ls_flat ls_executor_weights(const ls_executor *e, const void *weights);
ls_flat ls_executor_gradients(const ls_executor_batch *batch);

/* (rows, cols) from parameter `index` on, or an absent view. */
ls_tensor ls_executor_flat_view(const ls_executor *e, ls_flat from, int32_t index, int64_t rows,
                                int64_t cols);
/* The tensor of parameter `index` in a flat buffer, or an absent view. */
ls_tensor ls_executor_parameter_view(const ls_executor *e, ls_flat from, int32_t index);

/* The gradient of parameter `index`; absent for one that is frozen. */
ls_tensor ls_executor_gradient_view(const ls_executor *e, const ls_executor_batch *batch, int32_t index);

/* The member's rows of a matrix that has one for each id of the vocabulary. */
ls_tensor ls_executor_vocabulary_rows(const ls_executor *e, ls_tensor matrix);

/* Replaces `values` by their sum or maximum over the members of the tensor group; without a group,
 * nothing. */
LS_MUST_CHECK ls_status ls_executor_reduce(ls_executor *e, const ls_executor_batch *batch,
                                           ls_crew_reduction reduction, const ls_tensor *values);

/* ids with those of the member's part of the vocabulary counted from its first one, and
 * `elsewhere` in place of the others; negative ones are kept. Without a group: ids. Overwrites
 * those of the call before. */
const int32_t *ls_executor_local_ids(ls_executor *e, const int32_t *ids, int64_t count, int32_t elsewhere);

LS_MUST_CHECK ls_status ls_executor_head_forward(ls_executor *e, const ls_op *op,
                                                 const ls_executor_batch *batch);

/* The phases of LS_OP_ADAPTER. */
LS_MUST_CHECK ls_status ls_executor_adapter_forward(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_adapter_backward_input(ls_executor *e, const ls_op *op,
                                                           const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_adapter_backward_weight(ls_executor *e, const ls_op *op,
                                                            const ls_executor_batch *batch);

/* The phases of LS_OP_ROUTE, LS_OP_DISPATCH, LS_OP_COMBINE and LS_OP_EXPERT_LINEAR. */
LS_MUST_CHECK ls_status ls_executor_route_forward(ls_executor *e, const ls_op *op,
                                                  const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_route_backward(ls_executor *e, const ls_op *op,
                                                   const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_dispatch_forward(ls_executor *e, const ls_op *op,
                                                     const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_dispatch_backward(ls_executor *e, const ls_op *op,
                                                      const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_combine_forward(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_combine_backward(ls_executor *e, const ls_op *op,
                                                     const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_expert_linear_forward(ls_executor *e, const ls_op *op,
                                                          const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_expert_linear_backward_input(ls_executor *e, const ls_op *op,
                                                                 const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_expert_linear_backward_weight(ls_executor *e, const ls_op *op,
                                                                  const ls_executor_batch *batch);

/* The phases of LS_OP_DROPOUT. */
LS_MUST_CHECK ls_status ls_executor_dropout_forward(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_dropout_backward(ls_executor *e, const ls_op *op,
                                                     const ls_executor_batch *batch);

#endif
