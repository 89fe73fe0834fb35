// SPDX-License-Identifier: Apache-2.0
/*
 * Parts of the bfloat16 attention kernels: tiles of rows in shared memory, and products of 16-row
 * strips, one or more of which a warp holds in registers.
 *
 * A tile has rows of D elements, D + 8 apart: then eight rows at one column lie in different banks,
 * and addresses within a tile are constants. Products are mma.m16n8k16: of a 16 x 8 block of
 * results lane l holds, in order, (l / 4, l % 4 * 2), the same row and the next column, and the two
 * below these by 8 rows. A pair of such blocks is, rounded, the left operand of a product over 16
 * columns.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ATTENTION_TILE_H
#define LS_COMPUTE_CUDA_DEVICE_ATTENTION_TILE_H

#include "compute/cuda/device/attention.h"
#include "compute/cuda/device/device.h"
#include "compute/cuda/device/ptx.h"

#include <math.h>

static constexpr float LOG2_E = 1.4426950408889634f, LOG_2 = 0.6931471805599453f;

template <int D> __host__ __device__ constexpr int row_stride()
{
    return D + 8;
}

/* 2^x to within 2^-22 relative; 0 for -infinity, and where the result would be denormal. */
LS_DEVICE float exp2_fast(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* Begins to copy `rows` rows of D elements; the rest of the ROWS rows of the tile become 0. */
template <int D, int ROWS, int THREADS>
LS_DEVICE void tile_load(bf16 *tile, const bf16 *from, int64_t stride, int rows)
{
    /* LANES threads copy a row, 16 bytes at a time; a warp reads whole sectors. */
    constexpr int CHUNKS = D / 8, LANES = CHUNKS % 8 == 0 ? CHUNKS : 4, STEP = THREADS / LANES;
    static_assert(CHUNKS % LANES == 0 && ROWS % STEP == 0, "every thread copies as much");
    const int first = (int)threadIdx.x / LANES, col = (int)threadIdx.x % LANES * 8;
    const bf16 *at = from + first * stride + col;
    tile += first * row_stride<D>() + col;
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
        const bool there = row + first < rows;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk += LANES) {
            cp_async_16(tile + row * row_stride<D>() + chunk * 8, there ? at + chunk * 8 : from, there);
        }
        at += STEP * stride;
    }
}

/* Writes the first `rows` of the 16 M rows of one warp, which hold c * factor, by way of `tile`:
 * the warp's own rows of a tile that no other warp reads. */
template <int D, int COLS, int M>
LS_DEVICE void strip_store(bf16 *to, int64_t stride, int rows, const float (&c)[M][COLS / 8][4],
                           const float (&factor)[M][2], bf16 *tile)
{
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            bf16 *at = tile + (m * 16 + lane / 4) * row_stride<D>() + j * 8 + lane % 4 * 2;
            *(uint32_t *)at = to_bf16x2(c[m][j][0] * factor[m][0], c[m][j][1] * factor[m][0]);
            *(uint32_t *)(at + 8 * row_stride<D>()) =
                to_bf16x2(c[m][j][2] * factor[m][1], c[m][j][3] * factor[m][1]);
        }
    }
    __syncwarp();
    for (int chunk = lane; chunk < 16 * M * (COLS / 8); chunk += 32) {
        const int row = chunk / (COLS / 8), col = chunk % (COLS / 8) * 8;
        if (row < rows) {
            *(uint4 *)(to + row * stride + col) = *(const uint4 *)(tile + row * row_stride<D>() + col);
        }
    }
}

/* The address from which this lane loads left operands, or right operands whose rows are the
 * depth. */
template <int D> LS_DEVICE const bf16 *lane_of_left(const bf16 *tile)
{
    const int lane = threadIdx.x % 32;
    return tile + lane % 16 * row_stride<D>() + lane / 16 * 8;
}

/* The address from which this lane loads right operands whose columns are the depth. */
template <int D> LS_DEVICE const bf16 *lane_of_right(const bf16 *tile)
{
    const int lane = threadIdx.x % 32;
    return tile + (lane / 16 * 8 + lane % 8) * row_stride<D>() + lane / 8 % 2 * 8;
}

template <int M, int N> LS_DEVICE void strip_clear(float (&c)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        c[i / (N * 4)][i / 4 % N][i % 4] = 0.0f;
    }
}

/* The left operand of rows in shared memory, D deep: a warp keeps it in registers, or loads it
 * anew. */
template <int D, int M, bool HELD> struct left_rows {
    uint32_t held[HELD ? M : 1][HELD ? D / 16 : 1][4];
    const bf16 *lane;

    __device__ __forceinline__ void load(const bf16 *rows)
    {
        lane = lane_of_left<D>(rows);
        if (HELD) {
#pragma unroll
            for (int i = 0; i < M * (D / 16); i++) {
                ldmatrix_x4(held[HELD ? i / (D / 16) : 0][HELD ? i % (D / 16) : 0],
                            lane + i / (D / 16) * 16 * row_stride<D>() + i % (D / 16) * 16);
            }
        }
    }

    __device__ __forceinline__ void operand(uint32_t (&a)[4], int m, int k) const
    {
        if (HELD) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[i] = held[HELD ? m : 0][HELD ? k : 0][i];
            }
        } else {
            ldmatrix_x4(a, lane + m * 16 * row_stride<D>() + k * 16);
        }
    }
};

/* c (16 M, N) = left (16 M, D) times the transpose of right (N, D). */
template <int D, int M, int N, bool HELD>
LS_DEVICE void product_of_rows(float (&c)[M][N / 8][4], const left_rows<D, M, HELD> &left, const bf16 *right)
{
    strip_clear(c);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            left.operand(a[m], m, k);
        }
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            ldmatrix_x4(b, right + j * 16 * row_stride<D>() + k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16_16816(c[m][2 * j], a[m], b);
                mma_bf16_16816(c[m][2 * j + 1], a[m], b + 2);
            }
        }
    }
}

/* c (16 M, COLS) += p (16 M, K), rounded, times COLS columns of right (K, D). */
template <int D, int COLS, int M, int K>
LS_DEVICE void product_of_strip(float (&c)[M][COLS / 8][4], const float (&p)[M][K / 8][4], const bf16 *right)
{
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = &p[m][2 * k + i / 2][i % 2 * 2];
                a[m][i] = to_bf16x2(pair[0], pair[1]);
            }
        }
#pragma unroll
        for (int j = 0; j < COLS / 16; j++) {
            ldmatrix_x4_trans(b, right + k * 16 * row_stride<D>() + j * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16_16816(c[m][2 * j], a[m], b);
                mma_bf16_16816(c[m][2 * j + 1], a[m], b + 2);
            }
        }
    }
}

#endif
