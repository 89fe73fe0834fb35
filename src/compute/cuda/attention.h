// SPDX-License-Identifier: Apache-2.0
/*
 * Attention on an NVIDIA GPU (compute/kernels/attention.h).
 *
 * bfloat16 with head sizes 64, 96, 128 and 256 runs on tensor cores, if rows are whole 16-byte
 * words (64 and 128 on capability 9.0: attention_sm90.h); everything else runs in float32 products,
 * which is slower. Decode, unlike on the CPU, has not the bits of forward: a call of fewer than
 * LS_CUDA_DECODE_QUERIES queries cuts the keys into chunks at fixed positions, and its bits are
 * then the same however many queries the call has.
 */
#ifndef LS_COMPUTE_CUDA_ATTENTION_H
#define LS_COMPUTE_CUDA_ATTENTION_H

#include "compute/kernels/attention.h"

enum { LS_CUDA_DECODE_QUERIES = 32 };

LS_MUST_CHECK ls_status ls_cuda_attention_forward(ls_queue *queue, const ls_attention *attention,
                                                  const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                                  const ls_tensor *out, const ls_tensor *lse);

LS_MUST_CHECK ls_status ls_cuda_attention_backward(ls_queue *queue, const ls_attention *attention,
                                                   const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                                   const ls_tensor *out, const ls_tensor *lse,
                                                   const ls_tensor *dout, const ls_tensor *dq,
                                                   const ls_tensor *dk, const ls_tensor *dv,
                                                   const ls_tensor *workspace);

/* Two floats per query and head, with length rounded up to a multiple of 128. */
int64_t ls_cuda_attention_workspace(const ls_attention *attention);

LS_MUST_CHECK ls_status ls_cuda_attention_decode(ls_queue *queue, const ls_attention *attention,
                                                 const ls_tensor *q, const ls_tensor *k_cache,
                                                 const ls_tensor *v_cache, int64_t past,
                                                 const ls_tensor *out);

#endif
