// SPDX-License-Identifier: Apache-2.0
/* Where the time went, over all starts: a bar, its course over time with what happened on the way, and the numbers. */
#include "base/svg.h"
#include "telemetry/metrics_reader.h"
#include "telemetry/report_figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 1000, PHONE = 370, EDGE = 16, AREA_HEIGHT = 120, INCIDENTS_MAX = 40 };

/* ---- classes, in the order and colours of the picture ---- */

enum { GROUPS = 8 };
static const char *const group_names[GROUPS] = {"training",        "evaluating, sampling",   "saving",
                                                "starting up",     "communicating, waiting", "recovering",
                                                "work done twice", "logging and the rest"};
static const int group_colors[GROUPS] = {0, 5, 2, 6, 3, 1, 4, 7};

/* GROUPS: nobody trained. */
static int group_of(ls_time_class time_class)
{
    switch (time_class) {
    case LS_TIME_COMPUTE:
        return 0;
    case LS_TIME_EVALUATION:
    case LS_TIME_SAMPLING:
        return 1;
    case LS_TIME_CHECKPOINT:
        return 2;
    case LS_TIME_STARTUP:
        return 3;
    case LS_TIME_DATA:
    case LS_TIME_COMMUNICATION:
    case LS_TIME_WAITING:
        return 4;
    case LS_TIME_RECOVERY:
        return 5;
    case LS_TIME_LOST_WORK:
        return 6;
    case LS_TIME_DOWN:
    case LS_TIME_PAUSED:
        return GROUPS;
    default:
        return 7;
    }
}

static void sum_groups(const double seconds[LS_TIME_CLASS_COUNT], double groups_out[GROUPS])
{
    memset(groups_out, 0, GROUPS * sizeof *groups_out);
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        const int group = group_of((ls_time_class)i);
        if (group < GROUPS) {
            groups_out[group] += seconds[i];
        }
    }
}

static double gap_of(const ls_time_slice *slice)
{
    return slice->seconds[LS_TIME_DOWN] + slice->seconds[LS_TIME_PAUSED];
}

static double length_of(const ls_time_slice *slice)
{
    double sum = 0.0;
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        sum += slice->seconds[i];
    }
    return sum;
}

static void format_duration(double seconds, char *out, size_t bytes)
{
    if (seconds < 1.0) {
        snprintf(out, bytes, "%.0f ms", 1e3 * seconds);
    } else if (seconds < 60.0) {
        snprintf(out, bytes, "%.3g s", seconds);
    } else if (seconds < 3600.0) {
        snprintf(out, bytes, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    } else if (seconds < 48 * 3600.0) {
        snprintf(out, bytes, "%d h %02d min", (int)(seconds / 3600), (int)fmod(seconds / 60, 60));
    } else {
        snprintf(out, bytes, "%.0f days %d h", floor(seconds / 86400), (int)fmod(seconds / 3600, 24));
    }
}

/* ---- the axis: long times in which nobody trained are drawn short ---- */

typedef struct time_axis {
    const ls_time_history *history;
    double *at;     /* (slices + 1) where each slice begins, 0..1 of the width */
    double total_s; /* as drawn */
    bool broken;    /* some are drawn shorter than they are */
    double left, width, top;
} time_axis;

static double drawn_length(const ls_time_slice *slice, double worked_s)
{
    const double gap_s = gap_of(slice);
    return gap_s > 0.12 * worked_s ? fmax(0.06 * worked_s, 1e-3) : length_of(slice);
}

static void make_axis(ls_report_data *data, time_axis *axis)
{
    const ls_time_history *history = &data->history;
    double worked_s = 0.0;
    for (size_t i = 0; i < history->slice_count; i++) {
        worked_s += length_of(&history->slices[i]) - gap_of(&history->slices[i]);
    }
    axis->history = history;
    axis->at = ls_arena_new(&data->arena, double, history->slice_count + 1);
    for (size_t i = 0; i < history->slice_count; i++) {
        const double drawn_s = drawn_length(&history->slices[i], worked_s);
        axis->broken = axis->broken || drawn_s < length_of(&history->slices[i]);
        axis->at[i + 1] = axis->at[i] + drawn_s;
    }
    axis->total_s = axis->at[history->slice_count];
    for (size_t i = 0; i <= history->slice_count && axis->total_s > 0.0; i++) {
        axis->at[i] /= axis->total_s;
    }
}

static double x_of(const time_axis *axis, double share)
{
    return axis->left + share * axis->width;
}

/* Where a time since the first start's begin is drawn. */
static double share_at(const time_axis *axis, double time_s)
{
    const ls_time_history *history = axis->history;
    for (size_t i = 0; i < history->slice_count; i++) {
        const ls_time_slice *slice = &history->slices[i];
        const double length_s = length_of(slice);
        if (time_s < slice->begun_s + length_s && length_s > 0.0) {
            const double into = fmax(0.0, time_s - slice->begun_s) / length_s;
            return axis->at[i] + into * (axis->at[i + 1] - axis->at[i]);
        }
    }
    return 1.0;
}

/* ---- areas ---- */

/* Seconds of each group in each of `count` columns of equal width. */
static void fill_columns(const time_axis *axis, double (*columns)[GROUPS], int count)
{
    for (size_t i = 0; i < axis->history->slice_count; i++) {
        const ls_time_slice *slice = &axis->history->slices[i];
        const double from = axis->at[i] * count, to = axis->at[i + 1] * count;
        double groups[GROUPS];
        sum_groups(slice->seconds, groups);
        for (int column = (int)from; gap_of(slice) <= 0.0 && column < count && column < to; column++) {
            const double share =
                to > from ? (fmin(to, column + 1.0) - fmax(from, column)) / (to - from) : 1.0;
            for (int g = 0; g < GROUPS; g++) {
                columns[column][g] += share * groups[g];
            }
        }
    }
}

/* The lower edge of group `group` in a column, 0..1. */
static double edge_of(const double column[GROUPS], int group)
{
    double below = 0.0, sum = 0.0;
    for (int g = 0; g < GROUPS; g++) {
        below += g < group ? column[g] : 0.0;
        sum += column[g];
    }
    return sum > 0.0 ? below / sum : 0.0;
}

static bool is_filled(const double column[GROUPS])
{
    return edge_of(column, GROUPS) > 0.0;
}

static void append_edge(const time_axis *axis, double (*columns)[GROUPS], int count, int column, int group,
                        bool leftwards, ls_text *text)
{
    const double y = axis->top + AREA_HEIGHT * (1.0 - edge_of(columns[column], group));
    const double left = x_of(axis, (double)column / count), right = x_of(axis, (column + 1.0) / count);
    ls_text_printf(text, "L%.1f %.1fL%.1f %.1f", leftwards ? right : left, y, leftwards ? left : right, y);
}

/* One group over the columns from..to, of which each has something. */
static void append_area(const time_axis *axis, double (*columns)[GROUPS], int count, int from, int to,
                        int group, ls_text *text)
{
    double most = 0.0;
    for (int column = from; column < to; column++) {
        most = fmax(most, columns[column][group]);
    }
    if (most <= 0.0) {
        return;
    }
    ls_text path = {0};
    for (int column = from; column < to; column++) {
        append_edge(axis, columns, count, column, group, false, &path);
    }
    for (int column = to; column-- > from;) {
        append_edge(axis, columns, count, column, group + 1, true, &path);
    }
    ls_text_printf(text, "<path class=\"ls-f%d\" d=\"M%sZ\"><title>%s</title></path>\n", group_colors[group],
                   ls_text_string(&path) + 1, group_names[group]);
    ls_text_release(&path);
}

static void append_areas(ls_report_data *data, const time_axis *axis, ls_text *text)
{
    const int count = (int)(axis->width / 2);
    double(*columns)[GROUPS] = ls_arena_alloc(&data->arena, (size_t)count * sizeof *columns);
    fill_columns(axis, columns, count);
    for (int from = 0; from < count; from++) {
        int to = from;
        while (to < count && is_filled(columns[to])) {
            to++;
        }
        for (int group = 0; group < GROUPS && to > from; group++) {
            append_area(axis, columns, count, from, to, group, text);
        }
        from = to > from ? to : from;
    }
}

static void append_gaps(const time_axis *axis, ls_text *text)
{
    for (size_t i = 0; i < axis->history->slice_count; i++) {
        const ls_time_slice *slice = &axis->history->slices[i];
        if (gap_of(slice) <= 0.0) {
            continue;
        }
        char length[32], label[48];
        const double left = x_of(axis, axis->at[i]), width = x_of(axis, axis->at[i + 1]) - left;
        format_duration(gap_of(slice), length, sizeof length);
        const char *what = slice->seconds[LS_TIME_PAUSED] > 0.0 ? "paused" : "down";
        ls_svg_box(text, left, axis->top, width, AREA_HEIGHT, 7, NULL);
        const double middle = left + width / 2, y = axis->top + AREA_HEIGHT / 2.0;
        if (width > 62.0) {
            ls_svg_label(text, middle, y - 3, LS_SVG_MIDDLE, -1, what);
            ls_svg_label(text, middle, y + 11, LS_SVG_MIDDLE, -1, length);
        } else if (width > 13.0) { /* upwards */
            snprintf(label, sizeof label, "%s %s", what, length);
            ls_text_printf(text, "<g transform=\"rotate(-90 %.1f %.1f)\">", middle + 4, y);
            ls_svg_label(text, middle + 4, y, LS_SVG_MIDDLE, -1, label);
            ls_text_append(text, "</g>\n");
        }
    }
}

static void append_ticks(const time_axis *axis, ls_text *text)
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{86400, "days"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    size_t unit = 0;
    while (unit < 3 && axis->total_s < 2 * units[unit].seconds) {
        unit++;
    }
    const double end_s = ls_goodput_wall_s(&axis->history->total), bottom = axis->top + AREA_HEIGHT;
    double first = 0.0, last_x = -100.0;
    const double step =
        ls_svg_ticks(0.0, axis->total_s / units[unit].seconds, (int)(axis->width / 90), &first);
    for (int i = 0; i * step * units[unit].seconds <= end_s && i < 10000; i++) {
        const double x = x_of(axis, share_at(axis, i * step * units[unit].seconds));
        if (x < last_x + 55.0) {
            continue; /* where time is drawn short */
        }
        char label[32];
        snprintf(label, sizeof label, "%.6g %s", i * step, units[unit].name);
        ls_svg_line(text, x, bottom, x, bottom + 4);
        ls_svg_label(text, x, bottom + 18, i == 0 ? LS_SVG_START : LS_SVG_MIDDLE, -1, label);
        last_x = x;
    }
    ls_svg_line(text, axis->left, bottom, axis->left + axis->width, bottom);
}

/* ---- what happened on the way ---- */

typedef struct incident {
    double at_s; /* since the first start's begin */
    bool is_loss;
    bool is_open; /* a rank was lost, and the step has not gone on yet */
    char text[200];
} incident;

typedef struct incident_list {
    incident *items;
    size_t count, room;
} incident_list;

static incident *add_incident(incident_list *list, double at_s, bool is_loss)
{
    if (list->count == list->room) {
        return NULL;
    }
    incident *item = &list->items[list->count++];
    *item = (incident){.at_s = at_s, .is_loss = is_loss};
    return item;
}

static void describe_event(const json_t *event, const char *name, incident *item)
{
    const int rank = (int)json_integer_value(json_object_get(event, "rank"));
    const char *cause = json_string_value(json_object_get(event, "cause"));
    const char *source = json_string_value(json_object_get(event, "source"));
    const char *action = json_string_value(json_object_get(event, "action"));
    if (strcmp(name, "rank_lost") == 0) {
        /* A cause names its rank; behind the first semicolon it guesses. */
        const int bytes = cause ? (int)strcspn(cause, ";") : 0;
        snprintf(item->text, sizeof item->text, "%.*s", bytes < 150 ? bytes : 150, cause ? cause : "");
        if (bytes == 0) {
            snprintf(item->text, sizeof item->text, "rank %d lost", rank);
        }
        item->is_open = true;
    } else if (strcmp(name, "notice") == 0) {
        snprintf(item->text, sizeof item->text, "notice from %.40s: %.100s", source ? source : "?",
                 action ? action : "leave");
    } else {
        snprintf(item->text, sizeof item->text, "rank %d %s", rank,
                 strcmp(name, "rank_joined") == 0 ? "joined" : "left");
    }
}

/* One recovery may bring back what several losses cost. */
static void close_losses(incident_list *list, const json_t *event)
{
    char length[32];
    format_duration(1e-3 * fmax(0.0, ls_json_number(event, "ms")), length, sizeof length);
    for (size_t i = list->count; i-- > 0;) {
        incident *item = &list->items[i];
        if (item->is_open) {
            const size_t used = strlen(item->text);
            snprintf(item->text + used, sizeof item->text - used, "; the step went on after %s", length);
            item->is_open = false;
        }
    }
}

static void add_events(const ls_report_data *data, incident_list *list)
{
    static const char *const names[] = {"rank_lost", "rank_joined", "rank_left", "notice"};
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        const json_t *event = json_array_get(data->events, i);
        const char *name = json_string_value(json_object_get(event, "event"));
        const double at_s = ls_json_number(event, "time") - data->history.starts[0].begun_s;
        if (strcmp(name, "recovered") == 0) {
            close_losses(list, event);
        }
        for (size_t k = 0; k < sizeof names / sizeof names[0] && isfinite(at_s); k++) {
            incident *item = strcmp(name, names[k]) == 0 ? add_incident(list, at_s, k == 0) : NULL;
            if (item) {
                describe_event(event, name, item);
            }
        }
    }
}

static void add_lost_starts(const ls_report_data *data, incident_list *list)
{
    for (size_t i = 0; i + 1 < data->history.start_count; i++) {
        const ls_time_start *start = &data->history.starts[i], *next = start + 1;
        const bool is_lost = !start->has_ended;
        const double end_s =
            start->begun_s - data->history.starts[0].begun_s + ls_goodput_wall_s(&start->time);
        incident *item = add_incident(list, end_s, is_lost);
        if (item) {
            snprintf(item->text, sizeof item->text,
                     "start %zu %s at step %" PRIu64 "; start %zu went on from step %" PRIu64, i + 1,
                     is_lost ? "was lost" : start->status, start->step, i + 2, next->restored);
        }
    }
}

static int by_time(const void *a, const void *b)
{
    const incident *x = a, *y = b;
    return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

static incident_list find_incidents(ls_report_data *data)
{
    const size_t room = json_array_size(data->events) + data->history.start_count;
    incident_list list = {.items = ls_arena_new(&data->arena, incident, room), .room = room};
    add_events(data, &list);
    add_lost_starts(data, &list);
    qsort(list.items, list.count, sizeof *list.items, by_time);
    return list;
}

/* Numbered pins above the course; numbers that would lie on each other are left out. */
static void append_pins(const time_axis *axis, const incident_list *list, ls_text *text)
{
    double last_x = -100.0;
    for (size_t i = 0; i < list->count; i++) {
        const incident *item = &list->items[i];
        const double x = x_of(axis, share_at(axis, item->at_s)), y = axis->top - 4;
        ls_text_printf(text, "<g><title>");
        ls_text_append_escaped(text, item->text);
        ls_text_printf(text,
                       "</title><path class=\"ls-f%d\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fZ\"/>"
                       "<line class=\"ls-s%d\" stroke-width=\"1\" stroke-dasharray=\"3 3\" x1=\"%.1f\" "
                       "y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/></g>\n",
                       item->is_loss ? 4 : 5, x, y, x - 5, y - 9, x + 5, y - 9, item->is_loss ? 4 : 5, x, y,
                       x, axis->top + AREA_HEIGHT);
        if (i < INCIDENTS_MAX && x > last_x + 15.0) {
            char number[16];
            snprintf(number, sizeof number, "%zu", i + 1);
            ls_svg_label(text, x, y - 13, LS_SVG_MIDDLE, -1, number);
            last_x = x;
        }
    }
}

static void append_incidents(const incident_list *list, ls_text *page)
{
    if (list->count == 0) {
        return;
    }
    ls_text_printf(page, "<details%s><summary>%zu %s on the way</summary><div class=\"scroll\"><table>",
                   list->count <= 12 ? " open" : "", list->count, list->count == 1 ? "thing" : "things");
    for (size_t i = 0; i < list->count && i < INCIDENTS_MAX; i++) {
        char length[32];
        format_duration(fmax(0.0, list->items[i].at_s), length, sizeof length);
        ls_text_printf(page, "<tr><td class=\"n\">%zu</td><td class=\"n\">%s</td><td class=\"w\">", i + 1,
                       length);
        ls_text_append_escaped(page, list->items[i].text);
        ls_text_append(page, "</td></tr>\n");
    }
    if (list->count > INCIDENTS_MAX) {
        ls_text_printf(page, "<tr><td colspan=\"3\" class=\"dim\">%zu more are in events.jsonl</td></tr>\n",
                       list->count - INCIDENTS_MAX);
    }
    ls_text_append(page, "</table></div></details>\n");
}

/* ---- figures ---- */

static void append_course(ls_report_data *data, time_axis axis, const incident_list *incidents, int width,
                          ls_text *page)
{
    const char *const title = axis.broken ? "Its course (long gaps are drawn short)" : "Its course";
    const bool has_pins = incidents->count > 0;
    axis.left = EDGE;
    axis.width = width - 2 * EDGE;
    axis.top = has_pins ? 66 : 42;
    ls_svg_begin(page, width, (int)axis.top + AREA_HEIGHT + 28, title);
    ls_svg_label(page, EDGE, 28, LS_SVG_START, 1, title);
    append_areas(data, &axis, page);
    append_gaps(&axis, page);
    append_ticks(&axis, page);
    append_pins(&axis, incidents, page);
    ls_svg_end(page);
}

static void append_total(const ls_report_data *data, int width, ls_text *page)
{
    const char *names[GROUPS + 1];
    int colors[GROUPS + 1];
    double groups[GROUPS], values[GROUPS + 1];
    size_t count = 0;
    sum_groups(data->goodput.seconds, groups);
    for (int g = 0; g < GROUPS; g++) {
        if (groups[g] > 0.0) {
            names[count] = group_names[g];
            colors[count] = group_colors[g];
            values[count++] = groups[g];
        }
    }
    static const char *const bar_name[] = {""};
    const ls_svg_bars bars = {.title = data->history.start_count > 1 ? "Where the time of all starts went"
                                                                     : "Where the time went",
                              .unit = "s",
                              .bar_names = bar_name,
                              .part_names = names,
                              .values = values,
                              .colors = colors,
                              .bar_count = 1,
                              .part_count = count,
                              .width = width};
    ls_svg_stacked_bars(&bars, page);
}

static void append_table(const ls_report_data *data, ls_text *page)
{
    const double wall_s = ls_goodput_wall_s(&data->goodput);
    ls_text_append(page, "<div class=\"scroll\"><table><tr><th>class</th><th class=\"n\">time</th><th "
                         "class=\"n\">share</th></tr>\n");
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        const double seconds = data->goodput.seconds[i];
        char length[32];
        format_duration(seconds, length, sizeof length);
        if (seconds > 0.0) {
            ls_text_printf(page, "<tr><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%.1f %%</td></tr>\n",
                           ls_time_class_label((ls_time_class)i), length, 100.0 * seconds / wall_s);
        }
    }
    char length[32];
    format_duration(wall_s, length, sizeof length);
    ls_text_printf(page,
                   "<tr><td>all of it, %zu %s</td><td class=\"n\">%s</td><td class=\"n\">100 "
                   "%%</td></tr></table></div>\n",
                   data->history.start_count > 0 ? data->history.start_count : 1,
                   data->history.start_count > 1 ? "starts" : "start", length);
}

void ls_report_append_time(ls_report_data *data, ls_text *page)
{
    time_axis axis = {0};
    incident_list incidents = {0};
    const bool has_course = data->history.slice_count > 0;
    if (has_course) {
        make_axis(data, &axis);
        incidents = find_incidents(data);
    }
    ls_text_append(page, "<div class=\"card\">");
    static const int widths[] = {WIDE, PHONE};
    for (int i = 0; i < 2; i++) {
        ls_text_printf(page, "<div class=\"%s\">", i == 0 ? "ls-wide" : "ls-phone");
        append_total(data, widths[i], page);
        if (has_course && axis.total_s > 0.0) {
            append_course(data, axis, &incidents, widths[i], page);
        }
        ls_text_append(page, "</div>");
    }
    append_incidents(&incidents, page);
    append_table(data, page);
    ls_text_append(page, "<p>Every second from the first start to now is in exactly one class. <b>Work done "
                         "twice</b> is what a start that was lost had finished after its newest checkpoint, "
                         "and the step it was in; "
                         "<b>down</b> is the time until somebody started the run again, <b>paused</b> the "
                         "same when nobody wanted it to run.</p></div>\n");
}
