// SPDX-License-Identifier: Apache-2.0
/*
 * Terminal: makes a stream of untrusted bytes harmless for the terminal that shows it.
 *
 * A terminal obeys what it receives: bytes can fill the clipboard, make it send answers, or
 * overwrite what it shows. Allowed are colours (ESC [ .. m), clearing a line (ESC [ K), which
 * progress bars need, line feeds, tabs and carriage returns; everything else is shown as \xNN
 * (ls_text_append_printable). The stream may be cut anywhere: an incomplete sequence or character
 * is held back until the rest arrives.
 *
 * Pure; one owner.
 */
#ifndef LS_BASE_TERMINAL_H
#define LS_BASE_TERMINAL_H

#include "base/text.h"

typedef struct ls_terminal {
    char held[40]; /* the beginning of a sequence or of a character */
    size_t held_bytes;
    bool is_colored; /* a colour was set and not yet reset */
} ls_terminal;

/* Appends the harmless form of the next bytes. Zero-initialise *terminal first. */
void ls_terminal_feed(ls_terminal *terminal, const char *data, size_t bytes, ls_text *text);
/* End of the stream: appends what was held back and resets the colours. */
void ls_terminal_end(ls_terminal *terminal, ls_text *text);

#endif
