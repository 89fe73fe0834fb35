// SPDX-License-Identifier: Apache-2.0
/* Between the files of this room: the two kinds of store behind one table. */
#ifndef LS_STORAGE_BLOB_BLOB_INTERNAL_H
#define LS_STORAGE_BLOB_BLOB_INTERNAL_H

#include "storage/blob/blob.h"

/* Where what is read goes: memory, or the place `at` of an open file. */
typedef struct ls_blob_sink {
    void *data; /* NULL: the file */
    int fd;
    const char *path;
    uint64_t at;
} ls_blob_sink;
/* Takes bytes [offset, offset + bytes) of what was asked for. */
LS_MUST_CHECK ls_status ls_blob_sink_put(const ls_blob_sink *sink, uint64_t offset, const void *data,
                                         size_t bytes);

/* Keys are checked and complete: with the prefix of the store. */
typedef struct ls_blob_calls {
    /* stored_out NULL: replaces; else only if there is none. */
    ls_status (*put)(ls_blob_store *store, const char *key, const void *data, size_t bytes, bool *stored_out);
    ls_status (*read)(ls_blob_store *store, const char *key, const char *etag, uint64_t offset, size_t bytes,
                      const ls_blob_sink *sink);
    ls_status (*stat)(ls_blob_store *store, const char *key, ls_blob_entry *entry_out);
    ls_status (*list)(ls_blob_store *store, ls_arena *arena, const char *prefix, bool recursive,
                      ls_blob_entry **entries_out, size_t *count_out);
    ls_status (*remove)(ls_blob_store *store, const char *key);
    ls_status (*copy)(ls_blob_store *store, const char *from, const char *to);
    ls_status (*put_file)(ls_blob_store *store, const char *key, int fd, const char *path, uint64_t bytes,
                          const char *sha256, uint64_t *sent_out);
    ls_status (*abandon)(ls_blob_store *store, const char *prefix);
    void (*close)(ls_blob_store *store);
} ls_blob_calls;

/* The first member of both kinds. */
struct ls_blob_store {
    const ls_blob_calls *calls;
    ls_arena arena;
    const char *address;
    const char *prefix; /* "" or "a/b/" */
    unsigned threads;
    double patience_s;
    const _Atomic uint32_t *cancel;
    const struct ls_blob_world *world;
};

/* folder: without slashes at its end. */
LS_MUST_CHECK ls_status ls_blob_folder_open(const char *folder, ls_blob_store **store_out);
/* bucket_and_prefix: what follows s3://. */
LS_MUST_CHECK ls_status ls_blob_s3_open(const char *bucket_and_prefix, const ls_blob_options *options,
                                        ls_blob_store **store_out);

/* Entries that grow; `entries` are malloc'ed until ls_blob_entries_take moves them to an
 * arena, sorted. */
typedef struct ls_blob_entries {
    ls_blob_entry *entries;
    size_t count, room;
} ls_blob_entries;
void ls_blob_entries_add(ls_blob_entries *list, const ls_blob_entry *entry);
void ls_blob_entries_take(ls_blob_entries *list, ls_arena *arena, ls_blob_entry **entries_out,
                          size_t *count_out);

/* Bytes of one part of a file of `bytes`: the same for the same size, so that an upload can go on.
 * At least 8 MiB, at most 10,000 parts. */
uint64_t ls_blob_part_bytes(uint64_t bytes);

bool ls_blob_is_cancelled(const ls_blob_store *store);

#endif
