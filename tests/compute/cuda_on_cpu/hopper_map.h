// SPDX-License-Identifier: Apache-2.0
/* What the bed's cuTensorMapEncodeTiled writes into a CUtensorMap, and its copy engine reads
 * (hopper_cpu.h). */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_HOPPER_MAP_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_HOPPER_MAP_H

#include <cstdint>

namespace cuda_on_cpu
{

/* Dimension 0 is the innermost; strides are in bytes, that of dimension 0 is the element. */
struct tensor_map {
    uint64_t address;
    uint64_t dims[5], strides[5];
    uint16_t box[5];
    uint8_t rank, swizzle;
};

} // namespace cuda_on_cpu

#endif
