// SPDX-License-Identifier: Apache-2.0
/*
 * A look at training data before there is a run: the form of the records and their lengths in
 * tokens, as the run would read them.
 *
 * At most 20,000 records and 64 MiB are read; what is beyond is estimated from the bytes.
 */
#ifndef LS_EXECUTION_SETUP_SURVEY_H
#define LS_EXECUTION_SETUP_SURVEY_H

#include "config/run_file.h"
#include "execution/train/model_file.h"
#include "execution/train/run_recipe.h"

typedef struct ls_survey {
    ls_record_form form;
    const char *template_name; /* of the chat template that was used; NULL: none */
    const char *unread;        /* what documents have besides their text; NULL: nothing */
    uint64_t bytes;
    /* What was read. A sample is what is trained as one: a record, a document, or one answer of a
     * conversation. */
    uint64_t records, samples, tokens, trained;
    uint64_t median, high, longest; /* tokens of a sample: half and 95 % have no more */
    /* of samples that are longer than `limit` of the options */
    uint64_t too_long;
    /* records that no run can use, and samples with nothing to train within `limit`; they are left
     * out of the rest, and training says what is wrong with them */
    uint64_t bad;
    double scale; /* all of the data over what was read, >= 1 */
} ls_survey;

typedef struct ls_survey_options {
    const char *data;       /* file, folder or pattern */
    const char *template;   /* a chat template; "": that of the model, or of the overrides */
    ls_model_file *model;   /* NULL: bytes are counted as tokens, and records must be text */
    uint64_t limit;         /* tokens that fit into the model's context; 0: any number */
    const char *const *set; /* overrides of the run file, "key=value" */
    size_t set_count;
} ls_survey_options;

/*
 * Reads the data. *needs_template_out: the records are conversations and there is no template; the
 * rest is then empty. Errors: those of the data, with file and line.
 */
LS_MUST_CHECK ls_status ls_survey_take(ls_arena *arena, const ls_survey_options *options,
                                       ls_survey *survey_out, bool *needs_template_out);

#endif
