// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/hopper_check_sm90.h"

#include "compute/cuda/device/hopper.h"

/* ---- products: one warp group, tiles stored by the threads themselves ---- */

enum { DEPTH = 128, GROUP = 128 };

/* Stores a (rows, columns) matrix as panels of `rows` rows. */
LS_DEVICE void store_tile(unsigned char *tile, const uint16_t *from, int rows, int columns)
{
    for (int i = (int)threadIdx.x; i < rows * columns; i += GROUP) {
        const uint32_t row = (uint32_t)(i / columns), column = (uint32_t)(i % columns);
        unsigned char *panel = tile + column / PANEL_COLUMNS * (uint32_t)rows * PANEL_ROW_BYTES;
        *(uint16_t *)(panel + panel_offset(row, column % PANEL_COLUMNS)) = from[i];
    }
}

/* Where K-step `step` of an operand begins. */
LS_DEVICE uint32_t step_of_rows(int step, int rows)
{
    return (uint32_t)(step / 4 * rows * PANEL_ROW_BYTES + step % 4 * 32);
}

template <int N, operand_order B> LS_DEVICE operand operand_b(const unsigned char *tile, int step)
{
    if (B == TILE_ROWS_ARE_N) {
        return operand_advance(operand_rows(tile), step_of_rows(step, N));
    }
    return operand_advance(operand_columns(tile, DEPTH * PANEL_ROW_BYTES),
                           (uint32_t)(step * 16 * PANEL_ROW_BYTES));
}

template <int N> LS_DEVICE void store_product(const float (&d)[N / 2], float *out)
{
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        out[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
}

template <int N, operand_order B, bool A_IN_REGISTERS>
LS_DEVICE void product(unsigned char *shared, ls_hopper_check_product args)
{
    unsigned char *tile_a = shared, *tile_b = shared + 64 * DEPTH * 2;
    store_tile(tile_a, args.a, 64, DEPTH);
    if (B == TILE_ROWS_ARE_N) {
        store_tile(tile_b, args.b, N, DEPTH);
    } else {
        store_tile(tile_b, args.b, DEPTH, N);
    }
    shared_fence_async();
    __syncthreads();

    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    uint32_t words[DEPTH / 16][4];
    if (A_IN_REGISTERS) {
#pragma unroll
        for (int i = 0; i < DEPTH / 16 * 4; i++) {
            const uint16_t *at =
                args.a + (row + i % 2 * 8) * DEPTH + i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
            words[i / 4][i % 4] = (uint32_t)at[0] | (uint32_t)at[1] << 16;
        }
    }
    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        d[i] = 1000.0f; /* the first step must not add to it */
    }
    wgmma_hold(d);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < DEPTH / 16; step++) {
        const operand b = operand_b<N, B>(tile_b, step);
        if (A_IN_REGISTERS) {
            wgmma<N, B>(d, words[step], b, step > 0);
        } else {
            wgmma<N, B>(d, operand_advance(operand_rows(tile_a), step_of_rows(step, 64)), b, step > 0);
        }
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(d);
    store_product<N>(d, args.d);
}

LS_KERNEL __launch_bounds__(128) hopper_product_shared_64_n(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<64, TILE_ROWS_ARE_N, false>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_shared_64_n)

LS_KERNEL __launch_bounds__(128) hopper_product_shared_128_n(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<128, TILE_ROWS_ARE_N, false>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_shared_128_n)

LS_KERNEL __launch_bounds__(128) hopper_product_shared_64_k(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<64, TILE_ROWS_ARE_K, false>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_shared_64_k)

LS_KERNEL __launch_bounds__(128) hopper_product_shared_128_k(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<128, TILE_ROWS_ARE_K, false>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_shared_128_k)

LS_KERNEL __launch_bounds__(128) hopper_product_registers_64_n(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<64, TILE_ROWS_ARE_N, true>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_registers_64_n)

LS_KERNEL __launch_bounds__(128) hopper_product_registers_128_n(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<128, TILE_ROWS_ARE_N, true>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_registers_128_n)

LS_KERNEL __launch_bounds__(128) hopper_product_registers_64_k(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<64, TILE_ROWS_ARE_K, true>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_registers_64_k)

LS_KERNEL __launch_bounds__(128) hopper_product_registers_128_k(ls_hopper_check_product args)
{
    LS_SHARED(unsigned char, shared);
    product<128, TILE_ROWS_ARE_K, true>(shared, args);
}
LS_KERNEL_EXPORT(hopper_product_registers_128_k)

/* ---- copies: 128 threads; thread 0 asks, all read what came ---- */

template <int RANK> LS_DEVICE void copy(unsigned char *shared, const ls_hopper_check_copy &args)
{
    uint64_t *full = (uint64_t *)(shared + 256 * PANEL_ROW_BYTES);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(full, (uint32_t)(RANK == 1 ? args.rows * 4 : args.rows * PANEL_ROW_BYTES));
        if (RANK == 1) {
            bulk_load(shared, args.from, (uint32_t)args.rows * 4, full);
        } else if (RANK == 2) {
            tma_load_2d(shared, &args.map, full, args.x, args.y);
        } else if (RANK == 3) {
            tma_load_3d(shared, &args.map, full, args.x, args.y, args.z);
        } else {
            tma_load_4d(shared, &args.map, full, args.x, args.y, args.z, args.w);
        }
    }
    mbarrier_wait(full, 0);
    for (int i = (int)threadIdx.x; i < args.rows * (RANK == 1 ? 1 : PANEL_COLUMNS); i += GROUP) {
        if (RANK == 1) {
            args.floats_out[i] = ((const float *)shared)[i];
        } else {
            const uint32_t row = (uint32_t)i / PANEL_COLUMNS, column = (uint32_t)i % PANEL_COLUMNS;
            args.out[i] = *(const uint16_t *)(shared + panel_offset(row, column));
        }
    }
}

LS_KERNEL __launch_bounds__(128) hopper_copy_bulk(const __grid_constant__ ls_hopper_check_copy args)
{
    LS_SHARED(unsigned char, shared);
    copy<1>(shared, args);
}
LS_KERNEL_EXPORT(hopper_copy_bulk)

LS_KERNEL __launch_bounds__(128) hopper_copy_2d(const __grid_constant__ ls_hopper_check_copy args)
{
    LS_SHARED(unsigned char, shared);
    copy<2>(shared, args);
}
LS_KERNEL_EXPORT(hopper_copy_2d)

LS_KERNEL __launch_bounds__(128) hopper_copy_3d(const __grid_constant__ ls_hopper_check_copy args)
{
    LS_SHARED(unsigned char, shared);
    copy<3>(shared, args);
}
LS_KERNEL_EXPORT(hopper_copy_3d)

LS_KERNEL __launch_bounds__(128) hopper_copy_4d(const __grid_constant__ ls_hopper_check_copy args)
{
    LS_SHARED(unsigned char, shared);
    copy<4>(shared, args);
}
LS_KERNEL_EXPORT(hopper_copy_4d)

/* ---- barriers and quotas ---- */

/*
 * Warp 0 writes round r into slot r % 3 for warps 1 to 3, which add it up: the phases of two times
 * three barriers. out[thread] = sum of in[r * 32 + lane] over the rounds.
 */
LS_KERNEL __launch_bounds__(128) hopper_mbarrier(ls_hopper_check_threads args)
{
    LS_SHARED(unsigned char, shared);
    float *slots = (float *)shared;
    uint64_t *full = (uint64_t *)(shared + 1024), *empty = full + 3;
    const int lane = (int)threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < 3; s++) {
            mbarrier_init(full + s, 32);
            mbarrier_init(empty + s, 96);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    float sum = 0.0f;
    for (int r = 0; r < args.rounds; r++) {
        const int slot = r % 3;
        const uint32_t phase = (uint32_t)(r / 3 % 2);
        if (threadIdx.x < 32) {
            mbarrier_wait(empty + slot, phase ^ 1); /* the phase before the first counts as over */
            slots[slot * 32 + lane] = args.in[r * 32 + lane];
            sum += args.in[r * 32 + lane];
            mbarrier_arrive(full + slot);
        } else {
            mbarrier_wait(full + slot, phase);
            sum += slots[slot * 32 + lane];
            mbarrier_arrive(empty + slot);
        }
    }
    args.out[threadIdx.x] = sum;
}
LS_KERNEL_EXPORT(hopper_mbarrier)

/*
 * Two groups take turns: value = value * 2 + in[round * 2 + group], which no other order gives.
 * out[group] = the value after the last turn of that group.
 */
LS_KERNEL __launch_bounds__(256) hopper_named_barrier(ls_hopper_check_threads args)
{
    LS_SHARED(unsigned char, shared);
    volatile float *value = (volatile float *)shared;
    const uint32_t group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        *value = 1.0f;
    }
    __syncthreads();
    if (group == 1) {
        named_barrier_arrive(1, 256); /* group 0 begins */
    }
    float last = 0.0f;
    for (int r = 0; r < args.rounds; r++) {
        named_barrier_sync(1 + group, 256);
        if (threadIdx.x % 128 == 0) {
            last = *value * 2.0f + args.in[r * 2 + (int)group];
            *value = last;
        }
        if (group == 0 || r + 1 < args.rounds) {
            named_barrier_arrive(1 + (group ^ 1), 256);
        }
    }
    if (threadIdx.x % 128 == 0) {
        args.out[group] = last;
    }
}
LS_KERNEL_EXPORT(hopper_named_barrier)

/* out[thread] = 2^in[thread], by one shrunken and two grown warp groups. */
LS_KERNEL __launch_bounds__(384, 1) hopper_registers(ls_hopper_check_threads args)
{
    if (threadIdx.x / 128 == 0) {
        registers_shrink<24>();
        args.out[threadIdx.x] = exp2_approximate(args.in[threadIdx.x]);
    } else {
        registers_grow<240>();
        args.out[threadIdx.x] = exp2_approximate(args.in[threadIdx.x]);
    }
}
LS_KERNEL_EXPORT(hopper_registers)
