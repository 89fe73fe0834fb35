// SPDX-License-Identifier: Apache-2.0
/*
 * Model files: reading a model from disk.
 *
 * A path may be a checkpoint, a run directory (its newest good checkpoint is used) or a Hugging
 * Face directory (config.json, safetensors, optionally a tokenizer). A checkpoint contains
 * config.json and tokenizer.json or tokenizer.model as attachments. The ids that end a text are
 * those of config.json and of generation_config.json together.
 */
#ifndef LS_EXECUTION_TRAIN_MODEL_FILE_H
#define LS_EXECUTION_TRAIN_MODEL_FILE_H

#include "execution/executor/state.h"
#include "model/huggingface_export.h"
#include "model/layout.h"
#include "storage/checkpoint/checkpoint.h"
#include "tokenizer/template/template_source.h"
#include "tokenizer/tokenizer.h"

/* An adapter on disk: a directory of the PEFT library (adapter_config.json and
 * adapter_model.safetensors), or a checkpoint of a run that trained one. */
typedef struct ls_adapter_file ls_adapter_file;

typedef struct ls_model_file {
    ls_arena arena;
    const char *path;          /* the checkpoint or directory that was found */
    ls_checkpoint *checkpoint; /* NULL for a Hugging Face directory */
    ls_model_config config;
    ls_layout layout;
    ls_tokenizer *tokenizer; /* NULL: the model has none, or it is not opened */
    bool is_bare;            /* opened without its tokenizer */
    uint64_t step;           /* 0 for a Hugging Face directory */
    /* The adapter of the model, and where the weights of its base are if not in this file; NULL:
     * none. With an adapter, `layout` has it (ls_layout_build_adapter). */
    ls_adapter_file *adapter;
    struct ls_model_file *base;
    /* merge into the base's own weights, not into the values they have in the adapter's format */
    bool merges_original;
} ls_model_file;

/* Reads configuration and tokenizer, not the weights. An adapter is opened together with the base
 * that it names. Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA, LS_ERR_UNSUPPORTED, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_model_file_open(const char *path, ls_model_file **file_out);
/* The same without the tokenizer, which may then be of a kind that lockstep cannot read. */
LS_MUST_CHECK ls_status ls_model_file_open_bare(const char *path, ls_model_file **file_out);
void ls_model_file_close(ls_model_file *file);

/*
 * Reads the weights into `parameters` (flat, in the order of `layout`, a layout of file->config
 * with any parameters frozen). Moments are not read. Every block is verified.
 *
 * The layout may have a larger vocabulary: the rows that the embedding table and the head have more
 * than the file become the mean of the file's rows (Hewitt, "Initializing new word embeddings for
 * pretrained language models", 2021: a new token then changes the others' probabilities little).
 *
 * If the layout has an adapter, the base goes to the frozen parameters, packed where the layout
 * says so, tensor after tensor, and that of the file, if it has one, to the trained ones. A file
 * with an adapter and a layout without: both are merged, with the values that the base has in the
 * format that the adapter was trained on. Errors: LS_ERR_DATA too if the base is not the one that
 * the adapter was trained on.
 */
LS_MUST_CHECK ls_status ls_model_file_load(const ls_model_file *file, const ls_layout *layout,
                                           float *parameters);

/*
 * The files of the model besides weights and configuration, which pass unchanged through import,
 * training and export: its tokenizer, tokenizer_config.json, special_tokens_map.json,
 * generation_config.json and chat_template.jinja, as far as the checkpoint or directory has them.
 * If none of them contains the tokenizer (bytes, or a vocabulary under another name), the file that
 * represents it (ls_tokenizer_source) is added. That needs file->tokenizer, so call this before
 * taking it away.
 *
 * files_out: names are static; the data are in `arena` and outlive `file`. All names differ, and
 * none is "config.json". Errors: LS_ERR_DATA for a file above 64 MiB, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_model_file_carried(const ls_model_file *file, ls_arena *arena,
                                              ls_hf_file **files_out, size_t *count_out);

/* The chat template and the special tokens in the files that a model carries; `where` is for
 * messages. Errors: those of ls_template_source_pick. */
LS_MUST_CHECK ls_status ls_model_template(ls_arena *arena, const char *where, const ls_hf_file *files,
                                          size_t count, ls_template_source *source_out);

/* Copies the ids that end a text to `ids_out`, those of the configuration and the tokenizer's eos,
 * each once, and returns how many there are. */
enum { LS_MODEL_STOPS_MAX = LS_MORE_EOS_MAX + 2 };
size_t ls_model_stops(const ls_model_config *config, const ls_tokenizer *tokenizer,
                      int32_t ids_out[LS_MODEL_STOPS_MAX]);

/*
 * The same for an export: what transformers needs besides, and the model lacks, is added.
 *
 *   tokenizer.json           beside a tokenizer.model, unless its normalisation can't be expressed
 *   tokenizer_config.json    the special tokens, and that tokenizer.json is used as it is
 *   special_tokens_map.json  the special tokens, for older programs
 *   generation_config.json   the ids that begin and end a text; in one that came with the model,
 *                            ids of ls_model_stops that are missing
 *   chat_template.jinja      the chat template, if tokenizer_config.json has one, and the other way
 *                            round: older and newer programs look in different places
 *
 * Errors: as above, and LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_model_file_exported(const ls_model_file *file, ls_arena *arena,
                                               ls_hf_file **files_out, size_t *count_out);

/* The text of config.json for a model whose weights are stored as `dtype`, as attached to
 * checkpoints; the caller frees it. */
LS_MUST_CHECK ls_status ls_model_file_config_text(const ls_model_config *config, ls_st_dtype dtype,
                                                  char **text_out);

#endif
