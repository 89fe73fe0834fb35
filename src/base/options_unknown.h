// SPDX-License-Identifier: Apache-2.0
/*
 * Errors for keys and options that a table does not have. Inside of base/options.
 *
 * In this order: what is written here for a name known from other programs (the table's hints), the
 * nearest name, the names there are.
 */
#ifndef LS_BASE_OPTIONS_UNKNOWN_H
#define LS_BASE_OPTIONS_UNKNOWN_H

#include "base/options.h"

/* Whether `path` is the beginning of a key, up to a dot. */
bool ls_options_is_section(const ls_option_table *table, const char *path);

/* All return LS_ERR_INVALID. source: "run.yaml:12", "--set". is_item: the table's keys are relative
 * to an item of a list. */
ls_status ls_options_fail_key(const ls_option_table *table, const char *path, const char *source,
                              bool is_item);
ls_status ls_options_fail_section(const ls_option_table *table, const char *path, const char *source);
/* An option of a command line: `name` as typed, `key` as in a table. */
ls_status ls_options_fail_argument(const ls_option_table *table, const char *key, const char *name);

#endif
