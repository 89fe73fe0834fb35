// SPDX-License-Identifier: Apache-2.0
/*
 * The backend of NVIDIA GPUs, and its functions. Each has the type of the member of its name in
 * ls_backend (compute/backend.h).
 *
 * Unless said otherwise, a function takes float32 or bfloat16, all tensors alike; tokens, targets,
 * losses and square_sums are shared memory.
 */
#ifndef LS_COMPUTE_CUDA_OPS_CUDA_H
#define LS_COMPUTE_CUDA_OPS_CUDA_H

#include "compute/backend.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/hash.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/positions.h"
#include "compute/kernels/tree_sum.h"

#define LS_CUDA_OP(member) __typeof__(*((const ls_backend *)NULL)->member) ls_cuda_##member

extern const ls_backend ls_cuda_backend;

/* ---- queue.c, peak.c ---- */

LS_CUDA_OP(destroy);
LS_CUDA_OP(wait);
LS_CUDA_OP(threads);
LS_CUDA_OP(alloc);
LS_CUDA_OP(free);
LS_CUDA_OP(move);
LS_CUDA_OP(determinism_class);
LS_CUDA_OP(device_name);
LS_CUDA_OP(gemm_peak_flops);
LS_CUDA_OP(free_memory);

/* ---- elementwise.c, tree_sum.c, adamw.c, hash.c ---- */

LS_CUDA_OP(add);
LS_CUDA_OP(fill);
LS_CUDA_OP(scale);
/* Any two types of equal size, whose bits are copied; and float32 to bfloat16 and back. */
LS_CUDA_OP(copy);
/* Waits for the queue. *index_out is row * cols + col, or -1. */
LS_CUDA_OP(find_nonfinite);
/*
 * `inputs` is an array of the host with addresses of device memory, which may change as soon as the
 * call returns. With its only input as out, a call reads and adds squares, but writes nothing to
 * device memory.
 */
LS_CUDA_OP(tree_sum);
/* float32 results have the bits of the CPU's. Traffic per parameter is 28 bytes in both forms: 16
 * read, 12 written. Enqueued. */
LS_CUDA_OP(adamw);
LS_CUDA_OP(hash_tiles);

/* ---- embedding.c, norm.c, rotary.c, activation.c, cross_entropy.c ---- */

LS_CUDA_OP(embedding_forward);
/* The gradients are float32. The rows of a token are added in order in tiles, and the tiles in
 * order. The sum is then added to dtable. */
LS_CUDA_OP(embedding_backward);
/* A group has at most 8192 elements (asserted). The sums for dweight and dbias are taken over fixed
 * tiles of rows, and the tiles are added in order. */
LS_CUDA_OP(norm_forward);
LS_CUDA_OP(norm_forward_residual);
LS_CUDA_OP(norm_backward);
LS_CUDA_OP(norm_workspace);
LS_CUDA_OP(rotary);
LS_CUDA_OP(gelu_forward);
LS_CUDA_OP(gelu_backward);
LS_CUDA_OP(swiglu_forward);
LS_CUDA_OP(swiglu_backward);
/* The columns between logits->cols and logits->stride are padding, whose values do not count. With
 * with_gradient they become 0, so that products may read them. Errors: LS_ERR_UNSUPPORTED if the
 * vocabulary is cut. */
LS_CUDA_OP(cross_entropy);

/* ---- linear.c: products of compute/cuda/matmul.h ---- */

/* The canonical cut is not there yet: a forward_cut or backward_input_cut above 1 is
 * LS_ERR_UNSUPPORTED. */
LS_CUDA_OP(linear_forward);
LS_CUDA_OP(linear_backward_input);
LS_CUDA_OP(linear_backward_weight);

/*
 * ---- attention.c ----
 *
 * bfloat16 with head sizes 64, 96, 128 and 256 runs on tensor cores, if rows are whole 16-byte
 * words (64 and 128 on capability 9.0: attention_sm90.h); everything else runs in float32 products,
 * which is slower. Decode, unlike on the CPU, has not the bits of forward: a call of fewer than
 * LS_CUDA_DECODE_QUERIES queries cuts the keys into chunks at fixed positions, and its bits are
 * then the same however many queries the call has.
 */
enum { LS_CUDA_DECODE_QUERIES = 32 };
LS_CUDA_OP(attention_forward);
LS_CUDA_OP(attention_backward);
/* Two floats per query and head, with length rounded up to a multiple of 128. */
LS_CUDA_OP(attention_workspace);
LS_CUDA_OP(attention_decode);

#endif
