// SPDX-License-Identifier: Apache-2.0
/*
 * Unpacks Snappy, the compression that most Parquet files have.
 *
 * Source of the format: github.com/google/snappy, format_description.txt. Pure and thread-safe.
 */
#ifndef LS_DATA_PARQUET_SNAPPY_H
#define LS_DATA_PARQUET_SNAPPY_H

#include <stdbool.h>
#include <stddef.h>

/* Unpacks to exactly `bytes` bytes. False if the input is damaged, or holds another number. */
bool ls_snappy_unpack(const unsigned char *packed, size_t packed_bytes, unsigned char *to, size_t bytes);

#endif
