// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include "base/assert.h"
#include "base/sha256_ni.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

/* ---- SHA-256 ---- */

static pthread_once_t sha_once = PTHREAD_ONCE_INIT;
static bool sha_is_here;

static void sha_look(void)
{
    sha_is_here = ls_sha256_ni_is_here();
}

void ls_sha256_init(ls_sha256 *hash)
{
    pthread_once(&sha_once, sha_look);
    *hash = (ls_sha256){.words = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                  0x1f83d9ab, 0x5be0cd19}};
    if (!sha_is_here) {
        hash->context = EVP_MD_CTX_new();
        LS_ASSERT(hash->context && EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) == 1);
    }
}

/* Fills the tail of a stream from *data; on return *data and *bytes describe the remaining
 * input. Input remains only if the tail is empty then. */
static void fill_tail(ls_sha256 *hash, const unsigned char **data, size_t *bytes)
{
    const size_t filled = hash->bytes % sizeof hash->tail;
    if (filled == 0) {
        return;
    }
    const size_t room = sizeof hash->tail - filled, part = *bytes < room ? *bytes : room;
    memcpy(hash->tail + filled, *data, part);
    hash->bytes += part;
    *data += part;
    *bytes -= part;
    if (part == room) {
        ls_sha256_ni_one(hash->words, hash->tail, 1);
    }
}

/* Hashes whole blocks and stores the rest as the new tail. The old tail must be empty. */
static void run_blocks(ls_sha256 *hash, const unsigned char *data, size_t bytes)
{
    const size_t blocks = bytes / sizeof hash->tail, whole = blocks * sizeof hash->tail;
    if (blocks > 0) {
        ls_sha256_ni_one(hash->words, data, blocks);
    }
    if (bytes > whole) {
        memcpy(hash->tail, data + whole, bytes - whole);
    }
    hash->bytes += bytes;
}

void ls_sha256_update(ls_sha256 *hash, const void *data, size_t bytes)
{
    if (hash->context) {
        LS_ASSERT(EVP_DigestUpdate(hash->context, data, bytes) == 1);
        return;
    }
    const unsigned char *at = data;
    fill_tail(hash, &at, &bytes);
    if (bytes > 0) {
        run_blocks(hash, at, bytes);
    }
}

void ls_sha256_update_two(ls_sha256 *a, const void *data_a, size_t bytes_a, ls_sha256 *b, const void *data_b,
                          size_t bytes_b)
{
    const unsigned char *at_a = data_a, *at_b = data_b;
    if (!a->context) {
        fill_tail(a, &at_a, &bytes_a);
        fill_tail(b, &at_b, &bytes_b);
        const size_t blocks = (bytes_a < bytes_b ? bytes_a : bytes_b) / sizeof a->tail;
        const size_t both = blocks * sizeof a->tail;
        if (blocks > 0) {
            ls_sha256_ni_two(a->words, at_a, b->words, at_b, blocks);
            a->bytes += both;
            b->bytes += both;
            at_a += both;
            at_b += both;
            bytes_a -= both;
            bytes_b -= both;
        }
    }
    ls_sha256_update(a, at_a, bytes_a);
    ls_sha256_update(b, at_b, bytes_b);
}

void ls_sha256_copy(ls_sha256 *to, const ls_sha256 *from)
{
    *to = *from;
    if (from->context) {
        to->context = EVP_MD_CTX_new();
        LS_ASSERT(to->context && EVP_MD_CTX_copy_ex(to->context, from->context) == 1);
    }
}

/* A one bit, zeros, and the length in bits at the end of the last block. */
static void pad(ls_sha256 *hash, unsigned char digest[LS_SHA256_BYTES])
{
    unsigned char end[2 * sizeof hash->tail] = {0};
    const size_t filled = hash->bytes % sizeof hash->tail;
    const size_t blocks = filled < sizeof hash->tail - 8 ? 1 : 2, length_at = blocks * sizeof hash->tail - 8;
    memcpy(end, hash->tail, filled);
    end[filled] = 0x80;
    for (int i = 0; i < 8; i++) {
        end[length_at + (size_t)i] = (unsigned char)(hash->bytes * 8 >> (56 - 8 * i));
    }
    ls_sha256_ni_one(hash->words, end, blocks);
    for (int i = 0; i < LS_SHA256_BYTES; i++) {
        digest[i] = (unsigned char)(hash->words[i / 4] >> (24 - 8 * (i % 4)));
    }
}

static void write_hex(const unsigned char *digest, size_t bytes, char *hex_out)
{
    for (size_t i = 0; i < bytes; i++) {
        hex_out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex_out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    hex_out[2 * bytes] = '\0';
}

void ls_sha256_finish(ls_sha256 *hash, char hex_out[LS_SHA256_HEX_BYTES])
{
    unsigned char digest[LS_SHA256_BYTES];
    if (hash->context) {
        LS_ASSERT(EVP_DigestFinal_ex(hash->context, digest, NULL) == 1);
        EVP_MD_CTX_free(hash->context);
        hash->context = NULL;
    } else {
        pad(hash, digest);
    }
    write_hex(digest, LS_SHA256_BYTES, hex_out);
}

bool ls_hash_is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

void ls_sha256_hex(const void *data, size_t bytes, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, data, bytes);
    ls_sha256_finish(&hash, hex_out);
}

void ls_md5_hex(const void *data, size_t bytes, char hex_out[LS_MD5_HEX_BYTES])
{
    unsigned char digest[(LS_MD5_HEX_BYTES - 1) / 2];
    LS_ASSERT(EVP_Digest(data, bytes, digest, NULL, EVP_md5(), NULL) == 1);
    write_hex(digest, sizeof digest, hex_out);
}

void ls_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    unsigned char out[LS_SHA256_BYTES])
{
    LS_ASSERT(HMAC(EVP_sha256(), key_bytes ? key : "", (int)key_bytes, data, bytes, out, NULL) != NULL);
}

bool ls_secret_equal(const void *a, const void *b, size_t bytes)
{
    return CRYPTO_memcmp(a, b, bytes) == 0;
}

/* x^n mod P over GF(2), reflected, P = 0x82F63B78: the algebra behind combining CRCs. */
static const uint32_t CRC32C_POLYNOMIAL = 0x82F63B78u;

static uint32_t crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        if (a >> bit & 1) {
            product ^= b;
        }
        b = b & 1 ? (b >> 1) ^ CRC32C_POLYNOMIAL : b >> 1;
    }
    return product;
}

static uint32_t crc_shift_factor(uint64_t bytes)
{
    uint32_t result = 0x80000000u; /* x^0 */
    uint32_t square = 0x00800000u; /* x^8: one byte */
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) {
            result = crc_multiply(square, result);
        }
        square = crc_multiply(square, square);
    }
    return result;
}

static uint32_t crc_table[8][256];
static uint32_t crc_lane_shift; /* moves a CRC over CRC_LANE_BYTES */
enum { CRC_LANE_BYTES = 4096 };
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_tables_init(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (crc >> 1) ^ CRC32C_POLYNOMIAL : crc >> 1;
        }
        crc_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++) {
        for (int slice = 1; slice < 8; slice++) {
            const uint32_t previous = crc_table[slice - 1][i];
            crc_table[slice][i] = (previous >> 8) ^ crc_table[0][previous & 255];
        }
    }
    crc_lane_shift = crc_shift_factor(CRC_LANE_BYTES);
}

static uint32_t crc_table_update(uint32_t crc, const unsigned char *data, size_t bytes)
{
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = 0;
        for (int slice = 0; slice < 8; slice++) {
            crc ^= crc_table[7 - slice][word >> (8 * slice) & 255];
        }
    }
    for (; bytes; data++, bytes--) {
        crc = (crc >> 8) ^ crc_table[0][(crc ^ *data) & 255];
    }
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_hardware_update(uint32_t crc, const unsigned char *data,
                                                                      size_t bytes)
{
    /* The instruction has a latency of 3 cycles but can start every cycle, so three lanes run
     * side by side; combining their CRCs is pure algebra (above). */
    while (bytes >= 3 * CRC_LANE_BYTES) {
        uint64_t a = crc, b = 0, c = 0;
        for (size_t i = 0; i < CRC_LANE_BYTES; i += 8) {
            uint64_t word_a, word_b, word_c;
            memcpy(&word_a, data + i, 8);
            memcpy(&word_b, data + CRC_LANE_BYTES + i, 8);
            memcpy(&word_c, data + 2 * CRC_LANE_BYTES + i, 8);
            a = _mm_crc32_u64(a, word_a);
            b = _mm_crc32_u64(b, word_b);
            c = _mm_crc32_u64(c, word_c);
        }
        crc = crc_multiply(crc_lane_shift, (uint32_t)a) ^ (uint32_t)b;
        crc = crc_multiply(crc_lane_shift, crc) ^ (uint32_t)c;
        data += 3 * CRC_LANE_BYTES;
        bytes -= 3 * CRC_LANE_BYTES;
    }
    uint64_t wide = crc;
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes; data++, bytes--) {
        crc = _mm_crc32_u8(crc, *data);
    }
    return crc;
}
#endif

uint32_t ls_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    pthread_once(&crc_once, crc_tables_init);
    crc = ~crc;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2")) {
        return ~crc_hardware_update(crc, data, bytes);
    }
#endif
    return ~crc_table_update(crc, data, bytes);
}

uint64_t ls_xxh3(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

ls_hash128 ls_xxh3_128(const void *data, size_t bytes)
{
    const XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return (ls_hash128){.low = hash.low64, .high = hash.high64};
}

bool ls_hash128_equal(ls_hash128 a, ls_hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

const char *ls_hash128_hex(ls_hash128 hash, char hex_out[LS_HASH128_HEX_BYTES])
{
    snprintf(hex_out, LS_HASH128_HEX_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return hex_out;
}
