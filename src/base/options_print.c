// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include "base/assert.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- ranges in words ---- */

static void append_bounds(const ls_option *option, ls_text *text)
{
    const bool bounded = option->max < LS_OPTION_U64_MAX;
    ls_text_append_f64(text, option->min);
    if (bounded) {
        ls_text_append(text, " to ");
        ls_text_append_f64(text, option->max);
    } else {
        ls_text_append(text, " or more");
    }
}

static void append_choices(const ls_option *option, ls_text *text)
{
    ls_text_append(text, "one of ");
    for (int i = 0; option->choices[i]; i++) {
        ls_text_printf(text, "%s%s", i ? ", " : "", option->choices[i]);
    }
}

void ls_options_append_range(const ls_option *option, ls_text *text)
{
    ls_text_append(text, option->allow_auto ? "auto or " : "");
    switch (option->type) {
    case LS_OPTION_U64:
        ls_text_append(text, "a whole number, ");
        append_bounds(option, text);
        break;
    case LS_OPTION_F64:
        ls_text_append(text, "a number, ");
        append_bounds(option, text);
        break;
    case LS_OPTION_QUANTITY:
        ls_text_append(text, "a number (300e9, 8k, 1.4T), ");
        append_bounds(option, text);
        break;
    case LS_OPTION_DURATION:
        if (option->unit_needed) {
            ls_text_append(text, "a duration with its unit (36h, 60d, 8w), or 0; ");
        } else {
            ls_text_append(text, "a duration (90s, 1h30m, 2d), ");
        }
        ls_text_append(text, "seconds ");
        append_bounds(option, text);
        break;
    case LS_OPTION_BYTES:
        ls_text_append(text, "a size (4096, 64MiB, 1.5GB), bytes ");
        append_bounds(option, text);
        break;
    case LS_OPTION_BOOL:
        ls_text_append(text, "true or false");
        break;
    case LS_OPTION_SWITCH:
        ls_text_append(text, "true, false or auto");
        break;
    case LS_OPTION_STRING:
        ls_text_append(text, "text");
        break;
    case LS_OPTION_CHOICE:
        append_choices(option, text);
        break;
    case LS_OPTION_STRINGS:
        ls_text_append(text, "a list of texts");
        break;
    case LS_OPTION_WEIGHTED:
        ls_text_append(text, "a list of paths or {path: PATH, weight: NUMBER}");
        break;
    }
}

/* ---- values as text ---- */

/* Whether text needs no quotes anywhere in a YAML document. */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"null", "Null",  "NULL",  "true", "True",
                                        "TRUE", "false", "False", "FALSE"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            return false;
        }
    }
    if (!isalpha((unsigned char)text[0]) && text[0] != '_' && text[0] != '/') {
        return false;
    }
    for (const char *at = text; *at; at++) {
        if (!isalnum((unsigned char)*at) && !strchr("_./+-", *at)) {
            return false;
        }
    }
    return true;
}

static void append_string(ls_text *text, const char *string)
{
    if (is_plain(string)) {
        ls_text_append(text, string);
    } else {
        ls_text_append_quoted(text, string);
    }
}

/* Writes value in the largest unit of `factors` that divides it; false when none does. */
static bool append_in_unit(ls_text *text, double value, const char *const *names, const double *factors,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double units = value / factors[i];
        if (value > 0.0 && units == floor(units) && units * factors[i] == value && units < 1e6) {
            ls_text_append_f64(text, units);
            ls_text_append(text, names[i]);
            return true;
        }
    }
    return false;
}

static void append_duration(ls_text *text, double value_s)
{
    static const char *const names[] = {"d", "h", "m", "s"};
    static const double factors[] = {86400.0, 3600.0, 60.0, 1.0};
    if (!append_in_unit(text, value_s, names, factors, 4)) {
        ls_text_append_f64(text, value_s);
    }
}

static void append_bytes(ls_text *text, uint64_t bytes)
{
    static const char *const names[] = {"TiB", "GiB", "MiB", "KiB"};
    static const double factors[] = {1099511627776.0, 1073741824.0, 1048576.0, 1024.0};
    if (!append_in_unit(text, (double)bytes, names, factors, 4)) {
        ls_text_printf(text, "%llu", (unsigned long long)bytes);
    }
}

static void append_strings(ls_text *text, const ls_option_strings *list)
{
    ls_text_append(text, "[");
    for (uint64_t i = 0; i < list->count; i++) {
        ls_text_append(text, i ? ", " : "");
        append_string(text, list->items[i]);
    }
    ls_text_append(text, "]");
}

static void append_weighted(ls_text *text, const ls_option_weighted_list *list)
{
    ls_text_append(text, "[");
    for (uint64_t i = 0; i < list->count; i++) {
        const ls_option_weighted *item = &list->items[i];
        ls_text_append(text, i ? ", " : "");
        const bool has_field = item->field && item->field[0];
        if (item->weight == 0.0 && !has_field) {
            append_string(text, item->path);
            continue;
        }
        ls_text_append(text, "{path: ");
        append_string(text, item->path);
        if (item->weight != 0.0) {
            ls_text_append(text, ", weight: ");
            ls_text_append_f64(text, item->weight);
        }
        if (has_field) {
            ls_text_append(text, ", field: ");
            append_string(text, item->field);
        }
        ls_text_append(text, "}");
    }
    ls_text_append(text, "]");
}

static void append_u64(const ls_option *option, uint64_t value, ls_text *text)
{
    if (value == LS_AUTO_U64) {
        ls_text_append(text, "auto");
    } else if (option->type == LS_OPTION_BYTES) {
        append_bytes(text, value);
    } else {
        ls_text_printf(text, "%llu", (unsigned long long)value);
    }
}

static void append_f64(const ls_option *option, double value, ls_text *text)
{
    if (option->allow_auto && value == LS_AUTO_F64) {
        ls_text_append(text, "auto");
    } else if (option->type == LS_OPTION_DURATION) {
        append_duration(text, value);
    } else {
        ls_text_append_f64(text, value);
    }
}

void ls_options_append_value(const ls_option *option, const void *settings, ls_text *text)
{
    static const char *const switch_names[] = {"false", "true", "auto"};
    const void *field = (const char *)settings + option->offset;
    switch (option->type) {
    case LS_OPTION_U64:
    case LS_OPTION_BYTES:
        append_u64(option, *(const uint64_t *)field, text);
        break;
    case LS_OPTION_F64:
    case LS_OPTION_DURATION:
    case LS_OPTION_QUANTITY:
        append_f64(option, *(const double *)field, text);
        break;
    case LS_OPTION_BOOL:
        ls_text_append(text, *(const bool *)field ? "true" : "false");
        break;
    case LS_OPTION_SWITCH:
        ls_text_append(text, switch_names[*(const int *)field]);
        break;
    case LS_OPTION_STRING:
        append_string(text, *(const char *const *)field);
        break;
    case LS_OPTION_CHOICE:
        ls_text_append(text, option->choices[*(const int *)field]);
        break;
    case LS_OPTION_STRINGS:
        append_strings(text, field);
        break;
    case LS_OPTION_WEIGHTED:
        append_weighted(text, field);
        break;
    }
}

/* ---- YAML ---- */

/* Length of the section prefix that `key` shares with `previous`, including the last dot. */
static size_t shared_sections(const char *previous, const char *key)
{
    size_t shared = 0;
    for (size_t i = 0; previous[i] && previous[i] == key[i]; i++) {
        if (key[i] == '.') {
            shared = i + 1;
        }
    }
    return shared;
}

static size_t count_dots(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += text[i] == '.';
    }
    return count;
}

/* Opens the sections of `key` that `previous` was not in; returns the depth of the key itself. */
static size_t append_sections(const char *previous, const char *key, ls_text *text)
{
    const char *at = key + shared_sections(previous, key);
    size_t depth = count_dots(key, (size_t)(at - key));
    for (const char *dot = strchr(at, '.'); dot; dot = strchr(at, '.')) {
        ls_text_repeat(text, ' ', 2 * depth++);
        ls_text_append_bytes(text, at, (size_t)(dot - at));
        ls_text_append(text, ":\n");
        at = dot + 1;
    }
    return depth;
}

static bool is_default(const ls_option *option, const void *settings)
{
    ls_text text = {0};
    ls_options_append_value(option, settings, &text);
    const bool same = strcmp(ls_text_string(&text), option->default_text) == 0;
    ls_text_release(&text);
    return same;
}

static bool is_in_identity(const ls_option *option, const void *settings)
{
    return option->identity && !(option->identity_when_set && is_default(option, settings));
}

void ls_options_append_yaml(const ls_option_table *table, const void *settings, bool only_identity,
                            ls_text *text)
{
    const char *previous = "";
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        if (only_identity && !is_in_identity(option, settings)) {
            continue;
        }
        const size_t depth = append_sections(previous, option->key, text);
        const char *dot = strrchr(option->key, '.');
        ls_text_repeat(text, ' ', 2 * depth);
        ls_text_printf(text, "%s: ", dot ? dot + 1 : option->key);
        ls_options_append_value(option, settings, text);
        ls_text_append(text, "\n");
        previous = option->key;
    }
}

/* ---- help ---- */

static const char *value_name(const ls_option *option)
{
    static const char *const names[] = {
        [LS_OPTION_U64] = "N",        [LS_OPTION_F64] = "X",          [LS_OPTION_BOOL] = "",
        [LS_OPTION_SWITCH] = "BOOL",  [LS_OPTION_STRING] = "TEXT",    [LS_OPTION_CHOICE] = "NAME",
        [LS_OPTION_STRINGS] = "TEXT", [LS_OPTION_WEIGHTED] = "PATHS", [LS_OPTION_DURATION] = "TIME",
        [LS_OPTION_BYTES] = "SIZE",   [LS_OPTION_QUANTITY] = "N",
    };
    return option->value_name ? option->value_name : names[option->type];
}

void ls_options_append_label(const ls_option *option, const char *prefix, ls_text *text)
{
    if (prefix[0]) {
        if (option->letter) {
            ls_text_printf(text, "-%c, ", option->letter);
        }
        ls_text_append(text, prefix);
        for (const char *at = option->key; *at; at++) {
            ls_text_append_bytes(text, *at == '_' ? "-" : at, 1);
        }
    } else {
        ls_text_append(text, option->key);
    }
    const char *value = value_name(option);
    ls_text_printf(text, "%s%s", value[0] ? " " : "", value);
}

/* What the type name alone does not tell: choices, bounds, default. */
static void append_notes(const ls_option *option, ls_text *text)
{
    const bool has_default = strcmp(option->default_text, "\"\"") != 0 &&
                             strcmp(option->default_text, "[]") != 0 && option->type != LS_OPTION_BOOL;
    const bool is_number = option->type == LS_OPTION_U64 || option->type == LS_OPTION_F64;
    const bool on_by_default = option->type == LS_OPTION_BOOL && strcmp(option->default_text, "true") == 0;
    if (!has_default && !is_number && !on_by_default && option->type != LS_OPTION_CHOICE) {
        return;
    }
    ls_text_append(text, " (");
    const char *separator = "";
    if (option->type == LS_OPTION_CHOICE) {
        append_choices(option, text);
        separator = "; ";
    } else if (is_number) {
        append_bounds(option, text);
        separator = "; ";
    }
    if (has_default || on_by_default) {
        ls_text_printf(text, "%sdefault %s", separator, option->default_text);
    }
    ls_text_append(text, ")");
}

void ls_options_append_meaning(const ls_option *option, ls_text *text)
{
    ls_text_append(text, option->help);
    append_notes(option, text);
}

static void append_section_title(const ls_option_table *table, const char *previous, const char *key,
                                 ls_text *text)
{
    const char *dot = strrchr(key, '.');
    const size_t bytes = dot ? (size_t)(dot - key) : 0;
    const char *previous_dot = strrchr(previous, '.');
    const size_t previous_bytes = previous_dot ? (size_t)(previous_dot - previous) : 0;
    if (bytes == previous_bytes && memcmp(key, previous, bytes) == 0) {
        return;
    }
    ls_text_append(text, text->bytes ? "\n" : "");
    ls_text_append_bytes(text, key, bytes);
    for (size_t i = 0; i < table->section_count; i++) {
        const char *name = table->sections[i].key;
        if (strlen(name) == bytes && memcmp(name, key, bytes) == 0) {
            ls_text_printf(text, ": %s", table->sections[i].help);
        }
    }
    ls_text_append(text, "\n");
}

/* Appends `words`, wrapped: each line begins at `column` and is at most `width` wide. */
static void append_wrapped(const char *words, size_t column, size_t width, ls_text *text)
{
    size_t used = column;
    while (*words) {
        const size_t bytes = strcspn(words, " ");
        if (used > column && used + 1 + bytes > width) {
            ls_text_append(text, "\n");
            ls_text_repeat(text, ' ', column);
            used = column;
        } else if (used > column) {
            ls_text_append(text, " ");
            used++;
        }
        ls_text_append_bytes(text, words, bytes);
        used += bytes;
        words += bytes + (words[bytes] == ' ');
    }
}

void ls_options_append_help(const ls_option_table *table, const char *prefix, ls_text *text)
{
    /* Commands are read in terminals of 80 columns; the keys of a file are long. */
    const size_t column_max = prefix[0] ? 28 : 40, width = prefix[0] ? 80 : 110;
    ls_text left = {0}, meaning = {0};
    size_t column = 0;
    for (size_t i = 0; i < table->count; i++) {
        ls_text_clear(&left);
        ls_options_append_label(&table->options[i], prefix, &left);
        column = left.bytes > column ? left.bytes : column;
    }
    column = 2 + (column < column_max ? column : column_max) + 2;

    const char *previous = "";
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        append_section_title(table, previous, option->key, text);
        ls_text_clear(&left);
        ls_text_append(&left, "  ");
        ls_options_append_label(option, prefix, &left);
        ls_text_append(text, ls_text_string(&left));
        if (left.bytes + 2 > column) { /* label too long: the meaning begins on the next line */
            ls_text_append(text, "\n");
            ls_text_clear(&left);
        }
        ls_text_repeat(text, ' ', column - left.bytes);
        ls_text_clear(&meaning);
        ls_options_append_meaning(option, &meaning);
        append_wrapped(ls_text_string(&meaning), column, width, text);
        ls_text_append(text, "\n");
        previous = option->key;
    }
    ls_text_release(&meaning);
    ls_text_release(&left);
}

/* ---- markdown ---- */

/* A vertical bar would end the cell. */
static void append_cell(ls_text *text, const char *string)
{
    for (const char *at = string; *at; at++) {
        ls_text_append_bytes(text, *at == '|' ? "\\|" : at, *at == '|' ? 2 : 1);
    }
}

static void append_markdown_title(const ls_option_table *table, const char *previous, const char *key,
                                  ls_text *text)
{
    ls_text title = {0};
    append_section_title(table, previous, key, &title);
    if (title.bytes > 0 || previous[0] == '\0') {
        ls_text_append(text, text->bytes ? "\n" : "");
        if (title.bytes > 0) {
            ls_text_printf(text, "### %s\n", ls_text_string(&title));
        }
        ls_text_append(text, "| key | values | default | meaning |\n|---|---|---|---|\n");
    }
    ls_text_release(&title);
}

void ls_options_append_markdown(const ls_option_table *table, ls_text *text)
{
    const char *previous = "";
    ls_text range = {0};
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        append_markdown_title(table, previous, option->key, text);
        ls_text_clear(&range);
        ls_options_append_range(option, &range);
        ls_text_printf(text, "| `%s` | ", option->key);
        append_cell(text, ls_text_string(&range));
        ls_text_printf(text, " | `%s` | ", option->default_text);
        append_cell(text, option->help);
        ls_text_append(text, " |\n");
        previous = option->key;
    }
    ls_text_release(&range);
}

/* ---- the table itself ---- */

static size_t type_bytes(ls_option_type type)
{
    static const size_t bytes[] = {
        [LS_OPTION_U64] = sizeof(uint64_t),
        [LS_OPTION_F64] = sizeof(double),
        [LS_OPTION_BOOL] = sizeof(bool),
        [LS_OPTION_SWITCH] = sizeof(int),
        [LS_OPTION_STRING] = sizeof(const char *),
        [LS_OPTION_CHOICE] = sizeof(int),
        [LS_OPTION_STRINGS] = sizeof(ls_option_strings),
        [LS_OPTION_WEIGHTED] = sizeof(ls_option_weighted_list),
        [LS_OPTION_DURATION] = sizeof(double),
        [LS_OPTION_BYTES] = sizeof(uint64_t),
        [LS_OPTION_QUANTITY] = sizeof(double),
    };
    return bytes[type];
}

/* A section must not appear again after it has ended: the YAML would contain it twice. */
static void check_sections_whole(const ls_option_table *table, size_t index)
{
    const char *key = table->options[index].key;
    const size_t shared = index ? shared_sections(table->options[index - 1].key, key) : 0;
    for (const char *dot = strchr(key + shared, '.'); dot; dot = strchr(dot + 1, '.')) {
        for (size_t i = 0; i < index; i++) {
            LS_ASSERT(strncmp(table->options[i].key, key, (size_t)(dot - key) + 1) != 0);
        }
    }
}

void ls_options_check(const ls_option_table *table, size_t settings_bytes)
{
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        LS_ASSERT(option->key && option->key[0] && option->default_text && option->help && option->help[0]);
        LS_ASSERT(option->offset + type_bytes(option->type) <= settings_bytes);
        LS_ASSERT((option->type == LS_OPTION_CHOICE) == (option->choices != NULL));
        LS_ASSERT(option->min <= option->max && (!option->allow_auto || option->min >= 0.0));
        LS_ASSERT(ls_options_find(table, option->key) == option);
        check_sections_whole(table, i);
    }
}
