// SPDX-License-Identifier: Apache-2.0
/*
 * Options: one table that fills a settings struct from defaults, a configuration file, key=value
 * overrides and the command line, checks types and ranges, prints itself as help and as a reference
 * page, and writes the settings back.
 *
 * A table has one row per option. The key's dots are the sections of the file ("train.optimizer.lr"
 * is key lr in section optimizer in section train); the row names the field of the plain settings
 * struct by its offset:
 *
 *   type                 field of the struct      in a file                       stored
 *   LS_OPTION_U64        uint64_t                 12, 1e9                         the number
 *   LS_OPTION_F64        double                   0.1, 1.0e-3, 3                  the number
 *   LS_OPTION_BOOL       bool                     true, false                     the same
 *   LS_OPTION_SWITCH     int                      true, false, auto               LS_YES, LS_NO, ..
 *   LS_OPTION_STRING     const char *             text                            "" if unset
 *   LS_OPTION_CHOICE     int                      one of `choices`                its index
 *   LS_OPTION_STRINGS    ls_option_strings        [a, b] or a                     order is kept
 *   LS_OPTION_WEIGHTED   ls_option_weighted_list  [a, {path: b, weight: 2}] or a  weight 0: none
 *   LS_OPTION_DURATION   double                   90, 90s, 1h30m, 2d, 2w, 500ms   seconds
 *   LS_OPTION_BYTES      uint64_t                 4096, 64MiB, 1.5GB, 2G (= GiB)  bytes
 *   LS_OPTION_QUANTITY   double                   200e9, 200B, 1.4T, 8k (= 8000)  the number
 *
 * U64 is at most LS_OPTION_U64_MAX, F64 finite, and a string never NULL. The index of a CHOICE lets
 * its field be an enum.
 *
 * U64 and F64 also accept k, M, B or T after the number ("8k" is 8000), and choices are accepted in
 * capitals ("FP8").
 *
 * With `allow_auto`, the word auto is stored as LS_AUTO_U64 (U64 and BYTES) or LS_AUTO_F64 (F64,
 * DURATION and QUANTITY); their ranges begin at 0 or above, so these values are free. `null` in a
 * file means "the default".
 *
 * Order of use: ls_options_defaults, then any number of _apply calls; the last one wins. _apply
 * checks each single value; the table's owner checks combinations. On error the settings may hold
 * some of the new values and must be discarded.
 *
 * All errors are LS_ERR_INVALID and look like
 *   run.yaml:12: train.optimizer.lr is 7, allowed is 0 to 1
 *   run.yaml:9: unknown key train.optimiser, did you mean train.optimizer? Keys of train: steps,
 *   tokens, ...
 *
 * Strings and lists are allocated in the arena the caller gives and live as long as it does. Pure
 * apart from that; thread-safe for separate settings.
 */
#ifndef LS_BASE_OPTIONS_H
#define LS_BASE_OPTIONS_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"
#include "base/yaml.h"

#include <stdbool.h>
#include <stdint.h>

/* Programs that read JSON numbers as doubles lose precision from 2^53 on. */
#define LS_OPTION_U64_MAX 9007199254740991.0
#define LS_AUTO_U64       UINT64_MAX
#define LS_AUTO_F64       (-1.0)

enum { LS_NO = 0, LS_YES = 1, LS_AUTO = 2 }; /* values stored for LS_OPTION_SWITCH */

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
    double weight;     /* > 0, or 0 if none was given */
    const char *field; /* "" if none was given */
} ls_option_weighted;

typedef struct ls_option_weighted_list {
    ls_option_weighted *items;
    uint64_t count;
} ls_option_weighted_list;

typedef struct ls_option {
    const char *key; /* dotted; options of one section must be adjacent rows */
    ls_option_type type;
    size_t offset; /* offset of the field in the settings struct */
    /* as written in the file: "1.0e-3", "auto", "[]", "\"\"" */
    const char *default_text;
    bool allow_auto;
    double min, max; /* for numbers, durations (s) and bytes; both inclusive */
    /* LS_OPTION_STRING: an empty text on the command line is refused, because it usually comes
     * from an unset shell variable */
    bool value_needed;
    /* LS_OPTION_DURATION: a number other than 0 is refused without a unit */
    bool unit_needed;
    const char *const *choices; /* LS_OPTION_CHOICE: NULL-terminated names */
    const char *value_name;     /* placeholder of the value in help: "N", "DIR"; NULL: by type */
    char letter;                /* short form -X on the command line; 0: none */
    bool identity;              /* part of the identity of a run */
    /* part of the identity, but left out of the canonical text at its default: for rows added
     * later */
    bool identity_when_set;
    const char *help; /* one line, no full stop */
} ls_option;

/* One line of help for a section ("train.optimizer"); optional. */
typedef struct ls_option_section {
    const char *key;
    const char *help;
    /* the word auto instead of the section's keys stands for auto in each of them that takes it */
    bool allow_auto;
} ls_option_section;

/* A name that people know from other programs, for the error that an unknown key or option is
 * answered with. Plain data: nothing is renamed silently. */
typedef struct ls_option_hint {
    const char *names; /* separated by blanks; case, hyphens and underscores do not matter */
    const char *key;   /* ours; NULL: there is none */
    const char *note;  /* "" or a few words on it; without a key, why there is none */
} ls_option_hint;

/* The first hint from `hints` on that names `word`; NULL: there is none. */
const ls_option_hint *ls_options_hint_for(const ls_option_hint *hints, const char *word);

typedef struct ls_option_table {
    const ls_option *options;
    size_t count;
    const ls_option_section *sections;
    size_t section_count;
    /* Ends with an entry without names; NULL: none. A hint whose key is not in the table is
     * skipped. */
    const ls_option_hint *hints;
    /* of a command: the keys that its option --set takes; NULL: it has no such option */
    const struct ls_option_table *set_table;
} ls_option_table;

/* Stops the process if the table itself is wrong: a default that its own checks refuse, a key
 * that appears twice, a section whose rows are not adjacent, missing help. Called by the tests
 * of each table; `settings_bytes` is the size of the struct. */
void ls_options_check(const ls_option_table *table, size_t settings_bytes);

/* The row of a key, NULL if there is none. */
const ls_option *ls_options_find(const ls_option_table *table, const char *key);

/* Writes every option's default into `settings`. */
void ls_options_defaults(const ls_option_table *table, void *settings, ls_arena *arena);

/* Applies a parsed file. */
LS_MUST_CHECK ls_status ls_options_apply_document(const ls_option_table *table, void *settings,
                                                  const ls_document *doc, ls_arena *arena);

/* Applies one item of a top-level list of mappings ("offers", 3); the table's keys are relative
 * to the item. */
LS_MUST_CHECK ls_status ls_options_apply_item(const ls_option_table *table, void *settings,
                                              const ls_document *doc, const char *list, size_t index,
                                              ls_arena *arena);

/*
 * Applies one "key=value", as after --set. The value is read as in the file, except that text
 * options need no quotes ("sample.prompt=And "). `source` ("--set") begins the error text.
 */
LS_MUST_CHECK ls_status ls_options_apply_assignment(const ls_option_table *table, void *settings,
                                                    const char *assignment, const char *source,
                                                    ls_arena *arena);

/* The same with separate key and value. */
LS_MUST_CHECK ls_status ls_options_apply_value(const ls_option_table *table, void *settings, const char *key,
                                               const char *value, const char *source, ls_arena *arena);

/*
 * Reads a command line: --key VALUE, --key=VALUE, -X VALUE; a BOOL is --key or --no-key; STRINGS
 * may be repeated, each adding one item to the list. "--" ends the options; everything else is a
 * word (a command's file names), returned in order. argv[0] is the first argument, not the program.
 * Underscores in keys may be written as hyphens.
 */
LS_MUST_CHECK ls_status ls_options_apply_arguments(const ls_option_table *table, void *settings, int argc,
                                                   char *const *argv, ls_arena *arena,
                                                   ls_option_strings *words_out);

/* Appends to `text` which values are allowed, in words: "a whole number, 1 or more", "one of
 * cosine, linear". */
void ls_options_append_range(const ls_option *option, ls_text *text);

/* Appends the value of one option as it would be written in the file. */
void ls_options_append_value(const ls_option *option, const void *settings, ls_text *text);

/*
 * Appends all settings as YAML that ls_options_apply_document reads back to the same values, bit
 * for bit. With `only_identity`, only the rows marked identity: the canonical text that identifies
 * a run.
 */
void ls_options_append_yaml(const ls_option_table *table, const void *settings, bool only_identity,
                            ls_text *text);

/* Appends one option as it is typed: "-o, --output DIR" with the prefix "--", "train.steps N"
 * with "". */
void ls_options_append_label(const ls_option *option, const char *prefix, ls_text *text);

/* Appends the meaning of one option: its help, then choices, bounds and default in parentheses. */
void ls_options_append_meaning(const ls_option *option, ls_text *text);

/* Appends help for a terminal: label and meaning of each option, wrapped, grouped by section;
 * `prefix` is "--" for a command line, "" for a file. */
void ls_options_append_help(const ls_option_table *table, const char *prefix, ls_text *text);

/* Appends the same as Markdown tables: key, values, default, meaning. */
void ls_options_append_markdown(const ls_option_table *table, ls_text *text);

#endif
