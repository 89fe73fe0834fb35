// SPDX-License-Identifier: Apache-2.0
/*
 * Stock chat templates on random conversations: every text equal to what Jinja2 printed for it, and a
 * refusal where Jinja2 refused. They are not part of the repository: $LS_SHARED_DATA, or
 * ../shared/data beside the source. Skipped when they are not there.
 */
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "tokenizer/template/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[4000];

static ls_chat_template *open_template(ls_arena *arena, const char *name)
{
    ls_chat_template *template = NULL;
    char *source = NULL;
    size_t bytes = 0;
    const char *path = ls_arena_printf(arena, "%s/%s.jinja", folder, name);
    if (ls_file_read(arena, path, 1 << 20, &source, &bytes) != LS_OK ||
        ls_chat_template_open(source, bytes, name, &template) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return template;
}

/* Text and refusal as in the record; returns whether they are. */
static bool renders_as_recorded(const ls_chat_template *template, json_t *record, ls_text *text)
{
    json_t *input = json_object_get(record, "input");
    const json_t *wanted = json_object_get(record, "text");
    json_object_set_new(input, "template_date", json_string("2026-01-15"));
    const ls_status status = ls_chat_template_render(template, input, text);
    if (!wanted) {
        return status == LS_ERR_DATA;
    }
    return status == LS_OK && text->bytes == json_string_length(wanted) &&
           memcmp(ls_text_string(text), json_string_value(wanted), text->bytes) == 0;
}

static void templates_render_as_the_reference(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_text text = {0};
    char *lines = NULL, *rest = NULL;
    size_t bytes = 0, count = 0;
    double seconds = 0.0;
    ls_chat_template *template = NULL;
    const char *open = "";
    assert_int_equal(
        ls_file_read(&arena, ls_arena_printf(&arena, "%s/golden.jsonl", folder), 64 << 20, &lines, &bytes),
        LS_OK);
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), count++) {
        json_t *record = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(record, "template"));
        assert_non_null(name);
        if (strcmp(name, open) != 0) {
            ls_chat_template_close(template);
            open = ls_arena_strdup(&arena, name);
            template = open_template(&arena, name);
        }
        const double begin = ls_clock_monotonic_s();
        if (!renders_as_recorded(template, record, &text)) {
            fail_msg("line %zu (%s): got '%s' %s", count + 1, name, ls_text_string(&text), ls_error_text());
        }
        seconds += ls_clock_monotonic_s() - begin;
        json_decref(record);
    }
    printf("%zu conversations, %.0f renders/s\n", count, (double)count / seconds);
    assert_int_equal(count, 2276);
    ls_chat_template_close(template);
    ls_text_release(&text);
    ls_arena_release(&arena);
}

int main(void)
{
    const char *given = getenv("LS_SHARED_DATA");
    snprintf(folder, sizeof folder, "%s/chat_templates", given ? given : LS_SOURCE_DIR "/../shared/data");
    if (!ls_path_is_dir(folder)) {
        printf("skipped: %s is not there; set LS_SHARED_DATA to the folder with the shared test data\n",
               folder);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(templates_render_as_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
