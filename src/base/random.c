// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include "base/assert.h"

#include <math.h>

static const uint32_t PHILOX_M0 = 0xD2511F53u, PHILOX_M1 = 0xCD9E8D57u;
static const uint32_t PHILOX_W0 = 0x9E3779B9u, PHILOX_W1 = 0xBB67AE85u;

static ls_random_block philox_round(ls_random_block x, uint32_t key0, uint32_t key1)
{
    const uint64_t product0 = (uint64_t)PHILOX_M0 * x.word[0];
    const uint64_t product1 = (uint64_t)PHILOX_M1 * x.word[2];
    return (ls_random_block){{(uint32_t)(product1 >> 32) ^ x.word[1] ^ key0, (uint32_t)product1,
                              (uint32_t)(product0 >> 32) ^ x.word[3] ^ key1, (uint32_t)product0}};
}

ls_random_block ls_random_at(ls_random_key key, uint64_t index, uint64_t sub)
{
    ls_random_block x = {{(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)sub, (uint32_t)(sub >> 32)}};
    uint32_t key0 = key.word[0], key1 = key.word[1];
    for (int round = 0; round < 10; round++) {
        x = philox_round(x, key0, key1);
        key0 += PHILOX_W0;
        key1 += PHILOX_W1;
    }
    return x;
}

ls_random_key ls_random_stream(uint64_t seed, ls_random_purpose purpose)
{
    /* One Philox call mixes the seed, so that streams of neighbouring seeds and purposes share nothing visible. */
    const ls_random_key key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const ls_random_block block = ls_random_at(key, (uint64_t)purpose, UINT64_MAX);
    return (ls_random_key){{block.word[0], block.word[1]}};
}

uint64_t ls_random_u64(ls_random_key key, uint64_t index, uint64_t sub)
{
    const ls_random_block block = ls_random_at(key, index, sub);
    return (uint64_t)block.word[1] << 32 | block.word[0];
}

float ls_random_uniform(ls_random_key key, uint64_t index, uint64_t sub)
{
    return (float)(ls_random_at(key, index, sub).word[0] >> 8) * 0x1p-24f;
}

double ls_random_uniform64(ls_random_key key, uint64_t index, uint64_t sub)
{
    return (double)(ls_random_u64(key, index, sub) >> 11) * 0x1p-53;
}

uint64_t ls_random_below(ls_random_key key, uint64_t index, uint64_t sub, uint64_t bound)
{
    LS_ASSERT(bound >= 1);
    return (uint64_t)(((unsigned __int128)ls_random_u64(key, index, sub) * bound) >> 64);
}

/* ln(x) for x in (0, 1], by exponent extraction and the atanh series: 2 (z + z^3/3 + ...), z = (m-1)/(m+1). */
static double log_portable(double x)
{
    int exponent = 0;
    double mantissa = frexp(x, &exponent); /* exact in every C library */
    if (mantissa < 0.70710678118654752) {
        mantissa *= 2.0;
        exponent -= 1;
    }
    const double z = (mantissa - 1.0) / (mantissa + 1.0), z2 = z * z;
    double sum = 0.0;
    for (int k = 25; k >= 1; k -= 2) {
        sum = sum * z2 + 1.0 / k;
    }
    return 2.0 * z * sum + exponent * 0.69314718055994531;
}

/* cos(2 pi u) for u in [0, 1), by symmetry to |angle| <= pi/4 and Taylor series. */
static double cos_turn(double u)
{
    const double quarter = u * 4.0;
    const int quadrant = (int)(quarter + 0.5) & 3;
    const double r = (quarter - floor(quarter + 0.5)) * 1.5707963267948966, r2 = r * r;
    double cosine = 1.0, sine = 1.0;
    for (int k = 16; k >= 2; k -= 2) {
        cosine = 1.0 - cosine * r2 / ((k - 1) * k);
        sine = 1.0 - sine * r2 / (k * (k + 1));
    }
    sine *= r;
    switch (quadrant) {
    case 0:
        return cosine;
    case 1:
        return -sine;
    case 2:
        return -cosine;
    default:
        return sine;
    }
}

float ls_random_normal(ls_random_key key, uint64_t index, uint64_t sub)
{
    const ls_random_block block = ls_random_at(key, index, sub);
    const double u = ((double)block.word[0] + 1.0) * 0x1p-32; /* (0, 1] */
    const double v = (double)block.word[1] * 0x1p-32;         /* [0, 1) */
    return (float)(sqrt(-2.0 * log_portable(u)) * cos_turn(v));
}
