// SPDX-License-Identifier: Apache-2.0
/*
 * The encodings of Parquet: runs of levels and indices, and values.
 *
 * Decoders read one value after another from the bytes of a page and never pass their end. They
 * return false when these end too early or cannot be.
 */
#ifndef LS_DATA_PARQUET_VALUES_H
#define LS_DATA_PARQUET_VALUES_H

#include "base/text.h"
#include "data/parquet/thrift.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RLE: runs of one value, or of values of `width` bits side by side. Zero: all values are 0. */
typedef struct ls_parquet_runs {
    ls_thrift bytes;
    unsigned width; /* bits, 0 to 32 */
    uint64_t run_left;
    bool is_packed;
    uint32_t value;      /* of a run of one value */
    uint64_t packed_bit; /* of the other kind: the next bit after bytes.at */
} ls_parquet_runs;

bool ls_parquet_runs_next(ls_parquet_runs *runs, uint32_t *value_out);
/* After the last value: whether all bytes were used. */
bool ls_parquet_runs_are_done(const ls_parquet_runs *runs);

/* DELTA_BINARY_PACKED: blocks of differences. */
typedef struct ls_parquet_deltas {
    ls_thrift bytes;
    uint64_t block_values, mini_values;
    uint32_t mini_count;
    uint64_t left; /* values */
    bool is_first;
    int64_t value, delta_min;
    /* Of the current block: widths of its parts, the part, and what is left of it. */
    const unsigned char *widths;
    uint32_t mini;
    uint64_t mini_left, bit;
} ls_parquet_deltas;

typedef enum ls_parquet_encoding {
    LS_PARQUET_PLAIN = 0,
    LS_PARQUET_PLAIN_DICTIONARY = 2,
    LS_PARQUET_RLE = 3,
    LS_PARQUET_BIT_PACKED = 4,
    LS_PARQUET_DELTA_BINARY_PACKED = 5,
    LS_PARQUET_DELTA_LENGTH_BYTE_ARRAY = 6,
    LS_PARQUET_DELTA_BYTE_ARRAY = 7,
    LS_PARQUET_RLE_DICTIONARY = 8,
    LS_PARQUET_BYTE_STREAM_SPLIT = 9,
} ls_parquet_encoding;

typedef struct ls_parquet_value {
    /* Of BYTE_ARRAY: its bytes. */
    const unsigned char *data;
    size_t bytes;
    /* Of the others: the bits, extended with zeros. */
    uint64_t bits;
} ls_parquet_value;

/* The values that indices mean. */
typedef struct ls_parquet_dictionary {
    ls_parquet_value *values;
    uint32_t count;
} ls_parquet_dictionary;

/* The values of a page. */
typedef struct ls_parquet_values {
    ls_parquet_encoding encoding;
    /* Bits of a value; 0: BYTE_ARRAY. */
    unsigned value_bits;
    ls_thrift bytes;
    uint64_t bit; /* of booleans */
    /* BYTE_STREAM_SPLIT: first all lowest bytes, ...; the values, and the next one. */
    size_t split_count, split_at;
    ls_parquet_runs runs;
    ls_parquet_deltas deltas, prefixes;
    /* DELTA_BYTE_ARRAY: the value before; released by the owner. */
    ls_text previous;
    const ls_parquet_dictionary *dictionary;
} ls_parquet_values;

/* Begins with the bytes of a page; dictionary: NULL if there is none. False if they cannot begin
 * so, or the encoding is none of the list. */
bool ls_parquet_values_begin(ls_parquet_values *values, ls_parquet_encoding encoding, unsigned value_bits,
                             const ls_parquet_dictionary *dictionary, ls_thrift bytes);
bool ls_parquet_values_next(ls_parquet_values *values, ls_parquet_value *value_out);
/* After the last value: whether all bytes were used. True for encodings whose pages some programs
 * pad: all but differences. */
bool ls_parquet_values_are_done(const ls_parquet_values *values);

#endif
