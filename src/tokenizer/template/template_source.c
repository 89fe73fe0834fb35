// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/template/template_source.h"

#include "base/file.h"
#include "base/text.h"

#include <string.h>

enum { FILE_BYTES_MAX = 64 << 20 };

static const char TEMPLATE_FILE[] = "chat_template.jinja", CONFIG_FILE[] = "tokenizer_config.json";

/* bos_token and the like: a text, or an object with `content`. */
static json_t *special_tokens(const json_t *config)
{
    const char *key;
    json_t *value, *tokens = json_object();
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        if (ls_path_has_suffix(key, "_token") && json_is_string(text)) {
            json_object_set(tokens, key, text);
        }
    }
    return tokens;
}

/* The template of that name in `value`, a text or a list; `names` gets those that there are. */
static const json_t *named_template(const json_t *value, const char *name, ls_text *names)
{
    const json_t *item, *found = json_is_string(value) && strcmp(name, "default") == 0 ? value : NULL;
    size_t i;
    json_array_foreach(value, i, item)
    {
        const char *own = json_string_value(json_object_get(item, "name"));
        if (own && strcmp(own, name) == 0) {
            found = json_object_get(item, "template");
        }
        ls_text_printf(names, "%s%s", names->bytes ? ", " : "", own ? own : "?");
    }
    return json_is_string(found) ? found : NULL;
}

static ls_status pick_from_config(ls_arena *arena, const ls_template_files *files, const char *name,
                                  ls_template_source *out)
{
    const char *where = ls_path_has_suffix(files->where, ".json")
                            ? files->where
                            : ls_path_join(arena, files->where, CONFIG_FILE);
    json_t *config = NULL;
    LS_TRY(ls_json_parse(files->config, files->config_bytes, where, &config));
    ls_text names = {0};
    const json_t *found =
        named_template(json_object_get(config, "chat_template"), name ? name : "default", &names);
    ls_status status = LS_OK;
    if (found && !out->text) {
        out->bytes = json_string_length(found);
        char *copy = ls_arena_alloc(arena, out->bytes + 1);
        memcpy(copy, json_string_value(found), out->bytes);
        out->text = copy;
        out->where = where;
    } else if (name && !out->text) {
        status = ls_fail(LS_ERR_INVALID, "%s has no chat template named '%s'; its names: %s", where, name,
                         names.bytes ? ls_text_string(&names) : "none");
    }
    out->tokens = special_tokens(config);
    ls_text_release(&names);
    json_decref(config);
    return status;
}

ls_status ls_template_source_pick(ls_arena *arena, const ls_template_files *files, const char *name,
                                  ls_template_source *source_out)
{
    ls_template_source out = {0};
    ls_status status = LS_OK;
    if (files->jinja && (!name || strcmp(name, "default") == 0)) {
        out.text = ls_arena_strndup(arena, files->jinja, files->jinja_bytes);
        out.bytes = files->jinja_bytes;
        out.where = ls_path_join(arena, files->where, TEMPLATE_FILE);
    }
    if (files->config) {
        status = pick_from_config(arena, files, name, &out);
    } else if (name && !out.text) {
        status = ls_fail(LS_ERR_INVALID, "%s has no chat template named '%s'", files->where, name);
    }
    if (status != LS_OK) {
        json_decref(out.tokens);
        return status;
    }
    out.tokens = out.tokens ? out.tokens : json_object();
    *source_out = out;
    return LS_OK;
}

static ls_status read_if_there(ls_arena *arena, const char *path, const char **text_out, size_t *bytes_out)
{
    char *text = NULL;
    if (ls_path_exists(path)) {
        LS_TRY(ls_file_read(arena, path, FILE_BYTES_MAX, &text, bytes_out));
        *text_out = text;
    }
    return LS_OK;
}

ls_status ls_template_source_find(ls_arena *arena, const char *path, const char *name,
                                  ls_template_source *source_out)
{
    ls_template_files files = {.where = path};
    char *text = NULL;
    size_t bytes = 0;
    if (ls_path_is_dir(path)) {
        const char *more =
            ls_arena_printf(arena, "%s/additional_chat_templates/%s.jinja", path, name ? name : "");
        LS_TRY(
            read_if_there(arena, ls_path_join(arena, path, TEMPLATE_FILE), &files.jinja, &files.jinja_bytes));
        LS_TRY(
            read_if_there(arena, ls_path_join(arena, path, CONFIG_FILE), &files.config, &files.config_bytes));
        if (!name || strchr(name, '/') || !ls_path_exists(more)) {
            return ls_template_source_pick(arena, &files, name, source_out);
        }
        files.jinja = NULL;
        LS_TRY(ls_template_source_pick(arena, &files, NULL, source_out));
        path = more;
    } else if (ls_path_has_suffix(path, ".json")) {
        LS_TRY(ls_file_read(arena, path, FILE_BYTES_MAX, &text, &bytes));
        files.config = text;
        files.config_bytes = bytes;
        return ls_template_source_pick(arena, &files, name, source_out);
    } else {
        *source_out = (ls_template_source){.tokens = json_object()};
    }
    const ls_status status = ls_file_read(arena, path, FILE_BYTES_MAX, &text, &bytes);
    if (status != LS_OK) {
        json_decref(source_out->tokens);
        *source_out = (ls_template_source){0};
        return status;
    }
    source_out->text = text;
    source_out->bytes = bytes;
    source_out->where = path;
    return LS_OK;
}

ls_status ls_template_source_replace(ls_arena *arena, const char *path, ls_template_source *source)
{
    ls_template_source other = {0};
    LS_TRY(ls_template_source_find(arena, path, NULL, &other));
    json_object_update_missing(source->tokens, other.tokens);
    json_decref(other.tokens);
    other.tokens = source->tokens;
    *source = other;
    return other.text ? LS_OK
                      : ls_fail(LS_ERR_INVALID,
                                "%s holds no chat template: name a .jinja file, or a tokenizer_config.json "
                                "with the key chat_template",
                                path);
}

void ls_template_tokens_complete(const ls_tokenizer *tokenizer, json_t *tokens)
{
    const struct {
        const char *key;
        int32_t id;
    } known[] = {{"bos_token", ls_tokenizer_bos(tokenizer)}, {"eos_token", ls_tokenizer_eos(tokenizer)}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *piece = known[i].id >= 0 ? ls_tokenizer_piece(tokenizer, known[i].id) : NULL;
        if (piece && !json_object_get(tokens, known[i].key)) {
            json_object_set_new(tokens, known[i].key, json_string(piece));
        }
    }
}
