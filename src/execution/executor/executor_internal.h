// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the executor; not for inclusion elsewhere. */
#ifndef LS_EXECUTION_EXECUTOR_EXECUTOR_INTERNAL_H
#define LS_EXECUTION_EXECUTOR_EXECUTOR_INTERNAL_H

#include "compute/kernels/attention.h"
#include "compute/kernels/linear.h"
#include "execution/executor/executor.h"

/* A flat buffer in the layout of the plan. Kernels take mutable views; their headers say which of
 * them they only read. */
typedef struct ls_flat {
    void *data; /* NULL: absent */
    ls_dtype dtype;
} ls_flat;

/* Tokens of a micro-batch. */
static inline int64_t ls_executor_tokens(const ls_executor *e)
{
    return e->plan->options.sequences * e->plan->options.length;
}

ls_flat ls_executor_weights(const ls_executor *e, const void *weights);
ls_flat ls_executor_gradients(const ls_executor_batch *batch);

/* (rows, cols) from parameter `index` on, or an absent view. */
ls_tensor ls_executor_flat_view(const ls_executor *e, ls_flat from, int32_t index, int64_t rows,
                                int64_t cols);
/* The tensor of parameter `index` in a flat buffer, or an absent view. */
ls_tensor ls_executor_parameter_view(const ls_executor *e, ls_flat from, int32_t index);

/* The gradient of parameter `index`; absent for one that is frozen. */
ls_tensor ls_executor_gradient_view(const ls_executor *e, const ls_executor_batch *batch, int32_t index);

/* The same for one that all members of a tensor group compute alike: only member 0 writes it. */
ls_tensor ls_executor_common_gradient_view(const ls_executor *e, const ls_executor_batch *batch,
                                           int32_t index);

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

/* The batch as piece `piece` of the sequences sees it; values are those of this piece from now on.
 * */
ls_executor_batch ls_executor_piece(ls_executor *e, const ls_executor_batch *batch, uint32_t piece);

/* The token of the micro-batch at which each of its records begins, in memory of the device. NULL:
 * the batch has none. */
int32_t *ls_executor_first(const ls_executor *e, const ls_executor_batch *batch);

/* Attention of all pieces of cut sequences that the process holds. */
LS_MUST_CHECK ls_status ls_executor_context_forward(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_context_backward(ls_executor *e, const ls_op *op,
                                                     const ls_executor_batch *batch);

/* The queries, keys and values in values value[0] and value[1] of the plan. */
void ls_executor_attention_views(const ls_executor *e, const int32_t value[2], ls_tensor *q, ls_tensor *k,
                                 ls_tensor *v);
ls_attention ls_executor_attention(const ls_executor *e, const ls_op *op, const ls_executor_batch *batch);

/* The phases of LS_OP_NORM and LS_OP_ADD_NORM, and of LS_OP_QK_NORM. */
LS_MUST_CHECK ls_status ls_executor_norm_forward(ls_executor *e, const ls_op *op,
                                                 const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_norm_backward(ls_executor *e, const ls_op *op,
                                                  const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_qk_norm_forward(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_qk_norm_backward(ls_executor *e, const ls_op *op,
                                                     const ls_executor_batch *batch);

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

/* The phases of LS_OP_TO_EXPERTS and LS_OP_FROM_EXPERTS. */
LS_MUST_CHECK ls_status ls_executor_to_experts_forward(ls_executor *e, const ls_op *op,
                                                       const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_to_experts_backward(ls_executor *e, const ls_op *op,
                                                        const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_from_experts_forward(ls_executor *e, const ls_op *op,
                                                         const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_from_experts_backward(ls_executor *e, const ls_op *op,
                                                          const ls_executor_batch *batch);

/* The rows of a value of `op` that have arrived at the experts of this process, one after the
 * other; without an expert group all. */
ls_tensor ls_executor_visited(const ls_executor *e, const ls_op *op, int32_t value);

/* A linear, or that of the first expert, as the member of a tensor group has it; packed: memory for
 * its packed matrices. The weight alone, of weights or of gradients: all outputs, own inputs. */
ls_linear ls_executor_linear(const ls_executor *e, const ls_op *op, const void *weights,
                             ls_packed packed[LS_LINEAR_SEGMENTS_MAX]);
ls_tensor ls_executor_linear_weight(const ls_executor *e, const ls_op *op, ls_flat from);

/* The phases of LS_OP_DROPOUT. */
LS_MUST_CHECK ls_status ls_executor_dropout_forward(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch);
LS_MUST_CHECK ls_status ls_executor_dropout_backward(ls_executor *e, const ls_op *op,
                                                     const ls_executor_batch *batch);

#endif
