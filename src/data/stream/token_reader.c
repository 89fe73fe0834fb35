// SPDX-License-Identifier: Apache-2.0
#include "data/stream/token_reader.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "data/stream/block_cache.h"
#include "storage/blob/blob.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 16, QUEUE_MAX = 4096, PIECE_BLOCKS = 64, SETS_MAX = 512, TRIES = 3 };
/* Windows that are timed before the first group is tried, and between two tries. */
enum { WINDOWS_TIMED = 2 * THREADS, WINDOWS_BETWEEN = 256 };
/* Where a window costs more, a group may keep those that are needed next waiting for too long. */
static const double TRY_WINDOW_S = 0.02;

/* Neighbouring blocks that are fetched by one request. */
typedef struct piece {
    const ls_token_shard *shard; /* NULL: none */
    uint64_t block;
    uint32_t count;
    bool whole; /* most of the shard will be read */
} piece;

typedef struct worker {
    struct ls_token_reader *reader;
    pthread_t thread;
    piece running; /* under lock */
    ls_token_block blocks[PIECE_BLOCKS];
} worker;

struct ls_token_reader {
    ls_block_cache *cache;
    struct {
        const char *set; /* borrowed from its shards */
        ls_blob_store *store;
    } sets[SETS_MAX];
    size_t set_count;
    const ls_token_shard **shards; /* all that were added */
    size_t shard_count;
    ls_block_peers *peers; /* NULL: none */
    uint64_t blocks;       /* of all shards */
    _Atomic uint32_t cancel;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t has_work, has_ended;
    /* The time that requests take, shared by those that are under way: up to changed_s, and what a
     * request of less and of more than half a group costs of it (0: not known). */
    double shared_s, changed_s, window_s, group_s;
    uint64_t windows, next_try, group_blocks; /* windows and blocks of groups that were fetched */
    unsigned requests;                        /* under way */
    piece queue[QUEUE_MAX];                   /* the next one at queue_at */
    size_t queue_at, queue_count;
    bool is_closing;
    unsigned thread_count;
    worker workers[THREADS];
};

/* ---- one piece ------------------------------------------------------------------------------- */

/* Reads what the cache has of a piece. first_out, end_out: what it lacks lies between them. */
static void look_up(const ls_token_reader *r, const piece *p, ls_token_block *blocks, uint32_t *first_out,
                    uint32_t *end_out)
{
    *first_out = p->count;
    *end_out = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        if (!ls_block_cache_get(r->cache, p->shard->uid, p->block + i, &blocks[i])) {
            *first_out = i < *first_out ? i : *first_out;
            *end_out = i + 1;
        }
    }
}

static ls_blob_store *store_of(const ls_token_reader *r, const ls_token_shard *shard)
{
    size_t i = 0;
    while (i < r->set_count && strcmp(r->sets[i].set, shard->set) != 0) {
        i++;
    }
    LS_ASSERT(i < r->set_count);
    return r->sets[i].store;
}

/* Writes the blocks of a piece to the cache, if all of them are good. */
static bool keep(const ls_token_reader *r, const piece *p, const ls_token_block *blocks)
{
    for (uint32_t i = 0; i < p->count; i++) {
        if (!ls_token_block_is_good(&blocks[i], p->shard->uid, p->block + i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < p->count; i++) {
        ls_block_cache_put(r->cache, p->shard->uid, p->block + i, &blocks[i]);
    }
    return true;
}

/* Before the number of requests changes. Returns the shared time until now. Under lock. */
static double share_time(ls_token_reader *r)
{
    const double now_s = ls_clock_monotonic_s();
    r->shared_s += r->requests > 0 ? (now_s - r->changed_s) / r->requests : 0.0;
    r->changed_s = now_s;
    return r->shared_s;
}

/* Sends the request for a piece, and notes what it costs. */
static ls_status request(ls_token_reader *r, const piece *p, ls_token_block *blocks)
{
    const bool is_group = p->count > PIECE_BLOCKS / 2;
    pthread_mutex_lock(&r->lock);
    const double start_s = share_time(r);
    r->requests++;
    pthread_mutex_unlock(&r->lock);
    const ls_status status = ls_blob_read(store_of(r, p->shard), p->shard->key, p->shard->etag,
                                          p->block * LS_TOKEN_BLOCK_BYTES, blocks, p->count * sizeof *blocks);
    pthread_mutex_lock(&r->lock);
    const double cost_s = share_time(r) - start_s;
    r->requests--;
    r->windows += !is_group;
    r->group_blocks += is_group ? p->count : 0;
    if (is_group || r->windows > THREADS) { /* the first ones connect */
        double *mean_s = is_group ? &r->group_s : &r->window_s;
        *mean_s = *mean_s > 0.0 ? 0.75 * *mean_s + 0.25 * cost_s : cost_s;
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

static ls_status fetch_from_store(ls_token_reader *r, const piece *p, ls_token_block *blocks)
{
    bool is_good = false;
    for (int i = 0; i < TRIES && !is_good; i++) {
        const ls_status status = request(r, p, blocks);
        if (status != LS_OK) {
            return ls_fail_within(status, "%s: streaming tokens", p->shard->set);
        }
        is_good = keep(r, p, blocks);
    }
    return is_good ? LS_OK
                   : ls_fail(LS_ERR_DATA,
                             "%s/%s arrives damaged: block %llu or one of the %u after it does not have its "
                             "check; 'lockstep data prepare --to' makes the set again",
                             p->shard->set, p->shard->key, (unsigned long long)p->block, p->count - 1);
}

/* From the hosts that own the blocks; what they do not give, from the store. */
static ls_status fetch(ls_token_reader *r, const piece *p, ls_token_block *blocks)
{
    enum { GROUP = LS_BLOCK_PEER_BLOCKS_MAX };
    for (uint32_t done = 0, count = 0; done < p->count; done += count) {
        const uint64_t first = p->block + done, left = p->count - done, room = GROUP - first % GROUP;
        count = (uint32_t)(left < room ? left : room);
        const piece part = {.shard = p->shard, .block = first, .count = count};
        if (!ls_block_peers_ask(r->peers, p->shard->uid, first, count, blocks + done) ||
            !keep(r, &part, blocks + done)) {
            LS_TRY(fetch_from_store(r, &part, blocks + done));
        }
    }
    return LS_OK;
}

/* Reads a piece from the cache, or fetches what that lacks, while other processes that want the
 * same wait. asks: may ask other hosts. */
static ls_status get_piece(ls_token_reader *r, const piece *p, bool asks, ls_token_block *blocks)
{
    uint32_t first = 0, end = 0;
    look_up(r, p, blocks, &first, &end);
    if (first >= end) {
        return LS_OK;
    }
    const int token = ls_block_cache_lock(r->cache, p->shard->uid, p->block);
    look_up(r, p, blocks, &first, &end);
    const piece missing = {.shard = p->shard, .block = p->block + first, .count = end - first};
    const ls_status status = first >= end       ? LS_OK
                             : asks && r->peers ? fetch(r, &missing, blocks + first)
                                                : fetch_from_store(r, &missing, blocks + first);
    ls_block_cache_unlock(token);
    return status;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/*
 * Whether to fetch all of the groups that a window lies in: a window of a shuffled order is a few
 * blocks, and where a request takes as long for 64, twelve times as many windows arrive. Nothing
 * is fetched that will not be read; on a link that its bytes keep busy, a group would delay what is
 * needed sooner, so that one is tried now and then, and others follow while it costs at most two
 * windows. Under lock.
 */
static bool takes_groups(ls_token_reader *r, const piece *p)
{
    const bool fits = 2 * r->blocks * LS_TOKEN_BLOCK_BYTES <= ls_block_cache_bytes(r->cache);
    if (!p->whole || !fits || r->peers || r->group_blocks >= r->blocks || r->windows < WINDOWS_TIMED) {
        return false;
    }
    if (r->group_s > 0.0 && r->group_s <= 2.0 * r->window_s) {
        return true;
    }
    const bool tries = r->windows >= r->next_try && r->window_s < TRY_WINDOW_S;
    r->next_try = tries ? r->windows + WINDOWS_BETWEEN : r->next_try;
    return tries;
}

/* Group `index` of a shard. */
static piece group_at(const ls_token_shard *shard, uint64_t index)
{
    const uint64_t block = index * PIECE_BLOCKS, left = shard->bytes / LS_TOKEN_BLOCK_BYTES - block;
    return (piece){
        .shard = shard, .block = block, .count = left < PIECE_BLOCKS ? (uint32_t)left : PIECE_BLOCKS};
}

/* Fetches what a thread took from the queue. */
static ls_status fetch_expected(ls_token_reader *r, worker *w)
{
    const piece p = w->running;
    uint32_t missing = 0, end = 0;
    look_up(r, &p, w->blocks, &missing, &end);
    if (missing >= end) {
        return LS_OK;
    }
    const uint64_t group = p.block / PIECE_BLOCKS, last = (p.block + p.count - 1) / PIECE_BLOCKS;
    pthread_mutex_lock(&r->lock);
    const bool by_group = takes_groups(r, &p);
    if (by_group) {
        w->running.block = group * PIECE_BLOCKS;
        w->running.count = (uint32_t)(last - group + 1) * PIECE_BLOCKS;
    }
    pthread_mutex_unlock(&r->lock);
    ls_status status = by_group ? LS_OK : get_piece(r, &p, true, w->blocks);
    for (uint64_t i = group; by_group && i <= last && status == LS_OK; i++) {
        const piece all = group_at(p.shard, i);
        status = get_piece(r, &all, true, w->blocks);
    }
    return status;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *worker_main(void *argument)
{
    worker *w = argument;
    ls_token_reader *r = w->reader;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->queue_count == 0 && !r->is_closing) {
            pthread_cond_wait(&r->has_work, &r->lock);
        }
        if (r->is_closing) {
            break;
        }
        w->running = r->queue[r->queue_at];
        r->queue_at = (r->queue_at + 1) % QUEUE_MAX;
        r->queue_count--;
        pthread_mutex_unlock(&r->lock);
        if (fetch_expected(r, w) != LS_OK) {
            /* Whoever needs it finds the error, or not. */
            ls_log_debug("data: %s", ls_error_text());
            ls_error_clear();
        }
        pthread_mutex_lock(&r->lock);
        w->running.shard = NULL;
        pthread_cond_broadcast(&r->has_ended);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static bool overlap(const piece *a, const piece *b)
{
    return a->shard == b->shard && a->block < b->block + b->count && b->block < a->block + a->count;
}

/* Waits while a thread fetches some of a piece. It ends, because requests do. */
static void wait_for_threads(ls_token_reader *r, const piece *p)
{
    pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < r->thread_count; i++) {
        while (overlap(&r->workers[i].running, p)) {
            pthread_cond_wait(&r->has_ended, &r->lock);
        }
    }
    pthread_mutex_unlock(&r->lock);
}

ls_status ls_token_reader_open(const char *cache_folder, ls_token_reader **reader_out)
{
    ls_token_reader *r = calloc(1, sizeof *r);
    if (!r) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to stream tokens");
    }
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->has_work, NULL);
    pthread_cond_init(&r->has_ended, NULL);
    const ls_status status = ls_block_cache_open(cache_folder, &r->cache);
    while (status == LS_OK && r->thread_count < THREADS) {
        worker *w = &r->workers[r->thread_count];
        w->reader = r;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            break; /* fewer will do, and none are needed */
        }
        r->thread_count++;
    }
    if (status != LS_OK) {
        ls_token_reader_close(r);
        return status;
    }
    *reader_out = r;
    return LS_OK;
}

void ls_token_reader_close(ls_token_reader *reader)
{
    if (!reader) {
        return;
    }
    pthread_mutex_lock(&reader->lock);
    reader->is_closing = true;
    atomic_store(&reader->cancel, 1);
    pthread_cond_broadcast(&reader->has_work);
    pthread_mutex_unlock(&reader->lock);
    for (unsigned i = 0; i < reader->thread_count; i++) {
        LS_ASSERT(pthread_join(reader->workers[i].thread, NULL) == 0);
    }
    ls_block_peers_close(reader->peers);
    for (size_t i = 0; i < reader->set_count; i++) {
        ls_blob_close(reader->sets[i].store);
    }
    free(reader->shards);
    ls_block_cache_close(reader->cache);
    pthread_cond_destroy(&reader->has_work);
    pthread_cond_destroy(&reader->has_ended);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

ls_status ls_token_reader_add(ls_token_reader *reader, const ls_token_shard *shard)
{
    const ls_token_shard **more = realloc(reader->shards, (reader->shard_count + 1) * sizeof(void *));
    if (!more) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to stream tokens");
    }
    reader->shards = more;
    reader->shards[reader->shard_count++] = shard;
    reader->blocks += shard->bytes / LS_TOKEN_BLOCK_BYTES;
    for (size_t i = 0; i < reader->set_count; i++) {
        if (strcmp(reader->sets[i].set, shard->set) == 0) {
            return LS_OK;
        }
    }
    if (reader->set_count == SETS_MAX) {
        return ls_fail(LS_ERR_INVALID, "more than %d token sets are read at once: prepare them as one set",
                       SETS_MAX);
    }
    const ls_blob_options options = {.cancel = &reader->cancel};
    ls_blob_store *store = NULL;
    LS_TRY(ls_blob_open(shard->set, &options, &store));
    reader->sets[reader->set_count].set = shard->set;
    reader->sets[reader->set_count++].store = store;
    return LS_OK;
}

/* ---- other hosts ----------------------------------------------------------------------------- */

/* What another host asks for; it may be mistaken. */
static ls_status read_for_other(void *context, uint64_t uid, uint64_t first, uint32_t count,
                                ls_token_block *blocks_out)
{
    ls_token_reader *r = context;
    for (size_t i = 0; i < r->shard_count; i++) {
        const uint64_t blocks = r->shards[i]->bytes / LS_TOKEN_BLOCK_BYTES;
        if (r->shards[i]->uid == uid && count <= blocks && first <= blocks - count) {
            const piece p = {.shard = r->shards[i], .block = first, .count = count};
            return get_piece(r, &p, false, blocks_out);
        }
    }
    return ls_fail(LS_ERR_INVALID, "another host asks for blocks that are not part of this run's data");
}

ls_status ls_token_reader_share(ls_token_reader *reader, ls_block_peer *own, const char *token)
{
    return ls_block_peers_open(own, token, read_for_other, reader, &reader->peers);
}

void ls_token_reader_meet(ls_token_reader *reader, const ls_block_peer *hosts, uint32_t count)
{
    if (reader->peers) {
        ls_block_peers_set(reader->peers, hosts, count);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The piece that begins with block `block` of tokens [first, first + count). */
static piece piece_at(const ls_token_shard *shard, uint64_t block, uint64_t first, uint64_t count)
{
    const uint64_t last = (first + count - 1) / ls_token_block_ids(shard->id_bytes);
    const uint64_t left = last - block + 1;
    return (piece){
        .shard = shard, .block = block, .count = left < PIECE_BLOCKS ? (uint32_t)left : PIECE_BLOCKS};
}

void ls_token_reader_expect(ls_token_reader *reader, const ls_token_shard *shard, uint64_t first,
                            uint64_t count, bool whole)
{
    const uint32_t most = ls_token_block_ids(shard->id_bytes);
    const uint64_t last = (first + count - 1) / most;
    pthread_mutex_lock(&reader->lock);
    for (uint64_t block = first / most; block <= last && reader->queue_count < QUEUE_MAX;) {
        piece next = piece_at(shard, block, first, count);
        next.whole = whole;
        reader->queue[(reader->queue_at + reader->queue_count++) % QUEUE_MAX] = next;
        block += next.count;
        pthread_cond_signal(&reader->has_work);
    }
    pthread_mutex_unlock(&reader->lock);
}

static ls_status read_piece(ls_token_reader *r, const piece *p, ls_token_block *blocks)
{
    uint32_t missing = 0, end = 0;
    look_up(r, p, blocks, &missing, &end);
    if (missing >= end) {
        return LS_OK;
    }
    wait_for_threads(r, p);
    return get_piece(r, p, true, blocks);
}

ls_status ls_token_reader_read(ls_token_reader *reader, const ls_token_shard *shard, uint64_t first,
                               uint64_t count, int32_t *ids_out, uint32_t *largest_out)
{
    ls_token_block blocks[PIECE_BLOCKS];
    const uint32_t most = ls_token_block_ids(shard->id_bytes);
    const uint64_t end = first + count;
    *largest_out = 0;
    if (count > (uint64_t)PIECE_BLOCKS * most) {
        ls_token_reader_expect(reader, shard, first + (uint64_t)PIECE_BLOCKS * most,
                               count - (uint64_t)PIECE_BLOCKS * most, false);
    }
    while (first < end) {
        const piece p = piece_at(shard, first / most, first, end - first);
        LS_TRY(read_piece(reader, &p, blocks));
        for (uint32_t i = 0; i < p.count; i++) {
            const uint32_t inside = (uint32_t)(first % most);
            const uint32_t here = end - first < most - inside ? (uint32_t)(end - first) : most - inside;
            const uint32_t largest = ls_token_block_copy(&blocks[i], shard->id_bytes, inside, here, ids_out);
            *largest_out = largest > *largest_out ? largest : *largest_out;
            ids_out += here;
            first += here;
        }
    }
    return LS_OK;
}

ls_status ls_token_reader_document(ls_token_reader *reader, const ls_token_shard *shard, uint64_t at,
                                   uint64_t *begin_out, uint64_t *end_out)
{
    ls_token_block block;
    const piece p = piece_at(shard, at / ls_token_block_ids(shard->id_bytes), at, 1);
    LS_TRY(read_piece(reader, &p, &block));
    ls_token_block_document(&block, shard->id_bytes, p.block, at, begin_out, end_out);
    return *begin_out <= at && at < *end_out && *end_out <= shard->tokens
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s/%s: block %llu names a document that is not around it", shard->set,
                         shard->key, (unsigned long long)p.block);
}
