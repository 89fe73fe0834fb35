// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the attention kernels. Matrices are as in compute/kernels/attention.h; strides are
 * in elements. The kernels:
 *
 *   attention            attention_forward_<head_dim>               bfloat16, tensor cores
 *   attention_backward   attention_keys_<head_dim>, attention_queries_<head_dim>
 *   attention_plain      attention_dots_<type>, attention_forward_<type>, attention_keys_<type>,
 *                        attention_queries_<type>                   any head size, float32 products
 *   attention_decode     attention_decode_<type>, attention_combine_<type>
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ATTENTION_H
#define LS_COMPUTE_CUDA_DEVICE_ATTENTION_H

#include <stdint.h>

typedef struct ls_attention_args {
    const void *q, *k, *v;
    void *out;
    /* NULL: not wanted. */
    float *lse;
    int64_t q_stride, k_stride, v_stride, out_stride, lse_stride;
    /* Queries and keys of a sequence; query i is position past + i, keys == past + length. */
    int32_t sequences, length, keys, past;
    int32_t heads, kv_heads, head_dim;
    /* A query attends to this many positions, itself included. No window:
     * LS_ATTENTION_NO_WINDOW. */
    int32_t reach;
    /* Per query of all sequences, the first key of its record; NULL: no records. */
    const int32_t *first;
    float scale;
} ls_attention_args;

typedef struct ls_attention_gradient_args {
    ls_attention_args forward;
    const void *dout;
    void *dq, *dk, *dv;
    int64_t dout_stride, dq_stride, dk_stride, dv_stride;
    /*
     * Both (sequences, heads, padded), written by attention_dots: lse * log2(e), and dout . out of
     * a query. Queries from length to padded have lse = infinity, so that their probabilities are
     * 0.
     */
    float *lse2, *dots;
    /* length, rounded up to a multiple of LS_ATTENTION_PADDING. */
    int32_t padded;
    /* Rows of out and dout of a head are whole 16-byte words. */
    int32_t aligned;
} ls_attention_gradient_args;

/* One block computes LS_ATTENTION_CHUNK keys of one query and head: (chunks, heads, queries). */
typedef struct ls_attention_decode_args {
    ls_attention_args forward;
    /* Of each query, head and chunk: head_dim sums of p v, the sum of p, and the largest score. */
    float *partial;
    int32_t chunks;
    /* Rows of keys and values of a head are whole 16-byte words. */
    int32_t aligned;
} ls_attention_decode_args;

enum {
    LS_ATTENTION_NO_WINDOW = 1 << 30,
    LS_ATTENTION_PADDING = 128,
    LS_ATTENTION_CHUNK = 64,
    LS_ATTENTION_DECODE_THREADS = 128,
    /* Sums of one warp: of up to 256 columns, and of probabilities. */
    LS_ATTENTION_DECODE_SUMS = 256 + 32,
    LS_ATTENTION_DECODE_BYTES =
        (LS_ATTENTION_CHUNK + LS_ATTENTION_DECODE_THREADS / 32 * LS_ATTENTION_DECODE_SUMS) * 4,
    /* Queries, and keys, of a tile of attention_plain. */
    LS_ATTENTION_PLAIN_TILE = 64,
    LS_ATTENTION_PLAIN_THREADS = 256,
    LS_ATTENTION_PLAIN_STRIDE = LS_ATTENTION_PLAIN_TILE + 4,
    LS_ATTENTION_PLAIN_BYTES = 3 * LS_ATTENTION_PLAIN_TILE * LS_ATTENTION_PLAIN_STRIDE * 4,
};

#endif
