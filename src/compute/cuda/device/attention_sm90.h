// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the attention kernels for compute capability 9.0. Maps have the dimensions (head_dim,
 * length, heads, sequences) and copy one panel: 64 columns of the rows of a tile.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ATTENTION_SM90_H
#define LS_COMPUTE_CUDA_DEVICE_ATTENTION_SM90_H

#include "compute/cuda/device/tensor_map.h"

enum {
    /* Rows of a tile of queries and of keys. */
    LS_SM90_QUERIES = 128,
    LS_SM90_KEYS = 128,
    /* Threads of a block: one warp group that copies, two that compute. */
    LS_SM90_THREADS = 384,
};

/* What all of them read. A work item is a tile of one head of one sequence. */
typedef struct ls_sm90_shape {
    int32_t length, heads, kv_heads, sequences, window;
    /* Tiles of a head, and work items in all. */
    int32_t tiles, work;
    float scale;
} ls_sm90_shape;

typedef struct ls_sm90_forward {
    ls_tensor_map q, k, v;
    ls_sm90_shape shape;
    uint16_t *out;
    /* NULL: not wanted. */
    float *lse;
    int64_t out_stride, lse_stride;
} ls_sm90_forward;

#endif
