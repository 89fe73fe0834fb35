// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/elementwise.h"

#include "compute/cuda/device/runs.h"

enum { THREADS = LS_ELEMENTWISE_THREADS, UNITS = LS_ELEMENTWISE_UNITS };

/* Where a unit begins. */
struct place {
    int64_t row, col;
};

/* The index of unit `k` of this thread. */
LS_DEVICE int64_t unit_of(int k)
{
    return (int64_t)blockIdx.x * (THREADS * UNITS) + k * THREADS + threadIdx.x;
}

LS_DEVICE place place_of(const ls_elementwise_shape &shape, int64_t unit, int width)
{
    if (shape.rows == 1) {
        return place{0, unit * width};
    }
    const int64_t row = (int64_t)((uint64_t)unit / (uint64_t)shape.row_units);
    return place{row, (unit - row * shape.row_units) * width};
}

template <class T> LS_DEVICE void add(const ls_add_args &args)
{
    constexpr int WIDTH = 16 / sizeof(T);
    const ls_elementwise_shape &shape = args.shape;
    float a[UNITS][WIDTH], b[UNITS][WIDTH];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        if (unit_of(k) < shape.units) {
            const place at = place_of(shape, unit_of(k), WIDTH);
            const int64_t left = shape.cols - at.col;
            load_part((const T *)args.a + at.row * args.a_stride + at.col, left, shape.aligned, a[k]);
            load_part((const T *)args.b + at.row * args.b_stride + at.col, left, shape.aligned, b[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        if (unit_of(k) < shape.units) {
            const place at = place_of(shape, unit_of(k), WIDTH);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                a[k][j] += b[k][j];
            }
            store_part((T *)args.out + at.row * args.out_stride + at.col, shape.cols - at.col, shape.aligned,
                       a[k]);
        }
    }
}

LS_KERNEL add_f32(ls_add_args args)
{
    add<float>(args);
}
LS_KERNEL_EXPORT(add_f32)

LS_KERNEL add_bf16(ls_add_args args)
{
    add<bf16>(args);
}
LS_KERNEL_EXPORT(add_bf16)

template <class T> LS_DEVICE void fill(const ls_fill_args &args)
{
    constexpr int WIDTH = 16 / sizeof(T);
    const ls_elementwise_shape &shape = args.shape;
    float x[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        x[j] = args.value;
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        if (unit_of(k) < shape.units) {
            const place at = place_of(shape, unit_of(k), WIDTH);
            store_part((T *)args.out + at.row * args.out_stride + at.col, shape.cols - at.col, shape.aligned,
                       x);
        }
    }
}

LS_KERNEL fill_f32(ls_fill_args args)
{
    fill<float>(args);
}
LS_KERNEL_EXPORT(fill_f32)

LS_KERNEL fill_bf16(ls_fill_args args)
{
    fill<bf16>(args);
}
LS_KERNEL_EXPORT(fill_bf16)

template <class T> LS_DEVICE void scale(const ls_fill_args &args)
{
    constexpr int WIDTH = 16 / sizeof(T);
    const ls_elementwise_shape &shape = args.shape;
    for (int k = 0; k < UNITS; k++) {
        if (unit_of(k) < shape.units) {
            const place at = place_of(shape, unit_of(k), WIDTH);
            T *out = (T *)args.out + at.row * args.out_stride + at.col;
            float x[WIDTH];
            load_part(out, shape.cols - at.col, shape.aligned, x);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                x[j] *= args.value;
            }
            store_part(out, shape.cols - at.col, shape.aligned, x);
        }
    }
}

LS_KERNEL scale_f32(ls_fill_args args)
{
    scale<float>(args);
}
LS_KERNEL_EXPORT(scale_f32)

LS_KERNEL scale_bf16(ls_fill_args args)
{
    scale<bf16>(args);
}
LS_KERNEL_EXPORT(scale_bf16)

/* Copies elements of one type. Their bits stay as they are, also those of a NaN. */
template <class T> LS_DEVICE void copy(const ls_copy_args &args)
{
    constexpr int WIDTH = 16 / sizeof(T);
    const ls_elementwise_shape &shape = args.shape;
    uint4 whole[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const place at = place_of(shape, unit_of(k), WIDTH);
        if (unit_of(k) < shape.units && shape.aligned && at.col + WIDTH <= shape.cols) {
            whole[k] = *(const uint4 *)((const T *)args.from + at.row * args.from_stride + at.col);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const place at = place_of(shape, unit_of(k), WIDTH);
        T *to = (T *)args.to + at.row * args.to_stride + at.col;
        if (unit_of(k) >= shape.units) {
            continue;
        }
        if (shape.aligned && at.col + WIDTH <= shape.cols) {
            *(uint4 *)to = whole[k];
            continue;
        }
        const T *from = (const T *)args.from + at.row * args.from_stride + at.col;
        for (int64_t j = 0; j < WIDTH && at.col + j < shape.cols; j++) {
            to[j] = from[j];
        }
    }
}

LS_KERNEL copy_4_bytes(ls_copy_args args)
{
    copy<uint32_t>(args);
}
LS_KERNEL_EXPORT(copy_4_bytes)

LS_KERNEL copy_2_bytes(ls_copy_args args)
{
    copy<uint16_t>(args);
}
LS_KERNEL_EXPORT(copy_2_bytes)

template <class From, class To> LS_DEVICE void convert(const ls_copy_args &args)
{
    constexpr int WIDTH = 4;
    const ls_elementwise_shape &shape = args.shape;
    float x[UNITS][WIDTH];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        if (unit_of(k) < shape.units) {
            const place at = place_of(shape, unit_of(k), WIDTH);
            load_part((const From *)args.from + at.row * args.from_stride + at.col, shape.cols - at.col,
                      shape.aligned, x[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        if (unit_of(k) < shape.units) {
            const place at = place_of(shape, unit_of(k), WIDTH);
            store_part((To *)args.to + at.row * args.to_stride + at.col, shape.cols - at.col, shape.aligned,
                       x[k]);
        }
    }
}

LS_KERNEL f32_to_bf16(ls_copy_args args)
{
    convert<float, bf16>(args);
}
LS_KERNEL_EXPORT(f32_to_bf16)

LS_KERNEL bf16_to_f32(ls_copy_args args)
{
    convert<bf16, float>(args);
}
LS_KERNEL_EXPORT(bf16_to_f32)

LS_DEVICE bool is_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

template <class T> LS_DEVICE void find_nonfinite(const ls_find_args &args)
{
    constexpr int WIDTH = 16 / sizeof(T);
    const ls_elementwise_shape &shape = args.shape;
    float x[UNITS][WIDTH];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const place at = place_of(shape, unit_of(k), WIDTH);
        const int64_t left = unit_of(k) < shape.units ? shape.cols - at.col : 0;
        load_part((const T *)args.x + at.row * args.stride + at.col, left, shape.aligned, x[k]);
    }
    unsigned long long lowest = ~0ull;
#pragma unroll
    for (int k = UNITS - 1; k >= 0; k--) {
        const place at = place_of(shape, unit_of(k), WIDTH);
#pragma unroll
        for (int j = WIDTH - 1; j >= 0; j--) {
            if (!is_finite(x[k][j])) {
                lowest = (unsigned long long)(at.row * shape.cols + at.col + j);
            }
        }
    }
    /* The minimum of integers does not depend on the order of the threads. */
    if (lowest != ~0ull) {
        atomicMin(args.lowest, lowest);
    }
}

LS_KERNEL find_nonfinite_f32(ls_find_args args)
{
    find_nonfinite<float>(args);
}
LS_KERNEL_EXPORT(find_nonfinite_f32)

LS_KERNEL find_nonfinite_bf16(ls_find_args args)
{
    find_nonfinite<bf16>(args);
}
LS_KERNEL_EXPORT(find_nonfinite_bf16)
