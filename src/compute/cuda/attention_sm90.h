// SPDX-License-Identifier: Apache-2.0
/*
 * Attention with the tensor cores of compute capability 9.0 (kernels/attention.h has the meaning of
 * the arguments). compute/cuda/attention.c chooses it where it can.
 */
#ifndef LS_COMPUTE_CUDA_ATTENTION_SM90_H
#define LS_COMPUTE_CUDA_ATTENTION_SM90_H

#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/attention.h"

/* Whether the device, the type and the shape suit: capability 9.0, bfloat16, head_dim 64 or 128. */
bool ls_cuda_attention_sm90_takes(const ls_queue_cuda *queue, const ls_attention *attention, ls_dtype dtype);

/* Whether the copy engine can read and write a view: 16-byte aligned rows. Ask for each of q, k, v,
 * out, dout, dq, dk and dv; a view without data counts as good. */
bool ls_cuda_attention_sm90_takes_view(const ls_tensor *view);

/* lse may be absent. */
LS_MUST_CHECK ls_status ls_cuda_attention_forward_sm90(ls_queue *queue, const ls_attention *attention,
                                                       const ls_tensor *q, const ls_tensor *k,
                                                       const ls_tensor *v, const ls_tensor *out,
                                                       const ls_tensor *lse);

/* Needs no workspace: the query heads of a key head are summed in registers. Uses the queue's
 * scratch. */
LS_MUST_CHECK ls_status ls_cuda_attention_backward_sm90(ls_queue *queue, const ls_attention *attention,
                                                        const ls_tensor *q, const ls_tensor *k,
                                                        const ls_tensor *v, const ls_tensor *out,
                                                        const ls_tensor *lse, const ls_tensor *dout,
                                                        const ls_tensor *dq, const ls_tensor *dk,
                                                        const ls_tensor *dv, const ls_tensor *workspace);

#endif
