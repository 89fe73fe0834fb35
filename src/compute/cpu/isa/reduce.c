// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/reduce.h"

#include "compute/cpu/simd/simd.h"

#include <string.h>

extern const ls_reduce_kernels LS_ISA_NAME(ls_reduce_kernels);

/* One line of 16 floats per input and turn; the memory of peers is fetched this far ahead, since
 * each of up to 16 streams is one that the processor's own prefetching has to notice first. */
enum { AHEAD = 128 };

/* The tree over inputs k.., written out: SUMn(k) adds n of them. */
#define L(k)    vf_load(in[k] + i)
#define SUM1(k) L(k)
#define SUM2(k) vf_add(L(k), L((k) + 1))
#define SUM3(k) vf_add(SUM2(k), L((k) + 2))
#define SUM4(k) vf_add(SUM2(k), SUM2((k) + 2))
#define SUM5(k) vf_add(SUM4(k), SUM1((k) + 4))
#define SUM6(k) vf_add(SUM4(k), SUM2((k) + 4))
#define SUM7(k) vf_add(SUM4(k), SUM3((k) + 4))
#define SUM8(k) vf_add(SUM4(k), SUM4((k) + 4))

LS_SIMD void put(float *const *out, uint32_t out_count, int64_t i, vf value, bool stream)
{
    for (uint32_t j = 0; j < out_count; j++) {
        if (stream) {
            vf_stream(out[j] + i, value);
        } else {
            vf_store(out[j] + i, value);
        }
    }
}

#define DEFINE_SUM(n)                                                                                        \
    static void sum##n(const float *const *in, float *const *out, uint32_t out_count, int64_t count,         \
                       bool stream)                                                                          \
    {                                                                                                        \
        const float *const *const all = in;                                                                  \
        for (int64_t i = 0; i < count; i += LS_LANES) {                                                      \
            for (int k = 0; k < n; k++) {                                                                    \
                __builtin_prefetch(all[k] + i + AHEAD);                                                      \
            }                                                                                                \
            put(out, out_count, i, SUM##n(0), stream);                                                       \
        }                                                                                                    \
    }

DEFINE_SUM(1)
DEFINE_SUM(2)
DEFINE_SUM(3)
DEFINE_SUM(4)
DEFINE_SUM(5)
DEFINE_SUM(6)
DEFINE_SUM(7)
DEFINE_SUM(8)

static void sum_whole(const float *const *in, uint32_t in_count, float *const *out, uint32_t out_count,
                      int64_t count, bool stream)
{
    static void (*const sums[])(const float *const *, float *const *, uint32_t, int64_t,
                                bool) = {sum1, sum2, sum3, sum4, sum5, sum6, sum7, sum8};
    sums[in_count - 1](in, out, out_count, count, stream);
}

static bool is_aligned(float *const *out, uint32_t out_count)
{
    uintptr_t bits = 0;
    for (uint32_t j = 0; j < out_count; j++) {
        bits |= (uintptr_t)out[j];
    }
    return (bits & 63) == 0;
}

/* The last elements, fewer than a vector: through vectors of their own. */
static void sum_tail(const float *const *in, uint32_t in_count, float *const *out, uint32_t out_count,
                     int64_t from, int64_t count)
{
    float pieces[LS_REDUCE_INPUTS_MAX][LS_LANES] = {{0}}, sum[LS_LANES];
    const float *ins[LS_REDUCE_INPUTS_MAX];
    float *const outs[1] = {sum};
    for (uint32_t k = 0; k < in_count; k++) {
        memcpy(pieces[k], in[k] + from, (size_t)(count - from) * sizeof(float));
        ins[k] = pieces[k];
    }
    sum_whole(ins, in_count, outs, 1, LS_LANES, false);
    for (uint32_t j = 0; j < out_count; j++) {
        memcpy(out[j] + from, sum, (size_t)(count - from) * sizeof(float));
    }
}

static void sum(const float *const *in, uint32_t in_count, float *const *out, uint32_t out_count,
                int64_t count, bool stream)
{
    const int64_t whole = count - count % LS_LANES;
    const bool streams = stream && is_aligned(out, out_count);
    sum_whole(in, in_count, out, out_count, whole, streams);
    if (whole < count) {
        sum_tail(in, in_count, out, out_count, whole, count);
    }
    if (streams) {
        vf_fence();
    }
}

static void copy(const void *in, void *out, int64_t bytes)
{
    const int64_t head = (int64_t)(-(uintptr_t)out & 63);
    if (bytes < 4096 || ((uintptr_t)in - (uintptr_t)out) % sizeof(float) != 0) {
        memcpy(out, in, (size_t)bytes);
        return;
    }
    memcpy(out, in, (size_t)head);
    const char *from = (const char *)in + head;
    char *to = (char *)out + head;
    const int64_t left = bytes - head, whole = left - left % 64;
    for (int64_t i = 0; i < whole; i += 64) {
        __builtin_prefetch(from + i + AHEAD * sizeof(float));
        vf_stream((float *)(void *)(to + i), vf_load((const float *)(const void *)(from + i)));
    }
    memcpy(to + whole, from + whole, (size_t)(left - whole));
    vf_fence();
}

const ls_reduce_kernels LS_ISA_NAME(ls_reduce_kernels) = {
    .sum = sum,
    .copy = copy,
};
