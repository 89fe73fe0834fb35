// SPDX-License-Identifier: Apache-2.0
/*
 * Sums of many buffers in a given order of additions. The same pass computes the sums of squares
 * that the gradient norm needs.
 *
 *   program   0 1 + 2 3 + +        postfix: ((in0 + in1) + (in2 + in3))
 *
 * Each LS_TREE_SUM_ADD is one addition per element, rounded to float32. So the bits are those of
 * one ls_add per addition, but partial sums stay in the L1 cache, and each input is read from
 * memory once.
 */
#ifndef LS_COMPUTE_KERNELS_TREE_SUM_H
#define LS_COMPUTE_KERNELS_TREE_SUM_H

#include "compute/queue.h"

enum {
    LS_TREE_SUM_INPUTS_MAX = 1024,
    LS_TREE_SUM_DEPTH_MAX = 16,
    /* Replaces the two values on top of the stack, left below right, by left + right. */
    LS_TREE_SUM_ADD = 0xffff,
};

typedef struct ls_tree_sum {
    /* An entry below input_count pushes that input; the others are LS_TREE_SUM_ADD. */
    const uint16_t *program;
    /* 2 input_count - 1, because each input is used once. */
    uint32_t length;
    /* Of the stack, 1 to LS_TREE_SUM_DEPTH_MAX. */
    uint32_t depth;
    /* 1 to LS_TREE_SUM_INPUTS_MAX. */
    uint32_t input_count;
} ls_tree_sum;

/*
 * Runs the program on inputs[k][i] for each i < count and writes out[i]. out may be one of the
 * inputs, but must not overlap them otherwise.
 *
 * square_sums receives the sums of squares of out in blocks of LS_NORM_BLOCK (elementwise.h), in
 * float64 and in a fixed order. NULL: they are not computed.
 */
LS_MUST_CHECK ls_status ls_tree_sum_run(ls_queue *queue, const ls_tree_sum *sum, const float *const *inputs,
                                        int64_t count, float *out, double *square_sums);

#endif
