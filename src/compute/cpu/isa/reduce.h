// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over several buffers in the fixed tree, in which an interval [a, b) of buffers splits at the
 * largest power of two below its length.
 */
#ifndef LS_COMPUTE_CPU_ISA_REDUCE_H
#define LS_COMPUTE_CPU_ISA_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_REDUCE_INPUTS_MAX = 8 };

typedef struct ls_reduce_kernels {
    /*
     * out[j][i] = the tree over in[k][i] for k < in_count, for every j < out_count and i < count.
     * in_count is 1 to LS_REDUCE_INPUTS_MAX. An output may be an input, but must not overlap one
     * otherwise. stream: stores go past the caches, because the outputs are too large for them and
     * were not read recently.
     */
    void (*sum)(const float *const *in, uint32_t in_count, float *const *out, uint32_t out_count,
                int64_t count, bool stream);
    /* Copies with stores that go past the caches, and ends with a fence. */
    void (*copy)(const void *in, void *out, int64_t bytes);
} ls_reduce_kernels;

#endif
