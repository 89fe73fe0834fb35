// SPDX-License-Identifier: Apache-2.0
/* The disk calls of the simulated env. */
#include "base/assert.h"
#include "sim/env/sim_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum disk_call {
    CALL_OPEN,
    CALL_READ,
    CALL_WRITE,
    CALL_ALLOCATE,
    CALL_TRUNCATE,
    CALL_SYNC,
    CALL_CLOSE,
    CALL_SYNC_DIR,
    CALL_RENAME,
    CALL_EXCHANGE,
    CALL_LINK,
    CALL_UNLINK,
    CALL_MKDIR,
    CALL_LIST,
} disk_call;

typedef struct sim_job {
    ls_sim_process *process;
    disk_call call;
    char *path, *to; /* owned */
    ls_env_open_mode mode;
    int64_t file;
    void *data; /* borrowed */
    size_t bytes;
    uint64_t offset;
    ls_env_done done;
    ls_env_listed listed;
    void *context;
} sim_job;

static void job_free(void *context)
{
    sim_job *job = context;
    free(job->path);
    free(job->to);
    free(job);
}

static ls_sim_disk *disk_of(const sim_job *job)
{
    return &job->process->sim->hosts[job->process->host]->disk;
}

static ls_sim_inode *file_of(const sim_job *job)
{
    return job->file >= 0 && job->file < LS_SIM_FILES_MAX ? job->process->files[job->file] : NULL;
}

static int64_t add_file(ls_sim_process *process, ls_sim_inode *inode)
{
    for (int64_t i = 0; i < LS_SIM_FILES_MAX; i++) {
        if (!process->files[i]) {
            process->files[i] = inode;
            return i;
        }
    }
    return -EMFILE;
}

static int64_t do_open(sim_job *job)
{
    ls_sim_place at;
    const int error = ls_sim_place_find(disk_of(job), job->path, &at);
    if (error) {
        return error;
    }
    if (at.inode && at.inode->is_folder) {
        return -EISDIR;
    }
    const bool is_new = job->mode == LS_ENV_NEW || job->mode == LS_ENV_NEW_BULK;
    if (is_new && at.inode) {
        return -EEXIST;
    }
    if (job->mode == LS_ENV_CREATE || is_new) {
        if (at.inode) {
            ls_sim_file_resize(at.inode, 0);
        } else {
            at.inode = ls_sim_inode_create(disk_of(job), false);
            ls_sim_names_put(&at.folder->names_now, at.name, at.inode);
            ls_sim_folder_changed(at.folder);
        }
    }
    return at.inode ? add_file(job->process, at.inode) : -ENOENT;
}

static int64_t do_read(sim_job *job)
{
    const ls_sim_inode *file = file_of(job);
    if (!file) {
        return -EBADF;
    }
    const uint64_t left = job->offset < file->now.bytes ? file->now.bytes - job->offset : 0;
    const size_t bytes = left < job->bytes ? (size_t)left : job->bytes;
    if (bytes > 0) {
        memcpy(job->data, file->now.data + job->offset, bytes);
    }
    return (int64_t)bytes;
}

/* Whether the disk can hold a file that grows to `end`. */
static bool has_space(const sim_job *job, const ls_sim_inode *file, uint64_t end)
{
    const ls_sim_disk *disk = disk_of(job);
    if (disk->capacity_bytes == UINT64_MAX || end <= file->now.bytes) {
        return true;
    }
    const uint64_t used = ls_sim_disk_bytes(disk);
    return used <= disk->capacity_bytes && end - file->now.bytes <= disk->capacity_bytes - used;
}

static int64_t do_write(sim_job *job, bool is_short)
{
    ls_sim_inode *file = file_of(job);
    if (!file) {
        return -EBADF;
    }
    const size_t bytes = is_short && job->bytes > 1 ? job->bytes / 2 : job->bytes;
    if (!has_space(job, file, job->offset + bytes)) {
        return -ENOSPC;
    }
    ls_sim_file_write(file, job->data, bytes, job->offset);
    return (int64_t)bytes;
}

/* Only ever longer; truncate sets the length. */
static int64_t do_resize(sim_job *job)
{
    ls_sim_inode *file = file_of(job);
    if (!file) {
        return -EBADF;
    }
    if (!has_space(job, file, job->offset)) {
        return -ENOSPC;
    }
    if (job->call == CALL_TRUNCATE || job->offset > file->now.bytes) {
        ls_sim_file_resize(file, job->offset);
    }
    return 0;
}

static int64_t do_sync(sim_job *job)
{
    ls_sim_inode *file = file_of(job);
    if (!file) {
        return -EBADF;
    }
    ls_sim_file_sync(file);
    return 0;
}

static int64_t do_close(sim_job *job)
{
    if (!file_of(job)) {
        return -EBADF;
    }
    job->process->files[job->file] = NULL;
    return 0;
}

static int64_t do_sync_dir(sim_job *job)
{
    ls_sim_place at;
    const int error = ls_sim_place_find(disk_of(job), job->path, &at);
    if (error || !at.inode || !at.inode->is_folder) {
        return error ? error : at.inode ? -ENOTDIR : -ENOENT;
    }
    ls_sim_folder_sync(at.inode);
    return 0;
}

/* Whether `to` may replace what is there. */
static int64_t check_replace(const ls_sim_place *from, const ls_sim_place *to)
{
    if (!to->inode) {
        return 0;
    }
    if (to->inode->is_folder != from->inode->is_folder) {
        return to->inode->is_folder ? -EISDIR : -ENOTDIR;
    }
    return to->inode->is_folder && to->inode->names_now.count > 0 ? -ENOTEMPTY : 0;
}

static int64_t do_rename(sim_job *job)
{
    ls_sim_place from, to;
    int64_t error = ls_sim_place_find(disk_of(job), job->path, &from);
    error = error ? error : ls_sim_place_find(disk_of(job), job->to, &to);
    if (error) {
        return error;
    }
    if (!from.inode || !from.folder || !to.folder) {
        return -ENOENT;
    }
    error = from.inode == to.inode ? 0 : check_replace(&from, &to);
    if (error || from.inode == to.inode) {
        return error;
    }
    ls_sim_names_remove(&from.folder->names_now, from.name);
    ls_sim_names_put(&to.folder->names_now, to.name, from.inode);
    ls_sim_folder_changed(to.folder);
    if (from.folder != to.folder) {
        ls_sim_folder_changed(from.folder);
    }
    return 0;
}

static int64_t do_exchange(sim_job *job)
{
    ls_sim_place a, b;
    int64_t error = ls_sim_place_find(disk_of(job), job->path, &a);
    error = error ? error : ls_sim_place_find(disk_of(job), job->to, &b);
    if (error) {
        return error;
    }
    if (!a.inode || !b.inode || !a.folder || !b.folder) {
        return -ENOENT;
    }
    ls_sim_names_put(&a.folder->names_now, a.name, b.inode);
    ls_sim_names_put(&b.folder->names_now, b.name, a.inode);
    ls_sim_folder_changed(a.folder);
    if (a.folder != b.folder) {
        ls_sim_folder_changed(b.folder);
    }
    return 0;
}

static int64_t do_link(sim_job *job)
{
    ls_sim_place from, to;
    int64_t error = ls_sim_place_find(disk_of(job), job->path, &from);
    error = error ? error : ls_sim_place_find(disk_of(job), job->to, &to);
    if (error) {
        return error;
    }
    if (!from.inode || to.inode || from.inode->is_folder) {
        return !from.inode ? -ENOENT : to.inode ? -EEXIST : -EPERM;
    }
    ls_sim_names_put(&to.folder->names_now, to.name, from.inode);
    ls_sim_folder_changed(to.folder);
    return 0;
}

static int64_t do_unlink(sim_job *job)
{
    ls_sim_place at;
    const int error = ls_sim_place_find(disk_of(job), job->path, &at);
    if (error || !at.inode || !at.folder) {
        return error ? error : -ENOENT;
    }
    if (at.inode->is_folder && at.inode->names_now.count > 0) {
        return -ENOTEMPTY;
    }
    ls_sim_names_remove(&at.folder->names_now, at.name);
    ls_sim_folder_changed(at.folder);
    return 0;
}

static int64_t do_mkdir(sim_job *job)
{
    ls_sim_place at;
    const int error = ls_sim_place_find(disk_of(job), job->path, &at);
    if (error || at.inode) {
        return error ? error : -EEXIST;
    }
    ls_sim_names_put(&at.folder->names_now, at.name, ls_sim_inode_create(disk_of(job), true));
    ls_sim_folder_changed(at.folder);
    return 0;
}

static void tell_names(sim_job *job, int64_t error)
{
    ls_sim_place at = {0};
    error = error ? error : ls_sim_place_find(disk_of(job), job->path, &at);
    if (!error && (!at.inode || !at.inode->is_folder)) {
        error = at.inode ? -ENOTDIR : -ENOENT;
    }
    if (error) {
        job->listed(job->context, error, NULL, 0);
        return;
    }
    /* the callback may change the folder */
    ls_sim_names list = ls_sim_names_copy(&at.inode->names_now);
    const char **pointers = calloc(list.count + 1, sizeof *pointers);
    LS_ASSERT(pointers && "out of memory for a simulated disk");
    for (size_t i = 0; i < list.count; i++) {
        pointers[i] = list.entries[i].name;
    }
    job->listed(job->context, 0, pointers, list.count);
    free(pointers);
    ls_sim_names_release(&list);
}

static int64_t perform(sim_job *job, bool is_short)
{
    switch (job->call) {
    case CALL_OPEN:
        return do_open(job);
    case CALL_READ:
        return do_read(job);
    case CALL_WRITE:
        return do_write(job, is_short);
    case CALL_ALLOCATE:
    case CALL_TRUNCATE:
        return do_resize(job);
    case CALL_SYNC:
        return do_sync(job);
    case CALL_CLOSE:
        return do_close(job);
    case CALL_SYNC_DIR:
        return do_sync_dir(job);
    case CALL_RENAME:
        return do_rename(job);
    case CALL_EXCHANGE:
        return do_exchange(job);
    case CALL_LINK:
        return do_link(job);
    case CALL_UNLINK:
        return do_unlink(job);
    case CALL_MKDIR:
        return do_mkdir(job);
    case CALL_LIST:
        break;
    }
    return -ENOSYS;
}

/* ---- trouble ---- */

static void lose_power(void *context)
{
    ls_sim_process *process = context;
    ls_sim_host_crash(process->sim, process->host);
}

static bool takes_space(const sim_job *job)
{
    return job->call == CALL_WRITE || job->call == CALL_ALLOCATE || job->call == CALL_MKDIR ||
           job->call == CALL_LINK ||
           (job->call == CALL_OPEN && job->mode != LS_ENV_READ && job->mode != LS_ENV_WRITE);
}

/* What goes wrong with this call: 0, an errno value, LS_SIM_SHORT_WRITE or LS_SIM_POWER_CUT. */
static int next_trouble(const sim_job *job)
{
    ls_sim *sim = job->process->sim;
    ls_sim_disk *disk = disk_of(job);
    disk->calls++;
    if (disk->fail_at && (disk->calls == disk->fail_at || (disk->fail_on && disk->calls > disk->fail_at))) {
        return disk->fail_error;
    }
    if (!ls_sim_chance(sim, disk->trouble)) {
        return 0;
    }
    switch (ls_sim_random_u64(sim) % 3) {
    case 0:
        return job->call == CALL_WRITE ? LS_SIM_SHORT_WRITE : 0;
    case 1:
        return takes_space(job) ? ENOSPC : EIO;
    default:
        return EIO;
    }
}

/* What a call that reports a failure has done all the same. A closed file number is gone
 * whatever close returns; a failed sync has dropped what it could not write; and a change of
 * names that fails with EIO by chance (ls_sim_disk_trouble) may or may not have happened. */
static void fail(sim_job *job)
{
    const ls_sim_disk *disk = disk_of(job);
    const bool changes_names = job->call == CALL_RENAME || job->call == CALL_EXCHANGE ||
                               job->call == CALL_LINK || job->call == CALL_UNLINK || job->call == CALL_MKDIR;
    if (job->call == CALL_CLOSE) {
        (void)do_close(job);
    } else if (job->call == CALL_SYNC && file_of(job)) {
        ls_sim_file_sync_failed(job->process->sim, file_of(job));
    } else if (changes_names && disk->trouble > 0 && ls_sim_random_u64(job->process->sim) % 2) {
        (void)perform(job, false);
    }
}

/* The result of a call other than list; false when the power failed: then there is none. */
static bool run_call(sim_job *job, int64_t *result_out)
{
    ls_sim_disk *disk = disk_of(job);
    const int trouble = disk->is_dead ? LS_SIM_POWER_CUT : next_trouble(job);
    if (trouble == LS_SIM_POWER_CUT) {
        if (!disk->is_dead) {
            disk->is_dead = true;
            ls_sim_add(job->process->sim, 0, 0, 0, lose_power, job->process, NULL);
        }
        return false;
    }
    const bool is_short = trouble == LS_SIM_SHORT_WRITE;
    const int64_t error = is_short ? 0 : -trouble;
    if (error) {
        fail(job);
    }
    *result_out = error ? error : job->call == CALL_LIST ? 0 : perform(job, is_short);
    return true;
}

/* Calls take effect when they complete: a crash before that leaves nothing of them. */
static void complete(void *context)
{
    sim_job *job = context;
    int64_t result = 0;
    if (run_call(job, &result)) {
        if (job->call == CALL_LIST) {
            tell_names(job, result);
        } else {
            job->done(job->context, result);
        }
    }
    job_free(job);
}

/* Within a callback: when the power fails here, this process's calls fail until the callback is
 * over, and then the process is gone. */
static int64_t sim_write_now(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset)
{
    sim_job job = {.process = ls_sim_process_of(env),
                   .call = CALL_WRITE,
                   .file = file,
                   .data = (void *)(uintptr_t)data,
                   .bytes = bytes,
                   .offset = offset};
    int64_t result = 0;
    return run_call(&job, &result) ? result : -EIO;
}

static char *copy_path(const char *path)
{
    return path ? ls_sim_copy(path, strlen(path) + 1) : NULL;
}

static void issue(ls_env *env, sim_job values)
{
    ls_sim_process *process = ls_sim_process_of(env);
    ls_sim *sim = process->sim;
    sim_job *job = ls_sim_copy(&values, sizeof values);
    job->process = process;
    job->path = copy_path(values.path);
    job->to = copy_path(values.to);
    const uint64_t start_ns = process->disk_free_ns > sim->now_ns ? process->disk_free_ns : sim->now_ns;
    process->disk_free_ns =
        start_ns + ls_sim_delay(sim, sim->settings.disk_delay_min_ns, sim->settings.disk_delay_max_ns);
    ls_sim_add(sim, process->disk_free_ns, process->number, 0, complete, job, job_free);
}

static char *borrow(const char *path)
{
    return (char *)(uintptr_t)path;
}

static void sim_open(ls_env *env, const char *path, ls_env_open_mode mode, ls_env_done done, void *context)
{
    issue(env,
          (sim_job){.call = CALL_OPEN, .path = borrow(path), .mode = mode, .done = done, .context = context});
}

static void sim_read(ls_env *env, int64_t file, void *data, size_t bytes, uint64_t offset, ls_env_done done,
                     void *context)
{
    issue(env, (sim_job){.call = CALL_READ,
                         .file = file,
                         .data = data,
                         .bytes = bytes,
                         .offset = offset,
                         .done = done,
                         .context = context});
}

static void sim_write(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset,
                      ls_env_done done, void *context)
{
    issue(env, (sim_job){.call = CALL_WRITE,
                         .file = file,
                         .data = (void *)(uintptr_t)data,
                         .bytes = bytes,
                         .offset = offset,
                         .done = done,
                         .context = context});
}

static void issue_resize(ls_env *env, disk_call call, int64_t file, uint64_t bytes, ls_env_done done,
                         void *context)
{
    issue(env, (sim_job){.call = call, .file = file, .offset = bytes, .done = done, .context = context});
}

static void sim_allocate(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context)
{
    issue_resize(env, CALL_ALLOCATE, file, bytes, done, context);
}

static void sim_truncate(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context)
{
    issue_resize(env, CALL_TRUNCATE, file, bytes, done, context);
}

static void sim_sync(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    issue(env, (sim_job){.call = CALL_SYNC, .file = file, .done = done, .context = context});
}

static void sim_close(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    issue(env, (sim_job){.call = CALL_CLOSE, .file = file, .done = done, .context = context});
}

static void sim_sync_dir(ls_env *env, const char *path, ls_env_done done, void *context)
{
    issue(env, (sim_job){.call = CALL_SYNC_DIR, .path = borrow(path), .done = done, .context = context});
}

static void issue_pair(ls_env *env, disk_call call, const char *from, const char *to, ls_env_done done,
                       void *context)
{
    issue(env,
          (sim_job){.call = call, .path = borrow(from), .to = borrow(to), .done = done, .context = context});
}

static void sim_rename(ls_env *env, const char *from, const char *to, ls_env_done done, void *context)
{
    issue_pair(env, CALL_RENAME, from, to, done, context);
}

static void sim_exchange(ls_env *env, const char *a, const char *b, ls_env_done done, void *context)
{
    issue_pair(env, CALL_EXCHANGE, a, b, done, context);
}

static void sim_link(ls_env *env, const char *from, const char *to, ls_env_done done, void *context)
{
    issue_pair(env, CALL_LINK, from, to, done, context);
}

static void sim_unlink(ls_env *env, const char *path, ls_env_done done, void *context)
{
    issue(env, (sim_job){.call = CALL_UNLINK, .path = borrow(path), .done = done, .context = context});
}

static void sim_mkdir(ls_env *env, const char *path, ls_env_done done, void *context)
{
    issue(env, (sim_job){.call = CALL_MKDIR, .path = borrow(path), .done = done, .context = context});
}

static void sim_list(ls_env *env, const char *path, ls_env_listed listed, void *context)
{
    issue(env, (sim_job){.call = CALL_LIST, .path = borrow(path), .listed = listed, .context = context});
}

void ls_sim_disk_fill(ls_env_calls *calls)
{
    calls->disk_open = sim_open;
    calls->disk_read = sim_read;
    calls->disk_write = sim_write;
    calls->disk_write_now = sim_write_now;
    calls->disk_allocate = sim_allocate;
    calls->disk_truncate = sim_truncate;
    calls->disk_sync = sim_sync;
    calls->disk_close = sim_close;
    calls->disk_sync_dir = sim_sync_dir;
    calls->disk_rename = sim_rename;
    calls->disk_exchange = sim_exchange;
    calls->disk_link = sim_link;
    calls->disk_unlink = sim_unlink;
    calls->disk_mkdir = sim_mkdir;
    calls->disk_list = sim_list;
}
