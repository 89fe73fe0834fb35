// SPDX-License-Identifier: Apache-2.0
/*
 * Queues, which run kernels.
 *
 * Every kernel takes a queue and views of device memory. On the CPU a queue owns a thread pool, and
 * a call completes before it returns. On a GPU a queue is a stream, and a call only enqueues. A
 * caller that reads results after ls_queue_wait() works on both.
 *
 * Results do not depend on the thread count: kernels cut their work into tiles that depend only on
 * the shapes, one thread computes a tile, and sums over tiles are taken in tile order.
 *
 * One thread at a time uses a queue.
 */
#ifndef LS_COMPUTE_QUEUE_H
#define LS_COMPUTE_QUEUE_H

#include "base/status.h"
#include "compute/tensor.h"

#include <stdint.h>

typedef struct ls_queue ls_queue;

/*
 * Creates a CPU queue with its own pool of `threads`: 1 to 256, of which the caller is one. The
 * instruction set is the best that the processor has. The environment variable LS_ISA (generic,
 * avx2 or avx512) overrides it, which changes the speed but no bits. A queue does not survive
 * fork(). The caller destroys it.
 *
 * Errors: LS_ERR_INVALID for threads out of range or an unknown LS_ISA; LS_ERR_UNSUPPORTED if the
 * processor lacks LS_ISA; LS_ERR_MEMORY. *queue_out is then unchanged.
 */
LS_MUST_CHECK ls_status ls_queue_create_cpu(uint32_t threads, ls_queue **queue_out);

typedef struct ls_cuda_options {
    /* Which GPU, counted from 0 among those that CUDA_VISIBLE_DEVICES leaves. */
    uint32_t device;
    /* Products of float32 matrices round their inputs to TF32 (10 bits), which is several times as
     * fast. */
    bool tf32;
} ls_cuda_options;

/*
 * Creates a queue on an NVIDIA GPU of compute capability 8.0 or higher. The caller destroys it.
 *
 * Errors: LS_ERR_DEVICE: no driver, too old a driver, no such device, one that is too old, or
 * a program built without the CUDA toolkit; LS_ERR_MEMORY; LS_ERR_FAILED for a device that does not
 * answer. The text says which and what to do. *queue_out is then unchanged.
 */
LS_MUST_CHECK ls_status ls_queue_create_cuda(const ls_cuda_options *options, ls_queue **queue_out);

/* Waits, ends the threads and frees the scratch. queue may be NULL. */
void ls_queue_destroy(ls_queue *queue);

ls_device_kind ls_queue_device(const ls_queue *queue);
uint32_t ls_queue_threads(const ls_queue *queue);

/* Waits until every call sent to the queue is done. Returns the first error of those calls. */
LS_MUST_CHECK ls_status ls_queue_wait(ls_queue *queue);

/*
 * Runs fn(context, tile, worker) for tile = 0 .. tiles-1 on the queue's threads, in any order, and
 * waits. A free thread claims the lowest tile left. `worker` is in [0, threads) and identifies the
 * thread; it is for scratch memory only, and results must not depend on it. `tiles` is in [0,
 * 2^32). A tile of less than about 2 us costs more to claim than it gains. Must not be called
 * inside a tile. CPU queues only.
 */
typedef void (*ls_tile_fn)(void *context, int64_t tile, uint32_t worker);
void ls_queue_run_tiles(ls_queue *queue, int64_t tiles, ls_tile_fn fn, void *context);

/*
 * Scratch memory of at least `bytes` per worker, 64-byte aligned, which the queue keeps until it is
 * destroyed. Each worker has one block, so a tile asks once and divides the block. The contents are
 * undefined. Growing allocates, so a function that uses scratch first reserves it on the calling
 * thread, where running out of memory is an error (LS_ERR_MEMORY). Steps after the first then
 * allocate nothing. Growing inside a tile works too, but stops the process if there is no memory.
 * CPU queues only.
 */
LS_MUST_CHECK ls_status ls_queue_reserve_scratch(ls_queue *queue, size_t bytes);
void *ls_queue_scratch(ls_queue *queue, uint32_t worker, size_t bytes);

/*
 * Two kinds of memory. On the CPU they are the same.
 *
 *   device   fast for kernels. Only kernels and ls_queue_move touch it.
 *   shared   memory of the host that kernels can reach, slowly: for tokens, losses and the like.
 *            The host must not change it, or trust what it reads, before ls_queue_wait() has
 *            returned for the calls that use it.
 */
typedef enum ls_memory_kind { LS_MEMORY_DEVICE, LS_MEMORY_SHARED } ls_memory_kind;

/* Allocates zeroed memory, at least 64-byte aligned (256 on a GPU). On the CPU, blocks of 2 MiB and
 * more are 2 MiB aligned and use huge pages where the system gives them. The caller frees it with
 * the function of the same kind and the same `bytes`. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_device_alloc(ls_queue *queue, size_t bytes, void **memory_out);
LS_MUST_CHECK ls_status ls_shared_alloc(ls_queue *queue, size_t bytes, void **memory_out);

/* NULL is allowed. */
void ls_device_free(ls_queue *queue, void *memory, size_t bytes);
void ls_shared_free(ls_queue *queue, void *memory, size_t bytes);

/* Copies bytes between any two places: device, shared, or other memory of the host. Enqueued like a
 * kernel: wait before reading `to` on the host, or changing `from` there. */
LS_MUST_CHECK ls_status ls_queue_move(ls_queue *queue, void *to, const void *from, size_t bytes);

/* The determinism class of the queue's device: the instruction-set family, kernel version and tile
 * sizes that the bits depend on, for example "cpu-fma-3". Runs of one class agree bit for bit. The
 * string lives as long as the queue. */
const char *ls_queue_determinism_class(const ls_queue *queue);

/* Name of the device, for messages: the processor and the instruction set in use ("AMD EPYC,
 * avx512"), or the GPU. Lives as long as the queue. */
const char *ls_queue_device_name(const ls_queue *queue);

/*
 * The rate of matrix products in FLOP/s that MFU (model FLOP utilization) is relative to.
 *
 * On the CPU it is measured in float32: the best product of 1024^3 of this and all earlier
 * measurements. One takes about 50 ms; a call within 5 s after it returns what is known. A machine
 * that is busy during the first call looks slow, so long runs call again from time to time. On a
 * GPU it is what the maker's data sheet says for dense products of `dtype`, LS_BF16 or LS_F32 (TF32
 * if the queue was created so); for a card that is not in the table of compute/cuda/peak.c, what
 * its multiprocessors can do at their highest clock. Returns 0 if it can't be told.
 */
double ls_queue_gemm_peak_flops(ls_queue *queue, ls_dtype dtype);

/* Bytes of device memory that are free now, for all processes. UINT64_MAX: the device is the CPU,
 * or it can't be told. */
uint64_t ls_queue_free_memory(ls_queue *queue);

/* Measures the rate of fused multiply-adds in registers on all threads, in FLOP/s: the limit of the
 * processor's arithmetic. Each call measures the best of a few bursts and takes about 20 ms. Only
 * one queue of a process may do so at a time. CPU queues only. */
double ls_queue_fma_peak_flops(ls_queue *queue);

#endif
