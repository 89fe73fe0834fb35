// SPDX-License-Identifier: Apache-2.0
/*
 * JSON: jansson with our error texts and limits.
 *
 * The tree type is jansson's json_t; the receiver of a new one releases it with json_decref.
 * Duplicate keys are errors. A whole number that 64 bits can't hold becomes a real: writers such as
 * Python put them under keys that nobody here needs. Where a whole number is needed, it is refused.
 */
#ifndef LS_BASE_JSON_H
#define LS_BASE_JSON_H

#include "base/arena.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Parses `bytes` of text. Errors name `name` (a path, or a description of the text) and the line.
 * Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_json_parse(const char *text, size_t bytes, const char *name, json_t **root_out);

/* Parses a file of at most `limit_bytes`. Errors: LS_ERR_DATA, LS_ERR_NOT_FOUND, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_json_load(const char *path, size_t limit_bytes, json_t **root_out);

/* Writes a file atomically, indented by 2, keys in insertion order, newline at the end. */
LS_MUST_CHECK ls_status ls_json_save(const char *path, const json_t *root);

/*
 * Typed members of an object. If the key is absent, `default_value` is stored and LS_OK returned. A
 * value of another type, not finite or outside [min, max] is LS_ERR_DATA; the error names `name`
 * (what is being read) and the key, and the output is untouched.
 */
LS_MUST_CHECK ls_status ls_json_get_u64(const json_t *object, const char *name, const char *key, uint64_t min,
                                        uint64_t max, uint64_t default_value, uint64_t *value_out);
LS_MUST_CHECK ls_status ls_json_get_f64(const json_t *object, const char *name, const char *key, double min,
                                        double max, double default_value, double *value_out);
LS_MUST_CHECK ls_status ls_json_get_bool(const json_t *object, const char *name, const char *key,
                                         bool default_value, bool *value_out);
/* The string belongs to the tree. default_value may be NULL. */
LS_MUST_CHECK ls_status ls_json_get_string(const json_t *object, const char *name, const char *key,
                                           const char *default_value, const char **value_out);

#endif
