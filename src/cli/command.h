// SPDX-License-Identifier: Apache-2.0
/*
 * Commands: one file per command, each describing itself in a row of the command table (cli/main.c).
 *
 * A command has an options table (base/options.h) that reads its arguments and prints its help, and a run function that gets the
 * filled settings. It prints results to stdout and returns a status; the error text goes to stderr and the exit code follows
 * DESIGN section 6. Only main() exits.
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
    const void *settings; /* the command's struct, filled */
    const char **words;   /* arguments that are not options */
    size_t word_count;
    ls_arena *arena; /* lives until the command returns */
    int *exit_code;  /* 0; what the program ends with instead when run returns LS_OK */
} ls_invocation;

typedef struct ls_command {
    const char *name;    /* "train", "checkpoint ls" */
    const char *words;   /* "CONFIG", "" for none; what stands for the words in the usage line */
    const char *summary; /* one line for the list of commands */
    const char *details; /* paragraphs for --help: what it does, what comes out, what to try next */
    size_t words_min, words_max;
    bool hidden; /* programs start it, people don't: not in the list */
    const ls_option_table *options;
    size_t settings_bytes;
    ls_status (*run)(const ls_invocation *invocation);
} ls_command;

/* Prints one JSON document and a newline on stdout. */
void ls_print_json(const json_t *root);

#define LS_OPTIONS(array)                                                                                    \
    {                                                                                                        \
        .options = (array), .count = sizeof(array) / sizeof((array)[0])                                      \
    }

/* Rows that several commands have; `record` is the command's settings struct with a field of the row's name. */
#define LS_ROW_JSON(record)                                                                                  \
    {                                                                                                        \
        .key = "json", .type = LS_OPTION_BOOL, .offset = offsetof(record, json), .default_text = "false",    \
        .help = "print one JSON document"                                                                    \
    }
#define LS_ROW_THREADS(record)                                                                               \
    {                                                                                                        \
        .key = "threads", .type = LS_OPTION_U64, .offset = offsetof(record, threads), .default_text = "0",   \
        .min = 0, .max = 256, .help = "0: one per core"                                                      \
    }
#define LS_ROW_TOKENIZER(record)                                                                             \
    {                                                                                                        \
        .key = "tokenizer", .type = LS_OPTION_STRING, .offset = offsetof(record, tokenizer),                 \
        .default_text = "bytes", .value_name = "FILE",                                                       \
        .help = "tokenizer.json, tokenizer.model, a folder with one, or the word bytes"                      \
    }
#define LS_ROW_OTHER_TOKENIZER(record)                                                                       \
    {                                                                                                        \
        .key = "tokenizer", .type = LS_OPTION_STRING, .offset = offsetof(record, tokenizer),                 \
        .default_text = "\"\"", .value_name = "FILE",                                                        \
        .help = "instead of the model's own; or the word bytes"                                              \
    }
#define LS_ROW_OUTPUT_DIR(record)                                                                            \
    {                                                                                                        \
        .key = "output", .letter = 'o', .type = LS_OPTION_STRING, .offset = offsetof(record, output),        \
        .default_text = "\"\"", .value_name = "DIR", .help = "where the result goes"                         \
    }

extern const ls_command ls_command_up, ls_command_down;
extern const ls_command ls_command_simulate;
extern const ls_command ls_command_train, ls_command_agent, ls_command_resize, ls_command_sample,
    ls_command_eval, ls_command_import, ls_command_export, ls_command_tokenize_train,
    ls_command_tokenize_encode, ls_command_tokenize_decode, ls_command_data_prepare, ls_command_replay,
    ls_command_state_hash, ls_command_checkpoint_ls, ls_command_checkpoint_show, ls_command_checkpoint_verify,
    ls_command_checkpoint_prune, ls_command_checkpoint_pin, ls_command_checkpoint_unpin, ls_command_report,
    ls_command_rank, ls_command_diagnose, ls_command_trace, ls_command_draw, ls_command_calibrate,
    ls_command_bench, ls_command_version, ls_command_plan, ls_command_slurm_config, ls_command_runner,
    ls_command_submit, ls_command_sweep, ls_command_ps, ls_command_why, ls_command_logs, ls_command_wait,
    ls_command_cancel, ls_command_hold, ls_command_release, ls_command_priority, ls_command_top,
    ls_command_nodes, ls_command_accounts, ls_command_usage, ls_command_cache_ls, ls_command_cache_clear,
    ls_command_cache_verify, ls_command_cache_limit;

#endif
