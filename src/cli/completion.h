// SPDX-License-Identifier: Apache-2.0
/* Completion scripts for shells, made from the tables that --help uses. */
#ifndef LS_CLI_COMPLETION_H
#define LS_CLI_COMPLETION_H

#include "base/text.h"

/* Completion of commands, options and fixed choices; everything else completes as a file. */
void ls_completion_append_bash(ls_text *text);
void ls_completion_append_zsh(ls_text *text);

#endif
