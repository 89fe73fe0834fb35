// SPDX-License-Identifier: Apache-2.0
/*
 * Hashes: SHA-256 for identity, CRC32C for blocks read back from disk or wire, xxh3 for cache keys
 * and comparisons.
 *
 * Pure and thread-safe; an ls_sha256 belongs to one thread at a time.
 */
#ifndef LS_BASE_HASH_H
#define LS_BASE_HASH_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_SHA256_BYTES = 32, LS_SHA256_HEX_BYTES = 65 /* 64 digits and the terminating zero */ };

/* Private. On CPUs with SHA instructions our own code runs (base/sha256_ni.h), because it hashes
 * two streams at once twice as fast; on others, OpenSSL's. */
typedef struct ls_sha256 {
    void *context; /* OpenSSL's context; NULL if our own code is used */
    uint32_t words[8];
    uint64_t bytes; /* bytes so far; those after the last multiple of 64 are in tail */
    unsigned char tail[64];
} ls_sha256;

/* Streaming use: init, update any number of times, finish (which releases). */
void ls_sha256_init(ls_sha256 *hash);
void ls_sha256_update(ls_sha256 *hash, const void *data, size_t bytes);
/* Updates two streams, each with its own data: the same digests as two separate updates, in
 * about half the time. */
void ls_sha256_update_two(ls_sha256 *a, const void *data_a, size_t bytes_a, ls_sha256 *b, const void *data_b,
                          size_t bytes_b);
/* Copies a hash in its current state, for an intermediate result; the copy needs its own finish. */
void ls_sha256_copy(ls_sha256 *to, const ls_sha256 *from);
void ls_sha256_finish(ls_sha256 *hash, char hex_out[LS_SHA256_HEX_BYTES]);

/* The digest of `data` in one call. */
void ls_sha256_hex(const void *data, size_t bytes, char hex_out[LS_SHA256_HEX_BYTES]);

/* Whether a text is `digits` hexadecimal digits in lower case. */
bool ls_hash_is_hex(const char *text, size_t digits);

/* MD5 (RFC 1321), for comparing with what servers say; not for identity. */
enum { LS_MD5_HEX_BYTES = 33 };
void ls_md5_hex(const void *data, size_t bytes, char hex_out[LS_MD5_HEX_BYTES]);

/* HMAC-SHA256 (RFC 2104): proves knowledge of `key` without showing it. */
void ls_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    unsigned char out[LS_SHA256_BYTES]);

/* Compares secrets in constant time: the duration does not reveal where they differ. */
bool ls_secret_equal(const void *a, const void *b, size_t bytes);

/* CRC32C (Castagnoli, reflected, as in iSCSI and ext4) of `data`, continuing from `crc` (0 to
 * start). Uses the CPU's instruction if it has one: about 10 to 20 GB/s. */
uint32_t ls_crc32c(uint32_t crc, const void *data, size_t bytes);

/* XXH3, 64 bits. For tables and cache keys on one machine; not for identity. */
uint64_t ls_xxh3(const void *data, size_t bytes, uint64_t seed);

/* XXH3, 128 bits, seed 0: for comparing what two sides computed. */
typedef struct ls_hash128 {
    uint64_t low, high;
} ls_hash128;
ls_hash128 ls_xxh3_128(const void *data, size_t bytes);
bool ls_hash128_equal(ls_hash128 a, ls_hash128 b);

/* 32 digits, high half first as xxh128sum prints it, and the terminating zero. */
enum { LS_HASH128_HEX_BYTES = 33 };
const char *ls_hash128_hex(ls_hash128 hash, char hex_out[LS_HASH128_HEX_BYTES]);

#endif
