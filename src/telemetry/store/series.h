// SPDX-License-Identifier: Apache-2.0
/*
 * Series: the points of one metric of one run, kept so that any zoom costs the same.
 *
 *   level 2   [      256 blocks       ] ...        each span: lowest, highest, sum and number
 *   level 1   [16 blocks][16 blocks] ...           of the points below it
 *   level 0   [512 points][512 points] ...         one span for each closed block
 *   raw       closed blocks, encoded | open block  every point, never thinned
 *
 * Points are added in the order of their steps; equal steps are allowed. A step below the newest
 * one means that the run was restored from a checkpoint: ls_series_cut takes the later points away
 * first, and the caller decides. A question for columns reads whole spans as far as they lie in one
 * column, and raw points only at the borders of columns, so the extremes of a column are exactly
 * those of its raw points.
 *
 * Values that are not finite are points, too: they count in `odd`, never in low, high and sum.
 *
 * One owner. When the system has no memory left the process stops.
 */
#ifndef LS_TELEMETRY_STORE_SERIES_H
#define LS_TELEMETRY_STORE_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_SERIES_BLOCK_POINTS = 512,
    LS_SERIES_FANOUT = 16, /* spans of a level under one of the next */
    LS_SERIES_LEVELS = 6,
};

typedef struct ls_point {
    uint64_t step;
    double value;
    double time_s; /* seconds since 1970; 0: unknown */
} ls_point;

/* Which values that are not finite a span has. */
enum { LS_ODD_NAN = 1, LS_ODD_HIGH = 2, LS_ODD_LOW = 4 };

/* What is known of neighbouring points. count 0 and odd 0: there are none. */
typedef struct ls_steps_span {
    uint64_t first_step, last_step;
    double low, high, sum; /* of the finite points; count 0: 0 */
    uint64_t count, odd;   /* points that are finite, and that are not */
    uint32_t odd_kinds;    /* LS_ODD_... */
} ls_steps_span;

/* A closed block: block.h has its format. */
typedef struct ls_series_block {
    unsigned char *data;
    uint32_t bytes;
} ls_series_block;

/* Zero-initialised: empty and valid. */
typedef struct ls_series {
    ls_series_block *blocks;
    ls_steps_span *levels[LS_SERIES_LEVELS];
    size_t counts[LS_SERIES_LEVELS], capacities[LS_SERIES_LEVELS]; /* counts[0]: number of blocks */
    size_t block_capacity;
    ls_point *open;
    size_t open_count, open_capacity;
    uint64_t points; /* in all */
    ls_point last;   /* the newest one */
    size_t bytes;    /* of its closed blocks */
} ls_series;

void ls_series_release(ls_series *series);

/* The step must not be below series->last.step, unless the series is empty. */
void ls_series_add(ls_series *series, const ls_point *point);

/* Closes the open block, even if it has few points. */
void ls_series_close(ls_series *series);

/* Takes away all points with a step above `last_step`. Returns how many there were. */
uint64_t ls_series_cut(ls_series *series, uint64_t last_step);

/* Step of the first point; 0 when there is none. */
uint64_t ls_series_first_step(const ls_series *series);

/*
 * Sorts the points with steps from `from` to `to` into columns of `width` steps each (>= 1): a
 * point of step s belongs to column (s - from) / width. columns_out: as many as there are
 * such columns, ls_columns_count(from, to, width).
 */
void ls_series_columns(const ls_series *series, uint64_t from, uint64_t to, uint64_t width,
                       ls_steps_span *columns_out);

/* The smallest width with which the steps from `from` to `to` fill at most `most` columns (>= 1),
 * and the number of columns of a width. */
uint64_t ls_columns_width(uint64_t from, uint64_t to, size_t most);
size_t ls_columns_count(uint64_t from, uint64_t to, uint64_t width);

#endif
