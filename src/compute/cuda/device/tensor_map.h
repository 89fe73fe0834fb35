// SPDX-License-Identifier: Apache-2.0
/*
 * A tensor map: the description of a tensor in global memory that the bulk copy engine (TMA) reads.
 * Kernels get it as a member of their argument structure, which then has to be declared
 * `const __grid_constant__`. compute/cuda/tensor_map.h makes one.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_TENSOR_MAP_H
#define LS_COMPUTE_CUDA_DEVICE_TENSOR_MAP_H

#include <stdint.h>

typedef struct ls_tensor_map {
#ifdef __cplusplus
    alignas(64) uint64_t opaque[16];
#else
    _Alignas(64) uint64_t opaque[16];
#endif
} ls_tensor_map;

#endif
