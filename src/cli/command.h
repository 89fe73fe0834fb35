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
} ls_invocation;

typedef struct ls_command {
    const char *name;    /* "train", "checkpoint ls" */
    const char *words;   /* "CONFIG", "" for none; what stands for the words in the usage line */
    const char *summary; /* one line for the list of commands */
    const char *details; /* paragraphs for --help: what it does, what comes out, what to try next */
    size_t words_min, words_max;
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

extern const ls_command ls_command_train, ls_command_sample, ls_command_eval, ls_command_import,
    ls_command_export, ls_command_tokenize_train, ls_command_tokenize_encode, ls_command_tokenize_decode,
    ls_command_data_prepare, ls_command_state_hash, ls_command_checkpoint_ls, ls_command_checkpoint_show,
    ls_command_checkpoint_verify, ls_command_checkpoint_prune, ls_command_report, ls_command_draw,
    ls_command_bench, ls_command_version;

#endif
