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
