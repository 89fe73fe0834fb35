// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the kernels of rotary.cu: rotary_f32 and rotary_bf16. A thread takes one octet of
 * the first half of a head and the octet it is paired with, in up to LS_ROTARY_HEADS neighbouring
 * heads of one row.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ROTARY_H
#define LS_COMPUTE_CUDA_DEVICE_ROTARY_H

#include <stdint.h>

enum { LS_ROTARY_THREADS = 256, LS_ROTARY_HEADS = 4 };

typedef struct ls_rotary_args {
    void *x;
    const float *cosine, *sine;
    int64_t stride, cosine_stride, sine_stride;
    int64_t first_position;
    /* Per row, the token at which its record begins; NULL: token 0. */
    const int32_t *first;
    uint32_t positions_per_sequence;
    int32_t heads, half;
    /* Octets of half a head, octets * groups of heads: the threads of a row, and of all rows. */
    uint32_t half_octets, row_threads, threads;
    /* -1: backward. */
    float direction;
    int32_t vector;
} ls_rotary_args;

#endif
