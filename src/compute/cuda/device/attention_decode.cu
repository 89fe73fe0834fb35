// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of a few new queries against many keys, for generation: memory-bound. The keys of a
 * query are cut into chunks at fixed positions, a block computes one chunk, and a second kernel
 * combines the chunks in a fixed order, so that the result of a query does not depend on how many
 * are new.
 *
 * Eight lanes share a key: lane l holds the 16-byte words l % 8, l % 8 + 8, ... of its row. A
 * thread begins to read all its keys of a chunk before it computes with the first.
 */
#include "compute/cuda/device/attention.h"
#include "compute/cuda/device/attention_vector.h"
#include "compute/cuda/device/device.h"

#include <math.h>

enum {
    CHUNK = LS_ATTENTION_CHUNK,
    THREADS = LS_ATTENTION_DECODE_THREADS,
    WARPS = THREADS / 32,
    ROWS = THREADS / 8,
    /* Keys of a thread. */
    STEPS = CHUNK / ROWS,
    DIM_MAX = 256,
    /* Floats from the sums of one warp to those of the next. */
    SUMS = LS_ATTENTION_DECODE_SUMS,
};
static constexpr float LOG2_E = 1.4426950408889634f;

/* This lane's words of a row. */
template <class T> struct row_words {
    enum { COUNT = 16 / sizeof(T), WORDS = DIM_MAX / 8 / COUNT };
    uint4 words[WORDS];

    __device__ __forceinline__ static int col(int word)
    {
        return (word * 8 + (int)threadIdx.x % 8) * COUNT;
    }

    __device__ __forceinline__ void load(const T *row, int head_dim, bool aligned)
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            words[i] = vector_load(row + col(i), head_dim - col(i), aligned);
        }
    }
};

/* Which chunk of which query a block computes, and its keys: [begin, end). */
struct chunk_place {
    int head, kv_head, query, first, begin, end;
};

LS_DEVICE chunk_place chunk_place_of(const ls_attention_decode_args &d)
{
    const ls_attention_args &a = d.forward;
    chunk_place at;
    at.head = blockIdx.y;
    at.kv_head = at.head / (a.heads / a.kv_heads);
    at.query = blockIdx.z;
    at.first = (int)blockIdx.x * CHUNK;
    const int position = a.past + at.query;
    at.begin = max(at.first, position - a.reach + 1);
    at.end = min(at.first + CHUNK, position + 1);
    return at;
}

/* The rows of this thread's keys; those beyond the chunk repeat its last. */
template <class T>
LS_DEVICE void chunk_load(row_words<T> (&rows)[STEPS], const T *data, int64_t stride,
                          const ls_attention_decode_args &d, const chunk_place &at)
{
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int key = min(at.first + step * ROWS + (int)threadIdx.x / 8, at.end - 1);
        rows[step].load(data + key * stride + at.kv_head * d.forward.head_dim, d.forward.head_dim, d.aligned);
    }
}

/* Computes the scores, in units of log 2, of the keys of a chunk: -infinity for those not seen. */
template <class T>
LS_DEVICE void chunk_scores(const ls_attention_decode_args &d, const chunk_place &at, float *scores)
{
    using words = row_words<T>;
    const ls_attention_args &a = d.forward;
    words q, k[STEPS];
    chunk_load<T>(k, (const T *)a.k, a.k_stride, d, at);
    q.load((const T *)a.q + at.query * a.q_stride + at.head * a.head_dim, a.head_dim, d.aligned);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < words::WORDS; i++) {
            float left[words::COUNT], right[words::COUNT];
            vector_unpack(left, q.words[i]);
            vector_unpack(right, k[step].words[i]);
#pragma unroll
            for (int j = 0; j < words::COUNT; j++) {
                sum = fmaf(left[j], right[j], sum);
            }
        }
#pragma unroll
        for (int lane = 4; lane > 0; lane /= 2) {
            sum += __shfl_xor_sync(~0u, sum, lane);
        }
        const int row = step * ROWS + (int)threadIdx.x / 8, key = at.first + row;
        if (threadIdx.x % 8 == 0) {
            scores[row] = key >= at.begin && key < at.end ? sum * (a.scale * LOG2_E) : -INFINITY;
        }
    }
}

/* The largest of the scores, and the sum of 2^(score - top), in each warp. */
LS_DEVICE float chunk_top(const float *scores)
{
    float top = fmaxf(scores[threadIdx.x % 32], scores[threadIdx.x % 32 + 32]);
    for (int lane = 16; lane > 0; lane /= 2) {
        top = fmaxf(top, __shfl_xor_sync(~0u, top, lane));
    }
    return top;
}

LS_DEVICE float chunk_sum(const float *scores, float top)
{
    float sum = exp2f(scores[threadIdx.x % 32] - top) + exp2f(scores[threadIdx.x % 32 + 32] - top);
    for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_xor_sync(~0u, sum, lane);
    }
    return sum;
}

/* sums[warp][col] = sum of 2^(score - top) v over the keys of a warp. */
template <class T>
LS_DEVICE void chunk_values(const ls_attention_decode_args &d, const chunk_place &at, const float *scores,
                            float top, float *sums)
{
    using words = row_words<T>;
    words v[STEPS];
    chunk_load<T>(v, (const T *)d.forward.v, d.forward.v_stride, d, at);
#pragma unroll
    for (int i = 0; i < words::WORDS; i++) {
        float sum[words::COUNT] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const float p = exp2f(scores[step * ROWS + (int)threadIdx.x / 8] - top);
            float value[words::COUNT];
            vector_unpack(value, v[step].words[i]);
#pragma unroll
            for (int j = 0; j < words::COUNT; j++) {
                sum[j] = fmaf(p, value[j], sum[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < words::COUNT; j++) {
            sum[j] += __shfl_xor_sync(~0u, sum[j], 8);
            sum[j] += __shfl_xor_sync(~0u, sum[j], 16);
            if (threadIdx.x % 32 < 8) {
                sums[threadIdx.x / 32 * SUMS + words::col(i) + j] = sum[j];
            }
        }
    }
}

/* The sum of a column over the warps of a block. */
LS_DEVICE float column_sum(const float *sums, int col)
{
    float sum = sums[col];
#pragma unroll
    for (int warp = 1; warp < WARPS; warp++) {
        sum += sums[warp * SUMS + col];
    }
    return sum;
}

template <class T> LS_DEVICE void decode(const ls_attention_decode_args &d)
{
    static_assert(CHUNK == 64, "a lane reads two scores");
    LS_SHARED(float, scores);
    float *sums = scores + CHUNK;
    const chunk_place at = chunk_place_of(d);
    if (at.begin >= at.end) {
        return;
    }
    chunk_scores<T>(d, at, scores);
    __syncthreads();
    const float top = chunk_top(scores), sum = chunk_sum(scores, top);
    chunk_values<T>(d, at, scores, top, sums);
    __syncthreads();
    const int dim = d.forward.head_dim;
    const int64_t number = ((int64_t)at.query * d.forward.heads + at.head) * d.chunks + blockIdx.x;
    float *to = d.partial + number * (dim + 2);
    for (int col = threadIdx.x; col < dim; col += THREADS) {
        to[col] = column_sum(sums, col);
    }
    if (threadIdx.x == 0) {
        to[dim] = sum;
        to[dim + 1] = top;
    }
}

/* The largest score of the chunks [begin, end), in each warp. tops: of the first of them. */
LS_DEVICE float chunks_top(const float *tops, int count, int width)
{
    float top = -INFINITY;
    for (int chunk = (int)threadIdx.x % 32; chunk < count; chunk += 32) {
        top = fmaxf(top, tops[(int64_t)chunk * width]);
    }
    for (int lane = 16; lane > 0; lane /= 2) {
        top = fmaxf(top, __shfl_xor_sync(~0u, top, lane));
    }
    return top;
}

/* A block combines the chunks of one query and head: a warp sums every fourth chunk. */
template <class T> LS_DEVICE void combine(const ls_attention_decode_args &d)
{
    LS_SHARED(float, sums);
    const ls_attention_args &a = d.forward;
    const int dim = a.head_dim, width = dim + 2, head = blockIdx.x, query = blockIdx.y;
    const int position = a.past + query, lane = threadIdx.x % 32;
    const int begin = max(0, position - a.reach + 1) / CHUNK, count = position / CHUNK + 1 - begin;
    const float *from = d.partial + (((int64_t)query * a.heads + head) * d.chunks + begin) * width;
    const float top = chunks_top(from + dim + 1, count, width);
    /* The column dim is the sum of probabilities. */
    float sum[DIM_MAX / 32 + 1] = {};
#pragma unroll 2
    for (int chunk = (int)threadIdx.x / 32; chunk < count; chunk += WARPS) {
        const float *part = from + (int64_t)chunk * width;
        const float factor = exp2f(part[dim + 1] - top);
#pragma unroll
        for (int i = 0; i <= DIM_MAX / 32; i++) {
            if (i * 32 + lane <= dim) {
                sum[i] = fmaf(factor, part[i * 32 + lane], sum[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i <= DIM_MAX / 32; i++) {
        if (i * 32 + lane <= dim) {
            sums[(int)threadIdx.x / 32 * SUMS + i * 32 + lane] = sum[i];
        }
    }
    __syncthreads();
    const float all = column_sum(sums, dim);
    T *to = (T *)a.out + query * a.out_stride + head * dim;
    for (int col = threadIdx.x; col < dim; col += THREADS) {
        to[col] = from_float<T>(column_sum(sums, col) / all);
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
