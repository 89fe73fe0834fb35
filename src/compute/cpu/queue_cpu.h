// SPDX-License-Identifier: Apache-2.0
/*
 * The structure of a CPU queue, for the files of compute/cpu/ only.
 */
#ifndef LS_COMPUTE_CPU_QUEUE_CPU_H
#define LS_COMPUTE_CPU_QUEUE_CPU_H

#include "base/assert.h"
#include "compute/backend.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/pool.h"

/* The scratch of a worker. It has its own cache line, because the worker may grow it during a
 * job. */
typedef struct ls_queue_scratch_block {
    _Alignas(64) void *memory;
    size_t bytes;
} ls_queue_scratch_block;

typedef struct ls_queue_cpu {
    ls_queue base;
    ls_pool *pool;
    /* Of the instruction set that was selected at creation. */
    const ls_cpu_kernels *kernels;
    /* One per thread. */
    ls_queue_scratch_block *scratch;
    /* 0: not measured yet; the best of all measurements, and when the last one ended. */
    double gemm_peak_flops, gemm_peak_s;
    char device_name[96];
} ls_queue_cpu;

/* The CPU queue that `queue` is. Another device's queue is a bug. Queues are never constant
 * objects, so the const of a view of one may go. */
static inline ls_queue_cpu *ls_cpu_of(const ls_queue *queue)
{
    LS_DCHECK(queue->backend->device == LS_DEVICE_CPU);
    return (ls_queue_cpu *)queue;
}

/* The kernels of the queue. */
static inline const ls_cpu_kernels *ls_queue_kernels(const ls_queue *queue)
{
    return ls_cpu_of(queue)->kernels;
}

#endif
