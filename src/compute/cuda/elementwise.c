// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/elementwise.h"

#include "base/assert.h"
#include "compute/cuda/device/elementwise.h"
#include "compute/cuda/queue_cuda.h"

enum { FILL_THREADS = 256 };

ls_status ls_cuda_fill(ls_queue *queue, const ls_tensor *out, float value)
{
    LS_ASSERT(out->dtype == LS_F32 || out->dtype == LS_BF16);
    const ls_cuda_fill_args args = {
        .out = out->data, .rows = out->rows, .cols = out->cols, .stride = out->stride, .value = value};
    const int64_t blocks = (out->rows * out->cols + FILL_THREADS - 1) / FILL_THREADS;
    if (blocks == 0) {
        return LS_OK;
    }
    const ls_cuda_grid grid = {.x = (uint32_t)blocks, .threads = FILL_THREADS};
    const ls_cuda_kernel kernel = {"elementwise", out->dtype == LS_BF16 ? "fill_bf16" : "fill_f32"};
    return ls_cuda_launch(ls_cuda_of(queue), kernel, grid, &args);
}
