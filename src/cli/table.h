// SPDX-License-Identifier: Apache-2.0
/*
 * Table: rows of words in columns for a terminal. Cells are made printable. When a row is wider
 * than the terminal, the widest columns of words are cut and end with an ellipsis; numbers are
 * never cut.
 */
#ifndef LS_CLI_TABLE_H
#define LS_CLI_TABLE_H

#include "base/arena.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { LS_TABLE_COLUMNS_MAX = 12 };

typedef struct ls_table {
    /* (columns) */
    const char *const *titles;
    /* (columns): aligned to the right, as numbers are; NULL: none */
    const bool *right;
    /* (columns): never cut; NULL: none */
    const bool *whole;
    size_t columns;
    /* holds the cells */
    ls_arena *arena;
    const char **cells;
    /* number of cells, and room for them */
    size_t count, capacity;
} ls_table;

/* Adds a cell after the last one; NULL and "" become a dash. */
void ls_table_add(ls_table *table, const char *text);
/* Adds a duration; a dash when it is not finite, 0 when it is negative. */
void ls_table_add_span(ls_table *table, double seconds);
void ls_table_printf(ls_table *table, const char *format, ...) LS_PRINTF(2, 3);

/* Appends the table, one line per row. width: of the terminal in characters, each counted as one
 * column; 0: no limit. */
void ls_table_append(const ls_table *table, size_t width, ls_text *text);

/* Prints the table on stdout, at most as wide as the terminal. */
void ls_table_print(const ls_table *table);

/* Width of the terminal on stdout; 0 when stdout is not a terminal. */
size_t ls_terminal_width(void);

#endif
