// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/run_history.h"

#include "base/assert.h"
#include "telemetry/record/metrics_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ls_api_history_clear(ls_api_history *history)
{
    free(history->last_line);
    history->last_line = NULL;
    history->last_bytes = 0;
    history->count = 0;
    history->steps_per_point = 0;
    history->offset = 0;
    history->tail_bytes = 0;
}

/* ---- points ---- */

static double sum_of(double a, double b)
{
    return isfinite(a) && isfinite(b) ? a + b : NAN;
}

static void merge(ls_api_point *into, const ls_api_point *next)
{
    into->last_step = next->last_step;
    into->steps += next->steps;
    into->loss_sum += next->loss_sum;
    into->loss_min = fmin(into->loss_min, next->loss_min);
    into->loss_max = fmax(into->loss_max, next->loss_max);
    into->lr = next->lr;
    into->grad_norm = next->grad_norm;
    into->mfu = next->mfu;
    into->tokens_per_s_sum = sum_of(into->tokens_per_s_sum, next->tokens_per_s_sum);
    into->step_s_sum = sum_of(into->step_s_sum, next->step_s_sum);
}

static void halve(ls_api_history *history)
{
    const size_t pairs = history->count / 2;
    for (size_t i = 0; i < pairs; i++) {
        ls_api_point point = history->points[2 * i];
        merge(&point, &history->points[2 * i + 1]);
        history->points[i] = point;
    }
    history->count = pairs;
    history->steps_per_point *= 2;
}

bool ls_api_history_add(ls_api_history *history, const ls_step_metrics *metrics)
{
    const ls_api_point point = {
        .first_step = metrics->step,
        .last_step = metrics->step,
        .steps = 1,
        .loss_sum = metrics->loss,
        .loss_min = metrics->loss,
        .loss_max = metrics->loss,
        .lr = metrics->lr,
        .grad_norm = metrics->grad_norm,
        .tokens_per_s_sum = metrics->tokens_per_s,
        .step_s_sum = metrics->step_s,
        .mfu = metrics->mfu,
    };
    ls_api_point *last = history->count > 0 ? &history->points[history->count - 1] : NULL;
    if (last && metrics->step <= last->last_step) {
        return false;
    }
    history->steps_per_point = history->steps_per_point > 0 ? history->steps_per_point : 1;
    if (last && last->steps < history->steps_per_point) {
        merge(last, &point);
        return true;
    }
    if (history->count == LS_API_HISTORY_POINTS) {
        halve(history);
    }
    history->points[history->count++] = point;
    return true;
}

/* ---- lines ---- */

static void keep_line(ls_api_history *history, const char *line, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    char *copy = realloc(history->last_line, bytes);
    LS_ASSERT(copy && "not enough memory for a line of metrics");
    memcpy(copy, line, bytes);
    history->last_line = copy;
    history->last_bytes = bytes;
}

/*
 * Adds the whole lines of `text`; damaged lines and steps that are not after the last one are left
 * out. Returns the bytes that need not be given again: all but an unfinished last line.
 */
static size_t feed_lines(ls_api_history *history, const char *text, size_t bytes)
{
    ls_line_reader reader = {.text = text, .bytes = bytes};
    size_t good_at = 0, good_bytes = 0;
    for (;;) {
        ls_step_metrics metrics;
        const ls_line_kind kind = ls_metrics_reader_next(&reader, &metrics);
        if (kind == LS_LINE_TORN || kind == LS_LINE_END) {
            keep_line(history, text + good_at, good_bytes);
            return kind == LS_LINE_TORN ? reader.line_offset : bytes;
        }
        if (kind == LS_LINE_GOOD && ls_api_history_add(history, &metrics)) {
            good_at = reader.line_offset;
            good_bytes = reader.offset - reader.line_offset;
        }
    }
}

/* ---- as JSON ---- */

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *point_json(const ls_api_point *point)
{
    const double steps = (double)point->steps;
    json_t *row = json_array();
    json_array_append_new(row, json_integer((json_int_t)point->last_step));
    const double numbers[] = {point->loss_sum / steps,   point->loss_min,
                              point->loss_max,           point->lr,
                              point->grad_norm,          point->tokens_per_s_sum / steps,
                              point->step_s_sum / steps, point->mfu};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        json_array_append_new(row, number_or_null(numbers[i]));
    }
    return row;
}

json_t *ls_api_history_json(const ls_api_history *history, uint64_t from_step, size_t points)
{
    size_t first = 0;
    while (first < history->count && history->points[first].last_step <= from_step) {
        first++;
    }
    const size_t count = history->count - first;
    const size_t each = points > 0 ? (count + points - 1) / points : count;
    json_t *rows = json_array();
    for (size_t i = first; i < history->count; i += each) {
        ls_api_point point = history->points[i];
        for (size_t j = i + 1; j < i + each && j < history->count; j++) {
            merge(&point, &history->points[j]);
        }
        json_array_append_new(rows, point_json(&point));
    }
    json_t *last = history->last_line ? json_loadb(history->last_line, history->last_bytes, 0, NULL) : NULL;
    return json_pack("{s:[s, s, s, s, s, s, s, s, s], s:o, s:o}", "columns", "step", "loss", "loss_min",
                     "loss_max", "lr", "grad_norm", "tokens_per_s", "step_s", "mfu", "points", rows, "last",
                     last ? last : json_null());
}

/* ---- as it is read ---- */

uint64_t ls_api_history_from(const ls_api_history *history)
{
    return history->offset - history->tail_bytes;
}

/* Behind what was there already. */
static bool take_new(ls_api_history *history, const char *text, size_t bytes, bool is_full)
{
    size_t consumed = feed_lines(history, text, bytes);
    if (consumed == 0 && is_full) {
        consumed = bytes; /* a line without end: none that a run wrote */
    }
    if (consumed > 0) {
        history->offset += consumed;
        history->tail_bytes = consumed < sizeof history->tail ? consumed : sizeof history->tail;
        memcpy(history->tail, text + consumed - history->tail_bytes, history->tail_bytes);
    }
    return consumed > 0 && is_full;
}

bool ls_api_history_take(ls_api_history *history, uint64_t offset, const char *data, size_t bytes,
                         size_t wanted)
{
    const size_t seen = history->tail_bytes;
    if (offset != ls_api_history_from(history)) {
        return true; /* another request has read on */
    }
    if (bytes < seen || (seen > 0 && memcmp(data, history->tail, seen) != 0)) {
        ls_api_history_clear(history); /* cut back by a resume: it has steps again that were read */
        return true;
    }
    return bytes > seen && take_new(history, data + seen, bytes - seen, bytes == wanted);
}

/* ---- many jobs ---- */

typedef struct entry {
    ls_api_history history; /* first: what is dropped is found by it */
    uint64_t job;
    uint64_t used;
    uint32_t holders;
} entry;

struct ls_api_histories {
    entry *entries[LS_API_HISTORIES_MAX]; /* NULL: never used */
    uint64_t clock;
};

ls_api_histories *ls_api_histories_create(void)
{
    ls_api_histories *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory for the metrics of runs");
    return self;
}

void ls_api_histories_destroy(ls_api_histories *self)
{
    for (size_t i = 0; self && i < LS_API_HISTORIES_MAX; i++) {
        if (self->entries[i]) {
            ls_api_history_clear(&self->entries[i]->history);
            free(self->entries[i]);
        }
    }
    free(self);
}

/* The job's own, or one that is free to become it; NULL: neither. */
static entry *find(ls_api_histories *self, uint64_t job)
{
    entry *oldest = NULL;
    for (size_t i = 0; i < LS_API_HISTORIES_MAX; i++) {
        entry **at = &self->entries[i];
        if (!*at) {
            *at = calloc(1, sizeof(entry));
            LS_ASSERT(*at && "not enough memory for the metrics of a run");
            (*at)->job = job;
        }
        if ((*at)->job == job) {
            return *at;
        }
        if ((*at)->holders == 0 && (!oldest || (*at)->used < oldest->used)) {
            oldest = *at;
        }
    }
    if (oldest) {
        ls_api_history_clear(&oldest->history);
        oldest->job = job;
    }
    return oldest;
}

ls_api_history *ls_api_histories_hold(ls_api_histories *self, uint64_t job)
{
    entry *found = find(self, job);
    if (!found) {
        return NULL;
    }
    found->holders++;
    found->used = ++self->clock;
    return &found->history;
}

void ls_api_histories_drop(ls_api_histories *self, ls_api_history *history)
{
    (void)self;
    if (history) {
        entry *held = (entry *)(void *)history;
        LS_ASSERT(held->holders > 0);
        held->holders--;
    }
}
