// SPDX-License-Identifier: Apache-2.0
/*
 * Shard counts: what the steps did to the documents of one file, with examples, as the report wants
 * it. One owner; counts of pieces are added to those of their file, in order.
 */
#ifndef LS_DATA_PREPARATION_SHARD_COUNTS_H
#define LS_DATA_PREPARATION_SHARD_COUNTS_H

#include "base/json.h"
#include "data/preparation/pipeline.h"
#include "data/preparation/step_scratch.h"

/* Examples for each reason, and of changes by each step. */
enum { LS_EXAMPLES_MAX = 3, LS_EXCERPT_BYTES = 240 };

typedef struct ls_step_counts {
    uint64_t removed, removed_bytes;
    uint64_t reasons[LS_REASONS_MAX];
    /* Documents whose text the step changed, of those that were kept, and its bytes. */
    uint64_t changed, changed_before, changed_after;
    /* Arrays of objects; NULL: empty. */
    json_t *examples, *changes;
} ls_step_counts;

typedef struct ls_shard_counts {
    uint64_t documents, bytes, kept, kept_bytes;
    ls_step_counts steps[LS_PIPELINE_STEPS_MAX];
} ls_shard_counts;

/* Adds and empties `from`. */
void ls_shard_counts_add(ls_shard_counts *counts, ls_shard_counts *from);
void ls_shard_counts_release(ls_shard_counts *counts);

/* Counts as JSON and back. from_json adds; false: it is not what to_json makes. */
json_t *ls_shard_counts_to_json(const ls_shard_counts *counts, const ls_data_pipeline *pipeline);
bool ls_shard_counts_from_json(const json_t *object, const ls_data_pipeline *pipeline,
                               ls_shard_counts *counts);

/* Notes that a step changed a text. */
void ls_shard_counts_note_change(ls_step_counts *counts, const char *place, const ls_passage *before,
                                 const ls_passage *after);

/* The beginning of a text, whole characters. */
size_t ls_excerpt_bytes(const char *text, size_t bytes);

#endif
