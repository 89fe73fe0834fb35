// SPDX-License-Identifier: Apache-2.0
/* All commands, in the order in which help lists them. */
#ifndef LS_CLI_COMMAND_LIST_H
#define LS_CLI_COMMAND_LIST_H

#include "cli/command.h"

typedef struct ls_command_entry {
    /* the task it belongs to: "Train"; entries of one group follow each other. NULL: hidden */
    const char *group;
    const ls_command *command;
    /* on the first screen, which a newcomer sees */
    bool is_basic;
} ls_command_entry;

extern const ls_command_entry ls_command_list[];
extern const size_t ls_command_list_count;

/*
 * The command whose name the arguments begin with; NULL when there is no such command.
 * used_out: how many arguments the name takes ("checkpoint ls": 2); untouched on NULL.
 */
const ls_command *ls_command_find(int argc, char *const *argv, int *used_out);

/* Whether the command is one of the group `word`: "checkpoint ls" of "checkpoint". */
bool ls_command_is_in_group(const ls_command *command, const char *word);

/* The error for arguments that name no command: what the group has ("checkpoint"), our name for
 * that of another program, or the nearest name. argc >= 1. */
LS_MUST_CHECK ls_status ls_command_unknown(int argc, char *const *argv);

#endif
