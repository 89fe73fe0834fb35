// SPDX-License-Identifier: Apache-2.0
/*
 * Attention forward in bfloat16 on tensor cores (Dao, "FlashAttention-2", 2023).
 *
 * A block computes a tile of queries of one head and goes through the tiles of keys that these can
 * see, from the first to the last. A warp holds 16 M queries: their scores, and their outputs so
 * far relative to the largest score so far. While scores are computed the values arrive, and while
 * values are summed the next keys do.
 */
#include "compute/cuda/device/attention_records.h"
#include "compute/cuda/device/attention_tile.h"

enum { KEYS = 64 };

/* Scores of keys that a query does not attend to become -infinity. row, col: position of this
 * lane's first query, and key. */
template <int M> LS_DEVICE void mask(float (&s)[M][KEYS / 8][4], int row, int col, int reach)
{
#pragma unroll
    for (int i = 0; i < M * (KEYS / 8) * 4; i++) {
        const int m = i / (KEYS / 2), j = i / 4 % (KEYS / 8), e = i % 4;
        const int distance = row + m * 16 + e / 2 * 8 - (col + j * 8 + e % 2);
        if (distance < 0 || distance >= reach) {
            s[m][j][e] = -INFINITY;
        }
    }
}

/* The same for keys before a query's record. query: this lane's first. */
template <int M>
LS_DEVICE void mask_records(float (&s)[M][KEYS / 8][4], const ls_attention_args &a, int query, int col)
{
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        const int begin = record_begin(a, blockIdx.z, query + i * 8) - col;
#pragma unroll
        for (int k = 0; k < KEYS / 4; k++) {
            float &score = s[i / 2][k / 2][i % 2 * 2 + k % 2];
            score = k / 2 * 8 + k % 2 < begin ? -INFINITY : score;
        }
    }
}

/* Turns scores into probabilities relative to the largest score so far, and makes `out` and `sum`
 * relative to it too. factor: scale * log2(e). top: the largest score times factor, as rounded, so
 * that exactly nothing shrinks where it stays. */
template <int D, int M>
LS_DEVICE void softmax_step(float (&s)[M][KEYS / 8][4], float (&out)[M][D / 8][4], float (&top)[M][2],
                            float (&sum)[M][2], float factor)
{
    float shrink[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        const int m = i / 2, h = i % 2, e = h * 2;
        float high = fmaxf(s[m][0][e], s[m][0][e + 1]);
#pragma unroll
        for (int j = 1; j < KEYS / 8; j++) {
            high = fmaxf(high, fmaxf(s[m][j][e], s[m][j][e + 1]));
        }
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
        high = fmaxf(top[m][h], high * factor);
        /* A row that has seen no key yet stays at 0 probabilities. */
        const float base = high == -INFINITY ? 0.0f : high;
        shrink[m][h] = exp2_fast(top[m][h] - base);
        top[m][h] = high;
        float added = 0.0f;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            s[m][j][e] = exp2_fast(s[m][j][e] * factor - base);
            s[m][j][e + 1] = exp2_fast(s[m][j][e + 1] * factor - base);
            added += s[m][j][e] + s[m][j][e + 1];
        }
        sum[m][h] = fmaf(sum[m][h], shrink[m][h], added);
    }
#pragma unroll
    for (int i = 0; i < M * (D / 8) * 4; i++) {
        const int m = i / (D / 2), j = i / 4 % (D / 8), e = i % 4;
        out[m][j][e] *= shrink[m][e / 2];
    }
}

/* Divides by the sums and writes the outputs and lse of a strip of 16 M queries, whose first is
 * `row` and of which `rows` exist. */
template <int D, int M>
LS_DEVICE void strip_finish(const ls_attention_args &a, int64_t row, int rows, int head,
                            const float (&out)[M][D / 8][4], const float (&top)[M][2], float (&sum)[M][2],
                            bf16 *tile)
{
    const int lane = threadIdx.x % 32;
    float factor[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        const int m = i / 2, h = i % 2, at = m * 16 + h * 8 + lane / 4;
        sum[m][h] += __shfl_xor_sync(~0u, sum[m][h], 1);
        sum[m][h] += __shfl_xor_sync(~0u, sum[m][h], 2);
        factor[m][h] = 1.0f / sum[m][h];
        if (a.lse && lane % 4 == 0 && at < rows) {
            a.lse[(row + at) * a.lse_stride + head] = top[m][h] * LOG_2 + logf(sum[m][h]);
        }
    }
    bf16 *to = (bf16 *)a.out + row * a.out_stride + head * D;
    strip_store<D, D, M>(to, a.out_stride, rows, out, factor, tile);
}

template <int D, int QUERIES, int M, bool HELD> LS_DEVICE void forward(const ls_attention_args &a)
{
    constexpr int THREADS = QUERIES / M * 2, STRIDE = row_stride<D>();
    LS_SHARED(bf16, q_tile);
    bf16 *k_tile = q_tile + QUERIES * STRIDE, *v_tile = k_tile + KEYS * STRIDE;

    /* Tiles of one head follow each other, since they read the same keys; the longest come
     * first. */
    const int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y, sequence = blockIdx.z;
    const int kv_head = head / (a.heads / a.kv_heads);
    const bf16 *q = (const bf16 *)a.q + ((int64_t)sequence * a.length + first) * a.q_stride + head * D;
    const bf16 *k = (const bf16 *)a.k + (int64_t)sequence * a.keys * a.k_stride + kv_head * D;
    const bf16 *v = (const bf16 *)a.v + (int64_t)sequence * a.keys * a.v_stride + kv_head * D;

    const int position = a.past + first, last = a.past + min(first + QUERIES, a.length) - 1;
    int key = max(record_begin(a, sequence, first), position - a.reach + 1) / KEYS * KEYS;
    tile_load<D, QUERIES, THREADS>(q_tile, q, a.q_stride, a.length - first);
    tile_load<D, KEYS, THREADS>(k_tile, k + key * a.k_stride, a.k_stride, a.keys - key);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();

    /* This warp's queries. */
    const int strip = (int)threadIdx.x / 32 * 16 * M, lane = threadIdx.x % 32;
    const int low = position + strip, high = low + 16 * M - 1;
    left_rows<D, M, HELD> queries;
    queries.load(q_tile + strip * STRIDE);

    float s[M][KEYS / 8][4], out[M][D / 8][4], top[M][2], sum[M][2];
    strip_clear(out);
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        top[i / 2][i % 2] = -INFINITY;
        sum[i / 2][i % 2] = 0.0f;
    }
#pragma unroll 1
    for (; key <= last; key += KEYS) {
        const bool sees = key <= high && key + KEYS - 1 > low - a.reach;
        tile_load<D, KEYS, THREADS>(v_tile, v + key * a.v_stride, a.v_stride, a.keys - key);
        cp_async_commit();
        if (sees) {
            product_of_rows<D, M, KEYS, HELD>(s, queries, lane_of_right<D>(k_tile));
        }
        cp_async_wait<0>();
        __syncthreads();
        if (key + KEYS <= last) {
            const int next = key + KEYS;
            tile_load<D, KEYS, THREADS>(k_tile, k + next * a.k_stride, a.k_stride, a.keys - next);
        }
        cp_async_commit();
        if (sees) {
            if (key + KEYS - 1 > low || key <= high - a.reach) {
                mask<M>(s, low + lane / 4, key + lane % 4 * 2, a.reach);
            }
            if (key < record_begin(a, sequence, high)) {
                mask_records<M>(s, a, low + lane / 4, key + lane % 4 * 2);
            }
            softmax_step<D, M>(s, out, top, sum, a.scale * LOG2_E);
            product_of_strip<D, D, M, KEYS>(out, s, lane_of_left<D>(v_tile));
        }
        cp_async_wait<0>();
        __syncthreads();
    }
    strip_finish<D, M>(a, (int64_t)sequence * a.length + first + strip, a.length - first - strip, head, out,
                       top, sum, q_tile + strip * STRIDE);
}

LS_KERNEL __launch_bounds__(128, 2) attention_forward_64(ls_attention_args a)
{
    forward<64, 128, 2, true>(a);
}
LS_KERNEL_EXPORT(attention_forward_64)

LS_KERNEL __launch_bounds__(128, 2) attention_forward_96(ls_attention_args a)
{
    forward<96, 128, 2, false>(a);
}
LS_KERNEL_EXPORT(attention_forward_96)

LS_KERNEL __launch_bounds__(128, 2) attention_forward_128(ls_attention_args a)
{
    forward<128, 128, 2, false>(a);
}
LS_KERNEL_EXPORT(attention_forward_128)

LS_KERNEL __launch_bounds__(128, 2) attention_forward_256(ls_attention_args a)
{
    forward<256, 64, 1, false>(a);
}
LS_KERNEL_EXPORT(attention_forward_256)
