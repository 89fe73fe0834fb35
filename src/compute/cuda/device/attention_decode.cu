// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of a few new queries against many keys, for generation: memory-bound. The keys of a query
 * are cut into chunks at fixed positions, a block computes one chunk, and a second kernel combines
 * the chunks in order, so that the result of a query does not depend on how many are new.
 *
 * Eight lanes share a key. A lane holds the 16-byte words of a row whose number is lane % 8, modulo 8.
 */
#include "compute/cuda/device/attention.h"
#include "compute/cuda/device/attention_vector.h"
#include "compute/cuda/device/device.h"

#include <math.h>

enum { THREADS = 128, ROWS = THREADS / 8, CHUNK = LS_ATTENTION_CHUNK, HELD = 256 / 8 };
static constexpr float LOG2_E = 1.4426950408889634f;

/* Which chunk of which query a block computes, and its keys: [begin, end). */
struct chunk_place {
    int number, head, query, begin, end;
};

LS_DEVICE chunk_place chunk_place_of(const ls_attention_decode_args &d)
{
    const ls_attention_args &a = d.forward;
    chunk_place at;
    at.number = blockIdx.x % d.chunks;
    at.head = blockIdx.x / d.chunks % a.heads;
    at.query = blockIdx.x / d.chunks / a.heads;
    const int position = a.past + at.query;
    at.begin = max(at.number * CHUNK, position - a.reach + 1);
    at.end = min((at.number + 1) * CHUNK, position + 1);
    return at;
}

/* This lane's part of a row of one head. */
template <class T> LS_DEVICE void row_load(float (&to)[HELD], const T *row, int head_dim, bool aligned)
{
    constexpr int COUNT = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < HELD / COUNT; i++) {
        const int col = (i * 8 + (int)threadIdx.x % 8) * COUNT;
        float part[COUNT];
        vector_load(part, row + col, head_dim - col, aligned && col < head_dim);
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            to[i * COUNT + j] = part[j];
        }
    }
}

/* Computes the scores, in units of log 2, of the keys of a chunk. */
template <class T>
LS_DEVICE void chunk_scores(const ls_attention_decode_args &d, const chunk_place &at, float *scores)
{
    const ls_attention_args &a = d.forward;
    const int kv_head = at.head / (a.heads / a.kv_heads);
    float q[HELD], k[HELD];
    row_load(q, (const T *)a.q + at.query * a.q_stride + at.head * a.head_dim, a.head_dim, d.aligned);
    for (int first = at.begin; first < at.end; first += ROWS) {
        const int key = first + (int)threadIdx.x / 8;
        float sum = 0.0f;
        if (key < at.end) {
            row_load(k, (const T *)a.k + key * a.k_stride + kv_head * a.head_dim, a.head_dim, d.aligned);
#pragma unroll
            for (int i = 0; i < HELD; i++) {
                sum = fmaf(q[i], k[i], sum);
            }
        }
        for (int step = 4; step > 0; step /= 2) {
            sum += __shfl_xor_sync(~0u, sum, step);
        }
        if (threadIdx.x % 8 == 0 && key < at.end) {
            scores[key - at.begin] = sum * (a.scale * LOG2_E);
        }
    }
}

/* The largest of the scores, or the sum of 2^(score - top), in each thread. */
LS_DEVICE float chunk_top(const float *scores, int count)
{
    float top = -INFINITY;
    for (int i = (int)threadIdx.x % 32; i < count; i += 32) {
        top = fmaxf(top, scores[i]);
    }
    for (int step = 16; step > 0; step /= 2) {
        top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    }
    return top;
}

LS_DEVICE float chunk_sum(const float *scores, int count, float top)
{
    float sum = 0.0f;
    for (int i = (int)threadIdx.x % 32; i < count; i += 32) {
        sum += exp2f(scores[i] - top);
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(~0u, sum, step);
    }
    return sum;
}

/* sums[warp][col] = sum of 2^(score - top) v over the keys of a warp. */
template <class T>
LS_DEVICE void chunk_values(const ls_attention_decode_args &d, const chunk_place &at, const float *scores,
                            float top, float *sums)
{
    constexpr int COUNT = 16 / sizeof(T);
    const ls_attention_args &a = d.forward;
    const int kv_head = at.head / (a.heads / a.kv_heads);
    float sum[HELD], v[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        sum[i] = 0.0f;
    }
    for (int key = at.begin + (int)threadIdx.x / 8; key < at.end; key += ROWS) {
        const float p = exp2f(scores[key - at.begin] - top);
        row_load(v, (const T *)a.v + key * a.v_stride + kv_head * a.head_dim, a.head_dim, d.aligned);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            sum[i] = fmaf(p, v[i], sum[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], 8);
        sum[i] += __shfl_xor_sync(~0u, sum[i], 16);
        if (threadIdx.x % 32 < 8) {
            const int col = (i / COUNT * 8 + (int)threadIdx.x % 8) * COUNT + i % COUNT;
            sums[threadIdx.x / 32 * 256 + col] = sum[i];
        }
    }
}

template <class T> LS_DEVICE void decode(const ls_attention_decode_args &d)
{
    LS_SHARED(float, scores);
    float *sums = scores + CHUNK;
    const chunk_place at = chunk_place_of(d);
    if (at.begin >= at.end) {
        return;
    }
    chunk_scores<T>(d, at, scores);
    __syncthreads();
    const float top = chunk_top(scores, at.end - at.begin), sum = chunk_sum(scores, at.end - at.begin, top);
    chunk_values<T>(d, at, scores, top, sums);
    __syncthreads();
    const int dim = d.forward.head_dim;
    float *to = d.partial + (int64_t)blockIdx.x * (dim + 2);
    for (int col = threadIdx.x; col < dim; col += THREADS) {
        to[col] = (sums[col] + sums[256 + col]) + (sums[512 + col] + sums[768 + col]);
    }
    if (threadIdx.x == 0) {
        to[dim] = sum;
        to[dim + 1] = top;
    }
}

/* A block combines the chunks of one query and head. */
template <class T> LS_DEVICE void combine(const ls_attention_decode_args &d)
{
    const ls_attention_args &a = d.forward;
    const int head = blockIdx.x % a.heads, query = blockIdx.x / a.heads, width = a.head_dim + 2;
    const int position = a.past + query, begin = max(0, position - a.reach + 1) / CHUNK;
    const int end = position / CHUNK + 1;
    const float *from = d.partial + (int64_t)blockIdx.x * d.chunks * width;
    float top = -INFINITY, sum = 0.0f;
    for (int chunk = begin; chunk < end; chunk++) {
        top = fmaxf(top, from[(int64_t)chunk * width + a.head_dim + 1]);
    }
    for (int chunk = begin; chunk < end; chunk++) {
        const float *part = from + (int64_t)chunk * width;
        sum += part[a.head_dim] * exp2f(part[a.head_dim + 1] - top);
    }
    for (int col = threadIdx.x; col < a.head_dim; col += THREADS) {
        float value = 0.0f;
        for (int chunk = begin; chunk < end; chunk++) {
            const float *part = from + (int64_t)chunk * width;
            value += part[col] * exp2f(part[a.head_dim + 1] - top);
        }
        ((T *)a.out)[query * a.out_stride + head * a.head_dim + col] = from_float<T>(value / sum);
    }
}

LS_KERNEL __launch_bounds__(THREADS) attention_decode_float(ls_attention_decode_args d)
{
    decode<float>(d);
}
LS_KERNEL_EXPORT(attention_decode_float)

LS_KERNEL __launch_bounds__(THREADS) attention_decode_bf16(ls_attention_decode_args d)
{
    decode<bf16>(d);
}
LS_KERNEL_EXPORT(attention_decode_bf16)

LS_KERNEL __launch_bounds__(THREADS) attention_combine_float(ls_attention_decode_args d)
{
    combine<float>(d);
}
LS_KERNEL_EXPORT(attention_combine_float)

LS_KERNEL __launch_bounds__(THREADS) attention_combine_bf16(ls_attention_decode_args d)
{
    combine<bf16>(d);
}
LS_KERNEL_EXPORT(attention_combine_bf16)
