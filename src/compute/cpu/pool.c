// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/pool.h"

#include "base/assert.h"
#include "base/clock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CACHE_LINE = 64, SPIN_NS = 20000, SPIN_CLOCK_EVERY = 32 };

typedef struct pool_worker {
    ls_pool *pool;
    uint32_t number;
    pthread_t thread;
} pool_worker;

struct ls_pool {
    /* Written by every claim: alone on its line. High half: epoch; low half: tiles not yet
     * claimed. */
    _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
    /* Tiles not yet finished; the caller sleeps on it. */
    _Alignas(CACHE_LINE) _Atomic uint32_t pending;
    _Atomic uint32_t caller_sleeps;
    /* Changes with every job; workers sleep on it. */
    _Alignas(CACHE_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers;
    _Atomic bool stopping;
    /* The job: written before `ticket` is published, read after a claim. */
    _Alignas(CACHE_LINE) ls_pool_fn fn;
    void *context;
    uint32_t tiles;
    bool running;
    uint32_t threads;
    bool may_spin;
    pool_worker *workers; /* threads - 1 */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint32_t ticket_remaining(uint64_t ticket)
{
    return (uint32_t)ticket;
}

static void tile_finish(ls_pool *pool)
{
    /* seq_cst pairs with caller_wait: either it sees 0, or this thread sees that it sleeps. */
    if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
        futex_wake(&pool->pending, 1);
    }
}

/* Claims and runs tiles until none is left unclaimed. */
static void run_claimed(ls_pool *pool, uint32_t worker)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while (ticket_remaining(ticket) > 0) {
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1, memory_order_acquire,
                                                   memory_order_acquire)) {
            continue;
        }
        pool->fn(pool->context, (int64_t)pool->tiles - ticket_remaining(ticket), worker);
        tile_finish(pool);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

static bool worker_has_cause(ls_pool *pool)
{
    return ticket_remaining(atomic_load_explicit(&pool->ticket, memory_order_relaxed)) > 0 ||
           atomic_load_explicit(&pool->stopping, memory_order_relaxed);
}

static bool pool_is_done(ls_pool *pool)
{
    return atomic_load_explicit(&pool->pending, memory_order_acquire) == 0;
}

/* Spins until ready(pool) or SPIN_NS have passed. The clock is read every few rounds only. */
static bool spin_until(ls_pool *pool, bool (*ready)(ls_pool *))
{
    if (!pool->may_spin) {
        return ready(pool);
    }
    const uint64_t deadline_ns = ls_clock_monotonic_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_CLOCK_EVERY; i++) {
            if (ready(pool)) {
                return true;
            }
            cpu_relax();
        }
    } while (ls_clock_monotonic_ns() < deadline_ns);
    return ready(pool);
}

static void worker_wait(ls_pool *pool)
{
    if (spin_until(pool, worker_has_cause)) {
        return;
    }
    atomic_fetch_add(&pool->sleepers, 1);
    const uint32_t bell = atomic_load(&pool->bell);
    /* seq_cst: a job published after this look has also rung the bell, and futex_wait returns at
     * once. */
    if (ticket_remaining(atomic_load(&pool->ticket)) == 0 && !atomic_load(&pool->stopping)) {
        futex_wait(&pool->bell, bell);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *argument)
{
    pool_worker *self = argument;
    ls_pool *pool = self->pool;
    while (!atomic_load(&pool->stopping)) {
        run_claimed(pool, self->number);
        worker_wait(pool);
    }
    return NULL;
}

static void bell_ring(ls_pool *pool, uint32_t wanted)
{
    atomic_fetch_add(&pool->bell, 1);
    if (atomic_load(&pool->sleepers) > 0) {
        futex_wake(&pool->bell, (int)wanted);
    }
}

static void caller_wait(ls_pool *pool)
{
    if (spin_until(pool, pool_is_done)) {
        return;
    }
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t pending = atomic_load(&pool->pending); pending != 0;
         pending = atomic_load(&pool->pending)) {
        futex_wait(&pool->pending, pending);
    }
    atomic_store(&pool->caller_sleeps, 0);
}

static void run_alone(int64_t tiles, ls_pool_fn fn, void *context)
{
    for (int64_t tile = 0; tile < tiles; tile++) {
        fn(context, tile, 0);
    }
}

void ls_pool_run(ls_pool *pool, int64_t tiles, ls_pool_fn fn, void *context)
{
    LS_ASSERT(pool && fn && tiles >= 0 && tiles <= UINT32_MAX);
    LS_ASSERT(!pool->running && "ls_pool_run from inside a tile");
    pool->running = true;
    if (pool->threads == 1 || tiles <= 1) {
        run_alone(tiles, fn, context);
    } else {
        pool->fn = fn;
        pool->context = context;
        pool->tiles = (uint32_t)tiles;
        atomic_store_explicit(&pool->pending, (uint32_t)tiles, memory_order_relaxed);
        const uint64_t epoch = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 32) + 1;
        atomic_store(&pool->ticket, epoch << 32 | (uint64_t)tiles);
        const uint32_t helpers = pool->threads - 1;
        bell_ring(pool, tiles - 1 < helpers ? (uint32_t)(tiles - 1) : helpers);
        run_claimed(pool, 0);
        caller_wait(pool);
    }
    pool->running = false;
}

static uint32_t cores_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    return (uint32_t)CPU_COUNT(&set);
}

/* Ends and joins the first `count` threads. */
static void workers_stop(ls_pool *pool, uint32_t count)
{
    atomic_store(&pool->stopping, true);
    bell_ring(pool, count);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
}

/* Starts thread `i`, all signals blocked: they are for the program's own threads. */
static int worker_start(ls_pool *pool, uint32_t i)
{
    pool_worker *worker = &pool->workers[i];
    *worker = (pool_worker){.pool = pool, .number = i + 1};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        char name[16];
        snprintf(name, sizeof name, "ls-worker-%u", i + 1);
        pthread_setname_np(worker->thread, name);
    }
    return error;
}

ls_status ls_pool_create(uint32_t threads, ls_pool **pool_out)
{
    LS_ASSERT(pool_out);
    if (threads < 1 || threads > LS_POOL_THREADS_MAX) {
        return ls_fail(LS_ERR_INVALID, "%u threads were asked for; allowed are 1 to %d", threads,
                       LS_POOL_THREADS_MAX);
    }
    ls_pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    pool_worker *workers = calloc(threads, sizeof *workers);
    if (!pool || !workers) {
        free(pool);
        free(workers);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a pool of %u threads", threads);
    }
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->may_spin = threads <= cores_allowed();
    pool->workers = workers;
    for (uint32_t i = 0; i + 1 < threads; i++) {
        const int error = worker_start(pool, i);
        if (error != 0) {
            workers_stop(pool, i);
            free(workers);
            free(pool);
            return ls_fail(
                LS_ERR_MEMORY,
                "can't start thread %u of %u: %s; ask for fewer threads or raise the limit (ulimit -u)",
                i + 1, threads, strerror(error));
        }
    }
    *pool_out = pool;
    return LS_OK;
}

void ls_pool_destroy(ls_pool *pool)
{
    if (!pool) {
        return;
    }
    LS_ASSERT(!pool->running);
    workers_stop(pool, pool->threads - 1);
    free(pool->workers);
    free(pool);
}

uint32_t ls_pool_threads(const ls_pool *pool)
{
    return pool->threads;
}
