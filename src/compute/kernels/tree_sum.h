// SPDX-License-Identifier: Apache-2.0
/*
 * Sums of many buffers in a given order of additions, with the squares behind the gradient norm in the same pass.
 *
 *   program   0 1 + 2 3 + +        postfix: ((in0 + in1) + (in2 + in3))
 *
 * One addition per element and LS_TREE_SUM_ADD, rounded to float32 each, so the bits are those of ls_add called once per addition; but
 * partial sums stay in the first-level cache, and each input is read once from memory.
 */
#ifndef LS_COMPUTE_KERNELS_TREE_SUM_H
#define LS_COMPUTE_KERNELS_TREE_SUM_H

#include "compute/queue.h"

enum {
    LS_TREE_SUM_INPUTS_MAX = 1024,
    LS_TREE_SUM_DEPTH_MAX = 16,
    LS_TREE_SUM_ADD = 0xffff, /* replaces the two on top of the stack, left below right, by left + right */
};

typedef struct ls_tree_sum {
    const uint16_t *program; /* k < input_count pushes input k */
    uint32_t length;         /* 2 input_count - 1: each input once */
    uint32_t depth;          /* of the stack, 1..LS_TREE_SUM_DEPTH_MAX */
    uint32_t input_count;    /* 1..LS_TREE_SUM_INPUTS_MAX */
} ls_tree_sum;

/*
 * out[i] = program over inputs[k][i], i < count. out may be one of the inputs; they may not overlap it otherwise.
 *
 * square_sums, unless NULL: the sums of squares of out in blocks of LS_NORM_BLOCK (elementwise.h), the bits of ls_square_sums(out, count).
 */
LS_MUST_CHECK ls_status ls_tree_sum_run(ls_queue *queue, const ls_tree_sum *sum, const float *const *inputs,
                                        int64_t count, float *out, double *square_sums);

#endif
