// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the kernels of norm.cu, for compute/cuda/norm.c.
 *
 * A unit is one group of one row: `width` elements, of which there are rows * groups. A team of
 * threads works on a unit; the thread `lane` of it holds the octets (8 elements) lane, lane +
 * team, ... of the unit, 2 or 3 of them as the name of the kernel says. A team is 4, 8, 16 or 32
 * threads, and a block has several; or it is several warps, and then it is the block.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_NORM_H
#define LS_COMPUTE_CUDA_DEVICE_NORM_H

#include <stdint.h>

enum {
    /* Threads of a block that holds several teams. */
    LS_NORM_BLOCK_THREADS = 128,
    /* Threads of a block that is one team. */
    LS_NORM_TEAM_MAX = 512,
};

typedef struct ls_norm_units {
    uint32_t count;
    int32_t groups, width, team;
    /* 1: layer, 0: RMS. */
    int32_t is_layer;
    /* device/eight.h, for every tensor of the call. */
    int32_t vector;
    float eps;
} ls_norm_units;

/* norm_forward_{f32,bf16}_{2,3} */
typedef struct ls_norm_forward_args {
    ls_norm_units units;
    /* b NULL: the norm of a, and no sum is written. */
    const void *a, *b;
    void *sum, *y;
    /* bias NULL: none. */
    const void *weight, *bias;
    float *mean, *rstd;
    int64_t a_stride, b_stride, sum_stride, y_stride, mean_stride, rstd_stride;
} ls_norm_forward_args;

/* norm_backward_{layer,rms}_{f32,bf16}_{2,3}: a block does tile_units units and writes the sums
 * of dweight, and for layer norm of dbias, to its (1 or 2, width) floats of `parts`. */
typedef struct ls_norm_backward_args {
    ls_norm_units units;
    uint32_t tile_units;
    const void *x, *dy, *weight;
    const float *mean, *rstd;
    void *dx;
    float *parts;
    int64_t x_stride, dy_stride, dx_stride, mean_stride, rstd_stride;
    int32_t accumulate;
} ls_norm_backward_args;

#endif
