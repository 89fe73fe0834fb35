// SPDX-License-Identifier: Apache-2.0
/*
 * Writes a model as one GGUF file: weights, tokenizer, template, ids that end a text.
 *
 * The parameters are read, encoded and written one after another, so memory is that of the largest
 * one and a few MiB. The bytes depend on the model alone, not on the number of threads. The file
 * appears whole or not at all.
 */
#ifndef LS_EXECUTION_CONVERT_GGUF_EXPORT_H
#define LS_EXECUTION_CONVERT_GGUF_EXPORT_H

#include "compute/queue.h"
#include "execution/convert/gguf_model.h"
#include "execution/train/model_file.h"

typedef struct ls_gguf_export_options {
    const char *path;
    const char *name; /* of the model, for people */
    ls_gguf_quant quant;
    const ls_model_file *file; /* with its tokenizer */
    /* What an export hands over (ls_model_file_exported), for the template. */
    const ls_hf_file *files;
    size_t file_count;
    ls_queue *queue; /* a CPU queue */
    bool replace;    /* a file of that name is replaced */
} ls_gguf_export_options;

typedef struct ls_gguf_exported {
    uint64_t bytes; /* of the file */
    size_t tensors;
    ls_gguf_notes notes;
} ls_gguf_exported;

/*
 * exported_out: texts are in `arena`.
 * Errors: LS_ERR_UNSUPPORTED, LS_ERR_INVALID for a model without a tokenizer, a tokenizer that does
 * not fit it, a file that exists, and, naming the tensor, for a number that is not finite or too
 * large for its type; LS_ERR_DATA, LS_ERR_DISK, LS_ERR_IO, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_gguf_export(const ls_gguf_export_options *options, ls_arena *arena,
                                       ls_gguf_exported *exported_out);

#endif
