// SPDX-License-Identifier: Apache-2.0
/* Options and commands of other programs, and ours: plain data for errors. */
#ifndef LS_CLI_SYNONYMS_H
#define LS_CLI_SYNONYMS_H

#include "base/options.h"

/* For the options of all commands: a hint counts where its option exists. */
extern const ls_option_hint ls_option_synonyms[];

/* For commands: `key` is a command or the beginning of several; the same layout. */
extern const ls_option_hint ls_command_synonyms[];

#endif
