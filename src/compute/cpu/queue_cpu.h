// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of a CPU queue, for the files of compute/cpu/ only.
 */
#ifndef LS_COMPUTE_CPU_QUEUE_CPU_H
#define LS_COMPUTE_CPU_QUEUE_CPU_H

#include "compute/cpu/kernels.h"
#include "compute/cpu/pool.h"
#include "compute/queue.h"

/* A worker's scratch; alone on its cache line, because its worker may grow it during a job. */
typedef struct ls_queue_scratch_block {
    _Alignas(64) void *memory;
    size_t bytes;
} ls_queue_scratch_block;

struct ls_queue {
    ls_pool *pool;
    const ls_cpu_kernels *kernels;   /* instruction set chosen at creation */
    ls_queue_scratch_block *scratch; /* one per thread */
    double gemm_peak_flops;          /* 0: not measured yet */
    char device_name[96];
};

/* The table of the queue; asserts that it is a CPU queue. */
static inline const ls_cpu_kernels *ls_queue_kernels(const ls_queue *queue)
{
    return queue->kernels;
}

#endif
