// SPDX-License-Identifier: Apache-2.0
#include "execution/serve/chat_format.h"

#include "tokenizer/template/template_source.h"

#include <string.h>

static ls_status open_found(const ls_model_file *file, const char *path, ls_arena *arena,
                            ls_chat_format *format)
{
    ls_template_source source = {0};
    ls_hf_file *files = NULL;
    size_t count = 0;
    ls_status status = ls_model_file_carried(file, arena, &files, &count);
    if (status == LS_OK) {
        status = ls_model_template(arena, file->path, files, count, &source);
    }
    if (status == LS_OK && path[0]) {
        status = ls_template_source_replace(arena, path, &source);
    }
    format->variables = source.tokens ? source.tokens : json_object();
    ls_template_tokens_complete(file->tokenizer, format->variables);
    if (status == LS_OK && source.text) {
        status = ls_chat_template_open(source.text, source.bytes, source.where, &format->template);
    }
    return status;
}

ls_status ls_chat_format_open(const ls_model_file *file, const char *path, const char *date,
                              ls_chat_format *format_out)
{
    ls_arena arena = {0};
    ls_chat_format format = {.tokenizer = file->tokenizer};
    const ls_status status = open_found(file, path, &arena, &format);
    ls_arena_release(&arena);
    if (status != LS_OK) {
        ls_chat_format_release(&format);
        return status;
    }
    if (date[0]) {
        json_object_set_new(format.variables, "template_date", json_string(date));
    }
    *format_out = format;
    return LS_OK;
}

void ls_chat_format_release(ls_chat_format *format)
{
    ls_chat_template_close(format->template);
    json_decref(format->variables);
    *format = (ls_chat_format){0};
}

/* ---- rendering ---- */

/* `given` comes before what the model brings. */
static ls_status render(const ls_chat_format *format, const json_t *given, bool wants_answer, ls_text *text)
{
    json_t *all = json_copy((json_t *)(uintptr_t)given);
    json_object_update_missing(all, format->variables);
    if (!json_object_get(all, "add_generation_prompt")) {
        json_object_set_new(all, "add_generation_prompt", json_boolean(wants_answer));
    }
    const ls_status status = ls_chat_template_render(format->template, all, text);
    json_decref(all);
    return status;
}

ls_status ls_chat_format_prompt(const ls_chat_format *format, const json_t *variables, ls_token_buffer *ids)
{
    ls_text text = {0};
    ls_status status = render(format, variables, true, &text);
    if (status == LS_OK) {
        /* the template has written all special tokens itself */
        status = ls_tokenizer_encode_marked(format->tokenizer, NULL, ls_text_string(&text), text.bytes, ids);
    }
    ls_text_release(&text);
    return status;
}

/* ---- the end of a turn ---- */

static bool is_special(const ls_tokenizer *tokenizer, int32_t id)
{
    ls_text_buffer all = {0}, plain = {0};
    const bool is_hidden = ls_tokenizer_decode(tokenizer, &id, 1, false, &all) == LS_OK &&
                           ls_tokenizer_decode(tokenizer, &id, 1, true, &plain) == LS_OK && all.bytes > 0 &&
                           plain.bytes == 0;
    ls_text_buffer_release(&all);
    ls_text_buffer_release(&plain);
    return is_hidden;
}

int32_t ls_chat_format_end_of_turn(const ls_chat_format *format)
{
    static const char answer[] = "Lockstepanswer";
    ls_text text = {0};
    ls_token_buffer ids = {0};
    int32_t end = -1;
    json_t *given = json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "messages", "role", "user", "content", "Hello",
                              "role", "assistant", "content", answer);
    if (format->template && render(format, given, false, &text) == LS_OK) {
        const char *after = strstr(ls_text_string(&text), answer);
        after = after ? after + sizeof answer - 1 : "";
        if (ls_tokenizer_encode_marked(format->tokenizer, NULL, after, strlen(after), &ids) == LS_OK &&
            ids.count > 0 && is_special(format->tokenizer, ids.ids[0])) {
            end = ids.ids[0];
        }
    }
    ls_error_clear(); /* a template that refuses this conversation has no known end */
    ls_token_buffer_release(&ids);
    ls_text_release(&text);
    json_decref(given);
    return end;
}
