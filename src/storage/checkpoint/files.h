// SPDX-License-Identifier: Apache-2.0
/* Names and block lists that saving, loading and keeping checkpoints share. Public part:
 * storage/checkpoint/checkpoint.h. */
#ifndef LS_STORAGE_CHECKPOINT_FILES_H
#define LS_STORAGE_CHECKPOINT_FILES_H

#include "storage/checkpoint/block_pool.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/manifest.h"

#define LS_CHECKPOINT_TEMPORARY_MARK ".tmp-"
#define LS_CHECKPOINT_PIN_NAME       "PINNED"
#define LS_CHECKPOINT_INDEX_NAME     "model.safetensors.index.json"

/* "<digits>.tmp-<anything>": left by a save or a prune that did not finish. */
bool ls_checkpoint_name_is_temporary(const char *name);
/* "<digits>.tmp-<anything>-gone": claimed by a removal that did not finish
 * (storage/checkpoint/collect.h). */
bool ls_checkpoint_name_is_gone(const char *name);
/* Plain decimal without leading zeros, at most INT64_MAX. */
bool ls_checkpoint_name_step(const char *name, uint64_t *step_out);

/* Marks the entries, sorted by step, that no rule keeps: the decision of ls_checkpoint_prune.
 * doomed_out: (count). */
void ls_checkpoint_doom(const ls_checkpoint_entry *entries, size_t count,
                        const ls_checkpoint_prune_options *options, bool *doomed_out);

/* Like ls_checkpoint_open, but does not check that the files exist. */
LS_MUST_CHECK ls_status ls_checkpoint_open_manifest(const char *path, ls_checkpoint **checkpoint_out);

/*
 * All blocks of all files, in `arena`: lane = file, files interleaved in proportion to their sizes,
 * so that their SHA-256 run side by side from beginning to end.
 */
ls_block *ls_checkpoint_blocks(ls_arena *arena, const ls_manifest *manifest, size_t *count_out);

#endif
