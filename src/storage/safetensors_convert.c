// SPDX-License-Identifier: Apache-2.0
/* Element conversion between the types of a file and float32, by bits, so that every machine gets the same.
 */
#include "storage/safetensors.h"

#include "base/assert.h"

#include <string.h>

static float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float f32_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 31) { /* infinity and NaN */
        return f32_from_bits(sign | 0x7F800000u | mantissa << 13);
    }
    if (exponent == 0) { /* mantissa * 2^-24, exact in float32 */
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* bits >> shift, rounded to nearest, ties to even. shift: 1 to 31. */
static uint32_t shift_round_even(uint32_t bits, uint32_t shift)
{
    const uint32_t kept = bits >> shift, rest = bits & ((1u << shift) - 1), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

static uint16_t f16_from_f32(float value)
{
    const uint32_t bits = f32_bits(value), magnitude = bits & 0x7FFFFFFFu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7F800000u) { /* NaN: keep the top of its payload, never become infinity */
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
    }
    if (magnitude >=
        0x47800000u) { /* 65536 and more, infinity too; 65520 to 65536 carry into infinity below */
        return sign | 0x7C00u;
    }
    const uint32_t exponent = magnitude >> 23;
    if (exponent >= 113) { /* normal: rebias from 127 to 15; a carry moves into the exponent, as it should */
        return (uint16_t)(sign | shift_round_even(magnitude - (112u << 23), 13));
    }
    if (exponent < 102) { /* below half the smallest subnormal */
        return sign;
    }
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return (uint16_t)(sign | shift_round_even(mantissa, 126 - exponent));
}

static uint16_t bf16_from_f32(float value)
{
    const uint32_t bits = f32_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)shift_round_even(bits, 16);
}

ls_status ls_safetensor_to_f32(const ls_safetensor *tensor, float *out)
{
    const size_t count = (size_t)(tensor->bytes / ls_st_dtype_bytes(tensor->dtype));
    const unsigned char *in = tensor->data;
    if (count == 0) {
        return LS_OK;
    }
    switch (tensor->dtype) {
    case LS_ST_F32:
        memcpy(out, in, count * sizeof *out);
        return LS_OK;
    case LS_ST_BF16:
        for (size_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, in + 2 * i, 2);
            out[i] = f32_from_bits((uint32_t)half << 16);
        }
        return LS_OK;
    case LS_ST_F16:
        for (size_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, in + 2 * i, 2);
            out[i] = f32_from_f16(half);
        }
        return LS_OK;
    case LS_ST_F64:
        for (size_t i = 0; i < count; i++) {
            double wide;
            memcpy(&wide, in + 8 * i, 8);
            out[i] = (float)wide;
        }
        return LS_OK;
    default:
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: tensor %s has type %s, a floating-point type is needed",
                       tensor->path ? tensor->path : "memory", tensor->name, ls_st_dtype_name(tensor->dtype));
    }
}

ls_status ls_safetensor_from_f32(ls_st_dtype dtype, const float *in, size_t count, void *out)
{
    unsigned char *to = out;
    switch (dtype) {
    case LS_ST_F32:
        memcpy(to, in, count * sizeof *in);
        return LS_OK;
    case LS_ST_BF16:
    case LS_ST_F16:
        for (size_t i = 0; i < count; i++) {
            const uint16_t half = dtype == LS_ST_F16 ? f16_from_f32(in[i]) : bf16_from_f32(in[i]);
            memcpy(to + 2 * i, &half, 2);
        }
        return LS_OK;
    case LS_ST_F64:
        for (size_t i = 0; i < count; i++) {
            const double wide = in[i];
            memcpy(to + 8 * i, &wide, 8);
        }
        return LS_OK;
    default:
        return ls_fail(LS_ERR_UNSUPPORTED, "float32 can't be written as %s, allowed are F64 F32 F16 BF16",
                       ls_st_dtype_name(dtype));
    }
}
