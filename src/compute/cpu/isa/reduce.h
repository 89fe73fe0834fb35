// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over several buffers in the fixed tree: an interval [a, b) of buffers splits at the largest power of two below its length.
 */
#ifndef LS_COMPUTE_CPU_ISA_REDUCE_H
#define LS_COMPUTE_CPU_ISA_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_REDUCE_INPUTS_MAX = 8 };

typedef struct ls_reduce_kernels {
    /*
     * out[j][i] = the tree over in[k][i], k < in_count (1..LS_REDUCE_INPUTS_MAX), for every j < out_count and i < count. An output may be an
     * input, or overlap none. stream: outputs are too large for the caches and were not read just now, so stores go past them.
     */
    void (*sum)(const float *const *in, uint32_t in_count, float *const *out, uint32_t out_count,
                int64_t count, bool stream);
    /* Copies past the caches; the end is fenced. */
    void (*copy)(const void *in, void *out, int64_t bytes);
} ls_reduce_kernels;

#endif
