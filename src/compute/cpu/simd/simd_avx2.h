// SPDX-License-Identifier: Apache-2.0
/* compute/cpu/simd/simd.h in AVX2 with FMA: two registers per vector. */
#ifndef LS_COMPUTE_CPU_SIMD_SIMD_AVX2_H
#define LS_COMPUTE_CPU_SIMD_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>

typedef struct vf {
    __m256 low, high;
} vf;
typedef struct vi {
    __m256i low, high;
} vi;
typedef struct vd {
    __m256d low, high;
} vd;
typedef struct vm {
    __m256 low, high;
} vm;

LS_SIMD_OP(vf, vf_zero, (void), (vf){_mm256_setzero_ps(), _mm256_setzero_ps()})
LS_SIMD_OP(vf, vf_set, (float x), (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)})
LS_SIMD_OP(vf, vf_load, (const float *p), (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)})

LS_SIMD void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}

LS_SIMD void vf_stream(float *p, vf a)
{
    _mm256_stream_ps(p, a.low);
    _mm256_stream_ps(p + 8, a.high);
}

LS_SIMD void vf_fence(void)
{
    _mm_sfence();
}

LS_SIMD vm vm_first(int64_t count)
{
    const __m256i n = _mm256_set1_epi32((int)count);
    const __m256i low = _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i high = _mm256_cmpgt_epi32(n, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
    return (vm){_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

LS_SIMD vf vf_load_part(const float *p, int64_t count)
{
    const vm m = vm_first(count);
    return (vf){_mm256_maskload_ps(p, _mm256_castps_si256(m.low)),
                _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.high))};
}

LS_SIMD void vf_store_part(float *p, vf a, int64_t count)
{
    const vm m = vm_first(count);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.low), a.low);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.high), a.high);
}

LS_SIMD_OP(vf, vf_add, (vf a, vf b), (vf){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)})
LS_SIMD_OP(vf, vf_sub, (vf a, vf b), (vf){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)})
LS_SIMD_OP(vf, vf_mul, (vf a, vf b), (vf){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)})
LS_SIMD_OP(vf, vf_div, (vf a, vf b), (vf){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)})
LS_SIMD_OP(vf, vf_sqrt, (vf a), (vf){_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)})
LS_SIMD_OP(vf, vf_fma, (vf a, vf b, vf c),
           (vf){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)})
LS_SIMD_OP(vf, vf_fnma, (vf a, vf b, vf c),
           (vf){_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)})
LS_SIMD_OP(vf, vf_max, (vf a, vf b), (vf){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)})
LS_SIMD_OP(vf, vf_min, (vf a, vf b), (vf){_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)})
LS_SIMD_OP(vm, vf_lt, (vf a, vf b),
           (vm){_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)})
LS_SIMD_OP(vm, vf_le, (vf a, vf b),
           (vm){_mm256_cmp_ps(a.low, b.low, _CMP_LE_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LE_OQ)})
LS_SIMD_OP(vm, vm_and, (vm a, vm b), (vm){_mm256_and_ps(a.low, b.low), _mm256_and_ps(a.high, b.high)})
LS_SIMD_OP(vf, vf_select, (vm m, vf yes, vf no),
           (vf){_mm256_blendv_ps(no.low, yes.low, m.low), _mm256_blendv_ps(no.high, yes.high, m.high)})
LS_SIMD_OP(float, vf_lane0, (vf a), _mm256_cvtss_f32(a.low))

LS_SIMD float vf_sum(vf a)
{
    const __m256 s8 = _mm256_add_ps(a.low, a.high);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

LS_SIMD float vf_top(vf a)
{
    const __m256 s8 = _mm256_max_ps(a.low, a.high);
    const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

LS_SIMD_OP(vi, vi_set, (int32_t x), (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)})
LS_SIMD_OP(vi, vi_add, (vi a, vi b), (vi){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)})
LS_SIMD_OP(vi, vi_sub, (vi a, vi b), (vi){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)})
LS_SIMD_OP(vi, vi_shift_left_23, (vi a), (vi){_mm256_slli_epi32(a.low, 23), _mm256_slli_epi32(a.high, 23)})
LS_SIMD_OP(vi, vi_shift_right_23, (vi a), (vi){_mm256_srai_epi32(a.low, 23), _mm256_srai_epi32(a.high, 23)})
LS_SIMD_OP(vi, vi_shift_right_4, (vi a), (vi){_mm256_srai_epi32(a.low, 4), _mm256_srai_epi32(a.high, 4)})
LS_SIMD_OP(vi, vi_shift_left_16, (vi a), (vi){_mm256_slli_epi32(a.low, 16), _mm256_slli_epi32(a.high, 16)})

LS_SIMD vi vi_load_u8(const uint8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vi){_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

LS_SIMD vi vi_load_s8(const uint8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vi){_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}

LS_SIMD_OP(vi, vi_load_u16, (const uint16_t *p),
           (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)),
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))})

/* Bit 3 of the index, moved to the sign, chooses between the halves of the table. */
LS_SIMD_OP(__m256, lookup_half, (vf table, __m256i index),
           _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index),
                            _mm256_permutevar8x32_ps(table.high, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28))))
LS_SIMD_OP(vf, vf_lookup, (vf table, vi index),
           (vf){lookup_half(table, index.low), lookup_half(table, index.high)})
LS_SIMD_OP(vf, vi_to_vf, (vi a), (vf){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)})
LS_SIMD_OP(vi, vf_bits, (vf a), (vi){_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)})
LS_SIMD_OP(vf, vf_from_bits, (vi a), (vf){_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)})
LS_SIMD_OP(vd, vd_zero, (void), (vd){_mm256_setzero_pd(), _mm256_setzero_pd()})
LS_SIMD_OP(vd, vd_low, (vf a),
           (vd){_mm256_cvtps_pd(_mm256_castps256_ps128(a.low)),
                _mm256_cvtps_pd(_mm256_extractf128_ps(a.low, 1))})
LS_SIMD_OP(vd, vd_high, (vf a),
           (vd){_mm256_cvtps_pd(_mm256_castps256_ps128(a.high)),
                _mm256_cvtps_pd(_mm256_extractf128_ps(a.high, 1))})
LS_SIMD_OP(vd, vd_add, (vd a, vd b), (vd){_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)})
LS_SIMD_OP(vd, vd_fma, (vd a, vd b, vd c),
           (vd){_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)})

LS_SIMD double vd_sum(vd a)
{
    const __m256d s4 = _mm256_add_pd(a.low, a.high);
    const __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

#endif
