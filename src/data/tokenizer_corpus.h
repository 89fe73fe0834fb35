// SPDX-License-Identifier: Apache-2.0
/*
 * Training a tokenizer on corpus files: text, one document a file, and JSON lines, one document a line.
 *
 * Thread-safe.
 */
#ifndef LS_DATA_TOKENIZER_CORPUS_H
#define LS_DATA_TOKENIZER_CORPUS_H

#include "data/corpus.h"
#include "data/tokenizer.h"

/*
 * Learns a tokenizer (ls_tokenizer_trainer_*, data/tokenizer.h) from every document of `files`, as ls_corpus_expand lists them. The
 * order of the files does not matter.
 *
 * tokenizer_out: the caller's to destroy; written only on success.
 * Errors: LS_ERR_UNSUPPORTED for a token file, which has no text; LS_ERR_DATA for broken UTF-8, NUL bytes or a line that is not a JSON
 * object with `text` (path, line or offset are named); LS_ERR_INVALID for an option outside its range; LS_ERR_NOT_FOUND, LS_ERR_IO,
 * LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_tokenizer_train_on(const ls_corpus_file *files, size_t count,
                                              const ls_tokenizer_train_options *options,
                                              ls_tokenizer **tokenizer_out);

#endif
