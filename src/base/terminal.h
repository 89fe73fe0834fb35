// SPDX-License-Identifier: Apache-2.0
/*
 * Terminal: a stream of bytes from somebody else, made harmless for the terminal that shows it.
 *
 * A terminal obeys what it is sent: it may be told to fill the clipboard, to answer, to draw over what stands there. What passes are colours
 * (ESC [ .. m) and clearing a line (ESC [ K), which progress bars need, line feeds, tabs and carriage returns; all else is shown as \xNN
 * (ls_text_append_printable). Pieces may be cut anywhere: what could be the beginning of something is held back until the rest is there.
 *
 * Pure; one owner.
 */
#ifndef LS_BASE_TERMINAL_H
#define LS_BASE_TERMINAL_H

#include "base/text.h"

typedef struct ls_terminal {
    char held[40]; /* the beginning of a sequence or of a character */
    size_t held_bytes;
    bool is_colored; /* a colour was passed that was not taken back */
} ls_terminal;

/* Appends what may be shown of the next bytes. Zero-initialise *terminal first. */
void ls_terminal_feed(ls_terminal *terminal, const char *data, size_t bytes, ls_text *text);
/* Nothing follows: what was held back, and the end of colours. */
void ls_terminal_end(ls_terminal *terminal, ls_text *text);

#endif
