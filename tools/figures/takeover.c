// SPDX-License-Identifier: Apache-2.0
#include "figures/drawings.h"

#include "base/assert.h"
#include "figures/drawings_internal.h"
#include "telemetry/record/metrics_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = LS_DRAWING_WIDTH,
    MARGIN = LS_DRAWING_MARGIN,
    RANKS_MAX = LS_TAKEOVER_DRAWING_RANKS_MAX,
    ROWS_SHOWN_MAX = 12,
    AMBER = 6,
    TIME_WIDTH = 66,
    LANE = 24,
    BAR = 14,
    ROW = 42,
    END = 22 /* length of the bars above the first row and below the last */
};

typedef enum row_kind {
    ROW_STARTED, /* only says which ranks are present; not a row of the picture */
    ROW_DIES,
    ROW_NOTICED,
    ROW_TAKEN,
    ROW_FINISHED,
    ROW_JOINED,
    ROW_LEFT,
    ROW_SAVED,
    ROW_ENDED,
} row_kind;

typedef struct row {
    double time_s;
    row_kind kind;
    uint32_t rank;
    char title[40], words[96];
} row;

typedef struct row_list {
    row *rows;
    size_t count, capacity;
} row_list;

typedef enum lane_state { LANE_EMPTY, LANE_COMPUTES, LANE_RECOVERS } lane_state;

/* ---- from events to rows ---- */

/* There is room: ls_drawing_takeover counted the rows. */
static row *add_row(row_list *list, row_kind kind, double time_s)
{
    LS_ASSERT(list->count < list->capacity);
    row *added = &list->rows[list->count++];
    *added = (row){.time_s = time_s, .kind = kind};
    return added;
}

/* The part of `text` between `before` and the first of `ends`; "" when there is none. */
static void cut_out(const char *text, const char *before, const char *ends, char *out, size_t bytes)
{
    const char *at = text ? strstr(text, before) : NULL;
    out[0] = '\0';
    if (at) {
        at += strlen(before);
        snprintf(out, bytes, "%.*s", (int)strcspn(at, ends), at);
    }
}

static void add_loss(row_list *list, const json_t *event, double time_s, uint32_t rank)
{
    const char *cause = json_string_value(json_object_get(event, "cause"));
    const double silent_ms = ls_json_number(event, "detected_ms");
    row *dies = add_row(list, ROW_DIES, isfinite(silent_ms) ? time_s - 1e-3 * silent_ms : time_s);
    dies->rank = rank;
    snprintf(dies->title, sizeof dies->title, "rank %" PRIu32 ": last sign of life", rank);
    cut_out(cause, " while ", ";:", dies->words, sizeof dies->words);
    row *noticed = add_row(list, ROW_NOTICED, time_s);
    noticed->rank = rank;
    snprintf(noticed->title, sizeof noticed->title, "noticed: rank %" PRIu32 " is gone", rank);
    char how[40];
    cut_out(cause, "ended with ", ";", how, sizeof how);
    how[strcspn(how, ")")] = '\0';
    snprintf(noticed->words, sizeof noticed->words, "%s%s; the others stop and check", how,
             strchr(how, '(') ? ")" : "");
}

/* When the first loss was noticed that the recovery at the end of the list belongs to; NaN: there is
 * none. */
static double noticed_s(const row_list *list)
{
    double found = NAN;
    for (size_t i = list->count; i > 0 && list->rows[i - 1].kind != ROW_FINISHED; i--) {
        found = list->rows[i - 1].kind == ROW_NOTICED ? list->rows[i - 1].time_s : found;
    }
    return found;
}

/* Its times count from when the loss was noticed; the trainer writes the event itself later. */
static void add_recovery(row_list *list, const json_t *event, double time_s)
{
    const double since_s = noticed_s(list);
    uint64_t step = 0;
    const double ms = ls_json_number(event, "ms"), finished_ms = ls_json_number(event, "finished_ms");
    const char *how = json_string_value(json_object_get(event, "how"));
    (void)ls_json_count(event, "step", &step);
    const bool interrupted = finished_ms - ms > 0.05; /* or it was lost between two steps */
    if (isfinite(since_s) && interrupted) {
        row *taken = add_row(list, ROW_TAKEN, since_s + 1e-3 * ms);
        snprintf(taken->title, sizeof taken->title, "its work is handed over");
        snprintf(taken->words, sizeof taken->words, "and step %" PRIu64 " continues where it was", step + 1);
    }
    row *finished =
        add_row(list, ROW_FINISHED, isfinite(since_s + finished_ms) ? since_s + 1e-3 * finished_ms : time_s);
    snprintf(finished->title, sizeof finished->title,
             interrupted ? "step %" PRIu64 " is finished" : "all continue after step %" PRIu64,
             step + interrupted);
    snprintf(finished->words, sizeof finished->words,
             how && strcmp(how, "checkpoint") == 0 ? "from the newest checkpoint" : "no step is lost");
}

static void add_membership(row_list *list, const json_t *event, const char *name, double time_s,
                           uint32_t rank)
{
    uint64_t step = 0, pid = 0;
    (void)ls_json_count(event, "step", &step);
    (void)ls_json_count(event, "pid", &pid);
    if (strcmp(name, "rank_started") == 0) {
        add_row(list, ROW_STARTED, time_s)->rank = rank;
    } else if (strcmp(name, "rank_joined") == 0) {
        row *joined = add_row(list, ROW_JOINED, time_s);
        joined->rank = rank;
        snprintf(joined->title, sizeof joined->title, "rank %" PRIu32 " is back", rank);
        snprintf(joined->words, sizeof joined->words, "process %" PRIu64 ", from step %" PRIu64 " on", pid,
                 step + 1);
    } else {
        row *left = add_row(list, ROW_LEFT, time_s);
        left->rank = rank;
        snprintf(left->title, sizeof left->title, "rank %" PRIu32 " leaves", rank);
    }
}

static void add_event(row_list *list, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    const double time_s = ls_json_number(event, "time");
    uint64_t rank = 0, step = 0;
    const bool has_rank = ls_json_count(event, "rank", &rank) && rank < UINT32_MAX;
    if (!isfinite(time_s)) {
        return;
    }
    if (has_rank && strcmp(name, "rank_lost") == 0) {
        add_loss(list, event, time_s, (uint32_t)rank);
    } else if (has_rank && (strcmp(name, "rank_started") == 0 || strcmp(name, "rank_joined") == 0 ||
                            strcmp(name, "rank_left") == 0)) {
        add_membership(list, event, name, time_s, (uint32_t)rank);
    } else if (strcmp(name, "recovered") == 0) {
        add_recovery(list, event, time_s);
    } else if (strcmp(name, "checkpoint") == 0 && ls_event_step(event, &step)) {
        row *saved = add_row(list, ROW_SAVED, time_s);
        snprintf(saved->title, sizeof saved->title, "step %" PRIu64 " is saved", step);
    } else if (strcmp(name, "ended") == 0) {
        row *ended = add_row(list, ROW_ENDED, time_s);
        const char *status = json_string_value(json_object_get(event, "status"));
        snprintf(ended->title, sizeof ended->title, "the run ends: %.20s", status ? status : "?");
    }
}

static int compare_rows(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return x->time_s != y->time_s ? (x->time_s > y->time_s) - (x->time_s < y->time_s)
                                  : (x->kind > y->kind) - (x->kind < y->kind);
}

/* ---- who does what ---- */

static void apply(const row *r, lane_state state[RANKS_MAX])
{
    const bool is_lane = r->rank < RANKS_MAX;
    if (is_lane && (r->kind == ROW_STARTED || r->kind == ROW_JOINED)) {
        state[r->rank] = LANE_COMPUTES;
    } else if (is_lane && (r->kind == ROW_DIES || r->kind == ROW_LEFT)) {
        state[r->rank] = LANE_EMPTY;
    }
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        if (r->kind == ROW_ENDED) {
            state[rank] = LANE_EMPTY;
        } else if (state[rank] != LANE_EMPTY &&
                   (r->kind == ROW_NOTICED || r->kind == ROW_TAKEN || r->kind == ROW_FINISHED)) {
            state[rank] = r->kind == ROW_NOTICED ? LANE_RECOVERS : LANE_COMPUTES;
        }
    }
}

/* The rows of the first loss: until all ranks are back, the run ends, or the picture is full. */
static bool find_loss(const row_list *list, size_t *first_out, size_t *count_out)
{
    size_t first = 0;
    while (first < list->count && list->rows[first].kind != ROW_DIES) {
        first++;
    }
    if (first == list->count) {
        return false;
    }
    size_t end = first, missing = 0, finished = 0;
    while (end < list->count && end - first < ROWS_SHOWN_MAX) {
        const row_kind kind = list->rows[end++].kind;
        missing += kind == ROW_DIES;
        missing -= kind == ROW_JOINED && missing > 0;
        finished = kind == ROW_FINISHED ? 1 : kind == ROW_DIES ? 0 : finished;
        if (kind == ROW_ENDED || (finished && missing == 0)) {
            break;
        }
    }
    *first_out = first;
    *count_out = end - first;
    return true;
}

/* ---- the picture ---- */

static double lane_x(uint32_t rank)
{
    return MARGIN + TIME_WIDTH + rank * LANE;
}

static void draw_bars(const lane_state state[RANKS_MAX], double y, double height, ls_text *text)
{
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        if (state[rank] == LANE_COMPUTES) {
            ls_svg_bar(text, (ls_svg_rect){lane_x(rank), y, BAR, height}, ls_drawing_rank_color(rank));
        } else if (state[rank] == LANE_RECOVERS) {
            ls_svg_box(text, (ls_svg_rect){lane_x(rank), y, BAR, height}, AMBER, NULL);
        }
    }
}

static void print_time(double seconds, char out[16])
{
    const double ms = 1e3 * seconds;
    if (ms < 0.05) {
        snprintf(out, 16, "0");
    } else if (ms < 9999.5) {
        snprintf(out, 16, ms < 99.95 ? "%.1f ms" : "%.0f ms", ms);
    } else {
        snprintf(out, 16, "%.1f s", seconds);
    }
}

static void draw_row(const row *r, double since_s, uint32_t ranks, double y, ls_text *text)
{
    char time[16];
    print_time(r->time_s - since_s, time);
    ls_svg_label(text, MARGIN + TIME_WIDTH - 10, y + 4, LS_SVG_END, -1, time);
    ls_svg_line(text, lane_x(0) - 4, y, lane_x(ranks) + 2, y);
    ls_svg_label(text, lane_x(ranks) + 8, y + (r->words[0] ? 0 : 4), LS_SVG_START, 0, r->title);
    ls_svg_label(text, lane_x(ranks) + 8, y + 15, LS_SVG_START, -1, r->words);
}

static void draw_rows(const row_list *list, size_t first, size_t count, ls_text *text)
{
    lane_state state[RANKS_MAX] = {LANE_EMPTY};
    uint32_t ranks = 0;
    for (size_t i = 0; i < first; i++) {
        apply(&list->rows[i], state);
    }
    for (size_t i = 0; i < first + count; i++) {
        ranks =
            list->rows[i].rank < RANKS_MAX && list->rows[i].rank >= ranks ? list->rows[i].rank + 1 : ranks;
    }
    ls_text parts = {0};
    double y = ls_drawing_heading(&parts, 14, "A rank dies",
                                  "Top to bottom, from the events of the run; rows are not to scale");
    for (uint32_t rank = 0; rank < ranks; rank++) {
        char name[12];
        snprintf(name, sizeof name, "%" PRIu32, rank);
        ls_svg_label(&parts, lane_x(rank) + BAR / 2.0, y + 8, LS_SVG_MIDDLE, -1, name);
    }
    ls_svg_label(&parts, MARGIN + TIME_WIDTH - 10, y + 8, LS_SVG_END, -1, "rank");
    y += 16;
    draw_bars(state, y, END, &parts);
    y += END;
    for (size_t i = first; i < first + count; i++) {
        const bool is_last = i + 1 == first + count;
        apply(&list->rows[i], state);
        draw_bars(state, y + 1, (is_last ? END : ROW) - 1, &parts);
        draw_row(&list->rows[i], list->rows[first].time_s, ranks, y, &parts);
        y += is_last ? END : ROW;
    }
    static const char *const names[] = {"computes (the rank's colour)", "waits or is given work"};
    y = ls_svg_legend(&parts, &(ls_svg_names){names, (const int[]){0, AMBER}, 2}, MARGIN, y + 20,
                      WIDTH - MARGIN);
    ls_drawing_finish(text, y + 16, "A rank dies and another takes over, from a run's events", &parts);
}

/* Room for all rows that `bytes` of events can make: two for each line. */
static ls_status make_room(row_list *list, const char *events, size_t bytes)
{
    list->capacity = 2;
    for (size_t i = 0; i < bytes; i++) {
        list->capacity += events[i] == '\n' ? 2 : 0;
    }
    list->rows = malloc(list->capacity * sizeof *list->rows);
    return list->rows ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu events", list->capacity / 2);
}

ls_status ls_drawing_takeover(const char *events, size_t bytes, ls_text *text)
{
    ls_line_reader reader = {.text = events, .bytes = bytes};
    row_list list = {0};
    LS_TRY(make_room(&list, events, bytes));
    json_t *event = NULL;
    for (ls_line_kind kind; (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD) {
            add_event(&list, event);
            json_decref(event);
        }
    }
    size_t first = 0, count = 0;
    qsort(list.rows, list.count, sizeof *list.rows, compare_rows);
    const bool found = find_loss(&list, &first, &count);
    if (found) {
        draw_rows(&list, first, count, text);
    }
    free(list.rows);
    return found ? LS_OK
                 : ls_fail(LS_ERR_INVALID, "no rank was lost in this run (there is no event rank_lost), so "
                                           "there is nothing to draw");
}
