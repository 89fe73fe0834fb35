// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "base/json.h"
#include "telemetry/store/run_metrics.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9, 1e10,
                                1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20};

/* DIGITS * 10^-places, as short as it goes. */
static void append_scaled(ls_text *text, double digits, int places)
{
    char room[24], *all = room + sizeof room;
    int count = 0;
    for (uint64_t left = (uint64_t)fabs(digits); left > 0 || count == 0; left /= 10, count++) {
        *--all = (char)('0' + left % 10);
    }
    ls_text_append(text, digits < 0 ? "-" : "");
    if (places == 0) {
        ls_text_append_bytes(text, all, (size_t)count);
    } else if (places < count) {
        ls_text_append_bytes(text, all, (size_t)(count - places));
        ls_text_append_bytes(text, ".", 1);
        ls_text_append_bytes(text, all + count - places, (size_t)places);
    } else if (places - count < 4) {
        ls_text_append_bytes(text, "0.0000", 2 + (size_t)(places - count));
        ls_text_append_bytes(text, all, (size_t)count);
    } else {
        ls_text_printf(text, "%.*se-%d", count, all, places);
    }
}

/*
 * The shortest decimal number that reads back as the same double, where it has at most 15 digits:
 * whole / 10^places is then exact to the last bit (metric_line.c). It is what programs wrote, and
 * ten times as fast as printing 17 digits and trying fewer. Of a float, as TensorBoard has them, it
 * is the shortest number that reads back as the same float.
 */
static void append_number(ls_text *text, double value)
{
    const bool is_float = fabs(value) < FLT_MAX && (double)(float)value == value;
    for (int places = 0; places < 20; places++) {
        const double whole = nearbyint(value * powers[places]);
        if (fabs(whole) >= 1e15) {
            break;
        }
        const double back = whole / powers[places];
        if (back == value || (is_float && (double)(float)back == value)) {
            append_scaled(text, whole, places);
            return;
        }
    }
    ls_text_append_f64(text, value);
}

/* A mean of several: seven digits are more than a picture shows. */
static void append_rounded(ls_text *text, double value)
{
    const int places = value == 0.0 ? 0 : 6 - (int)floor(log10(fabs(value)));
    if (places < 0 || places > 20) {
        ls_text_printf(text, "%.7g", value);
        return;
    }
    append_scaled(text, nearbyint(value * powers[places]), places);
}

/* ---- columns ---- */

typedef enum member { STEP, MEAN, LOW, HIGH } member;

static void append_cell(ls_text *text, const ls_steps_span *span, member which)
{
    if (which == STEP) {
        ls_text_printf(text, "%" PRIu64, span->last_step);
    } else if (span->count == 0) {
        ls_text_append(text, "null");
    } else if (which == MEAN && span->low < span->high) {
        append_rounded(text, span->sum / (double)span->count);
    } else {
        append_number(text, which == HIGH ? span->high : span->low);
    }
}

static void append_list(ls_text *text, const char *name, const ls_steps_span *columns, size_t count,
                        member which)
{
    ls_text_printf(text, "\"%s\":[", name);
    bool is_first = true;
    for (size_t i = 0; i < count; i++) {
        if (columns[i].count + columns[i].odd > 0) {
            ls_text_append(text, is_first ? "" : ",");
            append_cell(text, &columns[i], which);
            is_first = false;
        }
    }
    ls_text_append(text, "]");
}

static void append_odd(ls_text *text, const ls_steps_span *columns, size_t count)
{
    size_t index = 0;
    bool is_first = true;
    for (size_t i = 0; i < count; i++) {
        const ls_steps_span *span = &columns[i];
        if (span->odd > 0) {
            const char *kind = span->odd_kinds & LS_ODD_NAN    ? "nan"
                               : span->odd_kinds & LS_ODD_HIGH ? "inf"
                                                               : "-inf";
            ls_text_printf(text, "%s[%zu,\"%s\"]", is_first ? ",\"odd\":[" : ",", index, kind);
            is_first = false;
        }
        index += span->count + span->odd > 0;
    }
    ls_text_append(text, is_first ? "" : "]");
}

/* A name as JSON. Names are bytes that a program wrote. */
static void append_name(ls_text *text, const char *name)
{
    ls_text printable = {0};
    ls_text_append_printable(&printable, name, strlen(name), "");
    ls_text_append_quoted(text, ls_text_string(&printable));
    ls_text_release(&printable);
}

static void append_metric(const ls_metric *metric, const ls_metrics_question *question, uint64_t width,
                          ls_steps_span *columns, ls_text *text)
{
    const size_t count = ls_columns_count(question->from, question->to, width);
    ls_series_columns(&metric->series, question->from, question->to, width, columns);
    append_name(text, metric->name);
    ls_text_append(text, ":{");
    static const char *const names[] = {"step", "mean", "low", "high"};
    for (member which = STEP; which <= HIGH; which++) {
        ls_text_append(text, which > STEP ? "," : "");
        append_list(text, names[which], columns, count, which);
    }
    append_odd(text, columns, count);
    ls_text_append(text, "}");
}

/* "a,b" as members of an object; NULL: all are asked for. */
static json_t *read_keys(const char *keys)
{
    json_t *asked = keys ? json_object() : NULL;
    for (const char *at = keys; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        json_object_setn_new(asked, at, strcspn(at, ","), json_true());
    }
    return asked;
}

/* Metrics are asked for by the names that answers have. */
static bool is_asked(const json_t *asked, const char *name)
{
    ls_text shown = {0};
    if (!asked) {
        return true;
    }
    ls_text_append_printable(&shown, name, strlen(name), "");
    const bool is_there = json_object_get(asked, ls_text_string(&shown)) != NULL;
    ls_text_release(&shown);
    return is_there;
}

/* The metrics that were asked for, their steps, and columns for as many as one answer may have.
 * False: there are no steps. */
static bool narrow(const ls_run_metrics *data, const json_t *asked, bool *takes, ls_metrics_question *q)
{
    uint64_t first = UINT64_MAX, last = 0;
    size_t count = 0;
    for (size_t i = 0; i < data->count; i++) {
        const ls_series *series = &data->metrics[i].series;
        takes[i] = is_asked(asked, data->metrics[i].name);
        count += takes[i];
        if (series->points > 0 && takes[i]) {
            const uint64_t begin = ls_series_first_step(series);
            first = begin < first ? begin : first;
            last = series->last.step > last ? series->last.step : last;
        }
    }
    const size_t most = LS_RUN_CELLS_MAX / ((count > 0 ? count : 1) * (q->runs > 0 ? q->runs : 1));
    q->points = q->points > most ? most : q->points;
    q->points = q->points > 0 ? q->points : 1;
    q->from = q->from > first ? q->from : first;
    q->to = q->to < last ? q->to : last;
    return q->from <= q->to;
}

void ls_run_metrics_append_metrics(const ls_run_metrics *data, const ls_metrics_question *question,
                                   ls_text *text)
{
    ls_metrics_question q = *question;
    json_t *asked = read_keys(q.keys);
    bool *takes = calloc(data->count + 1, sizeof *takes);
    LS_ASSERT(takes && q.points >= 1 && q.points <= LS_RUN_POINTS_MAX);
    ls_text_append(text, "{");
    if (narrow(data, asked, takes, &q)) {
        const uint64_t width = ls_columns_width(q.from, q.to, q.points);
        ls_steps_span *columns = calloc(ls_columns_count(q.from, q.to, width), sizeof *columns);
        LS_ASSERT(columns && "not enough memory for columns");
        bool is_first = true;
        for (size_t i = 0; i < data->count; i++) {
            if (takes[i]) {
                ls_text_append(text, is_first ? "" : ",");
                append_metric(&data->metrics[i], &q, width, columns, text);
                is_first = false;
            }
        }
        free(columns);
    }
    ls_text_append(text, "}");
    free(takes);
    json_decref(asked);
}

void ls_run_metrics_append_names(const ls_run_metrics *data, ls_text *text)
{
    ls_text_append(text, "[");
    for (size_t i = 0; i < data->count; i++) {
        ls_text_append(text, i > 0 ? "," : "");
        append_name(text, data->metrics[i].name);
    }
    ls_text_append(text, "]");
}
