// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include "base/file.h"
#include "base/lfs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy of the text; whole numbers that 64 bits can't hold are reals of the same length in it. */
static char *with_reals(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy) {
        return NULL;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    bool in_string = false;
    for (size_t at = 0; at < bytes;) {
        const size_t length = in_string ? 0 : strspn(copy + at, "0123456789+-.eE");
        char *stop = copy + at, real[32];
        errno = 0;
        if (length > 0 && strtoll(copy + at, &stop, 10) != 0 && errno == ERANGE &&
            stop == copy + at + length) {
            const int written = snprintf(real, sizeof real, "%.9e", strtod(copy + at, NULL));
            memset(copy + at, ' ', length);
            memcpy(copy + at, real, (size_t)written);
        }
        in_string ^= copy[at] == '"';
        at += length > 0 ? length : in_string && copy[at] == '\\' ? 2 : 1;
    }
    return copy;
}

static json_t *parse_with_reals(const char *text, size_t bytes, json_error_t *error)
{
    char *copy = with_reals(text, bytes);
    json_t *root = copy ? json_loadb(copy, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, error) : NULL;
    free(copy);
    return root;
}

ls_status ls_json_parse(const char *text, size_t bytes, const char *name, json_t **root_out)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!root && json_error_code(&error) == json_error_numeric_overflow) {
        root = parse_with_reals(text, bytes, &error);
    }
    if (!root) {
        LS_TRY(ls_lfs_refuse(name, text, bytes));
        return ls_fail(LS_ERR_DATA, "%s:%d: not valid JSON: %s (column %d)", name, error.line, error.text,
                       error.column);
    }
    *root_out = root;
    return LS_OK;
}

ls_status ls_json_load(const char *path, size_t limit_bytes, json_t **root_out)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    ls_status status;
    if (map.bytes > limit_bytes) {
        status = ls_fail(LS_ERR_DATA, "%s has %zu bytes, at most %zu are allowed here", path, map.bytes,
                         limit_bytes);
    } else if (map.bytes == 0) {
        status = ls_fail(LS_ERR_DATA, "%s is empty, JSON is expected", path);
    } else {
        status = ls_json_parse((const char *)map.data, map.bytes, path, root_out);
    }
    ls_file_map_close(&map);
    return status;
}

ls_status ls_json_save(const char *path, const json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text) {
        return ls_fail(LS_ERR_FAILED,
                       "can't write %s: a value in it, such as an infinite number, cannot be written as JSON",
                       path);
    }
    const size_t bytes = strlen(text);
    char *with_newline = realloc(text, bytes + 2);
    if (!with_newline) {
        free(text);
        return ls_fail(LS_ERR_MEMORY, "can't write %s: out of memory", path);
    }
    memcpy(with_newline + bytes, "\n", 2);
    const ls_status status = ls_file_write_atomic(path, with_newline, bytes + 1);
    free(with_newline);
    return status;
}

ls_status ls_json_get_u64(const json_t *object, const char *name, const char *key, uint64_t min, uint64_t max,
                          uint64_t default_value, uint64_t *value_out)
{
    const json_t *member = json_object_get(object, key);
    if (!member || json_is_null(member)) {
        *value_out = default_value;
        return LS_OK;
    }
    if (json_is_real(member) && fabs(json_real_value(member)) >= 0x1p63) {
        return ls_fail(LS_ERR_DATA, "%s: %s is %g, allowed is %llu to %llu", name, key,
                       json_real_value(member), (unsigned long long)min, (unsigned long long)max);
    }
    if (!json_is_integer(member)) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be a whole number", name, key);
    }
    const json_int_t value = json_integer_value(member);
    if (value < 0 || (uint64_t)value < min || (uint64_t)value > max) {
        return ls_fail(LS_ERR_DATA, "%s: %s is %lld, allowed is %llu to %llu", name, key, (long long)value,
                       (unsigned long long)min, (unsigned long long)max);
    }
    *value_out = (uint64_t)value;
    return LS_OK;
}

ls_status ls_json_get_f64(const json_t *object, const char *name, const char *key, double min, double max,
                          double default_value, double *value_out)
{
    const json_t *member = json_object_get(object, key);
    if (!member || json_is_null(member)) {
        *value_out = default_value;
        return LS_OK;
    }
    if (!json_is_number(member)) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be a number", name, key);
    }
    const double value = json_number_value(member);
    if (!isfinite(value) || value < min || value > max) {
        return ls_fail(LS_ERR_DATA, "%s: %s is %g, allowed is %g to %g", name, key, value, min, max);
    }
    *value_out = value;
    return LS_OK;
}

ls_status ls_json_get_bool(const json_t *object, const char *name, const char *key, bool default_value,
                           bool *value_out)
{
    const json_t *member = json_object_get(object, key);
    if (!member || json_is_null(member)) {
        *value_out = default_value;
        return LS_OK;
    }
    if (!json_is_boolean(member)) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be true or false", name, key);
    }
    *value_out = json_is_true(member);
    return LS_OK;
}

ls_status ls_json_get_string(const json_t *object, const char *name, const char *key,
                             const char *default_value, const char **value_out)
{
    const json_t *member = json_object_get(object, key);
    if (!member || json_is_null(member)) {
        *value_out = default_value;
        return LS_OK;
    }
    if (!json_is_string(member)) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be a string", name, key);
    }
    *value_out = json_string_value(member);
    return LS_OK;
}
