// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the kernels that show what each function of hopper.h does on a card
 * (tests/compute/cuda/test_cuda_hopper.c compares). No program uses them otherwise.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_HOPPER_CHECK_SM90_H
#define LS_COMPUTE_CUDA_DEVICE_HOPPER_CHECK_SM90_H

#include "compute/cuda/device/tensor_map.h"

/*
 * D (64, columns) = A B with A (64, depth) and B of bfloat16. B is (columns, depth) if the rows of
 * its tile are N, and (depth, columns) if they are K. depth is 128 for both.
 */
typedef struct ls_hopper_check_product {
    const uint16_t *a, *b;
    float *d;
} ls_hopper_check_product;

/* One copy of the box at (x, y, z, w) into `out` (box elements, in order). */
typedef struct ls_hopper_check_copy {
    ls_tensor_map map;
    int32_t x, y, z, w;
    int32_t rows;
    const float *from;
    uint16_t *out;
    float *floats_out;
} ls_hopper_check_copy;

/* out: a float per thread. */
typedef struct ls_hopper_check_threads {
    const float *in;
    float *out;
    int32_t rounds;
} ls_hopper_check_threads;

#endif
