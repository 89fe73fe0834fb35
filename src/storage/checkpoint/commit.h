// SPDX-License-Identifier: Apache-2.0
/*
 * The commit of a checkpoint: a folder of files that is either complete or absent (I4, I6).
 *
 *   make the root, sync its parent     a root that a power loss takes away takes all checkpoints
 *                                      with it
 *   remove leftovers of crashed saves  storage/checkpoint/collect.h; this is what frees a full disk
 *   make `<step>.tmp-<random>`
 *   link the shared files              those that an older checkpoint has, byte for byte
 *                                      (storage/checkpoint/share.h); else they are like the others
 *   open and reserve the data files    a full disk shows here
 *   fill                               the caller writes them, its own way
 *   cut to length, sync, close         each data file; a sync that fails makes the file worthless.
 *                                      What is linked was synced before the checkpoint it comes
 *                                      from was committed, and is never written again
 *   describe                           the caller says which small files there are; the manifest is
 *                                      the last. A pin is taken over
 *   write, sync, close                 each small file
 *   sync the folder
 *   rename to `<step>`                 exchange when there is one already
 *   sync the root                      now it is committed
 *   remove the replaced one
 *
 * When a call fails the save has failed. What was written is removed the way leftovers are, never
 * under its own name, because after a failed rename or root sync it is unknown which of two folders
 * has which name. Older checkpoints are not touched. No file names the newest checkpoint: it would
 * have to be checked against the folders, and the folders alone give the same answer (`lockstep
 * checkpoint ls`).
 *
 * Two savers in one root (two processes by mistake) can make each other fail, but do not damage
 * each other's checkpoints: one whose folder was removed by the other's clean-up fails at its next
 * call, with an error.
 *
 * A state machine over env/env.h, not thread-safe. It never blocks, except in `fill` if the caller
 * does.
 */
#ifndef LS_STORAGE_CHECKPOINT_COMMIT_H
#define LS_STORAGE_CHECKPOINT_COMMIT_H

#include "base/arena.h"
#include "env/env.h"

typedef struct ls_commit ls_commit;

/* Filled by the caller. */
typedef struct ls_commit_file {
    const char *name;
    uint64_t bytes; /* size when finished */
    /* has the same content in many checkpoints of the root: linked if one of them has it */
    bool shared;
} ls_commit_file;

/* Written by the commit. */
typedef struct ls_commit_text {
    const char *name;
    const void *data;
    size_t bytes;
} ls_commit_text;

typedef struct ls_commit_options {
    ls_env *env;
    const char *root; /* its parent must exist */
    uint64_t step;
    const ls_commit_file *files;
    size_t file_count;
    void *context;
    /* Whether bytes of an older checkpoint's shared file `index` are what would be written. NULL:
     * no file is shared. */
    bool (*same)(void *context, size_t index, uint64_t offset, const void *data, size_t bytes);
    /* Called when all data files are open: writes them (ls_env_disk_write_now,
     * ls_env_disk_write) and calls ls_commit_filled, now or later. */
    void (*fill)(void *context, ls_commit *commit);
    /* Called when the data files are durable. texts_out: in the order of writing, valid until
     * `done`. An error ends the commit. */
    ls_status (*describe)(void *context, const ls_commit_text **texts_out, size_t *count_out);
    /*
     * Called once, later. LS_OK: committed. Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_NOT_FOUND
     * (something was taken away), or what fill and describe gave, with the error text set; the new
     * checkpoint then is not there, or (when the last sync failed) is whole but may not survive a
     * power loss.
     */
    void (*done)(void *context, ls_status status);
} ls_commit_options;

/* What it needs comes from `arena`, which must live until `done`; so must what options point to. */
ls_commit *ls_commit_start(ls_arena *arena, const ls_commit_options *options);

/* In fill: the env's file number and the path of a data file. */
int64_t ls_commit_file_number(const ls_commit *commit, size_t index);
const char *ls_commit_file_path(const ls_commit *commit, size_t index);

/* Whether the file is linked: then it has no file number, and nothing is to be written. */
bool ls_commit_is_linked(const ls_commit *commit, size_t index);

/* Reports that the data files are written, or can't be (with the error text set). Called once. */
void ls_commit_filled(ls_commit *commit, ls_status status);

#endif
