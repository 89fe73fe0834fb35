// SPDX-License-Identifier: Apache-2.0
/* What ranks put into a collective, and what the fixed tree makes of it, element by element. */
#ifndef LS_TESTS_COMM_EXPECT_H
#define LS_TESTS_COMM_EXPECT_H

#include "lockstep/comm.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint32_t expect_hash(uint64_t index, uint32_t rank)
{
    uint64_t x = (index + 1) * 0x9e3779b97f4a7c15ull ^ (rank + 1) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebull;
    return (uint32_t)(x >> 32);
}

static float expect_from_half(uint16_t half)
{
    const float sign = half & 0x8000 ? -1.0f : 1.0f;
    const int exponent = half >> 10 & 31;
    const float fraction = (float)(half & 1023);
    return sign * (exponent ? ldexpf(1024.0f + fraction, exponent - 25) : ldexpf(fraction, -24));
}

static float expect_from_bf16(uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

/* Element `index` of what rank `rank` puts in, as float; integers are taken from the hash
 * itself. */
static float expect_float(ls_dtype dtype, uint64_t index, uint32_t rank)
{
    const uint32_t hash = expect_hash(index, rank);
    if (dtype == LS_BF16) {
        return expect_from_bf16((uint16_t)((hash & 0x80ff) | 0x3f00)); /* +-0.5 .. 2 */
    }
    if (dtype == LS_F16) {
        return expect_from_half((uint16_t)((hash & 0x83ff) | 0x3800));
    }
    return ((float)(hash >> 8) - 8388608.0f) * ldexpf(1.0f, -(int)(hash & 15));
}

static uint16_t expect_bits16(uint64_t index, uint32_t rank, ls_dtype dtype)
{
    const uint32_t hash = expect_hash(index, rank);
    return (uint16_t)(dtype == LS_BF16 ? (hash & 0x80ff) | 0x3f00 : (hash & 0x83ff) | 0x3800);
}

static void expect_fill(void *data, ls_dtype dtype, uint64_t count, uint32_t rank)
{
    for (uint64_t i = 0; i < count; i++) {
        switch (dtype) {
        case LS_F32:
            ((float *)data)[i] = expect_float(dtype, i, rank);
            break;
        case LS_I32:
            ((int32_t *)data)[i] = (int32_t)expect_hash(i, rank);
            break;
        case LS_I64:
            ((int64_t *)data)[i] = (int64_t)((uint64_t)expect_hash(i, rank) << 20);
            break;
        default:
            ((uint16_t *)data)[i] = expect_bits16(i, rank, dtype);
        }
    }
}

/* data[0, count) is what `rank` has at [first, first + count). */
static bool expect_filled(const void *data, ls_dtype dtype, uint64_t first, uint64_t count, uint32_t rank)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t at = first + i;
        const uint16_t half = expect_bits16(at, rank, dtype);
        const float value = expect_float(LS_F32, at, rank);
        const int32_t word = (int32_t)expect_hash(at, rank);
        const int64_t wide = (int64_t)((uint64_t)expect_hash(at, rank) << 20);
        const bool same = dtype == LS_F32   ? memcmp((const float *)data + i, &value, 4) == 0
                          : dtype == LS_I32 ? ((const int32_t *)data)[i] == word
                          : dtype == LS_I64 ? ((const int64_t *)data)[i] == wide
                                            : ((const uint16_t *)data)[i] == half;
        if (!same) {
            fprintf(stderr, "element %llu of rank %u, type %d is wrong\n", (unsigned long long)at, rank,
                    (int)dtype);
            return false;
        }
    }
    return true;
}

static float expect_combine(float a, float b, ls_comm_reduction reduction)
{
    return reduction == LS_COMM_SUM ? a + b : reduction == LS_COMM_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static float expect_tree(ls_dtype dtype, ls_comm_reduction reduction, uint64_t index, uint32_t first,
                         uint32_t end)
{
    if (end - first == 1) {
        return expect_float(dtype, index, first);
    }
    uint32_t half = 1;
    while (half * 2 < end - first) {
        half *= 2;
    }
    return expect_combine(expect_tree(dtype, reduction, index, first, first + half),
                          expect_tree(dtype, reduction, index, first + half, end), reduction);
}

static int64_t expect_integer(ls_dtype dtype, ls_comm_reduction reduction, uint64_t index, uint32_t ranks)
{
    int64_t sum = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const int64_t value = dtype == LS_I32 ? (int32_t)expect_hash(index, rank)
                                              : (int64_t)((uint64_t)expect_hash(index, rank) << 20);
        const bool better = reduction == LS_COMM_MAX ? value > sum : value < sum;
        sum = rank == 0                  ? value
              : reduction == LS_COMM_SUM ? (int64_t)((uint64_t)sum + (uint64_t)value)
              : better                   ? value
                                         : sum;
    }
    return dtype == LS_I32 ? (int32_t)sum : sum;
}

static uint16_t expect_round_bf16(float value)
{
    uint32_t word;
    memcpy(&word, &value, 4);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/* data[0, count) is the reduction over `ranks` of elements [first, first + count). loose: in any
 * order. */
static bool expect_reduced(const void *data, ls_dtype dtype, ls_comm_reduction reduction, uint64_t first,
                           uint64_t count, uint32_t ranks, bool loose)
{
    for (uint64_t i = 0; i < count; i++) {
        bool same;
        if (dtype == LS_I32 || dtype == LS_I64) {
            const int64_t want = expect_integer(dtype, reduction, first + i, ranks);
            same = want == (dtype == LS_I32 ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i]);
        } else {
            const float want = expect_tree(dtype, reduction, first + i, 0, ranks);
            const float got = dtype == LS_F32    ? ((const float *)data)[i]
                              : dtype == LS_BF16 ? expect_from_bf16(((const uint16_t *)data)[i])
                                                 : expect_from_half(((const uint16_t *)data)[i]);
            const float rounded = dtype == LS_F32    ? want
                                  : dtype == LS_BF16 ? expect_from_bf16(expect_round_bf16(want))
                                                     : (float)(_Float16)want;
            const float slack = dtype == LS_F32 ? 1e-5f * 8388608.0f : 0.1f;
            same = loose ? fabsf(got - rounded) <= slack : memcmp(&got, &rounded, 4) == 0;
            if (!same) {
                fprintf(stderr, "got %a, want %a\n", (double)got, (double)rounded);
            }
        }
        if (!same) {
            fprintf(stderr, "reduced element %llu of %llu, type %d, reduction %d, %u ranks is wrong\n",
                    (unsigned long long)(first + i), (unsigned long long)count, (int)dtype, (int)reduction,
                    ranks);
            return false;
        }
    }
    return true;
}

#endif
