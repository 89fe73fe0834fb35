// SPDX-License-Identifier: Apache-2.0
/*
 * Attention backward in bfloat16 on tensor cores, without atomics. With p = exp(scale q.k - lse),
 *
 *   dv = p^T dout     dp = dout v^T     ds = p (dp - dout.out)     dk = scale ds^T q     dq = scale ds k
 *
 * Two kernels compute p and ds, each where its sums stay in registers: attention_keys goes through
 * the queries of each tile of keys, of every head that shares them, and computes the scores
 * transposed; attention_queries goes through the keys of each tile of queries. That is 7 products
 * where 5 would do, but no block waits for or adds to another, so the order of every sum is fixed.
 */
#include "compute/cuda/device/attention_records.h"
#include "compute/cuda/device/attention_tile.h"

/* Queries, or keys, that arrive in shared memory at a time. */
template <int D> __host__ __device__ constexpr int stage_rows()
{
    return D <= 64 ? 64 : 32;
}

/* Of those, so many are computed at once: as registers allow. */
enum { STEP = 32 };

/* What a block of attention_keys works on. */
struct key_block {
    int sequence, kv_head, part;
    /* The first of its keys, and the queries that see any of them: [begin, end). */
    int first, begin, end;
};

template <int KEYS, int PARTS, int STAGE> LS_DEVICE key_block key_block_of(const ls_attention_args &a)
{
    /* Tiles of one head follow each other, since they read the same queries; the first are seen by
     * most queries. */
    key_block block;
    block.first = (int)blockIdx.x * KEYS;
    block.part = blockIdx.y % PARTS;
    block.kv_head = blockIdx.y / PARTS;
    block.sequence = blockIdx.z;
    block.begin = block.first / STAGE * STAGE;
    block.end = min(a.length, block.first + KEYS - 1 + a.reach);
    block.end = min(block.end, record_end(a, block.sequence, block.first + KEYS - 1));
    return block;
}

/* Begins to copy the rows of q and dout, lse2 and dots of STAGE queries. */
template <int D, int STAGE, int THREADS>
LS_DEVICE void queries_load(const ls_attention_gradient_args &g, const key_block &block, int head, int query,
                            bf16 *stage, float *numbers)
{
    const ls_attention_args &a = g.forward;
    const int64_t row = (int64_t)block.sequence * a.length + query;
    tile_load<D, STAGE, THREADS>(stage, (const bf16 *)a.q + row * a.q_stride + head * D, a.q_stride,
                                 a.length - query);
    tile_load<D, STAGE, THREADS>(stage + STAGE * row_stride<D>(),
                                 (const bf16 *)g.dout + row * g.dout_stride + head * D, g.dout_stride,
                                 a.length - query);
    if (threadIdx.x < STAGE / 2) {
        const int col = (int)threadIdx.x * 4 % STAGE;
        const float *from = threadIdx.x < STAGE / 4 ? g.lse2 : g.dots;
        from += ((int64_t)block.sequence * a.heads + head) * g.padded + query + col;
        cp_async_16(numbers + threadIdx.x * 4, from, true);
    }
}

/* Scores of pairs that do not attend become -infinity. KEY_ROWS: the rows are keys and the columns
 * queries, or else the other way round. distance: this lane's first query minus its first key. */
template <bool KEY_ROWS, int M> LS_DEVICE void mask(float (&s)[M][STEP / 8][4], int distance, int reach)
{
#pragma unroll
    for (int i = 0; i < M * (STEP / 8) * 4; i++) {
        const int m = i / (STEP / 2), j = i / 4 % (STEP / 8), e = i % 4;
        const int row = m * 16 + e / 2 * 8, col = j * 8 + e % 2;
        const int far = distance + (KEY_ROWS ? col - row : row - col);
        if (far < 0 || far >= reach) {
            s[m][j][e] = -INFINITY;
        }
    }
}

/* The same for keys before a query's record. key, query: this lane's first. */
template <bool KEY_ROWS, int M>
LS_DEVICE void mask_records(float (&s)[M][STEP / 8][4], const ls_attention_args &a, int sequence, int key,
                            int query)
{
#pragma unroll
    for (int i = 0; i < (KEY_ROWS ? STEP / 4 : 2 * M); i++) {
        const int begin = record_begin(a, sequence, query + (KEY_ROWS ? i / 2 * 8 + i % 2 : i * 8)) - key;
#pragma unroll
        for (int k = 0; k < (KEY_ROWS ? 2 * M : STEP / 4); k++) {
            const int m = (KEY_ROWS ? k : i) / 2, j = (KEY_ROWS ? i : k) / 2;
            const int e = KEY_ROWS ? k % 2 * 2 + i % 2 : i % 2 * 2 + k % 2;
            if ((KEY_ROWS ? k * 8 : j * 8 + k % 2) < begin) {
                s[m][j][e] = -INFINITY;
            }
        }
    }
}

/* Scores, transposed, become probabilities. lse2: of this lane's first query. */
template <int M>
LS_DEVICE void probabilities_of_keys(float (&s)[M][STEP / 8][4], const float *lse2, float factor)
{
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        const float2 lse = *(const float2 *)(lse2 + j * 8);
#pragma unroll
        for (int i = 0; i < 4 * M; i++) {
            float &score = s[i / 4][j][i % 4];
            score = exp2_fast(score * factor - (i % 2 ? lse.y : lse.x));
        }
    }
}

/* ds = p (dp - dots), transposed, in place of dp. */
template <int M>
LS_DEVICE void score_gradients_of_keys(float (&dp)[M][STEP / 8][4], const float (&p)[M][STEP / 8][4],
                                       const float *dots)
{
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        const float2 dot = *(const float2 *)(dots + j * 8);
#pragma unroll
        for (int i = 0; i < 4 * M; i++) {
            const int m = i / 4, e = i % 4;
            dp[m][j][e] = p[m][j][e] * (dp[m][j][e] - (e % 2 ? dot.y : dot.x));
        }
    }
}

/* A block computes the gradients of KEYS keys, COLS of their D columns. A warp holds 16 M keys. */
template <int D, int KEYS, int M, int COLS> LS_DEVICE void keys_backward(const ls_attention_gradient_args &g)
{
    constexpr int THREADS = KEYS / M * 2, STRIDE = row_stride<D>(), STAGE = stage_rows<D>();
    const ls_attention_args &a = g.forward;
    LS_SHARED(bf16, k_tile);
    bf16 *v_tile = k_tile + KEYS * STRIDE, *stages = v_tile + KEYS * STRIDE;
    float *numbers = (float *)(stages + 4 * STAGE * STRIDE);

    const key_block block = key_block_of<KEYS, D / COLS, STAGE>(a);
    const int64_t row = (int64_t)block.sequence * a.length + block.first;
    const int group = a.heads / a.kv_heads, rows = a.length - block.first;
    tile_load<D, KEYS, THREADS>(k_tile, (const bf16 *)a.k + row * a.k_stride + block.kv_head * D, a.k_stride,
                                rows);
    tile_load<D, KEYS, THREADS>(v_tile, (const bf16 *)a.v + row * a.v_stride + block.kv_head * D, a.v_stride,
                                rows);
    queries_load<D, STAGE, THREADS>(g, block, block.kv_head * group, block.begin, stages, numbers);
    cp_async_commit();

    const int strip = (int)threadIdx.x / 32 * 16 * M, lane = threadIdx.x % 32;
    const int low = block.first + strip, high = low + 16 * M - 1;
    left_rows<D, M, false> keys, values;
    keys.load(k_tile + strip * STRIDE);
    values.load(v_tile + strip * STRIDE);

    float dk[M][COLS / 8][4], dv[M][COLS / 8][4], p[M][STEP / 8][4], ds[M][STEP / 8][4];
    strip_clear(dk);
    strip_clear(dv);
    int head = block.kv_head * group, query = block.begin;
    const int head_end = head + group;
#pragma unroll 1
    for (int odd = 0; head < head_end; odd ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        const int this_query = query;
        query += STAGE;
        if (query >= block.end) {
            query = block.begin;
            head++;
        }
        if (head < head_end) {
            queries_load<D, STAGE, THREADS>(g, block, head, query, stages + (odd ^ 1) * 2 * STAGE * STRIDE,
                                            numbers + (odd ^ 1) * 2 * STAGE);
        }
        cp_async_commit();
#pragma unroll 1
        for (int step = 0; step < STAGE; step += STEP) {
            const int from = this_query + step, to = from + STEP - 1;
            if (to < low || from - high >= a.reach || from >= a.length ||
                record_begin(a, block.sequence, from) > high) {
                continue;
            }
            const bf16 *q_tile = stages + (odd * 2 * STAGE + step) * STRIDE,
                       *dout_tile = q_tile + STAGE * STRIDE;
            const float *lse2 = numbers + odd * 2 * STAGE + step + lane % 4 * 2;
            product_of_rows<D, M, STEP, false>(p, keys, lane_of_right<D>(q_tile));
            if (from < high || to - low >= a.reach) {
                mask<true, M>(p, from + lane % 4 * 2 - low - lane / 4, a.reach);
            }
            if (record_begin(a, block.sequence, to) > low) {
                mask_records<true, M>(p, a, block.sequence, low + lane / 4, from + lane % 4 * 2);
            }
            probabilities_of_keys<M>(p, lse2, a.scale * LOG2_E);
            product_of_strip<D, COLS, M, STEP>(dv, p, lane_of_left<D>(dout_tile) + block.part * COLS);
            product_of_rows<D, M, STEP, false>(ds, values, lane_of_right<D>(dout_tile));
            score_gradients_of_keys<M>(ds, p, lse2 + STAGE);
            product_of_strip<D, COLS, M, STEP>(dk, ds, lane_of_left<D>(q_tile) + block.part * COLS);
        }
    }
    const int64_t col = block.kv_head * D + block.part * COLS;
    float one[M][2], scale[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        one[i / 2][i % 2] = 1.0f;
        scale[i / 2][i % 2] = a.scale;
    }
    strip_store<D, COLS, M>((bf16 *)g.dk + (row + strip) * g.dk_stride + col, g.dk_stride, rows - strip, dk,
                            scale, k_tile + strip * STRIDE);
    strip_store<D, COLS, M>((bf16 *)g.dv + (row + strip) * g.dv_stride + col, g.dv_stride, rows - strip, dv,
                            one, v_tile + strip * STRIDE);
}

/* A block computes the gradients of QUERIES queries of a head. A warp holds 16 M queries. */
template <int D, int QUERIES, int M, bool HELD>
LS_DEVICE void queries_backward(const ls_attention_gradient_args &g)
{
    constexpr int THREADS = QUERIES / M * 2, STRIDE = row_stride<D>(), STAGE = stage_rows<D>();
    const ls_attention_args &a = g.forward;
    LS_SHARED(bf16, q_tile);
    bf16 *dout_tile = q_tile + QUERIES * STRIDE, *stages = dout_tile + QUERIES * STRIDE;

    const int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y, sequence = blockIdx.z;
    const int kv_head = head / (a.heads / a.kv_heads);
    const int64_t row = (int64_t)sequence * a.length + first;
    const bf16 *k = (const bf16 *)a.k + (int64_t)sequence * a.length * a.k_stride + kv_head * D;
    const bf16 *v = (const bf16 *)a.v + (int64_t)sequence * a.length * a.v_stride + kv_head * D;
    const int rows = a.length - first, last = min(first + QUERIES, a.length) - 1;
    int key = max(record_begin(a, sequence, first), first - a.reach + 1) / STAGE * STAGE;
    tile_load<D, QUERIES, THREADS>(q_tile, (const bf16 *)a.q + row * a.q_stride + head * D, a.q_stride, rows);
    tile_load<D, QUERIES, THREADS>(dout_tile, (const bf16 *)g.dout + row * g.dout_stride + head * D,
                                   g.dout_stride, rows);
    tile_load<D, STAGE, THREADS>(stages, k + key * a.k_stride, a.k_stride, a.length - key);
    tile_load<D, STAGE, THREADS>(stages + STAGE * STRIDE, v + key * a.v_stride, a.v_stride, a.length - key);
    cp_async_commit();

    const int strip = (int)threadIdx.x / 32 * 16 * M, lane = threadIdx.x % 32;
    const int low = first + strip, high = low + 16 * M - 1;
    const int begin_low = record_begin(a, sequence, low), begin_high = record_begin(a, sequence, high);
    float lse2[M][2], dots[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        const int64_t at = ((int64_t)sequence * a.heads + head) * g.padded + low + i * 8 + lane / 4;
        lse2[i / 2][i % 2] = g.lse2[at];
        dots[i / 2][i % 2] = g.dots[at];
    }
    cp_async_wait<0>();
    __syncthreads();
    left_rows<D, M, HELD> queries, douts;
    queries.load(q_tile + strip * STRIDE);
    douts.load(dout_tile + strip * STRIDE);

    float dq[M][D / 8][4], p[M][STEP / 8][4], ds[M][STEP / 8][4];
    strip_clear(dq);
#pragma unroll 1
    for (int odd = 0; key <= last; key += STAGE, odd ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        const int next = key + STAGE;
        if (next <= last) {
            bf16 *stage = stages + (odd ^ 1) * 2 * STAGE * STRIDE;
            tile_load<D, STAGE, THREADS>(stage, k + next * a.k_stride, a.k_stride, a.length - next);
            tile_load<D, STAGE, THREADS>(stage + STAGE * STRIDE, v + next * a.v_stride, a.v_stride,
                                         a.length - next);
        }
        cp_async_commit();
#pragma unroll 1
        for (int step = 0; step < STAGE; step += STEP) {
            const int from = key + step, to = from + STEP - 1;
            if (from > high || low - to >= a.reach || to < begin_low) {
                continue;
            }
            const bf16 *k_tile = stages + (odd * 2 * STAGE + step) * STRIDE,
                       *v_tile = k_tile + STAGE * STRIDE;
            product_of_rows<D, M, STEP, HELD>(p, queries, lane_of_right<D>(k_tile));
            if (to > low || high - from >= a.reach) {
                mask<false, M>(p, low + lane / 4 - from - lane % 4 * 2, a.reach);
            }
            if (from < begin_high) {
                mask_records<false, M>(p, a, sequence, from + lane % 4 * 2, low + lane / 4);
            }
            product_of_rows<D, M, STEP, HELD>(ds, douts, lane_of_right<D>(v_tile));
#pragma unroll
            for (int i = 0; i < M * (STEP / 8) * 4; i++) {
                const int m = i / (STEP / 2), j = i / 4 % (STEP / 8), e = i % 4;
                const float probability = exp2_fast(p[m][j][e] * (a.scale * LOG2_E) - lse2[m][e / 2]);
                ds[m][j][e] = probability * (ds[m][j][e] - dots[m][e / 2]);
            }
            product_of_strip<D, D, M, STEP>(dq, ds, lane_of_left<D>(k_tile));
        }
    }
    float scale[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        scale[i / 2][i % 2] = a.scale;
    }
    strip_store<D, D, M>((bf16 *)g.dq + (row + strip) * g.dq_stride + head * D, g.dq_stride, rows - strip, dq,
                         scale, q_tile + strip * STRIDE);
}

LS_KERNEL __launch_bounds__(128, 2) attention_keys_64(ls_attention_gradient_args g)
{
    keys_backward<64, 128, 2, 64>(g);
}
LS_KERNEL_EXPORT(attention_keys_64)

LS_KERNEL __launch_bounds__(128, 2) attention_keys_96(ls_attention_gradient_args g)
{
    keys_backward<96, 64, 1, 96>(g);
}
LS_KERNEL_EXPORT(attention_keys_96)

LS_KERNEL __launch_bounds__(128, 2) attention_keys_128(ls_attention_gradient_args g)
{
    keys_backward<128, 64, 1, 128>(g);
}
LS_KERNEL_EXPORT(attention_keys_128)

LS_KERNEL __launch_bounds__(128, 1) attention_keys_256(ls_attention_gradient_args g)
{
    keys_backward<256, 64, 1, 128>(g);
}
LS_KERNEL_EXPORT(attention_keys_256)

LS_KERNEL __launch_bounds__(128, 2) attention_queries_64(ls_attention_gradient_args g)
{
    queries_backward<64, 128, 2, true>(g);
}
LS_KERNEL_EXPORT(attention_queries_64)

LS_KERNEL __launch_bounds__(128, 2) attention_queries_96(ls_attention_gradient_args g)
{
    queries_backward<96, 64, 1, true>(g);
}
LS_KERNEL_EXPORT(attention_queries_96)

LS_KERNEL __launch_bounds__(128, 2) attention_queries_128(ls_attention_gradient_args g)
{
    queries_backward<128, 64, 1, true>(g);
}
LS_KERNEL_EXPORT(attention_queries_128)

LS_KERNEL __launch_bounds__(128, 1) attention_queries_256(ls_attention_gradient_args g)
{
    queries_backward<256, 64, 1, false>(g);
}
LS_KERNEL_EXPORT(attention_queries_256)
