// SPDX-License-Identifier: Apache-2.0
/*
 * Packing numbers for slow links, with error feedback, and sums of packed numbers.
 *
 *   term i    x = its sum of buffers + residual;  packed = pack(x);  y_i = unpack(packed)
 *             or, normalised,  x = AdamW's update of m and v with the sum, without lr, + residual
 *             residual' = x - y_i
 *   whole     y = the sum of all y_i in a given order, then the same once more:
 *             x = y + residual;  out = unpack(pack(x));  residual' = x - out
 *
 * What a term loses now comes back in its next sum, so that over time nothing is lost. Source:
 * Seide et al., "1-bit stochastic gradient descent", Interspeech 2014.
 *
 * Everything happens inside blocks of LS_COMPRESSION_BLOCK numbers (base/compression.h has the
 * formats), so any cut at such blocks, any threads and all instruction sets give the same bits.
 * Numbers that are not finite stay so, or make all of their scale's block so. The processor only:
 * a GPU has no kernels for this.
 */
#ifndef LS_COMPUTE_KERNELS_COMPRESS_H
#define LS_COMPUTE_KERNELS_COMPRESS_H

#include "base/compression.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/tree_sum.h"

/* A sum of squares that is the same in whatever order it is added up: 64 bits before the point, 64
 * after it. What is too large stays at the largest number. */
typedef struct ls_exact_sum {
    uint64_t low, high;
} ls_exact_sum;
void ls_exact_sum_add(ls_exact_sum *sum, ls_exact_sum more);
ls_exact_sum ls_exact_sum_of(double square); /* not finite: too large */
double ls_exact_sum_value(ls_exact_sum sum); /* NAN: too large */

/* A term, or the whole. Pointers are to the first of `count` numbers. */
typedef struct ls_compressed_term {
    /* The buffers that are added up; one buffer: a program of one entry. Unused by the whole. */
    const ls_tree_sum *sum;
    const float *const *inputs;
    /* Not NULL: the sum is normalised; m and v before and after it. */
    const float *moments[2];
    float *moments_out[2];
    /* Not NULL: the sum is subtracted from these numbers. */
    const float *minuend;
    /* Not NULL: the term was packed elsewhere and is only unpacked; nothing else is used. */
    const unsigned char *packed;
    /* NULL: zeros, and not kept. They may be the same buffer. */
    const float *residual;
    float *residual_out;
    /* ls_compressed_bytes(count); NULL: not wanted. */
    unsigned char *packed_out;
} ls_compressed_term;

typedef struct ls_compressed_sum {
    ls_compression compression; /* of the terms */
    /* with moments: how sums are normalised; the decay of weights is 0, and lr is -1 */
    const ls_adamw_factors *normal;
    const ls_compressed_term *terms;
    /* How the terms are added; its inputs are their numbers. */
    const ls_tree_sum *order;
    ls_compression again; /* of the whole */
    /* NULL: the whole is not packed again, and out is y. */
    const ls_compressed_term *whole;
    /* Per block: the squared sums of what is left over are added to it. NULL: not wanted. */
    ls_exact_sum *left_over;
} ls_compressed_sum;

/*
 * out: `count` numbers, NULL: not wanted. square_sums: as of ls_tree_sum_run, of out. No buffer may
 * overlap another one, except as said above. Errors: LS_ERR_UNSUPPORTED on a GPU.
 */
LS_MUST_CHECK ls_status ls_compressed_sum_run(ls_queue *queue, const ls_compressed_sum *sum, int64_t count,
                                              float *out, double *square_sums);

/*
 * Packs by how much `count` weights, at most a block, have changed, and makes that their change:
 *
 *   x = (weights - old) + residual;  weights' = old + unpack(pack(x));  residual' = x - unpack(...)
 *
 * change: its residuals and packed_out. On the calling thread, which may be any; a queue of the
 * processor.
 */
void ls_compress_change(ls_queue *queue, const ls_compression *compression, const ls_compressed_term *change,
                        const float *old, int64_t count, float *weights);

/* Unpacks `count` numbers into `out`, or adds them to it, on the calling thread, which may be any.
 * A queue of the processor. */
void ls_decompress(ls_queue *queue, const ls_compression *compression, const unsigned char *packed,
                   int64_t count, float *out, bool adds);

#endif
