// SPDX-License-Identifier: Apache-2.0
/*
 * Block: up to LS_SERIES_BLOCK_POINTS points of a series as bytes, in memory and in a store file.
 * All numbers are little-endian.
 *
 *   u32 count | u32 flags | u64 first step | f64 first time
 *   steps     nothing if each is `stride` after the one before (then u64 stride); else u32 from the
 *             first step, or u64
 *   times     nothing if none is known; else u32 milliseconds from the first time, which a clock
 *             that was set back leaves where they were
 *   values    f32 if all keep their bits that way, else f64
 *
 * Pure; thread-safe.
 */
#ifndef LS_TELEMETRY_STORE_BLOCK_H
#define LS_TELEMETRY_STORE_BLOCK_H

#include "telemetry/store/series.h"

enum { LS_BLOCK_BYTES_MAX = 24 + LS_SERIES_BLOCK_POINTS * 20 };

/* count: 1 to LS_SERIES_BLOCK_POINTS, with steps that never fall. Returns the number of bytes. */
size_t ls_points_encode(const ls_point *points, size_t count, unsigned char out[LS_BLOCK_BYTES_MAX]);

/* Returns the number of points; 0: the bytes are not a block, whose points may be anything then. */
size_t ls_points_decode(const unsigned char *data, size_t bytes, ls_point points_out[LS_SERIES_BLOCK_POINTS]);

#endif
