// SPDX-License-Identifier: Apache-2.0
/* Where the time went, over all starts: a bar, the same over time with incidents, and the
 * numbers. */
#include "base/svg.h"
#include "base/template.h"
#include "telemetry/record/metrics_reader.h"
#include "telemetry/report/report_figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 1000, PHONE = 370, EDGE = 16, AREA_HEIGHT = 120, INCIDENTS_MAX = 40, PINS_MAX = 2000 };

/* ---- classes, in the order and colours of the picture ---- */

enum { GROUPS = 8 };
static const char *const group_names[GROUPS] = {"training",        "evaluating, sampling",   "saving",
                                                "starting up",     "communicating, waiting", "recovering",
                                                "work done twice", "logging and the rest"};
static const int group_colors[GROUPS] = {0, 5, 2, 6, 3, 1, 4, 7};

/* GROUPS: the run was not training. */
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

/* ---- the axis: long gaps in training are drawn short ---- */

typedef struct time_axis {
    const ls_time_history *history;
    double *at;     /* (slices + 1) where each slice begins, 0..1 of the width */
    double total_s; /* as drawn */
    bool broken;    /* some are drawn shorter than they are */
    double left, width, top;
} time_axis;

/* A gap longer than 12 % of the working time is drawn as 6 % of it: a weekend between two starts
 * would leave no room for the hours of training. */
static double drawn_length(const ls_time_slice *slice, double worked_s)
{
    const double gap_s = gap_of(slice);
    return gap_s > 0.12 * worked_s ? fmax(0.06 * worked_s, 1e-3) : length_of(slice);
}

/*
 * Places the slices on the axis. at[] has the left edge of each slice as a share of the width:
 *
 *   slices   |  start 1  |  down 3 days  |  start 2  |
 *   drawn    |===========|====|==========|             axis->broken, the gap drawn short
 *           at[0]       at[1] at[2]     at[3] = 1
 */
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

/* Where a time, counted from the beginning of the first start, is drawn: 0..1 of the width. Each
 * slice begins where the one before it ends. */
static double share_at(const time_axis *axis, double time_s)
{
    const ls_time_history *history = axis->history;
    size_t low = 0, high = history->slice_count; /* the first that ends after that time */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const ls_time_slice *slice = &history->slices[middle];
        if (time_s < slice->begun_s + length_of(slice)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (low == history->slice_count) {
        return 1.0;
    }
    const ls_time_slice *slice = &history->slices[low];
    const double into_s = fmax(0.0, time_s - slice->begun_s);
    return axis->at[low] +
           (into_s > 0.0 ? into_s / length_of(slice) : 0.0) * (axis->at[low + 1] - axis->at[low]);
}

/* ---- areas ---- */

/* Seconds of each group in each of `count` columns of equal width. A slice that spans several
 * columns is divided by overlap; gaps leave their columns empty, which splits the areas there. */
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

/* The areas of one figure: `count` columns of equal width, each with its groups. */
typedef struct areas {
    const time_axis *axis;
    double (*columns)[GROUPS];
    int count;
    ls_text *text;
} areas;

static void append_edge(const areas *a, int column, int group, bool leftwards, ls_text *path)
{
    const double y = a->axis->top + AREA_HEIGHT * (1.0 - edge_of(a->columns[column], group));
    const double left = x_of(a->axis, (double)column / a->count),
                 right = x_of(a->axis, (column + 1.0) / a->count);
    ls_text_printf(path, "L%.1f %.1fL%.1f %.1f", leftwards ? right : left, y, leftwards ? left : right, y);
}

/* One group over the columns from..to, none of which is empty: its lower edge from left to right,
 * then its upper edge, which is the lower edge of the next group, back to the left. */
static void append_area(const areas *a, int from, int to, int group)
{
    double most = 0.0;
    for (int column = from; column < to; column++) {
        most = fmax(most, a->columns[column][group]);
    }
    if (most <= 0.0) {
        return;
    }
    ls_text path = {0};
    for (int column = from; column < to; column++) {
        append_edge(a, column, group, false, &path);
    }
    for (int column = to; column-- > from;) {
        append_edge(a, column, group + 1, true, &path);
    }
    ls_text_printf(a->text, "<path class=\"ls-f%d\" d=\"M%sZ\"><title>%s</title></path>\n",
                   group_colors[group], ls_text_string(&path) + 1, group_names[group]);
    ls_text_release(&path);
}

static void append_areas(ls_report_data *data, const time_axis *axis, ls_text *text)
{
    const int count = (int)(axis->width / 2);
    const areas a = {.axis = axis,
                     .columns = ls_arena_alloc(&data->arena, (size_t)count * sizeof *a.columns),
                     .count = count,
                     .text = text};
    fill_columns(axis, a.columns, count);
    for (int from = 0; from < count; from++) {
        int to = from;
        while (to < count && is_filled(a.columns[to])) {
            to++;
        }
        for (int group = 0; group < GROUPS && to > from; group++) {
            append_area(&a, from, to, group);
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
        char label[48];
        const double left = x_of(axis, axis->at[i]), width = x_of(axis, axis->at[i + 1]) - left;
        const ls_quantity length = ls_duration_of(gap_of(slice));
        const char *what = slice->seconds[LS_TIME_PAUSED] > 0.0 ? "paused" : "down";
        ls_svg_box(text, (ls_svg_rect){left, axis->top, width, AREA_HEIGHT}, 7, NULL);
        const double middle = left + width / 2, y = axis->top + AREA_HEIGHT / 2.0;
        if (width > 62.0) {
            ls_svg_label(text, middle, y - 3, LS_SVG_MIDDLE, -1, what);
            ls_svg_label(text, middle, y + 11, LS_SVG_MIDDLE, -1, length.text);
        } else if (width > 13.0) { /* upwards */
            snprintf(label, sizeof label, "%s %s", what, length.text);
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
            continue; /* the axis is compressed here */
        }
        char label[32];
        snprintf(label, sizeof label, "%.6g %s", i * step, units[unit].name);
        ls_svg_line(text, x, bottom, x, bottom + 4);
        ls_svg_label(text, x, bottom + 18, i == 0 ? LS_SVG_START : LS_SVG_MIDDLE, -1, label);
        last_x = x;
    }
    ls_svg_line(text, axis->left, bottom, axis->left + axis->width, bottom);
}

/* ---- incidents ---- */

typedef struct incident {
    double at_s; /* since the first start's begin */
    bool is_loss;
    bool is_open; /* a rank was lost, and the step has not continued yet */
    char text[200];
} incident;

typedef struct incident_list {
    incident *items;
    size_t count, room;
    size_t closed; /* none before this one is open */
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
        /* A cause names its rank; what follows the first semicolon is a guess. */
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

/* One recovery may end several losses. */
static void close_losses(incident_list *list, const json_t *event)
{
    const ls_quantity length = ls_duration_of(1e-3 * fmax(0.0, ls_json_number(event, "ms")));
    for (; list->closed < list->count; list->closed++) {
        incident *item = &list->items[list->closed];
        if (item->is_open) {
            const size_t used = strlen(item->text);
            snprintf(item->text + used, sizeof item->text - used, "; the step continued after %s",
                     length.text);
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
                     "start %zu %s at step %" PRIu64 "; start %zu continued from step %" PRIu64, i + 1,
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

/* Numbered pins above the areas; numbers that would overlap are left out, and so are pins beyond
 * PINS_MAX. */
static void append_pins(const time_axis *axis, const incident_list *list, ls_text *text)
{
    double last_x = -100.0;
    for (size_t i = 0; i < list->count && i < PINS_MAX; i++) {
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

static void add_incidents(const incident_list *list, ls_values *page)
{
    const bool has_any = list->count > 0;
    ls_values_text(page, "incident_title", "");
    if (has_any) {
        ls_values_printf(page, "incident_title", "%zu %s", list->count,
                         list->count == 1 ? "incident" : "incidents");
    }
    ls_values_flag(page, "incidents_open", list->count <= 12);
    for (size_t i = 0; i < list->count && i < INCIDENTS_MAX; i++) {
        ls_values *row = ls_values_add(page, "incidents");
        ls_values_printf(row, "number", "%zu", i + 1);
        ls_values_text(row, "at", ls_duration_of(fmax(0.0, list->items[i].at_s)).text);
        ls_values_text(row, "text", list->items[i].text);
    }
    if (list->count > INCIDENTS_MAX) {
        ls_values_printf(page, "incidents_more", "%zu", list->count - INCIDENTS_MAX);
    }
}

/* ---- figures ---- */

static void append_course(ls_report_data *data, time_axis axis, const incident_list *incidents, int width,
                          ls_text *page)
{
    const char *const title = axis.broken ? "Over time (long gaps are drawn short)" : "Over time";
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

static void add_classes(const ls_report_data *data, ls_values *page)
{
    const double wall_s = ls_goodput_wall_s(&data->goodput);
    const size_t starts = data->history.start_count > 0 ? data->history.start_count : 1;
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        const double seconds = data->goodput.seconds[i];
        if (seconds > 0.0) {
            ls_values *row = ls_values_add(page, "classes");
            ls_values_text(row, "class", ls_time_class_label((ls_time_class)i));
            ls_values_text(row, "time", ls_duration_of(seconds).text);
            ls_values_printf(row, "share", "%.1f %%", 100.0 * seconds / wall_s);
        }
    }
    ls_values_printf(page, "starts", "%zu %s", starts, starts == 1 ? "start" : "starts");
    ls_values_text(page, "wall", ls_duration_of(wall_s).text);
}

void ls_report_add_piece(ls_values *bar, const char *label, int color, double from, double to)
{
    ls_values *piece = ls_values_add(bar, "pieces");
    ls_values_text(piece, "label", label);
    ls_values_printf(piece, "color", "%d", color);
    ls_values_printf(piece, "x", "%.1f", 1000.0 * from);
    ls_values_printf(piece, "width", "%.1f", 1000.0 * (to - from));
    ls_values_printf(piece, "share", "%.*f %%", to - from < 0.1 ? 1 : 0, 100.0 * (to - from));
}

void ls_report_add_time_bar(ls_report_data *data, const char *name, ls_values *page)
{
    double groups[GROUPS], total_s = 0.0, at_s = 0.0;
    char said[128];
    ls_values *bar = ls_values_add(page, name);
    ls_goodput_describe(&data->goodput, said, sizeof said);
    ls_values_text(bar, "said", said);
    sum_groups(data->goodput.seconds, groups);
    for (int g = 0; g < GROUPS; g++) {
        total_s += groups[g];
    }
    for (int g = 0; g < GROUPS; g++) {
        if (groups[g] > 0.0) {
            ls_report_add_piece(bar, group_names[g], group_colors[g], at_s / total_s,
                                (at_s + groups[g]) / total_s);
            at_s += groups[g];
        }
    }
    add_classes(data, page);
}

bool ls_report_append_course(ls_report_data *data, int width, ls_text *svg)
{
    time_axis axis = {0};
    if (data->history.slice_count > 0) {
        make_axis(data, &axis);
    }
    if (axis.total_s > 0.0) {
        const incident_list incidents = find_incidents(data);
        append_course(data, axis, &incidents, width, svg);
    }
    return axis.total_s > 0.0;
}

void ls_report_add_time(ls_report_data *data, ls_values *page)
{
    static const char *const names[] = {"wide", "phone"};
    static const int widths[] = {WIDE, PHONE};
    time_axis axis = {0};
    incident_list incidents = {0};
    if (data->history.slice_count > 0) {
        make_axis(data, &axis);
        incidents = find_incidents(data);
    }
    ls_values *figure = ls_values_add(page, "time");
    for (int i = 0; i < 2; i++) {
        ls_text made = {0};
        append_total(data, widths[i], &made);
        if (axis.total_s > 0.0) {
            append_course(data, axis, &incidents, widths[i], &made);
        }
        ls_values_markup(figure, names[i], &made);
    }
    add_incidents(&incidents, page);
    add_classes(data, page);
}
