// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the tree sum. A block of threads has one block of the gradient norm.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_TREE_SUM_H
#define LS_COMPUTE_CUDA_DEVICE_TREE_SUM_H

#include <stdint.h>

enum {
    /* LS_NORM_BLOCK of kernels/elementwise.h. */
    LS_TREE_SUM_BLOCK = 4096,
    LS_TREE_SUM_THREADS = 256,
    LS_TREE_SUM_FEW = 32,
    /* LS_TREE_SUM_INPUTS_MAX of kernels/tree_sum.h. */
    LS_TREE_SUM_MANY = 1024,
};

typedef struct ls_tree_sum_call {
    int64_t count;
    float *out;
    /* Memory of the host, or NULL. */
    double *square_sums;
    uint32_t input_count;
    /* All inputs and out begin at multiples of 16 bytes. */
    int32_t aligned;
    /* Out is the only input: there is nothing to write. */
    int32_t only_squares;
} ls_tree_sum_call;

/*
 * Few inputs and many. The program has another form here: the inputs are in the order in which they
 * are pushed, and a number says how many additions follow each push.
 *
 *   0 1 + 2 3 + +        inputs 0 1 2 3, additions 0 1 0 2
 */
typedef struct ls_tree_sum_few {
    ls_tree_sum_call call;
    const float *inputs[LS_TREE_SUM_FEW];
    uint8_t additions[LS_TREE_SUM_FEW];
} ls_tree_sum_few;

/* Arguments may be 32,764 bytes long. */
typedef struct ls_tree_sum_many {
    ls_tree_sum_call call;
    const float *inputs[LS_TREE_SUM_MANY];
    uint8_t additions[LS_TREE_SUM_MANY];
} ls_tree_sum_many;

#endif
