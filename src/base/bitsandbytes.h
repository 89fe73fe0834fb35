// SPDX-License-Identifier: Apache-2.0
/*
 * The number formats of bitsandbytes: int8 with a scale for each row, and nf4, 16 levels times a
 * scale for each block of 64 weights. Formulas and sources: compute/kernels/packed.h, which keeps
 * them in an order of its own; here they are as in its files.
 *
 * Pure.
 */
#ifndef LS_BASE_BITSANDBYTES_H
#define LS_BASE_BITSANDBYTES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* Weights that share a scale of nf4. */
    LS_NF4_BLOCK = 64,
    /* Scales that share a nested scale. */
    LS_NF4_NESTED_BLOCK = 256
};

/* The levels of nf4, rising from -1 to 1, and those of its scales, of which the first is -1 in
 * tensors that older versions of bitsandbytes packed on a CPU. */
extern const float ls_nf4_levels[16];
extern const float ls_nf4_scale_levels[256];

static const float ls_int8_unit = 1.0f / 127.0f;

/* A matrix (rows, cols) as a file holds it; arrays of float32 may be unaligned. */
typedef struct ls_bnb_matrix {
    bool nf4; /* else int8 */
    int64_t rows, cols;
    /* int8: one byte each; nf4: two codes in a byte, the even index in the high half. */
    const uint8_t *codes;
    /* Float32: of each row (int8), block, or, with scale codes, nested block. */
    const void *scales;
    /* nf4 with double quantisation: of each block. NULL: none. */
    const uint8_t *scale_codes;
    /* Added to every scale; and the level of scale code 0. */
    float mean, lowest;
} ls_bnb_matrix;

/* The code of a weight: the bits of an int8, or 0 to 15. */
uint8_t ls_bnb_code(const ls_bnb_matrix *matrix, int64_t row, int64_t col);
/* All values in float32, row by row. */
void ls_bnb_values(const ls_bnb_matrix *matrix, float *values_out);

#endif
