// SPDX-License-Identifier: Apache-2.0
/*
 * Attention backward with the tensor cores of compute capability 9.0: with S = scale Q K^T, P =
 * exp(S - lse), dP = dO V^T and dS = P (dP - delta),
 *
 *   dV = P^T dO        dK = scale dS^T Q        dQ = scale dS K.
 *
 * One kernel has a tile of keys per work item and goes over queries, for dK and dV; another has a
 * tile of queries and goes over keys, for dQ. Both compute S and dP, 7 products instead of 5. In
 * return no sum crosses blocks, so that the order of additions is fixed, and P and dS stay in
 * registers: the accumulators of one product are the operand of the next.
 */
#include "compute/cuda/device/attention_tile_sm90.h"

constexpr float INFINITE = __builtin_huge_valf();

/* ---- lse and delta of all rows ---- */

LS_DEVICE float dot_of_pair(uint32_t x, uint32_t y)
{
    return first_of(x) * first_of(y) + second_of(x) * second_of(y);
}

LS_KERNEL __launch_bounds__(LS_SM90_STATISTICS_THREADS) attention_statistics_sm90(ls_sm90_statistics args)
{
    const int lanes = args.head_dim / 8;
    const int64_t number = ((int64_t)blockIdx.x * LS_SM90_STATISTICS_THREADS + threadIdx.x) / lanes;
    const int column = (int)threadIdx.x % lanes * 8, head = (int)(number % args.heads);
    const int64_t row = number / args.heads % args.padded, sequence = number / args.heads / args.padded;
    float delta = 0.0f;
    const bool there = sequence < args.sequences && row < args.length;
    if (there) {
        const int64_t at = sequence * args.length + row, first = head * args.head_dim + column;
        const uint4 x = *(const uint4 *)(args.out + at * args.out_stride + first);
        const uint4 y = *(const uint4 *)(args.dout + at * args.dout_stride + first);
        delta =
            dot_of_pair(x.x, y.x) + dot_of_pair(x.y, y.y) + (dot_of_pair(x.z, y.z) + dot_of_pair(x.w, y.w));
    }
    for (int by = lanes / 2; by > 0; by /= 2) {
        delta += __shfl_xor_sync(~0u, delta, by);
    }
    if (column == 0 && sequence < args.sequences) {
        const int64_t to = (sequence * args.heads + head) * args.padded + row;
        const float *lse = args.lse + (sequence * args.length + row) * args.lse_stride + head;
        args.lse_log2[to] = there ? *lse * LOG2_E : INFINITE;
        args.delta[to] = delta;
    }
}
LS_KERNEL_EXPORT(attention_statistics_sm90)

/* ---- dK and dV: a tile of keys per work item ---- */

enum { STEP = LS_SM90_STEP_QUERIES, STEP_STAGES = LS_SM90_STEP_STAGES };

/* Shared memory: the keys, then stages of queries, then barriers. */
template <int D> struct keys_layout {
    static constexpr int KEY_BYTES = KEYS * D * 2, STEP_BYTES = STEP * D * 2, ROW_BYTES = STEP * 4;
    static constexpr int V = KEY_BYTES, Q = V + KEY_BYTES, DOUT = Q + STEP_STAGES * STEP_BYTES;
    static constexpr int LSE = DOUT + STEP_STAGES * STEP_BYTES, DELTA = LSE + STEP_STAGES * ROW_BYTES;
    static constexpr int BARRIERS = DELTA + STEP_STAGES * ROW_BYTES;
};

struct keys_barriers {
    uint64_t kv_full, kv_empty, full[STEP_STAGES], empty[STEP_STAGES];
};

/* A tile of keys of a key head, and the tiles of queries that see it. */
struct key_item {
    int sequence, kv_head, key;
    int first, last;
};

LS_DEVICE key_item key_item_of(const ls_sm90_shape &s, int work)
{
    const head_and_tile at = head_and_tile_of(s, s.kv_heads * s.sequences, work);
    key_item item;
    item.sequence = at.number / s.kv_heads;
    item.kv_head = at.number % s.kv_heads;
    item.key = at.tile * KEYS;
    item.first = item.key / STEP;
    const int end = s.window > 0 ? min(s.length, item.key + KEYS - 1 + s.window) : s.length;
    item.last = (end - 1) / STEP;
    return item;
}

template <int D>
LS_DEVICE void keys_copy(const ls_sm90_backward &args, unsigned char *shared, keys_barriers *b)
{
    typedef keys_layout<D> layout;
    const ls_sm90_shape &s = args.shape;
    const int group = s.heads / s.kv_heads;
    ring place = {0, 0};
    uint32_t kv_phase = 0;
    for (int round = 0; round * (int)gridDim.x < s.work; round++) {
        if (work_of(round) >= s.work) {
            continue;
        }
        const key_item item = key_item_of(s, work_of(round));
        mbarrier_wait(&b->kv_empty, kv_phase ^ 1);
        mbarrier_arrive_expect(&b->kv_full, 2 * layout::KEY_BYTES);
        load_tile<D>(shared, &args.k, &b->kv_full, KEYS, item.key, item.kv_head, item.sequence);
        load_tile<D>(shared + layout::V, &args.v, &b->kv_full, KEYS, item.key, item.kv_head, item.sequence);
        kv_phase ^= 1;
        for (int head = item.kv_head * group; head < (item.kv_head + 1) * group; head++) {
            const int64_t rows = (int64_t)(item.sequence * s.heads + head) * args.padded;
            for (int tile = item.first; tile <= item.last; tile++) {
                const int at = place.stage;
                mbarrier_wait(&b->empty[at], place.phase ^ 1);
                mbarrier_arrive_expect(&b->full[at], 2 * (layout::STEP_BYTES + layout::ROW_BYTES));
                load_tile<D>(shared + layout::Q + at * layout::STEP_BYTES, &args.q, &b->full[at], STEP,
                             tile * STEP, head, item.sequence);
                load_tile<D>(shared + layout::DOUT + at * layout::STEP_BYTES, &args.dout, &b->full[at], STEP,
                             tile * STEP, head, item.sequence);
                bulk_load(shared + layout::LSE + at * layout::ROW_BYTES, args.lse_log2 + rows + tile * STEP,
                          layout::ROW_BYTES, &b->full[at]);
                bulk_load(shared + layout::DELTA + at * layout::ROW_BYTES, args.delta + rows + tile * STEP,
                          layout::ROW_BYTES, &b->full[at]);
                ring_advance<STEP_STAGES>(place);
            }
        }
    }
}

/* Scores (keys, queries) of which the query does not see the key become minus infinity. */
LS_DEVICE void mask_keys(float (&scores)[STEP / 2], int key, int query, int window)
{
    if (key + ROWS - 1 <= query && (window == 0 || key > query + STEP - 1 - window)) {
        return;
    }
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int row = key + warp * 16 + lane / 4 - query - lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int first = row + half * 8, end = window > 0 ? first + window : STEP + KEYS;
#pragma unroll
        for (int i = 0; i < STEP / 4; i++) {
            const int column = i / 2 * 8 + i % 2;
            float &score = scores[i / 2 * 4 + half * 2 + i % 2];
            score = column >= first && column < end ? score : MINUS_INFINITY;
        }
    }
}

/* P^T from scores. lse_log2: of the tile's queries, in shared memory. */
LS_DEVICE void keys_weights(float (&scores)[STEP / 2], const float *lse_log2, float scale_log2)
{
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        const float2 lse = *(const float2 *)(lse_log2 + j * 8 + threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            scores[j * 4 + i] =
                exp2_approximate(__fmaf_rn(scores[j * 4 + i], scale_log2, i % 2 ? -lse.y : -lse.x));
        }
    }
}

/* dS^T from P^T and dP^T. */
LS_DEVICE void keys_slopes(float (&slopes)[STEP / 2], const float (&weights)[STEP / 2], const float *delta)
{
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        const float2 two = *(const float2 *)(delta + j * 8 + threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            slopes[j * 4 + i] = weights[j * 4 + i] * (slopes[j * 4 + i] - (i % 2 ? two.y : two.x));
        }
    }
}

template <int D> struct keys_sums {
    float dk[D / 2], dv[D / 2];
};

/* Adds one tile of queries. The product of dK is still under way when this returns. before: the
 * stage of the product under way, or -1. */
template <int D>
LS_DEVICE void keys_step(keys_sums<D> &sums, unsigned char *shared, keys_barriers *b, int group, int stage,
                         int before, int key, int query, const ls_sm90_shape &shape)
{
    typedef keys_layout<D> layout;
    const unsigned char *q = shared + layout::Q + stage * layout::STEP_BYTES;
    const unsigned char *dout = shared + layout::DOUT + stage * layout::STEP_BYTES;
    float scores[STEP / 2], slopes[STEP / 2];
    uint32_t weights[STEP / 4], slope_words[STEP / 4];
    wgmma_fence();
    product_of_rows<D, STEP>(scores, shared, KEYS, group * ROWS, q);
    wgmma_commit();
    product_of_rows<D, STEP>(slopes, shared + layout::V, KEYS, group * ROWS, dout);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(scores);
    if (before >= 0) {
        release(&b->empty[before]);
    }
    mask_keys(scores, key, query, shape.window);
    keys_weights(scores, (const float *)(shared + layout::LSE + stage * layout::ROW_BYTES),
                 shape.scale * LOG2_E);
    pack<STEP>(weights, scores);
    wgmma_hold(sums.dv);
    wgmma_fence();
    product_of_registers<D, STEP>(sums.dv, weights, dout, 1);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(slopes);
    keys_slopes(slopes, scores, (const float *)(shared + layout::DELTA + stage * layout::ROW_BYTES));
    pack<STEP>(slope_words, slopes);
    wgmma_hold(sums.dk);
    wgmma_fence();
    product_of_registers<D, STEP>(sums.dk, slope_words, q, 1);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(sums.dv);
}

template <int D>
LS_DEVICE void keys_item_compute(const ls_sm90_backward &args, unsigned char *shared, keys_barriers *b,
                                 const key_item &item, int group, ring &place)
{
    const ls_sm90_shape &s = args.shape;
    const int heads = s.heads / s.kv_heads, key = item.key + group * ROWS;
    keys_sums<D> sums;
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        sums.dk[i] = sums.dv[i] = 0.0f;
    }
    int before = -1;
    for (int head = 0; head < heads; head++) {
        for (int tile = item.first; tile <= item.last; tile++) {
            mbarrier_wait(&b->full[place.stage], place.phase);
            if (tile * STEP + STEP - 1 < key) {
                release(&b->empty[place.stage]); /* no query of the tile sees these keys */
            } else {
                keys_step<D>(sums, shared, b, group, place.stage, before, key, tile * STEP, s);
                before = place.stage;
            }
            ring_advance<STEP_STAGES>(place);
        }
    }
    wgmma_wait<0>();
    wgmma_hold(sums.dk);
    wgmma_hold(sums.dv);
    if (before >= 0) {
        release(&b->empty[before]);
    }
    release(&b->kv_empty);
    const int64_t row = (int64_t)item.sequence * s.length + key;
    const float ones[2] = {1.0f, 1.0f}, scales[2] = {s.scale, s.scale};
    store_rows<D>(args.dk + row * args.dk_stride + item.kv_head * D, args.dk_stride, s.length - key, sums.dk,
                  scales);
    store_rows<D>(args.dv + row * args.dv_stride + item.kv_head * D, args.dv_stride, s.length - key, sums.dv,
                  ones);
}

template <int D>
LS_DEVICE void keys_compute(const ls_sm90_backward &args, unsigned char *shared, keys_barriers *b)
{
    ring place = {0, 0};
    uint32_t kv_phase = 0;
    for (int round = 0; round * (int)gridDim.x < args.shape.work; round++) {
        if (work_of(round) < args.shape.work) {
            const key_item item = key_item_of(args.shape, work_of(round));
            mbarrier_wait(&b->kv_full, kv_phase);
            keys_item_compute<D>(args, shared, b, item, warp_uniform((int)threadIdx.x / 128 - 1), place);
            kv_phase ^= 1;
        }
    }
}

template <int D> LS_DEVICE void backward_keys(const ls_sm90_backward &args, unsigned char *shared)
{
    keys_barriers *b = (keys_barriers *)(shared + keys_layout<D>::BARRIERS);
    if (threadIdx.x == 0) {
        mbarrier_init(&b->kv_full, 1);
        mbarrier_init(&b->kv_empty, GROUPS * 4);
        for (int i = 0; i < STEP_STAGES; i++) {
            mbarrier_init(&b->full[i], 1);
            mbarrier_init(&b->empty[i], GROUPS * 4);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_shrink<24>();
        if (threadIdx.x == 0) {
            keys_copy<D>(args, shared, b);
        }
    } else {
        registers_grow<240>();
        keys_compute<D>(args, shared, b);
    }
}

LS_KERNEL __launch_bounds__(LS_SM90_THREADS, 1)
    attention_backward_keys_sm90_64(const __grid_constant__ ls_sm90_backward args)
{
    LS_SHARED(unsigned char, shared);
    backward_keys<64>(args, shared);
}
LS_KERNEL_EXPORT(attention_backward_keys_sm90_64)

LS_KERNEL __launch_bounds__(LS_SM90_THREADS, 1)
    attention_backward_keys_sm90_128(const __grid_constant__ ls_sm90_backward args)
{
    LS_SHARED(unsigned char, shared);
    backward_keys<128>(args, shared);
}
LS_KERNEL_EXPORT(attention_backward_keys_sm90_128)

/* ---- dQ: a tile of queries per work item ---- */

enum { KEY_STAGES = LS_SM90_KEY_STAGES };

/* Shared memory: the queries, then stages of keys, then barriers. */
template <int D> struct queries_layout {
    static constexpr int TILE_BYTES = QUERIES * D * 2;
    static constexpr int DOUT = TILE_BYTES, K = 2 * TILE_BYTES, V = K + KEY_STAGES * TILE_BYTES;
    static constexpr int BARRIERS = V + KEY_STAGES * TILE_BYTES;
};

struct queries_barriers {
    uint64_t q_full, q_empty, full[KEY_STAGES], empty[KEY_STAGES];
};

template <int D>
LS_DEVICE void queries_copy(const ls_sm90_backward &args, unsigned char *shared, queries_barriers *b)
{
    typedef queries_layout<D> layout;
    const ls_sm90_shape &s = args.shape;
    ring place = {0, 0};
    uint32_t q_phase = 0;
    for (int round = 0; round * (int)gridDim.x < s.work; round++) {
        if (work_of(round) >= s.work) {
            continue;
        }
        const query_item item = query_item_of(s, work_of(round));
        const int kv_head = item.head / (s.heads / s.kv_heads);
        mbarrier_wait(&b->q_empty, q_phase ^ 1);
        mbarrier_arrive_expect(&b->q_full, 2 * layout::TILE_BYTES);
        load_tile<D>(shared, &args.q, &b->q_full, QUERIES, item.query, item.head, item.sequence);
        load_tile<D>(shared + layout::DOUT, &args.dout, &b->q_full, QUERIES, item.query, item.head,
                     item.sequence);
        q_phase ^= 1;
        for (int tile = item.last; tile >= item.first; tile--) {
            const int at = place.stage;
            mbarrier_wait(&b->empty[at], place.phase ^ 1);
            mbarrier_arrive_expect(&b->full[at], 2 * layout::TILE_BYTES);
            load_tile<D>(shared + layout::K + at * layout::TILE_BYTES, &args.k, &b->full[at], KEYS,
                         tile * KEYS, kv_head, item.sequence);
            load_tile<D>(shared + layout::V + at * layout::TILE_BYTES, &args.v, &b->full[at], KEYS,
                         tile * KEYS, kv_head, item.sequence);
            ring_advance<KEY_STAGES>(place);
        }
    }
}

/* Of the two rows of this thread. */
struct query_rows {
    float lse_log2[2], delta[2];
};

/* P from scores. */
LS_DEVICE void queries_weights(float (&scores)[KEYS / 2], const query_rows &rows, float scale_log2)
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        scores[i] = exp2_approximate(__fmaf_rn(scores[i], scale_log2, -rows.lse_log2[i / 2 % 2]));
    }
}

/* Where a warp group is in an item. */
struct queries_place {
    ring now;
    /* The stage of the product under way, or -1. */
    int before;
    bool more;
};

/* Adds one tile of keys and waits for the next. The product of dQ may still be under way when this
 * returns. */
template <int D>
LS_DEVICE void queries_step(float (&dq)[D / 2], unsigned char *shared, queries_barriers *b,
                            queries_place &place, const query_rows &rows, int group, int query, int key,
                            const ls_sm90_shape &shape)
{
    typedef queries_layout<D> layout;
    const unsigned char *k = shared + layout::K + place.now.stage * layout::TILE_BYTES;
    const unsigned char *v = shared + layout::V + place.now.stage * layout::TILE_BYTES;
    float scores[KEYS / 2], slopes[KEYS / 2];
    uint32_t words[KEYS / 4];
    wgmma_fence();
    product_of_rows<D, KEYS>(scores, shared, QUERIES, group * ROWS, k);
    wgmma_commit();
    product_of_rows<D, KEYS>(slopes, shared + layout::DOUT, QUERIES, group * ROWS, v);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(scores);
    if (place.before >= 0) {
        release(&b->empty[place.before]);
    }
    mask(scores, query, key, shape.window);
    queries_weights(scores, rows, shape.scale * LOG2_E);
    wgmma_hold(scores);
    /* Stands here because the compiler moves the wait for dP up over plain arithmetic, but not over
     * a loop: the exponentials have to be computed while dP is. */
    place.before = place.now.stage;
    ring_advance<KEY_STAGES>(place.now);
    if (place.more) {
        mbarrier_wait(&b->full[place.now.stage], place.now.phase);
    }
    wgmma_wait<0>();
    wgmma_hold(slopes);
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        scores[i] *= slopes[i] - rows.delta[i / 2 % 2];
    }
    pack<KEYS>(words, scores);
    wgmma_hold(dq);
    wgmma_fence();
    product_of_registers<D, KEYS>(dq, words, k, 1);
    wgmma_commit();
    if (D == 128) { /* there are no registers to let it run into the next tile */
        wgmma_wait<0>();
        wgmma_hold(dq);
    }
}

template <int D>
LS_DEVICE void queries_item_compute(const ls_sm90_backward &args, unsigned char *shared, queries_barriers *b,
                                    const query_item &item, int group, ring &now)
{
    const ls_sm90_shape &s = args.shape;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4,
              query = item.query + group * ROWS;
    const int64_t first =
        (int64_t)(item.sequence * s.heads + item.head) * args.padded + query + warp * 16 + lane / 4;
    const query_rows rows = {{args.lse_log2[first], args.lse_log2[first + 8]},
                             {args.delta[first], args.delta[first + 8]}};
    float dq[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        dq[i] = 0.0f;
    }
    queries_place place = {now, -1, true};
    mbarrier_wait(&b->full[now.stage], now.phase);
    for (int tile = item.last; tile >= item.first; tile--) {
        place.more = tile > item.first;
        queries_step<D>(dq, shared, b, place, rows, group, query, tile * KEYS, s);
    }
    now = place.now;
    wgmma_wait<0>();
    wgmma_hold(dq);
    release(&b->empty[place.before]);
    release(&b->q_empty);
    const int64_t row = (int64_t)item.sequence * s.length + query;
    const float scales[2] = {s.scale, s.scale};
    store_rows<D>(args.dq + row * args.dq_stride + item.head * D, args.dq_stride, s.length - query, dq,
                  scales);
}

template <int D>
LS_DEVICE void queries_compute(const ls_sm90_backward &args, unsigned char *shared, queries_barriers *b)
{
    ring place = {0, 0};
    uint32_t q_phase = 0;
    for (int round = 0; round * (int)gridDim.x < args.shape.work; round++) {
        if (work_of(round) < args.shape.work) {
            const query_item item = query_item_of(args.shape, work_of(round));
            mbarrier_wait(&b->q_full, q_phase);
            queries_item_compute<D>(args, shared, b, item, warp_uniform((int)threadIdx.x / 128 - 1), place);
            q_phase ^= 1;
        }
    }
}

template <int D> LS_DEVICE void backward_queries(const ls_sm90_backward &args, unsigned char *shared)
{
    queries_barriers *b = (queries_barriers *)(shared + queries_layout<D>::BARRIERS);
    if (threadIdx.x == 0) {
        mbarrier_init(&b->q_full, 1);
        mbarrier_init(&b->q_empty, GROUPS * 4);
        for (int i = 0; i < KEY_STAGES; i++) {
            mbarrier_init(&b->full[i], 1);
            mbarrier_init(&b->empty[i], GROUPS * 4);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_shrink<24>();
        if (threadIdx.x == 0) {
            queries_copy<D>(args, shared, b);
        }
    } else {
        registers_grow<240>();
        queries_compute<D>(args, shared, b);
    }
}

LS_KERNEL __launch_bounds__(LS_SM90_THREADS, 1)
    attention_backward_queries_sm90_64(const __grid_constant__ ls_sm90_backward args)
{
    LS_SHARED(unsigned char, shared);
    backward_queries<64>(args, shared);
}
LS_KERNEL_EXPORT(attention_backward_queries_sm90_64)

LS_KERNEL __launch_bounds__(LS_SM90_THREADS, 1)
    attention_backward_queries_sm90_128(const __grid_constant__ ls_sm90_backward args)
{
    LS_SHARED(unsigned char, shared);
    backward_queries<128>(args, shared);
}
LS_KERNEL_EXPORT(attention_backward_queries_sm90_128)
