// SPDX-License-Identifier: Apache-2.0
/*
 * The K types: the search for scales, and the layout of codes.
 *
 * A block has parts. Each has a scale and, in Q4_K and Q5_K, a low, which are small whole numbers
 * times d and dmin of the block; a number of the part is scale * code - low.
 */
#include "storage/gguf/blocks.h"

#include "base/half.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    LANES = 8, /* sums are kept in so many parts, which are added up in one order */
    PARTS_MAX = 16,
    PART_MAX = 32,
};

/* Below it, numbers are as good as 0: float16 has nothing smaller than 6e-8. */
static const float TINY = 1e-30f;

/* What the parts of a type are. */
typedef struct shape {
    int part;                 /* numbers in each */
    float code_min, code_max; /* of a number */
    int scale_min, scale_max; /* of a part, and of its low */
    bool has_low;
} shape;

static const shape q4_k = {32, 0, 15, 0, 63, true}, q5_k = {32, 0, 31, 0, 63, true},
                   q6_k = {16, -32, 31, -128, 127, false};

/* Scale and low of a part; lows are >= 0, and scales where there are lows. */
typedef struct fit {
    float scale, low;
} fit;

typedef struct block {
    const shape *shape;
    const float *x;
    float d, dmin; /* float16 values */
    int scales[PARTS_MAX], lows[PARTS_MAX];
} block;

/* Nearest, ties to even; |x| < 2^22. */
static inline float nearest(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

static inline float clamped(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

static inline float total(const float *lanes)
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static float half_of(float value)
{
    return ls_f32_from_f16(ls_f16_from_f32(value));
}

/* ---- one part -------------------------------------------------------------------------------- */

/* The codes nearest to (x + low) inverse. */
static void code(const shape *s, const float *x, float low, float inverse, float *codes)
{
    for (int i = 0; i < s->part; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            codes[i + l] = clamped(nearest((x[i + l] + low) * inverse), s->code_min, s->code_max);
        }
    }
}

typedef struct sums {
    float q, qq, v, vq; /* of codes, their squares, numbers, and products of the two */
} sums;

static sums sums_of(const shape *s, const float *x, const float *codes)
{
    float q[LANES] = {0}, qq[LANES] = {0}, v[LANES] = {0}, vq[LANES] = {0};
    for (int i = 0; i < s->part; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            q[l] += codes[i + l];
            qq[l] += codes[i + l] * codes[i + l];
            v[l] += x[i + l];
            vq[l] += x[i + l] * codes[i + l];
        }
    }
    return (sums){total(q), total(qq), total(v), total(vq)};
}

/* Scale and low for given codes by least squares. Returns by how much the sum of squares of x
 * exceeds that of the errors: x'q scale - x'1 low, because the errors are orthogonal to both. */
static float fit_codes(const shape *s, const float *x, const float *codes, fit *best)
{
    const sums t = sums_of(s, x, codes);
    const float n = (float)s->part, determinant = s->has_low ? n * t.qq - t.q * t.q : 0.0f;
    *best = (fit){0};
    if (determinant > 0.0f) {
        best->scale = (n * t.vq - t.v * t.q) / determinant;
        best->low = (t.q * t.vq - t.qq * t.v) / determinant;
    }
    if (best->low < 0.0f || determinant <= 0.0f) {
        best->low = 0.0f;
        best->scale = t.qq > 0.0f ? t.vq / t.qq : 0.0f;
    }
    best->scale = best->scale > 0.0f || !s->has_low ? best->scale : 0.0f;
    return best->scale * t.vq - best->low * t.v;
}

/* The best of several roundings, then of those that follow from the scale found. */
static fit search_part(const shape *s, const float *x)
{
    enum { CANDIDATES = 16, ROUNDS = 3 };
    float low = 0.0f, high = x[0], codes[PART_MAX], gain = -INFINITY;
    for (int i = 0; i < s->part; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    /* without lows, the largest magnitude gets the code of the largest */
    const float range = s->has_low ? high - low : high > -low ? -high : -low;
    fit best = {.low = s->has_low ? -low : 0.0f};
    if (fabsf(range) < TINY) { /* all numbers are equal and not above 0 */
        return best;
    }
    const float start = best.low;
    for (int i = 0; i < CANDIDATES + ROUNDS; i++) {
        fit now;
        if (i < CANDIDATES) {
            code(s, x, start, (s->code_max - 1.0f + 0.15f * (float)i) / range, codes);
        } else if (fabsf(best.scale) > TINY) {
            code(s, x, best.low, 1.0f / best.scale, codes);
        }
        const float gained = fit_codes(s, x, codes, &now);
        if (gained > gain) {
            gain = gained;
            best = now;
        }
    }
    return best;
}

/* ---- a block --------------------------------------------------------------------------------- */

static const float *part_of(const block *b, int part)
{
    return b->x + part * b->shape->part;
}

/* Codes and squared error of a part with the stored scale and low. */
static float error_of(const block *b, int part, int scale, int low, float *codes)
{
    const float *x = part_of(b, part), s = b->d * (float)scale, m = b->dmin * (float)low;
    float error[LANES] = {0};
    code(b->shape, x, m, s != 0.0f ? 1.0f / s : 0.0f, codes);
    for (int i = 0; i < b->shape->part; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            const float e = s * codes[i + l] - m - x[i + l];
            error[l] += e * e;
        }
    }
    return total(error);
}

/* Tries the numbers beside the stored scale and low of a part; returns its error. */
static float improve(block *b, int part)
{
    const shape *s = b->shape;
    const int scale = b->scales[part], low = b->lows[part], beside = s->has_low;
    float codes[PART_MAX], least = INFINITY;
    for (int i = scale - 1; i <= scale + 1; i++) {
        for (int m = low - beside; m <= low + beside; m++) {
            const bool is_inside = i >= s->scale_min && i <= s->scale_max && m >= 0 && m <= s->scale_max;
            const float error = is_inside ? error_of(b, part, i, m, codes) : INFINITY;
            if (error < least) {
                least = error;
                b->scales[part] = i;
                b->lows[part] = m;
            }
        }
    }
    return least;
}

static float improve_all(block *b)
{
    float error = 0.0f;
    for (int part = 0; part < LS_BLOCK_MAX / b->shape->part; part++) {
        error += improve(b, part);
    }
    return error;
}

/* d and dmin by least squares, for given codes and scales of all parts. */
static void refit(block *b)
{
    double aa = 0.0, ac = 0.0, cc = 0.0, ax = 0.0, cx = 0.0;
    for (int part = 0; part < LS_BLOCK_MAX / b->shape->part; part++) {
        const double s = b->scales[part], m = b->lows[part];
        float codes[PART_MAX];
        (void)error_of(b, part, b->scales[part], b->lows[part], codes);
        const sums t = sums_of(b->shape, part_of(b, part), codes);
        aa += s * s * (double)t.qq;
        ac += s * m * (double)t.q;
        cc += m * m * b->shape->part;
        ax += s * (double)t.vq;
        cx += m * (double)t.v;
    }
    const double determinant = aa * cc - ac * ac;
    if (cc == 0.0 && aa > 0.0) {
        b->d = half_of((float)(ax / aa));
    } else if (determinant > 1e-9 * aa * cc) {
        b->d = half_of((float)((ax * cc - ac * cx) / determinant));
        b->dmin = half_of((float)((ac * ax - aa * cx) / determinant));
    }
}

/* Finds d, dmin, scales and lows for b->x, and the codes of all numbers, with those of the least
 * code as 0. */
static void encode(block *b, uint8_t *codes_out)
{
    enum { ROUNDS = 2 };
    const shape *s = b->shape;
    const int parts = LS_BLOCK_MAX / s->part;
    fit fits[PARTS_MAX];
    float scale = 0.0f, low = 0.0f;
    for (int part = 0; part < parts; part++) {
        fits[part] = search_part(s, part_of(b, part));
        scale = fabsf(fits[part].scale) > fabsf(scale) ? fits[part].scale : scale;
        low = fits[part].low > low ? fits[part].low : low;
    }
    b->d = half_of(scale / (float)(s->has_low ? s->scale_max : s->scale_min));
    b->dmin = half_of(low / (float)s->scale_max);
    for (int part = 0; part < parts; part++) {
        const float found = b->d != 0.0f ? nearest(fits[part].scale / b->d) : 0.0f;
        const float least = b->dmin > 0.0f ? nearest(fits[part].low / b->dmin) : 0.0f;
        b->scales[part] = (int)clamped(found, (float)s->scale_min, (float)s->scale_max);
        b->lows[part] = (int)clamped(least, 0.0f, (float)s->scale_max);
    }
    float error = improve_all(b);
    for (int i = 0; i < ROUNDS; i++) {
        block next = *b;
        refit(&next);
        const bool is_valid = isfinite(next.d) && isfinite(next.dmin) && next.dmin >= 0.0f;
        const float now = is_valid && (next.d >= 0.0f || !s->has_low) ? improve_all(&next) : INFINITY;
        if (now >= error) {
            break;
        }
        error = now;
        *b = next;
    }
    for (int part = 0; part < parts; part++) {
        float codes[PART_MAX];
        (void)error_of(b, part, b->scales[part], b->lows[part], codes);
        for (int i = 0; i < s->part; i++) {
            codes_out[part * s->part + i] = (uint8_t)(int)(codes[i] - s->code_min);
        }
    }
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* d, dmin, and 12 bytes with 16 numbers of 6 bits: the low 6 bits of bytes 0..7 are scales and lows
 * 0..3, bytes 8..11 have the low 4 bits of 4..7, whose high 2 bits are on top of bytes 0..7. */
static void put_head(const block *b, unsigned char *out)
{
    const uint16_t d = ls_f16_from_f32(b->d), dmin = ls_f16_from_f32(b->dmin);
    unsigned char *packed = out + 4;
    memcpy(out, &d, sizeof d);
    memcpy(out + 2, &dmin, sizeof dmin);
    for (int i = 0; i < 4; i++) {
        packed[i] = (unsigned char)(b->scales[i] | (b->scales[i + 4] >> 4) << 6);
        packed[i + 4] = (unsigned char)(b->lows[i] | (b->lows[i + 4] >> 4) << 6);
        packed[i + 8] = (unsigned char)((b->scales[i + 4] & 15) | (b->lows[i + 4] & 15) << 4);
    }
}

/* Four bits of parts 2k and 2k + 1 share 32 bytes. */
static void put_low_bits(const uint8_t *codes, unsigned char *out)
{
    for (int at = 0; at < LS_BLOCK_MAX; at += 64) {
        for (int i = 0; i < 32; i++) {
            *out++ = (unsigned char)((codes[at + i] & 15) | (codes[at + 32 + i] & 15) << 4);
        }
    }
}

void ls_block_encode_q4_k(const float *x, unsigned char *out)
{
    block b = {.shape = &q4_k, .x = x};
    uint8_t codes[LS_BLOCK_MAX];
    encode(&b, codes);
    put_head(&b, out);
    put_low_bits(codes, out + 16);
}

void ls_block_encode_q5_k(const float *x, unsigned char *out)
{
    block b = {.shape = &q5_k, .x = x};
    uint8_t codes[LS_BLOCK_MAX];
    encode(&b, codes);
    put_head(&b, out);
    /* The fifth bit of number i of part p is bit p of byte i. */
    for (int i = 0; i < 32; i++) {
        unsigned bits = 0;
        for (int part = 0; part < 8; part++) {
            bits |= (unsigned)(codes[part * 32 + i] >> 4) << part;
        }
        out[16 + i] = (unsigned char)bits;
    }
    put_low_bits(codes, out + 48);
}

/* Of each 128 numbers, i and i + 64 share a byte of four-bit codes (i < 64), and i, i + 32, i + 64
 * and i + 96 one with the two bits above (i < 32). */
static void put_six_bits(const uint8_t *codes, unsigned char *out)
{
    unsigned char *low = out, *high = out + 128;
    for (int at = 0; at < LS_BLOCK_MAX; at += 128, low += 64, high += 32) {
        for (int i = 0; i < 64; i++) {
            low[i] = (unsigned char)((codes[at + i] & 15) | (codes[at + i + 64] & 15) << 4);
        }
        for (int i = 0; i < 32; i++) {
            const uint8_t *c = codes + at + i;
            high[i] = (unsigned char)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
        }
    }
}

void ls_block_encode_q6_k(const float *x, unsigned char *out)
{
    block b = {.shape = &q6_k, .x = x};
    uint8_t codes[LS_BLOCK_MAX];
    encode(&b, codes);
    put_six_bits(codes, out);
    for (int part = 0; part < PARTS_MAX; part++) {
        out[192 + part] = (unsigned char)(int8_t)b.scales[part];
    }
    const uint16_t d = ls_f16_from_f32(b.d);
    memcpy(out + 208, &d, sizeof d);
}
