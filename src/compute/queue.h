// SPDX-License-Identifier: Apache-2.0
/*
 * Queues: where kernels are sent.
 *
 * Every kernel takes a queue and device views. On the CPU a queue owns the thread pool and a call completes
 * before it returns; on a GPU a queue is a stream and a call only enqueues. Callers must not care: results
 * are read after ls_queue_wait().
 *
 * Results do not depend on the thread count (DESIGN I2): kernels cut their work in tiles that are a function
 * of the shapes alone, each tile is computed by one thread, and sums over tiles are taken in tile order.
 *
 * A queue is used by one thread at a time.
 */
#ifndef LS_COMPUTE_QUEUE_H
#define LS_COMPUTE_QUEUE_H

#include "base/status.h"
#include "compute/tensor.h"

#include <stdint.h>

typedef struct ls_queue ls_queue;

/*
 * A CPU queue with its own pool of `threads` (1..256; the caller counts as one of them). The instruction set
 * is the best the processor has; the environment variable LS_ISA (generic | avx2 | avx512) overrides it,
 * which changes speed but no bits. A queue does not survive fork(). The caller destroys it. Errors:
 * LS_ERR_INVALID (threads out of range, unknown LS_ISA), LS_ERR_UNSUPPORTED (the processor lacks LS_ISA),
 * LS_ERR_MEMORY; *queue_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_queue_create_cpu(uint32_t threads, ls_queue **queue_out);
/* Ends the threads and frees the scratch. queue may be NULL. */
void ls_queue_destroy(ls_queue *queue);

ls_device_kind ls_queue_device(const ls_queue *queue);
uint32_t ls_queue_threads(const ls_queue *queue);

/* Waits until everything sent to the queue is done; returns the first error of what was sent. */
LS_MUST_CHECK ls_status ls_queue_wait(ls_queue *queue);

/*
 * Runs fn(context, tile, worker) for tile = 0 .. tiles-1 on the queue's threads, in any order, and waits.
 * Tiles are claimed lowest first by whichever thread is free. `worker` is in [0, threads) and names the
 * thread, for scratch memory only: results must not depend on it. tiles in [0, 2^32); a tile worth less than
 * about 2 us costs more in claims than it gains. Not from inside a tile. CPU queues only.
 */
typedef void (*ls_tile_fn)(void *context, int64_t tile, uint32_t worker);
void ls_queue_run_tiles(ls_queue *queue, int64_t tiles, ls_tile_fn fn, void *context);

/*
 * Per-worker scratch memory of at least `bytes` (64-byte aligned), kept by the queue until it is destroyed.
 * There is one block per worker: a tile asks once and divides what it gets. The contents are undefined.
 * Growing allocates, so a function that uses scratch first reserves it from the calling thread, where running
 * out of memory is an error (LS_ERR_MEMORY); a step after the first then allocates nothing. Growing inside a
 * tile works too, but stops the process when there is no memory. CPU queues only.
 */
LS_MUST_CHECK ls_status ls_queue_reserve_scratch(ls_queue *queue, size_t bytes);
void *ls_queue_scratch(ls_queue *queue, uint32_t worker, size_t bytes);

/* Memory on the queue's device, 64-byte aligned, zeroed; blocks of 2 MiB and more are 2 MiB aligned and ask
 * for huge pages. Freed by ls_device_free with the same `bytes`, NULL allowed. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_device_alloc(ls_queue *queue, size_t bytes, void **memory_out);
void ls_device_free(ls_queue *queue, void *memory, size_t bytes);

/* The determinism class of the queue's device: instruction-set family, kernel version and tile sizes that the
 * bits depend on, e.g. "cpu-fma-2". Runs of one class agree bit for bit (DESIGN I1). Static string. */
const char *ls_queue_determinism_class(const ls_queue *queue);

/* Name of the processor and instruction set in use, for people ("AMD EPYC, avx512"). */
const char *ls_queue_device_name(const ls_queue *queue);

/*
 * Measured single-precision matrix-product rate of this queue in FLOP/s: the best product of 1024^3 of this and all earlier calls, some
 * 50 ms per call. MFU is stated against it. A machine that is busy at the first call looks slow, so long runs call again now and then.
 * 0 when there is no memory to measure with.
 */
double ls_queue_gemm_peak_flops(ls_queue *queue);

/* Measured rate of fused multiply-adds in registers on all threads, FLOP/s: the limit of the processor's arithmetic. Best of a few
 * bursts, some 20 ms, measured at each call; one queue of a process at a time. */
double ls_queue_fma_peak_flops(ls_queue *queue);

#endif
