// SPDX-License-Identifier: Apache-2.0
#include "cli/help.h"

#include "cli/command_list.h"

#include <string.h>

const char ls_help_tagline[] = "train language models, exactly";

const ls_help_term ls_help_exit_codes[] = {
    {"0", "success"},
    {"1", "failure"},
    {"2", "bad usage or configuration"},
    {"3", "corrupt data"},
    {"4", "not enough memory or disk space"},
    {"5", "ranks were lost"},
    {"6", "a hang or a mismatch between ranks was diagnosed"},
    {"75", "stopped and saved; run the same command again to resume"},
    {"130", "interrupted and saved"},
    {NULL, NULL},
};

const ls_help_term ls_help_variables[] = {
    {"LOCKSTEP_HOME", "folder of the queue, the token cache and the calibration (default ~/.lockstep)"},
    {"LOCKSTEP_LOG", "how much is logged on stderr: debug or info; otherwise only warnings"},
    {"LOCKSTEP_REGISTRY",
     "folder or s3://BUCKET/PREFIX of the registry (default registry/ in LOCKSTEP_HOME)"},
    {"LOCKSTEP_TOKEN", "secret shared by the hosts of one run"},
    {"LOCKSTEP_SSH", "command that starts agents on other hosts (default ssh)"},
    {NULL, NULL},
};

void ls_help_append_overview(ls_text *text)
{
    ls_text_printf(text, "lockstep %s: %s.\n\nUsage: lockstep COMMAND [options]\n\n", LS_VERSION,
                   ls_help_tagline);
    const char *group = "";
    for (size_t i = 0; i < ls_command_list_count; i++) {
        const ls_command_entry *entry = &ls_command_list[i];
        if (entry->is_basic) {
            const bool is_first = strcmp(group, entry->group) != 0;
            ls_text_printf(text, "%-10s %-16s %s\n", is_first ? entry->group : "", entry->command->name,
                           entry->command->summary);
            group = entry->group;
        }
    }
    ls_text_append(text,
                   "\n'lockstep COMMAND --help' explains a command, 'lockstep help --all' lists all.\n");
}

static void append_terms(const char *title, const ls_help_term *terms, ls_text *text)
{
    ls_text_printf(text, "\n%s:\n", title);
    for (; terms->term; terms++) {
        ls_text_printf(text, "  %-18s %s\n", terms->term, terms->meaning);
    }
}

void ls_help_append_all(ls_text *text)
{
    ls_text_printf(text, "lockstep %s: %s.\n\nUsage: lockstep COMMAND [options]\n", LS_VERSION,
                   ls_help_tagline);
    const char *group = "";
    for (size_t i = 0; i < ls_command_list_count; i++) {
        const ls_command_entry *entry = &ls_command_list[i];
        if (!entry->group) {
            continue;
        }
        if (strcmp(group, entry->group) != 0) {
            ls_text_printf(text, "\n%s:\n", entry->group);
            group = entry->group;
        }
        ls_text_printf(text, "  %-18s %s\n", entry->command->name, entry->command->summary);
    }
    append_terms("Exit codes", ls_help_exit_codes, text);
    append_terms("Environment variables", ls_help_variables, text);
    ls_text_append(text, "\n'lockstep COMMAND --help' explains a command.\n");
}

bool ls_help_append_group(const char *word, ls_text *text)
{
    bool is_group = false;
    for (size_t i = 0; i < ls_command_list_count; i++) {
        const ls_command *command = ls_command_list[i].command;
        if (ls_command_is_in_group(command, word)) {
            if (!is_group) {
                ls_text_printf(text, "Usage: lockstep %s COMMAND [options]\n\n", word);
            }
            is_group = true;
            ls_text_printf(text, "  %-18s %s\n", command->name, command->summary);
        }
    }
    if (is_group) {
        ls_text_printf(text, "\n'lockstep %s COMMAND --help' explains a command.\n", word);
    }
    return is_group;
}

void ls_help_append_command(const ls_command *command, ls_text *text)
{
    ls_text_printf(text, "lockstep %s: %s\n\nUsage: lockstep %s%s%s%s\n\n%s\n", command->name,
                   command->summary, command->name, command->words[0] ? " " : "", command->words,
                   command->options->count > 0 ? " [options]" : "", command->details);
    if (command->options->count > 0) {
        ls_text_append(text, "\nOptions:\n");
        ls_options_append_help(command->options, "--", text);
    }
}
