// SPDX-License-Identifier: Apache-2.0
/*
 * Contamination: finds documents that hold text of evaluation files.
 *
 * All strings of a record of an evaluation file are joined to one text (questions and answers
 * alike); each n words of it in a row go into a table, and a document that has one of them is
 * contaminated. Words are folded (data/preparation/folded_words.h), so text is found whatever its
 * line breaks, punctuation and capitals. Records with fewer than n words cannot be found: a
 * warning counts them.
 *
 * Thread-safe once it is open. Memory: 24 bytes for each word of the evaluation files.
 */
#ifndef LS_DATA_PREPARATION_CONTAMINATION_H
#define LS_DATA_PREPARATION_CONTAMINATION_H

#include "base/text.h"
#include "data/preparation/step.h"
#include "data/preparation/step_scratch.h"

typedef struct ls_contamination ls_contamination;

/* step: of kind LS_STEP_DECONTAMINATE. Errors: those of ls_corpus_expand, ls_records_walk and
 * ls_text_check; LS_ERR_DATA for files without any record of n words. */
LS_MUST_CHECK ls_status ls_contamination_open(const ls_step *step, ls_contamination **out);
void ls_contamination_close(ls_contamination *contamination); /* NULL is allowed */

/* Judges a passage; the detail of a removal is the number of the record. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_contamination_judge(const ls_contamination *contamination,
                                               ls_step_scratch *scratch, const ls_passage *passage,
                                               ls_removal *removal_out);

/* Appends "file:line" of a record. */
void ls_contamination_append_place(const ls_contamination *contamination, uint32_t number, ls_text *text);

#endif
