// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory of the bed. Each block is a mapping of its own between two pages that nothing may
 * touch, filled with a pattern, at an address that is not used again. The host can read and write it
 * only while a kernel or a copy runs; LS_CUDA_PROTECT=0 leaves it open, which is faster.
 */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_MEMORY_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_MEMORY_H

#include <cstddef>

namespace cuda_on_cpu
{

/* NULL: there is no memory. */
void *device_memory_take(size_t bytes);

/* false: this is not the beginning of a block. */
bool device_memory_give(void *memory);

/* While one lives, device memory can be read and written. */
struct device_memory_open {
    device_memory_open();
    ~device_memory_open();
};

size_t device_memory_used();

/* Writes into `text` where an address lies: in a block, after its end, in one that was freed. false:
 * nowhere near device memory. */
bool device_memory_describe(const void *address, char *text, size_t text_bytes);

} // namespace cuda_on_cpu

#endif
