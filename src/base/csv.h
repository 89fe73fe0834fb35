// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of comma-separated values, as people and spreadsheets write them (RFC 4180).
 *
 * The first row names the columns. A cell in double quotes may hold commas, line ends and doubled quotes. Blanks around a cell are taken off, a line that is
 * empty or begins with # is skipped, \r\n and a byte order mark are fine. Every row has as many cells as the header.
 *
 * Errors name file, line and column: "hardware.csv:12: tdp_w is "much", a number from 0 to 1e+06 is needed".
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
    uint32_t line; /* where it begins, from 1 */
    const char **cells;
    const char *
        flaw; /* of ls_csv_parse_rows: why this row can't be read, its cells are then not to be looked at; NULL: it can */
} ls_csv_row;

typedef struct ls_csv {
    const char *name; /* of the file, for messages */
    const char **columns;
    uint32_t column_count;
    ls_csv_row *rows;
    size_t row_count;
} ls_csv;

/* Errors: LS_ERR_DATA (an open quote, a row with another number of cells, a column twice, no header); csv_out is then untouched. */
LS_MUST_CHECK ls_status ls_csv_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                     ls_csv *csv_out);

/* The same for tables of others: a row that can't be read has a flaw and the next line is gone on with; a column may be without a name. Errors: LS_ERR_DATA of the header. */
LS_MUST_CHECK ls_status ls_csv_parse_rows(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                          ls_csv *csv_out);

/* The place of a column, -1 when the table has none of that name. */
int ls_csv_column(const ls_csv *csv, const char *column);

/* The cell of a column; "" when it is blank or there is no such column. */
const char *ls_csv_text(const ls_csv *csv, const ls_csv_row *row, const char *column);

/* A number in [min, max]; blank, or no such column: `blank`. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_csv_f64(const ls_csv *csv, const ls_csv_row *row, const char *column, double min,
                                   double max, double blank, double *value_out);
/* A whole number. */
LS_MUST_CHECK ls_status ls_csv_i64(const ls_csv *csv, const ls_csv_row *row, const char *column, int64_t min,
                                   int64_t max, int64_t blank, int64_t *value_out);

#endif
