// SPDX-License-Identifier: Apache-2.0
/* The values of web/run.html. */
#include "telemetry/report/run_page.h"

#include "base/web.h"
#include "telemetry/record/metrics_reader.h"
#include "telemetry/record/run_notes.h"
#include "telemetry/report/report_data.h"
#include "telemetry/report/report_figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHARTS_MAX = 500,
    RANKS_MAX = 256,
    ALERTS_MAX = 5,
    COURSE_WIDTH = 1000,
};

#define WORD_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* ---- addresses ---- */

void ls_run_id_append(ls_text *text, const char *string)
{
    for (; *string; string++) {
        if (strchr(WORD_CHARACTERS "~", *string)) {
            ls_text_append_bytes(text, string, 1);
        } else {
            ls_text_printf(text, "%%%02X", (unsigned)(unsigned char)*string);
        }
    }
}

void ls_run_address_append(ls_text *text, const char *id, const char *rest)
{
    ls_text_append(text, "/runs/");
    ls_run_id_append(text, id);
    ls_text_append(text, rest);
}

static void set_address(ls_values *values, const char *name, const char *id, const char *rest,
                        const char *key)
{
    ls_text text = {0};
    ls_run_address_append(&text, id, rest);
    ls_run_id_append(&text, key);
    ls_values_text(values, name, ls_text_string(&text));
    ls_text_release(&text);
}

/* ---- charts ---- */

/* What a reader looks for first stands first. */
static int rank_of(const char *name)
{
    static const char *const first[] = {"loss",         "val_loss", "lr", "grad_norm",
                                        "tokens_per_s", "step_s",   "mfu"};
    const int count = (int)(sizeof first / sizeof first[0]);
    for (int i = 0; i < count; i++) {
        if (strcmp(first[i], name) == 0) {
            return i;
        }
    }
    return count;
}

static int by_rank(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const int order = rank_of(x) - rank_of(y);
    return order != 0 ? order : strcmp(x, y);
}

static void add_charts(const ls_run_view *run, ls_arena *arena, ls_values *page)
{
    const size_t count = run->metrics ? run->metrics->count : 0;
    const char **names = ls_arena_new(arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        names[i] = run->metrics->metrics[i].name;
    }
    qsort(names, count, sizeof *names, by_rank);
    for (size_t i = 0; i < count && i < CHARTS_MAX; i++) {
        ls_values *row = ls_values_add(page, "charts");
        ls_values_text(row, "key", names[i]);
        set_address(row, "address", run->id, "/chart.svg?key=", names[i]);
    }
    if (count > CHARTS_MAX) {
        ls_values_printf(page, "more_charts", "%zu", count - CHARTS_MAX);
    }
}

/* ---- how far, and how long still ---- */

/*
 * The time left is the steps left times the mean time of the newest steps, over the share of the
 * time that was training. The band: as if all were as fast as the fastest tenth of the newest steps
 * in a row, or as slow as the slowest. The mean is always in it.
 */
static void set_eta(const ls_report_data *data, double steps_left, ls_values *page)
{
    enum { TENTHS = 10 };
    double sums[TENTHS] = {0}, sum = 0.0, low = INFINITY, high = 0.0;
    size_t counts[TENTHS] = {0}, count = 0;
    for (size_t i = 0; i < data->count; i++) {
        const double step_s = data->step_s[i];
        if (step_s > 0.0) {
            sums[i * TENTHS / data->count] += step_s;
            counts[i * TENTHS / data->count]++;
            sum += step_s;
            count++;
        }
    }
    const double share = data->has_goodput ? ls_goodput_fraction(&data->goodput) : 1.0;
    if (count < 3 || !(share > 0.0)) {
        return;
    }
    for (size_t i = 0; i < TENTHS; i++) {
        if (counts[i] > 0) {
            low = fmin(low, sums[i] / (double)counts[i]);
            high = fmax(high, sums[i] / (double)counts[i]);
        }
    }
    const double each = steps_left / share;
    ls_values_text(page, "eta", ls_duration_of(each * sum / (double)count).text);
    ls_values_printf(page, "eta_band", "%s to %s", ls_duration_of(each * low).text,
                     ls_duration_of(each * high).text);
}

static void set_progress(ls_report_data *data, ls_values *page)
{
    const double total = (double)data->steps_total,
                 step = data->count > 0 ? data->step[data->count - 1] : 0.0;
    const bool is_known = total > 0.0 && step <= total;
    ls_values_text(page, "eta", "");
    ls_values_text(page, "eta_band", "");
    ls_values_flag(page, "has_progress", is_known);
    if (is_known) {
        ls_values_printf(page, "done", "%.0f", 1000.0 * step / total);
        ls_values_printf(page, "percent", "%.*f %%", total >= 1000.0 ? 1 : 0, 100.0 * step / total);
        if (data->running && step < total) {
            set_eta(data, total - step, page);
        }
    }
}

/* ---- where the time of a step goes ---- */

static void add_split(const ls_report_data *data, ls_values *page)
{
    double sums[LS_STEP_PARTS] = {0}, total = 0.0, at = 0.0;
    for (size_t i = 0; i < data->count; i++) {
        for (int k = 0; k < LS_STEP_PARTS; k++) {
            sums[k] += data->parts_s[i][k];
            total += data->parts_s[i][k];
        }
    }
    if (!(total > 0.0)) {
        return;
    }
    static const int colors[LS_STEP_PARTS] = {0, 3, 5, 2, 6, 1, 7};
    ls_values *bar = ls_values_add(page, "split");
    ls_values_printf(bar, "said", "the parts of a step, mean of %zu steps", data->count);
    for (int k = 0; k < LS_STEP_PARTS; k++) {
        if (sums[k] >= 0.0005 * total) {
            ls_report_add_piece(bar, ls_step_part_names[k], colors[k], at, at + sums[k] / total);
            at += sums[k] / total;
        }
    }
}

/* ---- ranks ---- */

typedef struct rank_row {
    const json_t *start; /* its newest event rank_started; NULL: none */
    unsigned starts, lost, late;
    double late_s; /* in all */
} rank_row;

static void count_event(const json_t *event, const char *name, rank_row *row)
{
    if (strcmp(name, "rank_started") == 0) {
        row->start = event;
        row->starts++;
    } else if (strcmp(name, "rank_lost") == 0) {
        row->lost++;
    } else if (strcmp(name, "late") == 0) {
        const double waited_s = ls_json_number(event, "waited_s");
        row->late++;
        row->late_s += isfinite(waited_s) ? waited_s : 0.0;
    }
}

static void add_rank(size_t rank, const rank_row *row, double late_max_s, ls_values *page)
{
    ls_values *values = ls_values_add(page, "ranks");
    const char *host = json_string_value(json_object_get(row->start, "host"));
    const char *device = json_string_value(json_object_get(row->start, "device"));
    uint64_t pid = 0;
    ls_values_printf(values, "rank", "%zu", rank);
    ls_values_cut(values, "host", host, 64);
    ls_values_cut(values, "device", device, 64);
    ls_values_text(values, "pid", NULL);
    if (ls_json_count(row->start, "pid", &pid)) {
        ls_values_printf(values, "pid", "%" PRIu64, pid);
    }
    ls_values_printf(values, "starts", "%u", row->starts);
    ls_values_printf(values, "lost", "%u", row->lost);
    ls_values_printf(values, "late", "%u", row->late);
    ls_values_printf(values, "heat", "%.1f", late_max_s > 0.0 ? 100.0 * row->late_s / late_max_s : 0.0);
}

static void add_ranks(const ls_report_data *data, ls_arena *arena, ls_values *page)
{
    rank_row *rows = ls_arena_new(arena, rank_row, RANKS_MAX);
    size_t count = 0, latest = 0;
    uint64_t rank = 0;
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        const json_t *event = json_array_get(data->events, i);
        const char *name = json_string_value(json_object_get(event, "event"));
        if (ls_json_count(event, "rank", &rank) && rank < RANKS_MAX) {
            count_event(event, name, &rows[rank]);
            count = rank >= count ? (size_t)rank + 1 : count;
        }
    }
    for (size_t i = 0; i < count; i++) {
        latest = rows[i].late_s > rows[latest].late_s ? i : latest;
    }
    ls_values_flag(page, "has_ranks", count > 0);
    ls_values_text(page, "latest", "");
    if (count > 1 && rows[latest].late > 0) {
        ls_values_printf(page, "latest", "Rank %zu is the one that others waited for: %u times, %s in all.",
                         latest, rows[latest].late, ls_duration_of(rows[latest].late_s).text);
    }
    for (size_t i = 0; i < count; i++) {
        add_rank(i, &rows[i], count > 0 ? rows[latest].late_s : 0.0, page);
    }
}

/* ---- alerts, notes ---- */

static void add_alerts(const ls_report_data *data, ls_values *page)
{
    size_t shown = 0;
    for (size_t i = json_array_size(data->events); i-- > 0 && shown < ALERTS_MAX;) {
        const json_t *event = json_array_get(data->events, i);
        if (strcmp(json_string_value(json_object_get(event, "event")), "alert") == 0) {
            ls_values *row = ls_values_add(page, "alerts");
            ls_values_cut(row, "kind", json_string_value(json_object_get(event, "kind")), 40);
            ls_values_cut(row, "text", json_string_value(json_object_get(event, "text")), 400);
            ls_web_time(row, "time", ls_json_number(event, "time"), "%m-%d %H:%M UTC");
            shown++;
        }
    }
}

static void set_notes(const json_t *notes, ls_values *page)
{
    const json_t *tags = json_object_get(notes, "tags");
    const char *note = json_string_value(json_object_get(notes, "note"));
    ls_text list = {0};
    ls_values_text(page, "note", note ? note : "");
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const char *tag = json_string_value(json_array_get(tags, i));
        ls_values_text(ls_values_add(page, "tags"), "tag", tag ? tag : "");
        ls_text_append(&list, i > 0 ? " " : "");
        ls_text_append(&list, tag ? tag : "");
    }
    ls_values_text(page, "tag_list", ls_text_string(&list));
    ls_text_release(&list);
}

/* ---- the page ---- */

/* Of a folder without a run of this program: what /v1/runs says. */
static void set_foreign_head(const ls_run_view *run, ls_values *page)
{
    ls_values_printf(page, "title", "%s \u00b7 run", run->name);
    ls_values_text(page, "name", run->name);
    ls_values_text(page, "status", run->status);
    ls_values_text(page, "look", "dim");
    ls_values_text(page, "dir", run->dir);
    ls_web_time(page, "begun", json_number_value(json_object_get(run->row, "started")),
                "%Y-%m-%d %H:%M:%S UTC");
    ls_values_text(page, "newest", "");
    ls_values_flag(page, "has_progress", false);
}

/* `path` and `rest` as one word of a shell. */
static void append_word(ls_text *text, const char *path, const char *rest)
{
    const bool is_plain = path[strspn(path, WORD_CHARACTERS "/+,@:")] == '\0';
    ls_text_append(text, is_plain ? "" : "'");
    for (const char *at = path; *at; at++) {
        ls_text_append_bytes(text, *at == '\'' ? "'\\''" : at, *at == '\'' ? 4 : 1);
    }
    ls_text_append(text, rest);
    ls_text_append(text, is_plain ? "" : "'");
}

static void set_command(const ls_report_data *data, const char *dir, ls_values *page)
{
    ls_values_text(page, "command", "");
    if (data->run_yaml) {
        ls_text command = {0};
        ls_text_append(&command, "lockstep train ");
        append_word(&command, dir, "/run.yaml");
        ls_text_append(&command, " --run-dir ");
        append_word(&command, dir, "-again");
        ls_values_text(page, "command", ls_text_string(&command));
        ls_text_release(&command);
    }
}

static void fill_from_files(const ls_run_view *run, ls_report_data *data, ls_values *page)
{
    const double seen = run->metrics ? ls_run_metrics_last(run->metrics, "tokens_seen") : NAN;
    data->tokens = seen > 0.0 && seen < 1e18 ? (uint64_t)seen : data->tokens;
    ls_report_add_head(data, page);
    set_progress(data, page);
    add_alerts(data, page);
    add_split(data, page);
    if (data->has_goodput) {
        ls_report_add_time_bar(data, "goodput", page);
    }
    ls_values_text(page, "incident_title", "");
    ls_values_text(page, "time_address", "");
    if (data->history.slice_count > 0) {
        set_address(page, "time_address", run->id, "/time.svg", "");
    }
    add_ranks(data, &data->arena, page);
    ls_report_add_parts(data, page);
    set_command(data, run->dir, page);
}

void ls_run_page_append(const ls_run_view *run, bool has_queue, ls_text *page_out)
{
    ls_report_data data;
    ls_report_data_take(run->files, run->dir, &data);
    ls_values *page = ls_web_begin(&data.arena, "run", has_queue);
    ls_values_text(page, "id", run->id);
    if (data.run_yaml || data.count > 0) {
        fill_from_files(run, &data, page);
    } else {
        set_foreign_head(run, page);
    }
    add_charts(run, &data.arena, page);
    const ls_text *kept = &run->files->texts[LS_REPORT_NOTES];
    json_t *notes = ls_run_notes_parse(kept->data, kept->bytes);
    set_notes(notes, page);
    json_decref(notes);
    ls_web_append("run.html", page, page_out);
    ls_report_data_release(&data);
}

void ls_run_time_append(const ls_run_view *run, ls_text *svg)
{
    ls_report_data data;
    ls_report_data_take(run->files, run->dir, &data);
    if (!ls_report_append_course(&data, COURSE_WIDTH, svg)) {
        ls_svg_begin(svg, COURSE_WIDTH, 60, "no time log");
        ls_svg_end(svg);
    }
    ls_report_data_release(&data);
}
