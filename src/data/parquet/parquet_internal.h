// SPDX-License-Identifier: Apache-2.0
/* Between the files of this room. */
#ifndef LS_DATA_PARQUET_PARQUET_INTERNAL_H
#define LS_DATA_PARQUET_PARQUET_INTERNAL_H

#include "base/arena.h"
#include "data/parquet/parquet.h"
#include "data/parquet/thrift.h"
#include "data/parquet/values.h"

enum { LS_PARQUET_NODES_MAX = 4096, LS_PARQUET_DEPTH_MAX = 32, LS_PARQUET_NAME_BYTES_MAX = 1000 };

typedef enum ls_parquet_type {
    LS_PARQUET_BOOLEAN,
    LS_PARQUET_INT32,
    LS_PARQUET_INT64,
    LS_PARQUET_INT96,
    LS_PARQUET_FLOAT,
    LS_PARQUET_DOUBLE,
    LS_PARQUET_BYTES,
    LS_PARQUET_FIXED_BYTES,
    LS_PARQUET_GROUP,
} ls_parquet_type;

/* What a column means beyond its type; the numbers are those of Parquet's ConvertedType. */
typedef enum ls_parquet_meaning {
    LS_PARQUET_PLAIN_MEANING = -1,
    LS_PARQUET_TEXT = 0,
    LS_PARQUET_MAP = 1,
    LS_PARQUET_MAP_KEY_VALUE = 2,
    LS_PARQUET_LIST = 3,
    LS_PARQUET_ENUM = 4,
    LS_PARQUET_DECIMAL = 5,
    LS_PARQUET_UINT8 = 11,
    LS_PARQUET_UINT64 = 14,
    LS_PARQUET_JSON = 19,
} ls_parquet_meaning;

typedef enum ls_parquet_repetition {
    LS_PARQUET_REQUIRED,
    LS_PARQUET_OPTIONAL,
    LS_PARQUET_REPEATED,
} ls_parquet_repetition;

/* A node of the schema, which is a list of nodes, each before its children. */
typedef struct ls_parquet_node {
    const char *name;
    ls_parquet_type type;
    ls_parquet_meaning meaning;
    ls_parquet_repetition repetition;
    uint32_t children;
    /* The first node after this one and all below it. */
    uint32_t end;
    /* Definition level from which on it is there; repetition level of its elements. */
    uint16_t defined, repeated;
    /* Of a column, its number; of a group, that of the first column below that is not left out. */
    uint32_t column;
    /* No column below it can be a value of JSON. */
    bool left_out;
} ls_parquet_node;

/* A column within the current row group: the entries of its pages, one after another. */
typedef struct ls_parquet_column {
    /* "messages.list.element.role" */
    const char *path;
    const ls_parquet_node *node;
    uint8_t codec;
    /* What the footer says of this row group; null_count -1: not said. */
    int64_t entry_count, null_count;
    /* Where its next page is, and where they end, in the file. */
    uint64_t at, end;
    /* Entries that no page has had yet, and nulls so far. */
    int64_t entries_left, nulls;
    /* The page: entries that are left of it, their levels, and the values. */
    int64_t page_left;
    bool has_page;
    ls_parquet_runs repeated, defined;
    ls_parquet_values values;
    /* What the page and the dictionary own. */
    unsigned char *page, *dictionary_page;
    size_t page_capacity, dictionary_capacity;
    ls_parquet_dictionary dictionary;
    /* The entry that is next, if has_entry. */
    bool has_entry;
    uint32_t entry_repeated, entry_defined;
} ls_parquet_column;

struct ls_parquet {
    const char *path;
    ls_file_map map;
    ls_arena arena;
    /* Where the footer begins. */
    uint64_t data_end;
    ls_parquet_node *nodes;
    uint32_t node_count;
    ls_parquet_column *columns;
    uint32_t column_count;
    /* The row groups that were not read yet, in the footer. */
    ls_thrift groups;
    uint32_t groups_left;
    /* Number of the current one, counted from 1, and its rows that are left. */
    uint32_t group;
    int64_t rows_left;
    /* As the footer says; of the row groups so far. */
    int64_t row_count, rows_seen;
    /* Names of columns that are left out; values that are no text. */
    ls_text left_out;
    uint64_t binary_count;
    void *zstd;
};

/* Reads the footer. */
LS_MUST_CHECK ls_status ls_parquet_read_footer(ls_parquet *parquet);
/* Makes all columns ready for the next row group. */
LS_MUST_CHECK ls_status ls_parquet_next_group(ls_parquet *parquet);

/* Makes column->has_entry true if there is another entry in the row group. */
LS_MUST_CHECK ls_status ls_parquet_peek(ls_parquet *parquet, ls_parquet_column *column);
/* Takes the entry, whose value is in *value_out if it has one: valid until the next call. */
LS_MUST_CHECK ls_status ls_parquet_take(ls_parquet *parquet, ls_parquet_column *column,
                                        ls_parquet_value *value_out);
/* After the last row: errors if entries are left, or the count of nulls is not that of the
 * footer. */
LS_MUST_CHECK ls_status ls_parquet_end_column(ls_parquet *parquet, ls_parquet_column *column);

/* An error of one column, with its path and row group. */
ls_status ls_parquet_fail(const ls_parquet *parquet, const ls_parquet_column *column, ls_status status,
                          const char *format, ...) LS_PRINTF(4, 5);

#endif
