// SPDX-License-Identifier: Apache-2.0
/*
 * Plain loops over integers and single IEEE operations, which the compiler turns into vectors of
 * each instruction set: none of them depends on an order of additions, so the bits are the same.
 * Magnitudes are compared as the integers that their bits are.
 */
#include "compute/cpu/isa/compress.h"

#include "base/half.h"
#include "compute/cpu/simd/simd.h"

#include <string.h>

extern const ls_compress_kernels LS_ISA_NAME(ls_compress_kernels);

enum { MAGNITUDE = 0x7fffffff, EXPONENT = 1 << 23, BLOCK = LS_COMPRESSION_BLOCK };

static int32_t bits_of(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int32_t top_magnitude(const float *x, int64_t count)
{
    int32_t top = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t bits = bits_of(x[i]) & MAGNITUDE;
        top = bits > top ? bits : top;
    }
    return top;
}

/* Stores x minus `kept` to rest and `kept` to x. */
static void settle(float *x, const float *kept, int64_t count, float *rest)
{
    for (int64_t i = 0; i < count && rest; i++) {
        rest[i] = x[i] - kept[i];
    }
    memcpy(x, kept, (size_t)count * sizeof *x);
}

/* ---- bf16 ---- */

static void pack_bf16(float *x, int64_t count, unsigned char *packed, float *rest)
{
    uint16_t codes[BLOCK];
    float kept[BLOCK];
    for (int64_t i = 0; i < count; i++) {
        codes[i] = ls_bf16_from_f32(x[i]);
        kept[i] = float_of((int32_t)((uint32_t)codes[i] << 16));
    }
    memcpy(packed, codes, (size_t)count * sizeof *codes);
    settle(x, kept, count, rest);
}

static void unpack_bf16(const unsigned char *packed, int64_t count, float *x)
{
    uint16_t codes[BLOCK];
    memcpy(codes, packed, (size_t)count * sizeof *codes);
    for (int64_t i = 0; i < count; i++) {
        x[i] = float_of((int32_t)((uint32_t)codes[i] << 16));
    }
}

/* ---- int8 and int4 ---- */

/* Adding this rounds to an integer, ties to even, that is in the low bits then. */
static const float ROUNDER = 0x1.8p23f;

/*
 * Codes of numbers with one scale. A largest magnitude below 2^-100 counts as zero, because its
 * reciprocal is not finite; the residual keeps such numbers. One that is not finite gives a scale
 * that is not, and with it all numbers.
 */
static float pack_scaled(float *x, int64_t count, float levels, int8_t *codes, float *rest)
{
    enum { TINY = (127 - 100) * EXPONENT };
    const int32_t top = top_magnitude(x, count);
    const float scale = top < TINY ? 0.0f : float_of(top) / levels;
    const float inverse = top < TINY ? 0.0f : levels / float_of(top);
    float kept[LS_INT8_BLOCK];
    for (int64_t i = 0; i < count; i++) {
        const int32_t code = bits_of(x[i] * inverse + ROUNDER) - bits_of(ROUNDER);
        codes[i] = (int8_t)code;
        kept[i] = (float)codes[i] * scale;
    }
    settle(x, kept, count, rest);
    return scale;
}

static void pack_int8(float *x, int64_t count, unsigned char *packed, float *rest)
{
    unsigned char *codes = packed + (count + LS_INT8_BLOCK - 1) / LS_INT8_BLOCK * (int64_t)sizeof(float);
    for (int64_t at = 0; at < count; at += LS_INT8_BLOCK) {
        const int64_t part = count - at < LS_INT8_BLOCK ? count - at : LS_INT8_BLOCK;
        int8_t block[LS_INT8_BLOCK];
        const float scale = pack_scaled(x + at, part, 127.0f, block, rest ? rest + at : NULL);
        memcpy(packed, &scale, sizeof scale);
        packed += sizeof scale;
        memcpy(codes + at, block, (size_t)part);
    }
}

static void unpack_int8(const unsigned char *packed, int64_t count, float *x)
{
    const unsigned char *codes =
        packed + (count + LS_INT8_BLOCK - 1) / LS_INT8_BLOCK * (int64_t)sizeof(float);
    for (int64_t at = 0; at < count; at += LS_INT8_BLOCK) {
        const int64_t past = count - at < LS_INT8_BLOCK ? count : at + LS_INT8_BLOCK;
        float scale;
        memcpy(&scale, packed, sizeof scale);
        packed += sizeof scale;
        for (int64_t i = at; i < past; i++) {
            x[i] = (float)(int8_t)codes[i] * scale;
        }
    }
}

/* Number 2 i is in the low half of byte i. */
static void pack_int4(float *x, int64_t count, unsigned char *packed, float *rest)
{
    unsigned char *codes = packed + (count + LS_INT4_BLOCK - 1) / LS_INT4_BLOCK * (int64_t)sizeof(float);
    for (int64_t at = 0; at < count; at += LS_INT4_BLOCK) {
        const int64_t part = count - at < LS_INT4_BLOCK ? count - at : LS_INT4_BLOCK;
        int8_t block[LS_INT4_BLOCK + 1] = {0};
        const float scale = pack_scaled(x + at, part, 7.0f, block, rest ? rest + at : NULL);
        memcpy(packed, &scale, sizeof scale);
        packed += sizeof scale;
        for (int64_t i = 0; i < part; i += 2) {
            codes[(at + i) / 2] = (unsigned char)((block[i] & 15) | (block[i + 1] & 15) << 4);
        }
    }
}

static void unpack_int4(const unsigned char *packed, int64_t count, float *x)
{
    const unsigned char *codes =
        packed + (count + LS_INT4_BLOCK - 1) / LS_INT4_BLOCK * (int64_t)sizeof(float);
    for (int64_t at = 0; at < count; at += LS_INT4_BLOCK) {
        const int64_t past = count - at < LS_INT4_BLOCK ? count : at + LS_INT4_BLOCK;
        float scale;
        memcpy(&scale, packed, sizeof scale);
        packed += sizeof scale;
        for (int64_t i = at; i < past; i++) {
            const int code = codes[i / 2] >> (i % 2 * 4) & 15;
            x[i] = (float)((code ^ 8) - 8) * scale;
        }
    }
}

/* ---- topk ---- */

static int64_t count_from(const int32_t *magnitude, int64_t count, int32_t least)
{
    int32_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        found += magnitude[i] >= least;
    }
    return found;
}

/*
 * A magnitude of which at least `kept` numbers are not below, and of the next larger one fewer; or
 * one of which exactly `kept` are not below. Either gives the same `kept` numbers. Found by halving
 * the interval: each pass is a fast loop, and with numbers that differ about ten are enough.
 * *above_out: how many are above, or `kept`.
 */
static int32_t find_least(const int32_t *magnitude, int64_t count, int64_t kept, int64_t *above_out)
{
    int32_t top = 0;
    for (int64_t i = 0; i < count; i++) {
        top = magnitude[i] > top ? magnitude[i] : top;
    }
    int64_t low = 0, high = (int64_t)top + 1, above = 0;
    int64_t guess = top > 2 * EXPONENT ? top - 2 * EXPONENT : 0; /* a quarter of the largest */
    while (high - low > 1) {
        const int64_t middle = guess > 0 ? guess : low + (high - low) / 2;
        const int64_t found = count_from(magnitude, count, (int32_t)middle);
        guess = 0;
        if (found == kept) {
            *above_out = kept;
            return (int32_t)middle;
        }
        if (found > kept) {
            low = middle;
        } else {
            high = middle;
            above = found;
        }
    }
    *above_out = above;
    return (int32_t)low;
}

/* Writes the positions of the `kept` largest numbers, in order. */
static void choose(const float *x, int64_t count, int64_t kept, uint16_t *positions)
{
    int32_t magnitude[BLOCK];
    for (int64_t i = 0; i < count; i++) {
        magnitude[i] = bits_of(x[i]) & MAGNITUDE;
    }
    int64_t above = 0, n = 0;
    const int32_t least = find_least(magnitude, count, kept, &above);
    uint16_t found[BLOCK + 1];
    if (above == kept) {
        for (int64_t i = 0; i < count; i++) {
            found[n] = (uint16_t)i;
            n += magnitude[i] >= least;
        }
    } else {
        int64_t equal = kept - above; /* those at the lowest positions */
        for (int64_t i = 0; i < count; i++) {
            const bool fills = magnitude[i] == least && equal > 0;
            found[n] = (uint16_t)i;
            n += magnitude[i] > least || fills;
            equal -= fills;
        }
    }
    memcpy(positions, found, (size_t)kept * sizeof *positions);
}

static void pack_positions(const uint16_t *positions, uint32_t kept, uint32_t count, unsigned char *packed)
{
    const ls_positions_code code = ls_positions_code_of(kept, count);
    unsigned char *high = packed + code.low_bytes;
    memset(packed, 0, code.low_bytes + (size_t)code.high_bytes);
    for (uint32_t j = 0; j < kept; j++) {
        const uint32_t bit = code.is_bitmap ? positions[j] : (uint32_t)(positions[j] >> code.low_bits) + j;
        high[bit / 8] |= (unsigned char)(1u << bit % 8);
        for (uint32_t b = 0; b < code.low_bits; b++) {
            const uint32_t at = j * code.low_bits + b;
            packed[at / 8] |= (unsigned char)((positions[j] >> b & 1u) << at % 8);
        }
    }
}

/* Positions that a damaged code would put outside become the last one. */
static void unpack_positions(const unsigned char *packed, uint32_t kept, uint32_t count, uint16_t *positions)
{
    const ls_positions_code code = ls_positions_code_of(kept, count);
    const unsigned char *high = packed + code.low_bytes;
    uint32_t j = 0;
    for (uint32_t bit = 0; bit < code.high_bytes * 8 && j < kept; bit++) {
        if (!(high[bit / 8] >> bit % 8 & 1)) {
            continue;
        }
        uint32_t low = 0;
        for (uint32_t b = 0; b < code.low_bits; b++) {
            const uint32_t at = j * code.low_bits + b;
            low |= (uint32_t)(packed[at / 8] >> at % 8 & 1) << b;
        }
        const uint32_t position = code.is_bitmap ? bit : (bit - j) << code.low_bits | low;
        positions[j++] = (uint16_t)(position < count ? position : count - 1);
    }
    while (j < kept) {
        positions[j++] = (uint16_t)(count - 1);
    }
}

static void pack_topk(uint32_t kept, float *x, int64_t count, unsigned char *packed, float *rest)
{
    uint16_t positions[LS_COMPRESSION_KEEP_MAX], codes[LS_COMPRESSION_KEEP_MAX];
    choose(x, count, kept, positions);
    for (uint32_t j = 0; j < kept; j++) {
        codes[j] = ls_bf16_from_f32(x[positions[j]]);
    }
    if (rest) {
        memcpy(rest, x, (size_t)count * sizeof *rest);
    }
    memset(x, 0, (size_t)count * sizeof *x);
    for (uint32_t j = 0; j < kept; j++) {
        const float value = float_of((int32_t)((uint32_t)codes[j] << 16));
        x[positions[j]] = value;
        if (rest) {
            rest[positions[j]] -= value;
        }
    }
    memcpy(packed, codes, kept * sizeof *codes);
    pack_positions(positions, kept, (uint32_t)count, packed + kept * sizeof *codes);
}

static void unpack_topk(uint32_t kept, const unsigned char *packed, int64_t count, float *x)
{
    uint16_t positions[LS_COMPRESSION_KEEP_MAX], codes[LS_COMPRESSION_KEEP_MAX];
    memcpy(codes, packed, kept * sizeof *codes);
    unpack_positions(packed + kept * sizeof *codes, kept, (uint32_t)count, positions);
    memset(x, 0, (size_t)count * sizeof *x);
    for (uint32_t j = 0; j < kept; j++) {
        x[positions[j]] = float_of((int32_t)((uint32_t)codes[j] << 16));
    }
}

/* ---- any kind ---- */

static void pack(const ls_compression *c, float *x, int64_t count, unsigned char *packed, float *rest)
{
    switch (c->kind) {
    case LS_COMPRESSION_BF16:
        pack_bf16(x, count, packed, rest);
        break;
    case LS_COMPRESSION_INT8:
        pack_int8(x, count, packed, rest);
        break;
    case LS_COMPRESSION_INT4:
        pack_int4(x, count, packed, rest);
        break;
    case LS_COMPRESSION_TOPK:
        pack_topk(ls_compression_kept(c, (uint32_t)count), x, count, packed, rest);
        break;
    default:
        memcpy(packed, x, (size_t)count * sizeof *x);
        if (rest) {
            memset(rest, 0, (size_t)count * sizeof *rest);
        }
    }
}

static void unpack(const ls_compression *c, const unsigned char *packed, int64_t count, float *x)
{
    switch (c->kind) {
    case LS_COMPRESSION_BF16:
        unpack_bf16(packed, count, x);
        break;
    case LS_COMPRESSION_INT8:
        unpack_int8(packed, count, x);
        break;
    case LS_COMPRESSION_INT4:
        unpack_int4(packed, count, x);
        break;
    case LS_COMPRESSION_TOPK:
        unpack_topk(ls_compression_kept(c, (uint32_t)count), packed, count, x);
        break;
    default:
        memcpy(x, packed, (size_t)count * sizeof *x);
    }
}

const ls_compress_kernels LS_ISA_NAME(ls_compress_kernels) = {.pack = pack, .unpack = unpack};
