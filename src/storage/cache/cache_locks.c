// SPDX-License-Identifier: Apache-2.0
#include "storage/cache/cache_locks.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 100000000L /* interval between two calls of `stop` */

bool ls_cache_is_believed(const struct stat *info, gid_t group)
{
    const bool ours = info->st_uid == geteuid() || info->st_uid == 0;
    const bool of_group = group != (gid_t)-1 && info->st_gid == group && !(info->st_mode & S_IWOTH);
    return S_ISREG(info->st_mode) && (ours || of_group);
}

bool ls_cache_share(int fd, gid_t group, mode_t mode)
{
    const bool shared = group != (gid_t)-1;
    if (shared) {
        (void)!fchown(fd, (uid_t)-1, group);
    }
    return fchmod(fd, shared ? mode | 0060 : mode) == 0;
}

void ls_cache_locks_init(ls_cache_locks *locks, int folder, const char *path, gid_t group)
{
    *locks = (ls_cache_locks){.folder = folder, .path = path, .group = group};
    for (int i = 0; i < LS_CACHE_LOCK_FILES; i++) {
        atomic_init(&locks->fds[i], -1);
    }
}

void ls_cache_locks_release(ls_cache_locks *locks)
{
    for (int i = 0; i < LS_CACHE_LOCK_FILES; i++) {
        const int fd = atomic_exchange(&locks->fds[i], -1);
        if (fd >= 0) {
            close(fd);
        }
    }
}

/* ---- where a key's bytes are ---- */

static uint64_t hex_value(const char *key, int digits)
{
    uint64_t value = 0;
    for (int i = 0; i < digits; i++) {
        const char c = key[i];
        value = 16 * value + (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

uint32_t ls_cache_lock_file(const char *key)
{
    return (uint32_t)hex_value(key + 14, 2) % LS_CACHE_LOCK_FILES;
}

off_t ls_cache_lock_offset(const char *key, ls_cache_lock lock)
{
    return (off_t)(2 * hex_value(key, 14) + (lock == LS_CACHE_MAKE ? 1 : 0));
}

/* ---- files ---- */

/* A lock file that can't be written, in a folder that can't be written, still supports shared
 * locks. */
static int open_file(const ls_cache_locks *locks, const char *name)
{
    const int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = openat(locks->folder, name, O_RDWR | flags);
    if (fd < 0 && errno == ENOENT) {
        fd = openat(locks->folder, name, O_RDWR | O_CREAT | flags, 0600);
        if (fd >= 0) {
            /* not an error: another process has just made it */
            (void)!ls_cache_share(fd, locks->group, 0600);
        }
    }
    if (fd < 0) {
        const int error = errno;
        fd = openat(locks->folder, name, O_RDONLY | flags);
        errno = error;
    }
    return fd;
}

static ls_status open_believed(const ls_cache_locks *locks, uint32_t number, int *fd_out)
{
    char name[16];
    struct stat info = {0};
    snprintf(name, sizeof name, "lock-%02x", number);
    const int fd = open_file(locks, name);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open %s/%s", locks->path, name);
    }
    if (fstat(fd, &info) != 0 || !ls_cache_is_believed(&info, locks->group)) {
        close(fd);
        return ls_fail(LS_ERR_IO,
                       "the lock file %s/%s belongs to user %u, whose files this cache does not trust: "
                       "remove it, and it is made anew",
                       locks->path, name, (unsigned)info.st_uid);
    }
    *fd_out = fd;
    return LS_OK;
}

static ls_status file_of(ls_cache_locks *locks, const char *key, int *fd_out)
{
    const uint32_t number = ls_cache_lock_file(key);
    int fd = atomic_load(&locks->fds[number]);
    if (fd < 0) {
        int none = -1;
        LS_TRY(open_believed(locks, number, &fd));
        if (!atomic_compare_exchange_strong(&locks->fds[number], &none, fd)) {
            close(fd); /* another thread opened it first */
            fd = none;
        }
    }
    *fd_out = fd;
    return LS_OK;
}

/* ---- taking ---- */

static bool is_refused(int error)
{
    return error == EAGAIN || error == EACCES;
}

/* Returns 0 or an errno value. */
static int set_lock(int fd, int command, short type, off_t at)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int result;
    do {
        result = fcntl(fd, command, &range);
    } while (result != 0 && errno == EINTR && command == F_OFD_SETLKW);
    return result == 0 ? 0 : errno;
}

/*
 * A thread blocks in the kernel until it gets the lock, while the caller polls `stop`. If the
 * caller gives up, the thread is left alone: it ends, and releases the lock, as soon as it gets it.
 */
typedef struct waiter {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    int fd; /* a second descriptor of the same description: the first may be closed */
    short type;
    off_t at;
    int error;
    bool is_done, is_left;
    pthread_t thread;
} waiter;

static void destroy_waiter(waiter *w)
{
    close(w->fd);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

static void *wait_in_kernel(void *argument)
{
    waiter *w = argument;
    const int error = set_lock(w->fd, F_OFD_SETLKW, w->type, w->at);
    pthread_mutex_lock(&w->mutex);
    w->error = error;
    w->is_done = true;
    const bool is_left = w->is_left;
    pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->mutex);
    if (is_left) {
        if (error == 0) {
            set_lock(w->fd, F_OFD_SETLK, F_UNLCK, w->at);
        }
        destroy_waiter(w);
    }
    return NULL;
}

static waiter *create_waiter(int fd, short type, off_t at)
{
    waiter *w = calloc(1, sizeof *w);
    if (!w || (w->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
        free(w);
        return NULL;
    }
    w->type = type;
    w->at = at;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->done, NULL);
    return w;
}

/* Signals are blocked here: they must reach the other threads, which a signal may ask to stop. */
static bool start_waiter(waiter *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&w->thread, NULL, wait_in_kernel, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void wait_a_moment(waiter *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_clockwait(&w->done, &w->mutex, CLOCK_MONOTONIC, &until);
}

/* Called with the mutex held. True if the thread has the lock or an error. */
static bool wait_for_thread(waiter *w, const ls_cache_patience *patience, ls_status *status_out)
{
    bool told = false;
    wait_a_moment(w);
    while (!w->is_done) {
        pthread_mutex_unlock(&w->mutex);
        if (!told && patience->refused) {
            patience->refused(patience->context);
        }
        told = true;
        *status_out = patience->stop ? patience->stop(patience->context) : LS_OK;
        pthread_mutex_lock(&w->mutex);
        if (*status_out != LS_OK && !w->is_done) {
            return false;
        }
        *status_out = LS_OK;
        if (!w->is_done) {
            wait_a_moment(w);
        }
    }
    return true;
}

static ls_status wait_for_lock(int fd, short type, off_t at, const ls_cache_patience *patience,
                               int *error_out)
{
    waiter *w = create_waiter(fd, type, at);
    if (!w || !start_waiter(w)) {
        if (w) {
            destroy_waiter(w);
        }
        return ls_fail(LS_ERR_MEMORY, "can't start a thread that waits for the lock of a cache entry");
    }
    ls_status status = LS_OK;
    pthread_mutex_lock(&w->mutex);
    const bool is_done = wait_for_thread(w, patience, &status);
    w->is_left = !is_done;
    *error_out = w->error;
    const pthread_t thread = w->thread;
    pthread_mutex_unlock(&w->mutex);
    if (is_done) {
        pthread_join(thread, NULL);
        destroy_waiter(w);
    } else {
        pthread_detach(thread);
    }
    return status;
}

ls_status ls_cache_lock_take(ls_cache_locks *locks, const char *key, ls_cache_lock lock, bool exclusive,
                             const ls_cache_patience *patience, bool *taken_out)
{
    LS_ASSERT(patience || taken_out);
    int fd = -1;
    LS_TRY(file_of(locks, key, &fd));
    const off_t at = ls_cache_lock_offset(key, lock);
    const short type = exclusive ? F_WRLCK : F_RDLCK;
    int error = set_lock(fd, F_OFD_SETLK, type, at);
    if (is_refused(error) && patience) {
        LS_TRY(wait_for_lock(fd, type, at, patience, &error));
    }
    if (error != 0 && !is_refused(error)) {
        return ls_fail_errno(error, "can't lock files in %s; choose a folder on a local disk for the cache",
                             locks->path);
    }
    if (taken_out) {
        *taken_out = error == 0;
    }
    return LS_OK;
}

void ls_cache_lock_drop(ls_cache_locks *locks, const char *key, ls_cache_lock lock)
{
    const int fd = atomic_load(&locks->fds[ls_cache_lock_file(key)]);
    if (fd >= 0) {
        set_lock(fd, F_OFD_SETLK, F_UNLCK, ls_cache_lock_offset(key, lock));
    }
}

bool ls_cache_lock_is_held(ls_cache_locks *locks, const char *key, ls_cache_lock lock)
{
    int fd = -1;
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ls_cache_lock_offset(key, lock), .l_len = 1};
    return file_of(locks, key, &fd) == LS_OK && fcntl(fd, F_OFD_GETLK, &range) == 0 &&
           range.l_type != F_UNLCK;
}
