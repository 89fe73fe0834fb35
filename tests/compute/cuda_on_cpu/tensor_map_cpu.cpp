// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda_on_cpu/tensor_map_cpu.h"

#include <string.h>

/* The numbers of the driver (compute/cuda/driver.h). */
enum { INVALID_VALUE = 1, TYPE_BFLOAT16 = 9, SWIZZLE_128B = 3 };

/* Refuses what the driver refuses, and what hopper_cpu.h cannot read. */
extern "C" int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dims,
                                      const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                      int interleave, int swizzle, int, int)
{
    if (rank < 2 || rank > 4 || type != TYPE_BFLOAT16 || swizzle != SWIZZLE_128B || interleave ||
        (uintptr_t)address % 16 || (uintptr_t)map % 64 || box[0] * 2 > 128) {
        return INVALID_VALUE;
    }
    cuda_on_cpu::tensor_map_cpu m = {};
    m.data = (const unsigned char *)address;
    m.rank = rank;
    m.magic = cuda_on_cpu::TENSOR_MAP_CPU_MAGIC;
    for (uint32_t i = 0; i < 4; i++) {
        const bool there = i < rank;
        m.dims[i] = there ? dims[i] : 1;
        m.box[i] = there ? box[i] : 1;
        m.strides_bytes[i] = i == 0 ? 2 : there ? strides[i - 1] : 0;
        if (m.box[i] < 1 || m.box[i] > 256 || m.dims[i] < 1 || m.dims[i] > 1ull << 32 ||
            (there && steps[i] != 1) || (i > 0 && (m.strides_bytes[i] % 16 || m.strides_bytes[i] >> 40))) {
            return INVALID_VALUE;
        }
    }
    memset(map, 0, 128);
    memcpy(map, &m, sizeof m);
    return 0;
}
