// SPDX-License-Identifier: Apache-2.0
/*
 * Step chain: the steps of a pipeline with the files that they need, ready to be applied to
 * documents. A step depends on the document alone; what documents have in common is decided
 * elsewhere (data/preparation/verdicts.h).
 *
 * Thread-safe: a chain does not change while documents go through it.
 */
#ifndef LS_DATA_PREPARATION_STEP_CHAIN_H
#define LS_DATA_PREPARATION_STEP_CHAIN_H

#include "data/preparation/pipeline.h"
#include "data/preparation/step_scratch.h"

typedef struct ls_step_chain ls_step_chain;

/* Opens models and reads evaluation files. The pipeline is borrowed. Errors: those of
 * ls_language_open and of reading files; LS_ERR_INVALID for a language that a model does not
 * have. */
LS_MUST_CHECK ls_status ls_step_chain_open(const ls_data_pipeline *pipeline, ls_step_chain **chain_out);
void ls_step_chain_close(ls_step_chain *chain);

/* Opens the table of lines for a step dedup_lines. Errors: those of ls_file_map_open. */
LS_MUST_CHECK ls_status ls_step_chain_set_lines(ls_step_chain *chain, size_t index, const char *path);

/*
 * Applies step `index` to a passage. judges: false: the passage is only changed, because it is
 * known already that the step keeps it. removal_out: its reason is 0 if the passage is kept.
 * Deduplication of documents does nothing here, and dedup_lines only after its table was set.
 * Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_step_apply(const ls_step_chain *chain, size_t index, ls_step_scratch *scratch,
                                      bool judges, ls_passage *passage, ls_removal *removal_out);

/* The sentence for a removal, with the language or the evaluation file that it is about. */
void ls_step_chain_explain(const ls_step_chain *chain, size_t index, ls_removal removal, ls_text *text);

#endif
