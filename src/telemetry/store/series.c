// SPDX-License-Identifier: Apache-2.0
#include "telemetry/store/series.h"

#include "base/assert.h"
#include "telemetry/store/block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more item. */
static void *grow(void *items, size_t count, size_t *capacity, size_t bytes)
{
    if (count < *capacity) {
        return items;
    }
    *capacity = *capacity ? 2 * *capacity : 8;
    void *larger = realloc(items, *capacity * bytes);
    LS_ASSERT(larger && "not enough memory for metrics");
    return larger;
}

void ls_series_release(ls_series *series)
{
    for (size_t i = 0; i < series->counts[0]; i++) {
        free(series->blocks[i].data);
    }
    for (size_t i = 0; i < LS_SERIES_LEVELS; i++) {
        free(series->levels[i]);
    }
    free(series->blocks);
    free(series->open);
    *series = (ls_series){0};
}

/* ---- spans ---- */

static void merge_point(ls_steps_span *span, uint64_t step, double value)
{
    if (span->count + span->odd == 0) {
        *span = (ls_steps_span){.first_step = step};
    }
    span->last_step = step;
    if (!isfinite(value)) {
        span->odd++;
        span->odd_kinds |= isnan(value) ? LS_ODD_NAN : value > 0 ? LS_ODD_HIGH : LS_ODD_LOW;
        return;
    }
    span->low = span->count == 0 || value < span->low ? value : span->low;
    span->high = span->count == 0 || value > span->high ? value : span->high;
    span->sum += value;
    span->count++;
}

static void merge_span(ls_steps_span *into, const ls_steps_span *next)
{
    if (into->count + into->odd == 0) {
        *into = *next;
        return;
    }
    into->last_step = next->last_step;
    into->odd += next->odd;
    into->odd_kinds |= next->odd_kinds;
    if (next->count > 0) {
        into->low = into->count == 0 || next->low < into->low ? next->low : into->low;
        into->high = into->count == 0 || next->high > into->high ? next->high : into->high;
        into->sum += next->sum;
        into->count += next->count;
    }
}

/* ---- adding ---- */

static void push_span(ls_series *series, size_t level, const ls_steps_span *span)
{
    series->levels[level] =
        grow(series->levels[level], series->counts[level], &series->capacities[level], sizeof *span);
    series->levels[level][series->counts[level]++] = *span;
    if (level + 1 < LS_SERIES_LEVELS && series->counts[level] % LS_SERIES_FANOUT == 0) {
        ls_steps_span whole = {0};
        for (size_t i = series->counts[level] - LS_SERIES_FANOUT; i < series->counts[level]; i++) {
            merge_span(&whole, &series->levels[level][i]);
        }
        push_span(series, level + 1, &whole);
    }
}

static void close_block(ls_series *series)
{
    ls_steps_span span = {0};
    for (size_t i = 0; i < series->open_count; i++) {
        merge_point(&span, series->open[i].step, series->open[i].value);
    }
    unsigned char data[LS_BLOCK_BYTES_MAX];
    const size_t bytes = ls_points_encode(series->open, series->open_count, data);
    unsigned char *kept = malloc(bytes);
    LS_ASSERT(kept && "not enough memory for metrics");
    memcpy(kept, data, bytes);
    series->blocks = grow(series->blocks, series->counts[0], &series->block_capacity, sizeof *series->blocks);
    series->blocks[series->counts[0]] = (ls_series_block){.data = kept, .bytes = (uint32_t)bytes};
    series->bytes += bytes;
    push_span(series, 0, &span);
    series->open_count = 0;
}

void ls_series_close(ls_series *series)
{
    if (series->open_count > 0) {
        close_block(series);
    }
}

static void push_open(ls_series *series, const ls_point *point)
{
    series->open = grow(series->open, series->open_count, &series->open_capacity, sizeof *point);
    series->open[series->open_count++] = *point;
}

void ls_series_add(ls_series *series, const ls_point *point)
{
    LS_ASSERT(series->points == 0 || point->step >= series->last.step);
    if (series->open_count == LS_SERIES_BLOCK_POINTS) {
        close_block(series);
    }
    push_open(series, point);
    series->last = *point;
    series->points++;
}

/* ---- cutting back ---- */

/* Opens the last closed block again. */
static void reopen_block(ls_series *series)
{
    const ls_series_block block = series->blocks[series->counts[0] - 1];
    ls_point points[LS_SERIES_BLOCK_POINTS];
    const size_t count = ls_points_decode(block.data, block.bytes, points);
    series->open_count = 0;
    for (size_t i = 0; i < count; i++) {
        push_open(series, &points[i]);
    }
    free(block.data);
    series->bytes -= block.bytes;
    size_t left = series->counts[0] - 1;
    for (size_t level = 0; level < LS_SERIES_LEVELS; level++, left /= LS_SERIES_FANOUT) {
        series->counts[level] = left;
    }
}

uint64_t ls_series_cut(ls_series *series, uint64_t last_step)
{
    uint64_t gone = 0;
    for (;;) {
        while (series->open_count > 0 && series->open[series->open_count - 1].step > last_step) {
            series->open_count--;
            gone++;
        }
        if (series->open_count > 0 || series->counts[0] == 0) {
            break;
        }
        reopen_block(series);
    }
    series->points -= gone;
    series->last = series->open_count > 0 ? series->open[series->open_count - 1] : (ls_point){0};
    return gone;
}

uint64_t ls_series_first_step(const ls_series *series)
{
    return series->counts[0] > 0    ? series->levels[0][0].first_step
           : series->open_count > 0 ? series->open[0].step
                                    : 0;
}

/* ---- columns ---- */

size_t ls_columns_count(uint64_t from, uint64_t to, uint64_t width)
{
    return (size_t)((to - from) / width) + 1;
}

uint64_t ls_columns_width(uint64_t from, uint64_t to, size_t most)
{
    return (to - from) / most + 1;
}

typedef struct question {
    uint64_t from, to, width;
    ls_steps_span *columns;
} question;

static void sort_points(const question *q, const ls_point *points, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (points[i].step >= q->from && points[i].step <= q->to) {
            merge_point(&q->columns[(points[i].step - q->from) / q->width], points[i].step, points[i].value);
        }
    }
}

/* The whole span lies in one column. */
static bool fits(const question *q, const ls_steps_span *span)
{
    return span->first_step >= q->from && span->last_step <= q->to &&
           (span->first_step - q->from) / q->width == (span->last_step - q->from) / q->width;
}

/* Blocks under one span of a level. */
static size_t blocks_under(size_t level)
{
    size_t blocks = 1;
    for (size_t i = 0; i < level; i++) {
        blocks *= LS_SERIES_FANOUT;
    }
    return blocks;
}

/* Takes the largest span that begins with block `at` and fits, or the points of that block. Returns
 * the number of blocks taken. */
static size_t take_blocks(const ls_series *series, const question *q, size_t at)
{
    for (size_t level = LS_SERIES_LEVELS; level-- > 0;) {
        const size_t under = blocks_under(level), index = at / under;
        if (at % under == 0 && index < series->counts[level] && fits(q, &series->levels[level][index])) {
            const ls_steps_span *span = &series->levels[level][index];
            merge_span(&q->columns[(span->first_step - q->from) / q->width], span);
            return under;
        }
    }
    ls_point points[LS_SERIES_BLOCK_POINTS];
    sort_points(q, points, ls_points_decode(series->blocks[at].data, series->blocks[at].bytes, points));
    return 1;
}

/* The first block that ends at `step` or later. */
static size_t find_block(const ls_series *series, uint64_t step)
{
    size_t low = 0, high = series->counts[0];
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (series->levels[0][middle].last_step < step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void ls_series_columns(const ls_series *series, uint64_t from, uint64_t to, uint64_t width,
                       ls_steps_span *columns_out)
{
    LS_ASSERT(from <= to && width > 0);
    memset(columns_out, 0, ls_columns_count(from, to, width) * sizeof *columns_out);
    const question q = {.from = from, .to = to, .width = width, .columns = columns_out};
    for (size_t at = find_block(series, from);
         at < series->counts[0] && series->levels[0][at].first_step <= to;) {
        at += take_blocks(series, &q, at);
    }
    sort_points(&q, series->open, series->open_count);
}
