// SPDX-License-Identifier: Apache-2.0
/*
 * What the attention kernels for compute capability 9.0 share: which work a block does, products of
 * tiles, and how accumulators become operands and rows of memory.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ATTENTION_TILE_SM90_H
#define LS_COMPUTE_CUDA_DEVICE_ATTENTION_TILE_SM90_H

#include "compute/cuda/device/attention_sm90.h"
#include "compute/cuda/device/hopper.h"

constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float MINUS_INFINITY = -__builtin_huge_valf();

enum { GROUPS = 2, ROWS = 64, QUERIES = LS_SM90_QUERIES, KEYS = LS_SM90_KEYS };
static_assert(QUERIES == GROUPS * ROWS && KEYS == GROUPS * ROWS, "a warp group has 64 rows of a tile");

/* ---- which work a block does ---- */

/*
 * The work item of round `round`: blocks take items in turn, in every other round from the last
 * block to the first. The items of a section are ordered by falling cost, so that the sums of
 * blocks come out alike. Which block does an item changes no result.
 */
LS_DEVICE int work_of(int round)
{
    const int block = (int)blockIdx.x, blocks = (int)gridDim.x;
    return round * blocks + (round % 2 ? blocks - 1 - block : block);
}

/* Which head of all sequences a work item is of, and its place among the tiles of a head, by
 * falling cost. */
struct head_and_tile {
    int number, tile;
};

LS_DEVICE head_and_tile head_and_tile_of(const ls_sm90_shape &s, int all_heads, int work)
{
    const int first = work / (s.section * s.tiles) * s.section, within = work - first * s.tiles;
    const int heads = min(s.section, all_heads - first);
    return {first + within % heads, within / heads};
}

/* A tile of queries of a head, and the tiles of keys that they see. */
struct query_item {
    int sequence, head, query;
    int first, last;
};

LS_DEVICE query_item query_item_of(const ls_sm90_shape &s, int work)
{
    const head_and_tile at = head_and_tile_of(s, s.heads * s.sequences, work);
    query_item item;
    item.sequence = at.number / s.heads;
    item.head = at.number % s.heads;
    item.query = (s.tiles - 1 - at.tile) * QUERIES;
    item.last = (min(item.query + QUERIES, s.length) - 1) / KEYS;
    item.first = s.window > 0 ? max(0, item.query - s.window + 1) / KEYS : 0;
    return item;
}

/* ---- a place in a ring of stages ---- */

struct ring {
    int stage;
    uint32_t phase;
};

template <int STAGES> LS_DEVICE void ring_advance(ring &r)
{
    if (++r.stage == STAGES) {
        r.stage = 0;
        r.phase ^= 1;
    }
}

/* ---- copies: one thread ---- */

/* The panels of a tile of `rows` rows from row `row` on. */
template <int D>
LS_DEVICE void load_tile(unsigned char *tile, const ls_tensor_map *map, uint64_t *barrier, int rows, int row,
                         int head, int sequence)
{
#pragma unroll
    for (int panel = 0; panel < D / PANEL_COLUMNS; panel++) {
        tma_load_4d(tile + panel * rows * PANEL_ROW_BYTES, map, barrier, panel * PANEL_COLUMNS, row, head,
                    sequence);
    }
}

/* One arrival per warp. */
LS_DEVICE void release(uint64_t *barrier)
{
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(barrier);
    }
}

/* ---- products: one warp group ---- */

/* D = A B^T over the D columns of two tiles: 64 rows of A's tile from a_row on, N rows of B's. */
template <int D, int N>
LS_DEVICE void product_of_rows(float (&d)[N / 2], const unsigned char *a, int a_rows, int a_row,
                               const unsigned char *b)
{
    const operand first_a = operand_rows(a + a_row * PANEL_ROW_BYTES), first_b = operand_rows(b);
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        const uint32_t within = (uint32_t)(step % 4 * 32), panel = (uint32_t)(step / 4 * PANEL_ROW_BYTES);
        wgmma<N, TILE_ROWS_ARE_N>(d, operand_advance(first_a, panel * (uint32_t)a_rows + within),
                                  operand_advance(first_b, panel * N + within), step > 0);
    }
}

/* D += A B with A (64, K) in registers and the D columns of a tile of K rows. */
template <int D, int K>
LS_DEVICE void product_of_registers(float (&d)[D / 2], const uint32_t (&a)[K / 4], const unsigned char *b,
                                    int accumulate)
{
    const operand first_b = operand_columns(b, K * PANEL_ROW_BYTES);
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        wgmma<D, TILE_ROWS_ARE_K>(d, a + step * 4,
                                  operand_advance(first_b, (uint32_t)(step * 16 * PANEL_ROW_BYTES)),
                                  step > 0 || accumulate);
    }
}

/* Accumulators as A. */
template <int N> LS_DEVICE void pack(uint32_t (&words)[N / 4], const float (&d)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        words[i] = to_bf16x2(d[2 * i], d[2 * i + 1]);
    }
}

/* ---- rows of accumulators: those of a quad of lanes ---- */

LS_DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

LS_DEVICE float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Sets scores of keys that a query does not see to minus infinity. query, key: those of the first
 * row of the warp group and of the first column. */
LS_DEVICE void mask(float (&scores)[KEYS / 2], int query, int key, int window)
{
    if (key + KEYS - 1 <= query && (window == 0 || key > query + ROWS - 1 - window)) {
        return;
    }
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int row = query + warp * 16 + lane / 4 - key - lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int last = row + half * 8, before = window > 0 ? last - window : -KEYS - ROWS;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            const int column = i / 2 * 8 + i % 2;
            float &score = scores[i / 2 * 4 + half * 2 + i % 2];
            score = column <= last && column > before ? score : MINUS_INFINITY;
        }
    }
}

/*
 * Lane i of a quad has word j of its own in w[j]; afterwards it has the words i of lanes 0 .. 3.
 * For four blocks of 8 columns that makes 8 neighbouring columns per lane.
 */
LS_DEVICE uint4 quad_transpose(const uint32_t (&w)[4], int lane_of_quad)
{
    const bool odd = lane_of_quad & 1, high = lane_of_quad & 2;
    uint32_t a[4], b[4];
    const uint32_t s0 = __shfl_xor_sync(~0u, odd ? w[0] : w[1], 1);
    const uint32_t s1 = __shfl_xor_sync(~0u, odd ? w[2] : w[3], 1);
    a[0] = odd ? s0 : w[0];
    a[1] = odd ? w[1] : s0;
    a[2] = odd ? s1 : w[2];
    a[3] = odd ? w[3] : s1;
    const uint32_t s2 = __shfl_xor_sync(~0u, high ? a[0] : a[2], 2);
    const uint32_t s3 = __shfl_xor_sync(~0u, high ? a[1] : a[3], 2);
    b[0] = high ? s2 : a[0];
    b[1] = high ? s3 : a[1];
    b[2] = high ? a[2] : s2;
    b[3] = high ? a[3] : s3;
    return make_uint4(b[0], b[1], b[2], b[3]);
}

/*
 * Writes the accumulators of 64 rows and D columns, times `factors` (of rows l / 4 and l / 4 + 8),
 * as bfloat16. to: row 0 of the warp group; rows from `rows` on are left out.
 */
template <int D>
LS_DEVICE void store_rows(uint16_t *to, int64_t stride, int rows, const float (&d)[D / 2],
                          const float (&factors)[2])
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = warp * 16 + lane / 4 + half * 8;
#pragma unroll
        for (int block = 0; block < D / 32; block++) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = (block * 4 + i) * 4 + half * 2;
                words[i] = to_bf16x2(d[at] * factors[half], d[at + 1] * factors[half]);
            }
            const uint4 eight = quad_transpose(words, lane % 4);
            if (row < rows) {
                *(uint4 *)(to + row * stride + block * 32 + lane % 4 * 8) = eight;
            }
        }
    }
}

#endif
