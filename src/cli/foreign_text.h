// SPDX-License-Identifier: Apache-2.0
/*
 * Foreign text: what jobs, models and templates write, on standard output.
 *
 * On a terminal only colours of it take effect (base/terminal.h); a file or a pipe gets every byte.
 * One owner.
 */
#ifndef LS_CLI_FOREIGN_TEXT_H
#define LS_CLI_FOREIGN_TEXT_H

#include "base/terminal.h"

#include <stdbool.h>

typedef struct ls_foreign_text {
    ls_terminal terminal;
    bool is_shown; /* on a terminal */
} ls_foreign_text;

ls_foreign_text ls_foreign_text_begin(void);
/* Prints the next bytes at once. False: standard output can't be written any more. */
bool ls_foreign_text_write(ls_foreign_text *foreign, const char *data, size_t bytes);
/* Prints what was held back, and resets the colours. */
void ls_foreign_text_end(ls_foreign_text *foreign);

#endif
