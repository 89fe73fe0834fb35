// SPDX-License-Identifier: Apache-2.0
/*
 * The thread pool of a CPU queue.
 *
 * A job is `tiles` calls fn(context, tile, worker). A free thread claims one tile at a time, the
 * lowest one left, so a slow or descheduled thread delays only the tile that it holds. The calling
 * thread works too: a pool of 1 has no threads of its own.
 *
 *      caller                               worker
 *      ------                               ------
 *      job = {fn, context, tiles}           spin for about 20 us, then sleep on `bell`
 *      pending = tiles
 *      ticket = (epoch + 1, tiles)  ----->  claim: compare-and-swap ticket -> ticket - 1
 *      ring `bell` if a worker sleeps       fn(context, tiles - remaining, worker)
 *      claim and run tiles too              pending -= 1; the thread that makes it 0 wakes the
 *      wait for pending == 0        <-----  caller if the caller sleeps
 *
 * The epoch in the ticket makes a late worker harmless: its compare-and-swap fails if another job
 * has begun. After a successful claim the job can't end before that tile does, so the fields of the
 * job may be read then, and only then.
 *
 * Threads wait by spinning only if every thread of the pool has a core to itself, and then for
 * about 20 us, the gap between two kernels of a step. After that, and always if there are more
 * threads than cores, they wait on a futex. A wake-up costs a system call only if a thread sleeps.
 *
 * Thread-safety: one thread at a time calls ls_pool_run. Calling it inside a tile is a bug and is
 * asserted. Threads of the pool block all signals. A pool does not survive fork().
 */
#ifndef LS_COMPUTE_CPU_POOL_H
#define LS_COMPUTE_CPU_POOL_H

#include "base/status.h"

#include <stdint.h>

typedef struct ls_pool ls_pool;

enum { LS_POOL_THREADS_MAX = 256 };

/* One tile of a job. `worker` is in [0, threads); 0 is the caller. */
typedef void (*ls_pool_fn)(void *context, int64_t tile, uint32_t worker);

/* Creates a pool of `threads` threads, 1 to LS_POOL_THREADS_MAX, of which the caller is one.
 * Errors: LS_ERR_INVALID for a number out of range; LS_ERR_MEMORY if there is no memory or no more
 * threads. *pool_out is then unchanged. */
LS_MUST_CHECK ls_status ls_pool_create(uint32_t threads, ls_pool **pool_out);

/* Ends and joins the threads. pool may be NULL. */
void ls_pool_destroy(ls_pool *pool);

uint32_t ls_pool_threads(const ls_pool *pool);

/* Runs the job and returns when every tile is done. `tiles` is in [0, 2^32). The caller then sees
 * everything that the tiles wrote. */
void ls_pool_run(ls_pool *pool, int64_t tiles, ls_pool_fn fn, void *context);

#endif
