// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/column_sums.h"

#include "compute/cuda/device/eight.h"

/* Rows that a thread has in flight. */
enum { AHEAD = 4 };

template <class T>
LS_DEVICE void add_rows(const ls_column_sums_args &args, int64_t row, int64_t end, int64_t column,
                        float (&sums)[8])
{
    const int64_t left = args.cols - column;
    const int count = left < 8 ? (int)left : 8;
    for (; row < end; row += AHEAD * LS_COLUMN_SUMS_LANES) {
        eight<T> x[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int64_t r = row + k * LS_COLUMN_SUMS_LANES;
            load_eight((const T *)args.x + r * args.stride + column, r < end ? count : 0, args.vector != 0,
                       x[k]);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            float value[8];
            unpack(x[k], value);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sums[i] += value[i];
            }
        }
    }
}

/* Thread t takes octet t % 32 of the columns and rows t / 32, t / 32 + 8, ... of the tile. */
template <class T> LS_DEVICE void column_sums(const ls_column_sums_args &args)
{
    __shared__ float shared[LS_COLUMN_SUMS_LANES][LS_COLUMN_SUMS_COLUMNS];
    const int octet = (int)threadIdx.x % 32, lane = (int)threadIdx.x / 32;
    const int64_t first_column = (int64_t)blockIdx.x * LS_COLUMN_SUMS_COLUMNS;
    const int64_t first = (int64_t)blockIdx.y * args.tile_rows;
    const int64_t end = first + args.tile_rows < args.rows ? first + args.tile_rows : args.rows;
    float sums[8] = {};
    if (first_column + octet * 8 < args.cols) {
        add_rows<T>(args, first + lane, end, first_column + octet * 8, sums);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        shared[lane][octet * 8 + i] = sums[i];
    }
    __syncthreads();
    const int64_t column = first_column + threadIdx.x;
    if (column < args.cols) {
        float sum = 0.0f;
#pragma unroll
        for (int l = 0; l < LS_COLUMN_SUMS_LANES; l++) {
            sum += shared[l][threadIdx.x];
        }
        args.parts[(int64_t)blockIdx.y * args.cols + column] = sum;
    }
}

LS_KERNEL __launch_bounds__(LS_COLUMN_SUMS_COLUMNS) column_sums_f32(ls_column_sums_args args)
{
    column_sums<float>(args);
}
LS_KERNEL_EXPORT(column_sums_f32)

LS_KERNEL __launch_bounds__(LS_COLUMN_SUMS_COLUMNS) column_sums_bf16(ls_column_sums_args args)
{
    column_sums<bf16>(args);
}
LS_KERNEL_EXPORT(column_sums_bf16)

/* Thread (x, y) of a block adds parts y, y + 32, ... of its column; the first row of threads adds
 * these sums in order. */
LS_KERNEL __launch_bounds__(LS_COMBINE_COLUMNS *LS_COMBINE_LANES) combine_parts(ls_combine_parts_args args)
{
    __shared__ float shared[LS_COMBINE_LANES][LS_COMBINE_COLUMNS];
    const int x = (int)threadIdx.x % LS_COMBINE_COLUMNS, lane = (int)threadIdx.x / LS_COMBINE_COLUMNS;
    const int64_t column = (int64_t)blockIdx.x * LS_COMBINE_COLUMNS + x;
    float *out = blockIdx.y ? args.out[1] : args.out[0];
    float sum = 0.0f;
    if (out && column < args.cols) {
        const float *from = args.parts + blockIdx.y * args.cols + column;
#pragma unroll 8
        for (int64_t p = lane; p < args.count; p += LS_COMBINE_LANES) {
            sum += from[p * args.stride];
        }
    }
    shared[lane][x] = sum;
    __syncthreads();
    if (lane == 0 && out && column < args.cols) {
        sum = shared[0][x];
        for (int l = 1; l < LS_COMBINE_LANES; l++) {
            sum += shared[l][x];
        }
        out[column] = args.accumulate ? out[column] + sum : sum;
    }
}
LS_KERNEL_EXPORT(combine_parts)
