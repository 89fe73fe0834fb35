// SPDX-License-Identifier: Apache-2.0
/* Reads the time log: starts, the gaps between them, and slices for the picture. */
#include "base/file.h"
#include "telemetry/record/metrics_reader.h"
#include "telemetry/record/time_log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* MOVES_MAX: looks at earlier slices, for all lines. Lines that this program did not write could
 * ask for as many as the square of their number. */
enum { LOG_BYTES_MAX = 64 << 20, MOVES_MAX = 1 << 22 };

/* ---- lines ---- */

typedef struct time_line {
    uint64_t start, step, restored;
    double begun_s, unfinished_s;
    ls_goodput time;
    bool has_ended, away;
    char status[16];
} time_line;

static bool read_line(const json_t *object, time_line *line_out)
{
    time_line line = {.begun_s = ls_json_number(object, "begun"),
                      .unfinished_s = ls_json_number(object, "unfinished_s"),
                      .away = json_is_true(json_object_get(object, "away"))};
    const char *status = json_string_value(json_object_get(object, "ended"));
    if (!ls_json_count(object, "start", &line.start) || !isfinite(line.begun_s) ||
        fabs(line.begun_s) > 1e12) {
        return false;
    }
    (void)ls_json_count(object, "step", &line.step);
    (void)ls_json_count(object, "restored", &line.restored);
    ls_goodput_from_json(object, &line.time);
    const double cost_usd = ls_json_number(object, "cost_usd");
    line.time.cost_usd = isfinite(cost_usd) && cost_usd > 0.0 ? cost_usd : 0.0;
    const double energy_j = ls_json_number(object, "energy_j");
    line.time.energy_j = isfinite(energy_j) && energy_j > 0.0 ? energy_j : 0.0;
    line.unfinished_s = line.unfinished_s > 0.0 ? line.unfinished_s : 0.0;
    line.has_ended = status != NULL;
    snprintf(line.status, sizeof line.status, "%s", status ? status : "");
    *line_out = line;
    return true;
}

/* ---- slices ---- */

static double sum_of(const double seconds[LS_TIME_CLASS_COUNT])
{
    double sum = 0.0;
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        sum += seconds[i];
    }
    return sum;
}

/*
 * Compute time of a step is divided among other classes when the step ends. The slice of that
 * moment may then have less than 0 seconds of a class and more of others. The difference belongs to
 * earlier slices, so it is moved there, class by class and newest slice first, back to slice
 * `first`, or until `moves` has come to MOVES_MAX.
 */
static void spread_back(ls_time_slice *slices, size_t first, size_t at, size_t *moves)
{
    double *here = slices[at].seconds;
    for (int from = 0; from < LS_TIME_CLASS_COUNT; from++) {
        for (int to = 0; to < LS_TIME_CLASS_COUNT && here[from] < 0.0; to++) {
            for (size_t i = at; i-- > first && here[from] < 0.0 && here[to] > 0.0 && *moves < MOVES_MAX;
                 ++*moves) {
                double *before = slices[i].seconds;
                const double moved_s = fmin(fmax(before[from], 0.0), fmin(-here[from], here[to]));
                before[from] -= moved_s;
                before[to] += moved_s;
                here[from] += moved_s;
                here[to] -= moved_s;
            }
        }
        here[from] = fmax(here[from], 0.0);
    }
}

/* Counts the step that a start was in when it was lost as lost work. */
static void lose_unfinished(ls_time_history *history, size_t first, ls_time_start *start, double seconds)
{
    ls_goodput_move(&start->time, LS_TIME_COMPUTE, LS_TIME_LOST_WORK, seconds);
    for (size_t i = history->slice_count; i-- > first && seconds > 0.0;) {
        double *here = history->slices[i].seconds;
        const double moved_s = fmin(here[LS_TIME_COMPUTE], seconds);
        here[LS_TIME_COMPUTE] -= moved_s;
        here[LS_TIME_LOST_WORK] += moved_s;
        seconds -= moved_s;
    }
}

/* ---- starts ---- */

typedef struct history_reader {
    ls_time_history *history;
    double at_s;        /* the end of the slices so far */
    size_t first_slice; /* the start that is being read */
    uint64_t number;    /* ... and its number; 0: none so far */
    size_t moves;
    double unfinished_s;
} history_reader;

static ls_time_start *newest(const history_reader *reader)
{
    return &reader->history->starts[reader->history->start_count - 1];
}

/* Another start follows, so the one before it is over, in whatever way. */
static void add_gap(history_reader *reader, double begun_s)
{
    ls_time_history *history = reader->history;
    ls_time_start *before = newest(reader);
    if (!before->has_ended) {
        lose_unfinished(history, reader->first_slice, before, reader->unfinished_s);
    }
    /* The only difference of two wall clocks. A clock that was set back gives no gap. */
    before->until_gap_s = fmax(0.0, begun_s - before->begun_s - ls_goodput_wall_s(&before->time));
    if (before->until_gap_s > 0.0) {
        const bool paused = before->has_ended && !before->away;
        ls_time_slice *slice = &history->slices[history->slice_count++];
        *slice = (ls_time_slice){.begun_s = reader->at_s};
        slice->seconds[paused ? LS_TIME_PAUSED : LS_TIME_DOWN] = before->until_gap_s;
        reader->at_s += before->until_gap_s;
    }
}

static void add_start(history_reader *reader, const time_line *line)
{
    ls_time_history *history = reader->history;
    if (history->start_count > 0) {
        add_gap(reader, line->begun_s);
    }
    history->starts[history->start_count++] =
        (ls_time_start){.begun_s = line->begun_s, .restored = line->restored};
    reader->first_slice = history->slice_count;
    reader->number = line->start;
}

/*
 * A line has the totals of its start so far, so a slice is the difference of two lines:
 *
 *   line 1   startup 0.4  compute 2.0                  slice 1   startup 0.4  compute 2.0
 *   line 2   startup 0.4  compute 5.1  data 0.3        slice 2   compute 3.1  data 0.3
 *
 * A line that is missing therefore costs resolution and no time: its slice is part of the next one.
 */
static void add_line(history_reader *reader, const time_line *line)
{
    ls_time_history *history = reader->history;
    if (history->start_count == 0 || line->start != reader->number) {
        add_start(reader, line);
    }
    ls_time_start *start = newest(reader);
    ls_time_slice slice = {.begun_s = reader->at_s};
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        slice.seconds[i] = line->time.seconds[i] - start->time.seconds[i];
    }
    const double slice_s = sum_of(slice.seconds);
    if (slice_s < 0.0) {
        return; /* not one of our lines: time only grows */
    }
    history->slices[history->slice_count] = slice;
    spread_back(history->slices, reader->first_slice, history->slice_count++, &reader->moves);
    reader->at_s += slice_s;
    reader->unfinished_s = line->unfinished_s;
    start->time = line->time;
    start->step = line->step;
    start->has_ended = line->has_ended;
    start->away = line->away;
    memcpy(start->status, line->status, sizeof start->status);
    history->highest_step = line->step > history->highest_step ? line->step : history->highest_step;
}

static size_t count_lines(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += text[i] == '\n';
    }
    return count;
}

/* Adds up starts, not slices: spread_back may have raised a class of a slice to 0. */
static void add_up(ls_time_history *history)
{
    for (size_t i = 0; i < history->start_count; i++) {
        const ls_time_start *start = &history->starts[i];
        const bool paused = start->has_ended && !start->away;
        ls_goodput_add(&history->total, &start->time);
        history->total.seconds[paused ? LS_TIME_PAUSED : LS_TIME_DOWN] += start->until_gap_s;
    }
}

ls_status ls_time_history_load(const char *dir, ls_time_history *history_out)
{
    ls_arena arena = {0};
    char *text = NULL;
    size_t bytes = 0;
    ls_status status =
        ls_file_read(&arena, ls_path_join(&arena, dir, "time.jsonl"), LOG_BYTES_MAX, &text, &bytes);
    if (status == LS_ERR_NOT_FOUND) {
        ls_error_clear();
        status = LS_OK;
    }
    ls_time_history_parse(text, bytes, history_out);
    ls_arena_release(&arena);
    return status;
}

void ls_time_history_parse(const char *text, size_t bytes, ls_time_history *history_out)
{
    const size_t lines = count_lines(text, bytes);
    *history_out = (ls_time_history){0};
    history_out->starts = ls_arena_new(&history_out->arena, ls_time_start, lines);
    /* a slice per line, and at most one gap before each */
    history_out->slices = ls_arena_new(&history_out->arena, ls_time_slice, 2 * lines);
    history_reader reader = {.history = history_out};
    ls_line_reader file = {.text = text, .bytes = bytes};
    json_t *object = NULL;
    for (ls_line_kind kind; (kind = ls_object_reader_next(&file, &object)) != LS_LINE_END;) {
        time_line line;
        if (kind == LS_LINE_GOOD && read_line(object, &line)) {
            add_line(&reader, &line);
        }
        if (kind == LS_LINE_GOOD) {
            json_decref(object);
        }
    }
    add_up(history_out);
}

void ls_time_history_release(ls_time_history *history)
{
    ls_arena_release(&history->arena);
}

json_t *ls_time_history_to_json(const ls_time_history *history)
{
    json_t *list = json_array();
    for (size_t i = 0; i < history->start_count; i++) {
        const ls_time_start *start = &history->starts[i];
        json_array_append_new(list, json_pack("{s:f, s:f, s:I, s:I, s:s, s:f}", "begun", start->begun_s,
                                              "wall_s", ls_goodput_wall_s(&start->time), "restored",
                                              (json_int_t)start->restored, "step", (json_int_t)start->step,
                                              "status",
                                              start->has_ended               ? start->status
                                              : i + 1 < history->start_count ? "lost"
                                                                             : "running",
                                              "until_next_s", start->until_gap_s));
    }
    return list;
}
