// SPDX-License-Identifier: Apache-2.0
/*
 * 16 bytes of a row, for the attention kernels that read rows once.
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

LS_DEVICE uint32_t bits_of(float x)
{
    return __float_as_uint(x);
}

LS_DEVICE uint32_t bits_of(bf16 x)
{
    return x.bits;
}

/* Four words of a row from `from` on, of which `count` elements exist; the others are 0. aligned:
 * the words are 16-byte aligned, and all their elements exist or none. */
template <class T> LS_DEVICE uint4 vector_load(const T *from, int count, bool aligned)
{
    uint32_t words[4] = {};
    if (aligned) {
        return count > 0 ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < 16 / (int)sizeof(T); i++) {
        if (i < count) {
            words[i * sizeof(T) / 4] |= bits_of(from[i]) << (i * sizeof(T) % 4 * 8);
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

#endif
