// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/backend_cuda.h"

#include "compute/cuda/elementwise.h"

/* An op that is NULL here is not supported on GPUs yet; the public functions say so. */
const ls_backend ls_cuda_backend = {
    .device = LS_DEVICE_CUDA,

    .destroy = ls_cuda_queue_destroy,
    .wait = ls_cuda_wait,
    .threads = ls_cuda_threads,
    .alloc = ls_cuda_alloc,
    .free = ls_cuda_free,
    .move = ls_cuda_move,
    .determinism_class = ls_cuda_determinism_class,
    .device_name = ls_cuda_device_name,

    .fill = ls_cuda_fill,
};
