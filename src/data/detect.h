// SPDX-License-Identifier: Apache-2.0
/* Finds out the form of a file's records from the first that can be read. Thread-safe. */
#ifndef LS_DATA_DETECT_H
#define LS_DATA_DETECT_H

#include "base/status.h"
#include "data/corpus.h"

/*
 * Sets file->form and file->form_line; a text file is LS_RECORD_TEXT. Of a packed file only the
 * beginning is unpacked, to `folder` (as in ls_unpack_options), unless the first record is longer.
 * Errors: LS_ERR_DATA, with path and line, for a record of no known form, or of two, and for a
 * file whose first thousand records cannot be read; those of ls_file_map_open. Other records that
 * cannot be read are passed over: reading them says what is wrong. A file that cannot be cut into
 * records is taken for text, and reading it says why.
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
