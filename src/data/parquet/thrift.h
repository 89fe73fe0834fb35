// SPDX-License-Identifier: Apache-2.0
/*
 * Reads Thrift's compact protocol, in which the metadata of Parquet files is written.
 *
 * A reader never passes its end. The first thing that cannot be makes it `bad`: from then on there
 * are no more fields, numbers are 0 and strings are empty, so that one check after a structure is
 * enough. Source: github.com/apache/thrift, doc/specs/thrift-compact-protocol.md.
 */
#ifndef LS_DATA_PARQUET_THRIFT_H
#define LS_DATA_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_thrift {
    const unsigned char *at, *end;
    bool bad;
} ls_thrift;

/* A field of a structure, all zero before the first. Of a list: its elements have type `type`. */
typedef struct ls_thrift_field {
    int32_t id;
    uint8_t type;
} ls_thrift_field;

/* Moves to the next field of a structure; false at its end. Each field is then read or skipped. */
bool ls_thrift_next(ls_thrift *thrift, ls_thrift_field *field);

void ls_thrift_skip(ls_thrift *thrift, const ls_thrift_field *field);
/* A whole number of any width. */
int64_t ls_thrift_int(ls_thrift *thrift, const ls_thrift_field *field);
bool ls_thrift_bool(ls_thrift *thrift, const ls_thrift_field *field);
/* Bytes of the input. */
const char *ls_thrift_string(ls_thrift *thrift, const ls_thrift_field *field, size_t *bytes_out);
/* Begins a structure: true if the field is one. */
bool ls_thrift_struct(ls_thrift *thrift, const ls_thrift_field *field);
/* Begins a list, and returns how many elements follow, at most one per byte that is left. */
uint32_t ls_thrift_list(ls_thrift *thrift, const ls_thrift_field *field, ls_thrift_field *element_out);

/* Reads a field if it is one of the numbers and booleans that are wanted: numbers[id] is where it
 * goes, NULL for the others (count of both). Returns whether it was. */
bool ls_thrift_number(ls_thrift *thrift, const ls_thrift_field *field, int64_t *const *numbers, int count);
/* All of them in a structure, whose other fields are skipped. */
void ls_thrift_numbers(ls_thrift *thrift, const ls_thrift_field *field, int64_t *const *numbers, int count);

/* An unsigned number in groups of 7 bits, at most 64. */
uint64_t ls_thrift_varint(ls_thrift *thrift);
/* A signed one. */
int64_t ls_thrift_zigzag(ls_thrift *thrift);

#endif
