// SPDX-License-Identifier: Apache-2.0
/*
 * Survey: what a path on this machine is, as the beginning of an entry.
 *
 *   a checkpoint, a run directory (its newest checkpoint)   digests come from the manifest, which
 *                                                           costs nothing; facts: run, metrics
 *   a folder, a file                                        every file is read; of a folder that
 *                                                           `data prepare` made, facts: preparation
 */
#ifndef LS_STORAGE_REGISTRY_SURVEY_H
#define LS_STORAGE_REGISTRY_SURVEY_H

#include "storage/registry/entry.h"

/* Written into what `registry get` makes, so that what comes of it knows its parent. Not part of an
 * entry. */
#define LS_REGISTRY_RECEIPT "registry.json"

/* A path that something was made from, and as what: "base", "adapter", "tokenizer", "data" or
 * "parent". */
typedef struct ls_survey_source {
    const char *path, *as;
} ls_survey_source;

/*
 * Fills in kind (if it is LS_ENTRY_AUTO), path, files and facts. sources_out: what it was made
 * from, as its run file has it, ended by a path that is NULL. Errors: LS_ERR_NOT_FOUND;
 * LS_ERR_INVALID for a path without files, or a name that an entry cannot hold; those of
 * ls_checkpoint_open; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_survey(ls_arena *arena, const char *path, ls_registry_entry *entry,
                                  ls_survey_source **sources_out);

/* Length and SHA-256 of a plain file. Errors: LS_ERR_INVALID for what is none; LS_ERR_NOT_FOUND,
 * LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_survey_hash(const char *path, ls_registry_entry_file *file);

/* How many files the entry of a folder has. Errors: as for ls_survey. */
LS_MUST_CHECK ls_status ls_survey_count(ls_arena *arena, const char *folder, size_t *count_out);

/* Where a file of an entry was when that was made: entry.path is a folder or the file itself. */
const char *ls_survey_path(ls_arena *arena, const ls_registry_entry *entry,
                           const ls_registry_entry_file *file);

#endif
