// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include "base/assert.h"
#include "base/options_unknown.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * Source of a value, for the error text: "run.yaml:12" from a document, "--set" or "command line"
 * otherwise.
 */
typedef struct source {
    const char *text;
    /* an item of a list: the table's keys are relative to the item, not to the top of the
     * document */
    bool is_item;
    ls_arena *arena;
} source;

/* ---- lookups ---- */

const ls_option *ls_options_find(const ls_option_table *table, const char *key)
{
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->options[i].key, key) == 0) {
            return &table->options[i];
        }
    }
    return NULL;
}

static void *field_of(const ls_option *option, void *settings)
{
    return (char *)settings + option->offset;
}

/* ---- units ---- */

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit duration_units[] = {{"ms", 1e-3},   {"s", 1.0},      {"m", 60.0}, {"h", 3600.0},
                                      {"d", 86400.0}, {"w", 604800.0}, {0}};
static const unit byte_units[] = {
    {"B", 1.0},
    {"kB", 1e3},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"K", 1024.0},
    {"M", 1048576.0},
    {"G", 1073741824.0},
    {"T", 1099511627776.0},
    {0},
};

static const unit *find_unit(const unit *units, const char *name, size_t bytes)
{
    for (; units->name; units++) {
        if (strlen(units->name) == bytes && memcmp(units->name, name, bytes) == 0) {
            return units;
        }
    }
    return NULL;
}

/* Sum of "number unit" terms: "1h30m". A number alone has factor 1. False when the text is
 * something else. */
static bool parse_units(const char *text, const unit *units, double *value_out)
{
    double total = 0.0;
    const char *at = text;
    do {
        if (*at < '0' || *at > '9') {
            return false;
        }
        char *end = NULL;
        const double number = strtod(at, &end);
        const size_t letters = strcspn(end, "0123456789. ");
        const unit *found = find_unit(units, end, letters);
        if (!found && (letters > 0 || at != text)) {
            return false;
        }
        total += number * (found ? found->factor : 1.0);
        at = end + letters;
    } while (*at);
    *value_out = total;
    return isfinite(total);
}

/* ---- reading one value ---- */

static void append_json(const json_t *value, ls_text *text)
{
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (dump) {
        ls_text_append_bytes(text, dump, strnlen(dump, 60));
        ls_text_append(text, strlen(dump) > 60 ? "..." : "");
        free(dump);
    }
}

/* What to change in a value of the wrong kind: "5" in quotes is text, and so is the word yes. */
static const char *remedy_of(const ls_option *option, const json_t *value)
{
    const char *text = json_string_value(value);
    char *end = NULL;
    if (!text || !text[0]) {
        return "";
    }
    if (option->type == LS_OPTION_BOOL || option->type == LS_OPTION_SWITCH) {
        const bool is_quoted = strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0;
        const bool is_other = strcasecmp(text, "yes") == 0 || strcasecmp(text, "on") == 0 ||
                              strcasecmp(text, "no") == 0 || strcasecmp(text, "off") == 0;
        return is_quoted ? "; remove the quotes" : is_other ? "; yes, no, on and off are text in YAML" : "";
    }
    (void)strtod(text, &end);
    return *end == '\0' && option->type != LS_OPTION_CHOICE ? "; remove the quotes" : "";
}

/* "<source>: <key> is <value seen>, allowed is <range>; <what to change>". */
static ls_status fail_value(const ls_option *option, const json_t *value, source from)
{
    ls_text seen = {0}, range = {0};
    if (json_is_object(value)) {
        ls_text_append(&seen, "a section");
    } else {
        append_json(value, &seen);
    }
    ls_options_append_range(option, &range);
    const ls_status status = ls_fail(LS_ERR_INVALID, "%s: %s is %s, allowed is %s%s", from.text, option->key,
                                     ls_text_string(&seen), ls_text_string(&range), remedy_of(option, value));
    ls_text_release(&seen);
    ls_text_release(&range);
    return status;
}

static bool is_auto(const ls_option *option, const json_t *value)
{
    return option->allow_auto && json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

static bool in_range(const ls_option *option, double number)
{
    return isfinite(number) && number >= option->min && number <= option->max;
}

/* A number, optionally followed by k, M, B or T; NAN: neither. A number in quotes is text. */
static double read_number(const json_t *value)
{
    const char *text = json_string_value(value);
    double number = NAN;
    if (!text) {
        return json_is_number(value) ? json_number_value(value) : NAN;
    }
    const bool has_unit = text[0] && isalpha((unsigned char)text[strlen(text) - 1]);
    return has_unit && ls_quantity_parse(text, &number) ? number : NAN;
}

static ls_status read_u64(const ls_option *option, void *field, const json_t *value, source from)
{
    if (is_auto(option, value)) {
        *(uint64_t *)field = LS_AUTO_U64;
        return LS_OK;
    }
    double number = read_number(value);
    if (option->type == LS_OPTION_BYTES && json_is_string(value) &&
        !parse_units(json_string_value(value), byte_units, &number)) {
        number = NAN;
    }
    if (!in_range(option, number) || number != floor(number) || number > LS_OPTION_U64_MAX) {
        return fail_value(option, value, from);
    }
    *(uint64_t *)field = (uint64_t)number;
    return LS_OK;
}

static ls_status read_f64(const ls_option *option, void *field, const json_t *value, source from)
{
    if (is_auto(option, value)) {
        *(double *)field = LS_AUTO_F64;
        return LS_OK;
    }
    double number = read_number(value);
    if (option->type == LS_OPTION_DURATION && json_is_string(value) &&
        !parse_units(json_string_value(value), duration_units, &number)) {
        number = NAN;
    }
    if (option->unit_needed && json_is_number(value) && number != 0.0) {
        number = NAN;
    }
    if (option->type == LS_OPTION_QUANTITY && json_is_string(value) &&
        !ls_quantity_parse(json_string_value(value), &number)) {
        number = NAN;
    }
    if (!in_range(option, number)) {
        return fail_value(option, value, from);
    }
    *(double *)field = number;
    return LS_OK;
}

static ls_status read_bool(const ls_option *option, void *field, const json_t *value, source from)
{
    if (!json_is_boolean(value)) {
        return fail_value(option, value, from);
    }
    *(bool *)field = json_is_true(value);
    return LS_OK;
}

static ls_status read_switch(const ls_option *option, void *field, const json_t *value, source from)
{
    const bool is_word_auto = json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
    if (!json_is_boolean(value) && !is_word_auto) {
        return fail_value(option, value, from);
    }
    *(int *)field = is_word_auto ? LS_AUTO : json_is_true(value) ? LS_YES : LS_NO;
    return LS_OK;
}

static ls_status read_string(const ls_option *option, void *field, const json_t *value, source from)
{
    if (json_is_number(value) || json_is_boolean(value)) {
        ls_text seen = {0};
        append_json(value, &seen);
        const ls_status status =
            ls_fail(LS_ERR_INVALID, "%s: %s must be text, but %s is a %s; write \"%s\" in quotes", from.text,
                    option->key, ls_text_string(&seen), json_is_number(value) ? "number" : "boolean",
                    ls_text_string(&seen));
        ls_text_release(&seen);
        return status;
    }
    if (!json_is_string(value)) {
        return fail_value(option, value, from);
    }
    *(const char **)field = ls_arena_strdup(from.arena, json_string_value(value));
    return LS_OK;
}

static ls_status read_choice(const ls_option *option, void *field, const json_t *value, source from)
{
    const char *name = json_string_value(value); /* NULL if it is not a string */
    for (int i = 0; name && option->choices[i]; i++) {
        if (strcasecmp(option->choices[i], name) == 0) {
            *(int *)field = i;
            return LS_OK;
        }
    }
    return fail_value(option, value, from);
}

/* In a list of texts, unquoted numbers and booleans are words: [sleep, 5], [run, true]. */
static ls_status read_word(const ls_option *option, const char **word, const json_t *value, source from)
{
    if (json_is_integer(value)) {
        *word = ls_arena_printf(from.arena, "%lld", (long long)json_integer_value(value));
        return LS_OK;
    }
    if (json_is_boolean(value)) {
        *word = json_is_true(value) ? "true" : "false";
        return LS_OK;
    }
    return read_string(option, word, value, from);
}

static ls_status read_strings(const ls_option *option, void *field, const json_t *value, source from)
{
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    const char **items = ls_arena_new(from.arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_word(option, &items[i], json_is_array(value) ? json_array_get(value, i) : value, from));
    }
    *(ls_option_strings *)field = (ls_option_strings){.items = items, .count = count};
    return LS_OK;
}

/* One item: a path, or {path: P, weight: W, field: F}. */
static ls_status read_weighted_item(const ls_option *option, ls_option_weighted *item, const json_t *value,
                                    source from)
{
    item->field = "";
    if (!json_is_object(value)) {
        return read_string(option, &item->path, value, from);
    }
    const json_t *path = json_object_get(value, "path"), *weight = json_object_get(value, "weight");
    const json_t *field = json_object_get(value, "field");
    const size_t known = (path != NULL) + (weight != NULL) + (field != NULL);
    if (!json_is_string(path) || json_object_size(value) != known || (field && !json_is_string(field))) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: an item of %s must be a path or {path: PATH, weight: NUMBER, field: KEY}",
                       from.text, option->key);
    }
    const double number = weight ? json_number_value(weight) : 1.0;
    if (!(number > 0.0) || number > 1e9) {
        return ls_fail(LS_ERR_INVALID, "%s: the weight of %s in %s must be a number above 0 and at most 1e9",
                       from.text, json_string_value(path), option->key);
    }
    item->path = ls_arena_strdup(from.arena, json_string_value(path));
    item->weight = weight ? number : 0.0;
    item->field = field ? ls_arena_strdup(from.arena, json_string_value(field)) : "";
    return LS_OK;
}

static ls_status read_weighted(const ls_option *option, void *field, const json_t *value, source from)
{
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    ls_option_weighted *items = ls_arena_new(from.arena, ls_option_weighted, count + 1);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_weighted_item(option, &items[i], json_is_array(value) ? json_array_get(value, i) : value,
                                  from));
    }
    *(ls_option_weighted_list *)field = (ls_option_weighted_list){.items = items, .count = count};
    return LS_OK;
}

static ls_status read_value(const ls_option *option, void *settings, const json_t *value, source from)
{
    static ls_status (*const readers[])(const ls_option *, void *, const json_t *, source) = {
        [LS_OPTION_U64] = read_u64,         [LS_OPTION_F64] = read_f64,
        [LS_OPTION_BOOL] = read_bool,       [LS_OPTION_SWITCH] = read_switch,
        [LS_OPTION_STRING] = read_string,   [LS_OPTION_CHOICE] = read_choice,
        [LS_OPTION_STRINGS] = read_strings, [LS_OPTION_WEIGHTED] = read_weighted,
        [LS_OPTION_DURATION] = read_f64,    [LS_OPTION_BYTES] = read_u64,
        [LS_OPTION_QUANTITY] = read_f64,
    };
    return readers[option->type](option, field_of(option, settings), value, from);
}

static bool holds_text(const ls_option *option)
{
    return option->type == LS_OPTION_STRING || option->type == LS_OPTION_CHOICE;
}

static bool holds_list(const ls_option *option)
{
    return option->type == LS_OPTION_STRINGS || option->type == LS_OPTION_WEIGHTED;
}

/* Reads `text` as it would stand in the file. */
static ls_status read_yaml(const ls_option *option, void *settings, const char *text, source from)
{
    ls_document doc;
    LS_TRY(ls_yaml_parse(text, strlen(text), from.text, &doc));
    const ls_status status = read_value(option, settings, doc.root, from);
    ls_document_release(&doc);
    return status;
}

/* The same, except that values of text options need no quotes. */
static ls_status read_text(const ls_option *option, void *settings, const char *text, source from)
{
    if (holds_text(option) || (holds_list(option) && text[0] != '[' && text[0] != '{')) {
        json_t *value = json_string(text);
        if (!value) {
            return ls_fail(LS_ERR_INVALID, "%s: the value of %s is not valid UTF-8", from.text, option->key);
        }
        const ls_status status = read_value(option, settings, value, from);
        json_decref(value);
        return status;
    }
    return read_yaml(option, settings, text, from);
}

/* ---- defaults ---- */

static void read_default(const ls_option *option, void *settings, ls_arena *arena)
{
    /* Defaults are written as in a file: "" and "\n" stand in quotes, and mean the same. */
    const char *text = option->default_text;
    const source from = {.text = "default", .arena = arena};
    const ls_status status = (text[0] == '"' ? read_yaml : read_text)(option, settings, text, from);
    if (status != LS_OK) {
        fprintf(stderr, "bad option table: %s\n", ls_error_text());
    }
    LS_ASSERT(status == LS_OK);
}

void ls_options_defaults(const ls_option_table *table, void *settings, ls_arena *arena)
{
    for (size_t i = 0; i < table->count; i++) {
        read_default(&table->options[i], settings, arena);
    }
}

/* ---- sections that take the word auto ---- */

static bool section_takes_auto(const ls_option_table *table, const char *path)
{
    for (size_t i = 0; i < table->section_count; i++) {
        if (strcmp(table->sections[i].key, path) == 0) {
            return table->sections[i].allow_auto;
        }
    }
    return false;
}

static bool option_takes_auto(const ls_option *option)
{
    bool takes = option->allow_auto || option->type == LS_OPTION_SWITCH;
    for (size_t i = 0; option->type == LS_OPTION_CHOICE && option->choices[i]; i++) {
        takes = takes || strcmp(option->choices[i], "auto") == 0;
    }
    return takes;
}

static ls_status apply_auto(const ls_option_table *table, void *settings, const char *path, source from)
{
    const size_t bytes = strlen(path);
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        if (strncmp(option->key, path, bytes) == 0 && option->key[bytes] == '.' &&
            option_takes_auto(option)) {
            LS_TRY(read_text(option, settings, "auto", from));
        }
    }
    return LS_OK;
}

/* ---- documents ---- */

typedef struct walk {
    const ls_option_table *table;
    void *settings;
    const ls_document *doc;
    /* path in the document to which the table's keys are relative: "" or "offers.3." */
    const char *at;
    ls_arena *arena;
} walk;

static ls_status apply_member(const walk *w, const char *path, const json_t *value);

static ls_status apply_object(const walk *w, const char *path, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        LS_TRY(apply_member(w, path[0] ? ls_arena_printf(w->arena, "%s.%s", path, key) : key, value));
    }
    return LS_OK;
}

static ls_status apply_member(const walk *w, const char *path, const json_t *value)
{
    const char *place = ls_arena_printf(w->arena, "%s%s", w->at, path);
    const source from = {
        .text = ls_arena_printf(w->arena, "%s:%d", w->doc->name, ls_document_line(w->doc, place)),
        .is_item = w->at[0] != '\0',
        .arena = w->arena,
    };
    const ls_option *option = ls_options_find(w->table, path);
    if (option) {
        if (json_is_null(value)) {
            read_default(option, w->settings, w->arena);
            return LS_OK;
        }
        return read_value(option, w->settings, value, from);
    }
    if (!ls_options_is_section(w->table, path)) {
        return ls_options_fail_key(w->table, path, from.text, from.is_item);
    }
    if (json_is_null(value)) {
        return LS_OK;
    }
    if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0 &&
        section_takes_auto(w->table, path)) {
        return apply_auto(w->table, w->settings, path, from);
    }
    if (!json_is_object(value)) {
        return ls_options_fail_section(w->table, path, from.text);
    }
    return apply_object(w, path, (json_t *)(uintptr_t)value);
}

ls_status ls_options_apply_document(const ls_option_table *table, void *settings, const ls_document *doc,
                                    ls_arena *arena)
{
    if (!json_is_object(doc->root)) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: \"key: value\" lines are expected", doc->name,
                       ls_document_line(doc, ""));
    }
    const walk w = {.table = table, .settings = settings, .doc = doc, .at = "", .arena = arena};
    return apply_object(&w, "", doc->root);
}

ls_status ls_options_apply_item(const ls_option_table *table, void *settings, const ls_document *doc,
                                const char *list, size_t index, ls_arena *arena)
{
    const char *at = ls_arena_printf(arena, "%s.%zu", list, index);
    json_t *item = json_array_get(json_object_get(doc->root, list), index);
    if (!json_is_object(item)) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: \"key: value\" lines are expected in item %zu of %s",
                       doc->name, ls_document_line(doc, at), index + 1, list);
    }
    const walk w = {.table = table,
                    .settings = settings,
                    .doc = doc,
                    .at = ls_arena_printf(arena, "%s.", at),
                    .arena = arena};
    return apply_object(&w, "", item);
}

/* ---- assignments and command lines ---- */

ls_status ls_options_apply_value(const ls_option_table *table, void *settings, const char *key,
                                 const char *value, const char *source_text, ls_arena *arena)
{
    const source from = {.text = source_text, .arena = arena};
    const ls_option *option = ls_options_find(table, key);
    if (!option && strcmp(value, "auto") == 0 && section_takes_auto(table, key)) {
        return apply_auto(table, settings, key, from);
    }
    if (!option) {
        return ls_options_is_section(table, key) ? ls_options_fail_section(table, key, source_text)
                                                 : ls_options_fail_key(table, key, source_text, false);
    }
    if (value[0] == '\0' && !holds_text(option)) {
        return ls_fail(LS_ERR_INVALID, "%s: %s has no value", source_text, key);
    }
    if (strcmp(value, "null") == 0) {
        read_default(option, settings, arena);
        return LS_OK;
    }
    return read_text(option, settings, value, from);
}

ls_status ls_options_apply_assignment(const ls_option_table *table, void *settings, const char *assignment,
                                      const char *source_text, ls_arena *arena)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        return ls_fail(LS_ERR_INVALID, "%s: \"%.100s\" is not of the form key=value", source_text,
                       assignment);
    }
    const char *key = ls_arena_strndup(arena, assignment, (size_t)(equals - assignment));
    return ls_options_apply_value(table, settings, key, equals + 1, source_text, arena);
}

/* Position in a command line. */
typedef struct arguments {
    const ls_option_table *table;
    void *settings;
    ls_arena *arena;
    char *const *argv;
    int argc;
    int at;
} arguments;

static const ls_option *find_letter(const ls_option_table *table, char letter)
{
    for (size_t i = 0; i < table->count; i++) {
        if (letter && table->options[i].letter == letter) {
            return &table->options[i];
        }
    }
    return NULL;
}

/* A repeated list option adds to the items given earlier on the command line. */
static ls_status add_string(const arguments *args, const ls_option *option, const char *value)
{
    ls_option_strings *list = field_of(option, args->settings);
    const char **items = ls_arena_new(args->arena, const char *, list->count + 2);
    if (list->count > 0) {
        memcpy(items, list->items, list->count * sizeof *items);
    }
    items[list->count] = ls_arena_strdup(args->arena, value);
    *list = (ls_option_strings){.items = items, .count = list->count + 1};
    return LS_OK;
}

/* The error lists the possible values if they are few. */
static ls_status fail_no_value(const ls_option *option, const char *name)
{
    ls_text values = {0};
    for (size_t i = 0; option->type == LS_OPTION_CHOICE && option->choices[i]; i++) {
        ls_text_printf(&values, "%s%s", i == 0 ? ": " : ", ", option->choices[i]);
    }
    const ls_status status = ls_fail(LS_ERR_INVALID, "%s needs a value%s", name, ls_text_string(&values));
    ls_text_release(&values);
    return status;
}

static ls_status apply_argument_value(arguments *args, const ls_option *option, const char *name,
                                      const char *value)
{
    if (!value) {
        if (args->at >= args->argc) {
            return fail_no_value(option, name);
        }
        value = args->argv[args->at++];
    }
    if (option->type == LS_OPTION_STRINGS) {
        return add_string(args, option, value);
    }
    if (value[0] == '\0' && (!holds_text(option) || option->value_needed)) {
        return ls_fail(LS_ERR_INVALID, "%s has no value", name);
    }
    return read_text(option, args->settings, value, (source){.text = name, .arena = args->arena});
}

static char *key_of_name(ls_arena *arena, const char *name, size_t bytes)
{
    char *key = ls_arena_strndup(arena, name, bytes);
    for (char *c = key; *c; c++) {
        *c = *c == '-' ? '_' : *c;
    }
    return key;
}

/* "--name", "--name=value" or "--no-name". */
static ls_status apply_long(arguments *args, const char *argument)
{
    const char *equals = strchr(argument, '=');
    const size_t name_bytes = equals ? (size_t)(equals - argument) : strlen(argument);
    const char *name = ls_arena_strndup(args->arena, argument, name_bytes);
    const char *key = key_of_name(args->arena, name + 2, name_bytes - 2);
    const ls_option *option = ls_options_find(args->table, key);
    bool value = true;
    if (!option && strncmp(key, "no_", 3) == 0) {
        option = ls_options_find(args->table, key + 3);
        value = false;
        if (option && option->type != LS_OPTION_BOOL) {
            option = NULL;
        }
    }
    if (!option) {
        return ls_options_fail_argument(args->table, key, name);
    }
    if (option->type == LS_OPTION_BOOL && !equals) {
        *(bool *)field_of(option, args->settings) = value;
        return LS_OK;
    }
    return apply_argument_value(args, option, name, equals ? equals + 1 : NULL);
}

/* "-X" or "-X value". */
static ls_status apply_letter(arguments *args, const char *argument)
{
    const ls_option *option = argument[2] == '\0' ? find_letter(args->table, argument[1]) : NULL;
    if (!option) {
        return ls_fail(LS_ERR_INVALID, "unknown option %s; --help lists the options", argument);
    }
    if (option->type == LS_OPTION_BOOL) {
        *(bool *)field_of(option, args->settings) = true;
        return LS_OK;
    }
    return apply_argument_value(args, option, argument, NULL);
}

ls_status ls_options_apply_arguments(const ls_option_table *table, void *settings, int argc,
                                     char *const *argv, ls_arena *arena, ls_option_strings *words_out)
{
    arguments args = {.table = table, .settings = settings, .arena = arena, .argv = argv, .argc = argc};
    ls_option_strings words = {.items = ls_arena_new(arena, const char *, (size_t)argc + 1)};
    bool options_ended = false;
    while (args.at < argc) {
        const char *argument = argv[args.at++];
        if (options_ended || argument[0] != '-' || argument[1] == '\0') {
            words.items[words.count++] = argument;
        } else if (strcmp(argument, "--") == 0) {
            options_ended = true;
        } else {
            LS_TRY(argument[1] == '-' ? apply_long(&args, argument) : apply_letter(&args, argument));
        }
    }
    *words_out = words;
    return LS_OK;
}
