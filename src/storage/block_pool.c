// SPDX-License-Identifier: Apache-2.0
#include "storage/block_pool.h"

#include "base/assert.h"
#include "storage/checkpoint.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEFAULT_THREADS = 4, ERROR_TEXT_BYTES = 1024 };

typedef struct block_pool {
    const ls_block_work *work;
    unsigned char *buffers;
    pthread_mutex_t mutex;
    pthread_cond_t turn_moved;
    size_t next;           /* first block not claimed */
    uint64_t *lane_turn;   /* whose turn it is, per lane */
    unsigned worker_count; /* started so far, which is how a worker finds its buffer */
    ls_status status;      /* of the first error */
    char error_text[ERROR_TEXT_BYTES];
} block_pool;

static void pool_fail(block_pool *pool, ls_status status)
{
    pthread_mutex_lock(&pool->mutex);
    if (pool->status == LS_OK) {
        pool->status = status;
        snprintf(pool->error_text, sizeof pool->error_text, "%s", ls_error_text());
    }
    pthread_cond_broadcast(&pool->turn_moved);
    pthread_mutex_unlock(&pool->mutex);
}

static const ls_block *claim(block_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    const bool more = pool->status == LS_OK && pool->next < pool->work->block_count;
    const ls_block *block = more ? &pool->work->blocks[pool->next++] : NULL;
    pthread_mutex_unlock(&pool->mutex);
    return block;
}

/* False when somebody failed and the turn may never come. */
static bool wait_turn(block_pool *pool, const ls_block *block)
{
    pthread_mutex_lock(&pool->mutex);
    while (pool->status == LS_OK && pool->lane_turn[block->lane] != block->turn) {
        pthread_cond_wait(&pool->turn_moved, &pool->mutex);
    }
    const bool mine = pool->status == LS_OK;
    pthread_mutex_unlock(&pool->mutex);
    return mine;
}

static void end_turn(block_pool *pool, const ls_block *block)
{
    pthread_mutex_lock(&pool->mutex);
    pool->lane_turn[block->lane]++;
    pthread_cond_broadcast(&pool->turn_moved);
    pthread_mutex_unlock(&pool->mutex);
}

static ls_status run_block(block_pool *pool, const ls_block *block, unsigned char *buffer)
{
    const ls_block_work *work = pool->work;
    LS_TRY(work->prepare(work->context, block, buffer));
    if (work->in_order) {
        if (!wait_turn(pool, block)) {
            return LS_OK;
        }
        work->in_order(work->context, block, buffer);
        end_turn(pool, block);
    }
    return work->finish ? work->finish(work->context, block, buffer) : LS_OK;
}

static void *worker_main(void *argument)
{
    block_pool *pool = argument;
    pthread_mutex_lock(&pool->mutex);
    unsigned char *buffer = pool->buffers + (size_t)pool->worker_count++ * LS_CHECKPOINT_BLOCK_BYTES;
    pthread_mutex_unlock(&pool->mutex);
    const ls_block *block;
    while ((block = claim(pool))) {
        const ls_status status = run_block(pool, block, buffer);
        if (status != LS_OK) {
            pool_fail(pool, status);
        }
    }
    return NULL;
}

static void number_turns(const ls_block_work *work, uint64_t *lane_turn)
{
    for (size_t i = 0; i < work->block_count; i++) {
        LS_ASSERT(work->blocks[i].lane < work->lane_count);
        work->blocks[i].turn = lane_turn[work->blocks[i].lane]++;
    }
    memset(lane_turn, 0, work->lane_count * sizeof *lane_turn);
}

/* The caller is a worker too, so the work gets done even when no thread can be started. */
static void run_workers(block_pool *pool, unsigned threads)
{
    pthread_t others[LS_CHECKPOINT_THREADS_MAX];
    unsigned started = 0;
    while (started + 1 < threads && pthread_create(&others[started], NULL, worker_main, pool) == 0) {
        started++;
    }
    worker_main(pool);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(others[i], NULL);
    }
}

ls_status ls_block_pool_run(const ls_block_work *work)
{
    unsigned threads = work->threads ? work->threads : DEFAULT_THREADS;
    threads = threads > LS_CHECKPOINT_THREADS_MAX ? LS_CHECKPOINT_THREADS_MAX : threads;
    threads = threads > work->block_count ? (unsigned)work->block_count : threads;
    if (threads == 0) {
        return LS_OK;
    }
    const size_t buffer_bytes = (size_t)threads * LS_CHECKPOINT_BLOCK_BYTES;
    void *buffers = mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *lane_turn = calloc(work->lane_count + 1, sizeof *lane_turn);
    ls_status status = LS_OK;
    if (buffers == MAP_FAILED || !lane_turn) {
        status = ls_fail(LS_ERR_MEMORY, "no memory for %u block buffers of %d bytes", threads,
                         LS_CHECKPOINT_BLOCK_BYTES);
    } else {
        block_pool pool = {.work = work, .buffers = buffers, .lane_turn = lane_turn};
        pthread_mutex_init(&pool.mutex, NULL);
        pthread_cond_init(&pool.turn_moved, NULL);
        number_turns(work, lane_turn);
        run_workers(&pool, threads);
        pthread_cond_destroy(&pool.turn_moved);
        pthread_mutex_destroy(&pool.mutex);
        status = pool.status == LS_OK ? LS_OK : ls_fail(pool.status, "%s", pool.error_text);
    }
    free(lane_turn);
    if (buffers != MAP_FAILED) {
        munmap(buffers, buffer_bytes);
    }
    return status;
}
