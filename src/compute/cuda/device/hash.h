// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the hash of tiles. A block of threads has one tile.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_HASH_H
#define LS_COMPUTE_CUDA_DEVICE_HASH_H

#include <stdint.h>

enum {
    /* LS_HASH_TILE of kernels/hash.h, in floats. */
    LS_HASH_BLOCK_FLOATS = 65536,
    LS_HASH_THREADS = 256,
    /* A tile of fewer floats has another formula, which the host computes. */
    LS_HASH_FLOATS_MIN = 61,
};

typedef struct ls_hash_args {
    /* The floats in one of two forms (ls_master of kernels/adamw.h). */
    const float *values;
    const uint16_t *weights;
    const int16_t *rests;
    int64_t count;
    /* Four floats can be read at once. */
    int32_t aligned;
    /* (tiles, 2): the low half, the high half. */
    unsigned long long *hashes;
} ls_hash_args;

#endif
