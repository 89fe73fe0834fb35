// SPDX-License-Identifier: Apache-2.0
/*
 * Sharing files with older checkpoints: content that is the same in all checkpoints of a run is
 * written once and then linked.
 *
 *   list the root                checkpoints, newest first: folders that are committed, never one
 *                                that is being written or removed, so that what is found is durable
 *   open the file in it          where there is none, the next
 *   read it, from first to last  every byte is compared with what would be written, and its end;
 *                                one that differs is never linked
 *
 * So a bit that flipped on disk does not get into a new checkpoint by a link: the file is written
 * again, and later checkpoints link the new one. A prune may remove the folder between the
 * comparison and the link; then the link fails, and the caller writes the file.
 *
 * A state machine over env/env.h: it never blocks and is not thread-safe. It returns no errors: a
 * file that can't be read is not shared.
 */
#ifndef LS_STORAGE_CHECKPOINT_SHARE_H
#define LS_STORAGE_CHECKPOINT_SHARE_H

#include "base/arena.h"
#include "env/env.h"

typedef struct ls_share_options {
    ls_env *env;
    const char *root;
    const char *name; /* of the file, in each checkpoint */
    uint64_t bytes;   /* that it must have */
    void *context;
    /* Whether these bytes of the file are what would be written. Any pieces, in order. */
    bool (*same)(void *context, uint64_t offset, const void *data, size_t bytes);
    /* Called once, later. path: of a file with the same content, in `arena`; NULL: there is
     * none. */
    void (*done)(void *context, const char *path);
} ls_share_options;

/* Allocates from `arena`, which must live until `done`, and so must everything options points
 * to. */
void ls_share_find(ls_arena *arena, const ls_share_options *options);

#endif
