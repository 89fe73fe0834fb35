// SPDX-License-Identifier: Apache-2.0
/* The files of an export that transformers needs besides the ones that came with the model. */
#include "execution/train/model_file.h"

#include "base/json.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum { ADDED_MAX = 5 };

typedef struct file_list {
    ls_arena *arena;
    ls_hf_file *files;
    size_t count;
} file_list;

/* NULL: there is none of that name. */
static ls_hf_file *find(const file_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->files[i].name, name) == 0) {
            return &list->files[i];
        }
    }
    return NULL;
}

static bool has(const file_list *list, const char *name)
{
    return find(list, name) != NULL;
}

/* Adds a file or replaces the one of that name. Takes ownership of `text`. */
static void add_text(file_list *list, const char *name, char *text)
{
    const char *copy = ls_arena_strdup(list->arena, text);
    ls_hf_file *old = find(list, name);
    free(text);
    *(old ? old : &list->files[list->count++]) = (ls_hf_file){name, copy, strlen(copy)};
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

/* ---- the chat template ---- */

/* The template of tokenizer_config.json: a text, or of several the one named "default". */
static const char *configured_template(const json_t *value)
{
    const char *text = json_string_value(value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) {
            text = json_string_value(json_object_get(entry, "template"));
        }
    }
    return text;
}

/* Newer programs read chat_template.jinja and older ones tokenizer_config.json, so both get it. The
 * first wins where they differ, as in transformers. */
static ls_status share_template(file_list *list)
{
    const ls_hf_file *plain = find(list, "chat_template.jinja");
    const ls_hf_file *settings = find(list, "tokenizer_config.json");
    json_t *root = NULL;
    if (settings) {
        LS_TRY(ls_json_parse(settings->data, settings->bytes, settings->name, &root));
    }
    const char *configured = configured_template(json_object_get(root, "chat_template"));
    ls_status status = LS_OK;
    if (!plain && configured) {
        add_text(list, "chat_template.jinja", strdup(configured));
    } else if (plain && root &&
               (!configured || strlen(configured) != plain->bytes ||
                memcmp(configured, plain->data, plain->bytes) != 0)) {
        json_t *text = json_stringn(plain->data, plain->bytes);
        if (!text) {
            status = ls_fail(LS_ERR_DATA, "chat_template.jinja is not UTF-8 text");
        } else {
            json_object_set_new(root, "chat_template", text);
            return add_json(list, "tokenizer_config.json", root);
        }
    }
    json_decref(root);
    return status;
}

/* ---- generation_config.json ---- */

/* eos_token_id: every id that ends a text, the ones that are there first. Returns whether it
 * changed. */
static bool add_stops(json_t *object, const ls_model_file *file)
{
    int32_t ids[LS_MODEL_STOPS_MAX];
    const size_t count = file->tokenizer ? ls_model_stops(&file->config, file->tokenizer, ids)
                                         : ls_model_config_eos(&file->config, ids);
    json_t *old = json_object_get(object, "eos_token_id");
    json_t *list = json_is_array(old) ? json_copy(old) : json_array();
    if (json_is_integer(old)) {
        json_array_append(list, old);
    }
    const size_t before = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < json_array_size(list); k++) {
            known = known || json_integer_value(json_array_get(list, k)) == ids[i];
        }
        if (!known) {
            json_array_append_new(list, json_integer(ids[i]));
        }
    }
    const size_t after = json_array_size(list);
    if (after > before) {
        json_object_set(object, "eos_token_id", after == 1 ? json_array_get(list, 0) : list);
    }
    json_decref(list);
    return after > before;
}

static ls_status add_generation(file_list *list, const ls_model_file *file, const json_t *config)
{
    static const char *const keys[] = {"bos_token_id", "pad_token_id"};
    const ls_hf_file *old = find(list, "generation_config.json");
    json_t *object = NULL;
    if (old) {
        LS_TRY(ls_json_parse(old->data, old->bytes, old->name, &object));
    } else {
        object = json_pack("{s:b}", "_from_model_config", 1);
    }
    for (size_t i = 0; !old && i < sizeof keys / sizeof keys[0]; i++) {
        json_t *id = json_object_get(config, keys[i]);
        if (id && !json_is_null(id)) {
            json_object_set(object, keys[i], id);
        }
    }
    const bool changed = add_stops(object, file);
    if (!old || changed) {
        return add_json(list, "generation_config.json", object);
    }
    json_decref(object);
    return LS_OK;
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
    LS_TRY(share_template(list));
    return add_generation(list, file, config);
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
