// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/rotary.h"

#include "compute/cuda/device/eight.h"

/* Rotates one octet pair. */
template <class T>
LS_DEVICE void rotate(const float (&cosine)[8], const float (&sine)[8], eight<T> &first, eight<T> &second)
{
    float x[8], y[8];
    unpack(first, x);
    unpack(second, y);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float left = x[i];
        x[i] = left * cosine[i] - y[i] * sine[i];
        y[i] = y[i] * cosine[i] + left * sine[i];
    }
    pack(x, first);
    pack(y, second);
}

template <class T> LS_DEVICE void rotary(const ls_rotary_args &args)
{
    const uint32_t index = blockIdx.x * LS_ROTARY_THREADS + threadIdx.x;
    if (index >= args.threads) {
        return;
    }
    const uint32_t row = index / args.row_threads, in_row = index - row * args.row_threads;
    /* Neighbouring threads have neighbouring octets, then neighbouring heads. */
    const uint32_t head_groups = args.row_threads / args.half_octets;
    const uint32_t head = in_row / args.half_octets;
    const int column = (int)(in_row - head * args.half_octets) * 8, count = args.half - column;
    const bool vector = args.vector != 0;
    T *x = (T *)args.x + row * args.stride + column;
    eight<T> first[LS_ROTARY_HEADS], second[LS_ROTARY_HEADS];
#pragma unroll
    for (int k = 0; k < LS_ROTARY_HEADS; k++) {
        const int64_t h = head + k * head_groups;
        const int here = h < args.heads ? count : 0;
        load_eight(x + h * 2 * args.half, here, vector, first[k]);
        load_eight(x + h * 2 * args.half + args.half, here, vector, second[k]);
    }
    const int64_t position =
        args.first_position + row % args.positions_per_sequence - (args.first ? args.first[row] : 0);
    eight<float> table[2];
    load_eight(args.cosine + position * args.cosine_stride + column, count, vector, table[0]);
    load_eight(args.sine + position * args.sine_stride + column, count, vector, table[1]);
    float cosine[8], sine[8];
    unpack(table[0], cosine);
    unpack(table[1], sine);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sine[i] *= args.direction;
    }
#pragma unroll
    for (int k = 0; k < LS_ROTARY_HEADS; k++) {
        const int64_t h = head + k * head_groups;
        const int here = h < args.heads ? count : 0;
        rotate<T>(cosine, sine, first[k], second[k]);
        store_eight(x + h * 2 * args.half, here, vector, first[k]);
        store_eight(x + h * 2 * args.half + args.half, here, vector, second[k]);
    }
}

LS_KERNEL __launch_bounds__(LS_ROTARY_THREADS) rotary_f32(ls_rotary_args args)
{
    rotary<float>(args);
}
LS_KERNEL_EXPORT(rotary_f32)

LS_KERNEL __launch_bounds__(LS_ROTARY_THREADS) rotary_bf16(ls_rotary_args args)
{
    rotary<bf16>(args);
}
LS_KERNEL_EXPORT(rotary_bf16)
