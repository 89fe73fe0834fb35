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
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WAYS = 8, QUOTA_PART = 4 };
static const uint64_t MEMORY_BYTES = UINT64_C(64) << 20, FILE_BYTES_MIN = UINT64_C(1) << 20;
static const double LOCK_S = 10.0;

typedef struct set_head {
    struct {
        uint32_t tag; /* 0: empty */
        uint32_t used_s;
    } ways[WAYS];
} set_head;
enum { SET_BYTES = (int)sizeof(set_head) + WAYS * LS_TOKEN_BLOCK_BYTES };

struct ls_block_cache {
    /* The file, and the memory that replaces it when it can't be written. */
    int file, memory;
    uint64_t file_sets, memory_sets;
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

/* -1: there is none that can be used. What others of this machine write can't be trusted. */
static int open_file(ls_arena *arena, const char *folder, uint64_t *sets_out)
{
    ls_cache_limits limits;
    struct stat info;
    if (!folder[0] || ls_cache_limits_load(arena, folder, &limits) != LS_OK ||
        ls_dir_create(folder) != LS_OK || limits.quota_bytes / QUOTA_PART < FILE_BYTES_MIN) {
        return -1;
    }
    *sets_out = sets_of(limits.quota_bytes / QUOTA_PART);
    const char *name = ls_arena_printf(arena, "blocks-%llu", (unsigned long long)*sets_out);
    remove_others(arena, folder, name);
    const int fd = open(ls_path_join(arena, folder, name), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())) {
        close(fd);
        return -1;
    }
    return fd;
}

ls_status ls_block_cache_open(const char *folder, ls_block_cache **cache_out)
{
    ls_arena arena = {0};
    ls_block_cache *cache = calloc(1, sizeof *cache);
    const int memory = memfd_create("lockstep blocks", MFD_CLOEXEC);
    if (!cache || memory < 0) {
        free(cache);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a cache of token blocks");
    }
    cache->memory = memory;
    cache->memory_sets = sets_of(MEMORY_BYTES);
    cache->file = open_file(&arena, folder, &cache->file_sets);
    cache->in_memory = cache->file < 0;
    ls_error_clear();
    ls_arena_release(&arena);
    *cache_out = cache;
    return LS_OK;
}

void ls_block_cache_close(ls_block_cache *cache)
{
    if (cache) {
        close(cache->memory);
        if (cache->file >= 0) {
            close(cache->file);
        }
        free(cache);
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct place {
    int fd;
    off_t head; /* of the set */
    uint32_t tag;
} place;

static uint64_t place_hash(uint64_t uid, uint64_t index)
{
    const uint64_t key[2] = {uid, index};
    return ls_xxh3(key, sizeof key, 1);
}

static place find(const ls_block_cache *cache, uint64_t uid, uint64_t index)
{
    const uint64_t hash = place_hash(uid, index);
    const bool in_memory = atomic_load(&cache->in_memory);
    const uint64_t sets = in_memory ? cache->memory_sets : cache->file_sets;
    return (place){.fd = in_memory ? cache->memory : cache->file,
                   .head = (off_t)(hash % sets * SET_BYTES),
                   .tag = (uint32_t)(hash >> 32) | 1};
}

static off_t block_at(const place *p, unsigned way)
{
    return p->head + (off_t)sizeof(set_head) + (off_t)way * LS_TOKEN_BLOCK_BYTES;
}

static uint32_t now_s(void)
{
    return (uint32_t)ls_clock_wall_s();
}

static bool read_head(const place *p, set_head *head_out)
{
    memset(head_out, 0, sizeof *head_out);
    return pread(p->fd, head_out, sizeof *head_out, p->head) >= 0;
}

/* A mark that is lost costs an unlucky eviction. */
static void mark_used(const place *p, unsigned way)
{
    const uint32_t used[2] = {p->tag, now_s()};
    (void)!pwrite(p->fd, used, sizeof used, p->head + (off_t)(way * sizeof used));
}

bool ls_block_cache_get(ls_block_cache *cache, uint64_t uid, uint64_t index, ls_token_block *block_out)
{
    set_head head;
    const place p = find(cache, uid, index);
    if (!read_head(&p, &head)) {
        return false;
    }
    for (unsigned way = 0; way < WAYS; way++) {
        if (head.ways[way].tag == p.tag &&
            pread(p.fd, block_out, sizeof *block_out, block_at(&p, way)) == LS_TOKEN_BLOCK_BYTES &&
            ls_token_block_is_good(block_out, uid, index)) {
            if (head.ways[way].used_s != now_s()) {
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
    set_head head;
    const place p = find(cache, uid, index);
    const unsigned way = read_head(&p, &head) ? choose_way(&p, &head) : 0;
    if (pwrite(p.fd, block, sizeof *block, block_at(&p, way)) == LS_TOKEN_BLOCK_BYTES) {
        mark_used(&p, way);
    } else if (p.fd == cache->file && !atomic_exchange(&cache->in_memory, true)) {
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
    snprintf(path, sizeof path, "/proc/self/fd/%d", cache->file);
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
