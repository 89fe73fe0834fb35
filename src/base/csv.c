// SPDX-License-Identifier: Apache-2.0
#include "base/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    ls_arena *arena;
    const char *name;
    const char *at, *end;
    uint32_t line;
} reader;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(reader *r)
{
    while (r->at < r->end && is_blank(*r->at)) {
        r->at++;
    }
}

static void skip_line(reader *r)
{
    while (r->at < r->end && *r->at != '\n') {
        r->at++;
    }
    if (r->at < r->end) {
        r->at++;
        r->line++;
    }
}

/* Moves to the first row that is neither empty nor a comment; false at the end. */
static bool skip_to_row(reader *r)
{
    for (;;) {
        const char *start = r->at;
        skip_blanks(r);
        if (r->at >= r->end) {
            return false;
        }
        if (*r->at != '\n' && *r->at != '#') {
            r->at = start;
            return true;
        }
        skip_line(r);
    }
}

static ls_status read_quoted(reader *r, const char **cell_out)
{
    const char *stop = r->at + 1;
    while (stop < r->end && (*stop != '"' || (stop + 1 < r->end && stop[1] == '"'))) {
        stop += *stop == '"' ? 2 : 1;
    }
    if (stop >= r->end) {
        return ls_fail(LS_ERR_DATA, "%s:%u: a quote is opened and never closed", r->name, r->line);
    }
    char *cell = ls_arena_alloc(r->arena, (size_t)(stop - r->at));
    size_t bytes = 0;
    for (r->at++; r->at < stop; r->at++) {
        r->at += *r->at == '"';
        r->line += *r->at == '\n';
        cell[bytes++] = *r->at;
    }
    cell[bytes] = 0;
    r->at = stop + 1;
    *cell_out = cell;
    return LS_OK;
}

static const char *read_plain(reader *r)
{
    const char *start = r->at;
    while (r->at < r->end && *r->at != ',' && *r->at != '\n') {
        r->at++;
    }
    const char *stop = r->at;
    while (stop > start && is_blank(stop[-1])) {
        stop--;
    }
    return ls_arena_strndup(r->arena, start, (size_t)(stop - start));
}

static ls_status read_cell(reader *r, const char **cell_out)
{
    skip_blanks(r);
    if (r->at >= r->end || *r->at != '"') {
        *cell_out = read_plain(r);
        return LS_OK;
    }
    LS_TRY(read_quoted(r, cell_out));
    skip_blanks(r);
    if (r->at < r->end && *r->at != ',' && *r->at != '\n') {
        return ls_fail(LS_ERR_DATA,
                       "%s:%u: '%c' after a closing quote; a comma or the end of the line is needed", r->name,
                       r->line, *r->at);
    }
    return LS_OK;
}

/* Reads one row of at most `max` cells and returns how many it has. */
static ls_status read_row(reader *r, const char **cells, uint32_t max, uint32_t *count_out)
{
    uint32_t count = 0;
    const uint32_t line = r->line;
    for (;;) {
        if (count == max) {
            return ls_fail(LS_ERR_DATA, "%s:%u: the row has more than %u cells, the limit here", r->name,
                           line, max);
        }
        LS_TRY(read_cell(r, &cells[count]));
        count++;
        if (r->at >= r->end || *r->at == '\n') {
            break;
        }
        r->at++; /* the comma */
    }
    if (r->at < r->end) {
        r->at++;
        r->line++;
    }
    *count_out = count;
    return LS_OK;
}

enum { COLUMNS_MAX = 256 };

static ls_status read_header(reader *r, bool forgiving, ls_csv *csv)
{
    const char *cells[COLUMNS_MAX];
    if (!skip_to_row(r)) {
        return ls_fail(LS_ERR_DATA, "%s is empty; the first row must name the columns", r->name);
    }
    const uint32_t line = r->line;
    LS_TRY(read_row(r, cells, COLUMNS_MAX, &csv->column_count));
    csv->columns = ls_arena_new(r->arena, const char *, csv->column_count);
    memcpy(csv->columns, cells, csv->column_count * sizeof *cells);
    for (uint32_t i = 0; i < csv->column_count; i++) {
        if (!cells[i][0] && forgiving) {
            continue;
        }
        if (!cells[i][0]) {
            return ls_fail(LS_ERR_DATA, "%s:%u: column %u has no name", r->name, line, i + 1);
        }
        if (ls_csv_column(csv, cells[i]) != (int)i) {
            return ls_fail(LS_ERR_DATA, "%s:%u: column %s appears twice", r->name, line, cells[i]);
        }
    }
    return LS_OK;
}

static size_t count_lines(const char *text, size_t bytes)
{
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    return lines;
}

static ls_status read_cells(reader *r, const ls_csv *csv, ls_csv_row *row)
{
    uint32_t count = 0;
    row->line = r->line;
    row->cells = ls_arena_new(r->arena, const char *, csv->column_count);
    LS_TRY(read_row(r, row->cells, csv->column_count, &count));
    return count == csv->column_count
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s:%u: the row has %u cells, but the header has %u", csv->name,
                         row->line, count, csv->column_count);
}

static ls_status parse(ls_arena *arena, const char *text, size_t bytes, const char *name, bool forgiving,
                       ls_csv *csv_out)
{
    reader r = {.arena = arena, .name = name, .at = text, .end = text + bytes, .line = 1};
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        r.at += 3;
    }
    if (memchr(text, 0, bytes)) {
        return ls_fail(LS_ERR_DATA, "%s: contains a zero byte, so it is not a text file", name);
    }
    ls_csv csv = {.name = ls_arena_strdup(arena, name)};
    LS_TRY(read_header(&r, forgiving, &csv));
    csv.rows = ls_arena_new(arena, ls_csv_row, count_lines(text, bytes));
    while (skip_to_row(&r)) {
        ls_csv_row *row = &csv.rows[csv.row_count++];
        const char *start = r.at;
        const ls_status status = read_cells(&r, &csv, row);
        if (status != LS_OK && !forgiving) {
            return status;
        }
        /* an open quote may have swallowed later lines: continue with the next line */
        if (status != LS_OK) {
            row->flaw = ls_arena_strdup(arena, ls_error_text());
            ls_error_clear();
            r.at = start;
            r.line = row->line;
            skip_line(&r);
        }
    }
    *csv_out = csv;
    return LS_OK;
}

ls_status ls_csv_parse(ls_arena *arena, const char *text, size_t bytes, const char *name, ls_csv *csv_out)
{
    return parse(arena, text, bytes, name, false, csv_out);
}

ls_status ls_csv_parse_rows(ls_arena *arena, const char *text, size_t bytes, const char *name,
                            ls_csv *csv_out)
{
    return parse(arena, text, bytes, name, true, csv_out);
}

int ls_csv_column(const ls_csv *csv, const char *column)
{
    for (uint32_t i = 0; i < csv->column_count; i++) {
        if (strcmp(csv->columns[i], column) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *ls_csv_text(const ls_csv *csv, const ls_csv_row *row, const char *column)
{
    const int at = ls_csv_column(csv, column);
    return at < 0 ? "" : row->cells[at];
}

ls_status ls_csv_f64(const ls_csv *csv, const ls_csv_row *row, const char *column, double min, double max,
                     double blank, double *value_out)
{
    const char *cell = ls_csv_text(csv, row, column);
    if (!cell[0]) {
        *value_out = blank;
        return LS_OK;
    }
    char *end;
    const double value = strtod(cell, &end);
    if (*end || !isfinite(value) || value < min || value > max) {
        return ls_fail(LS_ERR_DATA, "%s:%u: %s is \"%s\", a number from %g to %g is needed", csv->name,
                       row->line, column, cell, min, max);
    }
    *value_out = value;
    return LS_OK;
}

ls_status ls_csv_i64(const ls_csv *csv, const ls_csv_row *row, const char *column, int64_t min, int64_t max,
                     int64_t blank, int64_t *value_out)
{
    double value = (double)blank;
    LS_TRY(ls_csv_f64(csv, row, column, (double)min, (double)max, (double)blank, &value));
    if (value != floor(value)) {
        return ls_fail(LS_ERR_DATA, "%s:%u: %s is %g, a whole number from %lld to %lld is needed", csv->name,
                       row->line, column, value, (long long)min, (long long)max);
    }
    *value_out = (int64_t)value;
    return LS_OK;
}
