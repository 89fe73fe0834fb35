// SPDX-License-Identifier: Apache-2.0
/*
 * Eight neighbouring elements, what a thread of the memory-bound kernels loads and stores at a
 * time: 16 bytes of bfloat16 or 32 of float32, kept as they are in memory.
 *
 * `vector` says that every address is 16-byte aligned and every row a multiple of eight elements
 * long. Otherwise elements are moved one by one, and those past the end of a row are zero. Both
 * ways give the same values, so a kernel's bits do not depend on it.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_EIGHT_H
#define LS_COMPUTE_CUDA_DEVICE_EIGHT_H

#include "compute/cuda/device/device.h"

template <class T> struct eight;

template <> struct eight<bf16> {
    uint4 bits;
};

template <> struct eight<float> {
    uint4 low, high;
};

LS_DEVICE void unpack(const eight<bf16> &from, float (&to)[8])
{
    to[0] = first_of(from.bits.x);
    to[1] = second_of(from.bits.x);
    to[2] = first_of(from.bits.y);
    to[3] = second_of(from.bits.y);
    to[4] = first_of(from.bits.z);
    to[5] = second_of(from.bits.z);
    to[6] = first_of(from.bits.w);
    to[7] = second_of(from.bits.w);
}

LS_DEVICE void unpack(const eight<float> &from, float (&to)[8])
{
    to[0] = __uint_as_float(from.low.x);
    to[1] = __uint_as_float(from.low.y);
    to[2] = __uint_as_float(from.low.z);
    to[3] = __uint_as_float(from.low.w);
    to[4] = __uint_as_float(from.high.x);
    to[5] = __uint_as_float(from.high.y);
    to[6] = __uint_as_float(from.high.z);
    to[7] = __uint_as_float(from.high.w);
}

LS_DEVICE void pack(const float (&from)[8], eight<bf16> &to)
{
    to.bits.x = to_bf16x2(from[0], from[1]);
    to.bits.y = to_bf16x2(from[2], from[3]);
    to.bits.z = to_bf16x2(from[4], from[5]);
    to.bits.w = to_bf16x2(from[6], from[7]);
}

LS_DEVICE void pack(const float (&from)[8], eight<float> &to)
{
    to.low.x = __float_as_uint(from[0]);
    to.low.y = __float_as_uint(from[1]);
    to.low.z = __float_as_uint(from[2]);
    to.low.w = __float_as_uint(from[3]);
    to.high.x = __float_as_uint(from[4]);
    to.high.y = __float_as_uint(from[5]);
    to.high.z = __float_as_uint(from[6]);
    to.high.w = __float_as_uint(from[7]);
}

/* Hides where the bits came from, so that the compiler unpacks them again instead of keeping what
 * it computed from them in registers. */
LS_DEVICE void forget(uint4 &bits)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
#else
    (void)bits;
#endif
}

LS_DEVICE void forget(eight<bf16> &x)
{
    forget(x.bits);
}

LS_DEVICE void forget(eight<float> &x)
{
    forget(x.low);
    forget(x.high);
}

/* All eight at once: `from` and `to` are 16-byte aligned. */
LS_DEVICE void load_all(const bf16 *from, eight<bf16> &to)
{
    to.bits = *(const uint4 *)from;
}

LS_DEVICE void load_all(const float *from, eight<float> &to)
{
    to.low = *(const uint4 *)from;
    to.high = *(const uint4 *)(from + 4);
}

LS_DEVICE void store_all(bf16 *to, const eight<bf16> &from)
{
    *(uint4 *)to = from.bits;
}

LS_DEVICE void store_all(float *to, const eight<float> &from)
{
    *(uint4 *)to = from.low;
    *(uint4 *)(to + 4) = from.high;
}

/* The first `count` elements, zeros for the others; count may be negative, or more than eight. */
template <class T> LS_DEVICE void load_some(const T *from, int count, eight<T> &to)
{
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = i < count ? to_float(from[i]) : 0.0f;
    }
    pack(x, to);
}

template <class T> LS_DEVICE void store_some(T *to, int count, const eight<T> &from)
{
    float x[8];
    unpack(from, x);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i < count) {
            to[i] = from_float<T>(x[i]);
        }
    }
}

template <class T> LS_DEVICE void load_eight(const T *from, int count, bool vector, eight<T> &to)
{
    if (!vector) {
        load_some(from, count, to);
    } else if (count > 0) {
        load_all(from, to);
    } else {
        to = eight<T>{};
    }
}

template <class T> LS_DEVICE void store_eight(T *to, int count, bool vector, const eight<T> &from)
{
    if (!vector) {
        store_some(to, count, from);
    } else if (count > 0) {
        store_all(to, from);
    }
}

#endif
