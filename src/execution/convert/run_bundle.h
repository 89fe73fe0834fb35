// SPDX-License-Identifier: Apache-2.0
/*
 * A run as a bundle for another site (storage/bundle/bundle.h):
 *
 *   resume.yaml           run.yaml with the paths below, for  train resume.yaml --run-dir run
 *   run/                  run.yaml, metrics.jsonl, events.jsonl, tokenizer.json, ...
 *   run/checkpoints/200/  one checkpoint
 *   tokenizer/            the tokenizer of the run file
 *   data/train-0/         if asked for: the files of the first item of data.train
 *   <model.from>          if asked for: the model that the run began with, under its own path
 *   added/NAME            further files and folders
 *
 * `about` of the bundle:
 *
 *   run, lockstep (version), made (UTC), step, identity, data_hash    without a checkpoint: the
 *                                                                     last three are null
 *   needs      model.from, if a resume needs it and it is not packed; else null
 *   data[]     name in the bundle, path at home, bytes, sha256 (null if the file was not there)
 *   has_data   whether they are packed
 *
 * The run's identity is made from the contents of its data, so it can be resumed wherever the files
 * with these digests are.
 */
#ifndef LS_EXECUTION_CONVERT_RUN_BUNDLE_H
#define LS_EXECUTION_CONVERT_RUN_BUNDLE_H

#include "storage/bundle/bundle.h"

typedef struct ls_run_bundle_options {
    const char *run;        /* a run directory */
    const char *checkpoint; /* "newest", "best", "none", or a step */
    bool data, base;        /* pack the data; pack model.from */
    const char *const *added;
    size_t added_count;
} ls_run_bundle_options;

/*
 * Checks the checkpoint, finds the files and measures them (ls_bundle_measure). bundle_out: in
 * `arena`; the caller releases `about` with json_decref.
 *
 * Errors: LS_ERR_NOT_FOUND if there is no run, checkpoint or file of the data; LS_ERR_INVALID if
 * model.from can't have its path in a bundle; LS_ERR_DATA for a damaged checkpoint; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_run_bundle_gather(ls_arena *arena, const ls_run_bundle_options *options,
                                             ls_bundle *bundle_out);

#endif
