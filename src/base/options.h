// SPDX-License-Identifier: Apache-2.0
/*
 * Options: one table that fills a settings struct from defaults, a configuration file, key=value overrides
 * and the command line, checks types and ranges, prints itself as help and as a reference page, and writes
 * the settings back.
 *
 * A table has one row per option. The key's dots are the sections of the file ("train.optimizer.lr" is key lr
 * in section optimizer in section train); the row names the field of the plain settings struct by its offset:
 *
 *   type                field in the struct            file text                          stored
 *   LS_OPTION_U64       uint64_t                       12, 1e9                            as is, at most
 * LS_OPTION_U64_MAX LS_OPTION_F64       double                         0.1, 1.0e-3, 3                     as
 * is, finite LS_OPTION_BOOL      bool                           true, false                        as is
 *   LS_OPTION_SWITCH    int                            true, false, auto                  LS_NO, LS_YES,
 * LS_AUTO LS_OPTION_STRING    const char *                   text                               never NULL;
 * "" when unset LS_OPTION_CHOICE    int                            one of `choices`                   its
 * index, so that an enum fits LS_OPTION_STRINGS   ls_option_strings              [a, b] or a order kept
 *   LS_OPTION_WEIGHTED  ls_option_weighted_list        [a, {path: b, weight: 2}] or a     weight 0 when not
 * given LS_OPTION_DURATION  double                         90, 90s, 1h30m, 2d, 2w, 500ms      seconds
 *   LS_OPTION_BYTES     uint64_t                       4096, 64MiB, 1.5GB, 2G (= GiB)     bytes
 *   LS_OPTION_QUANTITY  double                         200e9, 200B, 1.4T, 8k (= 8000)     as a number
 *
 * U64 and F64 take k, M, B, T behind the number too ("8k" is 8000), and a choice is found in capitals ("FP8").
 *
 * With `allow_auto`, U64 and BYTES store LS_AUTO_U64, F64, DURATION and QUANTITY LS_AUTO_F64 for the word auto (their
 * ranges begin at 0 or above, so these are free). `null` in a file means "the default".
 *
 * Order of use: ls_options_defaults, then any number of _apply calls; the last one wins. Every check of one
 * value happens in _apply; combinations of values are the owner's business. On error the settings may hold
 * some of the new values and must be thrown away.
 *
 * All errors are LS_ERR_INVALID and read like
 *   run.yaml:12: train.optimizer.lr is 7, allowed is 0 to 1
 *   run.yaml:9: unknown key train.optimiser, did you mean train.optimizer? Keys of train: steps, tokens, ...
 *
 * Strings and lists are allocated in the arena the caller gives and live as long as it does. Pure apart from
 * that; thread-safe for separate settings.
 */
#ifndef LS_BASE_OPTIONS_H
#define LS_BASE_OPTIONS_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"
#include "base/yaml.h"

#include <stdbool.h>
#include <stdint.h>

/* Whole numbers of 2^53 and above do not survive other programs' JSON. */
#define LS_OPTION_U64_MAX 9007199254740991.0
#define LS_AUTO_U64       UINT64_MAX
#define LS_AUTO_F64       (-1.0)

enum { LS_NO = 0, LS_YES = 1, LS_AUTO = 2 }; /* what LS_OPTION_SWITCH stores */

typedef enum ls_option_type {
    LS_OPTION_U64,
    LS_OPTION_F64,
    LS_OPTION_BOOL,
    LS_OPTION_SWITCH,
    LS_OPTION_STRING,
    LS_OPTION_CHOICE,
    LS_OPTION_STRINGS,
    LS_OPTION_WEIGHTED,
    LS_OPTION_DURATION,
    LS_OPTION_BYTES,
    LS_OPTION_QUANTITY,
} ls_option_type;

typedef struct ls_option_strings {
    const char **items;
    uint64_t count;
} ls_option_strings;

typedef struct ls_option_weighted {
    const char *path;
    double weight; /* > 0, or 0 when none was given */
} ls_option_weighted;

typedef struct ls_option_weighted_list {
    ls_option_weighted *items;
    uint64_t count;
} ls_option_weighted_list;

typedef struct ls_option {
    const char *key; /* dotted; options of one section stand together */
    ls_option_type type;
    size_t offset;            /* of the field in the settings struct */
    const char *default_text; /* as it would be written in the file: "1.0e-3", "auto", "[]", "\"\"" */
    bool allow_auto;
    double min, max; /* numbers, durations (s) and bytes: both inclusive */
    bool
        value_needed; /* LS_OPTION_STRING: on a command line an empty text is refused, as from a variable of the shell that is not set */
    bool unit_needed; /* LS_OPTION_DURATION: a bare number but 0 is refused, for nobody knows of what it is */
    const char *const *choices; /* LS_OPTION_CHOICE: NULL-terminated names */
    const char *value_name;     /* what stands for the value in help: "N", "DIR"; NULL: by type */
    char letter;                /* command line: also -X; 0: none */
    bool identity;              /* part of what makes two runs the same run */
    bool identity_when_set; /* but left out of the canonical text at its default: for rows that came later */
    const char *help;       /* one line, no full stop */
} ls_option;

/* A line of help for a section ("train.optimizer"). Sections without one are fine. */
typedef struct ls_option_section {
    const char *key;
    const char *help;
} ls_option_section;

typedef struct ls_option_table {
    const ls_option *options;
    size_t count;
    const ls_option_section *sections;
    size_t section_count;
} ls_option_table;

/* Stops the process when the table itself is wrong: a default that its own checks refuse, a key twice, a
 * section torn apart, missing help. Called by the tests of each table; `settings_bytes` is the size of the
 * struct. */
void ls_options_check(const ls_option_table *table, size_t settings_bytes);

/* The row of a key, NULL when there is none. */
const ls_option *ls_options_find(const ls_option_table *table, const char *key);

/* Writes every option's default into `settings`. */
void ls_options_defaults(const ls_option_table *table, void *settings, ls_arena *arena);

/* Applies a parsed file. */
LS_MUST_CHECK ls_status ls_options_apply_document(const ls_option_table *table, void *settings,
                                                  const ls_document *doc, ls_arena *arena);

/* Applies one item of a list of mappings at the top of the file ("offers", 3): the table's keys are those of the item. */
LS_MUST_CHECK ls_status ls_options_apply_item(const ls_option_table *table, void *settings,
                                              const ls_document *doc, const char *list, size_t index,
                                              ls_arena *arena);

/*
 * Applies one "key=value", as after --set. The value is read as in the file, except that options holding text
 * take it as it stands: no quotes are needed ("sample.prompt=And "). `source` ("--set") opens the error text.
 */
LS_MUST_CHECK ls_status ls_options_apply_assignment(const ls_option_table *table, void *settings,
                                                    const char *assignment, const char *source,
                                                    ls_arena *arena);

/* The same with key and value apart. */
LS_MUST_CHECK ls_status ls_options_apply_value(const ls_option_table *table, void *settings, const char *key,
                                               const char *value, const char *source, ls_arena *arena);

/*
 * Reads a command line: --key VALUE, --key=VALUE, -X VALUE; a BOOL is --key or --no-key; STRINGS may be
 * repeated, each adding one item to the list. "--" ends the options; everything else is a word (a command's
 * file names), returned in order. argv[0] is the first argument, not the program. Underscores in keys may be
 * written as hyphens.
 */
LS_MUST_CHECK ls_status ls_options_apply_arguments(const ls_option_table *table, void *settings, int argc,
                                                   char *const *argv, ls_arena *arena,
                                                   const char ***words_out, size_t *word_count_out);

/* What a value may be, in words: "a whole number, 1 or more", "one of cosine, linear". Appended to `text`. */
void ls_options_append_range(const ls_option *option, ls_text *text);

/* The value of one option as it would be written in the file, appended to `text`. */
void ls_options_append_value(const ls_option *option, const void *settings, ls_text *text);

/*
 * Appends all settings as YAML that ls_options_apply_document reads back to the same values, bit for bit.
 * With `only_identity`, the rows marked identity alone: the canonical text that names a run.
 */
void ls_options_append_yaml(const ls_option_table *table, const void *settings, bool only_identity,
                            ls_text *text);

/* Appends help for a terminal: one line per option, grouped by section; `prefix` is "--" for a command line,
 * "" for a file. */
void ls_options_append_help(const ls_option_table *table, const char *prefix, ls_text *text);

/* Appends the same as markdown tables: key, values, default, meaning. */
void ls_options_append_markdown(const ls_option_table *table, ls_text *text);

#endif
