// SPDX-License-Identifier: Apache-2.0
/* The K types: the search for scales, and the layout of codes. */
#include "storage/gguf/blocks.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

enum {
    LANES = 8, /* sums are kept in so many parts, which are added up in one order */
    AFFINE_PARTS = 8,
    AFFINE_PART = 32,
    SIGNED_PARTS = 16,
    SIGNED_PART = 16,
    SCALE_MAX = 63,
};

/* Below it, numbers are as good as 0: float16 has nothing smaller than 6e-8. */
static const float TINY = 1e-30f;

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

/* ---- parts with a scale and a minimum: scale q - low ----------------------------------------- */

typedef struct affine {
    float scale, low; /* both >= 0 */
} affine;

typedef struct affine_block {
    const float *x;
    float code_max; /* 15 or 31 */
    float d, dmin;  /* float16 values */
    uint8_t scales[AFFINE_PARTS], lows[AFFINE_PARTS];
} affine_block;

/* The codes of a part: those nearest to (x + low) inverse. */
static void affine_codes(const float *x, float low, float inverse, float code_max, float *codes)
{
    for (int i = 0; i < AFFINE_PART; i++) {
        codes[i] = clamped(nearest((x[i] + low) * inverse), 0.0f, code_max);
    }
}

/* Scale and low for given codes by least squares. Returns by how much the sum of squares of x
 * exceeds that of the errors: x'q scale - x'1 low, because the errors are orthogonal to both. */
static float affine_fit(const float *x, const float *codes, affine *fit)
{
    float sq[LANES] = {0}, sqq[LANES] = {0}, sx[LANES] = {0}, sxq[LANES] = {0};
    for (int i = 0; i < AFFINE_PART; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            const float q = codes[i + l], v = x[i + l];
            sq[l] += q;
            sqq[l] += q * q;
            sx[l] += v;
            sxq[l] += v * q;
        }
    }
    const float q = total(sq), qq = total(sqq), v = total(sx), vq = total(sxq), n = AFFINE_PART;
    const float determinant = n * qq - q * q;
    *fit = (affine){0};
    if (determinant > 0.0f) {
        fit->scale = (n * vq - v * q) / determinant;
        fit->low = (q * vq - qq * v) / determinant;
    }
    if (fit->low < 0.0f || determinant <= 0.0f) {
        fit->low = 0.0f;
        fit->scale = qq > 0.0f ? vq / qq : 0.0f;
    }
    fit->scale = fit->scale > 0.0f ? fit->scale : 0.0f;
    return fit->scale * vq - fit->low * v;
}

static affine affine_search(const float *x, float code_max)
{
    enum { CANDIDATES = 16, ROUNDS = 3 };
    float low = 0.0f, high = x[0], codes[AFFINE_PART];
    for (int i = 0; i < AFFINE_PART; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    affine best = {.low = -low};
    if (high - low < TINY) { /* all numbers are equal and not above 0 */
        return best;
    }
    float gain = -INFINITY;
    for (int i = 0; i < CANDIDATES; i++) {
        affine fit;
        affine_codes(x, -low, (code_max - 1.0f + 0.125f * (float)i) / (high - low), code_max, codes);
        const float now = affine_fit(x, codes, &fit);
        if (now > gain) {
            gain = now;
            best = fit;
        }
    }
    for (int i = 0; i < ROUNDS && best.scale > TINY; i++) {
        affine fit;
        affine_codes(x, best.low, 1.0f / best.scale, code_max, codes);
        const float now = affine_fit(x, codes, &fit);
        if (now <= gain) {
            break;
        }
        gain = now;
        best = fit;
    }
    return best;
}

/* Codes and squared error of a part with the stored scale and low. */
static float affine_error(const float *x, affine stored, float code_max, float *codes)
{
    float error[LANES] = {0};
    affine_codes(x, stored.low, stored.scale > 0.0f ? 1.0f / stored.scale : 0.0f, code_max, codes);
    for (int i = 0; i < AFFINE_PART; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            const float e = stored.scale * codes[i + l] - stored.low - x[i + l];
            error[l] += e * e;
        }
    }
    return total(error);
}

static affine affine_stored(const affine_block *b, int scale, int low)
{
    return (affine){b->d * (float)scale, b->dmin * (float)low};
}

/* Tries the numbers beside the stored scale and low of a part; returns its error. */
static float affine_improve(affine_block *b, int part)
{
    const float *x = b->x + part * AFFINE_PART;
    const int scale = b->scales[part], low = b->lows[part];
    float codes[AFFINE_PART], least = INFINITY;
    for (int s = scale - 1; s <= scale + 1; s++) {
        for (int m = low - 1; m <= low + 1; m++) {
            if (s < 0 || s > SCALE_MAX || m < 0 || m > SCALE_MAX) {
                continue;
            }
            const float error = affine_error(x, affine_stored(b, s, m), b->code_max, codes);
            if (error < least) {
                least = error;
                b->scales[part] = (uint8_t)s;
                b->lows[part] = (uint8_t)m;
            }
        }
    }
    return least;
}

/* d and dmin by least squares, for given codes and scales of all parts. */
static void affine_refit(affine_block *b)
{
    double aa = 0.0, ac = 0.0, cc = 0.0, ax = 0.0, cx = 0.0;
    for (int part = 0; part < AFFINE_PARTS; part++) {
        const float *x = b->x + part * AFFINE_PART;
        float codes[AFFINE_PART], sq[LANES] = {0}, sqq[LANES] = {0}, sx[LANES] = {0}, sxq[LANES] = {0};
        const double s = b->scales[part], m = b->lows[part];
        const affine stored = affine_stored(b, b->scales[part], b->lows[part]);
        affine_codes(x, stored.low, stored.scale > 0.0f ? 1.0f / stored.scale : 0.0f, b->code_max, codes);
        for (int i = 0; i < AFFINE_PART; i++) {
            const float q = codes[i], v = x[i];
            sq[i % LANES] += q;
            sqq[i % LANES] += q * q;
            sx[i % LANES] += v;
            sxq[i % LANES] += v * q;
        }
        aa += s * s * (double)total(sqq);
        ac += s * m * (double)total(sq);
        cc += m * m * AFFINE_PART;
        ax += s * (double)total(sxq);
        cx += m * (double)total(sx);
    }
    const double determinant = aa * cc - ac * ac;
    if (cc == 0.0 && aa > 0.0) {
        b->d = half_of((float)(ax / aa));
    } else if (determinant > 1e-9 * aa * cc) {
        b->d = half_of((float)((ax * cc - ac * cx) / determinant));
        b->dmin = half_of((float)((ac * ax - aa * cx) / determinant));
    }
}

static void affine_block_search(affine_block *b)
{
    enum { ROUNDS = 2 };
    affine parts[AFFINE_PARTS];
    float scale = 0.0f, low = 0.0f, error = 0.0f;
    for (int part = 0; part < AFFINE_PARTS; part++) {
        parts[part] = affine_search(b->x + part * AFFINE_PART, b->code_max);
        scale = parts[part].scale > scale ? parts[part].scale : scale;
        low = parts[part].low > low ? parts[part].low : low;
    }
    b->d = half_of(scale / SCALE_MAX);
    b->dmin = half_of(low / SCALE_MAX);
    for (int part = 0; part < AFFINE_PARTS; part++) {
        const float s = b->d > 0.0f ? nearest(parts[part].scale / b->d) : 0.0f;
        const float m = b->dmin > 0.0f ? nearest(parts[part].low / b->dmin) : 0.0f;
        b->scales[part] = (uint8_t)clamped(s, 0.0f, SCALE_MAX);
        b->lows[part] = (uint8_t)clamped(m, 0.0f, SCALE_MAX);
        error += affine_improve(b, part);
    }
    for (int i = 0; i < ROUNDS; i++) {
        affine_block next = *b;
        float least = 0.0f;
        affine_refit(&next);
        if (!(next.d >= 0.0f && next.dmin >= 0.0f && isfinite(next.d) && isfinite(next.dmin))) {
            break;
        }
        for (int part = 0; part < AFFINE_PARTS; part++) {
            least += affine_improve(&next, part);
        }
        if (least >= error) {
            break;
        }
        error = least;
        *b = next;
    }
}

/* d, dmin, and 12 bytes with 16 numbers of 6 bits: the low 6 bits of bytes 0..7 are scales and lows
 * 0..3, bytes 8..11 have the low 4 bits of 4..7, whose high 2 bits are on top of bytes 0..7. */
static void put_affine_head(const affine_block *b, unsigned char *out)
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

/* Fills d, dmin, scales and lows at `out`, and the codes of all numbers. */
static void encode_affine(const float *x, float code_max, unsigned char *out, uint8_t *codes_out)
{
    affine_block b = {.x = x, .code_max = code_max};
    affine_block_search(&b);
    put_affine_head(&b, out);
    for (int part = 0; part < AFFINE_PARTS; part++) {
        float codes[AFFINE_PART];
        (void)affine_error(x + part * AFFINE_PART, affine_stored(&b, b.scales[part], b.lows[part]), code_max,
                           codes);
        for (int i = 0; i < AFFINE_PART; i++) {
            codes_out[part * AFFINE_PART + i] = (uint8_t)codes[i];
        }
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
    uint8_t codes[LS_BLOCK_MAX];
    encode_affine(x, 15.0f, out, codes);
    put_low_bits(codes, out + 16);
}

void ls_block_encode_q5_k(const float *x, unsigned char *out)
{
    uint8_t codes[LS_BLOCK_MAX];
    encode_affine(x, 31.0f, out, codes);
    /* The fifth bit of number i of part p is bit p of byte i. */
    for (int i = 0; i < AFFINE_PART; i++) {
        unsigned bits = 0;
        for (int part = 0; part < AFFINE_PARTS; part++) {
            bits |= (unsigned)(codes[part * AFFINE_PART + i] >> 4) << part;
        }
        out[16 + i] = (unsigned char)bits;
    }
    put_low_bits(codes, out + 48);
}

/* ---- parts with a signed scale: scale q, q -32..31 ------------------------------------------- */

static void signed_codes(const float *x, float inverse, float *codes)
{
    for (int i = 0; i < SIGNED_PART; i++) {
        codes[i] = clamped(nearest(x[i] * inverse), -32.0f, 31.0f);
    }
}

static void signed_sums(const float *x, const float *codes, float *xq_out, float *qq_out)
{
    float xq[LANES] = {0}, qq[LANES] = {0};
    for (int i = 0; i < SIGNED_PART; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            xq[l] += x[i + l] * codes[i + l];
            qq[l] += codes[i + l] * codes[i + l];
        }
    }
    *xq_out = total(xq);
    *qq_out = total(qq);
}

/* The scale of a part: with the best one, the squared error is less than the sum of squares by
 * (x'q)^2 / q'q. */
static float signed_search(const float *x)
{
    enum { CANDIDATES = 19, ROUNDS = 2 };
    float largest = 0.0f, codes[SIGNED_PART], gain = 0.0f, scale = 0.0f, xq, qq;
    for (int i = 0; i < SIGNED_PART; i++) {
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    }
    for (int i = 0; i < CANDIDATES && fabsf(largest) > TINY; i++) {
        signed_codes(x, -(31.1f + 0.1f * (float)i) / largest, codes);
        signed_sums(x, codes, &xq, &qq);
        if (qq > 0.0f && xq * xq > gain * qq) {
            gain = xq * xq / qq;
            scale = xq / qq;
        }
    }
    for (int i = 0; i < ROUNDS && fabsf(scale) > TINY; i++) {
        signed_codes(x, 1.0f / scale, codes);
        signed_sums(x, codes, &xq, &qq);
        if (qq > 0.0f && xq * xq > gain * qq) {
            gain = xq * xq / qq;
            scale = xq / qq;
        }
    }
    return scale;
}

/* Codes and squared error of a part with the stored scale. */
static float signed_error(const float *x, float stored, float *codes)
{
    float error[LANES] = {0};
    signed_codes(x, stored != 0.0f ? 1.0f / stored : 0.0f, codes);
    for (int i = 0; i < SIGNED_PART; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            const float e = stored * codes[i + l] - x[i + l];
            error[l] += e * e;
        }
    }
    return total(error);
}

typedef struct signed_block {
    const float *x;
    float d;
    int8_t scales[SIGNED_PARTS];
} signed_block;

static float signed_improve(signed_block *b, int part)
{
    const float *x = b->x + part * SIGNED_PART;
    const int scale = b->scales[part];
    float codes[SIGNED_PART], least = INFINITY;
    for (int s = scale - 1; s <= scale + 1; s++) {
        const float error = s < -128 || s > 127 ? INFINITY : signed_error(x, b->d * (float)s, codes);
        if (error < least) {
            least = error;
            b->scales[part] = (int8_t)s;
        }
    }
    return least;
}

static void signed_refit(signed_block *b)
{
    double ax = 0.0, aa = 0.0;
    for (int part = 0; part < SIGNED_PARTS; part++) {
        const float *x = b->x + part * SIGNED_PART, s = b->scales[part];
        float codes[SIGNED_PART], xq, qq;
        (void)signed_error(x, b->d * s, codes);
        signed_sums(x, codes, &xq, &qq);
        ax += (double)(s * xq);
        aa += (double)(s * s * qq);
    }
    b->d = aa > 0.0 ? half_of((float)(ax / aa)) : b->d;
}

static void signed_block_search(signed_block *b)
{
    enum { ROUNDS = 2 };
    float scales[SIGNED_PARTS], largest = 0.0f, error = 0.0f;
    for (int part = 0; part < SIGNED_PARTS; part++) {
        scales[part] = signed_search(b->x + part * SIGNED_PART);
        largest = fabsf(scales[part]) > fabsf(largest) ? scales[part] : largest;
    }
    b->d = half_of(largest / -128.0f);
    for (int part = 0; part < SIGNED_PARTS; part++) {
        const float s = b->d != 0.0f ? nearest(scales[part] / b->d) : 0.0f;
        b->scales[part] = (int8_t)clamped(s, -128.0f, 127.0f);
        error += signed_improve(b, part);
    }
    for (int i = 0; i < ROUNDS; i++) {
        signed_block next = *b;
        float least = 0.0f;
        signed_refit(&next);
        for (int part = 0; part < SIGNED_PARTS; part++) {
            least += signed_improve(&next, part);
        }
        if (!(least < error)) {
            break;
        }
        error = least;
        *b = next;
    }
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
    signed_block b = {.x = x};
    uint8_t codes[LS_BLOCK_MAX];
    signed_block_search(&b);
    for (int part = 0; part < SIGNED_PARTS; part++) {
        float found[SIGNED_PART];
        (void)signed_error(x + part * SIGNED_PART, b.d * (float)b.scales[part], found);
        for (int i = 0; i < SIGNED_PART; i++) {
            codes[part * SIGNED_PART + i] = (uint8_t)(int)(found[i] + 32.0f);
        }
    }
    const uint16_t d = ls_f16_from_f32(b.d);
    put_six_bits(codes, out);
    memcpy(out + 192, b.scales, sizeof b.scales);
    memcpy(out + 208, &d, sizeof d);
}
