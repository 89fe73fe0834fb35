// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of comma-separated values (RFC 4180), as people and spreadsheets write them.
 *
 * The first row names the columns. A cell in double quotes may hold commas, line ends and doubled
 * quotes. Blanks around a cell are removed; lines that are empty or begin with # are skipped; \r\n
 * and a byte order mark are accepted. Every row has as many cells as the header.
 *
 * Errors name file, line and column: "hardware.csv:12: tdp_w is "much", a number from 0 to 1e+06 is
 * needed".
 *
 * Pure; thread-safe for separate tables. All strings live in the arena.
 */
#ifndef LS_BASE_CSV_H
#define LS_BASE_CSV_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_csv_row {
    uint32_t line; /* first line of the row, counted from 1 */
    const char **cells;
    /* Set by ls_csv_parse_rows: why this row can't be read (its cells are then invalid); NULL:
     * the row is good. */
    const char *flaw;
} ls_csv_row;

typedef struct ls_csv {
    const char *name; /* name of the file, for messages */
    const char **columns;
    uint32_t column_count;
    ls_csv_row *rows;
    size_t row_count;
} ls_csv;

/* Parses a table. Errors: LS_ERR_DATA (an open quote, a row whose number of cells differs from
 * the header's, a column that appears twice, no header); csv_out is then untouched. */
LS_MUST_CHECK ls_status ls_csv_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                     ls_csv *csv_out);

/* The same for tables that other programs wrote: a row that can't be read gets a `flaw`, and
 * parsing continues on the next line; columns may lack a name. Errors: LS_ERR_DATA, for the
 * header only. */
LS_MUST_CHECK ls_status ls_csv_parse_rows(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                          ls_csv *csv_out);

/* Index of a column, -1 if the table has none of that name. */
int ls_csv_column(const ls_csv *csv, const char *column);

/* The cell of a column; "" when it is blank or there is no such column. */
const char *ls_csv_text(const ls_csv *csv, const ls_csv_row *row, const char *column);

/* A number in [min, max]; `blank` if the cell is blank or the column is missing. Errors:
 * LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_csv_f64(const ls_csv *csv, const ls_csv_row *row, const char *column, double min,
                                   double max, double blank, double *value_out);
/* The same for a whole number. */
LS_MUST_CHECK ls_status ls_csv_i64(const ls_csv *csv, const ls_csv_row *row, const char *column, int64_t min,
                                   int64_t max, int64_t blank, int64_t *value_out);

#endif
