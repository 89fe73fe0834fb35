// SPDX-License-Identifier: Apache-2.0
/*
 * The keys of a GGUF file that hold the tokenizer, the ids that end a text, and the chat template.
 */
#ifndef LS_EXECUTION_CONVERT_GGUF_TOKENIZER_H
#define LS_EXECUTION_CONVERT_GGUF_TOKENIZER_H

#include "execution/convert/gguf_model.h"
#include "execution/train/model_file.h"

/*
 * Adds all keys of the tokenizer. The list of tokens gets as many entries as the embedding table
 * has rows. eos, then eot and eom are the first three ids that end a text; more have no key.
 *
 * files: those of an export (ls_model_file_exported).
 * Errors: LS_ERR_INVALID for a tokenizer with more tokens than the model, LS_ERR_UNSUPPORTED
 * (ls_tokenizer_vocabulary), LS_ERR_DATA for a template that is not text.
 */
LS_MUST_CHECK ls_status ls_gguf_tokenizer_keys(ls_gguf *gguf, const ls_model_file *file,
                                               const ls_hf_file *files, size_t count, ls_gguf_notes *notes);

#endif
