// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/request.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- escapes ---- */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool is_utf8(const char *text, size_t bytes)
{
    json_t *probe = json_stringn(text, bytes); /* NULL if it is not UTF-8 */
    json_decref(probe);
    return probe != NULL;
}

size_t ls_api_unescape(const char *text, size_t bytes, bool plus_is_space, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '%') {
            const int high = i + 1 < bytes ? hex_value(text[i + 1]) : -1,
                      low = i + 2 < bytes ? hex_value(text[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return SIZE_MAX;
            }
            c = (char)(16 * high + low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c == '\0') {
            return SIZE_MAX;
        }
        out[length++] = c;
    }
    out[length] = '\0';
    return is_utf8(out, length) ? length : SIZE_MAX;
}

/* ---- finding the row ---- */

static size_t path_bytes(const char *target)
{
    return strcspn(target, "?#");
}

/* The piece of `path` up to its next slash; moves on to what follows. False: nothing is left. */
static bool next_piece(const char **path, size_t *left, const char **piece_out, size_t *bytes_out)
{
    if (*left == 0 || **path != '/') {
        return false;
    }
    const char *piece = *path + 1;
    const char *slash = memchr(piece, '/', *left - 1);
    const size_t bytes = slash ? (size_t)(slash - piece) : *left - 1;
    *piece_out = piece;
    *bytes_out = bytes;
    *path = piece + bytes;
    *left -= bytes + 1;
    return true;
}

/* A {name} of the pattern matches any piece that is not empty; other pieces must be equal. */
static bool path_matches(const char *pattern, const char *target)
{
    const char *path = target, *want = pattern;
    size_t path_left = path_bytes(target), want_left = strlen(pattern);
    for (;;) {
        const char *a = NULL, *b = NULL;
        size_t a_bytes = 0, b_bytes = 0;
        const bool more = next_piece(&path, &path_left, &a, &a_bytes),
                   wanted = next_piece(&want, &want_left, &b, &b_bytes);
        if (!more || !wanted) {
            return !more && !wanted && path_left == 0;
        }
        if (b_bytes > 0 && b[0] == '{') {
            if (a_bytes == 0) {
                return false;
            }
        } else if (a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0) {
            return false;
        }
    }
}

static const char *nearest_path(const char *target, size_t bytes)
{
    char path[96];
    const size_t kept = bytes < sizeof path - 1 ? bytes : sizeof path - 1;
    memcpy(path, target, kept);
    path[kept] = '\0';
    size_t count = 0, best = SIZE_MAX;
    const ls_api_route *routes = ls_api_routes(&count);
    const char *nearest = "";
    for (size_t i = 0; i < count; i++) {
        const size_t distance = ls_edit_distance(path, routes[i].path, best);
        if (distance < best) {
            best = distance;
            nearest = routes[i].path;
        }
    }
    return nearest;
}

static ls_status other_method(const char *method, const char *target, int *code_out)
{
    size_t count = 0;
    const ls_api_route *routes = ls_api_routes(&count);
    ls_text allowed = {0};
    for (size_t i = 0; i < count; i++) {
        if (path_matches(routes[i].path, target)) {
            ls_text_printf(&allowed, "%s%s", allowed.bytes > 0 ? " or " : "", routes[i].method);
        }
    }
    ls_status status;
    if (allowed.bytes > 0) {
        *code_out = 405;
        status = ls_fail(LS_ERR_INVALID, "%.16s is not allowed for %.200s: use %s", method, target,
                         ls_text_string(&allowed));
    } else {
        *code_out = 404;
        status = ls_fail(LS_ERR_NOT_FOUND,
                         "%.200s does not exist; the nearest path is %s, and /openapi.json lists all", target,
                         nearest_path(target, path_bytes(target)));
    }
    ls_text_release(&allowed);
    return status;
}

void ls_api_allowed_methods(const char *target, char *out, size_t bytes)
{
    size_t count = 0;
    const ls_api_route *routes = ls_api_routes(&count);
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (path_matches(routes[i].path, target)) {
            const size_t at = strlen(out);
            snprintf(out + at, bytes - at, "%s%s", at > 0 ? ", " : "",
                     strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
        }
    }
}

ls_status ls_api_route_of(const char *method, const char *target, const ls_api_route **route_out,
                          int *code_out)
{
    if (strlen(target) > LS_API_TARGET_BYTES_MAX) {
        *code_out = 414;
        return ls_fail(LS_ERR_INVALID,
                       "the address (URL) of the request has %zu bytes; at most %d are allowed",
                       strlen(target), LS_API_TARGET_BYTES_MAX);
    }
    if (!is_utf8(target, strlen(target))) {
        *code_out = 400;
        return ls_fail(LS_ERR_INVALID, "the address (URL) of the request is not valid UTF-8");
    }
    size_t count = 0;
    const ls_api_route *routes = ls_api_routes(&count);
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(routes[i].method, wanted) == 0 && path_matches(routes[i].path, target)) {
            *route_out = &routes[i];
            return LS_OK;
        }
    }
    return other_method(method, target, code_out);
}

/* ---- one argument ---- */

static const char *place_name(ls_api_place place)
{
    return place == LS_API_PATH ? "path" : place == LS_API_QUERY ? "query" : "body";
}

static ls_status out_of_range(const ls_api_field *field, const char *seen)
{
    return ls_fail(LS_ERR_INVALID, "%s is %s, allowed is %.17g to %.17g", field->name, seen, field->min,
                   field->max);
}

static ls_status check_number(const ls_api_field *field, double value)
{
    if (isfinite(value) && value >= field->min && value <= field->max) {
        return LS_OK;
    }
    return out_of_range(field, ls_plain_of(isfinite(value) ? value : 0).text);
}

static ls_status check_text(const ls_api_field *field, const char *text, size_t bytes)
{
    if (strlen(text) != bytes) {
        return ls_fail(LS_ERR_INVALID, "%s contains a zero byte, which is not allowed", field->name);
    }
    if ((double)bytes < field->min || (double)bytes > field->max) {
        return ls_fail(LS_ERR_INVALID, "%s has %zu bytes, allowed is %.17g to %.17g", field->name, bytes,
                       field->min, field->max);
    }
    ls_text names = {0};
    for (const char *const *choice = field->choices; choice && *choice; choice++) {
        if (strcmp(text, *choice) == 0) {
            ls_text_release(&names);
            return LS_OK;
        }
        ls_text_printf(&names, "%s%s", names.bytes > 0 ? ", " : "", *choice);
    }
    const ls_status status = field->choices ? ls_fail(LS_ERR_INVALID, "%s is '%.64s', allowed is one of %s",
                                                      field->name, text, ls_text_string(&names))
                                            : LS_OK;
    ls_text_release(&names);
    return status;
}

static ls_status check_item(const ls_api_field *field, const json_t *item)
{
    if (field->type == LS_API_INTEGERS) {
        if (!json_is_integer(item) || json_integer_value(item) < 1) {
            return ls_fail(LS_ERR_INVALID, "%s: every item must be a whole number, 1 or more", field->name);
        }
        return LS_OK;
    }
    if (field->type == LS_API_OBJECTS) {
        return json_is_object(item)
                   ? LS_OK
                   : ls_fail(LS_ERR_INVALID, "%s: every item must be an object", field->name);
    }
    if (!json_is_string(item) || json_string_length(item) > LS_API_TEXT_BYTES ||
        strlen(json_string_value(item)) != json_string_length(item)) {
        return ls_fail(LS_ERR_INVALID, "%s: every item must be a string of at most %d bytes", field->name,
                       LS_API_TEXT_BYTES);
    }
    return LS_OK;
}

static ls_status check_list(const ls_api_field *field, const json_t *value)
{
    const size_t count = json_array_size(value);
    if ((double)count < field->min || (double)count > field->max) {
        return ls_fail(LS_ERR_INVALID, "%s has %zu items, but must have %.17g to %.17g", field->name, count,
                       field->min, field->max);
    }
    for (size_t i = 0; i < count; i++) {
        LS_TRY(check_item(field, json_array_get(value, i)));
    }
    return LS_OK;
}

static ls_status wrong_type(const ls_api_field *field)
{
    static const char *const names[] = {
        [LS_API_INTEGER] = "a whole number",
        [LS_API_NUMBER] = "a number",
        [LS_API_STRING] = "a string",
        [LS_API_BOOL] = "true or false",
        [LS_API_STRINGS] = "a list of strings",
        [LS_API_INTEGERS] = "a list of whole numbers",
        [LS_API_OBJECT] = "an object",
        [LS_API_OBJECTS] = "a list of objects",
        [LS_API_ANY] = "anything",
    };
    return ls_fail(LS_ERR_INVALID, "%s must be %s", field->name, names[field->type]);
}

static ls_status check_members(const ls_api_field *field, const json_t *value)
{
    const size_t count = json_object_size(value);
    if (field->max > field->min && ((double)count < field->min || (double)count > field->max)) {
        return ls_fail(LS_ERR_INVALID, "%s has %zu members, allowed is %.17g to %.17g", field->name, count,
                       field->min, field->max);
    }
    return LS_OK;
}

/* A whole number may be written as 4.0: JSON has one kind of number. A new reference. */
static json_t *whole(const ls_api_field *field, json_t *value)
{
    const double number = json_is_real(value) ? json_real_value(value) : 0.5;
    return field->type == LS_API_INTEGER && number == floor(number) && fabs(number) <= 9007199254740991.0
               ? json_integer((json_int_t)number)
               : json_incref(value);
}

/* A member of the body. */
static ls_status check_value(const ls_api_field *field, const json_t *value)
{
    switch (field->type) {
    case LS_API_INTEGER:
        return json_is_integer(value) ? check_number(field, (double)json_integer_value(value))
                                      : wrong_type(field);
    case LS_API_NUMBER:
        return json_is_number(value) ? check_number(field, json_number_value(value)) : wrong_type(field);
    case LS_API_STRING:
        return json_is_string(value) ? check_text(field, json_string_value(value), json_string_length(value))
                                     : wrong_type(field);
    case LS_API_BOOL:
        return json_is_boolean(value) ? LS_OK : wrong_type(field);
    case LS_API_OBJECT:
        return json_is_object(value) ? check_members(field, value) : wrong_type(field);
    default:
        return json_is_array(value) ? check_list(field, value) : wrong_type(field);
    }
}

/* Converts a text of path or query to the type of its field. value_out: the caller drops it. */
static ls_status value_of_text(const ls_api_field *field, const char *text, json_t **value_out)
{
    char *end = NULL;
    if (field->type == LS_API_INTEGER) {
        const size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 16 || text[digits] != '\0') {
            return ls_fail(LS_ERR_INVALID, "%s is '%.32s', allowed is a whole number, %.17g to %.17g",
                           field->name, text, field->min, field->max);
        }
        const long long number = strtoll(text, &end, 10);
        LS_TRY(check_number(field, (double)number));
        *value_out = json_integer(number);
    } else if (field->type == LS_API_NUMBER) {
        const double number = strtod(text, &end);
        if (end == text || *end != '\0') {
            return ls_fail(LS_ERR_INVALID, "%s is '%.32s', allowed is a number", field->name, text);
        }
        LS_TRY(check_number(field, number));
        *value_out = json_real(number);
    } else if (field->type == LS_API_BOOL) {
        const bool yes = strcmp(text, "1") == 0 || strcmp(text, "true") == 0 || text[0] == '\0';
        if (!yes && strcmp(text, "0") != 0 && strcmp(text, "false") != 0) {
            return ls_fail(LS_ERR_INVALID, "%s is '%.32s', allowed is true or false", field->name, text);
        }
        *value_out = json_boolean(yes);
    } else {
        LS_TRY(check_text(field, text, strlen(text)));
        *value_out = json_string(text);
    }
    return LS_OK;
}

static const ls_api_field *find_field(const ls_api_route *route, ls_api_place place, const char *name)
{
    for (size_t i = 0; i < route->argument_count; i++) {
        if (route->arguments[i].place == place && strcmp(route->arguments[i].name, name) == 0) {
            return &route->arguments[i];
        }
    }
    return NULL;
}

static ls_status unknown_name(const ls_api_route *route, ls_api_place place, const char *name)
{
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < route->argument_count; i++) {
        const size_t distance = ls_edit_distance(name, route->arguments[i].name, best);
        if (route->arguments[i].place == place && distance < best) {
            best = distance;
            nearest = route->arguments[i].name;
        }
    }
    return nearest ? ls_fail(LS_ERR_INVALID,
                             "the %s of a request to %s has no argument '%.64s': did you mean '%s'?",
                             place_name(place), route->path, name, nearest)
                   : ls_fail(LS_ERR_INVALID,
                             "the %s of a request to %s takes no arguments, but this one has '%.64s'",
                             place_name(place), route->path, name);
}

/* Takes over `value`. */
static ls_status put_argument(json_t *arguments, const ls_api_field *field, json_t *value)
{
    if (json_object_get(arguments, field->name)) {
        json_decref(value);
        return ls_fail(LS_ERR_INVALID, "%s is given twice", field->name);
    }
    json_object_set_new(arguments, field->name, value);
    return LS_OK;
}

/* ---- the three places ---- */

static ls_status take_text(json_t *arguments, const ls_api_field *field, const char *text)
{
    json_t *value = NULL;
    LS_TRY(value_of_text(field, text, &value));
    return put_argument(arguments, field, value);
}

static ls_status read_path(const ls_api_route *route, const char *target, json_t *arguments)
{
    const char *path = target, *pattern = route->path, *piece = NULL, *name = NULL;
    size_t path_left = path_bytes(target), pattern_left = strlen(pattern), bytes = 0, name_bytes = 0;
    while (next_piece(&path, &path_left, &piece, &bytes) &&
           next_piece(&pattern, &pattern_left, &name, &name_bytes)) {
        if (name_bytes < 3 || name[0] != '{') {
            continue;
        }
        char word[32], text[LS_API_TARGET_BYTES_MAX + 1];
        if (name_bytes - 2 >= sizeof word || bytes > LS_API_TARGET_BYTES_MAX) {
            return ls_fail(LS_ERR_INVALID, "a part of the URL's path between two slashes is too long");
        }
        memcpy(word, name + 1, name_bytes - 2);
        word[name_bytes - 2] = '\0';
        const ls_api_field *field = find_field(route, LS_API_PATH, word);
        if (!field || ls_api_unescape(piece, bytes, false, text) == SIZE_MAX) {
            return ls_fail(
                LS_ERR_INVALID,
                "the path in the URL has an invalid escape: %% must be followed by two hexadecimal digits");
        }
        LS_TRY(take_text(arguments, field, text));
    }
    return LS_OK;
}

static ls_status read_pair(const ls_api_route *route, const char *pair, size_t bytes, json_t *arguments)
{
    char name[LS_API_TARGET_BYTES_MAX + 1], text[LS_API_TARGET_BYTES_MAX + 1];
    const char *equals = memchr(pair, '=', bytes);
    const size_t name_bytes = equals ? (size_t)(equals - pair) : bytes;
    const size_t text_bytes = equals ? bytes - name_bytes - 1 : 0;
    if (ls_api_unescape(pair, name_bytes, true, name) == SIZE_MAX ||
        ls_api_unescape(equals ? equals + 1 : "", text_bytes, true, text) == SIZE_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "the query in the URL has an invalid escape: %% must be followed by two hexadecimal digits");
    }
    const ls_api_field *field = find_field(route, LS_API_QUERY, name);
    return field ? take_text(arguments, field, text) : unknown_name(route, LS_API_QUERY, name);
}

static ls_status read_query(const ls_api_route *route, const char *target, json_t *arguments)
{
    const char *at = target + path_bytes(target);
    if (*at != '?') {
        return LS_OK;
    }
    for (at++; *at && *at != '#';) {
        const size_t bytes = strcspn(at, "&#");
        if (bytes > 0) {
            LS_TRY(read_pair(route, at, bytes, arguments));
        }
        at += bytes + (at[bytes] == '&');
    }
    return LS_OK;
}

static ls_status read_members(const ls_api_route *route, json_t *body, json_t *arguments)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(body, key, value)
    {
        const ls_api_field *field = find_field(route, LS_API_BODY, key);
        if (!field) {
            return unknown_name(route, LS_API_BODY, key);
        }
        if (json_is_null(value) && !field->may_be_null) { /* the same as absent */
            continue;
        }
        json_t *taken = whole(field, value);
        const ls_status status = json_is_null(taken) ? LS_OK : check_value(field, taken);
        if (status != LS_OK) {
            json_decref(taken);
            return status;
        }
        LS_TRY(put_argument(arguments, field, taken));
    }
    return LS_OK;
}

static ls_status read_body(const ls_api_route *route, const char *body, size_t bytes, json_t *arguments)
{
    if (bytes == 0) {
        return LS_OK;
    }
    json_t *root = NULL;
    if (ls_json_parse(body, bytes, "the body", &root) != LS_OK) {
        return LS_ERR_INVALID; /* with the text of the parser */
    }
    const ls_status status = json_is_object(root)
                                 ? read_members(route, root, arguments)
                                 : ls_fail(LS_ERR_INVALID, "the body of the request must be one JSON object");
    json_decref(root);
    return status;
}

static ls_status check_required(const ls_api_route *route, const json_t *arguments)
{
    for (size_t i = 0; i < route->argument_count; i++) {
        const ls_api_field *field = &route->arguments[i];
        if (field->is_required && !json_object_get(arguments, field->name)) {
            return ls_fail(LS_ERR_INVALID, "'%s' is missing in the %s; it is: %s", field->name,
                           place_name(field->place), field->help);
        }
    }
    return LS_OK;
}

ls_status ls_api_request_parse(const ls_api_route *route, const char *target, const char *body,
                               size_t body_bytes, ls_api_request *request_out, int *code_out)
{
    *code_out = 400;
    if (body_bytes > LS_API_BODY_BYTES_MAX) {
        *code_out = 413;
        return ls_fail(LS_ERR_INVALID, "the body of the request has %zu bytes; at most %d are allowed",
                       body_bytes, LS_API_BODY_BYTES_MAX);
    }
    json_t *arguments = json_object();
    ls_status status = read_path(route, target, arguments);
    status = status != LS_OK ? status : read_query(route, target, arguments);
    status = status != LS_OK ? status : read_body(route, body, body_bytes, arguments);
    status = status != LS_OK ? status : check_required(route, arguments);
    if (status != LS_OK) {
        json_decref(arguments);
        return status;
    }
    *request_out = (ls_api_request){.route = route, .arguments = arguments};
    *code_out = 200;
    return LS_OK;
}
