// SPDX-License-Identifier: Apache-2.0
#include "orchestration/page/page_values.h"

#include <inttypes.h>
#include <string.h>

const char *ls_page_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int64_t ls_page_integer(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

double ls_page_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

void ls_page_set_text(ls_values *values, const json_t *object, const char *key, size_t bytes_max)
{
    ls_values_cut(values, key, json_string_value(json_object_get(object, key)), bytes_max);
}

void ls_page_set_integer(ls_values *values, const json_t *object, const char *key)
{
    ls_values_printf(values, key, "%" PRId64, ls_page_integer(object, key));
}

ls_values *ls_page_create(ls_arena *arena, const char *title, int refresh_s)
{
    ls_values *page = ls_web_begin(arena, "queue", true);
    ls_values_text(page, "title", title);
    if (refresh_s > 0) {
        ls_values_printf(page, "refresh", "%d", refresh_s);
    }
    return page;
}

const char *ls_page_state_look(const char *state)
{
    static const struct {
        const char *state, *look;
    } looks[] = {{"RUNNING", "going"},   {"STARTING", "going"},  {"RESIZING", "going"}, {"SUCCEEDED", "good"},
                 {"FAILED", "bad"},      {"CANCELLED", "dim"},   {"HELD", "dim"},       {"QUEUED", "warn"},
                 {"PREEMPTING", "warn"}, {"RECOVERING", "warn"}, {"STOPPING", "warn"}};
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        if (strcmp(looks[i].state, state) == 0) {
            return looks[i].look;
        }
    }
    return "dim";
}

bool ls_page_is_waiting(const char *state)
{
    return strcmp(state, "QUEUED") == 0 || strcmp(state, "HELD") == 0;
}
