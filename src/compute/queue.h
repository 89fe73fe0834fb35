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

/* Ends the threads and frees the scratch. queue may be NULL. */
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

/* Allocates zeroed memory on the queue's device, 64-byte aligned. Blocks of 2 MiB and more are 2
 * MiB aligned and use huge pages where the system gives them. The caller frees it with
 * ls_device_free and the same `bytes`. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_device_alloc(ls_queue *queue, size_t bytes, void **memory_out);

/* Frees memory of ls_device_alloc. NULL is allowed. */
void ls_device_free(ls_queue *queue, void *memory, size_t bytes);

/* The determinism class of the queue's device: the instruction-set family, kernel version and tile
 * sizes that the bits depend on, for example "cpu-fma-2". Runs of one class agree bit for bit.
 * Static string. */
const char *ls_queue_determinism_class(const ls_queue *queue);

/* Name of the processor and the instruction set in use, for messages ("AMD EPYC, avx512"). */
const char *ls_queue_device_name(const ls_queue *queue);

/*
 * Measures the queue's single-precision matrix-product rate in FLOP/s. The result is the best
 * product of 1024^3 of this and all earlier calls; a call takes about 50 ms. MFU (model FLOP
 * utilization) is relative to it. A machine that is busy during the first call looks slow, so long
 * runs call again from time to time. Returns 0 if there is no memory to measure with.
 */
double ls_queue_gemm_peak_flops(ls_queue *queue);

/* Measures the rate of fused multiply-adds in registers on all threads, in FLOP/s: the limit of the
 * processor's arithmetic. Each call measures the best of a few bursts and takes about 20 ms. Only
 * one queue of a process may do so at a time. */
double ls_queue_fma_peak_flops(ls_queue *queue);

#endif
