// SPDX-License-Identifier: Apache-2.0
/* Help: the first screen, the list of all commands, and the help of one command. */
#ifndef LS_CLI_HELP_H
#define LS_CLI_HELP_H

#include "cli/command.h"

#include "base/text.h"

/* What the program is, in a few words. */
extern const char ls_help_tagline[];

/* Codes and names with their meanings, in order; the last entry has code or name NULL. */
typedef struct ls_help_term {
    const char *term, *meaning;
} ls_help_term;
extern const ls_help_term ls_help_exit_codes[];
extern const ls_help_term ls_help_variables[];

/* The first screen: the commands that a newcomer needs, by task; at most 25 lines. */
void ls_help_append_overview(ls_text *text);

/* Every command by task, exit codes, environment variables. */
void ls_help_append_all(ls_text *text);

/* The commands of a group, such as `checkpoint ls` and its neighbours; false if there is no group
 * of that name. */
bool ls_help_append_group(const char *word, ls_text *text);

/* One command: what it does, usage, details and examples, options. */
void ls_help_append_command(const ls_command *command, ls_text *text);

#endif
