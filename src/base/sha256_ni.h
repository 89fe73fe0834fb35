// SPDX-License-Identifier: Apache-2.0
/*
 * The compression function of SHA-256 (FIPS 180-4, section 6.2) with the x86 SHA extensions, for
 * one message or two side by side.
 *
 * The instruction for two rounds has a latency of four cycles, but one can start every two cycles.
 * A single message, whose rounds depend on each other, leaves half of the unit idle; two
 * independent messages fill it. Measured on Zen 4, per second of one core: OpenSSL 1.72 GB/s, one
 * message 1.79, two 3.5, three 3.3. Private to base/hash.c.
 */
#ifndef LS_BASE_SHA256_NI_H
#define LS_BASE_SHA256_NI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False on other CPUs; then the functions below must not be called. */
bool ls_sha256_ni_is_here(void);

/* `blocks` blocks of 64 bytes into `words`. */
void ls_sha256_ni_one(uint32_t words[8], const unsigned char *data, size_t blocks);
/* The same for two messages at once. */
void ls_sha256_ni_two(uint32_t words_a[8], const unsigned char *data_a, uint32_t words_b[8],
                      const unsigned char *data_b, size_t blocks);

#endif
