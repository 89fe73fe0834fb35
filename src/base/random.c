// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include "base/assert.h"

#include <math.h>
#include <pthread.h>

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
    /* One Philox call mixes the seed, so that streams of neighbouring seeds and purposes are
     * unrelated. */
    const ls_random_key key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const ls_random_block block = ls_random_at(key, (uint64_t)purpose, UINT64_MAX);
    return (ls_random_key){{block.word[0], block.word[1]}};
}

uint64_t ls_random_u64(ls_random_key key, uint64_t index, uint64_t sub)
{
    const ls_random_block block = ls_random_at(key, index, sub);
    return (uint64_t)block.word[1] << 32 | block.word[0];
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

/* ---- normals ---- */

/*
 * Logarithm, sine and cosine from tables of 256 points and short series around them: additions,
 * multiplications and two divisions, so that every machine and C library gives the same bits.
 */
enum { TABLE_BITS = 8, TABLE_SIZE = 1 << TABLE_BITS };
/* ln of the middle of cell c of [1, 2) */
static double log_table[TABLE_SIZE];
static double inverse_table[TABLE_SIZE]; /* 1 / that middle */
/* of the middle of cell c of a full turn */
static double cosine_table[TABLE_SIZE], sine_table[TABLE_SIZE];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static const double LN2 = 0.69314718055994531, PI = 3.14159265358979324;

/* ln(x) for x in [1, 2]: 2 (z + z^3/3 + ...), z = (x-1)/(x+1). */
static double log_series(double x)
{
    const double z = (x - 1.0) / (x + 1.0), z2 = z * z;
    double sum = 0.0;
    for (int k = 35; k >= 1; k -= 2) {
        sum = sum * z2 + 1.0 / k;
    }
    return 2.0 * z * sum;
}

static void sine_cosine_series(double angle, double *sine_out, double *cosine_out)
{
    const double a2 = angle * angle;
    double cosine = 1.0, sine = 1.0;
    for (int k = 30; k >= 2; k -= 2) {
        cosine = 1.0 - cosine * a2 / ((k - 1) * k);
        sine = 1.0 - sine * a2 / (k * (k + 1));
    }
    *sine_out = sine * angle;
    *cosine_out = cosine;
}

static void tables_init(void)
{
    for (int c = 0; c < TABLE_SIZE; c++) {
        const double middle = 1.0 + (c + 0.5) / TABLE_SIZE;
        log_table[c] = log_series(middle);
        inverse_table[c] = 1.0 / middle;
        sine_cosine_series(2.0 * PI * (c + 0.5) / TABLE_SIZE - PI, &sine_table[c], &cosine_table[c]);
    }
}

/* ln(n / 2^32) for n in 1..2^32. */
static double log_unit(uint64_t n)
{
    const int exponent = 63 - __builtin_clzll(n);
    const uint64_t mantissa = n << (52 - exponent); /* 1.xxx with 52 bits after the point */
    const unsigned cell = (unsigned)(mantissa >> (52 - TABLE_BITS)) & (TABLE_SIZE - 1);
    const double x = (double)mantissa * 0x1p-52;
    const double r = x * inverse_table[cell] - 1.0; /* |r| <= 2^-9 */
    const double series = r * (1.0 - r * (0.5 - r * (1.0 / 3.0 - r * (0.25 - r * 0.2))));
    return (exponent - 32) * LN2 + log_table[cell] + series;
}

/* Two normals from two words (Box and Muller, 1958): sqrt(-2 ln u) times cosine and sine of a
 * uniform angle. */
static void normal_pair(uint32_t word_u, uint32_t word_v, float out[2])
{
    const double radius = sqrt(-2.0 * log_unit((uint64_t)word_u + 1));
    const unsigned cell = word_v >> (32 - TABLE_BITS);
    /* of a cell */
    const double inside = (double)(word_v & ((1u << (32 - TABLE_BITS)) - 1)) * 0x1p-24 - 0.5;
    const double a = inside * (2.0 * PI / TABLE_SIZE), a2 = a * a; /* |a| <= 0.0123 */
    const double sine = a * (1.0 - a2 * (1.0 / 6.0 - a2 * (1.0 / 120.0)));
    const double cosine = 1.0 - a2 * (0.5 - a2 * (1.0 / 24.0 - a2 * (1.0 / 720.0)));
    out[0] = (float)(radius * (cosine_table[cell] * cosine - sine_table[cell] * sine));
    out[1] = (float)(radius * (sine_table[cell] * cosine + cosine_table[cell] * sine));
}

static void normal_block(ls_random_key key, uint64_t block, uint64_t sub, float out[4])
{
    const ls_random_block b = ls_random_at(key, block, sub);
    normal_pair(b.word[0], b.word[1], out);
    normal_pair(b.word[2], b.word[3], out + 2);
}

void ls_random_normals(ls_random_key key, uint64_t first, uint64_t sub, size_t count, float *out)
{
    pthread_once(&tables_once, tables_init);
    for (size_t i = 0; i < count;) {
        float four[4];
        const uint64_t index = first + i;
        normal_block(key, index / 4, sub, four);
        for (unsigned lane = (unsigned)(index % 4); lane < 4 && i < count; lane++, i++) {
            out[i] = four[lane];
        }
    }
}

float ls_random_normal(ls_random_key key, uint64_t index, uint64_t sub)
{
    float value = 0.0f;
    ls_random_normals(key, index, sub, 1, &value);
    return value;
}
