// SPDX-License-Identifier: Apache-2.0
/*
 * Removing folders from a checkpoint root in such a way that no reader ever takes a partly removed
 * one for a checkpoint (invariants I4, I6).
 *
 *   1. Each folder is claimed: renamed to `<step>.tmp-...-gone`, a name that no reader looks at and
 *      no saver commits. Renames are atomic: of two that want the same folder (a prune and a saver
 *      by mistake, two prunes), one finds it gone.
 *   2. The root is synced. Only then is it sure that the old name does not come back after a power
 *      loss.
 *   3. Each claimed folder is emptied, the manifest first, and removed. What can't be removed, or
 *      is left by a crash, is a leftover that the next save or prune takes up. One that was pinned
 *      meanwhile gets its name back.
 *
 * Readers that have the files open keep them; a reader between open and load finds a file missing
 * and looks for the newest again (ls_checkpoint_load_latest does).
 *
 * A state machine over env/env.h: it never blocks and is not thread-safe.
 */
#ifndef LS_STORAGE_CHECKPOINT_COLLECT_H
#define LS_STORAGE_CHECKPOINT_COLLECT_H

#include "base/arena.h"
#include "env/env.h"

#define LS_COLLECT_MARK "-gone"

typedef struct ls_collect_options {
    ls_env *env;
    const char *root;
    const char *const *names; /* folders in root, each beginning with its step */
    size_t count;
    bool also_pinned; /* remove replaced checkpoints even if they are pinned */
    void *context;
    /*
     * Called once, later. LS_OK: claimed[i] says whether this call took folder i away (false:
     * somebody else had, or it was pinned); what could not be removed then is logged. Errors:
     * LS_ERR_DISK, LS_ERR_IO, with the error text set; then the folders have one of their two names
     * and all that was in them.
     */
    void (*done)(void *context, ls_status status, const bool *claimed);
} ls_collect_options;

/* Allocates from `arena`, which must live until `done`, and so must everything options points
 * to. */
void ls_collect_start(ls_arena *arena, const ls_collect_options *options);

/* "<step>.tmp-<random>", the name of a folder to be written, or with LS_COLLECT_MARK of one to be
 * removed. In `arena`. */
char *ls_collect_name(ls_arena *arena, ls_env *env, const char *name, const char *mark);

#endif
