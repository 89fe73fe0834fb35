// SPDX-License-Identifier: Apache-2.0
/*
 * Makes tensor maps, which the bulk copy engine (TMA) of compute capability 9.0 reads.
 */
#ifndef LS_COMPUTE_CUDA_TENSOR_MAP_H
#define LS_COMPUTE_CUDA_TENSOR_MAP_H

#include "compute/cuda/device/tensor_map.h"
#include "compute/cuda/queue_cuda.h"

/* Innermost dimension first. */
typedef struct ls_tensor_box {
    void *data;
    uint32_t rank;
    uint64_t dims[4];
    /* Elements from one index of a dimension to the next; that of dimension 0 is 1. */
    uint64_t strides[4];
    /* What one copy takes: at most 256 per dimension. Elements outside `dims` read as 0. */
    uint32_t box[4];
} ls_tensor_box;

/*
 * Encodes a map of bfloat16 elements whose copies lie in shared memory with the 128-byte swizzle:
 * box[0] is 64, data and all strides but the first are multiples of 16 bytes. Errors: those of the
 * driver.
 */
LS_MUST_CHECK ls_status ls_cuda_tensor_map(const ls_queue_cuda *queue, const ls_tensor_box *tensor,
                                           ls_tensor_map *map_out);

#endif
