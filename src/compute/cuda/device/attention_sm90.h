// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the attention kernels for compute capability 9.0. Maps have the dimensions
 * (head_dim, length, heads, sequences) and copy one panel: 64 columns of the rows of a tile.
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
    /* Tiles of keys, and of values, that forward has in shared memory, by head_dim. */
    LS_SM90_FORWARD_STAGES_64 = 4,
    LS_SM90_FORWARD_STAGES_128 = 2,
};

/*
 * What all of them read. A work item is a tile of one head of one sequence. Heads of all sequences
 * are numbered (sequence * heads + head) and cut into sections, which are done one after the other:
 * what the tiles of a section read again and again stays in the L2 cache.
 */
typedef struct ls_sm90_shape {
    int32_t length, heads, kv_heads, sequences, window;
    /* Tiles of a head, heads of a section, and work items in all. */
    int32_t tiles, section, work;
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

/* Both backward kernels. statistics: see ls_sm90_statistics. */
typedef struct ls_sm90_backward {
    ls_tensor_map q, k, v, dout;
    ls_sm90_shape shape;
    const float *lse_log2, *delta;
    /* Rows from one (sequence, head) to the next: length rounded up to a whole tile. */
    int64_t padded;
    /* Of queries: dq. Of keys: dk, dv. */
    uint16_t *dq, *dk, *dv;
    int64_t dq_stride, dk_stride, dv_stride;
} ls_sm90_backward;

/*
 * For each row and head, as (sequences, heads, padded): lse_log2 = lse * log2(e) and delta = dout .
 * out. In rows from length on they are infinity and 0, which makes such rows count for nothing.
 */
typedef struct ls_sm90_statistics {
    const uint16_t *out, *dout;
    const float *lse;
    int64_t out_stride, dout_stride, lse_stride, padded;
    int32_t length, heads, sequences, head_dim;
    float *lse_log2, *delta;
} ls_sm90_statistics;

enum {
    /* Threads of a block of the statistics kernel; a row of a head takes head_dim / 8 of them. */
    LS_SM90_STATISTICS_THREADS = 256,
    /* Rows of a tile of queries in the kernel of keys. */
    LS_SM90_STEP_QUERIES = 64,
    LS_SM90_STEP_STAGES = 3,
    LS_SM90_KEY_STAGES = 2,
};

#endif
