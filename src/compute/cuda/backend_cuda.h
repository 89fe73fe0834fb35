// SPDX-License-Identifier: Apache-2.0
/* The backend of NVIDIA GPUs (compute/backend.h). */
#ifndef LS_COMPUTE_CUDA_BACKEND_CUDA_H
#define LS_COMPUTE_CUDA_BACKEND_CUDA_H

#include "compute/backend.h"

extern const ls_backend ls_cuda_backend;

/* ---- compute/cuda/queue.c ---- */

void ls_cuda_queue_destroy(ls_queue *queue);
LS_MUST_CHECK ls_status ls_cuda_wait(ls_queue *queue);
uint32_t ls_cuda_threads(const ls_queue *queue);
LS_MUST_CHECK ls_status ls_cuda_alloc(ls_queue *queue, size_t bytes, ls_memory_kind kind, void **memory_out);
void ls_cuda_free(ls_queue *queue, void *memory, size_t bytes, ls_memory_kind kind);
LS_MUST_CHECK ls_status ls_cuda_move(ls_queue *queue, void *to, const void *from, size_t bytes);
const char *ls_cuda_determinism_class(const ls_queue *queue);
const char *ls_cuda_device_name(const ls_queue *queue);

/* ---- compute/cuda/peak.c ---- */

double ls_cuda_gemm_peak_flops(ls_queue *queue, ls_dtype dtype);
uint64_t ls_cuda_free_memory(ls_queue *queue);

#endif
