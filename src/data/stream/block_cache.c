// SPDX-License-Identifier: Apache-2.0
#include "data/stream/block_cache.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "storage/cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h> /* memfd_create */
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* MARK_S: a use is not marked again within that time. */
enum { WAYS = 8, QUOTA_PART = 4, MARK_S = 60 };
static const uint64_t MEMORY_BYTES = UINT64_C(64) << 20, FILE_BYTES_MIN = UINT64_C(1) << 20;
static const double LOCK_S = 10.0;

typedef struct set_head {
    struct {
        uint32_t tag; /* 0: empty */
        uint32_t used_s;
    } ways[WAYS];
} set_head;
enum { SET_BYTES = (int)sizeof(set_head) + WAYS * LS_TOKEN_BLOCK_BYTES };

/* Read and written by calls, which tell when the disk is full. A map would not: what has not been
 * written yet takes space on a tmpfs when it is read through one. */
typedef struct store {
    int fd; /* -1: none */
    uint64_t sets;
} store;

struct ls_block_cache {
    store file, memory; /* the second replaces the first when that can't be written */
    _Atomic bool in_memory;
};

/* ---- opening --------------------------------------------------------------------------------- */

static uint64_t sets_of(uint64_t bytes)
{
    uint64_t sets = 1;
    while (2 * sets * SET_BYTES <= bytes) {
        sets *= 2;
    }
    return sets;
}

/* Files of other sizes are those of another quota. */
static void remove_others(ls_arena *arena, const char *folder, const char *own)
{
    char **names = NULL;
    size_t count = 0;
    if (ls_dir_list(arena, folder, &names, &count) != LS_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "blocks-", 7) == 0 && strcmp(names[i], own) != 0) {
            (void)unlink(ls_path_join(arena, folder, names[i]));
        }
    }
}

/* Gives a file its size, which takes no space yet. Returns false, and closes it, if that fails. */
static bool make_store(int fd, uint64_t bytes, store *store_out)
{
    *store_out = (store){.fd = fd, .sets = sets_of(bytes)};
    if (ftruncate(fd, (off_t)(store_out->sets * SET_BYTES)) != 0) {
        close(fd);
        store_out->fd = -1;
    }
    return store_out->fd >= 0;
}

/* False: there is no folder that can be used. What others of this machine write can't be trusted.
 * */
static bool open_file(ls_arena *arena, const char *folder, store *store_out)
{
    ls_cache_limits limits;
    struct stat info;
    if (!folder[0] || ls_cache_limits_load(arena, folder, &limits) != LS_OK ||
        ls_dir_create(folder) != LS_OK || limits.quota_bytes / QUOTA_PART < FILE_BYTES_MIN) {
        return false;
    }
    const uint64_t bytes = limits.quota_bytes / QUOTA_PART;
    const char *name = ls_arena_printf(arena, "blocks-%llu", (unsigned long long)sets_of(bytes));
    remove_others(arena, folder, name);
    const int fd = open(ls_path_join(arena, folder, name), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())) {
        close(fd);
        return false;
    }
    return fd >= 0 && make_store(fd, bytes, store_out);
}

ls_status ls_block_cache_open(const char *folder, ls_block_cache **cache_out)
{
    ls_arena arena = {0};
    ls_block_cache *cache = calloc(1, sizeof *cache);
    const int memory = memfd_create("lockstep blocks", MFD_CLOEXEC);
    if (!cache || memory < 0 || !make_store(memory, MEMORY_BYTES, &cache->memory)) {
        free(cache);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a cache of token blocks");
    }
    cache->file.fd = -1;
    cache->in_memory = !open_file(&arena, folder, &cache->file);
    ls_error_clear();
    ls_arena_release(&arena);
    *cache_out = cache;
    return LS_OK;
}

void ls_block_cache_close(ls_block_cache *cache)
{
    if (cache) {
        close(cache->memory.fd);
        if (cache->file.fd >= 0) {
            close(cache->file.fd);
        }
        free(cache);
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct place {
    const store *store;
    uint64_t head; /* of the set */
    uint32_t tag;
} place;

static uint64_t place_hash(uint64_t uid, uint64_t index)
{
    const uint64_t key[2] = {uid, index};
    return ls_xxh3(key, sizeof key, 1);
}

static const store *store_of(const ls_block_cache *cache)
{
    return atomic_load(&cache->in_memory) ? &cache->memory : &cache->file;
}

uint64_t ls_block_cache_bytes(const ls_block_cache *cache)
{
    return store_of(cache)->sets * WAYS * LS_TOKEN_BLOCK_BYTES;
}

static place find(const ls_block_cache *cache, uint64_t uid, uint64_t index)
{
    const uint64_t hash = place_hash(uid, index);
    const store *s = store_of(cache);
    return (place){.store = s, .head = hash % s->sets * SET_BYTES, .tag = (uint32_t)(hash >> 32) | 1};
}

static uint64_t block_at(const place *p, unsigned way)
{
    return p->head + sizeof(set_head) + (uint64_t)way * LS_TOKEN_BLOCK_BYTES;
}

static uint32_t now_s(void)
{
    return (uint32_t)ls_clock_wall_s();
}

static set_head read_head(const place *p)
{
    set_head head = {0};
    (void)!pread(p->store->fd, &head, sizeof head, (off_t)p->head); /* fails: as if it were empty */
    return head;
}

/* A mark that is lost costs an unlucky eviction. */
static void mark_used(const place *p, unsigned way)
{
    const uint32_t used[2] = {p->tag, now_s()};
    (void)!pwrite(p->store->fd, used, sizeof used, (off_t)(p->head + way * sizeof used));
}

bool ls_block_cache_get(ls_block_cache *cache, uint64_t uid, uint64_t index, ls_token_block *block_out)
{
    const place p = find(cache, uid, index);
    const set_head head = read_head(&p);
    for (unsigned way = 0; way < WAYS; way++) {
        if (head.ways[way].tag == p.tag &&
            pread(p.store->fd, block_out, sizeof *block_out, (off_t)block_at(&p, way)) ==
                LS_TOKEN_BLOCK_BYTES &&
            ls_token_block_is_good(block_out, uid, index)) {
            if (now_s() - head.ways[way].used_s > MARK_S) {
                mark_used(&p, way);
            }
            return true;
        }
    }
    return false;
}

static unsigned choose_way(const place *p, const set_head *head)
{
    unsigned oldest = 0;
    for (unsigned way = 0; way < WAYS; way++) {
        if (head->ways[way].tag == p->tag) {
            return way;
        }
        oldest = head->ways[way].used_s < head->ways[oldest].used_s ? way : oldest;
    }
    return oldest;
}

void ls_block_cache_put(ls_block_cache *cache, uint64_t uid, uint64_t index, const ls_token_block *block)
{
    const place p = find(cache, uid, index);
    const set_head head = read_head(&p);
    const unsigned way = choose_way(&p, &head);
    if (pwrite(p.store->fd, block, sizeof *block, (off_t)block_at(&p, way)) == LS_TOKEN_BLOCK_BYTES) {
        mark_used(&p, way);
    } else if (p.store == &cache->file && !atomic_exchange(&cache->in_memory, true)) {
        ls_log_warn(
            "data: the cache of token blocks can't be written (%s); up to %llu MiB are kept in memory "
            "instead",
            strerror(errno), (unsigned long long)(MEMORY_BYTES >> 20));
        ls_block_cache_put(cache, uid, index, block);
    }
}

/* ---- one fetch ------------------------------------------------------------------------------- */

int ls_block_cache_lock(ls_block_cache *cache, uint64_t uid, uint64_t index)
{
    char path[64];
    if (atomic_load(&cache->in_memory)) {
        return -1;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", cache->file.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    /* Bytes far beyond the end, as the locks of items. */
    struct flock lock = {.l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)(place_hash(uid, index) >> 2 | UINT64_C(1) << 60),
                         .l_len = 1};
    const double until_s = ls_clock_monotonic_s() + LOCK_S;
    while (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES) &&
           ls_clock_monotonic_s() < until_s) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return fd;
}

void ls_block_cache_unlock(int token)
{
    if (token >= 0) {
        close(token);
    }
}
