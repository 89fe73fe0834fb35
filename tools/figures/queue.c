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
    DEVICES_MAX = LS_QUEUE_DRAWING_DEVICES_MAX,
    JOBS_MAX = 4096,
    ACCOUNTS_MAX = 6,
    LABEL_WIDTH = 64,
    LANE = 26,
    WAITING_HEIGHT = 46,
    TOP = 36,
};

/* ---- from events to bars ---- */

typedef struct one_job {
    uint64_t number;
    char name[24], account[24];
    bool waits;
    uint64_t lanes; /* its devices, as bits */
    double since_s; /* it has devices */
} one_job;

typedef struct bar {
    uint64_t lanes;
    double from_s, to_s;
    size_t job;
    bool was_stopped; /* stopped for another job */
} bar;

/* The number of waiting jobs from that time on. */
typedef struct level {
    double time_s;
    size_t count;
} level;

typedef struct queue_picture {
    one_job *jobs;
    bar *bars;
    level *levels;
    size_t job_count, bar_count, level_count, capacity;
    uint64_t used;
    uint32_t devices; /* most devices in use at once */
    double begin_s, end_s;
} queue_picture;

static void copy_text(char *out, size_t bytes, const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    ls_text printable = {0};
    ls_text_append_printable(&printable, text ? text : "", strlen(text ? text : ""), "");
    snprintf(out, bytes, "%s", ls_text_string(&printable));
    ls_text_release(&printable);
}

/* The job of an event, added when it is new; NULL when there are too many. */
static one_job *job_of(queue_picture *picture, const json_t *event)
{
    uint64_t number = 0;
    if (!ls_json_count(event, "job", &number)) {
        return NULL;
    }
    for (size_t i = 0; i < picture->job_count; i++) {
        if (picture->jobs[i].number == number) {
            return &picture->jobs[i];
        }
    }
    if (picture->job_count == JOBS_MAX || picture->job_count == picture->capacity) {
        return NULL;
    }
    one_job *job = &picture->jobs[picture->job_count++];
    *job = (one_job){.number = number};
    copy_text(job->name, sizeof job->name, event, "name");
    copy_text(job->account, sizeof job->account, event, "account");
    return job;
}

static bool has_devices(const char *state)
{
    static const char *const states[] = {"STARTING", "RUNNING", "RESIZING", "PREEMPTING", "STOPPING"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        if (strcmp(states[i], state) == 0) {
            return true;
        }
    }
    return false;
}

/* The lowest free lanes; fewer than asked for when there are no more. */
static uint64_t take_lanes(uint64_t used, uint64_t count)
{
    uint64_t lanes = 0;
    for (int lane = 0; lane < DEVICES_MAX && count > 0; lane++) {
        if (!(used >> lane & 1)) {
            lanes |= UINT64_C(1) << lane;
            count--;
        }
    }
    return lanes;
}

static void begin_bar(queue_picture *picture, one_job *job, const json_t *event, double time_s)
{
    uint64_t ranks = 1;
    (void)ls_json_count(event, "ranks", &ranks);
    job->lanes = take_lanes(picture->used, ranks);
    job->since_s = time_s;
    picture->used |= job->lanes;
    for (uint32_t lane = 0; lane < DEVICES_MAX; lane++) {
        if (picture->used >> lane & 1 && lane + 1 > picture->devices) {
            picture->devices = lane + 1;
        }
    }
}

static void end_bar(queue_picture *picture, one_job *job, double time_s, bool was_stopped)
{
    picture->bars[picture->bar_count++] = (bar){.lanes = job->lanes,
                                                .from_s = job->since_s,
                                                .to_s = time_s,
                                                .job = (size_t)(job - picture->jobs),
                                                .was_stopped = was_stopped};
    picture->used &= ~job->lanes;
    job->lanes = 0;
}

static void add_event(queue_picture *picture, const json_t *event)
{
    const char *state = json_string_value(json_object_get(event, "state"));
    const char *from = json_string_value(json_object_get(event, "from"));
    const double time_s = ls_json_number(event, "time");
    one_job *job = state && isfinite(time_s) ? job_of(picture, event) : NULL;
    if (!job || (picture->level_count > 0 && time_s < picture->end_s)) {
        return; /* not an event of the queue, or out of order */
    }
    if (picture->level_count == 0) {
        picture->begin_s = time_s;
    }
    picture->end_s = time_s;
    if (has_devices(state) && job->lanes == 0) {
        begin_bar(picture, job, event, time_s);
    } else if (!has_devices(state) && job->lanes != 0) {
        end_bar(picture, job, time_s, from && strcmp(from, "PREEMPTING") == 0);
    }
    job->waits = strcmp(state, "QUEUED") == 0 || strcmp(state, "HELD") == 0;
    size_t waiting = 0;
    for (size_t i = 0; i < picture->job_count; i++) {
        waiting += picture->jobs[i].waits;
    }
    picture->levels[picture->level_count++] = (level){.time_s = time_s, .count = waiting};
}

static void read_events(const char *events, size_t bytes, queue_picture *picture)
{
    ls_line_reader reader = {.text = events, .bytes = bytes};
    json_t *event = NULL;
    for (ls_line_kind kind;
         (kind = ls_object_reader_next(&reader, &event)) != LS_LINE_END && kind != LS_LINE_TORN;) {
        if (kind == LS_LINE_GOOD) {
            add_event(picture, event);
            json_decref(event);
        }
    }
    for (size_t i = 0; i < picture->job_count; i++) {
        if (picture->jobs[i].lanes != 0) { /* still runs */
            end_bar(picture, &picture->jobs[i], picture->end_s, false);
        }
    }
}

/* ---- the picture ---- */

static double x_of(const queue_picture *picture, double time_s)
{
    const double left = LABEL_WIDTH, width = WIDTH - MARGIN - left,
                 span_s = picture->end_s - picture->begin_s;
    return left + width * (span_s > 0.0 ? (time_s - picture->begin_s) / span_s : 0.0);
}

/* Accounts get colours in the order in which they appear. */
static int color_of(const queue_picture *picture, const char *account)
{
    int seen = 0;
    for (size_t i = 0; i < picture->job_count; i++) {
        bool is_first = true;
        for (size_t k = 0; k < i; k++) {
            is_first = is_first && strcmp(picture->jobs[k].account, picture->jobs[i].account) != 0;
        }
        if (strcmp(picture->jobs[i].account, account) == 0) {
            return seen;
        }
        seen += is_first;
    }
    return seen;
}

static double lane_y(uint32_t lane)
{
    return TOP + (double)LANE * lane;
}

/* Adjacent lanes are one box, with the name of the job if it fits, or its number, or nothing. */
static void append_bar(const queue_picture *picture, const bar *b, ls_text *text)
{
    const one_job *job = &picture->jobs[b->job];
    const double x = x_of(picture, b->from_s), width = fmax(x_of(picture, b->to_s) - x, 1.5);
    for (uint32_t lane = 0; lane < picture->devices; lane++) {
        uint32_t high = 0;
        while (lane + high < DEVICES_MAX && b->lanes >> (lane + high) & 1) {
            high++;
        }
        if (high == 0) {
            continue;
        }
        char number[24];
        snprintf(number, sizeof number, "%" PRIu64, job->number);
        const char *label = ls_svg_text_width(job->name, 0) < width - 6 ? job->name
                            : ls_svg_text_width(number, 0) < width - 4  ? number
                                                                        : NULL;
        ls_svg_box(text, (ls_svg_rect){x, lane_y(lane) + 1, width, (double)LANE * high - 2},
                   color_of(picture, job->account), label);
        lane += high - 1;
    }
}

static void append_lanes(const queue_picture *picture, ls_text *text)
{
    for (uint32_t lane = 0; lane < picture->devices; lane++) {
        char label[24];
        snprintf(label, sizeof label, "device %" PRIu32, lane);
        ls_svg_label(text, LABEL_WIDTH - 8, lane_y(lane) + 0.5 * LANE + 4, LS_SVG_END, -1, label);
    }
    const double bottom = lane_y(picture->devices);
    ls_svg_line(text, LABEL_WIDTH, bottom, WIDTH - MARGIN, bottom);
    for (size_t i = 0; i < picture->bar_count; i++) {
        append_bar(picture, &picture->bars[i], text);
    }
}

/* The number of waiting jobs, as an area. */
static void append_waiting(const queue_picture *picture, double top, ls_text *text)
{
    size_t most = 1;
    for (size_t i = 0; i < picture->level_count; i++) {
        most = picture->levels[i].count > most ? picture->levels[i].count : most;
    }
    for (size_t i = 0; i + 1 < picture->level_count; i++) {
        const double x = x_of(picture, picture->levels[i].time_s),
                     next = x_of(picture, picture->levels[i + 1].time_s);
        const double height = WAITING_HEIGHT * (double)picture->levels[i].count / (double)most;
        if (height > 0.0 && next > x) {
            ls_svg_cell(text, (ls_svg_rect){x, top + WAITING_HEIGHT - height, next - x, height},
                        (ls_svg_ink){.color = 7, .opacity = 0.5}, NULL);
        }
    }
    char label[32];
    snprintf(label, sizeof label, "max %zu", most);
    ls_svg_label(text, LABEL_WIDTH - 8, top + 14, LS_SVG_END, -1, "waiting");
    ls_svg_label(text, LABEL_WIDTH - 8, top + 28, LS_SVG_END, -1, label);
    ls_svg_line(text, LABEL_WIDTH, top + WAITING_HEIGHT, WIDTH - MARGIN, top + WAITING_HEIGHT);
}

static void append_times(const queue_picture *picture, double y, ls_text *text)
{
    const double span_s = picture->end_s - picture->begin_s;
    double first = 0.0;
    const double step = ls_svg_ticks(0.0, span_s > 0.0 ? span_s : 1.0, 4, &first);
    for (double at_s = first; at_s <= span_s; at_s += step) {
        ls_svg_label(text, x_of(picture, picture->begin_s + at_s), y, LS_SVG_MIDDLE, -1,
                     ls_duration_of(at_s > 0.0 ? at_s : 0.0).text);
    }
}

/* The first job that was stopped for another, labelled where it happened. */
static void append_stop(const queue_picture *picture, double bottom, ls_text *text)
{
    for (size_t i = 0; i < picture->bar_count; i++) {
        const bar *b = &picture->bars[i];
        if (b->was_stopped) {
            char label[64];
            const double x = x_of(picture, b->to_s);
            snprintf(label, sizeof label, "%s is stopped, saves, waits", picture->jobs[b->job].name);
            ls_svg_line(text, x, TOP - 8, x, bottom);
            ls_svg_label_between(text, x, TOP - 14, -1, label, (ls_svg_span){LABEL_WIDTH, WIDTH - MARGIN});
            return;
        }
    }
}

static double append_legend(const queue_picture *picture, double y, ls_text *text)
{
    const char *names[ACCOUNTS_MAX];
    int colors[ACCOUNTS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < picture->job_count && count < ACCOUNTS_MAX; i++) {
        if (color_of(picture, picture->jobs[i].account) == (int)count) {
            names[count] = picture->jobs[i].account;
            colors[count] = (int)count;
            count++;
        }
    }
    return ls_svg_legend(text, &(ls_svg_names){names, colors, count}, LABEL_WIDTH, y, WIDTH - MARGIN);
}

static void draw(const queue_picture *picture, ls_text *text)
{
    ls_text body = {0};
    const double lanes_end = lane_y(picture->devices);
    append_lanes(picture, &body);
    append_stop(picture, lanes_end, &body);
    append_waiting(picture, lanes_end + 14, &body);
    append_times(picture, lanes_end + 14 + WAITING_HEIGHT + 16, &body);
    const double last = append_legend(picture, lanes_end + 14 + WAITING_HEIGHT + 40, &body);
    ls_svg_begin(text, WIDTH, (int)last + MARGIN,
                 "devices over time: which job has which, and how many wait");
    ls_text_append(text, ls_text_string(&body));
    ls_svg_end(text);
    ls_text_release(&body);
}

ls_status ls_drawing_queue(const char *events, size_t bytes, ls_text *text)
{
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++) {
        lines += events[i] == '\n';
    }
    queue_picture picture = {.capacity = lines};
    picture.jobs = calloc(lines, sizeof *picture.jobs);
    picture.bars = calloc(2 * lines, sizeof *picture.bars);
    picture.levels = calloc(lines, sizeof *picture.levels);
    ls_status status = LS_OK;
    if (!picture.jobs || !picture.bars || !picture.levels) {
        status = ls_fail(LS_ERR_MEMORY, "no memory for a picture of %zu events", lines);
    } else {
        read_events(events, bytes, &picture);
        if (picture.bar_count == 0) {
            status =
                ls_fail(LS_ERR_INVALID,
                        "no job started in these events; give the output of /v1/events, one object per line");
        } else {
            draw(&picture, text);
        }
    }
    free(picture.jobs);
    free(picture.bars);
    free(picture.levels);
    return status;
}
