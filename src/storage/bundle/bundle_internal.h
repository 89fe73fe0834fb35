// SPDX-License-Identifier: Apache-2.0
/* Between the files of this room: BUNDLE.json as text, and places that files are written to. */
#ifndef LS_STORAGE_BUNDLE_BUNDLE_INTERNAL_H
#define LS_STORAGE_BUNDLE_BUNDLE_INTERNAL_H

#include "base/text.h"
#include "storage/bundle/bundle.h"
#include "storage/bundle/tar.h"

/* Checks names (also that none is there twice). Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_bundle_encode(const ls_bundle *bundle, ls_text *text);
/* Errors: LS_ERR_DATA naming `name`; LS_ERR_UNSUPPORTED for another version. */
LS_MUST_CHECK ls_status ls_bundle_decode(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                         ls_bundle *bundle_out);

/* Where files go: an archive, a folder, or nowhere (both NULL). */
typedef struct ls_bundle_target {
    ls_tar_writer *tar;
    const char *folder;
    /* private: the file that is being written */
    ls_arena *arena;
    const char *path;
    int fd;
} ls_bundle_target;

/* Where the bytes of a file come from: an opened file, or the present one of an archive. */
typedef struct ls_bundle_source {
    const char *path;
    int fd;
    ls_tar_reader *tar; /* NULL: the file */
} ls_bundle_source;

/* Copies a file of `bytes` bytes; hex_out: its digest. */
LS_MUST_CHECK ls_status ls_bundle_copy(ls_bundle_target *target, const char *name,
                                       const ls_bundle_source *source, uint64_t bytes,
                                       char hex_out[LS_SHA256_HEX_BYTES]);
/* A whole one. */
LS_MUST_CHECK ls_status ls_bundle_write_file(ls_bundle_target *target, const char *name, const void *data,
                                             size_t bytes);

/* A new folder beside `path`, which must not exist; `folder_out` becomes `path` by
 * ls_bundle_keep_folder. */
LS_MUST_CHECK ls_status ls_bundle_new_folder(ls_arena *arena, const char *path, const char **folder_out);
/* failed: what filling it ended with; then it is removed. */
LS_MUST_CHECK ls_status ls_bundle_keep_folder(const char *folder, const char *path, ls_status failed);

#endif
