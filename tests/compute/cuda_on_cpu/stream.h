// SPDX-License-Identifier: Apache-2.0
/* What other libraries of the bed need of its driver (driver.cpp). */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_STREAM_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_STREAM_H

#include <functional>

namespace cuda_on_cpu
{

/* What LS_CUDA_FAIL wants this call of `name` to return. 0: it may go on. */
int injected_result(const char *name);

/* Enqueues work that reads and writes device memory. Returns a CUresult. */
int enqueue_work(void *stream, std::function<void()> work);

} // namespace cuda_on_cpu

#endif
