// SPDX-License-Identifier: Apache-2.0
/*
 * The simulated disk. Each file and folder has two sides: what programs see now, and what a crash is sure to leave. In between
 * lie the writes (of a file) and the states of the list of names (of a folder) since the last sync, of which a crash keeps
 * what it likes.
 */
#include "base/assert.h"
#include "base/env_sim_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct content {
    unsigned char *data;
    size_t bytes;
} content;

/* A write since the last sync; data NULL: the file was emptied. */
typedef struct pending_write {
    unsigned char *data;
    size_t bytes;
    uint64_t offset;
} pending_write;

typedef struct entry {
    char *name;
    ls_sim_inode *inode;
} entry;

/* The names of a folder at one moment, sorted. */
typedef struct names {
    entry *entries;
    size_t count;
} names;

struct ls_sim_inode {
    ls_sim_inode *next; /* all inodes of the disk */
    bool is_folder;
    content now, durable;
    pending_write *writes;
    size_t write_count;
    names names_now;
    names *states; /* names that a crash may go back to: [0] is the durable one, then each state since */
    size_t state_count;
};

/* ---- memory ---- */

static void *copy_bytes(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    LS_ASSERT(copy && "out of memory for a simulated disk");
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

static names names_copy(const names *from)
{
    names copy = {.entries = copy_bytes(from->entries, from->count * sizeof(entry)), .count = from->count};
    for (size_t i = 0; i < copy.count; i++) {
        copy.entries[i].name = copy_bytes(from->entries[i].name, strlen(from->entries[i].name) + 1);
    }
    return copy;
}

static void names_release(names *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->entries[i].name);
    }
    free(list->entries);
    *list = (names){0};
}

static void drop_states(ls_sim_inode *inode)
{
    for (size_t i = 0; i < inode->state_count; i++) {
        names_release(&inode->states[i]);
    }
    inode->state_count = 0;
}

static void drop_writes(ls_sim_inode *inode)
{
    for (size_t i = 0; i < inode->write_count; i++) {
        free(inode->writes[i].data);
    }
    inode->write_count = 0;
}

/* Remembers the folder's names of this moment as one more state. */
static void add_state(ls_sim_inode *folder)
{
    folder->states = realloc(folder->states, (folder->state_count + 1) * sizeof *folder->states);
    LS_ASSERT(folder->states && "out of memory for a simulated disk");
    folder->states[folder->state_count++] = names_copy(&folder->names_now);
}

static ls_sim_inode *inode_create(ls_sim_disk *disk, bool is_folder)
{
    ls_sim_inode *inode = calloc(1, sizeof *inode);
    LS_ASSERT(inode && "out of memory for a simulated disk");
    inode->is_folder = is_folder;
    inode->next = disk->inodes;
    disk->inodes = inode;
    if (is_folder) {
        add_state(inode);
    }
    return inode;
}

void ls_sim_disk_init(ls_sim_disk *disk)
{
    *disk = (ls_sim_disk){.capacity_bytes = UINT64_MAX};
    disk->root = inode_create(disk, true);
}

void ls_sim_disk_release(ls_sim_disk *disk)
{
    for (ls_sim_inode *at = disk->inodes; at;) {
        ls_sim_inode *next = at->next;
        drop_writes(at);
        drop_states(at);
        names_release(&at->names_now);
        free(at->writes);
        free(at->states);
        free(at->now.data);
        free(at->durable.data);
        free(at);
        at = next;
    }
    *disk = (ls_sim_disk){0};
}

/* ---- content ---- */

static void content_set(content *to, const content *from)
{
    free(to->data);
    *to = (content){.data = copy_bytes(from->data, from->bytes), .bytes = from->bytes};
}

static void content_write(content *to, const void *data, size_t bytes, uint64_t offset)
{
    const size_t end = (size_t)offset + bytes;
    if (end > to->bytes) {
        to->data = realloc(to->data, end);
        LS_ASSERT(to->data && "out of memory for a simulated disk");
        memset(to->data + to->bytes, 0, end - to->bytes);
        to->bytes = end;
    }
    if (bytes > 0) {
        memcpy(to->data + offset, data, bytes);
    }
}

static void add_write(ls_sim_inode *file, const void *data, size_t bytes, uint64_t offset)
{
    file->writes = realloc(file->writes, (file->write_count + 1) * sizeof *file->writes);
    LS_ASSERT(file->writes && "out of memory for a simulated disk");
    file->writes[file->write_count++] =
        (pending_write){.data = data ? copy_bytes(data, bytes) : NULL, .bytes = bytes, .offset = offset};
}

static void truncate_file(ls_sim_inode *file)
{
    file->now.bytes = 0;
    add_write(file, NULL, 0, 0);
}

static uint64_t disk_bytes(const ls_sim_disk *disk)
{
    uint64_t bytes = 0;
    for (const ls_sim_inode *at = disk->inodes; at; at = at->next) {
        bytes += at->now.bytes;
    }
    return bytes;
}

/* ---- names ---- */

static entry *names_find(const names *list, const char *name, size_t bytes)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strlen(list->entries[i].name) == bytes && memcmp(list->entries[i].name, name, bytes) == 0) {
            return &list->entries[i];
        }
    }
    return NULL;
}

static void names_remove(names *list, const char *name)
{
    entry *found = names_find(list, name, strlen(name));
    if (found) {
        free(found->name);
        const size_t index = (size_t)(found - list->entries);
        memmove(found, found + 1, (list->count - index - 1) * sizeof *found);
        list->count--;
    }
}

static void names_put(names *list, const char *name, ls_sim_inode *inode)
{
    names_remove(list, name);
    /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): count + 1 is never 0 */
    list->entries = realloc(list->entries, (list->count + 1) * sizeof *list->entries);
    LS_ASSERT(list->entries && "out of memory for a simulated disk");
    size_t at = list->count++;
    while (at > 0 && strcmp(list->entries[at - 1].name, name) > 0) {
        list->entries[at] = list->entries[at - 1];
        at--;
    }
    list->entries[at] = (entry){.name = copy_bytes(name, strlen(name) + 1), .inode = inode};
}

/* Where a path leads: the folder it is in, its last name, and what is there (NULL: nothing). */
typedef struct place {
    ls_sim_inode *folder;
    char name[256];
    ls_sim_inode *inode;
} place;

static int find_place(const ls_sim_disk *disk, const char *path, place *out)
{
    *out = (place){.inode = disk->root};
    for (const char *at = path; *at;) {
        const size_t bytes = strcspn(at, "/");
        if (bytes > 0 && !(bytes == 1 && at[0] == '.')) {
            if (!out->inode) {
                return -ENOENT;
            }
            if (!out->inode->is_folder) {
                return -ENOTDIR;
            }
            if (bytes >= sizeof out->name) {
                return -ENAMETOOLONG;
            }
            out->folder = out->inode;
            memcpy(out->name, at, bytes);
            out->name[bytes] = '\0';
            const entry *found = names_find(&out->folder->names_now, out->name, bytes);
            out->inode = found ? found->inode : NULL;
        }
        at += bytes + (at[bytes] == '/');
    }
    LS_ASSERT(out->inode || out->folder); /* the root is always there */
    return 0;
}

/* ---- a crash ---- */

static void file_crash(ls_sim *sim, ls_sim_inode *file)
{
    content left = {0};
    content_set(&left, &file->durable);
    for (size_t i = 0; i < file->write_count; i++) {
        const pending_write *write = &file->writes[i];
        const uint64_t fate = ls_sim_random_u64(sim) % 4; /* 0: lost, 1: torn, else kept */
        if (fate == 0) {
            continue;
        }
        if (!write->data) {
            left.bytes = 0;
            continue;
        }
        const size_t sectors = (write->bytes + LS_SIM_SECTOR_BYTES - 1) / LS_SIM_SECTOR_BYTES;
        const size_t kept =
            fate == 1 && sectors > 0 ? ls_sim_random_u64(sim) % sectors * LS_SIM_SECTOR_BYTES : write->bytes;
        if (kept > 0) {
            content_write(&left, write->data, kept, write->offset);
        }
    }
    drop_writes(file);
    content_set(&file->now, &left);
    content_set(&file->durable, &left);
    free(left.data);
}

static void folder_crash(ls_sim *sim, ls_sim_inode *folder)
{
    const size_t kept = ls_sim_random_u64(sim) % folder->state_count;
    const names left = names_copy(&folder->states[kept]);
    names_release(&folder->names_now);
    folder->names_now = left;
    drop_states(folder);
    add_state(folder);
}

void ls_sim_disk_crash(ls_sim *sim, ls_sim_disk *disk)
{
    for (ls_sim_inode *at = disk->inodes; at; at = at->next) {
        if (at->is_folder) {
            folder_crash(sim, at);
        } else {
            file_crash(sim, at);
        }
    }
}

/* ---- calls ---- */

typedef enum disk_call {
    CALL_OPEN,
    CALL_READ,
    CALL_WRITE,
    CALL_SYNC,
    CALL_CLOSE,
    CALL_SYNC_DIR,
    CALL_RENAME,
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
    place at;
    const int error = find_place(disk_of(job), job->path, &at);
    if (error) {
        return error;
    }
    if (at.inode && at.inode->is_folder) {
        return -EISDIR;
    }
    if (job->mode == LS_ENV_CREATE) {
        if (at.inode) {
            truncate_file(at.inode);
        } else {
            at.inode = inode_create(disk_of(job), false);
            names_put(&at.folder->names_now, at.name, at.inode);
            add_state(at.folder);
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

static int64_t do_write(sim_job *job, bool is_short)
{
    ls_sim_inode *file = file_of(job);
    if (!file) {
        return -EBADF;
    }
    const size_t bytes = is_short && job->bytes > 1 ? job->bytes / 2 : job->bytes;
    const uint64_t end = job->offset + bytes;
    const uint64_t growth = end > file->now.bytes ? end - file->now.bytes : 0;
    const ls_sim_disk *disk = disk_of(job);
    if (growth > 0 &&
        (disk_bytes(disk) > disk->capacity_bytes || growth > disk->capacity_bytes - disk_bytes(disk))) {
        return -ENOSPC;
    }
    content_write(&file->now, job->data, bytes, job->offset);
    add_write(file, job->data, bytes, job->offset);
    return (int64_t)bytes;
}

static int64_t do_sync(sim_job *job)
{
    ls_sim_inode *file = file_of(job);
    if (!file) {
        return -EBADF;
    }
    content_set(&file->durable, &file->now);
    drop_writes(file);
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
    place at;
    const int error = find_place(disk_of(job), job->path, &at);
    if (error || !at.inode || !at.inode->is_folder) {
        return error ? error : at.inode ? -ENOTDIR : -ENOENT;
    }
    drop_states(at.inode);
    add_state(at.inode);
    return 0;
}

/* Whether `to` may take the place of what is there. */
static int64_t check_replace(const place *from, const place *to)
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
    place from, to;
    int64_t error = find_place(disk_of(job), job->path, &from);
    error = error ? error : find_place(disk_of(job), job->to, &to);
    if (error) {
        return error;
    }
    if (!from.inode || !from.folder || !to.folder) {
        return -ENOENT;
    }
    error = check_replace(&from, &to);
    if (error || from.inode == to.inode) {
        return error;
    }
    names_remove(&from.folder->names_now, from.name);
    names_put(&to.folder->names_now, to.name, from.inode);
    add_state(to.folder);
    if (from.folder != to.folder) {
        add_state(from.folder);
    }
    return 0;
}

static int64_t do_unlink(sim_job *job)
{
    place at;
    const int error = find_place(disk_of(job), job->path, &at);
    if (error || !at.inode || !at.folder) {
        return error ? error : -ENOENT;
    }
    if (at.inode->is_folder && at.inode->names_now.count > 0) {
        return -ENOTEMPTY;
    }
    names_remove(&at.folder->names_now, at.name);
    add_state(at.folder);
    return 0;
}

static int64_t do_mkdir(sim_job *job)
{
    place at;
    const int error = find_place(disk_of(job), job->path, &at);
    if (error || at.inode) {
        return error ? error : -EEXIST;
    }
    names_put(&at.folder->names_now, at.name, inode_create(disk_of(job), true));
    add_state(at.folder);
    return 0;
}

static void tell_names(sim_job *job, int64_t error)
{
    place at = {0};
    error = error ? error : find_place(disk_of(job), job->path, &at);
    if (!error && (!at.inode || !at.inode->is_folder)) {
        error = at.inode ? -ENOTDIR : -ENOENT;
    }
    if (error) {
        job->listed(job->context, error, NULL, 0);
        return;
    }
    names list = names_copy(&at.inode->names_now); /* the callback may change the folder */
    const char **pointers = calloc(list.count + 1, sizeof *pointers);
    LS_ASSERT(pointers && "out of memory for a simulated disk");
    for (size_t i = 0; i < list.count; i++) {
        pointers[i] = list.entries[i].name;
    }
    job->listed(job->context, 0, pointers, list.count);
    free(pointers);
    names_release(&list);
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
    case CALL_SYNC:
        return do_sync(job);
    case CALL_CLOSE:
        return do_close(job);
    case CALL_SYNC_DIR:
        return do_sync_dir(job);
    case CALL_RENAME:
        return do_rename(job);
    case CALL_UNLINK:
        return do_unlink(job);
    case CALL_MKDIR:
        return do_mkdir(job);
    case CALL_LIST:
        break;
    }
    return -ENOSYS;
}

/* Calls take effect when they complete: a crash before finds nothing of them. */
static void complete(void *context)
{
    sim_job *job = context;
    ls_sim_disk *disk = disk_of(job);
    const bool fails = ++disk->calls == disk->fail_at;
    const bool is_short = fails && disk->fail_error == LS_SIM_SHORT_WRITE;
    const int64_t error = fails && !is_short ? -disk->fail_error : 0;
    if (job->call == CALL_CLOSE && error) {
        (void)do_close(job); /* the number is gone whatever close returns */
    }
    if (job->call == CALL_LIST) {
        tell_names(job, error);
    } else {
        job->done(job->context, error ? error : perform(job, is_short));
    }
    job_free(job);
}

static char *copy_path(const char *path)
{
    return path ? copy_bytes(path, strlen(path) + 1) : NULL;
}

static void issue(ls_env *env, sim_job values)
{
    ls_sim_process *process = ls_sim_process_of(env);
    ls_sim *sim = process->sim;
    sim_job *job = copy_bytes(&values, sizeof values);
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

static void sim_rename(ls_env *env, const char *from, const char *to, ls_env_done done, void *context)
{
    issue(env,
          (sim_job){
              .call = CALL_RENAME, .path = borrow(from), .to = borrow(to), .done = done, .context = context});
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
    calls->disk_sync = sim_sync;
    calls->disk_close = sim_close;
    calls->disk_sync_dir = sim_sync_dir;
    calls->disk_rename = sim_rename;
    calls->disk_unlink = sim_unlink;
    calls->disk_mkdir = sim_mkdir;
    calls->disk_list = sim_list;
}
