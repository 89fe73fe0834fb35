// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/template/chat_template.h"

#include "base/clock.h"
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>

/* ---- opening ---- */

static ls_status check_source(const char *source, size_t bytes, const char *name)
{
    if (bytes > LS_CHAT_SOURCE_MAX) {
        return ls_fail(LS_ERR_DATA, "%s has %zu bytes; a chat template may have %d", name, bytes,
                       LS_CHAT_SOURCE_MAX);
    }
    const size_t valid = ls_utf8_valid_prefix(source, bytes);
    if (valid < bytes) {
        return ls_fail(LS_ERR_DATA, "%s is not UTF-8 text: byte %zu is not part of a character", name, valid);
    }
    return LS_OK;
}

ls_status ls_chat_template_open(const char *source, size_t bytes, const char *name,
                                ls_chat_template **template_out)
{
    LS_TRY(check_source(source, bytes, name));
    ls_chat_template *made = calloc(1, sizeof *made);
    if (!made) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the chat template %s", name);
    }
    ls_jinja j = {.name = name, .line = 1};
    const ls_jinja_token *tokens = ls_jinja_lex(&j, source, bytes);
    if (!j.failed) {
        made->root = ls_jinja_parse(&j, tokens, &made->frame);
    }
    made->name = ls_arena_strdup(&j.arena, name);
    made->arena = j.arena;
    if (j.failed) {
        ls_chat_template_close(made);
        return j.failed;
    }
    *template_out = made;
    return LS_OK;
}

void ls_chat_template_close(ls_chat_template *template)
{
    if (template) {
        ls_arena_release(&template->arena);
        free(template);
    }
}

/* ---- rendering ---- */

/* The time that strftime_now sees. */
static ls_status set_now(const json_t *variables, struct tm *now_out)
{
    const json_t *date = json_object_get(variables, "template_date");
    if (!date) {
        const time_t now = (time_t)ls_clock_wall_s();
        localtime_r(&now, now_out);
        return LS_OK;
    }
    int year, month, day, end = -1;
    const char *text = json_is_string(date) ? json_string_value(date) : "";
    if (strlen(text) == 10 && sscanf(text, "%4d-%2d-%2d%n", &year, &month, &day, &end) == 3 && end == 10) {
        struct tm given = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = 12};
        struct tm normal = given;
        if (timegm(&normal) != -1 && normal.tm_mday == day && normal.tm_mon == month - 1) {
            *now_out = normal;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_INVALID, "template_date is '%s': give a day as \"2026-01-15\"", text);
}

ls_status ls_chat_template_render(const ls_chat_template *template, const json_t *variables,
                                  ls_text *text_out)
{
    if (!json_is_object(variables)) {
        return ls_fail(LS_ERR_DATA, "the variables of a chat template must be one JSON object");
    }
    ls_text text = {0};
    ls_jinja j = {.name = template->name, .line = 1, .out = &text};
    LS_TRY(set_now(variables, &j.now));
    j.variables = ls_jv_of_json(&j, variables).list;
    ls_jinja_run(&j, template);
    if (!j.failed) {
        ls_text_clear(text_out);
        ls_text_append_bytes(text_out, text.data, text.bytes);
    }
    ls_text_release(&text);
    ls_arena_release(&j.arena);
    return j.failed;
}
