// SPDX-License-Identifier: Apache-2.0
/*
 * A file that an older checkpoint has already: what is the same in all checkpoints of a run is written once, and linked from then on.
 *
 *   list the root                checkpoints, newest first: folders that are committed, never one that is being written or removed, so that
 *                                what is found is durable
 *   open the file in it          where there is none, the next
 *   read it, from first to last  every byte is compared with what would be written, and its end; one that differs is never linked
 *
 * So a bit that flipped on disk does not get into a new checkpoint by a link: the file is written anew, and from then on that one is linked.
 * Between here and the link the folder may be removed by a prune; then the link fails, and the caller writes.
 *
 * A state machine over base/env.h: it never blocks and is not thread-safe. It has no errors: what can't be read is not shared.
 */
#ifndef LS_STORAGE_SHARE_H
#define LS_STORAGE_SHARE_H

#include "base/arena.h"
#include "base/env.h"

typedef struct ls_share_options {
    ls_env *env;
    const char *root;
    const char *name; /* of the file, in each checkpoint */
    uint64_t bytes;   /* that it must have */
    void *context;
    /* Whether these bytes of the file are what would be written. Any pieces, in order. */
    bool (*same)(void *context, uint64_t offset, const void *data, size_t bytes);
    /* Called once, later. path: of a file with the same content, in `arena`; NULL: there is none. */
    void (*done)(void *context, const char *path);
} ls_share_options;

/* What it needs comes from `arena`, which must live until `done`; so must what options point to. */
void ls_share_find(ls_arena *arena, const ls_share_options *options);

#endif
