// SPDX-License-Identifier: Apache-2.0
#include "base/options_unknown.h"

#include "base/arena.h"

#include <ctype.h>
#include <string.h>

/* ---- lookups ---- */

bool ls_options_is_section(const ls_option_table *table, const char *path)
{
    const size_t bytes = strlen(path);
    for (size_t i = 0; i < table->count; i++) {
        const char *key = table->options[i].key;
        if (strncmp(key, path, bytes) == 0 && key[bytes] == '.') {
            return true;
        }
    }
    return false;
}

static const char *last_word(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Distance of `known` from what was written: a misspelling in the same section, or the right
 * word in another section. */
static size_t key_distance(const char *written, const char *known, size_t limit)
{
    const size_t whole = ls_edit_distance(written, known, limit);
    const size_t word = ls_edit_distance(last_word(written), last_word(known), limit);
    return word + 1 < whole ? word + 1 : whole;
}

/* The option or section nearest to an unknown path, in `arena`; NULL if none is near. */
static const char *nearest_key(const ls_option_table *table, const char *path, ls_arena *arena)
{
    size_t best = 2 + strlen(last_word(path)) / 4;
    const char *nearest = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const char *key = table->options[i].key;
        for (const char *end = key; end; end = *end ? strchr(end + 1, '.') : NULL) {
            const size_t bytes = end == key ? strlen(key) : (size_t)(end - key);
            const char *candidate = ls_arena_strndup(arena, key, bytes);
            const size_t distance = key_distance(path, candidate, best);
            if (distance < best) {
                best = distance;
                nearest = candidate;
            }
        }
    }
    return nearest;
}

/* The only option whose last word is `word`; NULL if there is none, or several. */
static const ls_option *only_with_word(const ls_option_table *table, const char *word)
{
    const ls_option *found = NULL;
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(last_word(table->options[i].key), word) == 0) {
            if (found) {
                return NULL;
            }
            found = &table->options[i];
        }
    }
    return found;
}

/* ---- names from other programs ---- */

/* "Batch-Size" and "batch_size" are the same word. */
static bool is_same_word(const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char c = a[i] == '-' ? '_' : (char)tolower((unsigned char)a[i]);
        if (c != b[i]) {
            return false;
        }
    }
    return a[bytes] == '\0';
}

static bool has_word(const char *names, const char *word)
{
    while (*names) {
        const size_t bytes = strcspn(names, " ");
        if (is_same_word(word, names, bytes)) {
            return true;
        }
        names += bytes + (names[bytes] == ' ');
    }
    return false;
}

const ls_option_hint *ls_options_hint_for(const ls_option_hint *hints, const char *word)
{
    for (; hints && hints->names; hints++) {
        if (has_word(hints->names, word)) {
            return hints;
        }
    }
    return NULL;
}

static const ls_option_hint *find_hint(const ls_option_table *table, const char *path)
{
    /* "eval.steps" as it stands, before "steps" in any section */
    const ls_option_hint *hint = strchr(path, '.') ? ls_options_hint_for(table->hints, path) : NULL;
    hint = hint ? hint : ls_options_hint_for(table->hints, last_word(path));
    while (hint && hint->key && !ls_options_find(table, hint->key)) {
        hint = ls_options_hint_for(hint + 1, last_word(path));
    }
    return hint;
}

/* A value to show in an example: the default, unless that is no value. */
static const char *example_value(const ls_option *option)
{
    static const char *const none[] = {"auto", "[]", "\"\"", "0"};
    for (size_t i = 0; option && i < sizeof none / sizeof none[0]; i++) {
        if (strcmp(option->default_text, none[i]) == 0) {
            return "...";
        }
    }
    return option ? option->default_text : "...";
}

/* "train: {optimizer: {lr: 1.0e-3}}" for train.optimizer.lr. */
static void append_nested(const char *key, const char *value, ls_text *text)
{
    size_t depth = 0;
    for (const char *dot = strchr(key, '.'); dot; dot = strchr(key, '.'), depth++) {
        ls_text_append_bytes(text, key, (size_t)(dot - key));
        ls_text_append(text, ": {");
        key = dot + 1;
    }
    ls_text_printf(text, "%s: %s", key, value);
    ls_text_repeat(text, '}', depth);
}

/* "; use KEY (NOTE), as in EXAMPLE", or "; NOTE". */
static void append_hint(const ls_option_table *table, const ls_option_hint *hint, const char *source,
                        ls_text *text)
{
    if (!hint->key) {
        ls_text_printf(text, "; %s", hint->note);
        return;
    }
    const char *value = example_value(ls_options_find(table, hint->key));
    ls_text_printf(text, "; use %s%s%s%s, as in  ", hint->key, hint->note[0] ? " (" : "", hint->note,
                   hint->note[0] ? ")" : "");
    if (strcmp(source, "--set") == 0) {
        ls_text_printf(text, "--set %s=%s", hint->key, value);
    } else {
        append_nested(hint->key, value, text);
    }
}

/* ---- errors ---- */

static ls_status fail_with(const char *source, const char *what, const char *name, ls_text *text)
{
    const ls_status status = ls_fail(LS_ERR_INVALID, "%s%sunknown %s %.200s%s", source, source[0] ? ": " : "",
                                     what, name, ls_text_string(text));
    ls_text_release(text);
    return status;
}

/* "steps, tokens, optimizer, ...": the keys allowed directly in `section` ("" for the top). */
static void append_keys_of(const ls_option_table *table, const char *section, ls_text *text)
{
    const size_t bytes = strlen(section);
    const char *previous = "";
    size_t previous_bytes = 0;
    for (size_t i = 0; i < table->count; i++) {
        const char *key = table->options[i].key;
        if (bytes > 0 && (strncmp(key, section, bytes) != 0 || key[bytes] != '.')) {
            continue;
        }
        const char *word = key + bytes + (bytes > 0);
        const size_t word_bytes = strcspn(word, ".");
        if (word_bytes == previous_bytes && memcmp(word, previous, word_bytes) == 0) {
            continue;
        }
        ls_text_append(text, previous_bytes ? ", " : "");
        ls_text_append_bytes(text, word, word_bytes);
        previous = word;
        previous_bytes = word_bytes;
    }
}

/* The nearest key, and the keys of the section the unknown one is in. */
static void append_near(const ls_option_table *table, const char *path, bool is_item, ls_text *text)
{
    ls_arena arena = {0};
    char *section = ls_arena_strdup(&arena, path);
    char *dot = strrchr(section, '.');
    *(dot ? dot : section) = '\0';
    const char *nearest = nearest_key(table, path, &arena);
    if (nearest) {
        ls_text_printf(text, ", did you mean %s?", nearest);
    }
    if (section[0] == '\0' || ls_options_is_section(table, section)) {
        ls_text_append(text, nearest ? " Keys of " : ". Keys of ");
        ls_text_printf(text, "%s: ", section[0] ? section : is_item ? "an item" : "the top level");
        append_keys_of(table, section, text);
    }
    ls_arena_release(&arena);
}

ls_status ls_options_fail_key(const ls_option_table *table, const char *path, const char *source,
                              bool is_item)
{
    ls_text text = {0};
    const ls_option_hint *hint = find_hint(table, path);
    if (strchr(path, ':')) {
        ls_text_append(&text, "; write a space after the colon");
    } else if (hint) {
        append_hint(table, hint, source, &text);
    } else {
        append_near(table, path, is_item, &text);
    }
    return fail_with(source, "key", path, &text);
}

ls_status ls_options_fail_section(const ls_option_table *table, const char *path, const char *source)
{
    ls_text text = {0};
    append_keys_of(table, path, &text);
    const ls_status status =
        ls_fail(LS_ERR_INVALID,
                "%s: %s is a section, not a single value: write its keys under it; the possible keys are %s",
                source, path, ls_text_string(&text));
    ls_text_release(&text);
    return status;
}

static void append_nearest_option(const ls_option_table *table, const char *key, ls_text *text)
{
    ls_arena arena = {0};
    const char *nearest = nearest_key(table, key, &arena);
    ls_text_append(text, nearest ? ", did you mean --" : "; --help lists the options");
    for (; nearest && *nearest; nearest++) {
        ls_text_append_bytes(text, *nearest == '_' ? "-" : nearest, 1);
    }
    ls_text_append(text, nearest ? "?" : "");
    ls_arena_release(&arena);
}

ls_status ls_options_fail_argument(const ls_option_table *table, const char *key, const char *name)
{
    ls_text text = {0};
    const ls_option_table *set = table->set_table;
    const ls_option_hint *hint = find_hint(table, key), *set_hint = set ? find_hint(set, key) : NULL;
    const ls_option *to_set = set ? only_with_word(set, key) : NULL;
    if (hint && hint->key) {
        ls_text_append(&text, "; use ");
        ls_options_append_label(ls_options_find(table, hint->key), "--", &text);
        ls_text_printf(&text, "%s%s", hint->note[0] ? ": " : "", hint->note);
    } else if (to_set || (set_hint && set_hint->key)) {
        ls_text_printf(&text, "; use --set %s=VALUE", to_set ? to_set->key : set_hint->key);
    } else if (hint || set_hint) {
        ls_text_printf(&text, "; %s", (hint ? hint : set_hint)->note);
    } else {
        append_nearest_option(table, key, &text);
    }
    return fail_with("", "option", name, &text);
}
