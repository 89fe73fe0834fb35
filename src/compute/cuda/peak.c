// SPDX-License-Identifier: Apache-2.0
/* The rates that MFU is stated against, as vendors state them: dense products, without sparsity. */
#include "compute/cuda/ops_cuda.h"
#include "compute/cuda/queue_cuda.h"

#include <string.h>

/* NVIDIA's data sheets. The first row whose words are all in the device's name counts. */
static const struct {
    const char *name, *also;
    double bf16, tf32, fp32;
} sheets[] = {
    {"H200", "", 989.4e12, 494.7e12, 66.9e12},  {"H100", "PCIe", 756e12, 378e12, 51.2e12},
    {"H100", "NVL", 835e12, 417e12, 60e12},     {"H100", "", 989.4e12, 494.7e12, 66.9e12},
    {"GH200", "", 989.4e12, 494.7e12, 66.9e12}, {"A100", "", 312e12, 156e12, 19.5e12},
    {"L40S", "", 362e12, 183e12, 91.6e12},      {"B200", "", 2250e12, 1125e12, 80e12},
};

/* Multiply-adds of a multiprocessor per clock in bfloat16, for cards without a row: capability 8.0
 * and 9.0, and all others. */
enum { MADS_80 = 1024, MADS_90 = 2048, MADS_OTHER = 512 };

static double by_clock(const ls_queue_cuda *queue)
{
    int khz = 0;
    if (queue->driver->cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, queue->device) !=
        CUDA_SUCCESS) {
        return 0.0;
    }
    const double mads = queue->capability == 80 ? MADS_80 : queue->capability == 90 ? MADS_90 : MADS_OTHER;
    return 2.0 * mads * queue->multiprocessors * 1e3 * khz;
}

double ls_cuda_gemm_peak_flops(ls_queue *base, ls_dtype dtype)
{
    const ls_queue_cuda *queue = ls_cuda_of(base);
    for (size_t i = 0; i < sizeof sheets / sizeof sheets[0]; i++) {
        if (strstr(queue->device_name, sheets[i].name) && strstr(queue->device_name, sheets[i].also)) {
            return dtype == LS_BF16 ? sheets[i].bf16 : queue->tf32 ? sheets[i].tf32 : sheets[i].fp32;
        }
    }
    const double bf16 = by_clock(queue);
    return dtype == LS_BF16 ? bf16 : queue->tf32 ? bf16 / 2.0 : bf16 / 16.0;
}

uint64_t ls_cuda_free_memory(ls_queue *base)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    size_t free_bytes = 0, total_bytes = 0;
    if (ls_cuda_enter(queue) != LS_OK ||
        queue->driver->cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
        ls_error_clear();
        return UINT64_MAX;
    }
    return free_bytes;
}
