// SPDX-License-Identifier: Apache-2.0
/*
 * Attention forward with the tensor cores of compute capability 9.0, after Shah et al.,
 * "FlashAttention-3", 2024.
 *
 * A block stays for many work items, tiles of 128 queries. One warp group copies with the engine;
 * two compute 64 queries each. Keys go from the diagonal down. In a warp group the product Q K^T of
 * the next tile of keys runs while the softmax of this one is computed, and the two groups take
 * turns, so that one computes exponentials while the other's products run:
 *
 *   group 0   Q K1  P0 V0 | softmax 1 .......... | Q K2  P1 V1 | softmax 2
 *   group 1   softmax 0 ..| Q K1  P0 V0          | softmax 1 ......
 */
#include "compute/cuda/device/attention_tile_sm90.h"

/* Shared memory: tiles, then barriers. */
template <int D> struct forward_layout {
    static constexpr int STAGES = D == 64 ? LS_SM90_FORWARD_STAGES_64 : LS_SM90_FORWARD_STAGES_128;
    static constexpr int QUERY_BYTES = QUERIES * D * 2, KEY_BYTES = KEYS * D * 2;
    static constexpr int K = QUERY_BYTES, V = K + STAGES * KEY_BYTES, BARRIERS = V + STAGES * KEY_BYTES;
};

enum { STAGES_MAX = LS_SM90_FORWARD_STAGES_64 };

struct forward_barriers {
    uint64_t q_full, q_empty;
    uint64_t k_full[STAGES_MAX], k_empty[STAGES_MAX], v_full[STAGES_MAX], v_empty[STAGES_MAX];
};

template <int D>
LS_DEVICE void forward_copy(const ls_sm90_forward &args, unsigned char *shared, forward_barriers *b)
{
    typedef forward_layout<D> layout;
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
        mbarrier_arrive_expect(&b->q_full, layout::QUERY_BYTES);
        load_tile<D>(shared, &args.q, &b->q_full, QUERIES, item.query, item.head, item.sequence);
        q_phase ^= 1;
        for (int tile = item.last; tile >= item.first; tile--) {
            const int at = place.stage;
            mbarrier_wait(&b->k_empty[at], place.phase ^ 1);
            mbarrier_arrive_expect(&b->k_full[at], layout::KEY_BYTES);
            load_tile<D>(shared + layout::K + at * layout::KEY_BYTES, &args.k, &b->k_full[at], KEYS,
                         tile * KEYS, kv_head, item.sequence);
            mbarrier_wait(&b->v_empty[at], place.phase ^ 1);
            mbarrier_arrive_expect(&b->v_full[at], layout::KEY_BYTES);
            load_tile<D>(shared + layout::V + at * layout::KEY_BYTES, &args.v, &b->v_full[at], KEYS,
                         tile * KEYS, kv_head, item.sequence);
            ring_advance<layout::STAGES>(place);
        }
    }
}

/* ---- softmax of a tile: a thread has parts of two rows ---- */

struct row_state {
    /* The greatest score so far, and this thread's part of the sum of 2^(scale (score - top)). */
    float top[2], sum[2];
};

/* Scores become probabilities times 2^(scale top). factors: what earlier results are worth now. */
LS_DEVICE void softmax(float (&scores)[KEYS / 2], row_state &rows, float (&factors)[2], float scale_log2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = rows.top[half];
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            top = fmaxf(top, scores[i / 2 * 4 + half * 2 + i % 2]);
        }
        top = quad_max(top);
        const float base = top == MINUS_INFINITY ? 0.0f : top * scale_log2;
        factors[half] = exp2_approximate(rows.top[half] * scale_log2 - base);
        rows.top[half] = top;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &score = scores[i / 2 * 4 + half * 2 + i % 2];
            score = exp2_approximate(__fmaf_rn(score, scale_log2, -base));
            sum += score;
        }
        rows.sum[half] = rows.sum[half] * factors[half] + sum;
    }
}

template <int D> LS_DEVICE void rescale(float (&out)[D / 2], const float (&factors)[2])
{
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        out[i] *= factors[i / 2 % 2];
    }
}

template <int D>
LS_DEVICE void forward_store(const ls_sm90_forward &args, const query_item &item, int group,
                             const row_state &rows, const float (&out)[D / 2])
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int first = item.query + group * ROWS;
    const int64_t base = (int64_t)item.sequence * args.shape.length + first;
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = warp * 16 + lane / 4 + half * 8;
        const float sum = quad_sum(rows.sum[half]);
        factors[half] = 1.0f / sum;
        if (args.lse && lane % 4 == 0 && first + row < args.shape.length) {
            args.lse[(base + row) * args.lse_stride + item.head] =
                rows.top[half] * args.shape.scale + logf(sum);
        }
    }
    store_rows<D>(args.out + base * args.out_stride + item.head * D, args.out_stride,
                  args.shape.length - first, out, factors);
}

template <int D>
LS_DEVICE void forward_item_compute(const ls_sm90_forward &args, unsigned char *shared, forward_barriers *b,
                                    const query_item &item, int group, ring &place, uint32_t q_phase)
{
    typedef forward_layout<D> layout;
    const float scale_log2 = args.shape.scale * LOG2_E;
    const int query = item.query + group * ROWS;
    float scores[KEYS / 2], out[D / 2], factors[2];
    uint32_t weights[KEYS / 4];
    row_state rows = {{MINUS_INFINITY, MINUS_INFINITY}, {0.0f, 0.0f}};
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        out[i] = 0.0f;
    }

    mbarrier_wait(&b->q_full, q_phase);
    mbarrier_wait(&b->k_full[place.stage], place.phase);
    wgmma_fence();
    product_of_rows<D, KEYS>(scores, shared, QUERIES, group * ROWS,
                             shared + layout::K + place.stage * layout::KEY_BYTES);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(scores);
    release(&b->k_empty[place.stage]);
    mask(scores, query, item.last * KEYS, args.shape.window);
    softmax(scores, rows, factors, scale_log2);
    pack<KEYS>(weights, scores);

    ring next = place;
    ring_advance<layout::STAGES>(next);
    if (item.last > item.first) {
        mbarrier_wait(&b->k_full[next.stage], next.phase);
    }
    for (int tile = item.last - 1; tile >= item.first; tile--) {
        const ring before = place;
        place = next;
        ring_advance<layout::STAGES>(next);
        named_barrier_sync(1 + (uint32_t)group, GROUPS * 128);
        wgmma_hold(out);
        wgmma_fence();
        product_of_rows<D, KEYS>(scores, shared, QUERIES, group * ROWS,
                                 shared + layout::K + place.stage * layout::KEY_BYTES);
        wgmma_commit();
        mbarrier_wait(&b->v_full[before.stage], before.phase);
        product_of_registers<D, KEYS>(out, weights, shared + layout::V + before.stage * layout::KEY_BYTES, 1);
        wgmma_commit();
        named_barrier_arrive(1 + (uint32_t)(group ^ 1), GROUPS * 128);
        wgmma_wait<1>();
        wgmma_hold(scores);
        release(&b->k_empty[place.stage]);
        mask(scores, query, tile * KEYS, args.shape.window);
        softmax(scores, rows, factors, scale_log2);
        wgmma_hold(scores);
        /* Stands here because the compiler moves the wait for P V up over plain arithmetic, but not
         * over a loop: the softmax has to run while P V does. */
        if (tile > item.first) {
            mbarrier_wait(&b->k_full[next.stage], next.phase);
        }
        wgmma_wait<0>();
        wgmma_hold(out);
        release(&b->v_empty[before.stage]);
        rescale<D>(out, factors);
        pack<KEYS>(weights, scores);
    }

    release(&b->q_empty);
    mbarrier_wait(&b->v_full[place.stage], place.phase);
    wgmma_hold(out);
    wgmma_fence();
    product_of_registers<D, KEYS>(out, weights, shared + layout::V + place.stage * layout::KEY_BYTES, 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(out);
    release(&b->v_empty[place.stage]);
    ring_advance<layout::STAGES>(place);
    forward_store<D>(args, item, group, rows, out);
}

template <int D>
LS_DEVICE void forward_compute(const ls_sm90_forward &args, unsigned char *shared, forward_barriers *b)
{
    const int group = warp_uniform((int)threadIdx.x / 128 - 1);
    ring place = {0, 0};
    uint32_t q_phase = 0;
    if (group == 1) {
        named_barrier_arrive(1, GROUPS * 128); /* group 0 has the first turn */
    }
    for (int round = 0; round * (int)gridDim.x < args.shape.work; round++) {
        if (work_of(round) < args.shape.work) {
            const query_item item = query_item_of(args.shape, work_of(round));
            forward_item_compute<D>(args, shared, b, item, group, place, q_phase);
            q_phase ^= 1;
        }
    }
}

template <int D> LS_DEVICE void forward(const ls_sm90_forward &args, unsigned char *shared)
{
    forward_barriers *b = (forward_barriers *)(shared + forward_layout<D>::BARRIERS);
    if (threadIdx.x == 0) {
        const uint32_t warps = GROUPS * 4;
        mbarrier_init(&b->q_full, 1);
        mbarrier_init(&b->q_empty, warps);
        for (int i = 0; i < forward_layout<D>::STAGES; i++) {
            mbarrier_init(&b->k_full[i], 1);
            mbarrier_init(&b->v_full[i], 1);
            mbarrier_init(&b->k_empty[i], warps);
            mbarrier_init(&b->v_empty[i], warps);
        }
        mbarrier_init_fence();
        tma_prefetch(&args.q);
        tma_prefetch(&args.k);
        tma_prefetch(&args.v);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_shrink<24>();
        if (threadIdx.x == 0) {
            forward_copy<D>(args, shared, b);
        }
    } else {
        registers_grow<240>();
        forward_compute<D>(args, shared, b);
    }
}

LS_KERNEL __launch_bounds__(LS_SM90_THREADS, 1)
    attention_forward_sm90_64(const __grid_constant__ ls_sm90_forward args)
{
    LS_SHARED(unsigned char, shared);
    forward<64>(args, shared);
}
LS_KERNEL_EXPORT(attention_forward_sm90_64)

LS_KERNEL __launch_bounds__(LS_SM90_THREADS, 1)
    attention_forward_sm90_128(const __grid_constant__ ls_sm90_forward args)
{
    LS_SHARED(unsigned char, shared);
    forward<128>(args, shared);
}
LS_KERNEL_EXPORT(attention_forward_sm90_128)
