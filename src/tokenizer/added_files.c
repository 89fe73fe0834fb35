// SPDX-License-Identifier: Apache-2.0
/*
 * Added tokens in the files beside a tokenizer: `added_tokens_decoder` of tokenizer_config.json,
 * and added_tokens.json. What the tokenizer lacks becomes a part of its tokenizer.json, so that
 * ids, the size of the vocabulary and an export agree.
 */
#include "tokenizer/tokenizer_internal.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* An entry of one of the files. `flags`: an object with lstrip and the like; NULL: none. */
typedef struct added_entry {
    json_int_t id;
    const char *text;
    const json_t *flags;
    bool special;
} added_entry;

static int by_id(const void *a, const void *b)
{
    const added_entry *left = a, *right = b;
    return left->id < right->id ? -1 : left->id > right->id;
}

static json_int_t id_of_key(const char *key)
{
    char *end;
    const long long id = *key >= '0' && *key <= '9' ? strtoll(key, &end, 10) : -1;
    return id >= 0 && *end == '\0' ? id : -1;
}

/* Whether the configuration names this token as eos_token, pad_token and the like. */
static bool is_configured(const json_t *config, const char *text)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value)
    {
        const json_t *name = json_is_object(value) ? json_object_get(value, "content") : value;
        if (ls_path_has_suffix(key, "_token") && json_is_string(name) &&
            strcmp(json_string_value(name), text) == 0) {
            return true;
        }
    }
    return false;
}

/* Fills an entry from {"512": {"content": "<|x|>", ...}}, or from {"<|x|>": 512}. */
static ls_status read_entry(const json_t *config, const char *path, const char *key, const json_t *value,
                            added_entry *out)
{
    if (json_is_object(value)) {
        *out = (added_entry){.id = id_of_key(key),
                             .text = json_string_value(json_object_get(value, "content")),
                             .flags = value};
        LS_TRY(ls_json_get_bool(value, path, "special", false, &out->special));
    } else {
        *out = (added_entry){.id = json_is_integer(value) ? json_integer_value(value) : -1,
                             .text = key,
                             .special = is_configured(config, key)};
    }
    if (!out->text || out->id < 0 || out->id >= LS_TOKENIZER_VOCAB_MAX) {
        return ls_fail(LS_ERR_DATA, "%s: the added token \"%.80s\" must have a text, and an id from 0 to %d",
                       path, out->text ? out->text : key, LS_TOKENIZER_VOCAB_MAX - 1);
    }
    return LS_OK;
}

static ls_status append_entry(json_t *list, const char *path, const added_entry *entry)
{
    bool single_word, lstrip, rstrip, normalised;
    LS_TRY(ls_json_get_bool(entry->flags, path, "single_word", false, &single_word));
    LS_TRY(ls_json_get_bool(entry->flags, path, "lstrip", false, &lstrip));
    LS_TRY(ls_json_get_bool(entry->flags, path, "rstrip", false, &rstrip));
    LS_TRY(ls_json_get_bool(entry->flags, path, "normalized", !entry->special, &normalised));
    json_t *token = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", entry->id, "content", entry->text,
                              "single_word", single_word, "lstrip", lstrip, "rstrip", rstrip, "normalized",
                              normalised, "special", entry->special);
    return json_array_append_new(list, token) == 0 ? LS_OK : LS_ERR_MEMORY;
}

/* Appends to `list` the entries that the tokenizer lacks. */
static ls_status collect(const ls_tokenizer *tokenizer, const char *path, const added_entry *entries,
                         size_t count, json_t *list)
{
    const bool is_json = strcmp(tokenizer->source_name, "tokenizer.json") == 0;
    json_int_t next = tokenizer->vocab_size;
    for (size_t i = 0; i < count; i++) {
        const added_entry *entry = &entries[i];
        const int32_t known = ls_tokenizer_id(tokenizer, entry->text);
        if (*entry->text == '\0') {
            continue;
        }
        if (known >= 0 && known != entry->id) {
            return ls_fail(LS_ERR_DATA, "%s: the added token \"%.80s\" has the id %lld, but in %s it has %d",
                           path, entry->text, (long long)entry->id, tokenizer->source_name, (int)known);
        }
        if (known >= 0 && (!is_json || (tokenizer->pieces[known].flags & LS_PIECE_ADDED))) {
            continue;
        }
        if (!is_json) {
            return ls_fail(
                LS_ERR_UNSUPPORTED,
                "%s: the added token \"%.80s\" is not in %s; a tokenizer.json that has it is needed", path,
                entry->text, tokenizer->source_name);
        }
        if (known < 0 && entry->id != next++) {
            return ls_fail(LS_ERR_DATA,
                           "%s: the added token \"%.80s\" has the id %lld; the next id that is free is %lld",
                           path, entry->text, (long long)entry->id, (long long)next - 1);
        }
        LS_TRY(append_entry(list, path, entry));
    }
    return LS_OK;
}

/* Replaces the tokenizer by one whose tokenizer.json has the tokens of `list`, too. */
static ls_status rebuild(ls_tokenizer **tokenizer, const char *path, const json_t *list)
{
    json_t *root;
    LS_TRY(ls_json_parse((*tokenizer)->source, (*tokenizer)->source_bytes, path, &root));
    json_t *added = json_object_get(root, "added_tokens");
    if (!json_is_array(added)) {
        added = json_array();
        json_object_set_new(root, "added_tokens", added);
    }
    char *text = json_array_extend(added, (json_t *)list) == 0 ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    ls_tokenizer *larger;
    const ls_status status =
        text ? ls_tokenizer_parse_json(text, strlen(text), path, &larger) : LS_ERR_MEMORY;
    free(text);
    LS_TRY(status);
    ls_tokenizer_destroy(*tokenizer);
    *tokenizer = larger;
    return LS_OK;
}

/* Adds what the object `tokens` of a file lists. */
static ls_status add_tokens(ls_tokenizer **tokenizer, const json_t *config, const char *path,
                            const json_t *tokens)
{
    ls_arena arena = {0};
    added_entry *entries = ls_arena_new(&arena, added_entry, json_object_size(tokens) + 1);
    json_t *list = json_array();
    size_t count = 0;
    ls_status status = LS_OK;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)tokens, key, value)
    {
        if (status == LS_OK) {
            status = read_entry(config, path, key, value, &entries[count++]);
        }
    }
    if (status == LS_OK) {
        qsort(entries, count, sizeof *entries, by_id);
        status = collect(*tokenizer, path, entries, count, list);
    }
    if (status == LS_OK && json_array_size(list) > 0) {
        status = rebuild(tokenizer, path, list);
    }
    json_decref(list);
    ls_arena_release(&arena);
    return status;
}

static ls_status load_if_there(const char *path, json_t **root_out)
{
    *root_out = NULL;
    return ls_path_exists(path) ? ls_json_load(path, LS_TOKENIZER_FILE_MAX, root_out) : LS_OK;
}

ls_status ls_tokenizer_add_beside(const char *folder, ls_tokenizer **tokenizer)
{
    ls_arena arena = {0};
    const char *config_path = ls_path_join(&arena, folder, "tokenizer_config.json");
    const char *added_path = ls_path_join(&arena, folder, "added_tokens.json");
    json_t *config = NULL, *added = NULL;
    ls_status status = load_if_there(config_path, &config);
    if (status == LS_OK) {
        status = load_if_there(added_path, &added);
    }
    const json_t *decoder = json_object_get(config, "added_tokens_decoder");
    if (status == LS_OK && decoder) {
        status = add_tokens(tokenizer, config, config_path, decoder);
    }
    if (status == LS_OK && added) {
        status = add_tokens(tokenizer, config, added_path, added);
    }
    json_decref(config);
    json_decref(added);
    ls_arena_release(&arena);
    return status;
}
