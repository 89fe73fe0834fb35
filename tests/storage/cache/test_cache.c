// SPDX-License-Identifier: Apache-2.0
/* The cache of a node: with real processes, real kills and real locks. */
#include "test.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "storage/cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 200, NOBODY = 65534 };

/* In memory that children share: what happened in any process. */
typedef struct shared {
    atomic_int makes;   /* begun */
    atomic_int waiting; /* were told that another makes it */
    atomic_int go;      /* makers that were asked to pause go on */
    atomic_int stop;    /* who waits is asked to stop */
} shared;

typedef struct fixture {
    char base[64];
    char folder[96];
    ls_arena arena;
    shared *shared;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    strcpy(f->base, "/tmp/lockstep-cache-XXXXXX");
    if (!mkdtemp(f->base) || chmod(f->base, 0755) != 0) {
        return -1;
    }
    snprintf(f->folder, sizeof f->folder, "%s/a/b", f->base);
    f->shared = mmap(NULL, sizeof *f->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ls_log_init(&(ls_log_settings){.level = LS_LOG_ERROR, .rank = -1});
    *state = f;
    /* Whatever the disk of this machine is like. */
    return ls_cache_limits_write(f->folder, &(ls_cache_limits){.quota_bytes = 1 << 30, .group = ""}) == LS_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    const ls_status status = ls_dir_remove(f->base);
    munmap(f->shared, sizeof *f->shared);
    ls_arena_release(&f->arena);
    free(f);
    return status == LS_OK ? 0 : -1;
}

/* ---- an item: its number as text, then bytes that follow from it ---- */

typedef struct thing {
    fixture *f;
    uint32_t number, bytes;
    bool pauses; /* in the middle of being made, until shared.go */
    char key[LS_CACHE_KEY_MAX + 1];
    ls_file_map map; /* taken */
    bool in_folder;  /* as take was told */
} thing;

static thing thing_of(fixture *f, uint32_t number, uint32_t bytes)
{
    thing t = {.f = f, .number = number, .bytes = bytes};
    /* Spread as a hash is: over lock files, too. */
    snprintf(t.key, sizeof t.key, "%014llx%02x%016x", 0x00a5b1c3d7e9f1ULL * (number + 1) % (1ULL << 56),
             number % 256, number);
    return t;
}

static unsigned char byte_at(const thing *t, uint32_t i)
{
    return (unsigned char)(t->number * 31 + i * 7 + i / 251);
}

static void nap(void)
{
    usleep(2000);
}

static ls_status make_thing(void *context, int fd, const char *path)
{
    thing *t = context;
    atomic_fetch_add(&t->f->shared->makes, 1);
    unsigned char *data = malloc(t->bytes + 1);
    for (uint32_t i = 0; i < t->bytes; i++) {
        data[i] = byte_at(t, i);
    }
    ls_status status = ls_file_write_all(fd, path, data, t->bytes / 2);
    while (t->pauses && status == LS_OK && !atomic_load(&t->f->shared->go)) {
        nap();
    }
    if (status == LS_OK) {
        status = ls_file_write_all(fd, path, data + t->bytes / 2, t->bytes - t->bytes / 2);
    }
    free(data);
    return status;
}

static bool is_whole(const thing *t, ls_file_map map)
{
    bool whole = map.bytes == t->bytes;
    for (uint32_t i = 0; whole && i < t->bytes; i++) {
        whole = map.data[i] == byte_at(t, i);
    }
    return whole;
}

static ls_status take_thing(void *context, ls_file_map map, const char *path)
{
    thing *t = context;
    if (!is_whole(t, map)) {
        return ls_fail(LS_ERR_DATA, "%s is damaged", path);
    }
    t->map = map;
    t->in_folder = path[0] == '/';
    return LS_OK;
}

static ls_status stop_when_asked(void *context)
{
    const fixture *f = context;
    return atomic_load(&f->shared->stop) ? ls_fail(LS_STOPPED, "asked to stop") : LS_OK;
}

static void note_wait(void *context, const char *text)
{
    const fixture *f = context;
    if (strstr(text, "another process") && strstr(text, "is making the thing")) {
        atomic_fetch_add(&f->shared->waiting, 1);
    }
}

static ls_cache *open_cache(fixture *f)
{
    ls_cache *cache = NULL;
    const ls_cache_options options = {
        .folder = f->folder, .suffix = ".thing", .stop = stop_when_asked, .tell = note_wait, .context = f};
    return ls_cache_open(&options, &cache) == LS_OK ? cache : NULL;
}

static ls_status get(ls_cache *cache, thing *t)
{
    const ls_cache_item item = {.key = t->key,
                                .what = "thing",
                                .bytes_expected = t->bytes,
                                .make = make_thing,
                                .take = take_thing,
                                .context = t};
    return ls_cache_get(cache, &item);
}

/* In and out: also what a child process does. */
static ls_status use(fixture *f, thing *t)
{
    ls_cache *cache = open_cache(f);
    const ls_status status = cache ? get(cache, t) : LS_ERR_MEMORY;
    ls_file_map_close(&t->map);
    ls_cache_close(cache);
    return status;
}

static const char *path_of(fixture *f, const thing *t, const char *suffix)
{
    return ls_cache_entry_path(&f->arena, f->folder, t->key, suffix);
}

static bool is_there(fixture *f, const thing *t, const char *suffix)
{
    struct stat info;
    return lstat(path_of(f, t, suffix), &info) == 0;
}

static void set_age(fixture *f, const thing *t, time_t seconds)
{
    const struct timespec used = {.tv_sec = time(NULL) - seconds};
    assert_int_equal(utimensat(AT_FDCWD, path_of(f, t, ".thing"), (struct timespec[2]){used, used}, 0), 0);
}

static void limit(fixture *f, uint64_t quota, uint64_t keep_free, const char *group)
{
    assert_int_equal(ls_cache_limits_write(f->folder, &(ls_cache_limits){quota, keep_free, group}), LS_OK);
}

static uint64_t total_bytes(fixture *f, size_t *unused_out)
{
    ls_cache *cache = open_cache(f);
    ls_cache_entry *entries = NULL;
    size_t count = 0, unused = 0;
    uint64_t bytes = 0;
    assert_int_equal(ls_cache_list(cache, &f->arena, &entries, &count), LS_OK);
    for (size_t i = 0; i < count; i++) {
        bytes += entries[i].bytes;
        unused += !entries[i].is_pinned;
    }
    ls_cache_close(cache);
    *unused_out = unused;
    return bytes;
}

/* ---- children ---- */

static pid_t start_use(fixture *f, thing *t, int wanted)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit((int)use(f, t) == wanted ? 0 : 1);
    }
    return pid;
}

static void expect_exit(pid_t pid, int wanted)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), wanted);
}

static void wait_for(atomic_int *value, int wanted)
{
    for (int i = 0; i < 60000 && atomic_load(value) < wanted; i++) {
        nap();
    }
    assert_true(atomic_load(value) >= wanted);
}

/* ---- finding and making ---- */

static void cache_get_makes_once(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        thing t = thing_of(f, 1, 5000);
        assert_int_equal(use(f, &t), LS_OK);
        assert_true(t.in_folder);
    }
    assert_int_equal(f->shared->makes, 1);
    thing other = thing_of(f, 2, 5000);
    assert_int_equal(use(f, &other), LS_OK);
    assert_int_equal(f->shared->makes, 2);
    assert_false(is_there(f, &other, ".part"));
}

static void cache_get_makes_what_is_damaged_again(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(truncate(path_of(f, &t, ".thing"), 100), 0);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(f->shared->makes, 2);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(f->shared->makes, 2);
}

/* One makes, the other waits for it, and is told. */
static void cache_get_waits_for_another_process(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    t.pauses = true;
    const pid_t maker = start_use(f, &t, LS_OK);
    wait_for(&f->shared->makes, 1);
    const pid_t first = start_use(f, &t, LS_OK), second = start_use(f, &t, LS_OK);
    wait_for(&f->shared->waiting, 2);
    /* Another key is not held up, and who makes room leaves the part alone. */
    thing other = thing_of(f, 2, 100);
    assert_int_equal(use(f, &other), LS_OK);
    assert_true(is_there(f, &t, ".part"));
    atomic_store(&f->shared->go, 1);
    expect_exit(maker, 0);
    expect_exit(first, 0);
    expect_exit(second, 0);
    assert_int_equal(f->shared->makes, 2);
    assert_true(is_there(f, &t, ".thing"));
}

static void cache_get_takes_over_from_a_killed_maker(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    t.pauses = true;
    const pid_t maker = start_use(f, &t, LS_OK);
    wait_for(&f->shared->makes, 1);
    t.pauses = false;
    const pid_t next = start_use(f, &t, LS_OK);
    wait_for(&f->shared->waiting, 1);
    assert_int_equal(kill(maker, SIGKILL), 0);
    expect_exit(maker, 128 + SIGKILL);
    expect_exit(next, 0);
    assert_int_equal(f->shared->makes, 2);
    assert_true(is_there(f, &t, ".thing"));
    assert_false(is_there(f, &t, ".part"));
}

static void cache_sweep_removes_what_a_killed_maker_left(void **state)
{
    fixture *f = *state;
    for (int with_make = 0; with_make < 2; with_make++) {
        thing t = thing_of(f, 1, 5000), other = thing_of(f, 2, 100);
        t.pauses = true;
        const int before = f->shared->makes;
        const pid_t maker = start_use(f, &t, LS_OK);
        wait_for(&f->shared->makes, before + 1);
        assert_true(is_there(f, &t, ".part"));
        kill(maker, SIGKILL);
        expect_exit(maker, 128 + SIGKILL);
        assert_true(is_there(f, &t, ".part"));
        size_t unused = 0;
        assert_int_equal(total_bytes(f, &unused), 0); /* half a thing is no entry */
        if (with_make) {
            assert_int_equal(use(f, &other), LS_OK);
        } else {
            ls_cache *cache = open_cache(f);
            assert_int_equal(ls_cache_sweep(cache), LS_OK);
            ls_cache_close(cache);
        }
        assert_false(is_there(f, &t, ".part"));
        assert_false(is_there(f, &t, ".note"));
    }
}

static void cache_get_stops_waiting_when_asked(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    t.pauses = true;
    const pid_t maker = start_use(f, &t, LS_OK);
    wait_for(&f->shared->makes, 1);
    const pid_t waits = start_use(f, &t, LS_STOPPED);
    wait_for(&f->shared->waiting, 1);
    atomic_store(&f->shared->stop, 1);
    expect_exit(waits, 0); /* while the maker is still at it */
    atomic_store(&f->shared->stop, 0);

    /* The same in this process, which lives on: a lock that it does not want any more is let go
     * when it comes. */
    const pid_t again = start_use(f, &t, LS_OK);
    wait_for(&f->shared->waiting, 2);
    atomic_store(&f->shared->go, 1);
    expect_exit(maker, 0);
    expect_exit(again, 0);
    assert_int_equal(f->shared->makes, 1);
}

static void cache_get_gives_up_a_lock_that_came_too_late(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    t.pauses = true;
    const pid_t maker = start_use(f, &t, LS_OK);
    wait_for(&f->shared->makes, 1);
    atomic_store(&f->shared->stop, 1);
    thing mine = thing_of(f, 1, 5000);
    ls_cache *cache = open_cache(f);
    assert_int_equal(get(cache, &mine), LS_STOPPED);
    assert_null(mine.map.data);
    atomic_store(&f->shared->stop, 0);
    assert_int_equal(kill(maker, SIGKILL), 0); /* now the thread that still waits gets the lock */
    expect_exit(maker, 128 + SIGKILL);
    assert_int_equal(get(cache, &mine), LS_OK);
    assert_int_equal(f->shared->makes, 2);
    ls_file_map_close(&mine.map);
    ls_cache_close(cache);
}

typedef struct racer {
    fixture *f;
    ls_cache *cache; /* shared, or NULL: one of its own */
    ls_status status;
    bool whole;
} racer;

static void *race(void *argument)
{
    racer *r = argument;
    thing t = thing_of(r->f, 1, 200000);
    ls_cache *cache = r->cache ? r->cache : open_cache(r->f);
    r->status = get(cache, &t);
    r->whole = r->status == LS_OK && is_whole(&t, t.map);
    ls_file_map_close(&t.map);
    if (!r->cache) {
        ls_cache_close(cache);
    }
    return NULL;
}

static void cache_get_makes_once_among_threads(void **state)
{
    fixture *f = *state;
    enum { THREADS = 8 };
    ls_cache *cache = open_cache(f);
    racer racers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (racer){.f = f, .cache = i % 2 ? cache : NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].status, LS_OK);
        assert_true(racers[i].whole);
    }
    ls_cache_close(cache);
    assert_int_equal(f->shared->makes, 1);
}

static ls_status fail_to_make(void *context, int fd, const char *path)
{
    (void)context;
    LS_TRY(ls_file_write_all(fd, path, "half", 4));
    return ls_fail(LS_ERR_DATA, "line 7 is broken");
}

static void cache_get_leaves_nothing_of_a_failed_make(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    ls_cache *cache = open_cache(f);
    const ls_cache_item item = {
        .key = t.key, .what = "thing", .make = fail_to_make, .take = take_thing, .context = &t};
    assert_int_equal(ls_cache_get(cache, &item), LS_ERR_DATA);
    assert_string_equal(ls_error_text(), "line 7 is broken");
    ls_cache_close(cache);
    assert_false(is_there(f, &t, ".thing"));
    assert_false(is_there(f, &t, ".part"));
    assert_false(is_there(f, &t, ".note"));
}

/* ---- pins ---- */

static void cache_remove_leaves_what_is_mapped(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 50000);
    ls_cache *user = open_cache(f), *other = open_cache(f);
    assert_int_equal(get(user, &t), LS_OK);
    bool removed = true;
    assert_int_equal(ls_cache_remove(other, t.key, &removed), LS_OK);
    assert_false(removed);
    assert_int_equal(ls_cache_remove(user, t.key, &removed), LS_OK); /* not even by who uses it */
    assert_false(removed);
    limit(f, 1000, 0, "");
    assert_int_equal(ls_cache_trim(other), LS_OK);
    assert_true(is_there(f, &t, ".thing"));
    assert_true(is_whole(&t, t.map));

    /* Pinned by two: the first that goes does not take the pin of the second along. */
    thing same = thing_of(f, 1, 50000);
    ls_cache *second = open_cache(f);
    assert_int_equal(get(second, &same), LS_OK);
    ls_file_map_close(&t.map);
    ls_cache_close(user);
    assert_int_equal(ls_cache_remove(other, t.key, &removed), LS_OK);
    assert_false(removed);
    ls_file_map_close(&same.map);
    ls_cache_close(second);
    assert_int_equal(ls_cache_remove(other, t.key, &removed), LS_OK);
    assert_true(removed);
    assert_false(is_there(f, &t, ".thing"));
    assert_false(is_there(f, &t, ".note"));
    assert_int_equal(ls_cache_remove(other, t.key, &removed), LS_OK);
    assert_false(removed);
    ls_cache_close(other);
}

static void cache_pins_of_a_killed_process_are_gone(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ls_cache *cache = open_cache(f);
        atomic_store(&f->shared->waiting, get(cache, &t) == LS_OK ? 1 : 2);
        pause();
    }
    wait_for(&f->shared->waiting, 1);
    assert_int_equal(f->shared->waiting, 1);
    ls_cache *cache = open_cache(f);
    bool removed = true;
    assert_int_equal(ls_cache_remove(cache, t.key, &removed), LS_OK);
    assert_false(removed);
    kill(pid, SIGKILL);
    expect_exit(pid, 128 + SIGKILL);
    assert_int_equal(ls_cache_remove(cache, t.key, &removed), LS_OK);
    assert_true(removed);
    ls_cache_close(cache);
}

/* ---- quota ---- */

static void cache_quota_holds_over_random_adds(void **state)
{
    fixture *f = *state;
    enum { HELD = 4 };
    const uint64_t quota = 150000;
    ls_cache *held[HELD] = {NULL};
    thing things[HELD];
    int made_in_memory = 0;
    limit(f, quota, 0, "");
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const uint64_t draw = ls_random_u64(ls_random_stream(7, LS_RANDOM_TEST), i, 0);
        const uint32_t slot = (uint32_t)(draw % HELD);
        if (held[slot]) {
            assert_true(is_whole(&things[slot], things[slot].map)); /* whatever went meanwhile */
            ls_file_map_close(&things[slot].map);
            ls_cache_close(held[slot]);
        }
        held[slot] = open_cache(f);
        const uint32_t number = (uint32_t)(draw >> 8) % 40;
        things[slot] = thing_of(f, number, 500 + number * 397 % 20000);
        const int before = f->shared->makes;
        assert_int_equal(get(held[slot], &things[slot]), LS_OK);
        made_in_memory += !things[slot].in_folder;
        size_t unused = 0;
        const uint64_t total = total_bytes(f, &unused);
        assert_true(f->shared->makes == before || total <= quota || unused == 0);
    }
    assert_int_equal(made_in_memory, 0);
    assert_true(f->shared->makes > 45);             /* some were removed, and made again */
    assert_true(f->shared->makes < ROUNDS * 3 / 4); /* and some were there */
    for (int i = 0; i < HELD; i++) {
        if (held[i]) {
            ls_file_map_close(&things[i].map);
            ls_cache_close(held[i]);
        }
    }
}

static void cache_trim_removes_the_least_recently_used(void **state)
{
    fixture *f = *state;
    thing things[4];
    for (uint32_t i = 0; i < 4; i++) {
        things[i] = thing_of(f, i, 10000);
        assert_int_equal(use(f, &things[i]), LS_OK);
        set_age(f, &things[i], 1000 - 100 * i);
    }
    /* A hit is a use, on whatever disk: nothing asks for access times. */
    assert_int_equal(use(f, &things[0]), LS_OK);
    struct stat info;
    assert_int_equal(stat(path_of(f, &things[0], ".thing"), &info), 0);
    assert_true(time(NULL) - info.st_mtim.tv_sec < 300);

    limit(f, 24000, 0, "");
    ls_cache *cache = open_cache(f);
    assert_int_equal(ls_cache_trim(cache), LS_OK);
    ls_cache_close(cache);
    assert_true(is_there(f, &things[0], ".thing"));
    assert_false(is_there(f, &things[1], ".thing"));
    assert_false(is_there(f, &things[2], ".thing"));
    assert_true(is_there(f, &things[3], ".thing"));
    assert_int_equal(f->shared->makes, 4);
}

static void cache_larger_than_its_quota_lasts_as_long_as_it_is_used(void **state)
{
    fixture *f = *state;
    limit(f, 1000, 0, "");
    thing t = thing_of(f, 1, 50000);
    ls_cache *cache = open_cache(f);
    assert_int_equal(get(cache, &t), LS_OK);
    assert_true(t.in_folder);
    assert_true(is_there(f, &t, ".thing"));
    ls_file_map_close(&t.map);
    ls_cache_close(cache);
    assert_false(is_there(f, &t, ".thing"));
}

static void cache_keeps_the_disk_free(void **state)
{
    fixture *f = *state;
    thing old = thing_of(f, 1, 5000), small = thing_of(f, 2, 5000), large = thing_of(f, 3, 20 << 20);
    assert_int_equal(use(f, &old), LS_OK);
    limit(f, 1 << 30, UINT64_C(1) << 52, ""); /* more than any disk has */
    assert_int_equal(use(f, &small), LS_OK);
    assert_true(small.in_folder);
    assert_false(is_there(f, &old, ".thing")); /* went for it */
    assert_int_equal(use(f, &large), LS_OK);
    assert_false(large.in_folder);
    assert_false(is_there(f, &large, ".thing"));
    assert_false(is_there(f, &large, ".part"));
}

/* ---- folders that can't ---- */

/* Runs `body` in a child, which may spoil its own world. */
static void in_child(fixture *f, int (*body)(fixture *f))
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(body(f));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("not possible here, skipped\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define WANT(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, ls_error_text());                    \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static int read_only_body(fixture *f)
{
    thing there = thing_of(f, 1, 5000), missing = thing_of(f, 2, 5000);
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) {
        return 77;
    }
    for (int i = 0; i < 2; i++) {
        WANT(use(f, &there) == LS_OK && there.in_folder && f->shared->makes == 1);
    }
    WANT(use(f, &missing) == LS_OK && !missing.in_folder && f->shared->makes == 2);
    return 0;
}

/* What is there is used, with locks or without, what is not is made in memory. Root made it: users
 * believe that. */
static void cache_get_from_a_read_only_folder(void **state)
{
    fixture *f = *state;
    char lock[160];
    thing there = thing_of(f, 1, 5000);
    assert_int_equal(use(f, &there), LS_OK);
    assert_int_equal(chmod(f->folder, 0555), 0);
    in_child(f, read_only_body);
    atomic_store(&f->shared->makes, 1);
    assert_int_equal(chmod(f->folder, 0755), 0);
    for (int i = 0; i < 64; i++) {
        snprintf(lock, sizeof lock, "%s/lock-%02x", f->folder, i);
        unlink(lock);
    }
    assert_int_equal(chmod(f->folder, 0555), 0);
    in_child(f, read_only_body);
    assert_int_equal(chmod(f->folder, 0755), 0);
}

static int full_disk_body(fixture *f)
{
    const bool alone = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (!alone || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tiny", f->folder, "tmpfs", 0, "size=256k") != 0) {
        return 77;
    }
    if (ls_cache_limits_write(f->folder, &(ls_cache_limits){.quota_bytes = 1 << 30, .group = ""}) != LS_OK) {
        return 77; /* a namespace that maps no user */
    }
    thing small = thing_of(f, 1, 50000), large = thing_of(f, 2, 3 << 20), next = thing_of(f, 3, 50000);
    WANT(use(f, &small) == LS_OK && small.in_folder);
    WANT(use(f, &large) == LS_OK && !large.in_folder);
    WANT(!is_there(f, &large, ".part") && !is_there(f, &large, ".thing"));
    WANT(use(f, &next) == LS_OK && next.in_folder);
    WANT(umount(f->folder) == 0);
    return 0;
}

static void cache_get_on_a_full_disk(void **state)
{
    in_child(*state, full_disk_body);
}

/* As a network file system without locks: fcntl(F_OFD_SETLK..) is ENOLCK. */
static bool refuse_locks(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, F_OFD_GETLK, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, F_OFD_SETLKW, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int no_locks_body(fixture *f)
{
    thing there = thing_of(f, 1, 5000), missing = thing_of(f, 2, 5000);
    WANT(use(f, &there) == LS_OK);
    if (!refuse_locks()) {
        return 77;
    }
    WANT(use(f, &there) == LS_OK && there.in_folder && f->shared->makes == 1);
    WANT(use(f, &missing) == LS_OK && !missing.in_folder && f->shared->makes == 2);
    WANT(!is_there(f, &missing, ".part") && !is_there(f, &missing, ".thing"));
    return 0;
}

static void cache_get_without_locks(void **state)
{
    in_child(*state, no_locks_body);
}

static void cache_get_without_a_folder(void **state)
{
    fixture *f = *state;
    const char *folders[] = {"", "/proc/cannot/be/made", "/dev/null/cache"};
    for (size_t i = 0; i < 3; i++) {
        thing t = thing_of(f, 1, 5000);
        snprintf(f->folder, sizeof f->folder, "%s", folders[i]);
        assert_int_equal(use(f, &t), LS_OK);
        assert_false(t.in_folder);
    }
    assert_int_equal(f->shared->makes, 3);
}

/* ---- trust ---- */

static void cache_get_does_not_follow_links(void **state)
{
    fixture *f = *state;
    thing t = thing_of(f, 1, 5000);
    assert_int_equal(use(f, &t), LS_OK);
    const char *elsewhere = ls_path_join(&f->arena, f->base, "elsewhere");
    assert_int_equal(rename(path_of(f, &t, ".thing"), elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path_of(f, &t, ".thing")), 0);
    assert_int_equal(symlink(elsewhere, path_of(f, &t, ".part")), 0);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(f->shared->makes, 2);
    struct stat info;
    assert_int_equal(lstat(path_of(f, &t, ".thing"), &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(stat(elsewhere, &info), 0);
    assert_int_equal(info.st_size, 5000); /* nobody wrote through the link */
}

static void cache_get_does_not_believe_strangers(void **state)
{
    fixture *f = *state;
    if (geteuid() != 0) {
        print_message("only root can give files away, skipped\n");
        skip();
    }
    thing t = thing_of(f, 1, 5000);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(chown(path_of(f, &t, ".thing"), 12345, 54), 0);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(f->shared->makes, 2);

    /* Members of a group that was named do; what others can write is nobody's word. */
    limit(f, 1 << 30, 0, "root");
    assert_int_equal(chown(path_of(f, &t, ".thing"), 12345, 0), 0);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(f->shared->makes, 2);
    assert_int_equal(chmod(path_of(f, &t, ".thing"), 0666), 0);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(f->shared->makes, 3);
    struct stat info;
    assert_int_equal(stat(path_of(f, &t, ".thing"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0664);

    /* Nor is a stranger's cache.yaml: the run goes on, and only root's and one's own are
     * believed. */
    assert_int_equal(chown(path_of(f, &t, ".thing"), 12345, 0), 0);
    const char *yaml = ls_path_join(&f->arena, f->folder, "cache.yaml");
    assert_int_equal(chown(yaml, 12345, 0), 0);
    ls_cache_limits limits;
    assert_int_equal(ls_cache_limits_load(&f->arena, f->folder, &limits), LS_ERR_INVALID);
    assert_int_equal(use(f, &t), LS_OK);
    assert_int_equal(f->shared->makes, 4);

    /* A lock file of a stranger's could be held for ever: then it is not waited for. */
    char lock[160];
    for (int i = 0; i < 64; i++) {
        snprintf(lock, sizeof lock, "%s/lock-%02x", f->folder, i);
        (void)!chown(lock, 12345, 54);
    }
    thing next = thing_of(f, 1 + 256, 5000);
    assert_int_equal(use(f, &next), LS_OK);
    assert_false(next.in_folder);
}

/* ---- limits and list ---- */

static void cache_limits_are_those_of_the_folder(void **state)
{
    fixture *f = *state;
    const char *yaml = ls_path_join(&f->arena, f->folder, "cache.yaml");
    ls_options_check(ls_cache_limits_table(), sizeof(ls_cache_limits));
    ls_cache_limits limits;
    assert_int_equal(unlink(yaml), 0);
    assert_int_equal(ls_cache_limits_load(&f->arena, f->folder, &limits), LS_OK);
    assert_true(limits.quota_bytes > 0 && limits.quota_bytes != LS_AUTO_U64);
    assert_true(limits.keep_free_bytes <= UINT64_C(10) << 30);
    assert_string_equal(limits.group, "");
    const ls_cache_limits wanted = {.quota_bytes = 12345, .keep_free_bytes = LS_AUTO_U64, .group = "ml"};
    assert_int_equal(ls_cache_limits_write(f->folder, &wanted), LS_OK);
    assert_int_equal(ls_cache_limits_read(&f->arena, f->folder, &limits), LS_OK);
    assert_int_equal(limits.quota_bytes, 12345);
    assert_int_equal(limits.keep_free_bytes, LS_AUTO_U64);
    assert_string_equal(limits.group, "ml");

    const char *text = "quota: much\n";
    assert_int_equal(ls_file_write_atomic(yaml, text, strlen(text)), LS_OK);
    assert_int_equal(ls_cache_limits_load(&f->arena, f->folder, &limits), LS_ERR_INVALID);
    thing t = thing_of(f, 1, 5000);
    assert_int_equal(use(f, &t), LS_OK); /* told, and made all the same */
    assert_true(t.in_folder);
}

static bool is_half_there(fixture *f, const thing *t)
{
    struct stat info;
    return stat(path_of(f, t, ".part"), &info) == 0 && info.st_size == t->bytes / 2;
}

static void cache_list_says_who_uses_what(void **state)
{
    fixture *f = *state;
    thing used = thing_of(f, 1, 5000), unused = thing_of(f, 2, 700), half = thing_of(f, 3, 4000);
    half.pauses = true;
    /* before there are pins that it would inherit */
    const pid_t maker = start_use(f, &half, LS_OK);
    wait_for(&f->shared->makes, 1);
    while (f->shared->makes == 1 && !is_half_there(f, &half)) {
        nap();
    }
    ls_cache *user = open_cache(f), *cache = open_cache(f);
    assert_int_equal(use(f, &unused), LS_OK);
    set_age(f, &unused, 500);
    assert_int_equal(get(user, &used), LS_OK);
    ls_cache_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(ls_cache_list(cache, &f->arena, &entries, &count), LS_OK);
    assert_int_equal(count, 3);
    int seen = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_cache_entry *e = &entries[i];
        assert_string_equal(e->what, "thing");
        assert_true(e->believed);
        if (strcmp(e->key, used.key) == 0) {
            assert_true(e->is_pinned && !e->is_making && e->bytes == 5000);
            assert_int_equal(e->user_count, 1);
            assert_int_equal(e->users[0].pid, getpid());
            seen += 1;
        } else if (strcmp(e->key, unused.key) == 0) {
            assert_true(!e->is_pinned && !e->is_making && e->bytes == 700);
            assert_int_equal(e->user_count, 0);
            assert_int_equal(i, 2); /* used longest ago */
            seen += 10;
        } else {
            assert_true(e->is_making && e->bytes == 2000);
            assert_int_equal(e->user_count, 1);
            assert_int_equal(e->users[0].pid, maker);
            seen += 100;
        }
    }
    assert_int_equal(seen, 111);
    atomic_store(&f->shared->go, 1);
    expect_exit(maker, 0);
    ls_file_map_close(&used.map);
    ls_cache_close(user);
    ls_cache_close(cache);
}

/* ---- all at once ---- */

static int crowd_body(fixture *f, uint32_t seed)
{
    for (uint32_t i = 0; i < 60; i++) {
        const uint64_t draw = ls_random_u64(ls_random_stream(seed, LS_RANDOM_TEST), i, 0);
        const uint32_t number = (uint32_t)(draw >> 16) % 24;
        thing t = thing_of(f, number, 1000 + number * 511);
        ls_cache *cache = open_cache(f);
        WANT(cache && get(cache, &t) == LS_OK);
        WANT(t.in_folder && is_whole(&t, t.map));
        if (draw % 5 == 0) {
            bool removed = false;
            thing other = thing_of(f, (uint32_t)(draw >> 32) % 24, 0);
            WANT(ls_cache_remove(cache, other.key, &removed) == LS_OK);
        }
        WANT(is_whole(&t, t.map));
        ls_file_map_close(&t.map);
        ls_cache_close(cache);
    }
    return 0;
}

static void cache_survives_a_crowd(void **state)
{
    fixture *f = *state;
    enum { PROCESSES = 8 };
    pid_t pids[PROCESSES];
    limit(f, 60000, 0, "");
    for (uint32_t i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(crowd_body(f, 11 + i));
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        expect_exit(pids[i], 0);
    }
    ls_cache *cache = open_cache(f);
    assert_int_equal(ls_cache_trim(cache), LS_OK);
    ls_cache_close(cache);
    size_t unused = 0;
    assert_true(total_bytes(f, &unused) <= 60000);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(cache_get_makes_once),
        CASE(cache_get_makes_what_is_damaged_again),
        CASE(cache_get_waits_for_another_process),
        CASE(cache_get_takes_over_from_a_killed_maker),
        CASE(cache_sweep_removes_what_a_killed_maker_left),
        CASE(cache_get_stops_waiting_when_asked),
        CASE(cache_get_gives_up_a_lock_that_came_too_late),
        CASE(cache_get_makes_once_among_threads),
        CASE(cache_get_leaves_nothing_of_a_failed_make),
        CASE(cache_remove_leaves_what_is_mapped),
        CASE(cache_pins_of_a_killed_process_are_gone),
        CASE(cache_quota_holds_over_random_adds),
        CASE(cache_trim_removes_the_least_recently_used),
        CASE(cache_larger_than_its_quota_lasts_as_long_as_it_is_used),
        CASE(cache_keeps_the_disk_free),
        CASE(cache_get_from_a_read_only_folder),
        CASE(cache_get_on_a_full_disk),
        CASE(cache_get_without_locks),
        CASE(cache_get_without_a_folder),
        CASE(cache_get_does_not_follow_links),
        CASE(cache_get_does_not_believe_strangers),
        CASE(cache_limits_are_those_of_the_folder),
        CASE(cache_list_says_who_uses_what),
        CASE(cache_survives_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
