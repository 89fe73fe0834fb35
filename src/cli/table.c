// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include "base/assert.h"
#include "cli/command.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void ls_table_add(ls_table *table, const char *string)
{
    if (table->count == table->capacity) {
        const size_t capacity = table->capacity > 0 ? 2 * table->capacity : 64;
        const char **cells = ls_arena_alloc(table->arena, capacity * sizeof *cells);
        if (table->count > 0) {
            memcpy(cells, table->cells, table->count * sizeof *cells);
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    ls_text text = {0};
    if (string && string[0]) {
        ls_text_append_printable(&text, string, strlen(string), "");
    } else {
        ls_text_append(&text, "-");
    }
    table->cells[table->count++] = ls_text_keep(&text, table->arena);
}

void ls_table_add_span(ls_table *table, double seconds)
{
    ls_table_add(table, isfinite(seconds) ? ls_duration_of(fmax(0.0, seconds)).text : NULL);
}

void ls_table_printf(ls_table *table, const char *format, ...)
{
    ls_text text = {0};
    va_list args;
    va_start(args, format);
    ls_text_vprintf(&text, format, args);
    va_end(args);
    ls_table_add(table, ls_text_string(&text));
    ls_text_release(&text);
}

/* Number of characters; each counts as one column. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++) {
        width += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return width;
}

/* The whole cell, or its beginning and an ellipsis. */
static void append_cut(ls_text *text, const char *cell, size_t width)
{
    if (width_of(cell) <= width) {
        ls_text_append(text, cell);
        return;
    }
    size_t bytes = 0, seen = 0;
    while (cell[bytes]) {
        const bool begins = ((unsigned char)cell[bytes] & 0xC0) != 0x80;
        if (begins && seen + 1 >= width) {
            break;
        }
        seen += begins;
        bytes++;
    }
    ls_text_append_bytes(text, cell, bytes);
    ls_text_append(text, "\u2026");
}

static bool is_right(const ls_table *table, size_t column)
{
    return table->right && table->right[column];
}

static void append_row(const ls_table *table, const char *const *row, const size_t *widths, ls_text *text)
{
    for (size_t i = 0; i < table->columns; i++) {
        const size_t own = width_of(row[i]), fill = widths[i] - (own < widths[i] ? own : widths[i]);
        ls_text_append(text, i > 0 ? "  " : "");
        ls_text_repeat(text, ' ', is_right(table, i) ? fill : 0);
        append_cut(text, row[i], widths[i]);
        ls_text_repeat(text, ' ', is_right(table, i) || i + 1 == table->columns ? 0 : fill);
    }
    ls_text_append(text, "\n");
}

/* Narrows the widest column of words by one character at a time, until the row fits or no column
 * can become narrower. */
static void narrow(const ls_table *table, size_t *widths, size_t width)
{
    enum { NARROWEST = 8 };
    size_t all = 2 * (table->columns - 1);
    for (size_t i = 0; i < table->columns; i++) {
        all += widths[i];
    }
    for (; all > width; all--) {
        size_t widest = table->columns;
        for (size_t i = 0; i < table->columns; i++) {
            const bool may_give = !is_right(table, i) && !(table->whole && table->whole[i]);
            if (may_give && widths[i] > NARROWEST &&
                (widest == table->columns || widths[i] > widths[widest])) {
                widest = i;
            }
        }
        if (widest == table->columns) {
            return;
        }
        widths[widest]--;
    }
}

void ls_table_append(const ls_table *table, size_t width, ls_text *text)
{
    LS_ASSERT(table->columns <= LS_TABLE_COLUMNS_MAX && table->count % table->columns == 0);
    size_t widths[LS_TABLE_COLUMNS_MAX];
    for (size_t i = 0; i < table->columns; i++) {
        widths[i] = width_of(table->titles[i]);
        for (size_t at = i; at < table->count; at += table->columns) {
            const size_t own = width_of(table->cells[at]);
            widths[i] = own > widths[i] ? own : widths[i];
        }
    }
    if (width > 0) {
        narrow(table, widths, width);
    }
    append_row(table, table->titles, widths, text);
    for (size_t at = 0; at < table->count; at += table->columns) {
        append_row(table, table->cells + at, widths, text);
    }
}

size_t ls_terminal_width(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void ls_table_print(const ls_table *table)
{
    ls_text text = {0};
    ls_table_append(table, ls_terminal_width(), &text);
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
}

/* ---- JSON in place of a table ---- */

void ls_print_json(const json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', stdout);
}
