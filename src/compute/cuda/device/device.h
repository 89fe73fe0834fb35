// SPDX-License-Identifier: Apache-2.0
/*
 * What every kernel of this folder begins with. The sources are CUDA C++; the tests also compile
 * them as C++ and run them on the processor (tests/compute/cuda_on_cpu/shim.h). Therefore:
 *
 *   - a kernel takes one structure by value, declared in plain C in <op>.h beside it, which the host
 *     code of compute/cuda/<op>.c includes too;
 *   - LS_KERNEL_EXPORT(kernel) at file scope after each kernel makes it known by name;
 *   - dynamic shared memory comes from LS_SHARED(type, name), 1024-byte aligned; PTX stands only in
 *     wrappers (ptx.h, hopper.h) that have a second definition for the processor; a loop that waits
 *     for other threads calls __nanosleep or such a wrapper;
 *   - sums are taken in an order that depends on the shapes only: no atomic addition of floats, and
 *     nothing may depend on the number of multiprocessors.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_DEVICE_H
#define LS_COMPUTE_CUDA_DEVICE_DEVICE_H

#include <stdint.h>

#ifdef __CUDACC__
#define LS_SHARED(type, name)                                                                                \
    extern __shared__ __align__(1024) unsigned char ls_shared_bytes[];                                       \
    type *name = (type *)ls_shared_bytes
#define LS_KERNEL_EXPORT(kernel)
#define LS_KERNEL extern "C" __global__ void
#else
#include "compute/cuda_on_cpu/shim.h"
#endif

#define LS_DEVICE static __device__ __forceinline__

/* A bfloat16 number: the upper half of a float32. */
struct bf16 {
    uint16_t bits;
};

LS_DEVICE float to_float(float x)
{
    return x;
}

LS_DEVICE float to_float(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
LS_DEVICE bf16 to_bf16(float x)
{
#ifdef __CUDACC__
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return bf16{0x7fff};
    }
    bits += 0x7fffu + (bits >> 16 & 1u);
    return bf16{(uint16_t)(bits >> 16)};
#endif
}

/* Two values as one word, the first in the lower half. */
LS_DEVICE uint32_t to_bf16x2(float first, float second)
{
#ifdef __CUDACC__
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
#else
    return (uint32_t)to_bf16(first).bits | (uint32_t)to_bf16(second).bits << 16;
#endif
}

LS_DEVICE float first_of(uint32_t bf16x2)
{
    return __uint_as_float(bf16x2 << 16);
}

LS_DEVICE float second_of(uint32_t bf16x2)
{
    return __uint_as_float(bf16x2 & 0xffff0000u);
}

/* from_float<T>(x): x as a T. */
template <class T> LS_DEVICE T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x)
{
    return to_bf16(x);
}

#endif
