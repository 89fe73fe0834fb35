// SPDX-License-Identifier: Apache-2.0
/*
 * The structure of a queue on an NVIDIA GPU, for the files of compute/cuda/ only.
 *
 * A queue is a stream: calls enqueue and return. An error of a call that was only enqueued comes
 * back from a later one, at the latest from ls_queue_wait().
 */
#ifndef LS_COMPUTE_CUDA_QUEUE_CUDA_H
#define LS_COMPUTE_CUDA_QUEUE_CUDA_H

#include "compute/backend.h"
#include "compute/cuda/driver.h"

struct ls_cublaslt;     /* compute/cuda/cublaslt.h */
struct ls_cuda_matmuls; /* compute/cuda/matmul.h: the algorithms chosen so far */
struct ls_cuda_modules; /* compute/cuda/launch.c: the kernels loaded so far */

typedef struct ls_queue_cuda {
    ls_queue base;
    const ls_cuda_driver *driver;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    /* Of the device: 80, 90, ... */
    int capability;
    int multiprocessors;
    /* The most dynamic shared memory of a block, bytes. */
    int shared_bytes_max;
    /* Products of float32 matrices may round their inputs to TF32. */
    bool tf32;
    /* The first error that ls_queue_wait returned; the device does nothing more after one. */
    CUresult lost;
    struct ls_cuda_modules *modules;
    const struct ls_cublaslt *blas; /* NULL: not there; own products are used */
    struct ls_cuda_matmuls *matmuls;
    /* Temporary device memory of one call; calls of a stream run in order, so all share it. */
    void *scratch;
    size_t scratch_bytes;
    char device_name[128];
    char determinism_class[64];
} ls_queue_cuda;

static inline ls_queue_cuda *ls_cuda_of(ls_queue *queue)
{
    return (ls_queue_cuda *)queue;
}

/* Device memory of at least `bytes`, 256-byte aligned, undefined contents, for the calls enqueued
 * until the next ls_cuda_scratch. Growing waits for the queue. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_cuda_scratch(ls_queue_cuda *queue, size_t bytes, void **memory_out);

/* Makes the queue's context that of the calling thread; cheap when it is already. Whoever calls the
 * driver for a queue calls it first; ls_cuda_launch and ls_cuda_scratch do so themselves. */
LS_MUST_CHECK ls_status ls_cuda_enter(ls_queue_cuda *queue);

/* A kernel: `file` is the source in compute/cuda/device without its ending, `name` the function. */
typedef struct ls_cuda_kernel {
    const char *file, *name;
} ls_cuda_kernel;

/* The kernels that the queue has loaded (compute/cuda/launch.c). Errors: LS_ERR_UNSUPPORTED: the
 * program was built without the CUDA toolkit; LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_cuda_modules_create(const ls_cuda_driver *driver,
                                               struct ls_cuda_modules **modules_out);
void ls_cuda_modules_destroy(const ls_cuda_driver *driver, struct ls_cuda_modules *modules);

/* Blocks of a launch, threads of a block, and dynamic shared memory of a block. */
typedef struct ls_cuda_grid {
    uint32_t x, y, z; /* 0 counts as 1 */
    uint32_t threads;
    uint32_t shared_bytes;
} ls_cuda_grid;

/*
 * Enqueues a kernel. Every kernel of compute/cuda/device takes one structure by value; `arguments`
 * points to it. The strings of `kernel` are literals. Errors: those of the driver, by name of the
 * kernel.
 */
LS_MUST_CHECK ls_status ls_cuda_launch(ls_queue_cuda *queue, ls_cuda_kernel kernel, ls_cuda_grid grid,
                                       const void *arguments);

#endif
