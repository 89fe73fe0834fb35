// SPDX-License-Identifier: Apache-2.0
/*
 * 16 bytes of a row as floats, for the attention kernels that read rows once.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ATTENTION_VECTOR_H
#define LS_COMPUTE_CUDA_DEVICE_ATTENTION_VECTOR_H

#include "compute/cuda/device/device.h"

LS_DEVICE void vector_unpack(float (&to)[4], uint4 words)
{
    to[0] = __uint_as_float(words.x);
    to[1] = __uint_as_float(words.y);
    to[2] = __uint_as_float(words.z);
    to[3] = __uint_as_float(words.w);
}

LS_DEVICE void vector_unpack(float (&to)[8], uint4 words)
{
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = first_of(pairs[i]);
        to[2 * i + 1] = second_of(pairs[i]);
    }
}

/* The first `count` elements, then zeros. aligned: `from` is 16-byte aligned, and none is missing. */
template <class T, int COUNT>
LS_DEVICE void vector_load(float (&to)[COUNT], const T *from, int count, bool aligned)
{
    static_assert(COUNT * sizeof(T) == 16, "16 bytes");
    if (aligned) {
        vector_unpack(to, *(const uint4 *)from);
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        to[i] = i < count ? to_float(from[i]) : 0.0f;
    }
}

#endif
