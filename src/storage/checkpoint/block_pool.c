// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/block_pool.h"

#include "base/assert.h"
#include "storage/checkpoint/checkpoint.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ERROR_TEXT_BYTES = 1024, HUGE_PAGE_BYTES = 2 << 20, SLOTS_MAX = 2 * LS_CHECKPOINT_THREADS_MAX };

typedef enum slot_state {
    SLOT_FREE,
    SLOT_PREPARING,
    /* waits for its turn */
    SLOT_READY,
    SLOT_IN_ORDER,
    /* waits to be finished */
    SLOT_DONE,
    SLOT_FINISHING,
} slot_state;

/* A buffer and the block in it. */
typedef struct block_slot {
    slot_state state;
    const ls_block *block;
    unsigned char *buffer;
} block_slot;

typedef struct block_pool {
    const ls_block_work *work;
    pthread_mutex_t mutex;
    pthread_cond_t moved; /* signalled when a slot has changed its state */
    size_t next;          /* first block not claimed */
    size_t left;          /* blocks not finished */
    uint64_t *lane_turn;  /* whose turn it is, per lane */
    block_slot slots[SLOTS_MAX];
    unsigned slot_count;
    ls_status status; /* of the first error */
    char error_text[ERROR_TEXT_BYTES];
} block_pool;

/* The next task of a worker: one slot, or two that are hashed together. Both NULL: nothing to do
 * now. */
typedef struct pool_task {
    block_slot *slots[2];
} pool_task;

/* ---- choosing; the mutex is held ---- */

static block_slot *find_state(block_pool *pool, slot_state state)
{
    for (unsigned i = 0; i < pool->slot_count; i++) {
        if (pool->slots[i].state == state) {
            return &pool->slots[i];
        }
    }
    return NULL;
}

static bool is_at_turn(const block_pool *pool, const block_slot *slot)
{
    return slot->block->turn == pool->lane_turn[slot->block->lane];
}

/* A ready block whose turn it is; `beside`: of another lane than this slot's. A lane's turn
 * advances only after its block was hashed, so no other block of that lane is being hashed. */
static block_slot *find_head(block_pool *pool, const block_slot *beside)
{
    for (unsigned i = 0; i < pool->slot_count; i++) {
        block_slot *slot = &pool->slots[i];
        if (slot->state == SLOT_READY && is_at_turn(pool, slot) &&
            (!beside || slot->block->lane != beside->block->lane)) {
            return slot;
        }
    }
    return NULL;
}

/* Whether a block of another lane will soon be ready for its turn: it is being prepared, or the
 * block before it is being hashed. */
static bool is_partner_coming(const block_pool *pool, const block_slot *head)
{
    for (unsigned i = 0; i < pool->slot_count; i++) {
        const block_slot *slot = &pool->slots[i];
        const bool is_waiting = slot->state == SLOT_PREPARING || slot->state == SLOT_READY;
        if (is_waiting && slot->block->lane != head->block->lane &&
            slot->block->turn <= pool->lane_turn[slot->block->lane] + 1) {
            return true;
        }
    }
    return false;
}

static pool_task choose(block_pool *pool)
{
    block_slot *done = find_state(pool, SLOT_DONE);
    if (done) {
        return (pool_task){{done}};
    }
    block_slot *head = find_head(pool, NULL);
    block_slot *second = head ? find_head(pool, head) : NULL;
    if (second) {
        return (pool_task){{head, second}};
    }
    block_slot *empty = pool->next < pool->work->block_count ? find_state(pool, SLOT_FREE) : NULL;
    if (empty) {
        return (pool_task){{empty}};
    }
    if (head && !is_partner_coming(pool, head)) {
        return (pool_task){{head}};
    }
    return (pool_task){0};
}

/* Moves the slots to a state in which no other worker takes them. */
static void take(block_pool *pool, const pool_task *task)
{
    for (int i = 0; i < 2 && task->slots[i]; i++) {
        block_slot *slot = task->slots[i];
        if (slot->state == SLOT_FREE) {
            slot->block = &pool->work->blocks[pool->next++];
        }
        slot->state = slot->state == SLOT_FREE    ? SLOT_PREPARING
                      : slot->state == SLOT_READY ? SLOT_IN_ORDER
                                                  : SLOT_FINISHING;
    }
}

/* After the work: moves the slots to their next state. */
static void put_back(block_pool *pool, const pool_task *task)
{
    for (int i = 0; i < 2 && task->slots[i]; i++) {
        block_slot *slot = task->slots[i];
        switch (slot->state) {
        case SLOT_PREPARING:
            slot->state = pool->work->in_order ? SLOT_READY : SLOT_DONE;
            break;
        case SLOT_IN_ORDER:
            pool->lane_turn[slot->block->lane]++;
            slot->state = SLOT_DONE;
            break;
        default:
            slot->state = SLOT_FREE;
            pool->left--;
        }
    }
}

/* ---- working ---- */

static ls_status run_task(const block_pool *pool, const pool_task *task)
{
    const ls_block_work *work = pool->work;
    const block_slot *slot = task->slots[0], *second = task->slots[1];
    switch (slot->state) {
    case SLOT_PREPARING:
        return work->prepare(work->context, slot->block, slot->buffer);
    case SLOT_IN_ORDER: {
        const ls_block *const blocks[2] = {slot->block, second ? second->block : NULL};
        const unsigned char *const buffers[2] = {slot->buffer, second ? second->buffer : NULL};
        work->in_order(work->context, blocks, buffers, second ? 2 : 1);
        return LS_OK;
    }
    default:
        return work->finish ? work->finish(work->context, slot->block, slot->buffer) : LS_OK;
    }
}

/* Called with the mutex held. Only the first error is kept. */
static void note_failure(block_pool *pool, ls_status status)
{
    if (status != LS_OK && pool->status == LS_OK) {
        pool->status = status;
        snprintf(pool->error_text, sizeof pool->error_text, "%s", ls_error_text());
    }
}

static void *worker_main(void *argument)
{
    block_pool *pool = argument;
    pthread_mutex_lock(&pool->mutex);
    while (pool->left > 0 && pool->status == LS_OK) {
        const pool_task task = choose(pool);
        if (!task.slots[0]) {
            pthread_cond_wait(&pool->moved, &pool->mutex);
            continue;
        }
        take(pool, &task);
        pthread_mutex_unlock(&pool->mutex);
        const ls_status status = run_task(pool, &task);
        pthread_mutex_lock(&pool->mutex);
        put_back(pool, &task);
        note_failure(pool, status);
        pthread_cond_broadcast(&pool->moved);
    }
    pthread_mutex_unlock(&pool->mutex);
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

unsigned ls_block_pool_threads(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned threads = (cores > 0 ? (unsigned)cores : 1) + 2;
    return threads > LS_CHECKPOINT_THREADS_MAX ? LS_CHECKPOINT_THREADS_MAX : threads;
}

static ls_status run_with_buffers(const ls_block_work *work, unsigned threads, unsigned char *buffers,
                                  unsigned slot_count)
{
    block_pool *pool = calloc(1, sizeof *pool);
    uint64_t *lane_turn = calloc(work->lane_count + 1, sizeof *lane_turn);
    if (!pool || !lane_turn) {
        free(pool);
        free(lane_turn);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the table of %u block buffers", slot_count);
    }
    *pool = (block_pool){
        .work = work, .lane_turn = lane_turn, .slot_count = slot_count, .left = work->block_count};
    for (unsigned i = 0; i < slot_count; i++) {
        pool->slots[i].buffer = buffers + (size_t)i * LS_CHECKPOINT_BLOCK_BYTES;
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->moved, NULL);
    number_turns(work, lane_turn);
    run_workers(pool, threads);
    pthread_cond_destroy(&pool->moved);
    pthread_mutex_destroy(&pool->mutex);
    const ls_status status = pool->status == LS_OK ? LS_OK : ls_fail(pool->status, "%s", pool->error_text);
    free(lane_turn);
    free(pool);
    return status;
}

ls_status ls_block_pool_run(const ls_block_work *work)
{
    unsigned threads = work->threads ? work->threads : ls_block_pool_threads();
    threads = threads > LS_CHECKPOINT_THREADS_MAX ? LS_CHECKPOINT_THREADS_MAX : threads;
    threads = threads > work->block_count ? (unsigned)work->block_count : threads;
    if (threads == 0) {
        return LS_OK;
    }
    unsigned slots = 2 * threads;
    slots = slots > work->block_count ? (unsigned)work->block_count : slots;
    /* On huge pages if there are any: for a write past the page cache the kernel then pins and
     * maps far fewer pages. */
    const size_t bytes = (size_t)slots * LS_CHECKPOINT_BLOCK_BYTES, map_bytes = bytes + HUGE_PAGE_BYTES;
    unsigned char *map =
        mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %u block buffers of %d bytes", slots,
                       LS_CHECKPOINT_BLOCK_BYTES);
    }
    unsigned char *buffers = map + (HUGE_PAGE_BYTES - (uintptr_t)map % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    (void)madvise(buffers, bytes, MADV_HUGEPAGE);
    const ls_status status = run_with_buffers(work, threads, buffers, slots);
    munmap(map, map_bytes);
    return status;
}
