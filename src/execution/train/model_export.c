// SPDX-License-Identifier: Apache-2.0
/* The files of an export that transformers needs besides the ones that came with the model. */
#include "execution/train/model_file.h"

#include "base/json.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum { ADDED_MAX = 4 };

typedef struct file_list {
    ls_arena *arena;
    ls_hf_file *files;
    size_t count;
} file_list;

static bool has(const file_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->files[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes ownership of `text`. */
static void add_text(file_list *list, const char *name, char *text)
{
    const char *copy = ls_arena_strdup(list->arena, text);
    free(text);
    list->files[list->count++] = (ls_hf_file){name, copy, strlen(copy)};
}

/* Takes ownership of `object`. */
static ls_status add_json(file_list *list, const char *name, json_t *object)
{
    char *text = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %s", name);
    }
    add_text(list, name, text);
    return LS_OK;
}

static ls_status add_tokenizer_json(file_list *list, const ls_tokenizer *tokenizer)
{
    if (has(list, "tokenizer.json") || !has(list, "tokenizer.model")) {
        return LS_OK;
    }
    char *text = NULL;
    size_t bytes = 0;
    const ls_status status = ls_tokenizer_write_json(tokenizer, &text, &bytes);
    if (status == LS_OK) {
        add_text(list, "tokenizer.json", text);
    }
    if (status == LS_ERR_UNSUPPORTED) {
        ls_log_warn(
            "tokenizer.json is not written, and transformers may give other ids: %s. Encode text with "
            "the sentencepiece library and this tokenizer.model",
            ls_error_text());
        return LS_OK;
    }
    return status;
}

static void set_token(json_t *object, const char *key, const ls_tokenizer *tokenizer, int64_t id)
{
    const bool known = id >= 0 && id < (int64_t)ls_tokenizer_vocab_size(tokenizer);
    const char *piece = known ? ls_tokenizer_piece(tokenizer, (int32_t)id) : NULL;
    if (piece) {
        json_object_set_new(object, key, json_string(piece));
    }
}

/* The special tokens that are known, by the keys of transformers. */
static json_t *special_tokens(const ls_tokenizer *tokenizer, const json_t *config)
{
    json_t *object = json_object();
    const json_t *pad = json_object_get(config, "pad_token_id");
    set_token(object, "bos_token", tokenizer, ls_tokenizer_bos(tokenizer));
    set_token(object, "eos_token", tokenizer, ls_tokenizer_eos(tokenizer));
    set_token(object, "unk_token", tokenizer, ls_tokenizer_id(tokenizer, "<unk>"));
    set_token(object, "pad_token", tokenizer, json_is_integer(pad) ? json_integer_value(pad) : -1);
    return object;
}

static ls_status add_tokenizer_settings(file_list *list, const ls_tokenizer *tokenizer, const json_t *config,
                                        int64_t context)
{
    json_t *special = special_tokens(tokenizer, config);
    ls_status status = LS_OK;
    if (!has(list, "special_tokens_map.json")) {
        status = add_json(list, "special_tokens_map.json", json_copy(special));
    }
    if (status == LS_OK && !has(list, "tokenizer_config.json")) {
        /* This class takes tokenizer.json as it is; those of the families change it. */
        const bool whole = has(list, "tokenizer.json");
        json_t *settings = json_pack("{s:s, s:I, s:b}", "tokenizer_class",
                                     whole ? "PreTrainedTokenizerFast" : "LlamaTokenizer", "model_max_length",
                                     (json_int_t)context, "clean_up_tokenization_spaces", 0);
        json_object_update(settings, special);
        status = add_json(list, "tokenizer_config.json", settings);
    }
    json_decref(special);
    return status;
}

static ls_status add_generation(file_list *list, const json_t *config)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    json_t *object = json_pack("{s:b}", "_from_model_config", 1);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *id = json_object_get(config, keys[i]);
        if (id && !json_is_null(id)) {
            json_object_set(object, keys[i], id);
        }
    }
    return add_json(list, "generation_config.json", object);
}

static ls_status complete(file_list *list, const ls_model_file *file, const json_t *config)
{
    if (file->tokenizer) {
        LS_TRY(add_tokenizer_json(list, file->tokenizer));
        /* GPT-2's two files have a class of their own in transformers. */
        if (!has(list, "vocab.json")) {
            LS_TRY(add_tokenizer_settings(list, file->tokenizer, config, file->config.context));
        }
    }
    return has(list, "generation_config.json") ? LS_OK : add_generation(list, config);
}

ls_status ls_model_file_exported(const ls_model_file *file, ls_arena *arena, ls_hf_file **files_out,
                                 size_t *count_out)
{
    ls_hf_file *carried = NULL;
    size_t count = 0;
    LS_TRY(ls_model_file_carried(file, arena, &carried, &count));
    file_list list = {arena, ls_arena_new(arena, ls_hf_file, count + ADDED_MAX), count};
    if (count > 0) {
        memcpy(list.files, carried, count * sizeof *carried);
    }
    json_t *config = ls_hf_config_json(&file->config);
    const ls_status status = complete(&list, file, config);
    json_decref(config);
    *files_out = list.files;
    *count_out = list.count;
    return status;
}
