// SPDX-License-Identifier: Apache-2.0
/*
 * Trains a tokenizer on corpus files. A text file is one document; of the other kinds each record
 * is one, or a conversation.
 *
 * Thread-safe.
 */
#ifndef LS_DATA_TOKENIZER_CORPUS_H
#define LS_DATA_TOKENIZER_CORPUS_H

#include "data/corpus.h"
#include "tokenizer/tokenizer.h"

typedef struct ls_tokenizer_corpus {
    /* What ls_corpus_expand made. Their forms are set. */
    ls_corpus_file *files;
    size_t count;
    ls_form_keys keys;
    /* Records of conversations that cannot be used are left out instead of being an error. */
    bool skips_bad;
} ls_tokenizer_corpus;

/*
 * Learns a tokenizer (tokenizer/tokenizer.h) from every document, and from the contents of the
 * messages, prompts and completions of every other record. The order of the files does not matter.
 *
 * tokenizer_out: written only on success. The caller destroys it. Errors: LS_ERR_UNSUPPORTED for a
 * token file, which has no text; LS_ERR_DATA, with the path and the line or offset, for broken
 * UTF-8, a NUL byte or a record that ls_records_read or ls_conversation_read refuses;
 * LS_ERR_INVALID for an option outside its range; LS_ERR_NOT_FOUND, LS_ERR_IO, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_tokenizer_train_on(const ls_tokenizer_corpus *corpus,
                                              const ls_tokenizer_train_options *options,
                                              ls_tokenizer **tokenizer_out);

#endif
