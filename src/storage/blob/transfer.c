// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/transfer.h"

#include "base/file.h"
#include "storage/blob/blob_internal.h"

#include <string.h>
#include <unistd.h>

ls_status ls_blob_place_open(ls_arena *arena, const char *address, const ls_blob_options *options,
                             ls_blob_place *place_out)
{
    const char *store = address, *key = "";
    if (ls_blob_is_remote(address)) {
        const size_t bytes = 5 + strcspn(address + 5, "/");
        store = ls_arena_strndup(arena, address, bytes);
        key = address[bytes] ? ls_arena_strdup(arena, address + bytes + 1) : "";
    } else if (*address && !ls_path_is_dir(address) && !ls_path_has_suffix(address, "/")) {
        store = ls_path_dirname(arena, address);
        key = ls_arena_strdup(arena, ls_path_basename(address));
    }
    LS_TRY(ls_blob_open(store, options, &place_out->store));
    place_out->key = key;
    return LS_OK;
}

static bool is_folder_key(const char *key)
{
    return !*key || key[strlen(key) - 1] == '/';
}

/* ---- one blob ---- */

static ls_status put_path(ls_blob_store *to, const char *to_key, const char *path, uint64_t *bytes_out)
{
    int fd = -1;
    size_t bytes = 0;
    if (ls_path_is_dir(path)) {
        return ls_fail(LS_ERR_INVALID, "%s is a folder; --recursive copies it", path);
    }
    LS_TRY(ls_file_open(path, &fd, &bytes));
    const ls_status status = ls_blob_put_file(to, to_key, fd, path, bytes, NULL, NULL);
    close(fd);
    *bytes_out = bytes;
    return status;
}

static ls_status get_path(ls_blob_store *from, const ls_blob_entry *entry, const char *path)
{
    ls_arena arena = {0};
    ls_status status = ls_dir_create(ls_path_dirname(&arena, path));
    status = status == LS_OK ? ls_blob_get_file(from, entry, path) : status;
    ls_arena_release(&arena);
    return status;
}

/* Between two servers. */
static ls_status by_file(ls_blob_store *from, const ls_blob_entry *entry, ls_blob_store *to,
                         const char *to_key)
{
    static const char path[] = "the temporary file of a copy, in $TMPDIR or /tmp";
    int fd = -1;
    LS_TRY(ls_file_open_temporary("", &fd));
    ls_status status = ls_blob_read_file(from, entry, fd, path);
    status = status == LS_OK ? ls_blob_put_file(to, to_key, fd, path, entry->bytes, NULL, NULL) : status;
    close(fd);
    return status;
}

/* entry: of the blob; only its key need be set in a folder. */
static ls_status copy_one(ls_blob_store *from, const ls_blob_entry *entry, ls_blob_store *to,
                          const char *to_key, uint64_t *bytes_out)
{
    ls_arena arena = {0};
    const char *key = entry->key;
    const char *a = ls_blob_address(from), *b = ls_blob_address(to);
    const bool from_remote = ls_blob_is_remote(a), to_remote = ls_blob_is_remote(b);
    LS_TRY(ls_blob_check_key(key));
    LS_TRY(ls_blob_check_key(to_key));
    ls_status status = LS_OK;
    *bytes_out = entry->bytes;
    if (!from_remote) {
        status = put_path(to, to_key, ls_arena_printf(&arena, "%s/%s", a, key), bytes_out);
    } else if (!to_remote) {
        status = get_path(from, entry, ls_arena_printf(&arena, "%s/%s", b, to_key));
    } else if (strcmp(a, b) == 0) {
        status = ls_blob_copy(from, key, to_key);
    } else {
        status = by_file(from, entry, to, to_key);
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- many ---- */

typedef struct batch {
    const ls_blob_place *from, *to; /* to NULL: remove */
    const ls_blob_entry *entries;
    const char *below, *to_below; /* folders, with their slash */
    _Atomic uint64_t blobs, bytes;
} batch;

static ls_status do_entry(void *context, uint64_t index)
{
    batch *b = context;
    const ls_blob_entry *entry = &b->entries[index];
    uint64_t bytes = entry->bytes;
    if (!b->to) {
        LS_TRY(ls_blob_remove(b->from->store, entry->key));
    } else {
        ls_arena arena = {0};
        const char *to_key = ls_arena_printf(&arena, "%s%s", b->to_below, entry->key + strlen(b->below));
        const ls_status status = copy_one(b->from->store, entry, b->to->store, to_key, &bytes);
        ls_arena_release(&arena);
        LS_TRY(status);
    }
    atomic_fetch_add(&b->blobs, 1);
    atomic_fetch_add(&b->bytes, bytes);
    return LS_OK;
}

static const char *as_folder(ls_arena *arena, const char *key)
{
    return is_folder_key(key) ? key : ls_arena_printf(arena, "%s/", key);
}

static ls_status do_all(const ls_blob_place *from, const ls_blob_place *to, unsigned threads,
                        ls_blob_moved *moved_out)
{
    ls_arena arena = {0};
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    batch b = {.from = from, .to = to, .below = as_folder(&arena, from->key)};
    b.to_below = to ? as_folder(&arena, to->key) : "";
    ls_status status = ls_blob_list(from->store, &arena, b.below, true, &entries, &count);
    b.entries = entries;
    if (status == LS_OK && count == 0) {
        status = ls_fail(LS_ERR_NOT_FOUND, "there is nothing below %s/%s", ls_blob_address(from->store),
                         from->key);
    }
    if (status == LS_OK) {
        status = ls_blob_each_part(threads, count, do_entry, &b);
        *moved_out = (ls_blob_moved){atomic_load(&b.blobs), atomic_load(&b.bytes)};
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_blob_transfer(const ls_blob_place *from, const ls_blob_place *to, bool recursive,
                           unsigned threads, ls_blob_moved *moved_out)
{
    if (recursive) {
        return do_all(from, to, threads, moved_out);
    }
    if (is_folder_key(from->key)) {
        return ls_fail(LS_ERR_INVALID, "%s/%s is a folder; --recursive takes all below it",
                       ls_blob_address(from->store), from->key);
    }
    ls_arena arena = {0};
    const char *to_key = to->key;
    if (is_folder_key(to_key)) {
        to_key = ls_arena_printf(&arena, "%s%s", to_key, ls_path_basename(from->key));
    }
    ls_blob_moved moved = {.blobs = 1};
    ls_blob_entry entry = {.key = from->key};
    ls_status status = LS_OK;
    if (ls_blob_is_remote(ls_blob_address(from->store))) {
        status = ls_blob_stat(from->store, from->key, &entry);
    }
    status = status == LS_OK ? copy_one(from->store, &entry, to->store, to_key, &moved.bytes) : status;
    ls_arena_release(&arena);
    LS_TRY(status);
    *moved_out = moved;
    return LS_OK;
}

ls_status ls_blob_remove_all(const ls_blob_place *place, bool recursive, unsigned threads,
                             ls_blob_moved *moved_out)
{
    if (recursive) {
        return do_all(place, NULL, threads, moved_out);
    }
    ls_blob_entry entry;
    /* A store does not say that nothing was removed. */
    LS_TRY(ls_blob_stat(place->store, place->key, &entry));
    LS_TRY(ls_blob_remove(place->store, place->key));
    *moved_out = (ls_blob_moved){1, entry.bytes};
    return LS_OK;
}
