// SPDX-License-Identifier: Apache-2.0
/* Blobs in a folder. What is being written is a file ".tmp-..." beside its final name. */
#include "storage/blob/blob_internal.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".tmp-"
enum { COPY_BYTES = 1 << 20, DEPTH_MAX = 64, TRIES_MAX = 8 };

typedef struct folder_store {
    ls_blob_store base;
    const char *path;
} folder_store;

static const char *path_of(const ls_blob_store *store, ls_arena *arena, const char *key)
{
    return ls_arena_printf(arena, "%s/%s", ((const folder_store *)store)->path, key);
}

/* ---- writing ---- */

typedef struct source {
    const void *data; /* or NULL: from fd */
    int fd;
    const char *path;
    uint64_t bytes;
} source;

static ls_status copy_bytes(const source *from, int fd, const char *path)
{
    if (from->data || from->bytes == 0) {
        return ls_file_write_all(fd, path, from->data, (size_t)from->bytes);
    }
    void *buffer = malloc(COPY_BYTES);
    ls_status status = buffer ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to copy %s", from->path);
    for (uint64_t at = 0; status == LS_OK && at < from->bytes; at += COPY_BYTES) {
        const size_t bytes = from->bytes - at < COPY_BYTES ? (size_t)(from->bytes - at) : COPY_BYTES;
        status = ls_file_pread_all(from->fd, from->path, buffer, bytes, at);
        status = status == LS_OK ? ls_file_write_all(fd, path, buffer, bytes) : status;
    }
    free(buffer);
    return status;
}

static ls_status write_temporary(const source *from, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't create %s", path);
    }
    ls_status status = copy_bytes(from, fd, path);
    if (status == LS_OK && from->bytes > 0 && fsync(fd) != 0) {
        status = ls_fail_errno(errno, "can't sync %s", path);
    }
    close(fd);
    return status;
}

/* Gives the file its name. stored_out as in ls_blob_calls. */
static ls_status give_name(const char *temporary, const char *path, bool *stored_out)
{
    if (!stored_out) {
        return rename(temporary, path) == 0 ? LS_OK
                                            : ls_fail_errno(errno, "can't rename %s to %s", temporary, path);
    }
    const bool linked = link(temporary, path) == 0;
    if (!linked && errno != EEXIST) {
        return ls_fail_errno(errno, "can't link %s to %s", temporary, path);
    }
    *stored_out = linked;
    return LS_OK;
}

/* A store whose folder is for a group (chmod g+ws) has new folders that are for it, too. */
static ls_status create_folder(const ls_blob_store *store, ls_arena *arena, const char *folder)
{
    const char *root = ((const folder_store *)store)->path;
    const mode_t shared = S_ISGID | S_IWGRP;
    struct stat info;
    LS_TRY(ls_dir_create(folder));
    const bool is_shared = stat(root, &info) == 0 && (info.st_mode & shared) == shared;
    for (const char *at = folder; is_shared && strlen(at) > strlen(root); at = ls_path_dirname(arena, at)) {
        if (stat(at, &info) == 0 && !(info.st_mode & S_IWGRP)) {
            (void)!chmod(at, info.st_mode | shared); /* that of another user stays as it is */
        }
    }
    return LS_OK;
}

static ls_status store_file(const ls_blob_store *store, const char *key, const source *from, bool *stored_out)
{
    ls_arena arena = {0};
    const char *path = path_of(store, &arena, key), *folder = ls_path_dirname(&arena, path);
    unsigned long long number = 0;
    (void)!getrandom(&number, sizeof number, 0);
    const char *temporary = ls_arena_printf(&arena, "%s/" TEMPORARY "%016llx", folder, number);
    ls_status status = create_folder(store, &arena, folder);
    status = status == LS_OK ? write_temporary(from, temporary) : status;
    /* Whoever removes the last blob of a folder removes the folder: perhaps just now. */
    for (int i = 0; i < TRIES_MAX && status != LS_OK && !ls_path_is_dir(folder); i++) {
        status = create_folder(store, &arena, folder);
        status = status == LS_OK ? write_temporary(from, temporary) : status;
    }
    status = status == LS_OK ? give_name(temporary, path, stored_out) : status;
    if (status != LS_OK || stored_out) {
        (void)unlink(temporary);
    }
    status = status == LS_OK ? ls_dir_sync(folder) : status;
    ls_arena_release(&arena);
    return status;
}

static ls_status folder_put(ls_blob_store *store, const char *key, const void *data, size_t bytes,
                            bool *stored_out)
{
    return store_file(store, key, &(source){.data = data, .bytes = bytes}, stored_out);
}

/* ---- reading ---- */

/* Opens a blob to read; the caller closes fd_out. A link is no blob: in a folder of several users
 * it might lead to what only the reader may read. */
static ls_status open_blob(ls_blob_store *store, const char *key, int *fd_out, struct stat *info_out)
{
    ls_arena arena = {0};
    const char *path = path_of(store, &arena, key);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    ls_status status = LS_OK;
    if (fd < 0 || fstat(fd, info_out) != 0) {
        status = errno == ENOTDIR ? ls_fail(LS_ERR_NOT_FOUND, "there is no %s", path)
                 : errno == ELOOP ? ls_fail(LS_ERR_NOT_FOUND, "%s is a link, and not a file", path)
                                  : ls_fail_errno(errno, "can't open %s", path);
    } else if (!S_ISREG(info_out->st_mode)) {
        status = ls_fail(LS_ERR_NOT_FOUND, "%s is not a file", path);
    }
    ls_arena_release(&arena);
    if (status != LS_OK && fd >= 0) {
        close(fd);
    }
    *fd_out = fd;
    return status;
}

static ls_status folder_read(ls_blob_store *store, const char *key, const char *etag, uint64_t offset,
                             size_t bytes, const ls_blob_sink *sink)
{
    (void)etag;
    int fd = -1;
    struct stat info;
    LS_TRY(open_blob(store, key, &fd, &info));
    void *buffer = sink->data ? sink->data : malloc(COPY_BYTES);
    const size_t most = sink->data ? bytes : COPY_BYTES;
    ls_status status = buffer ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to read %s", key);
    for (size_t at = 0; status == LS_OK && at < bytes; at += most) {
        const size_t now = bytes - at < most ? bytes - at : most;
        status = ls_file_pread_all(fd, key, buffer, now, offset + at);
        if (status == LS_OK && !sink->data) {
            status = ls_blob_sink_put(sink, at, buffer, now);
        }
    }
    if (!sink->data) {
        free(buffer);
    }
    close(fd);
    return status;
}

static ls_status folder_stat(ls_blob_store *store, const char *key, ls_blob_entry *entry_out)
{
    int fd = -1;
    struct stat info;
    LS_TRY(open_blob(store, key, &fd, &info));
    close(fd);
    *entry_out = (ls_blob_entry){.bytes = (uint64_t)info.st_size, .modified_s = (double)info.st_mtime};
    return LS_OK;
}

/* Whether the blob is there with this digest. A folder keeps no digests: it is read. */
static bool has_digest(ls_blob_store *store, const char *key, uint64_t bytes, const char *sha256)
{
    int fd = -1;
    struct stat info;
    char hex[LS_SHA256_HEX_BYTES];
    if (open_blob(store, key, &fd, &info) != LS_OK) {
        ls_error_clear();
        return false;
    }
    const bool same = (uint64_t)info.st_size == bytes && ls_file_sha256(fd, key, bytes, hex) == LS_OK &&
                      strcmp(hex, sha256) == 0;
    close(fd);
    return same;
}

static ls_status folder_put_file(ls_blob_store *store, const char *key, int fd, const char *path,
                                 uint64_t bytes, const char *sha256, uint64_t *sent_out)
{
    if (sha256 && has_digest(store, key, bytes, sha256)) {
        return LS_OK;
    }
    LS_TRY(store_file(store, key, &(source){.fd = fd, .path = path, .bytes = bytes}, NULL));
    *sent_out = bytes;
    return LS_OK;
}

static ls_status folder_copy(ls_blob_store *store, const char *from, const char *to)
{
    int fd = -1;
    struct stat info;
    LS_TRY(open_blob(store, from, &fd, &info));
    const source whole = {.fd = fd, .path = from, .bytes = (uint64_t)info.st_size};
    const ls_status status = store_file(store, to, &whole, NULL);
    close(fd);
    return status;
}

/* ---- lists ---- */

typedef struct walk {
    const ls_blob_store *store;
    ls_arena *arena;
    const char *prefix;
    bool recursive, temporary; /* temporary: those alone */
    ls_blob_entries list;
} walk;

static bool is_temporary(const char *name)
{
    return strncmp(name, TEMPORARY, sizeof TEMPORARY - 1) == 0;
}

static ls_status walk_folder(walk *w, const char *below, unsigned depth);

static ls_status walk_name(walk *w, const char *key, const char *name, unsigned depth)
{
    struct stat info;
    const size_t bytes = strlen(w->prefix);
    if (lstat(path_of(w->store, w->arena, key), &info) != 0) {
        return errno == ENOENT ? LS_OK : ls_fail_errno(errno, "can't look at %s/%s", w->store->address, key);
    }
    const bool begins = strncmp(key, w->prefix, bytes) == 0;
    if (S_ISDIR(info.st_mode)) {
        const char *folder = ls_arena_printf(w->arena, "%s/", key);
        if (strncmp(folder, w->prefix, bytes) == 0 && !w->recursive && strlen(folder) > bytes) {
            ls_blob_entries_add(&w->list, &(ls_blob_entry){.key = folder, .is_folder = true});
            return LS_OK;
        }
        const bool leads = strncmp(w->prefix, folder, strlen(folder)) == 0;
        return begins || leads ? walk_folder(w, folder, depth + 1) : LS_OK;
    }
    if (begins && S_ISREG(info.st_mode) && is_temporary(name) == w->temporary) {
        ls_blob_entries_add(&w->list, &(ls_blob_entry){.key = key,
                                                       .bytes = (uint64_t)info.st_size,
                                                       .modified_s = (double)info.st_mtime});
    }
    return LS_OK;
}

/* below: "" or "a/b/" */
static ls_status walk_folder(walk *w, const char *below, unsigned depth)
{
    char **names = NULL;
    size_t count = 0;
    const char *path = path_of(w->store, w->arena, below);
    if (depth > DEPTH_MAX) {
        return ls_fail(LS_ERR_DATA, "%s has folders in more than %d levels", w->store->address, DEPTH_MAX);
    }
    if (!ls_path_is_dir(path)) {
        return LS_OK;
    }
    LS_TRY(ls_dir_list(w->arena, path, &names, &count));
    for (size_t i = 0; i < count; i++) {
        LS_TRY(walk_name(w, ls_arena_printf(w->arena, "%s%s", below, names[i]), names[i], depth));
    }
    return LS_OK;
}

static ls_status folder_list(ls_blob_store *store, ls_arena *arena, const char *prefix, bool recursive,
                             ls_blob_entry **entries_out, size_t *count_out)
{
    walk w = {.store = store, .arena = arena, .prefix = prefix, .recursive = recursive};
    const ls_status status = walk_folder(&w, "", 0);
    if (status != LS_OK) {
        free(w.list.entries);
        return status;
    }
    ls_blob_entries_take(&w.list, arena, entries_out, count_out);
    return LS_OK;
}

/* ---- removing ---- */

static ls_status folder_remove(ls_blob_store *store, const char *key)
{
    ls_arena arena = {0};
    const char *root = ((const folder_store *)store)->path, *path = path_of(store, &arena, key);
    ls_status status = LS_OK;
    if (unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR) {
        status = ls_fail_errno(errno, "can't remove %s", path);
    }
    /* Folders that only held this key go with it; a folder in use refuses. */
    const char *folder = ls_path_dirname(&arena, path);
    while (status == LS_OK && strlen(folder) > strlen(root) && rmdir(folder) == 0) {
        folder = ls_path_dirname(&arena, folder);
    }
    status = status == LS_OK && ls_path_is_dir(folder) ? ls_dir_sync(folder) : status;
    ls_arena_release(&arena);
    return status;
}

static ls_status folder_abandon(ls_blob_store *store, const char *prefix)
{
    ls_arena arena = {0};
    walk w = {.store = store, .arena = &arena, .prefix = prefix, .recursive = true, .temporary = true};
    ls_status status = walk_folder(&w, "", 0);
    for (size_t i = 0; status == LS_OK && i < w.list.count; i++) {
        status = folder_remove(store, w.list.entries[i].key);
    }
    free(w.list.entries);
    ls_arena_release(&arena);
    return status;
}

static void folder_close(ls_blob_store *store)
{
    free(store);
}

static const ls_blob_calls folder_calls = {.put = folder_put,
                                           .read = folder_read,
                                           .stat = folder_stat,
                                           .list = folder_list,
                                           .remove = folder_remove,
                                           .copy = folder_copy,
                                           .put_file = folder_put_file,
                                           .abandon = folder_abandon,
                                           .close = folder_close};

ls_status ls_blob_folder_open(const char *folder, ls_blob_store **store_out)
{
    folder_store *store = calloc(1, sizeof *store);
    if (!store) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the store %s", folder);
    }
    store->base.calls = &folder_calls;
    store->base.prefix = "";
    store->path = ls_path_expand_home(&store->base.arena, ls_arena_strdup(&store->base.arena, folder));
    *store_out = &store->base;
    return LS_OK;
}
