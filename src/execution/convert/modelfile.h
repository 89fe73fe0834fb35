// SPDX-License-Identifier: Apache-2.0
/*
 * The Modelfile of ollama that belongs to a GGUF file: where the weights are, the context, the
 * texts that end an answer, and the settings of generation_config.json. ollama reads the chat
 * template from the GGUF file.
 *
 *   FROM ./model.gguf
 *   PARAMETER num_ctx 4096
 *   PARAMETER stop "<|im_end|>"
 */
#ifndef LS_EXECUTION_CONVERT_MODELFILE_H
#define LS_EXECUTION_CONVERT_MODELFILE_H

#include "execution/convert/gguf_export.h"

/*
 * Writes `Modelfile` into the folder of options->path, unless one is there that Lockstep did not
 * write for the same file and options->replace is false; a note of `notes` tells either.
 * Errors: LS_ERR_DATA for a generation_config.json that can't be read, LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_modelfile_write(const ls_gguf_export_options *options, ls_gguf_notes *notes);

#endif
