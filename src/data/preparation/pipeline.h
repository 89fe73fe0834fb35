// SPDX-License-Identifier: Apache-2.0
/*
 * Pipeline: which files are prepared, and by which steps.
 *
 *   input: [web/, books.jsonl.zst]
 *   steps:
 *     - step: normalise
 *     - step: gopher_quality
 *       words_min: 30
 *     - step: dedup_minhash
 *
 * Thread-safety: a pipeline does not change once it is loaded.
 */
#ifndef LS_DATA_PREPARATION_PIPELINE_H
#define LS_DATA_PREPARATION_PIPELINE_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/yaml.h"
#include "data/corpus.h"
#include "data/preparation/step.h"

enum { LS_PIPELINE_STEPS_MAX = 32 };

/* What becomes of records with bytes that are not UTF-8, and of long documents. */
enum { LS_UTF8_REPLACE, LS_UTF8_DROP };
enum { LS_LONG_DROP, LS_LONG_CUT };

typedef struct ls_data_pipeline {
    ls_option_strings input;
    const char *field;
    int invalid_utf8, long_documents;
    uint64_t document_bytes_max;
    /* steps[0] is LS_STEP_READ. */
    ls_step *steps;
    size_t step_count;
    /* The files of `input`: each is a unit of work. */
    ls_corpus_file *files;
    size_t file_count;
    /* Of the settings, and of path, size and modification time of each file, evaluation files and
     * models of languages included. */
    char identity[LS_HASH128_HEX_BYTES];
} ls_data_pipeline;

/*
 * Reads a file in YAML and looks up its input. Relative paths begin in the working directory.
 * Everything is allocated in `arena`.
 *
 * Errors: LS_ERR_INVALID with file and line for a key or step that does not exist, and values that
 * are not allowed; those of ls_corpus_expand.
 */
LS_MUST_CHECK ls_status ls_data_pipeline_load(ls_arena *arena, const char *path,
                                              ls_data_pipeline **pipeline_out);

/* The first part of it: the settings of a new pipeline from the file's tree, whose `steps` are
 * taken away; its input is not looked up. */
LS_MUST_CHECK ls_status ls_data_pipeline_read(ls_arena *arena, const ls_document *doc,
                                              ls_data_pipeline *pipeline);

/* Appends the settings of a step as YAML, one `key: value` in each line. */
void ls_data_pipeline_append_step(const ls_step *step, ls_text *text);

#endif
