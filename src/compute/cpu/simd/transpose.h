// SPDX-License-Identifier: Apache-2.0
/*
 * vf_transpose(rows): 16 rows of 16 floats become 16 columns, in registers; for the sources of
 * compute/cpu/isa/.
 *
 * Moves values only, so every instruction set gives the same bits.
 */
#ifndef LS_COMPUTE_CPU_SIMD_TRANSPOSE_H
#define LS_COMPUTE_CPU_SIMD_TRANSPOSE_H

#include "compute/cpu/simd/simd.h"

#if defined(LS_ISA_avx512)

/* Two stages inside 128-bit lanes (a 4x4 transpose in each), two that move the lanes. */
LS_SIMD void vf_transpose(vf row[16])
{
    vf quad[16];
    for (int i = 0; i < 16; i += 4) {
        const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(row[i], row[i + 1]));
        const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(row[i], row[i + 1]));
        const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(row[i + 2], row[i + 3]));
        const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(row[i + 2], row[i + 3]));
        quad[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
        quad[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
        quad[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
        quad[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
    }
    /* Lane l of quad[4 g + c] holds column 4 l + c of rows 4 g .. 4 g + 3. */
    for (int c = 0; c < 4; c++) {
        const vf even01 = _mm512_shuffle_f32x4(quad[c], quad[4 + c], 0x88);
        const vf odd01 = _mm512_shuffle_f32x4(quad[c], quad[4 + c], 0xdd);
        const vf even23 = _mm512_shuffle_f32x4(quad[8 + c], quad[12 + c], 0x88);
        const vf odd23 = _mm512_shuffle_f32x4(quad[8 + c], quad[12 + c], 0xdd);
        row[c] = _mm512_shuffle_f32x4(even01, even23, 0x88);
        row[4 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
        row[8 + c] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
        row[12 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
    }
}

#elif defined(LS_ISA_avx2)

LS_SIMD void transpose_8x8(__m256 row[8])
{
    __m256 quad[8];
    for (int i = 0; i < 8; i += 4) {
        const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(row[i], row[i + 1]));
        const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(row[i], row[i + 1]));
        const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(row[i + 2], row[i + 3]));
        const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(row[i + 2], row[i + 3]));
        quad[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
        quad[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
        quad[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
        quad[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
    }
    for (int c = 0; c < 4; c++) {
        row[c] = _mm256_permute2f128_ps(quad[c], quad[4 + c], 0x20);
        row[4 + c] = _mm256_permute2f128_ps(quad[c], quad[4 + c], 0x31);
    }
}

/* Four 8x8 quarters; the off-diagonal ones change places. */
LS_SIMD void vf_transpose(vf row[16])
{
    __m256 top_left[8], top_right[8], bottom_left[8], bottom_right[8];
    for (int i = 0; i < 8; i++) {
        top_left[i] = row[i].low;
        top_right[i] = row[i].high;
        bottom_left[i] = row[8 + i].low;
        bottom_right[i] = row[8 + i].high;
    }
    transpose_8x8(top_left);
    transpose_8x8(top_right);
    transpose_8x8(bottom_left);
    transpose_8x8(bottom_right);
    for (int i = 0; i < 8; i++) {
        row[i].low = top_left[i];
        row[i].high = bottom_left[i];
        row[8 + i].low = top_right[i];
        row[8 + i].high = bottom_right[i];
    }
}

#else

LS_SIMD void vf_transpose(vf row[16])
{
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < i; j++) {
            const float kept = row[i].lane[j];
            row[i].lane[j] = row[j].lane[i];
            row[j].lane[i] = kept;
        }
    }
}

#endif

#endif
