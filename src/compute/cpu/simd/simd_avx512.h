// SPDX-License-Identifier: Apache-2.0
/* compute/cpu/simd/simd.h in AVX-512: one register per vector. */
#ifndef LS_COMPUTE_CPU_SIMD_SIMD_AVX512_H
#define LS_COMPUTE_CPU_SIMD_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;
typedef __m512i vi;
typedef __m512d vd;
typedef __mmask16 vm;

LS_SIMD_OP(vf, vf_zero, (void), _mm512_setzero_ps())
LS_SIMD_OP(vf, vf_set, (float x), _mm512_set1_ps(x))
LS_SIMD_OP(vf, vf_load, (const float *p), _mm512_loadu_ps(p))

LS_SIMD void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

LS_SIMD void vf_stream(float *p, vf a)
{
    _mm512_stream_ps(p, a);
}

LS_SIMD void vf_fence(void)
{
    _mm_sfence();
}

LS_SIMD_OP(vm, vm_first, (int64_t count), (vm)((1u << count) - 1u))
LS_SIMD_OP(vf, vf_load_part, (const float *p, int64_t count), _mm512_maskz_loadu_ps(vm_first(count), p))

LS_SIMD void vf_store_part(float *p, vf a, int64_t count)
{
    _mm512_mask_storeu_ps(p, vm_first(count), a);
}

LS_SIMD_OP(vf, vf_add, (vf a, vf b), _mm512_add_ps(a, b))
LS_SIMD_OP(vf, vf_sub, (vf a, vf b), _mm512_sub_ps(a, b))
LS_SIMD_OP(vf, vf_mul, (vf a, vf b), _mm512_mul_ps(a, b))
LS_SIMD_OP(vf, vf_div, (vf a, vf b), _mm512_div_ps(a, b))
LS_SIMD_OP(vf, vf_sqrt, (vf a), _mm512_sqrt_ps(a))
LS_SIMD_OP(vf, vf_fma, (vf a, vf b, vf c), _mm512_fmadd_ps(a, b, c))
LS_SIMD_OP(vf, vf_fnma, (vf a, vf b, vf c), _mm512_fnmadd_ps(a, b, c))
LS_SIMD_OP(vf, vf_max, (vf a, vf b), _mm512_max_ps(a, b))
LS_SIMD_OP(vf, vf_min, (vf a, vf b), _mm512_min_ps(a, b))
LS_SIMD_OP(vm, vf_lt, (vf a, vf b), _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ))
LS_SIMD_OP(vm, vf_le, (vf a, vf b), _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ))

LS_SIMD vm vm_and(vm a, vm b)
{
    return (vm)(a & b);
}

LS_SIMD_OP(vf, vf_select, (vm m, vf yes, vf no), _mm512_mask_blend_ps(m, no, yes))
LS_SIMD_OP(float, vf_lane0, (vf a), _mm512_cvtss_f32(a))

LS_SIMD float vf_sum(vf a)
{
    const __m256 low = _mm512_castps512_ps256(a);
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    const __m256 s8 = _mm256_add_ps(low, high);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

LS_SIMD float vf_top(vf a)
{
    const __m256 low = _mm512_castps512_ps256(a);
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    const __m256 s8 = _mm256_max_ps(low, high);
    const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

LS_SIMD_OP(vi, vi_set, (int32_t x), _mm512_set1_epi32(x))
LS_SIMD_OP(vi, vi_add, (vi a, vi b), _mm512_add_epi32(a, b))
LS_SIMD_OP(vi, vi_sub, (vi a, vi b), _mm512_sub_epi32(a, b))
LS_SIMD_OP(vi, vi_shift_left_23, (vi a), _mm512_slli_epi32(a, 23))
LS_SIMD_OP(vi, vi_shift_right_23, (vi a), _mm512_srai_epi32(a, 23))
LS_SIMD_OP(vi, vi_shift_right_4, (vi a), _mm512_srai_epi32(a, 4))
LS_SIMD_OP(vi, vi_shift_left_16, (vi a), _mm512_slli_epi32(a, 16))
LS_SIMD_OP(vi, vi_load_u8, (const uint8_t *p),
           _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)))
LS_SIMD_OP(vi, vi_load_s8, (const uint8_t *p),
           _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)))
LS_SIMD_OP(vi, vi_load_u16, (const uint16_t *p),
           _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)))
LS_SIMD_OP(vf, vf_lookup, (vf table, vi index), _mm512_permutexvar_ps(index, table))
LS_SIMD_OP(vf, vi_to_vf, (vi a), _mm512_cvtepi32_ps(a))
LS_SIMD_OP(vi, vf_bits, (vf a), _mm512_castps_si512(a))
LS_SIMD_OP(vf, vf_from_bits, (vi a), _mm512_castsi512_ps(a))
LS_SIMD_OP(vd, vd_zero, (void), _mm512_setzero_pd())
LS_SIMD_OP(vd, vd_low, (vf a), _mm512_cvtps_pd(_mm512_castps512_ps256(a)))
LS_SIMD_OP(vd, vd_high, (vf a),
           _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1))))
LS_SIMD_OP(vd, vd_add, (vd a, vd b), _mm512_add_pd(a, b))
LS_SIMD_OP(vd, vd_fma, (vd a, vd b, vd c), _mm512_fmadd_pd(a, b, c))

LS_SIMD double vd_sum(vd a)
{
    const __m256d s4 = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

#endif
