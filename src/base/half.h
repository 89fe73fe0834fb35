// SPDX-License-Identifier: Apache-2.0
/*
 * The 16-bit floating-point formats: f16 (IEEE 754 binary16) and bf16 (the upper half of a
 * float32), as bits.
 *
 * Conversion to float32 is exact; conversion from float32 rounds to nearest, ties to even. Values
 * too large for f16 become infinity; NaN stays NaN.
 */
#ifndef LS_BASE_HALF_H
#define LS_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ls_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ls_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ls_f32_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 31) { /* infinity and NaN */
        return ls_f32_from_bits(sign | 0x7F800000u | mantissa << 13);
    }
    if (exponent == 0) { /* mantissa * 2^-24, exact in float32 */
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return ls_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* bits >> shift, rounded to nearest, ties to even. shift: 1 to 31. */
static inline uint32_t ls_shift_round_even(uint32_t bits, uint32_t shift)
{
    const uint32_t kept = bits >> shift, rest = bits & ((1u << shift) - 1), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

static inline uint16_t ls_f16_from_f32(float value)
{
    const uint32_t bits = ls_f32_bits(value), magnitude = bits & 0x7FFFFFFFu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    /* NaN: keep the top bits of its payload, and never turn into infinity */
    if (magnitude > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
    }
    /* 65536 and more, infinity too; 65520 to 65536 carry into infinity below */
    if (magnitude >= 0x47800000u) {
        return sign | 0x7C00u;
    }
    const uint32_t exponent = magnitude >> 23;
    /* normal: rebias from 127 to 15; a carry moves into the exponent, as it should */
    if (exponent >= 113) {
        return (uint16_t)(sign | ls_shift_round_even(magnitude - (112u << 23), 13));
    }
    if (exponent < 102) { /* below half the smallest subnormal */
        return sign;
    }
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return (uint16_t)(sign | ls_shift_round_even(mantissa, 126 - exponent));
}

static inline uint16_t ls_bf16_from_f32(float value)
{
    const uint32_t bits = ls_f32_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)ls_shift_round_even(bits, 16);
}

static inline float ls_f32_from_bf16(uint16_t half)
{
    return ls_f32_from_bits((uint32_t)half << 16);
}

#endif
