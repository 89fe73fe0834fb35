// SPDX-License-Identifier: Apache-2.0
/* Blobs from one store to another: one, or all below a prefix, several at once. */
#ifndef LS_STORAGE_BLOB_TRANSFER_H
#define LS_STORAGE_BLOB_TRANSFER_H

#include "storage/blob/blob.h"

/* A place as a person writes it: s3://BUCKET/KEY or a path. */
typedef struct ls_blob_place {
    ls_blob_store *store; /* the bucket, or the folder that holds the file */
    /* "" for the bucket or folder itself; may end with a slash; in the arena */
    const char *key;
} ls_blob_place;

/* The caller closes place_out->store. Errors: those of ls_blob_open. */
LS_MUST_CHECK ls_status ls_blob_place_open(ls_arena *arena, const char *address,
                                           const ls_blob_options *options, ls_blob_place *place_out);

typedef struct ls_blob_moved {
    uint64_t blobs, bytes;
} ls_blob_moved;

/*
 * Copies blob `from` to `to`; to a key that is empty or ends with a slash: below it, under its own
 * name. recursive: copies all blobs below `from` (as a folder) to below `to`, `threads` at once.
 * Between two buckets of different servers bytes pass through a file in $TMPDIR. Errors: those of
 * both stores; what was copied until then stays.
 */
LS_MUST_CHECK ls_status ls_blob_transfer(const ls_blob_place *from, const ls_blob_place *to, bool recursive,
                                         unsigned threads, ls_blob_moved *moved_out);

/* Removes a blob, which must be there, or all below a prefix. */
LS_MUST_CHECK ls_status ls_blob_remove_all(const ls_blob_place *place, bool recursive, unsigned threads,
                                           ls_blob_moved *moved_out);

#endif
