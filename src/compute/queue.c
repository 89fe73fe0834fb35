// SPDX-License-Identifier: Apache-2.0
/* What every queue does, by its backend. Calls that only a CPU queue has are in compute/cpu/. */
#include "compute/queue.h"

#include "base/assert.h"
#include "compute/backend.h"

void ls_queue_destroy(ls_queue *queue)
{
    if (queue) {
        queue->backend->destroy(queue);
    }
}

ls_device_kind ls_queue_device(const ls_queue *queue)
{
    LS_ASSERT(queue);
    return queue->backend->device;
}

uint32_t ls_queue_threads(const ls_queue *queue)
{
    LS_ASSERT(queue);
    return queue->backend->threads(queue);
}

ls_status ls_queue_wait(ls_queue *queue)
{
    LS_ASSERT(queue);
    return queue->backend->wait(queue);
}

ls_status ls_device_alloc(ls_queue *queue, size_t bytes, void **memory_out)
{
    LS_ASSERT(queue && memory_out);
    return queue->backend->alloc(queue, bytes, LS_MEMORY_DEVICE, memory_out);
}

ls_status ls_shared_alloc(ls_queue *queue, size_t bytes, void **memory_out)
{
    LS_ASSERT(queue && memory_out);
    return queue->backend->alloc(queue, bytes, LS_MEMORY_SHARED, memory_out);
}

void ls_device_free(ls_queue *queue, void *memory, size_t bytes)
{
    LS_ASSERT(queue);
    if (memory) {
        queue->backend->free(queue, memory, bytes, LS_MEMORY_DEVICE);
    }
}

void ls_shared_free(ls_queue *queue, void *memory, size_t bytes)
{
    LS_ASSERT(queue);
    if (memory) {
        queue->backend->free(queue, memory, bytes, LS_MEMORY_SHARED);
    }
}

ls_status ls_queue_move(ls_queue *queue, void *to, const void *from, size_t bytes)
{
    LS_ASSERT(queue && (bytes == 0 || (to && from)));
    return bytes > 0 ? queue->backend->move(queue, to, from, bytes) : LS_OK;
}

const char *ls_queue_determinism_class(const ls_queue *queue)
{
    LS_ASSERT(queue);
    return queue->backend->determinism_class(queue);
}

const char *ls_queue_device_name(const ls_queue *queue)
{
    LS_ASSERT(queue);
    return queue->backend->device_name(queue);
}

double ls_queue_gemm_peak_flops(ls_queue *queue, ls_dtype dtype)
{
    LS_ASSERT(queue);
    return queue->backend->gemm_peak_flops(queue, dtype);
}

uint64_t ls_queue_free_memory(ls_queue *queue)
{
    LS_ASSERT(queue);
    return queue->backend->free_memory ? queue->backend->free_memory(queue) : UINT64_MAX;
}
