// SPDX-License-Identifier: Apache-2.0
/*
 * A backend: the kernels and the memory of one kind of device.
 *
 *   compute/queue.c           queues and memory: calls the queue's backend
 *   compute/kernels/<op>.c    the public function of an op: checks shapes once, calls the queue's backend
 *   compute/cpu/<op>.c        what an op does on the processor
 *   compute/cuda/<op>.c       what an op does on an NVIDIA GPU
 *
 * Functions of a backend may rely on the checks of the public functions. They take the same
 * arguments, described in compute/queue.h and compute/kernels/<op>.h.
 */
#ifndef LS_COMPUTE_BACKEND_H
#define LS_COMPUTE_BACKEND_H

#include "compute/queue.h"

struct ls_positions;
struct ls_routes;
struct ls_router;
struct ls_linear;
struct ls_norm;
struct ls_attention;
struct ls_vocabulary_cut;
struct ls_tree_sum;
struct ls_compression;
struct ls_compressed_sum;
struct ls_compressed_term;
struct ls_adamw_factors;
struct ls_master;
struct ls_hash128;

/* Kernels of layers with experts (compute/kernels/experts.h). */
typedef struct ls_backend_experts {
    ls_status (*route_forward)(ls_queue *, const struct ls_router *router, const ls_tensor *scores,
                               const ls_tensor *weights, const struct ls_routes *routes);
    ls_status (*route_backward)(ls_queue *, const struct ls_router *router, const ls_tensor *probabilities,
                                const struct ls_routes *routes, const ls_tensor *dweights,
                                const ls_tensor *dlogits);
    ls_status (*dispatch_forward)(ls_queue *, const struct ls_routes *routes, const ls_tensor *x,
                                  const ls_tensor *rows);
    ls_status (*dispatch_backward)(ls_queue *, const struct ls_routes *routes, const ls_tensor *drows,
                                   const ls_tensor *dx);
    ls_status (*combine_forward)(ls_queue *, const struct ls_routes *routes, const ls_tensor *rows,
                                 const ls_tensor *weights, const ls_tensor *y);
    ls_status (*combine_backward)(ls_queue *, const struct ls_routes *routes, const ls_tensor *rows,
                                  const ls_tensor *weights, const ls_tensor *dy, const ls_tensor *drows,
                                  const ls_tensor *dweights);
    ls_status (*linear_forward)(ls_queue *, const struct ls_routes *routes, const struct ls_linear *linear,
                                const ls_tensor *x, const ls_tensor *y);
    ls_status (*linear_backward_input)(ls_queue *, const struct ls_routes *routes,
                                       const struct ls_linear *linear, const ls_tensor *dy,
                                       const ls_tensor *dx);
    ls_status (*linear_backward_weight)(ls_queue *, const struct ls_routes *routes,
                                        const struct ls_linear *linear, const ls_tensor *x,
                                        const ls_tensor *dy, const ls_tensor *dweight, bool accumulate);
} ls_backend_experts;

typedef struct ls_backend {
    ls_device_kind device;

    /* ---- the queue and its memory (compute/queue.h) ---- */

    void (*destroy)(ls_queue *queue);
    ls_status (*wait)(ls_queue *queue);
    uint32_t (*threads)(const ls_queue *queue);
    ls_status (*alloc)(ls_queue *queue, size_t bytes, ls_memory_kind kind, void **memory_out);
    void (*free)(ls_queue *queue, void *memory, size_t bytes, ls_memory_kind kind);
    ls_status (*move)(ls_queue *queue, void *to, const void *from, size_t bytes);
    const char *(*determinism_class)(const ls_queue *queue);
    const char *(*device_name)(const ls_queue *queue);
    double (*gemm_peak_flops)(ls_queue *queue, ls_dtype dtype);
    uint64_t (*free_memory)(ls_queue *queue); /* NULL: it is the memory of the host */

    /* ---- kernels (compute/kernels/<op>.h) ---- */

    ls_status (*add)(ls_queue *, const ls_tensor *a, const ls_tensor *b, const ls_tensor *out);
    ls_status (*fill)(ls_queue *, const ls_tensor *out, float value);
    ls_status (*scale)(ls_queue *, const ls_tensor *x, float factor);
    ls_status (*copy)(ls_queue *, const ls_tensor *from, const ls_tensor *to);
    ls_status (*find_nonfinite)(ls_queue *, const ls_tensor *x, int64_t *index_out);
    ls_status (*tree_sum)(ls_queue *, const struct ls_tree_sum *sum, const float *const *inputs,
                          int64_t count, float *out, double *square_sums);
    /* NULL, all three: the device has no kernels for them */
    ls_status (*compressed_sum)(ls_queue *, const struct ls_compressed_sum *sum, int64_t count, float *out,
                                double *square_sums);
    void (*compress_change)(ls_queue *, const struct ls_compression *compression,
                            const struct ls_compressed_term *change, const float *old, int64_t count,
                            float *weights);
    void (*decompress)(ls_queue *, const struct ls_compression *compression, const unsigned char *packed,
                       int64_t count, float *out, bool adds);
    ls_status (*adamw)(ls_queue *, const struct ls_adamw_factors *factors, int64_t count,
                       const struct ls_master *parameters, const float *gradients, float *m, float *v);
    ls_status (*embedding_forward)(ls_queue *, const int32_t *tokens, const ls_tensor *table,
                                   const ls_tensor *position_table, const struct ls_positions *positions,
                                   const ls_tensor *out);
    ls_status (*embedding_backward)(ls_queue *, const int32_t *tokens, const ls_tensor *dout,
                                    const struct ls_positions *positions, const ls_tensor *dtable,
                                    const ls_tensor *dpositions);
    ls_status (*norm_forward)(ls_queue *, const struct ls_norm *norm, const ls_tensor *x, const ls_tensor *y,
                              const ls_tensor *mean, const ls_tensor *rstd);
    ls_status (*norm_forward_residual)(ls_queue *, const struct ls_norm *norm, const ls_tensor *a,
                                       const ls_tensor *b, const ls_tensor *sum, const ls_tensor *y,
                                       const ls_tensor *mean, const ls_tensor *rstd);
    ls_status (*norm_backward)(ls_queue *, const struct ls_norm *norm, const ls_tensor *x,
                               const ls_tensor *dy, const ls_tensor *mean, const ls_tensor *rstd,
                               const ls_tensor *dx, bool accumulate_input, const ls_tensor *dweight,
                               const ls_tensor *dbias, bool accumulate_weight, const ls_tensor *workspace);
    int64_t (*norm_workspace)(int64_t n, int64_t cols, int64_t groups);
    ls_status (*linear_forward)(ls_queue *, const struct ls_linear *linear, const ls_tensor *x,
                                const ls_tensor *y);
    ls_status (*linear_backward_input)(ls_queue *, const struct ls_linear *linear, const ls_tensor *dy,
                                       const ls_tensor *dx, bool accumulate);
    ls_status (*linear_backward_weight)(ls_queue *, const struct ls_linear *linear, const ls_tensor *x,
                                        const ls_tensor *dy, const ls_tensor *dweight, const ls_tensor *dbias,
                                        bool accumulate);
    ls_status (*rotary)(ls_queue *, const ls_tensor *x, int64_t heads, int64_t head_dim,
                        const struct ls_positions *positions, const ls_tensor *cosine, const ls_tensor *sine,
                        bool backward);
    ls_status (*gelu_forward)(ls_queue *, const ls_tensor *x, const ls_tensor *y);
    ls_status (*gelu_backward)(ls_queue *, const ls_tensor *x, const ls_tensor *dy, const ls_tensor *dx);
    ls_status (*swiglu_forward)(ls_queue *, const ls_tensor *gate_up, const ls_tensor *y);
    ls_status (*swiglu_backward)(ls_queue *, const ls_tensor *gate_up, const ls_tensor *dy,
                                 const ls_tensor *dgate_up);
    ls_status (*attention_forward)(ls_queue *, const struct ls_attention *attention, const ls_tensor *q,
                                   const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                   const ls_tensor *lse);
    ls_status (*attention_backward)(ls_queue *, const struct ls_attention *attention, const ls_tensor *q,
                                    const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                    const ls_tensor *lse, const ls_tensor *dout, const ls_tensor *dq,
                                    const ls_tensor *dk, const ls_tensor *dv, const ls_tensor *workspace);
    int64_t (*attention_workspace)(const struct ls_attention *attention);
    ls_status (*attention_decode)(ls_queue *, const struct ls_attention *attention, const ls_tensor *q,
                                  const ls_tensor *k_cache, const ls_tensor *v_cache, int64_t past,
                                  const ls_tensor *out);
    ls_status (*cross_entropy)(ls_queue *, const struct ls_vocabulary_cut *cut, const ls_tensor *logits,
                               const int32_t *targets, float *losses, bool with_gradient);
    ls_status (*hash_tiles)(ls_queue *, const struct ls_master *x, int64_t count,
                            struct ls_hash128 *hashes_out);
    const ls_backend_experts *experts; /* NULL: the device has no kernels for them */
} ls_backend;

extern const ls_backend ls_cpu_backend; /* compute/cpu/backend.c */

/* The first member of every queue. */
struct ls_queue {
    const ls_backend *backend;
};

#endif
