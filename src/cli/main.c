// SPDX-License-Identifier: Apache-2.0
/* The lockstep program: finds the command, reads its arguments, runs it, and turns the status into an exit code. */
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ls_command *const commands[] = {
    &ls_command_plan,
    &ls_command_train,
    &ls_command_simulate,
    &ls_command_agent,
    &ls_command_resize,
    &ls_command_up,
    &ls_command_down,
    &ls_command_submit,
    &ls_command_sweep,
    &ls_command_ps,
    &ls_command_why,
    &ls_command_logs,
    &ls_command_wait,
    &ls_command_cancel,
    &ls_command_hold,
    &ls_command_release,
    &ls_command_priority,
    &ls_command_top,
    &ls_command_nodes,
    &ls_command_accounts,
    &ls_command_usage,
    &ls_command_sample,
    &ls_command_eval,
    &ls_command_import,
    &ls_command_export,
    &ls_command_tokenize_train,
    &ls_command_tokenize_encode,
    &ls_command_tokenize_decode,
    &ls_command_data_prepare,
    &ls_command_cache_ls,
    &ls_command_cache_clear,
    &ls_command_cache_verify,
    &ls_command_cache_limit,
    &ls_command_checkpoint_ls,
    &ls_command_checkpoint_show,
    &ls_command_checkpoint_verify,
    &ls_command_checkpoint_prune,
    &ls_command_checkpoint_pin,
    &ls_command_checkpoint_unpin,
    &ls_command_state_hash,
    &ls_command_replay,
    &ls_command_report,
    &ls_command_diagnose,
    &ls_command_trace,
    &ls_command_draw,
    &ls_command_calibrate,
    &ls_command_slurm_config,
    &ls_command_bench,
    &ls_command_version,
    &ls_command_rank,
    &ls_command_runner,
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

void ls_print_json(const json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', stdout);
}

/* ---- help ---- */

static void print_overview(FILE *out)
{
    fprintf(
        out,
        "lockstep %s: train language models, exactly.\n\nUsage: lockstep <command> [options]\n\nCommands:\n",
        LS_VERSION);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (!commands[i]->hidden) {
            fprintf(out, "  %-18s %s\n", commands[i]->name, commands[i]->summary);
        }
    }
    fprintf(out,
            "\n'lockstep <command> --help' explains a command. Exit codes: 0 done, 1 failed, 2 bad "
            "usage or configuration,\n"
            "3 corrupt data, 4 not enough memory or disk, 5 ranks lost, 6 diagnosed hang or mismatch, 75 "
            "stopped and saved\n(run me again), 130 interrupted and saved.\n");
}

static void print_help(const ls_command *command)
{
    ls_text text = {0};
    ls_text_printf(&text, "lockstep %s: %s\n\nUsage: lockstep %s%s%s [options]\n\n%s\n", command->name,
                   command->summary, command->name, command->words[0] ? " " : "", command->words,
                   command->details);
    if (command->options->count > 0) {
        ls_text_append(&text, "\nOptions:\n");
        ls_options_append_help(command->options, "--", &text);
    }
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
}

/* ---- finding a command ---- */

/* Number of arguments that `name` uses up ("checkpoint ls": 2), 0 when they are not it. */
static int matches_name(const char *name, int argc, char *const *argv)
{
    int used = 0;
    for (const char *at = name; *at; used++) {
        const size_t bytes = strcspn(at, " ");
        if (used >= argc || strlen(argv[used]) != bytes || strncmp(argv[used], at, bytes) != 0) {
            return 0;
        }
        at += bytes + (at[bytes] == ' ');
    }
    return used;
}

static const ls_command *find_command(int argc, char *const *argv, int *used_out)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const int used = matches_name(commands[i]->name, argc, argv);
        if (used > 0) {
            *used_out = used;
            return commands[i];
        }
    }
    return NULL;
}

static ls_status unknown_command(int argc, char *const *argv)
{
    /* A group such as `checkpoint` with a missing or wrong second word: name what the group has. */
    ls_text group = {0};
    const size_t bytes = strlen(argv[0]);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strncmp(commands[i]->name, argv[0], bytes) == 0 && commands[i]->name[bytes] == ' ') {
            ls_text_printf(&group, "%s%s", group.bytes ? ", " : "", commands[i]->name);
        }
    }
    ls_status status;
    if (group.bytes > 0) {
        status = ls_fail(LS_ERR_INVALID, "'%s%s%s' is not a command; there is: %s", argv[0],
                         argc > 1 ? " " : "", argc > 1 ? argv[1] : "", ls_text_string(&group));
    } else {
        const char *nearest = commands[0]->name;
        size_t best = 64;
        for (size_t i = 0; i < COMMAND_COUNT; i++) {
            const size_t distance = ls_edit_distance(argv[0], commands[i]->name, best);
            if (distance < best) {
                best = distance;
                nearest = commands[i]->name;
            }
        }
        status =
            ls_fail(LS_ERR_INVALID, "'%s' is not a command, did you mean '%s'? 'lockstep --help' lists all",
                    argv[0], nearest);
    }
    ls_text_release(&group);
    return status;
}

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

/* Of a command that ends as something else did (wait). */
static int exit_code;

static ls_status run_command(const ls_command *command, int argc, char *const *argv)
{
    ls_arena arena = {0};
    ls_invocation invocation = {.arena = &arena, .exit_code = &exit_code};
    void *settings = ls_arena_alloc(&arena, command->settings_bytes);
    ls_options_defaults(command->options, settings, &arena);
    ls_status status = ls_options_apply_arguments(command->options, settings, argc, argv, &arena,
                                                  &invocation.words, &invocation.word_count);
    if (status == LS_OK &&
        (invocation.word_count < command->words_min || invocation.word_count > command->words_max)) {
        status = ls_fail(LS_ERR_INVALID, "%s arguments: usage is 'lockstep %s%s%s [options]'",
                         invocation.word_count < command->words_min ? "missing" : "too many", command->name,
                         command->words[0] ? " " : "", command->words);
    }
    if (status == LS_OK) {
        invocation.settings = settings;
        status = command->run(&invocation);
    } else {
        ls_fail_within(status, "%s", command->name);
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status dispatch(int argc, char *const *argv)
{
    int used = 0;
    if (argc > 1 && strcmp(argv[0], "help") == 0) {
        const ls_command *command = find_command(argc - 1, argv + 1, &used);
        if (!command) {
            return unknown_command(argc - 1, argv + 1);
        }
        print_help(command);
        return LS_OK;
    }
    if (argc == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0 ||
        strcmp(argv[0], "help") == 0) {
        print_overview(argc == 0 ? stderr : stdout);
        return argc == 0 ? ls_fail(LS_ERR_INVALID, "no command given") : LS_OK;
    }
    if (strcmp(argv[0], "--version") == 0) {
        return run_command(&ls_command_version, argc - 1, argv + 1);
    }
    const ls_command *command = find_command(argc, argv, &used);
    if (!command) {
        return unknown_command(argc, argv);
    }
    if (wants_help(argc - used, argv + used)) {
        print_help(command);
        return LS_OK;
    }
    return run_command(command, argc - used, argv + used);
}

/* It may quote what others wrote: names of jobs, of files. */
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
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is then an error of the write, like a full disk */
    const char *level = getenv("LOCKSTEP_LOG");
    const bool debug = level && strcmp(level, "debug") == 0, info = level && strcmp(level, "info") == 0;
    ls_log_init(&(ls_log_settings){.level = debug  ? LS_LOG_DEBUG
                                            : info ? LS_LOG_INFO
                                                   : LS_LOG_WARN,
                                   .rank = -1});
    ls_status status = dispatch(argc - 1, argv + 1);
    /* Whoever read the output has seen enough (head): no error. */
    if (fflush(stdout) != 0 && errno != EPIPE && status == LS_OK) {
        status = ls_fail(LS_ERR_IO, "can't write the output");
    }
    if (status != LS_OK && ls_error_text()[0]) {
        print_error();
    }
    return status == LS_OK ? exit_code : ls_status_exit_code(status);
}
