// SPDX-License-Identifier: Apache-2.0
/* The lockstep program: finds the command, reads its arguments, runs it, and turns the status into
 * an exit code. */
#include "base/log.h"
#include "base/text.h"
#include "cli/command_list.h"
#include "cli/help.h"
#include "cli/synonyms.h"
#include "config/run_file.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- running ---- */

static bool wants_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

/* What the program exits with when the command succeeds: wait exits as its job did. */
static int exit_code;

static ls_status run_command(const ls_command *command, int argc, char *const *argv)
{
    ls_arena arena = {0};
    ls_invocation invocation = {.arena = &arena, .exit_code = &exit_code};
    void *settings = ls_arena_alloc(&arena, command->settings_bytes);
    ls_option_table options = *command->options;
    options.hints = ls_option_synonyms;
    options.set_table = ls_options_find(&options, "set") ? ls_run_file_table() : NULL;
    ls_options_defaults(&options, settings, &arena);
    ls_option_strings words = {0};
    for (int i = 0; i < argc && invocation.trailing_count == 0; i++) {
        invocation.trailing_count = strcmp(argv[i], "--") == 0 ? (size_t)(argc - i - 1) : 0;
    }
    ls_status status = ls_options_apply_arguments(&options, settings, argc, argv, &arena, &words);
    if (status == LS_OK && (words.count < command->words_min || words.count > command->words_max)) {
        status = ls_fail(LS_ERR_INVALID, "%s arguments: usage is 'lockstep %s%s%s%s'",
                         words.count < command->words_min ? "missing" : "too many", command->name,
                         command->words[0] ? " " : "", command->words,
                         command->options->count > 0 ? " [options]" : "");
    }
    if (status == LS_OK) {
        invocation.settings = settings;
        invocation.words = words.items;
        invocation.word_count = (size_t)words.count;
        status = command->run(&invocation);
    } else {
        ls_fail_within(status, "%s", command->name);
    }
    ls_arena_release(&arena);
    return status;
}

static void print_and_release(FILE *out, ls_text *text)
{
    fputs(ls_text_string(text), out);
    ls_text_release(text);
}

static ls_status print_command_help(const ls_command *command)
{
    ls_text text = {0};
    ls_help_append_command(command, &text);
    print_and_release(stdout, &text);
    return LS_OK;
}

/* The commands that begin with the word argv[0]: `data --help`, `help data`. */
static ls_status print_group_help(int argc, char *const *argv)
{
    ls_text text = {0};
    if (!ls_help_append_group(argv[0], &text)) {
        return ls_command_unknown(argc, argv);
    }
    print_and_release(stdout, &text);
    return LS_OK;
}

/* `help`, `help --all`, `help COMMAND`: argc counts the words after `help`. */
static ls_status run_help(int argc, char *const *argv)
{
    int used = 0;
    ls_text text = {0};
    if (argc == 0) {
        ls_help_append_overview(&text);
    } else if (strcmp(argv[0], "--all") == 0) {
        ls_help_append_all(&text);
    } else {
        const ls_command *command = ls_command_find(argc, argv, &used);
        return command     ? print_command_help(command)
               : argc == 1 ? print_group_help(argc, argv)
                           : ls_command_unknown(argc, argv);
    }
    print_and_release(stdout, &text);
    return LS_OK;
}

static ls_status dispatch(int argc, char *const *argv)
{
    if (argc == 0) {
        ls_text text = {0};
        ls_help_append_overview(&text);
        print_and_release(stderr, &text);
        return ls_fail(LS_ERR_INVALID, "no command given");
    }
    if (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        return run_help(argc - 1, argv + 1);
    }
    if (strcmp(argv[0], "--version") == 0) {
        return run_command(&ls_command_version, argc - 1, argv + 1);
    }
    int used = 0;
    const ls_command *command = ls_command_find(argc, argv, &used);
    if (!command) {
        return argc > 1 && wants_help(1, argv + 1) ? print_group_help(argc, argv)
                                                   : ls_command_unknown(argc, argv);
    }
    return wants_help(argc - used, argv + used) ? print_command_help(command)
                                                : run_command(command, argc - used, argv + used);
}

/* The text may quote names of jobs and files that others chose: only what is printable passes. */
static void print_error(void)
{
    ls_text text = {0};
    ls_text_append_printable(&text, ls_error_text(), strlen(ls_error_text()), "\n\t");
    fprintf(stderr, "lockstep: %s\n", ls_text_string(&text));
    ls_text_release(&text);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    /* a file-size limit becomes an error of the write, like a full disk */
    signal(SIGXFSZ, SIG_IGN);
    const char *level = getenv("LOCKSTEP_LOG");
    const bool debug = level && strcmp(level, "debug") == 0, info = level && strcmp(level, "info") == 0;
    ls_log_init(&(ls_log_settings){.level = debug  ? LS_LOG_DEBUG
                                            : info ? LS_LOG_INFO
                                                   : LS_LOG_WARN,
                                   .rank = -1});
    ls_status status = dispatch(argc - 1, argv + 1);
    /* A reader that closed the pipe early (head) is no error. */
    if (fflush(stdout) != 0 && errno != EPIPE && status == LS_OK) {
        status = ls_fail(LS_ERR_IO, "can't write to standard output");
    }
    if (status != LS_OK && ls_error_text()[0]) {
        print_error();
    }
    return status == LS_OK ? exit_code : ls_status_exit_code(status);
}
