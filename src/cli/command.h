// SPDX-License-Identifier: Apache-2.0
/*
 * Commands: each describes itself in an ls_command, and cli/command_list.c lists them.
 *
 * A command has an options table (base/options.h), which reads its arguments and prints its help,
 * and a run function, which gets the settings filled in. It prints results to stdout and returns a
 * status; the error text goes to stderr, and the exit code follows from the status
 * (ls_status_exit_code). Only main() exits.
 *
 * Texts are written for --help, man pages and completion alike (cli/help.c, cli/manual.c):
 *   summary  what the command does, in the imperative, lower case, no full stop: "list jobs"
 *   details  paragraphs of plain sentences, at most 80 columns wide, separated by empty lines.
 *            Lines that begin with a space are kept as they are. A line "Examples:" begins the
 *            examples, indented by two spaces.
 */
#ifndef LS_CLI_COMMAND_H
#define LS_CLI_COMMAND_H

#include "base/arena.h"
#include "base/json.h"
#include "base/options.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct ls_invocation {
    /* the command's struct, filled from its options */
    const void *settings;
    /* arguments that are not options */
    const char **words;
    size_t word_count;
    /* how many of them, at the end, come after "--" */
    size_t trailing_count;
    /* lives until the command returns */
    ls_arena *arena;
    /* 0; what the program exits with instead when run returns LS_OK */
    int *exit_code;
} ls_invocation;

typedef struct ls_command {
    /* "train", "checkpoint ls" */
    const char *name;
    /* the arguments in the usage line: "CONFIG", "[FILE...]"; "" for none */
    const char *words;
    const char *summary;
    const char *details;
    size_t words_min, words_max;
    /* started by programs, not by people: in no list */
    bool hidden;
    const ls_option_table *options;
    size_t settings_bytes;
    ls_status (*run)(const ls_invocation *invocation);
} ls_command;

/* Prints one JSON document and a newline on stdout. */
void ls_print_json(const json_t *root);

/* Members of a command: its arguments besides options, and how many they may be. */
#define LS_WORDS(text, min, max) .words = (text), .words_min = (min), .words_max = (max)
/* A table of the rows in `array`; as the members of a command whose settings struct is `record`. */
#define LS_OPTIONS(array)                                                                                    \
    {                                                                                                        \
        .options = (array), .count = sizeof(array) / sizeof((array)[0])                                      \
    }
#define LS_SETTINGS(record, array)                                                                           \
    .options = &(const ls_option_table)LS_OPTIONS(array), .settings_bytes = sizeof(record)

/*
 * Rows of an options table, by type. `field` is a member of `record`, the command's settings
 * struct, and the option's key; where its name has a unit, the key comes first. Further members of
 * ls_option may follow the help. The default of a text or a list is an empty one, of a BOOL false.
 */
#define LS_ROW(record, key_, field, type_, default_, help_, ...)                                             \
    {                                                                                                        \
        .key = key_, .type = type_, .offset = offsetof(record, field), .default_text = default_,             \
        .help = help_, __VA_ARGS__                                                                           \
    }
#define LS_ROW_TEXT_OR(record, field, default_, value, help_, ...)                                           \
    LS_ROW(record, #field, field, LS_OPTION_STRING, default_, help_, .value_name = value, __VA_ARGS__)
#define LS_ROW_TEXT(record, field, value, help_, ...)                                                        \
    LS_ROW(record, #field, field, LS_OPTION_STRING, "\"\"", help_, .value_name = value, __VA_ARGS__)
#define LS_ROW_TEXTS(record, field, value, help_, ...)                                                       \
    LS_ROW(record, #field, field, LS_OPTION_STRINGS, "[]", help_, .value_name = value, __VA_ARGS__)
#define LS_ROW_BOOL(record, field, help_, ...)                                                               \
    LS_ROW(record, #field, field, LS_OPTION_BOOL, "false", help_, __VA_ARGS__)
#define LS_ROW_CHOICE(record, field, default_, choices_, help_, ...)                                         \
    LS_ROW(record, #field, field, LS_OPTION_CHOICE, default_, help_, .choices = choices_, __VA_ARGS__)
#define LS_ROW_U64(record, field, default_, min_, max_, help_, ...)                                          \
    LS_ROW(record, #field, field, LS_OPTION_U64, default_, help_, .min = min_, .max = max_, __VA_ARGS__)
#define LS_ROW_F64(record, field, default_, min_, max_, help_, ...)                                          \
    LS_ROW(record, #field, field, LS_OPTION_F64, default_, help_, .min = min_, .max = max_, __VA_ARGS__)
#define LS_ROW_DURATION(record, key_, field, default_, min_, max_, help_, ...)                               \
    LS_ROW(record, #key_, field, LS_OPTION_DURATION, default_, help_, .min = min_, .max = max_, __VA_ARGS__)
#define LS_ROW_BYTES(record, key_, field, default_, min_, max_, help_, ...)                                  \
    LS_ROW(record, #key_, field, LS_OPTION_BYTES, default_, help_, .min = min_, .max = max_, __VA_ARGS__)

/* Options that several commands have. */
#define LS_ROW_JSON(record)    LS_ROW_BOOL(record, json, "print the result as one JSON document")
#define LS_ROW_THREADS(record) LS_ROW_U64(record, threads, "0", 0, 256, "number of threads; 0: one per core")
#define LS_ROW_TOKENIZER(record)                                                                             \
    LS_ROW_TEXT_OR(                                                                                          \
        record, tokenizer, "bytes", "FILE",                                                                  \
        "the tokenizer: a tokenizer.json, a tokenizer.model, a folder with one of them, or bytes")
#define LS_ROW_OTHER_TOKENIZER(record)                                                                       \
    LS_ROW_TEXT(record, tokenizer, "FILE",                                                                   \
                "use this tokenizer (a file or folder, or bytes) instead of the model's own")
#define LS_ROW_TEMPLATE(record)                                                                              \
    LS_ROW_TEXT(                                                                                             \
        record, template, "FILE",                                                                            \
        "use this chat template (a file, or the folder of a model or run) instead of the model's own")
#define LS_ROW_TEMPLATE_DATE(record)                                                                         \
    LS_ROW_TEXT(record, template_date, "DATE",                                                               \
                "the day (YYYY-MM-DD) that the chat template sees, as in training; default: today")
#define LS_ROW_ADAPTER(record)                                                                               \
    LS_ROW_TEXT(record, adapter, "DIR",                                                                      \
                "adapter of the model: a directory written by the PEFT library, or a checkpoint of a "       \
                "run that trained one")
/* How tokens are drawn. */
#define LS_ROWS_SAMPLING(record)                                                                             \
    LS_ROW_F64(record, temperature, "0.8", 0, 100, "sampling temperature; 0: always the most likely token",  \
               .letter = 't'),                                                                               \
        LS_ROW_U64(record, top_k, "0", 0, 16777216,                                                          \
                   "choose each token among the N most likely ones; 0: among all"),                          \
        LS_ROW_F64(record, top_p, "1", 1e-6, 1,                                                              \
                   "choose each token among the most likely ones whose probabilities add up to X"),          \
        LS_ROW_U64(record, seed, "0", 0, LS_OPTION_U64_MAX, "seed of the random choice of tokens",           \
                   .letter = 's')
#define LS_ROW_FIELD(record)                                                                                 \
    LS_ROW_TEXT_OR(record, field, "text", "KEY",                                                             \
                   "key of an object (.jsonl, .json) or column of a table (.csv, .tsv) that holds the "      \
                   "document")
#define LS_ROW_OUTPUT_DIR(record)                                                                            \
    LS_ROW_TEXT(record, output, "DIR", "the folder to write the result to", .letter = 'o')

/* cli/train */
extern const ls_command ls_command_train, ls_command_new, ls_command_agent, ls_command_rank;
/* cli/models */
extern const ls_command ls_command_sample, ls_command_eval, ls_command_import, ls_command_export,
    ls_command_branch, ls_command_merge, ls_command_chat, ls_command_pull, ls_command_serve,
    ls_command_registry_add, ls_command_registry_ls, ls_command_registry_show, ls_command_registry_get,
    ls_command_registry_lineage, ls_command_registry_promote, ls_command_registry_verify,
    ls_command_registry_gc, ls_command_registry_export;
/* cli/data */
extern const ls_command ls_command_tokenize_train, ls_command_tokenize_encode, ls_command_tokenize_decode,
    ls_command_data_prepare, ls_command_data_show, ls_command_data_removed, ls_command_template,
    ls_command_cache_ls, ls_command_cache_clear, ls_command_cache_verify, ls_command_cache_limit,
    ls_command_blob_ls, ls_command_blob_get, ls_command_blob_put, ls_command_blob_cp, ls_command_blob_rm,
    ls_command_blob_bench;
/* cli/plan */
extern const ls_command ls_command_plan;
/* cli/queue */
extern const ls_command ls_command_up, ls_command_down, ls_command_submit, ls_command_sweep,
    ls_command_sweep_show, ls_command_ps, ls_command_why, ls_command_logs, ls_command_wait, ls_command_cancel,
    ls_command_hold, ls_command_release, ls_command_priority, ls_command_change, ls_command_pause,
    ls_command_resume, ls_command_drain, ls_command_undrain, ls_command_reload, ls_command_maintenance,
    ls_command_resize, ls_command_top, ls_command_nodes, ls_command_accounts, ls_command_token,
    ls_command_usage, ls_command_simulate, ls_command_slurm_config, ls_command_runner,
    ls_command_job_terminal, ls_command_run_result;
/* cli/inspect */
extern const ls_command ls_command_report, ls_command_diagnose, ls_command_trace, ls_command_replay,
    ls_command_view;
/* cli/maintain */
extern const ls_command ls_command_checkpoint_ls, ls_command_checkpoint_show, ls_command_checkpoint_verify,
    ls_command_checkpoint_prune, ls_command_checkpoint_pin, ls_command_checkpoint_unpin,
    ls_command_state_hash, ls_command_bundle, ls_command_bundle_verify, ls_command_bundle_open,
    ls_command_calibrate, ls_command_doctor, ls_command_version;
/* cli/bench */
extern const ls_command ls_command_bench;
/* cli */
extern const ls_command ls_command_manual;

#endif
