// SPDX-License-Identifier: Apache-2.0
/*
 * A template of arbitrary bytes with fixed values: an error with text and nothing appended, or a
 * text in which a value has not become markup.
 */
#include "base/assert.h"
#include "base/template.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static ls_values *make_values(ls_arena *arena)
{
    ls_values *values = ls_values_create(arena);
    ls_text svg = {0};
    ls_text_append(&svg, "[svg]");
    ls_values_text(values, "a", "<evil \"'&>");
    ls_values_prose(values, "p", "**<evil>** **");
    ls_values_markup(values, "m", &svg);
    ls_values_flag(values, "f", true);
    ls_values_text(ls_values_add(values, "r"), "a", "1");
    ls_values_text(ls_values_add(values, "r"), "b", "<evil>");
    return values;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 1024) {
        return 0; /* nested lists repeat their parts */
    }
    ls_arena arena = {0};
    ls_text text = {0};
    const char *template = ls_arena_strndup(&arena, (const char *)data, bytes);
    const ls_embedded_file files[] = {{"t", template, strlen(template)}, {0}};
    ls_error_clear();
    if (ls_template_append(files, "t", make_values(&arena), &text) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0' && text.bytes == 0);
    } else if (!strstr(template, "evil")) {
        LS_ASSERT(!strstr(ls_text_string(&text), "<evil"));
    }
    ls_text_release(&text);
    ls_arena_release(&arena);
    return 0;
}
