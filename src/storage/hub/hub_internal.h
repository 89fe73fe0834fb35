// SPDX-License-Identifier: Apache-2.0
/* Between the files of this room: one request, and one file. */
#ifndef LS_STORAGE_HUB_HUB_INTERNAL_H
#define LS_STORAGE_HUB_HUB_INTERNAL_H

#include "base/hash.h"
#include "base/text.h"
#include "storage/hub/hub.h"

typedef struct ls_hub_file {
    const char *name;
    uint64_t size;      /* UINT64_MAX: the hub does not say */
    const char *sha256; /* NULL: the hub does not say */
} ls_hub_file;

/* Gets a text of at most 32 MiB within 120 s; tried again like a file. what: for errors,
 * "ORG/NAME". */
LS_MUST_CHECK ls_status ls_hub_get_text(const ls_hub_options *options, const char *url, const char *what,
                                        ls_text *text_out);

/* Fetches `url` to `path`: continues `path`.part, checks size and hash, syncs, and gives it its
 * name. *reused_out: bytes that were there. */
LS_MUST_CHECK ls_status ls_hub_get_file(const ls_hub_options *options, const char *url,
                                        const ls_hub_file *file, const char *path, uint64_t *reused_out);

#endif
