// SPDX-License-Identifier: Apache-2.0
#include "telemetry/run_log.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ls_run_log {
    ls_arena arena;
    const char *metrics_path, *events_path;
    int metrics_fd, events_fd;
    ls_sha256 curve;
    ls_text line;
    ls_status status;
};

/* ---- the curve hash ---- */

static void put_u64(unsigned char *out, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
}

static void curve_add(ls_sha256 *curve, uint64_t step, float loss)
{
    unsigned char record[12];
    uint32_t bits = 0;
    memcpy(&bits, &loss, sizeof bits);
    put_u64(record, step);
    for (int i = 0; i < 4; i++) {
        record[8 + i] = (unsigned char)(bits >> (8 * i));
    }
    ls_sha256_update(curve, record, sizeof record);
}

void ls_run_log_curve_hash(const ls_run_log *log, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_sha256 copy;
    ls_sha256_copy(&copy, &log->curve);
    ls_sha256_finish(&copy, hex_out);
}

/* ---- reading back ---- */

/* The next whole line of [at, end), parsed; NULL at the end, for a torn last line, and for a line that is no JSON object. */
static json_t *next_line(const char **at, const char *end, size_t *bytes_out)
{
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    if (!newline) {
        return NULL;
    }
    *bytes_out = (size_t)(newline + 1 - *at);
    json_t *object = json_loadb(*at, *bytes_out, 0, NULL);
    *at = newline + 1;
    if (object && !json_is_object(object)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Keeps the lines of steps 1..restored_step, which must be there in order; adds them up. */
static ls_status keep_metrics(ls_run_log *log, const char *text, size_t bytes, uint64_t restored_step,
                              size_t *kept_out, ls_run_totals *totals)
{
    const char *at = text, *end = text + bytes;
    *kept_out = 0;
    for (uint64_t step = 1; step <= restored_step; step++) {
        size_t line_bytes = 0;
        json_t *object = at < end ? next_line(&at, end, &line_bytes) : NULL;
        const json_t *loss = object ? json_object_get(object, "loss") : NULL;
        if (!object || (uint64_t)json_integer_value(json_object_get(object, "step")) != step ||
            !json_is_number(loss)) {
            json_decref(object);
            return ls_fail(LS_ERR_DATA,
                           "%s:%" PRIu64 ": step %" PRIu64
                           " is expected here and is missing or damaged; the checkpoint is of step %" PRIu64
                           ". --fresh starts over",
                           log->metrics_path, step, step, restored_step);
        }
        const float value = (float)json_number_value(loss);
        curve_add(&log->curve, step, value);
        totals->steps = step;
        totals->last_loss = value;
        totals->tokens += (uint64_t)json_integer_value(json_object_get(object, "tokens"));
        totals->step_s += number_of(object, "step_s");
        *kept_out += line_bytes;
        json_decref(object);
    }
    return LS_OK;
}

static void add_evaluation(const json_t *event, ls_run_totals *totals)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    const json_t *val_loss = json_object_get(event, "val_loss");
    if (!name || strcmp(name, "evaluation") != 0 || !json_is_number(val_loss)) {
        return;
    }
    totals->last_val_loss = json_number_value(val_loss);
    if (!totals->has_val_loss || totals->last_val_loss < totals->best_val_loss) {
        totals->best_val_loss = totals->last_val_loss;
        totals->best_step = (uint64_t)json_integer_value(json_object_get(event, "step"));
    }
    totals->has_val_loss = true;
}

/* Keeps the whole lines of events that belong to no later step. */
static void keep_events(const char *text, size_t bytes, uint64_t restored_step, ls_text *kept,
                        ls_run_totals *totals)
{
    const char *at = text, *end = text + bytes;
    while (at < end) {
        const char *line = at;
        size_t line_bytes = 0;
        json_t *object = next_line(&at, end, &line_bytes);
        if (!object && at == line) {
            return; /* torn */
        }
        if (!object) {
            continue; /* damaged */
        }
        const json_t *step = json_object_get(object, "step");
        if (!step || (uint64_t)json_integer_value(step) <= restored_step) {
            ls_text_append_bytes(kept, line, line_bytes);
            add_evaluation(object, totals);
        }
        json_decref(object);
    }
}

static ls_status map_if_there(const char *path, ls_file_map *map_out)
{
    *map_out = (ls_file_map){0};
    return ls_path_exists(path) ? ls_file_map_open(path, map_out) : LS_OK;
}

static ls_status cut_metrics(ls_run_log *log, uint64_t restored_step, ls_run_totals *totals)
{
    ls_file_map map;
    LS_TRY(map_if_there(log->metrics_path, &map));
    size_t kept = 0;
    ls_status status = keep_metrics(log, (const char *)map.data, map.bytes, restored_step, &kept, totals);
    if (status == LS_OK && kept < map.bytes) {
        status = ls_file_write_atomic(log->metrics_path, kept ? (const char *)map.data : "", kept);
    }
    ls_file_map_close(&map);
    return status;
}

static ls_status cut_events(ls_run_log *log, uint64_t restored_step, ls_run_totals *totals)
{
    ls_file_map map;
    LS_TRY(map_if_there(log->events_path, &map));
    ls_text kept = {0};
    keep_events((const char *)map.data, map.bytes, restored_step, &kept, totals);
    ls_status status = LS_OK;
    if (kept.bytes < map.bytes) {
        status = ls_file_write_atomic(log->events_path, ls_text_string(&kept), kept.bytes);
    }
    ls_text_release(&kept);
    ls_file_map_close(&map);
    return status;
}

/* ---- life ---- */

static ls_status open_append(const char *path, int *fd_out)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    *fd_out = fd;
    return LS_OK;
}

static ls_status open_all(ls_run_log *log, uint64_t restored_step, ls_run_totals *totals)
{
    LS_TRY(cut_metrics(log, restored_step, totals));
    LS_TRY(cut_events(log, restored_step, totals));
    LS_TRY(open_append(log->metrics_path, &log->metrics_fd));
    return open_append(log->events_path, &log->events_fd);
}

ls_status ls_run_log_open(const char *dir, uint64_t restored_step, ls_run_log **log_out,
                          ls_run_totals *totals_out)
{
    ls_run_log *log = calloc(1, sizeof *log);
    if (!log) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the run log");
    }
    log->metrics_fd = log->events_fd = -1;
    log->metrics_path = ls_path_join(&log->arena, dir, "metrics.jsonl");
    log->events_path = ls_path_join(&log->arena, dir, "events.jsonl");
    ls_sha256_init(&log->curve);
    ls_run_totals totals = {0};
    const ls_status status = open_all(log, restored_step, &totals);
    if (status != LS_OK) {
        ls_run_log_close(log);
        return status;
    }
    *log_out = log;
    if (totals_out) {
        *totals_out = totals;
    }
    return LS_OK;
}

void ls_run_log_close(ls_run_log *log)
{
    if (!log) {
        return;
    }
    if (log->metrics_fd >= 0) {
        close(log->metrics_fd);
    }
    if (log->events_fd >= 0) {
        close(log->events_fd);
    }
    char unused[LS_SHA256_HEX_BYTES];
    ls_sha256_finish(&log->curve, unused);
    ls_text_release(&log->line);
    ls_arena_release(&log->arena);
    free(log);
}

/* ---- writing ---- */

static void put_f64(ls_text *line, const char *key, double value)
{
    ls_text_printf(line, ", \"%s\": ", key);
    if (isfinite(value)) {
        ls_text_printf(line, "%.9g", value);
    } else {
        ls_text_append(line, "null");
    }
}

static ls_status write_line(ls_run_log *log, int fd, const char *path)
{
    ls_text_append(&log->line, "\n");
    const ls_status status = ls_file_write_all(fd, path, log->line.data, log->line.bytes);
    if (log->status == LS_OK && status != LS_OK) {
        log->status = status;
    }
    return log->status;
}

ls_status ls_run_log_step(ls_run_log *log, const ls_step_metrics *m)
{
    ls_text *line = &log->line;
    ls_text_clear(line);
    ls_text_printf(line, "{\"step\": %" PRIu64, m->step);
    put_f64(line, "loss", (double)m->loss); /* 9 digits bring a float32 back */
    put_f64(line, "lr", m->lr);
    put_f64(line, "grad_norm", m->grad_norm);
    ls_text_printf(line, ", \"tokens\": %" PRIu64, m->tokens);
    put_f64(line, "tokens_per_s", m->tokens_per_s);
    put_f64(line, "step_s", m->step_s);
    put_f64(line, "data_s", m->data_s);
    put_f64(line, "forward_s", m->forward_s);
    put_f64(line, "backward_s", m->backward_s);
    put_f64(line, "reduce_s", m->reduce_s);
    put_f64(line, "optimizer_s", m->optimizer_s);
    put_f64(line, "mfu", m->mfu > 0.0 ? m->mfu : NAN);
    put_f64(line, "hfu", m->hfu > 0.0 ? m->hfu : NAN);
    ls_text_printf(line, ", \"rss_bytes\": %" PRIu64 "}", m->rss_bytes);
    curve_add(&log->curve, m->step, m->loss);
    return write_line(log, log->metrics_fd, log->metrics_path);
}

ls_status ls_run_log_event(ls_run_log *log, const char *name, json_t *fields)
{
    json_t *event = json_pack("{s:f, s:s}", "time", ls_clock_wall_s(), "event", name);
    json_object_update_missing(event, fields);
    json_decref(fields);
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
    if (!text) {
        return ls_fail(LS_ERR_FAILED, "event %s has no JSON form", name);
    }
    ls_text_clear(&log->line);
    ls_text_append(&log->line, text);
    free(text);
    return write_line(log, log->events_fd, log->events_path);
}

/* ---- as the sink of base/emit ---- */

static void complain_once(ls_run_log *log, ls_status before)
{
    if (before == LS_OK && log->status != LS_OK) {
        ls_log_error("%s", ls_error_text());
    }
}

static void sink_step(void *context, const ls_step_metrics *metrics)
{
    ls_run_log *log = context;
    const ls_status before = log->status;
    if (ls_run_log_step(log, metrics) != LS_OK) {
        complain_once(log, before);
    }
}

static void sink_event(void *context, const char *name, json_t *fields)
{
    ls_run_log *log = context;
    const ls_status before = log->status;
    if (ls_run_log_event(log, name, fields) != LS_OK) {
        complain_once(log, before);
    }
}

void ls_run_log_install(ls_run_log *log)
{
    ls_emit_install(&(ls_emit_sink){.step = sink_step, .event = sink_event, .context = log});
}

ls_status ls_run_log_status(const ls_run_log *log)
{
    return log->status;
}
