// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.h"

#include <string.h>

#define ESCAPE '\033'
#define KEPT   "\n\t\r"

typedef enum verdict { WHOLE, CUT, OTHER } verdict;

/* Whether `data` begins with an allowed sequence. bytes_out: its length. */
static verdict look_at_sequence(const char *data, size_t bytes, size_t *bytes_out)
{
    if (bytes < 2) {
        return CUT;
    }
    if (data[1] != '[') {
        return OTHER;
    }
    for (size_t i = 2; i < sizeof((ls_terminal){0}.held); i++) {
        if (i == bytes) {
            return CUT;
        }
        if (data[i] == 'm' || data[i] == 'K') {
            *bytes_out = i + 1;
            return WHOLE;
        }
        if (!(data[i] >= '0' && data[i] <= '9') && data[i] != ';' && data[i] != ':') {
            return OTHER;
        }
    }
    return OTHER;
}

/* Number of bytes at the end of `data` that begin a character without completing it. */
static size_t cut_character(const char *data, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        const unsigned char c = (unsigned char)data[bytes - back];
        if (c >= 0xC0) {
            const size_t whole = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
            return whole > back ? back : 0;
        }
        if (c < 0x80) {
            return 0;
        }
    }
    return 0;
}

/* Appends everything that is complete; returns how many bytes must be kept, because they may
 * begin a sequence or a character. */
static size_t append_known(ls_terminal *terminal, const char *data, size_t bytes, ls_text *text)
{
    while (bytes > 0) {
        const char *escape = memchr(data, ESCAPE, bytes);
        const size_t plain = escape ? (size_t)(escape - data) : bytes;
        const size_t held = escape ? 0 : cut_character(data, bytes);
        ls_text_append_printable(text, data, plain - held, KEPT);
        data += plain - held;
        bytes -= plain - held;
        if (!escape) {
            return held;
        }
        size_t sequence = 1;
        const verdict v = look_at_sequence(data, bytes, &sequence);
        if (v == CUT) {
            return bytes;
        }
        if (v == WHOLE) {
            ls_text_append_bytes(text, data, sequence);
            terminal->is_colored |= data[sequence - 1] == 'm';
        } else {
            ls_text_append_printable(text, data, 1, KEPT);
        }
        data += sequence;
        bytes -= sequence;
    }
    return 0;
}

void ls_terminal_feed(ls_terminal *terminal, const char *data, size_t bytes, ls_text *text)
{
    ls_text all = {0};
    ls_text_append_bytes(&all, terminal->held, terminal->held_bytes);
    ls_text_append_bytes(&all, data, bytes);
    const size_t held = append_known(terminal, ls_text_string(&all), all.bytes, text);
    memcpy(terminal->held, ls_text_string(&all) + all.bytes - held, held);
    terminal->held_bytes = held;
    ls_text_release(&all);
}

void ls_terminal_end(ls_terminal *terminal, ls_text *text)
{
    ls_text_append_printable(text, terminal->held, terminal->held_bytes, KEPT);
    ls_text_append(text, terminal->is_colored ? "\033[0m" : "");
    *terminal = (ls_terminal){0};
}
