// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks: how GGUF files store the numbers of a row.
 *
 *   type   block  bytes  value of a number                    source of the scales
 *   F32    1      4      x                                    -
 *   F16    1      2      x                                    nearest, ties to even
 *   BF16   1      2      x                                    nearest, ties to even
 *   Q8_0   32     34     d q               q -127..127        d = max |x| / 127
 *   Q5_0   32     22     d (q - 16)        q 0..31            d = x of largest |x| / -16
 *   Q5_1   32     24     d q + m           q 0..31            d = (max - min) / 31, m = min
 *   Q4_K   256    144    d s q - dmin m    q 0..15            searched
 *   Q5_K   256    176    d s q - dmin m    q 0..31            searched
 *   Q6_K   256    210    d s (q - 32)      q 0..63            searched
 *
 * d, dmin and m of Q5_1 are float16, one per block. The K types cut a block in parts with own
 * scales s and m: 8 parts of 32 with s, m 0..63 (Q4_K, Q5_K), 16 parts of 16 with s -128..127
 * (Q6_K).
 *
 * For the first six types the bytes follow from the definition and equal those of the package gguf.
 * For the K types the format defines how to read a block, not how to choose its numbers. They are
 * searched for the least sum of squared errors: per part, scale and minimum by least squares over
 * several roundings; then the scales of the block by least squares, given what all parts became.
 *
 * Source: ggml-quants.h and ggml-common.h of the project ggml (layouts).
 *
 * Pure; bits depend on nothing but the numbers.
 */
#ifndef LS_STORAGE_GGUF_BLOCKS_H
#define LS_STORAGE_GGUF_BLOCKS_H

#include "base/status.h"

#include <stdint.h>

/* The numbers that stand for the types in a file. */
typedef enum ls_block_type {
    LS_BLOCK_F32 = 0,
    LS_BLOCK_F16 = 1,
    LS_BLOCK_Q5_0 = 6,
    LS_BLOCK_Q5_1 = 7,
    LS_BLOCK_Q8_0 = 8,
    LS_BLOCK_Q4_K = 12,
    LS_BLOCK_Q5_K = 13,
    LS_BLOCK_Q6_K = 14,
    LS_BLOCK_BF16 = 30,
} ls_block_type;

/* Numbers of the largest block. */
enum { LS_BLOCK_MAX = 256 };

/* "Q4_K" */
const char *ls_block_name(ls_block_type type);
/* Numbers per block. */
uint32_t ls_block_elements(ls_block_type type);
/* Bytes of a row of `cols` numbers, a multiple of ls_block_elements. */
uint64_t ls_block_row_bytes(ls_block_type type, uint64_t cols);
/* The largest magnitude that a type can hold; larger numbers must not be encoded. */
float ls_block_limit(ls_block_type type);

/* Encodes `cols` finite numbers, a multiple of ls_block_elements, to ls_block_row_bytes bytes. */
void ls_block_encode(ls_block_type type, const float *row, uint64_t cols, unsigned char *out);

/* Private: one block of 256 of each K type. */
void ls_block_encode_q4_k(const float *x, unsigned char *out);
void ls_block_encode_q5_k(const float *x, unsigned char *out);
void ls_block_encode_q6_k(const float *x, unsigned char *out);

#endif
