// SPDX-License-Identifier: Apache-2.0
/*
 * Branches: runs that train one model further, each on data of its own, in any place and at any
 * time, and that `lockstep merge` makes one model of again.
 *
 *   DIR/
 *     branch.json        which model, which branches, which data (SHA-256 of each file)
 *     NAME.yaml          the run file of a branch; its paths are absolute
 *     NAME/              the run itself, once it was trained here
 */
#ifndef LS_EXECUTION_SETUP_BRANCHES_H
#define LS_EXECUTION_SETUP_BRANCHES_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"

#include <stdint.h>

typedef struct ls_branches_options {
    const char *model;        /* checkpoint, run directory or Hugging Face directory; no adapter */
    const char *dir;          /* made; it may have other files, but none of these names */
    const char *const *data;  /* one file, folder or pattern for each branch */
    size_t count;             /* of branches, >= 1 */
    const char *const *names; /* one for each branch; NULL: those of the data without suffixes */
    uint64_t steps;           /* train.steps of all branches; 0: left to the run file's default */
    const char *const *sets;  /* "key=value", into all run files */
    size_t set_count;
} ls_branches_options;

/*
 * Writes the run files, and branch.json last.
 *
 * result_out: the content of branch.json: {"format": "lockstep-branches", "base": {"path",
 * "digest", "step"}, "branches": [{"name", "run_file", "run_dir", "data", "files": [{"path",
 * "sha256"}]}]}; the caller drops it. Errors: LS_ERR_INVALID for names that are taken, equal or
 * not plain, and for values of `sets`; LS_ERR_UNSUPPORTED for an adapter; those of the model and of
 * ls_corpus_expand; LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_branches_make(ls_arena *arena, const ls_branches_options *options,
                                         json_t **result_out);

#endif
