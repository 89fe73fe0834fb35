// SPDX-License-Identifier: Apache-2.0
#include "cli/foreign_text.h"

#include <stdio.h>
#include <unistd.h>

ls_foreign_text ls_foreign_text_begin(void)
{
    return (ls_foreign_text){.is_shown = isatty(STDOUT_FILENO) == 1};
}

bool ls_foreign_text_write(ls_foreign_text *foreign, const char *data, size_t bytes)
{
    ls_text shown = {0};
    if (foreign->is_shown) {
        ls_terminal_feed(&foreign->terminal, data, bytes, &shown);
        data = ls_text_string(&shown);
        bytes = shown.bytes;
    }
    const bool is_written = fwrite(data, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
    ls_text_release(&shown);
    return is_written;
}

void ls_foreign_text_end(ls_foreign_text *foreign)
{
    ls_text rest = {0};
    if (foreign->is_shown) {
        ls_terminal_end(&foreign->terminal, &rest);
    }
    fputs(ls_text_string(&rest), stdout);
    ls_text_release(&rest);
}
