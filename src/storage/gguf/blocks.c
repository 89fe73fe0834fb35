// SPDX-License-Identifier: Apache-2.0
#include "storage/gguf/blocks.h"

#include "base/assert.h"
#include "base/half.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { SMALL = 32 };

static void put_half(float value, unsigned char *out)
{
    const uint16_t half = ls_f16_from_f32(value);
    memcpy(out, &half, sizeof half);
}

static float reciprocal(float value)
{
    return value != 0.0f ? 1.0f / value : 0.0f;
}

/* Nearest, halves away from zero, as the definition has it. */
static float round_away(float value)
{
    const float magnitude = fabsf(value), whole = (float)(int)magnitude;
    return copysignf(whole + (float)(int)(2.0f * (magnitude - whole)), value);
}

static void encode_q8_0(const float *x, unsigned char *out)
{
    float largest = 0.0f;
    for (int i = 0; i < SMALL; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
    }
    const float d = largest / 127.0f, inverse = reciprocal(d);
    put_half(d, out);
    for (int i = 0; i < SMALL; i++) {
        out[2 + i] = (unsigned char)(int8_t)round_away(x[i] * inverse);
    }
}

/* Codes 0..31: four bits of numbers i and i + 16 in a byte, the fifth bits in 32 bits before. */
static void put_five_bits(const uint8_t *codes, unsigned char *out)
{
    uint32_t high = 0;
    for (int i = 0; i < SMALL; i++) {
        high |= (uint32_t)(codes[i] >> 4) << i;
    }
    memcpy(out, &high, sizeof high);
    for (int i = 0; i < SMALL / 2; i++) {
        out[4 + i] = (unsigned char)((codes[i] & 15) | (codes[i + SMALL / 2] & 15) << 4);
    }
}

static void code_five_bits(const float *x, float offset, float inverse, float half, uint8_t *codes)
{
    for (int i = 0; i < SMALL; i++) {
        const int code = (int)((x[i] - offset) * inverse + half);
        codes[i] = (uint8_t)(code > 31 ? 31 : code);
    }
}

static void encode_q5_0(const float *x, unsigned char *out)
{
    float largest = 0.0f;
    uint8_t codes[SMALL];
    for (int i = 0; i < SMALL; i++) {
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    }
    const float d = largest / -16.0f;
    put_half(d, out);
    code_five_bits(x, 0.0f, reciprocal(d), 16.5f, codes);
    put_five_bits(codes, out + 2);
}

static void encode_q5_1(const float *x, unsigned char *out)
{
    float low = x[0], high = x[0];
    uint8_t codes[SMALL];
    for (int i = 1; i < SMALL; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    const float d = (high - low) / 31.0f;
    put_half(d, out);
    put_half(low, out + 2);
    code_five_bits(x, low, reciprocal(d), 0.5f, codes);
    put_five_bits(codes, out + 4);
}

static void encode_f16(const float *x, unsigned char *out)
{
    put_half(*x, out);
}

static void encode_bf16(const float *x, unsigned char *out)
{
    const uint16_t half = ls_bf16_from_f32(*x);
    memcpy(out, &half, sizeof half);
}

static void encode_f32(const float *x, unsigned char *out)
{
    memcpy(out, x, sizeof *x);
}

/* ---- all types ---- */

typedef struct kind {
    ls_block_type type;
    const char *name;
    uint32_t elements, bytes;
    float limit;
    void (*encode)(const float *x, unsigned char *out); /* one block */
} kind;

/* A scale of float16 is at most 65504, and the code of the largest number at least 15. */
static const kind kinds[] = {
    {LS_BLOCK_F32, "F32", 1, 4, 3.4028234e38f, encode_f32},
    {LS_BLOCK_F16, "F16", 1, 2, 65504.0f, encode_f16},
    {LS_BLOCK_BF16, "BF16", 1, 2, 3.3895314e38f, encode_bf16},
    {LS_BLOCK_Q8_0, "Q8_0", SMALL, 34, 65504.0f * 127.0f, encode_q8_0},
    {LS_BLOCK_Q5_0, "Q5_0", SMALL, 22, 65504.0f * 16.0f, encode_q5_0},
    {LS_BLOCK_Q5_1, "Q5_1", SMALL, 24, 65504.0f, encode_q5_1},
    {LS_BLOCK_Q4_K, "Q4_K", LS_BLOCK_MAX, 144, 65504.0f * 15.0f, ls_block_encode_q4_k},
    {LS_BLOCK_Q5_K, "Q5_K", LS_BLOCK_MAX, 176, 65504.0f * 15.0f, ls_block_encode_q5_k},
    {LS_BLOCK_Q6_K, "Q6_K", LS_BLOCK_MAX, 210, 65504.0f * 15.0f, ls_block_encode_q6_k},
};

static const kind *kind_of(ls_block_type type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].type == type) {
            return &kinds[i];
        }
    }
    LS_ASSERT(false && "unknown type of block");
    return NULL;
}

const char *ls_block_name(ls_block_type type)
{
    return kind_of(type)->name;
}

uint32_t ls_block_elements(ls_block_type type)
{
    return kind_of(type)->elements;
}

uint64_t ls_block_row_bytes(ls_block_type type, uint64_t cols)
{
    const kind *k = kind_of(type);
    LS_ASSERT(cols % k->elements == 0);
    return cols / k->elements * k->bytes;
}

float ls_block_limit(ls_block_type type)
{
    return kind_of(type)->limit;
}

void ls_block_encode(ls_block_type type, const float *row, uint64_t cols, unsigned char *out)
{
    const kind *k = kind_of(type);
    LS_ASSERT(cols % k->elements == 0);
    for (uint64_t at = 0; at < cols; at += k->elements, out += k->bytes) {
        k->encode(row + at, out);
    }
}
