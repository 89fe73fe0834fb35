// SPDX-License-Identifier: Apache-2.0
#include "base/sha256_ni.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#define SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))
#define SHA_INLINE SHA_TARGET __attribute__((always_inline)) static inline

static const uint32_t ROUND_CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* State of one message: the eight words in the order the instructions need (A B E F, C D G H),
 * and sixteen words of its schedule. */
typedef struct sha_lane {
    __m128i abef, cdgh;
    __m128i w[4];
} sha_lane;

SHA_INLINE sha_lane lane_from(const uint32_t words[8])
{
    const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)words), 0xb1);
    const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(words + 4)), 0x1b);
    return (sha_lane){.abef = _mm_alignr_epi8(badc, hgfe, 8), .cdgh = _mm_blend_epi16(hgfe, badc, 0xf0)};
}

SHA_INLINE void lane_to(const sha_lane *lane, uint32_t words[8])
{
    const __m128i feba = _mm_shuffle_epi32(lane->abef, 0x1b), dchg = _mm_shuffle_epi32(lane->cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)words, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(words + 4), _mm_alignr_epi8(dchg, feba, 8));
}

/* The message is big-endian. */
SHA_INLINE void lane_load(sha_lane *lane, const unsigned char *data)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    for (int i = 0; i < 4; i++) {
        lane->w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
    }
}

/* Rounds 4 * quarter to 4 * quarter + 3, and the four words of the schedule that come sixteen
 * rounds later. */
SHA_INLINE void lane_rounds(sha_lane *lane, int quarter)
{
    const __m128i now = lane->w[quarter & 3], last = lane->w[(quarter + 3) & 3];
    __m128i wk = _mm_add_epi32(now, _mm_loadu_si128((const __m128i *)&ROUND_CONSTANTS[4 * quarter]));
    lane->cdgh = _mm_sha256rnds2_epu32(lane->cdgh, lane->abef, wk);
    wk = _mm_shuffle_epi32(wk, 0x0e);
    lane->abef = _mm_sha256rnds2_epu32(lane->abef, lane->cdgh, wk);
    if (quarter < 12) {
        const __m128i w7 = _mm_alignr_epi8(last, lane->w[(quarter + 2) & 3], 4);
        const __m128i w16 = _mm_sha256msg1_epu32(now, lane->w[(quarter + 1) & 3]);
        lane->w[quarter & 3] = _mm_sha256msg2_epu32(_mm_add_epi32(w16, w7), last);
    }
}

SHA_INLINE void lane_add(sha_lane *lane, const sha_lane *before)
{
    lane->abef = _mm_add_epi32(lane->abef, before->abef);
    lane->cdgh = _mm_add_epi32(lane->cdgh, before->cdgh);
}

/* Unrolled by hand, so that `quarter` is a constant and the schedule stays in registers. */
#define QUARTERS(DO)                                                                                         \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define ROUNDS_ONE(quarter) lane_rounds(&a, quarter);
#define ROUNDS_TWO(quarter)                                                                                  \
    lane_rounds(&a, quarter);                                                                                \
    lane_rounds(&b, quarter);

SHA_TARGET void ls_sha256_ni_one(uint32_t words[8], const unsigned char *data, size_t blocks)
{
    sha_lane a = lane_from(words);
    for (size_t i = 0; i < blocks; i++) {
        const sha_lane before = a;
        lane_load(&a, data + 64 * i);
        QUARTERS(ROUNDS_ONE)
        lane_add(&a, &before);
    }
    lane_to(&a, words);
}

SHA_TARGET void ls_sha256_ni_two(uint32_t words_a[8], const unsigned char *data_a, uint32_t words_b[8],
                                 const unsigned char *data_b, size_t blocks)
{
    sha_lane a = lane_from(words_a), b = lane_from(words_b);
    for (size_t i = 0; i < blocks; i++) {
        const sha_lane before_a = a, before_b = b;
        lane_load(&a, data_a + 64 * i);
        lane_load(&b, data_b + 64 * i);
        QUARTERS(ROUNDS_TWO)
        lane_add(&a, &before_a);
        lane_add(&b, &before_b);
    }
    lane_to(&a, words_a);
    lane_to(&b, words_b);
}

bool ls_sha256_ni_is_here(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool sha = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
    return sha && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1");
}

#else
#include "base/assert.h"

bool ls_sha256_ni_is_here(void)
{
    return false;
}

void ls_sha256_ni_one(uint32_t words[8], const unsigned char *data, size_t blocks)
{
    (void)words, (void)data, (void)blocks;
    LS_ASSERT(false);
}

void ls_sha256_ni_two(uint32_t words_a[8], const unsigned char *data_a, uint32_t words_b[8],
                      const unsigned char *data_b, size_t blocks)
{
    (void)words_a, (void)data_a, (void)words_b, (void)data_b, (void)blocks;
    LS_ASSERT(false);
}
#endif
