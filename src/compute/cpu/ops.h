// SPDX-License-Identifier: Apache-2.0
/*
 * The functions behind a CPU queue. Each has the type of the member of its name in ls_backend
 * (compute/backend.h).
 *
 * The public functions of compute/queue.c and compute/kernels/ have checked the shapes. Tensors are
 * float32, and a call completes before it returns.
 */
#ifndef LS_COMPUTE_CPU_OPS_H
#define LS_COMPUTE_CPU_OPS_H

#include "compute/backend.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/compress.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/hash.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/positions.h"
#include "compute/kernels/tree_sum.h"

#define LS_CPU_OP(member) __typeof__(*((const ls_backend *)NULL)->member) ls_cpu_##member

/* ---- queue.c, peak.c ---- */

LS_CPU_OP(destroy);
LS_CPU_OP(threads);
LS_CPU_OP(wait);
LS_CPU_OP(alloc);
LS_CPU_OP(free);
LS_CPU_OP(move);
LS_CPU_OP(determinism_class);
LS_CPU_OP(device_name);
LS_CPU_OP(gemm_peak_flops);

/* ---- elementwise.c, tree_sum.c, compress.c, adamw.c ---- */

LS_CPU_OP(add);
LS_CPU_OP(fill);
LS_CPU_OP(scale);
LS_CPU_OP(copy);
LS_CPU_OP(find_nonfinite);
LS_CPU_OP(tree_sum);
/* Numbers [at, at + count) of a tree sum, to `out`, on the calling thread. */
struct ls_elementwise_kernels;
void ls_cpu_tree_sum_block(const struct ls_elementwise_kernels *kernels, const ls_tree_sum *sum,
                           const float *const *inputs, int64_t at, int64_t count, float *out);
LS_CPU_OP(compressed_sum);
LS_CPU_OP(compress_change);
LS_CPU_OP(decompress);
LS_CPU_OP(adamw);

/* ---- embedding.c, norm.c, rotary.c, activation.c, cross_entropy.c, hash.c ---- */

LS_CPU_OP(embedding_forward);
LS_CPU_OP(embedding_backward);
LS_CPU_OP(norm_forward);
LS_CPU_OP(norm_forward_residual);
LS_CPU_OP(norm_backward);
LS_CPU_OP(norm_workspace);
LS_CPU_OP(rotary);
LS_CPU_OP(gelu_forward);
LS_CPU_OP(gelu_backward);
LS_CPU_OP(swiglu_forward);
LS_CPU_OP(swiglu_backward);
LS_CPU_OP(cross_entropy);
LS_CPU_OP(hash_tiles);

/* ---- linear.c, attention.c, experts.c ---- */

LS_CPU_OP(linear_forward);
LS_CPU_OP(linear_backward_input);
LS_CPU_OP(linear_backward_weight);
LS_CPU_OP(attention_forward);
LS_CPU_OP(attention_backward);
LS_CPU_OP(attention_workspace);
LS_CPU_OP(attention_decode);
extern const ls_backend_experts ls_cpu_experts;

#endif
