// SPDX-License-Identifier: Apache-2.0
/*
 * The thread pool behind a CPU queue.
 *
 * A job is `tiles` calls fn(context, tile, worker). Tiles are claimed one at a time, lowest first, by
 * whichever thread is free, so a slow or descheduled thread delays only the tile it holds. The thread that
 * submits works too: a pool of 1 has no threads of its own.
 *
 *      caller                       worker
 *      ------                       ------
 *      job = {fn, context, tiles}   spin ~20 us, then sleep on `bell`
 *      pending = tiles              ...
 *      ticket = (epoch+1, tiles) -> claim: compare-and-swap ticket -> ticket - 1
 *      ring `bell` if anyone sleeps fn(context, tiles - remaining, worker)
 *      claim and run tiles too      pending -= 1; who makes it 0 wakes the caller if it sleeps
 *      wait for pending == 0
 *
 * The epoch inside the ticket is what makes a late worker harmless: its compare-and-swap fails when another
 * job has begun. After a claim succeeds the job can't end before that tile does, so the fields of the job may
 * be read then, and only then.
 *
 * Waiting is by spinning only when every thread of the pool has a core to itself, and then for about 20 us
 * (the gap between two kernels of a step); after that, and always when threads outnumber cores, by futex. A
 * wake-up costs a system call only when somebody sleeps.
 *
 * Thread-safety: one submitting thread at a time; ls_pool_run from inside a tile is a bug (asserted). Threads
 * of the pool block all signals. A pool does not survive fork().
 */
#ifndef LS_COMPUTE_CPU_POOL_H
#define LS_COMPUTE_CPU_POOL_H

#include "base/status.h"

#include <stdint.h>

typedef struct ls_pool ls_pool;

enum { LS_POOL_THREADS_MAX = 256 };

/* What a job is made of; `worker` is in [0, threads), 0 is the caller. */
typedef void (*ls_pool_fn)(void *context, int64_t tile, uint32_t worker);

/* A pool of `threads` threads, 1 .. LS_POOL_THREADS_MAX, the caller counted. Errors: LS_ERR_INVALID (range),
 * LS_ERR_MEMORY (no memory or no more threads); *pool_out is then untouched. */
LS_MUST_CHECK ls_status ls_pool_create(uint32_t threads, ls_pool **pool_out);

/* Ends and joins the threads. pool may be NULL. */
void ls_pool_destroy(ls_pool *pool);

uint32_t ls_pool_threads(const ls_pool *pool);

/* Runs the job and returns when every tile is done. tiles in [0, 2^32). What tiles wrote is visible to the
 * caller afterwards. */
void ls_pool_run(ls_pool *pool, int64_t tiles, ls_pool_fn fn, void *context);

#endif
