// SPDX-License-Identifier: Apache-2.0
#include "telemetry/report/report_data.h"

#include "base/text.h"
#include "config/run_file.h"
#include "telemetry/record/metrics_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ls_step_part_names[LS_STEP_PARTS] = {
    "forward", "backward", "adding leaves", "optimizer", "waiting for data", "waiting for ranks", "the rest"};

/* ---- metrics ---- */

static size_t count_lines(const ls_text *text)
{
    size_t count = 0;
    for (size_t i = 0; i < text->bytes; i++) {
        count += text->data[i] == '\n';
    }
    return count;
}

static void take_parts(const ls_step_metrics *m, double parts_s[LS_STEP_PARTS])
{
    const double known[] = {m->forward_s, m->backward_s, m->reduce_s, m->optimizer_s, m->data_s, m->wait_s};
    double rest_s = isfinite(m->step_s) ? m->step_s : 0.0;
    for (int i = 0; i < LS_STEP_PARTS - 1; i++) {
        parts_s[i] = isfinite(known[i]) && known[i] > 0.0 ? known[i] : 0.0;
        rest_s -= parts_s[i];
    }
    parts_s[LS_STEP_PARTS - 1] = fmax(rest_s, 0.0);
}

static void take_metrics(ls_report_data *data, const ls_step_metrics *m)
{
    const size_t i = data->count++;
    data->step[i] = (double)m->step;
    data->loss[i] = (double)m->loss;
    data->lr[i] = m->lr;
    data->grad_norm[i] = m->grad_norm;
    data->tokens_per_s[i] = m->tokens_per_s;
    data->mfu[i] = m->mfu;
    data->step_s[i] = m->step_s;
    data->residual_norm[i] = m->residual_norm;
    data->link_bytes += m->link_bytes;
    data->dense_bytes += m->dense_bytes;
    data->link_steps += m->dense_bytes > 0;
    data->saved_s += isfinite(m->saved_s) ? m->saved_s : 0.0;
    take_parts(m, data->parts_s[i]);
    data->tokens += m->tokens;
    data->rss_bytes = m->rss_bytes > data->rss_bytes ? m->rss_bytes : data->rss_bytes;
}

/* Steps that do not rise are left out, because charts need x in order. */
static void read_metrics(ls_report_data *data, const ls_text *text)
{
    const size_t room = count_lines(text) + 1;
    double **columns[] = {&data->step,         &data->loss, &data->lr,     &data->grad_norm,
                          &data->tokens_per_s, &data->mfu,  &data->step_s, &data->residual_norm};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        *columns[i] = ls_arena_alloc(&data->arena, room * sizeof(double));
    }
    data->parts_s = ls_arena_alloc(&data->arena, room * sizeof *data->parts_s);
    ls_line_reader reader = {.text = text->data, .bytes = text->bytes};
    ls_step_metrics m;
    for (ls_line_kind kind; (kind = ls_metrics_reader_next(&reader, &m)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD && (data->count == 0 || (double)m.step > data->step[data->count - 1])) {
            take_metrics(data, &m);
        }
    }
}

/* ---- events ---- */

static void read_events(ls_report_data *data, const ls_text *text)
{
    ls_line_reader reader = {.text = text->data, .bytes = text->bytes};
    json_t *event = NULL;
    for (ls_line_kind kind; (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD) {
            json_array_append_new(data->events, event);
        }
    }
}

static void take_evaluation(ls_report_data *data, const json_t *event)
{
    uint64_t step = 0;
    const double val_loss = ls_json_number(event, "val_loss");
    const bool rises = data->val_count == 0 || !ls_event_step(event, &step) ||
                       (double)step > data->val_step[data->val_count - 1];
    if (ls_event_step(event, &step) && isfinite(val_loss) && rises) {
        data->val_step[data->val_count] = (double)step;
        data->val_loss[data->val_count++] = val_loss;
    }
}

static void walk_events(ls_report_data *data)
{
    const size_t count = json_array_size(data->events);
    data->val_step = ls_arena_alloc(&data->arena, (count + 1) * sizeof(double));
    data->val_loss = ls_arena_alloc(&data->arena, (count + 1) * sizeof(double));
    data->begun_s = data->newest_s = NAN;
    data->running = true;
    for (size_t i = 0; i < count; i++) {
        const json_t *event = json_array_get(data->events, i);
        const char *name = json_string_value(json_object_get(event, "event"));
        const double time_s = ls_json_number(event, "time");
        data->begun_s = isfinite(data->begun_s) ? fmin(data->begun_s, time_s) : time_s;
        data->newest_s = isfinite(data->newest_s) ? fmax(data->newest_s, time_s) : time_s;
        if (strcmp(name, "evaluation") == 0) {
            take_evaluation(data, event);
        }
        data->running = strcmp(name, "ended") == 0          ? false
                        : strcmp(name, "rank_started") == 0 ? true
                                                            : data->running;
    }
}

/* ---- the rest ---- */

static void read_summary(ls_report_data *data, const ls_text *text)
{
    data->summary = text->bytes > 0 ? json_loadb(text->data, text->bytes, 0, NULL) : NULL;
    if (!json_is_object(data->summary)) {
        /* the run has not ended, or the file is damaged: the report is made without it */
        json_decref(data->summary);
        data->summary = NULL;
        return;
    }
    const double steps = ls_json_number(data->summary, "steps");
    data->steps_total = steps > 0.0 && steps < 1e18 ? (uint64_t)steps : 0;
    ls_goodput_from_json(json_object_get(data->summary, "time"), &data->goodput);
}

static void read_time_log(ls_report_data *data, const ls_text *text)
{
    ls_time_history_parse(text->data, text->bytes, &data->history);
    if (data->history.start_count > 0) {
        data->goodput = data->history.total;
    }
    data->has_goodput = ls_goodput_wall_s(&data->goodput) > 0.0;
}

/* A running run has no summary; its run file has the name and the length. */
static void read_run_file(ls_report_data *data, const ls_text *text)
{
    ls_run_file run;
    if (text->bytes == 0) {
        return;
    }
    data->run_yaml = ls_arena_strdup(&data->arena, ls_text_string(text));
    if (ls_run_file_parse(text->data, text->bytes, "run.yaml", NULL, 0, &data->arena, &run) != LS_OK) {
        ls_error_clear();
        return;
    }
    data->name = ls_arena_strdup(&data->arena, run.name);
    if (data->steps_total == 0) {
        data->steps_total = run.train.steps;
    }
}

void ls_report_data_take(const ls_report_files *files, const char *dir, ls_report_data *data)
{
    const ls_text *texts = files->texts;
    *data = (ls_report_data){.events = json_array()};
    data->dir = ls_arena_strdup(&data->arena, dir);
    read_metrics(data, &texts[LS_REPORT_METRICS]);
    read_events(data, &texts[LS_REPORT_EVENTS]);
    walk_events(data);
    if (files->newest_s > 0.0 && !(data->newest_s > files->newest_s)) {
        data->newest_s = files->newest_s; /* the lines of metrics have no time */
    }
    read_summary(data, &texts[LS_REPORT_SUMMARY]);
    read_time_log(data, &texts[LS_REPORT_TIME]);
    read_run_file(data, &texts[LS_REPORT_RUN_YAML]);
}

ls_status ls_report_data_load(const char *dir, ls_report_data *data)
{
    ls_report_files files = {0};
    const ls_status status = ls_report_files_load(dir, &files);
    ls_report_data_take(&files, dir, data);
    ls_report_files_release(&files);
    return status;
}

void ls_report_data_release(ls_report_data *data)
{
    ls_time_history_release(&data->history);
    json_decref(data->summary);
    json_decref(data->events);
    ls_arena_release(&data->arena);
}

/* ---- arithmetic ---- */

void ls_report_smooth(const double *values, size_t count, size_t half, double *smooth_out)
{
    /* A sliding window. Both ends only move forward, so each value enters and leaves once. */
    size_t first = 0, behind = 0, finite = 0;
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        const size_t reach = i / 8 < half ? i / 8 : half;
        for (; behind < count && behind <= i + reach; behind++) {
            sum += isfinite(values[behind]) ? values[behind] : 0.0;
            finite += isfinite(values[behind]);
        }
        for (; first < i - reach; first++) {
            sum -= isfinite(values[first]) ? values[first] : 0.0;
            finite -= isfinite(values[first]);
        }
        smooth_out[i] = finite > 0 ? sum / (double)finite : NAN;
    }
}

double ls_report_mean(const double *values, size_t count, size_t last)
{
    double sum = 0.0;
    size_t finite = 0;
    for (size_t i = count > last ? count - last : 0; i < count; i++) {
        if (isfinite(values[i])) {
            sum += values[i];
            finite++;
        }
    }
    return finite > 0 ? sum / (double)finite : NAN;
}
