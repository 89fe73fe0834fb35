// SPDX-License-Identifier: Apache-2.0
/* The real env's disk: one worker thread executes calls in order and returns their outcomes. */
#include "base/assert.h"
#include "env/real/real.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

struct ls_disk_job {
    ls_disk_job *next;
    int64_t (*work)(ls_disk_job *job); /* on the worker thread */
    char *path, *to;                   /* owned */
    int fd;
    ls_env_open_mode mode;
    void *data; /* borrowed */
    size_t bytes;
    uint64_t offset;
    int64_t result;
    char **names; /* owned; disk_list */
    size_t name_count;
    ls_env_done done;
    ls_env_listed listed;
    void *context;
};

static void job_free(ls_disk_job *job)
{
    for (size_t i = 0; i < job->name_count; i++) {
        free(job->names[i]);
    }
    free(job->names);
    free(job->path);
    free(job->to);
    free(job);
}

/* ---- the work ---- */

static int64_t or_errno(int64_t result)
{
    return result < 0 ? -errno : result;
}

static int64_t work_open(ls_disk_job *job)
{
    static const int flags[] = {
        [LS_ENV_READ] = O_RDONLY,
        [LS_ENV_WRITE] = O_RDWR,
        [LS_ENV_CREATE] = O_RDWR | O_CREAT | O_TRUNC,
        [LS_ENV_NEW] = O_RDWR | O_CREAT | O_EXCL,
        [LS_ENV_NEW_BULK] = O_RDWR | O_CREAT | O_EXCL | O_DIRECT,
    };
    const int fd = open(job->path, flags[job->mode] | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EINVAL && job->mode == LS_ENV_NEW_BULK) {
        /* No O_DIRECT on this file system, but the failed call may have created the name. */
        return or_errno(open(job->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    }
    return or_errno(fd);
}

static int64_t work_read(ls_disk_job *job)
{
    size_t got = 0;
    while (got < job->bytes) {
        const ssize_t part =
            pread(job->fd, (char *)job->data + got, job->bytes - got, (off_t)(job->offset + got));
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part < 0) {
            return -errno;
        }
        if (part == 0) {
            break;
        }
        got += (size_t)part;
    }
    return (int64_t)got;
}

static int64_t work_write(ls_disk_job *job)
{
    ssize_t wrote = 0;
    do {
        wrote = pwrite(job->fd, job->data, job->bytes, (off_t)job->offset);
    } while (wrote < 0 && errno == EINTR);
    return or_errno(wrote);
}

static int64_t work_allocate(ls_disk_job *job)
{
    const int64_t result = or_errno(fallocate(job->fd, 0, 0, (off_t)job->offset));
    return result == -EOPNOTSUPP || result == -ENOSYS ? 0 : result;
}

static int64_t work_truncate(ls_disk_job *job)
{
    return or_errno(ftruncate(job->fd, (off_t)job->offset));
}

static int64_t work_sync(ls_disk_job *job)
{
    return or_errno(fsync(job->fd));
}

static int64_t work_close(ls_disk_job *job)
{
    return or_errno(close(job->fd));
}

static int64_t work_sync_dir(ls_disk_job *job)
{
    const int fd = open(job->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int64_t result = or_errno(fsync(fd));
    if (result == -EINVAL) {
        result = 0; /* no fsync for folders on this file system: names are as safe as they can be */
    }
    close(fd);
    return result;
}

static int64_t work_rename(ls_disk_job *job)
{
    return or_errno(rename(job->path, job->to));
}

static int64_t work_exchange(ls_disk_job *job)
{
    return or_errno(renameat2(AT_FDCWD, job->path, AT_FDCWD, job->to, RENAME_EXCHANGE));
}

static int64_t work_link(ls_disk_job *job)
{
    return or_errno(link(job->path, job->to));
}

static int64_t work_unlink(ls_disk_job *job)
{
    const int result = unlink(job->path);
    if (result != 0 && (errno == EISDIR || errno == EPERM)) {
        return or_errno(rmdir(job->path));
    }
    return or_errno(result);
}

static int64_t work_mkdir(ls_disk_job *job)
{
    return or_errno(mkdir(job->path, 0755));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int64_t work_list(ls_disk_job *job)
{
    DIR *folder = opendir(job->path);
    if (!folder) {
        return -errno;
    }
    size_t capacity = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (job->name_count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            job->names = realloc(job->names, capacity * sizeof *job->names);
            LS_ASSERT(job->names && "not enough memory for names");
        }
        job->names[job->name_count] = strdup(entry->d_name);
        LS_ASSERT(job->names[job->name_count] && "not enough memory for names");
        job->name_count++;
    }
    closedir(folder);
    if (job->name_count > 0) {
        qsort(job->names, job->name_count, sizeof *job->names, compare_names);
    }
    return (int64_t)job->name_count;
}

/* ---- the worker ---- */

/* Removes the first job of todo; NULL when there is nothing left and the env is being destroyed. */
static ls_disk_job *take_job(ls_real_disk *disk)
{
    while (!disk->todo && !disk->quit) {
        pthread_cond_wait(&disk->wake, &disk->lock);
    }
    ls_disk_job *job = disk->todo;
    if (job) {
        disk->todo = job->next;
        disk->todo_end = disk->todo ? disk->todo_end : &disk->todo;
    }
    return job;
}

/* A full counter is the only way to fail, and then the descriptor is readable anyway. */
void ls_real_disk_ring(const ls_real_disk *disk)
{
    const uint64_t one = 1;
    LS_ASSERT(write(disk->event_fd, &one, sizeof one) == sizeof one || errno == EAGAIN);
}

static void *worker(void *context)
{
    ls_real_disk *disk = context;
    pthread_mutex_lock(&disk->lock);
    for (ls_disk_job *job = take_job(disk); job; job = take_job(disk)) {
        pthread_mutex_unlock(&disk->lock);
        job->result = job->work(job);
        pthread_mutex_lock(&disk->lock);
        job->next = NULL;
        *disk->done_end = job;
        disk->done_end = &job->next;
        ls_real_disk_ring(disk);
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

/* With every signal blocked, so that signals go to the loop's thread. */
static void start_worker(ls_real_disk *disk)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    LS_ASSERT(pthread_create(&disk->thread, NULL, worker, disk) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    disk->started = true;
}

int ls_real_disk_init(ls_real_disk *disk)
{
    *disk = (ls_real_disk){.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (disk->event_fd < 0) {
        return -errno;
    }
    disk->todo_end = &disk->todo;
    disk->done_end = &disk->done;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->wake, NULL);
    return 0;
}

void ls_real_disk_release(ls_real_disk *disk)
{
    if (disk->started) {
        pthread_mutex_lock(&disk->lock);
        disk->quit = true;
        pthread_cond_signal(&disk->wake);
        pthread_mutex_unlock(&disk->lock);
        pthread_join(disk->thread, NULL);
    }
    while (disk->done) {
        ls_disk_job *job = disk->done;
        disk->done = job->next;
        job_free(job);
    }
    pthread_cond_destroy(&disk->wake);
    pthread_mutex_destroy(&disk->lock);
    close(disk->event_fd);
}

void ls_real_disk_deliver(ls_real_env *env)
{
    ls_real_disk *disk = &env->disk;
    uint64_t count = 0;
    (void)!read(disk->event_fd, &count, sizeof count);
    pthread_mutex_lock(&disk->lock);
    ls_disk_job *job = disk->done;
    disk->done = NULL;
    disk->done_end = &disk->done;
    pthread_mutex_unlock(&disk->lock);
    while (job) {
        ls_disk_job *next = job->next;
        disk->under_way--;
        env->calls++;
        if (job->listed) {
            job->listed(job->context, job->result < 0 ? job->result : 0, (const char *const *)job->names,
                        job->name_count);
        } else {
            job->done(job->context, job->result);
        }
        job_free(job);
        job = next;
    }
}

static void issue(ls_env *env, ls_disk_job values)
{
    ls_real_disk *disk = &((ls_real_env *)env)->disk;
    ls_disk_job *job = malloc(sizeof *job);
    LS_ASSERT(job && "not enough memory for a disk call");
    *job = values;
    if (!disk->started) {
        start_worker(disk);
    }
    disk->under_way++;
    pthread_mutex_lock(&disk->lock);
    *disk->todo_end = job;
    disk->todo_end = &job->next;
    pthread_cond_signal(&disk->wake);
    pthread_mutex_unlock(&disk->lock);
}

static char *copy_path(const char *path)
{
    char *copy = strdup(path);
    LS_ASSERT(copy && "not enough memory for a path");
    return copy;
}

/* ---- the calls ---- */

void ls_real_disk_open(ls_env *env, const char *path, ls_env_open_mode mode, ls_env_done done, void *context)
{
    issue(env,
          (ls_disk_job){
              .work = work_open, .path = copy_path(path), .mode = mode, .done = done, .context = context});
}

void ls_real_disk_read(ls_env *env, int64_t file, void *data, size_t bytes, uint64_t offset, ls_env_done done,
                       void *context)
{
    issue(env, (ls_disk_job){.work = work_read,
                             .fd = (int)file,
                             .data = data,
                             .bytes = bytes,
                             .offset = offset,
                             .done = done,
                             .context = context});
}

void ls_real_disk_write(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset,
                        ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_write,
                             .fd = (int)file,
                             .data = (void *)(uintptr_t)data,
                             .bytes = bytes,
                             .offset = offset,
                             .done = done,
                             .context = context});
}

int64_t ls_real_disk_write_now(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset)
{
    (void)env;
    ls_disk_job job = {.fd = (int)file, .data = (void *)(uintptr_t)data, .bytes = bytes, .offset = offset};
    return work_write(&job);
}

void ls_real_disk_allocate(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context)
{
    issue(env,
          (ls_disk_job){
              .work = work_allocate, .fd = (int)file, .offset = bytes, .done = done, .context = context});
}

void ls_real_disk_truncate(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context)
{
    issue(env,
          (ls_disk_job){
              .work = work_truncate, .fd = (int)file, .offset = bytes, .done = done, .context = context});
}

void ls_real_disk_sync(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_sync, .fd = (int)file, .done = done, .context = context});
}

void ls_real_disk_close(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_close, .fd = (int)file, .done = done, .context = context});
}

void ls_real_disk_sync_dir(ls_env *env, const char *path, ls_env_done done, void *context)
{
    issue(env,
          (ls_disk_job){.work = work_sync_dir, .path = copy_path(path), .done = done, .context = context});
}

void ls_real_disk_rename(ls_env *env, const char *from, const char *to, ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_rename,
                             .path = copy_path(from),
                             .to = copy_path(to),
                             .done = done,
                             .context = context});
}

void ls_real_disk_exchange(ls_env *env, const char *a, const char *b, ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_exchange,
                             .path = copy_path(a),
                             .to = copy_path(b),
                             .done = done,
                             .context = context});
}

void ls_real_disk_link(ls_env *env, const char *from, const char *to, ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_link,
                             .path = copy_path(from),
                             .to = copy_path(to),
                             .done = done,
                             .context = context});
}

void ls_real_disk_unlink(ls_env *env, const char *path, ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_unlink, .path = copy_path(path), .done = done, .context = context});
}

void ls_real_disk_mkdir(ls_env *env, const char *path, ls_env_done done, void *context)
{
    issue(env, (ls_disk_job){.work = work_mkdir, .path = copy_path(path), .done = done, .context = context});
}

void ls_real_disk_list(ls_env *env, const char *path, ls_env_listed listed, void *context)
{
    issue(env,
          (ls_disk_job){.work = work_list, .path = copy_path(path), .listed = listed, .context = context});
}
