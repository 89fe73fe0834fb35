// SPDX-License-Identifier: Apache-2.0
/*
 * Table: rows of words in columns for a terminal. What came from users is made printable; where a row is wider than the terminal, the widest of
 * its columns that hold words give way, and so say with an ellipsis; numbers are never cut.
 */
#ifndef LS_CLI_TABLE_H
#define LS_CLI_TABLE_H

#include "base/arena.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { LS_TABLE_COLUMNS_MAX = 12 };

typedef struct ls_table {
    const char *const *titles; /* (columns) */
    const bool *right;         /* (columns): numbers stand right; NULL: none */
    const bool *whole;         /* (columns): words that are never cut; NULL: none */
    size_t columns;
    ls_arena *arena; /* of the cells */
    const char **cells;
    size_t count, capacity; /* of cells */
} ls_table;

/* Puts one cell behind the last; NULL and "" are a dash. */
void ls_table_add(ls_table *table, const char *text);
/* Seconds for people; not finite: a dash; below 0: 0. */
void ls_table_add_span(ls_table *table, double seconds);
void ls_table_printf(ls_table *table, const char *format, ...) LS_PRINTF(2, 3);

/* Appends the table, one line per row. width: of the terminal in characters, each counted as one wide; 0: any. */
void ls_table_append(const ls_table *table, size_t width, ls_text *text);

/* Columns of the terminal that stdout is; 0 when it is none. */
size_t ls_terminal_width(void);

#endif
