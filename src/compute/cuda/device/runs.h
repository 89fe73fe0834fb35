// SPDX-License-Identifier: Apache-2.0
/*
 * Runs of neighbouring elements as float32, moved in 8 or 16 bytes at a time.
 *
 *   load_run, store_run      N elements; the address is a multiple of their size, at most 16 bytes
 *   load_part, store_part    the first `left` elements if fewer are left, and any address unless
 *                            `aligned`; what load_part leaves out is 0
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_RUNS_H
#define LS_COMPUTE_CUDA_DEVICE_RUNS_H

#include "compute/cuda/device/device.h"

LS_DEVICE void load_run(const float *from, float (&x)[4])
{
    const float4 v = *(const float4 *)from;
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}

LS_DEVICE void load_run(const bf16 *from, float (&x)[4])
{
    const uint2 v = *(const uint2 *)from;
    x[0] = first_of(v.x);
    x[1] = second_of(v.x);
    x[2] = first_of(v.y);
    x[3] = second_of(v.y);
}

LS_DEVICE void load_run(const bf16 *from, float (&x)[8])
{
    const uint4 v = *(const uint4 *)from;
    x[0] = first_of(v.x);
    x[1] = second_of(v.x);
    x[2] = first_of(v.y);
    x[3] = second_of(v.y);
    x[4] = first_of(v.z);
    x[5] = second_of(v.z);
    x[6] = first_of(v.w);
    x[7] = second_of(v.w);
}

LS_DEVICE void store_run(float *to, const float (&x)[4])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

LS_DEVICE void store_run(bf16 *to, const float (&x)[4])
{
    *(uint2 *)to = make_uint2(to_bf16x2(x[0], x[1]), to_bf16x2(x[2], x[3]));
}

LS_DEVICE void store_run(bf16 *to, const float (&x)[8])
{
    *(uint4 *)to = make_uint4(to_bf16x2(x[0], x[1]), to_bf16x2(x[2], x[3]), to_bf16x2(x[4], x[5]),
                              to_bf16x2(x[6], x[7]));
}

template <class T, int N> LS_DEVICE void load_part(const T *from, int64_t left, bool aligned, float (&x)[N])
{
    if (aligned && left >= N) {
        load_run(from, x);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        x[j] = j < left ? to_float(from[j]) : 0.0f;
    }
}

template <class T, int N> LS_DEVICE void store_part(T *to, int64_t left, bool aligned, const float (&x)[N])
{
    if (aligned && left >= N) {
        store_run(to, x);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j < left) {
            to[j] = from_float<T>(x[j]);
        }
    }
}

#endif
