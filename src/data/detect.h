// SPDX-License-Identifier: Apache-2.0
/* Finds out the form of a file's records from the first of them. Thread-safe. */
#ifndef LS_DATA_DETECT_H
#define LS_DATA_DETECT_H

#include "base/status.h"
#include "data/corpus.h"

/*
 * Sets file->form and file->form_line; a text file is LS_RECORD_TEXT. Of a packed file only the
 * beginning is unpacked, to `folder` (as in ls_unpack_options), unless the first record is longer.
 * Errors: LS_ERR_DATA, with path and line, for a record of no known form, or of two; those of
 * ls_records_open and ls_file_map_open. A first record that cannot be read at all is not an error
 * here: the file is then taken for text, and reading it says what is wrong.
 */
LS_MUST_CHECK ls_status ls_corpus_detect(ls_corpus_file *file, const ls_form_keys *keys, const char *folder);

/*
 * Checks that a record, which begins in `line`, is of the file's form. Errors: LS_ERR_DATA; with
 * *is_other_out it is of another form: two forms in one file are a mistake of the file, not of one
 * record.
 */
LS_MUST_CHECK ls_status ls_corpus_check_form(const ls_corpus_file *file, const ls_form_keys *keys,
                                             const json_t *record, uint64_t line, bool *is_other_out);

#endif
