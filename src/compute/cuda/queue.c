// SPDX-License-Identifier: Apache-2.0
#include "compute/queue.h"

#include "base/assert.h"
#include "compute/cuda/matmul.h"
#include "compute/cuda/ops_cuda.h"
#include "compute/cuda/queue_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 64, CAPABILITY_MIN = 80, SCRATCH_GRAIN = 1 << 20 };

/* The context that this thread uses. Contexts live as long as the process, so it never dangles. */
static _Thread_local CUcontext thread_context;

/* ---- devices ---- */

/* The process's context on a device, made once: making one takes a good part of a second. */
static ls_status context_of(const ls_cuda_driver *driver, CUdevice device, CUcontext *context_out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static CUcontext contexts[DEVICES_MAX];
    LS_ASSERT(device >= 0 && device < DEVICES_MAX);
    pthread_mutex_lock(&lock);
    CUresult result = CUDA_SUCCESS;
    if (!contexts[device]) {
        CUcontext made = NULL;
        result = driver->cuDevicePrimaryCtxRetain(&made, device);
        contexts[device] = result == CUDA_SUCCESS ? made : NULL;
    }
    *context_out = contexts[device];
    pthread_mutex_unlock(&lock);
    return result == CUDA_SUCCESS ? LS_OK : ls_cuda_fail(driver, result, "cuDevicePrimaryCtxRetain");
}

static ls_status attribute(const ls_queue_cuda *queue, int which, int *value_out)
{
    CU_TRY(queue->driver, cuDeviceGetAttribute, value_out, which, queue->device);
    return LS_OK;
}

static ls_status find_device(ls_queue_cuda *queue, uint32_t ordinal)
{
    int count = 0;
    CU_TRY(queue->driver, cuDeviceGetCount, &count);
    if (ordinal >= (uint32_t)count || ordinal >= DEVICES_MAX) {
        return ls_fail(LS_ERR_DEVICE, "there is no GPU %u: the driver shows %d, counted from 0", ordinal,
                       count);
    }
    CU_TRY(queue->driver, cuDeviceGet, &queue->device, (int)ordinal);
    return LS_OK;
}

static ls_status describe_device(ls_queue_cuda *queue)
{
    int major = 0, minor = 0, version = 0;
    char name[64] = "";
    LS_TRY(attribute(queue, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    LS_TRY(attribute(queue, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    LS_TRY(attribute(queue, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &queue->multiprocessors));
    LS_TRY(attribute(queue, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &queue->shared_bytes_max));
    CU_TRY(queue->driver, cuDeviceGetName, name, sizeof name, queue->device);
    CU_TRY(queue->driver, cuDriverGetVersion, &version);
    queue->capability = 10 * major + minor;
    if (queue->capability < CAPABILITY_MIN) {
        return ls_fail(LS_ERR_DEVICE,
                       "the %s has compute capability %d.%d, and 8.0 is needed: an A100 or a newer GPU", name,
                       major, minor);
    }
    snprintf(queue->device_name, sizeof queue->device_name, "%s, sm_%d, driver %d.%d", name,
             queue->capability, version / 1000, version % 1000 / 10);
    return LS_OK;
}

ls_status ls_cuda_enter(ls_queue_cuda *queue)
{
    if (thread_context != queue->context) {
        CU_TRY(queue->driver, cuCtxSetCurrent, queue->context);
        thread_context = queue->context;
    }
    return LS_OK;
}

/* ---- life ---- */

static ls_status open_queue(ls_queue_cuda *queue, uint32_t ordinal)
{
    LS_TRY(ls_cuda_driver_load(&queue->driver));
    LS_TRY(ls_cuda_modules_create(queue->driver, &queue->modules));
    LS_TRY(find_device(queue, ordinal));
    LS_TRY(describe_device(queue));
    LS_TRY(context_of(queue->driver, queue->device, &queue->context));
    LS_TRY(ls_cuda_enter(queue));
    CU_TRY(queue->driver, cuStreamCreate, &queue->stream, CU_STREAM_NON_BLOCKING);
    LS_TRY(ls_cuda_matmuls_create(queue));
    char products[32];
    ls_cuda_matmuls_class(queue, products, sizeof products);
    snprintf(queue->determinism_class, sizeof queue->determinism_class, "cuda-sm%d%s-2-%s", queue->capability,
             queue->tf32 ? "-tf32" : "", products);
    return LS_OK;
}

ls_status ls_queue_create_cuda(const ls_cuda_options *options, ls_queue **queue_out)
{
    LS_ASSERT(options && queue_out);
    ls_queue_cuda *queue = calloc(1, sizeof *queue);
    if (!queue) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a queue");
    }
    queue->base.backend = &ls_cuda_backend;
    queue->tf32 = options->tf32;
    const ls_status status = open_queue(queue, options->device);
    if (status != LS_OK) {
        ls_cuda_destroy(&queue->base);
        return status;
    }
    *queue_out = &queue->base;
    return LS_OK;
}

/* Also for a queue that was opened in part. Errors of a device that is lost are of no interest. */
void ls_cuda_destroy(ls_queue *base)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    if (queue->stream && ls_cuda_enter(queue) == LS_OK) {
        (void)queue->driver->cuStreamSynchronize(queue->stream);
        ls_cuda_matmuls_destroy(queue);
        if (queue->scratch) {
            (void)queue->driver->cuMemFree((CUdeviceptr)queue->scratch);
        }
        (void)queue->driver->cuStreamDestroy(queue->stream);
    }
    if (queue->modules) {
        ls_cuda_modules_destroy(queue->driver, queue->modules);
    }
    free(queue);
}

ls_status ls_cuda_wait(ls_queue *base)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    LS_TRY(ls_cuda_enter(queue));
    const CUresult result = queue->driver->cuStreamSynchronize(queue->stream);
    if (queue->lost == CUDA_SUCCESS) {
        queue->lost = result;
    }
    return queue->lost == CUDA_SUCCESS ? LS_OK
                                       : ls_cuda_fail(queue->driver, queue->lost, "cuStreamSynchronize");
}

uint32_t ls_cuda_threads(const ls_queue *queue)
{
    (void)queue;
    return 1;
}

const char *ls_cuda_determinism_class(const ls_queue *queue)
{
    return ((const ls_queue_cuda *)queue)->determinism_class;
}

const char *ls_cuda_device_name(const ls_queue *queue)
{
    return ((const ls_queue_cuda *)queue)->device_name;
}

/* ---- memory ---- */

static ls_status device_take(ls_queue_cuda *queue, size_t bytes, void **memory_out)
{
    CUdeviceptr memory = 0;
    CU_TRY(queue->driver, cuMemAlloc, &memory, bytes > 0 ? bytes : 1);
    *memory_out = (void *)memory;
    return LS_OK;
}

static void device_give(ls_queue_cuda *queue, void *memory)
{
    (void)queue->driver->cuMemFree((CUdeviceptr)memory);
}

static ls_status alloc_device(ls_queue_cuda *queue, size_t bytes, void **memory_out)
{
    void *memory = NULL;
    LS_TRY(device_take(queue, bytes, &memory));
    const CUresult result = bytes > 0
                                ? queue->driver->cuMemsetD8Async((CUdeviceptr)memory, 0, bytes, queue->stream)
                                : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        const ls_status status = ls_cuda_fail(queue->driver, result, "cuMemsetD8Async");
        device_give(queue, memory);
        return status;
    }
    *memory_out = memory;
    return LS_OK;
}

/* Pages of the host that kernels reach at the same address. */
static ls_status alloc_shared(ls_queue_cuda *queue, size_t bytes, void **memory_out)
{
    void *memory = NULL;
    CU_TRY(queue->driver, cuMemHostAlloc, &memory, bytes > 0 ? bytes : 1,
           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    memset(memory, 0, bytes);
    *memory_out = memory;
    return LS_OK;
}

ls_status ls_cuda_alloc(ls_queue *base, size_t bytes, ls_memory_kind kind, void **memory_out)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    LS_TRY(ls_cuda_enter(queue));
    const ls_status status = kind == LS_MEMORY_DEVICE ? alloc_device(queue, bytes, memory_out)
                                                      : alloc_shared(queue, bytes, memory_out);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "a buffer of %zu bytes", bytes);
}

/* Waits for the queue, as the driver does, so that what is enqueued can still use the memory. */
void ls_cuda_free(ls_queue *base, void *memory, size_t bytes, ls_memory_kind kind)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    (void)bytes;
    if (!memory || ls_cuda_enter(queue) != LS_OK) {
        return;
    }
    if (kind == LS_MEMORY_DEVICE) {
        device_give(queue, memory);
    } else {
        (void)queue->driver->cuMemFreeHost(memory);
    }
}

/* The driver tells by their values which memory two addresses are in. */
ls_status ls_cuda_move(ls_queue *base, void *to, const void *from, size_t bytes)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    if (bytes == 0) {
        return LS_OK;
    }
    LS_TRY(ls_cuda_enter(queue));
    CU_TRY(queue->driver, cuMemcpyAsync, (CUdeviceptr)to, (CUdeviceptr)from, bytes, queue->stream);
    return LS_OK;
}

ls_status ls_cuda_scratch(ls_queue_cuda *queue, size_t bytes, void **memory_out)
{
    LS_TRY(ls_cuda_enter(queue));
    if (queue->scratch_bytes < bytes) {
        const size_t size = (bytes + SCRATCH_GRAIN - 1) / SCRATCH_GRAIN * SCRATCH_GRAIN;
        void *memory = NULL;
        LS_TRY(device_take(queue, size, &memory));
        if (queue->scratch) {
            device_give(queue, queue->scratch); /* waits for the calls that use it */
        }
        queue->scratch = memory;
        queue->scratch_bytes = size;
    }
    *memory_out = queue->scratch;
    return LS_OK;
}
