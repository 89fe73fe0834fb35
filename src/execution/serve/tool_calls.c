// SPDX-License-Identifier: Apache-2.0
#include "execution/serve/tool_calls.h"

#include <stdlib.h>
#include <string.h>

static const char opening[] = "<tool_call>", closing[] = "</tool_call>";

typedef struct finder {
    const json_t *tools;
    json_t *calls;
} finder;

static bool is_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        const char *own = json_string_value(json_object_get(function ? function : tool, "name"));
        if (own && strcmp(own, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds one call; false if it is none. */
static bool add_call(const finder *f, const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    json_t *arguments = json_object_get(object, "arguments");
    arguments = arguments ? arguments : json_object_get(object, "parameters");
    if (!name || !is_tool(f->tools, name) || (arguments && !json_is_object(arguments))) {
        return false;
    }
    char *text = arguments ? json_dumps(arguments, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_array_append_new(f->calls, json_pack("{s:s, s:{s:s, s:s}}", "type", "function", "function", "name",
                                              name, "arguments", text ? text : "{}"));
    free(text);
    return true;
}

/* Adds the calls of one JSON text: an object, or a list of objects. */
static bool add_text(const finder *f, const char *text, size_t bytes)
{
    json_t *root = json_loadb(text, bytes, 0, NULL);
    bool is_good = root && (json_is_object(root) || json_array_size(root) > 0);
    if (json_is_object(root)) {
        is_good = add_call(f, root);
    }
    for (size_t i = 0; is_good && i < json_array_size(root); i++) {
        is_good = add_call(f, json_array_get(root, i));
    }
    json_decref(root);
    return is_good;
}

static const char *find(const char *from, const char *end, const char *word)
{
    return memmem(from, (size_t)(end - from), word, strlen(word));
}

static bool add_marked(const finder *f, const char *at, const char *end)
{
    for (; at; at = find(at, end, opening)) {
        const char *begin = at + sizeof opening - 1, *close = find(begin, end, closing);
        close = close ? close : end;
        if (!add_text(f, begin, (size_t)(close - begin))) {
            return false;
        }
        at = close;
    }
    return true;
}

json_t *ls_tool_calls_find(const json_t *tools, const char *text, size_t bytes, size_t *content_bytes_out)
{
    const finder f = {.tools = tools, .calls = json_array()};
    const char *marked = find(text, text + bytes, opening);
    const bool is_good = marked ? add_marked(&f, marked, text + bytes) : add_text(&f, text, bytes);
    if (!is_good) {
        json_decref(f.calls);
        return NULL;
    }
    size_t content = marked ? (size_t)(marked - text) : 0;
    while (content > 0 && strchr(" \n", text[content - 1])) {
        content--;
    }
    *content_bytes_out = content;
    return f.calls;
}
