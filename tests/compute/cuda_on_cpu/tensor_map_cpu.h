// SPDX-License-Identifier: Apache-2.0
/*
 * What the bed writes into a tensor map: cuTensorMapEncodeTiled (tensor_map_cpu.cpp) does, and the
 * copy engine of hopper_cpu.h reads it.
 */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_TENSOR_MAP_CPU_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_TENSOR_MAP_CPU_H

#include <stdint.h>

namespace cuda_on_cpu
{

constexpr uint32_t TENSOR_MAP_CPU_MAGIC = 0x7e45072a;

/* Dimensions that the tensor lacks have 1 element. strides_bytes[0] is 2. */
struct tensor_map_cpu {
    const unsigned char *data;
    uint64_t dims[4], strides_bytes[4];
    uint32_t box[4];
    uint32_t rank, magic;
};
static_assert(sizeof(tensor_map_cpu) <= 128, "fits the map of the driver");

} // namespace cuda_on_cpu

#endif
