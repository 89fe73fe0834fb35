// SPDX-License-Identifier: Apache-2.0
/*
 * Vectors of 16 floats that behave the same in every instruction set.
 *
 * Sources in compute/cpu/isa/ are written once with these types and compiled for generic, avx2 and
 * avx512:
 *
 *   vf  16 float lanes      avx512: one register   avx2: two   generic: float[16]
 *   vi  16 int32 lanes      vm  16 booleans        vd  8 double lanes (half a vf)
 *
 * Every operation is the IEEE 754 operation per lane. All three sets give the same bits if kernels
 * keep two rules:
 *   - A fused multiply-add is written as vf_fma. Everything else rounds once per operation
 *     (-ffp-contract=off).
 *   - Sums over a row go lane by lane, in a fixed set of accumulators: lane l takes elements l,
 *     l+16, and so on. vf_sum's tree adds the lanes: (l, l+8), (l, l+4), (l, l+2), (l, l+1).
 * An instruction set may use another register blocking, as long as each output element comes from
 * the same chain.
 *
 *   vf_load_part(p, n), vf_store_part(p, a, n)   the first n lanes (0..16); other lanes load as 0,
 *                                                and memory after them is not accessed
 *   vf_stream(p, a)                              a store past the caches, if there is one; p is
 *                                                64-byte aligned, and vf_fence() comes before
 *                                                another thread reads the data
 *   vf_fma(a, b, c) = a b + c                    vf_fnma(a, b, c) = c - a b
 *   vf_max(a, b) = a > b ? a : b                 so a NaN in either gives b; vf_min alike
 *   vf_select(m, yes, no)                        vm_first(n): true in the first n lanes
 *   vf_sum, vf_top                               sum and maximum of the lanes
 *   vd_low(a), vd_high(a)                        lanes 0..7 and 8..15 as doubles
 *   vf_lookup(table, i)                          lane l is lane (i[l] & 15) of the table
 *
 * There are no approximate reciprocals or roots, because they differ between processors.
 *
 * LS_ISA_NAME(name) is the name of a symbol in this instruction set: LS_ISA_NAME(ls_norm_kernels)
 * is ls_norm_kernels_avx2.
 */
#ifndef LS_COMPUTE_CPU_SIMD_SIMD_H
#define LS_COMPUTE_CPU_SIMD_SIMD_H

/* Sanitizers instrument every element of the arrays of the generic set. If that code were inlined,
 * compiling would take minutes. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LS_SIMD_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LS_SIMD_SANITIZED 1
#endif

#if defined(LS_ISA_generic) && defined(LS_SIMD_SANITIZED)
#define LS_SIMD static __attribute__((noinline, unused))
#else
#define LS_SIMD static inline __attribute__((always_inline, unused))
#endif

/* A function that is one expression. */
#define LS_SIMD_OP(type, name, arguments, ...)                                                               \
    LS_SIMD type name arguments                                                                              \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }

#define LS_ISA_NAME_PASTE_(name, isa) name##_##isa
#define LS_ISA_NAME_PASTE(name, isa)  LS_ISA_NAME_PASTE_(name, isa)
#define LS_ISA_NAME(name)             LS_ISA_NAME_PASTE(name, LS_ISA)

#if defined(LS_ISA_avx512)
#include "compute/cpu/simd/simd_avx512.h"
#elif defined(LS_ISA_avx2)
#include "compute/cpu/simd/simd_avx2.h"
#elif defined(LS_ISA_generic)
#include "compute/cpu/simd/simd_generic.h"
#else
#error "compute/cpu/simd/simd.h is for the sources of compute/cpu/isa/, which are compiled with LS_ISA set"
#endif

enum { LS_LANES = 16 };

/* 0, 1, .. 15. */
LS_SIMD vf vf_iota(void)
{
    static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vf_load(lanes);
}

/* Loads and stores that are whole except at the end of a row: `count` elements are left, any number
 * >= 0. */
LS_SIMD vf vf_load_tail(const float *p, int64_t count)
{
    return count >= LS_LANES ? vf_load(p) : vf_load_part(p, count);
}

LS_SIMD void vf_store_tail(float *p, vf a, int64_t count)
{
    if (count >= LS_LANES) {
        vf_store(p, a);
    } else {
        vf_store_part(p, a, count);
    }
}

#endif
