// SPDX-License-Identifier: Apache-2.0
/*
 * Requests to the API: "METHOD TARGET\nBODY". A refusal has a code and a text; what is accepted has
 * arguments that keep to their rows, and goes through again as it is.
 */
#include "base/assert.h"
#include "orchestration/api/request.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const ls_api_field *field_of(const ls_api_route *route, const char *name)
{
    for (size_t i = 0; i < route->argument_count; i++) {
        if (strcmp(route->arguments[i].name, name) == 0) {
            return &route->arguments[i];
        }
    }
    return NULL;
}

static void check_arguments(const ls_api_request *request)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(request->arguments, key, value)
    {
        const ls_api_field *field = field_of(request->route, key);
        LS_ASSERT(field != NULL);
        if (field->type == LS_API_INTEGER && !json_is_null(value)) {
            LS_ASSERT(json_is_integer(value) && (double)json_integer_value(value) >= field->min &&
                      (double)json_integer_value(value) <= field->max);
        }
        if (field->type == LS_API_STRING) {
            LS_ASSERT(json_is_string(value) && (double)json_string_length(value) <= field->max);
            LS_ASSERT(strlen(json_string_value(value)) == json_string_length(value));
        }
    }
    for (size_t i = 0; i < request->route->argument_count; i++) {
        LS_ASSERT(!request->route->arguments[i].is_required ||
                  json_object_get(request->arguments, request->route->arguments[i].name));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    LS_ASSERT(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    char *line_end = memchr(text, '\n', bytes);
    const char *body = line_end ? line_end + 1 : text + bytes;
    const size_t body_bytes = bytes - (size_t)(body - text);
    if (line_end) {
        *line_end = '\0';
    }
    char *blank = strchr(text, ' ');
    const char *target = blank ? blank + 1 : "/";
    if (blank) {
        *blank = '\0';
    }

    const ls_api_route *route = NULL;
    ls_api_request request;
    int code = 0;
    ls_error_clear();
    if (ls_api_route_of(text, target, &route, &code) != LS_OK ||
        ls_api_request_parse(route, target, body, body_bytes, &request, &code) != LS_OK) {
        LS_ASSERT(code >= 400 && code < 500 && ls_error_text()[0] != '\0');
    } else {
        LS_ASSERT(code == 200 && request.route == route);
        check_arguments(&request);
        json_decref(request.arguments);
    }
    free(text);
    return 0;
}
