// SPDX-License-Identifier: Apache-2.0
/*
 * The functions behind a CPU queue: the members of its backend (compute/backend.h), one by one.
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

/* ---- queue.c, peak.c ---- */

void ls_cpu_destroy(ls_queue *queue);
uint32_t ls_cpu_threads(const ls_queue *queue);
LS_MUST_CHECK ls_status ls_cpu_wait(ls_queue *queue);
LS_MUST_CHECK ls_status ls_cpu_alloc(ls_queue *queue, size_t bytes, ls_memory_kind kind, void **memory_out);
void ls_cpu_free(ls_queue *queue, void *memory, size_t bytes, ls_memory_kind kind);
LS_MUST_CHECK ls_status ls_cpu_move(ls_queue *queue, void *to, const void *from, size_t bytes);
const char *ls_cpu_determinism_class(const ls_queue *queue);
const char *ls_cpu_device_name(const ls_queue *queue);
double ls_cpu_gemm_peak_flops(ls_queue *queue, ls_dtype dtype);

/* ---- elementwise.c, tree_sum.c, compress.c, adamw.c ---- */

LS_MUST_CHECK ls_status ls_cpu_add(ls_queue *queue, const ls_tensor *a, const ls_tensor *b,
                                   const ls_tensor *out);
LS_MUST_CHECK ls_status ls_cpu_fill(ls_queue *queue, const ls_tensor *out, float value);
LS_MUST_CHECK ls_status ls_cpu_scale(ls_queue *queue, const ls_tensor *x, float factor);
LS_MUST_CHECK ls_status ls_cpu_copy(ls_queue *queue, const ls_tensor *from, const ls_tensor *to);
LS_MUST_CHECK ls_status ls_cpu_find_nonfinite(ls_queue *queue, const ls_tensor *x, int64_t *index_out);
LS_MUST_CHECK ls_status ls_cpu_tree_sum(ls_queue *queue, const ls_tree_sum *sum, const float *const *inputs,
                                        int64_t count, float *out, double *square_sums);
/* Numbers [at, at + count) of a tree sum, to `out`, on the calling thread. */
struct ls_elementwise_kernels;
void ls_cpu_tree_sum_block(const struct ls_elementwise_kernels *kernels, const ls_tree_sum *sum,
                           const float *const *inputs, int64_t at, int64_t count, float *out);
LS_MUST_CHECK ls_status ls_cpu_compressed_sum(ls_queue *queue, const ls_compressed_sum *sum, int64_t count,
                                              float *out, double *square_sums);
void ls_cpu_compress_change(ls_queue *queue, const ls_compression *compression,
                            const ls_compressed_term *change, const float *old, int64_t count,
                            float *weights);
void ls_cpu_decompress(ls_queue *queue, const ls_compression *compression, const unsigned char *packed,
                       int64_t count, float *out, bool adds);
LS_MUST_CHECK ls_status ls_cpu_adamw(ls_queue *queue, const ls_adamw_factors *factors, int64_t count,
                                     const ls_master *parameters, const float *gradients, float *m, float *v);

/* ---- embedding.c, norm.c, rotary.c, activation.c, cross_entropy.c ---- */

LS_MUST_CHECK ls_status ls_cpu_embedding_forward(ls_queue *queue, const int32_t *tokens,
                                                 const ls_tensor *table, const ls_tensor *position_table,
                                                 const ls_positions *positions, const ls_tensor *out);
LS_MUST_CHECK ls_status ls_cpu_embedding_backward(ls_queue *queue, const int32_t *tokens,
                                                  const ls_tensor *dout, const ls_positions *positions,
                                                  const ls_tensor *dtable, const ls_tensor *dpositions);
LS_MUST_CHECK ls_status ls_cpu_norm_forward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                            const ls_tensor *y, const ls_tensor *mean, const ls_tensor *rstd);
LS_MUST_CHECK ls_status ls_cpu_norm_forward_residual(ls_queue *queue, const ls_norm *norm, const ls_tensor *a,
                                                     const ls_tensor *b, const ls_tensor *sum,
                                                     const ls_tensor *y, const ls_tensor *mean,
                                                     const ls_tensor *rstd);
LS_MUST_CHECK ls_status ls_cpu_norm_backward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                             const ls_tensor *dy, const ls_tensor *mean,
                                             const ls_tensor *rstd, const ls_tensor *dx,
                                             bool accumulate_input, const ls_tensor *dweight,
                                             const ls_tensor *dbias, bool accumulate_weight,
                                             const ls_tensor *workspace);
int64_t ls_cpu_norm_workspace(int64_t n, int64_t cols, int64_t groups);
LS_MUST_CHECK ls_status ls_cpu_rotary(ls_queue *queue, const ls_tensor *x, int64_t heads, int64_t head_dim,
                                      const ls_positions *positions, const ls_tensor *cosine,
                                      const ls_tensor *sine, bool backward);
LS_MUST_CHECK ls_status ls_cpu_gelu_forward(ls_queue *queue, const ls_tensor *x, const ls_tensor *y);
LS_MUST_CHECK ls_status ls_cpu_gelu_backward(ls_queue *queue, const ls_tensor *x, const ls_tensor *dy,
                                             const ls_tensor *dx);
LS_MUST_CHECK ls_status ls_cpu_swiglu_forward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *y);
LS_MUST_CHECK ls_status ls_cpu_swiglu_backward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *dy,
                                               const ls_tensor *dgate_up);
LS_MUST_CHECK ls_status ls_cpu_cross_entropy(ls_queue *queue, const ls_vocabulary_cut *cut,
                                             const ls_tensor *logits, const int32_t *targets, float *losses,
                                             bool with_gradient);

LS_MUST_CHECK ls_status ls_cpu_hash_tiles(ls_queue *queue, const ls_master *x, int64_t count,
                                          ls_hash128 *hashes_out);

/* ---- linear.c ---- */

LS_MUST_CHECK ls_status ls_cpu_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                              const ls_tensor *y);
LS_MUST_CHECK ls_status ls_cpu_linear_backward_input(ls_queue *queue, const ls_linear *linear,
                                                     const ls_tensor *dy, const ls_tensor *dx,
                                                     bool accumulate);
LS_MUST_CHECK ls_status ls_cpu_linear_backward_weight(ls_queue *queue, const ls_linear *linear,
                                                      const ls_tensor *x, const ls_tensor *dy,
                                                      const ls_tensor *dweight, const ls_tensor *dbias,
                                                      bool accumulate);

/* ---- experts.c ---- */

extern const ls_backend_experts ls_cpu_experts;

/* ---- attention.c ---- */

LS_MUST_CHECK ls_status ls_cpu_attention_forward(ls_queue *queue, const ls_attention *attention,
                                                 const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                                 const ls_tensor *out, const ls_tensor *lse);
LS_MUST_CHECK ls_status ls_cpu_attention_backward(ls_queue *queue, const ls_attention *attention,
                                                  const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                                  const ls_tensor *out, const ls_tensor *lse,
                                                  const ls_tensor *dout, const ls_tensor *dq,
                                                  const ls_tensor *dk, const ls_tensor *dv,
                                                  const ls_tensor *workspace);
int64_t ls_cpu_attention_workspace(const ls_attention *attention);
LS_MUST_CHECK ls_status ls_cpu_attention_decode(ls_queue *queue, const ls_attention *attention,
                                                const ls_tensor *q, const ls_tensor *k_cache,
                                                const ls_tensor *v_cache, int64_t past, const ls_tensor *out);

#endif
