// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/run_log.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "telemetry/export/tensorboard.h"
#include "telemetry/record/curve.h"
#include "telemetry/record/metrics_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ls_run_log {
    ls_arena arena;
    const char *metrics_path, *events_path, *tensorboard_dir;
    int metrics_fd, events_fd;
    ls_tensorboard *tensorboard; /* NULL after it failed */
    ls_curve curve;
    bool curve_known;
    ls_text line;
    ls_status status;     /* the first error of writing */
    char error_text[512]; /* its text */
};

/* ---- reading back ---- */

/* The part of a file that is kept: nearly always its beginning, which needs no copy. */
typedef struct kept_lines {
    size_t prefix_bytes;
    ls_text rest; /* lines kept after the first dropped one */
} kept_lines;

static void keep_line(kept_lines *kept, const ls_line_reader *reader)
{
    if (kept->rest.bytes == 0 && reader->line_offset == kept->prefix_bytes) {
        kept->prefix_bytes = reader->offset;
        return;
    }
    ls_text_append_bytes(&kept->rest, reader->text + reader->line_offset,
                         reader->offset - reader->line_offset);
}

/*
 * Keeps the good lines of steps up to restored_step, in rising order, and adds them up. The curve
 * hash needs every step: when one is missing, the hash is given up with a warning that names the
 * line, and the run continues.
 */
static void keep_metrics(ls_run_log *log, const ls_file_map *map, uint64_t restored_step, kept_lines *kept,
                         ls_run_totals *totals)
{
    ls_line_reader reader = {.text = (const char *)map->data, .bytes = map->bytes};
    ls_step_metrics m;
    uint64_t newest = 0, gap_line = 0;
    for (ls_line_kind kind; (kind = ls_metrics_reader_next(&reader, &m)) != LS_LINE_END;) {
        if (kind != LS_LINE_GOOD) {
            continue;
        }
        totals->highest_step = m.step > totals->highest_step ? m.step : totals->highest_step;
        /* Steps must rise: of a step that is there twice, the first one counts. */
        if (m.step <= newest || m.step > restored_step) {
            continue;
        }
        if (m.step != newest + 1 && gap_line == 0) {
            gap_line = reader.line_number;
        }
        newest = m.step;
        keep_line(kept, &reader);
        ls_curve_add(&log->curve, m.step, m.loss);
        totals->steps++;
        totals->last_loss = m.loss;
        totals->tokens += m.tokens;
        totals->step_s += isfinite(m.step_s) ? m.step_s : 0.0;
    }
    log->curve_known = totals->steps == restored_step;
    if (!log->curve_known) {
        /* an estimate: missing steps had as many tokens as the others */
        totals->tokens = totals->steps ? totals->tokens / totals->steps * restored_step : 0;
        ls_log_warn("%s:%" PRIu64 ": %" PRIu64 " of the %" PRIu64
                    " steps before the checkpoint are missing here; the run continues from the checkpoint "
                    "without a curve_hash",
                    log->metrics_path, gap_line ? gap_line : reader.line_number + 1,
                    restored_step - totals->steps, restored_step);
    }
}

static void add_evaluation(const json_t *event, ls_run_totals *totals)
{
    const double val_loss = ls_json_number(event, "val_loss");
    if (strcmp(json_string_value(json_object_get(event, "event")), "evaluation") != 0 ||
        !isfinite(val_loss)) {
        return;
    }
    totals->last_val_loss = val_loss;
    if (!totals->has_val_loss || val_loss < totals->best_val_loss) {
        totals->best_val_loss = val_loss;
        (void)ls_event_step(event, &totals->best_step);
    }
    totals->has_val_loss = true;
}

/* Events of a later step happen again when that step is repeated. Events of ranks and machines do
 * not: they are history, whatever their step. */
static bool happens_again(const json_t *event)
{
    static const char *const names[] = {"evaluation", "early_stop", "sample",
                                        "checkpoint", "audit",      "not_finite"};
    const char *name = json_string_value(json_object_get(event, "event"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Keeps the good lines of events, except those of later steps that will happen again. */
static void keep_events(ls_run_log *log, const ls_file_map *map, uint64_t restored_step, kept_lines *kept,
                        ls_run_totals *totals)
{
    (void)log;
    ls_line_reader reader = {.text = (const char *)map->data, .bytes = map->bytes};
    json_t *event = NULL;
    for (ls_line_kind kind; (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END;) {
        if (kind != LS_LINE_GOOD) {
            continue;
        }
        uint64_t step = 0;
        if (!ls_event_step(event, &step) || step <= restored_step || !happens_again(event)) {
            keep_line(kept, &reader);
            add_evaluation(event, totals);
        }
        json_decref(event);
    }
}

typedef void (*keep_lines)(ls_run_log *log, const ls_file_map *map, uint64_t restored_step, kept_lines *kept,
                           ls_run_totals *totals);

/* Cuts off the end of the file in one atomic operation. */
static ls_status cut_end(const char *path, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    const bool good = ftruncate(fd, (off_t)bytes) == 0 && fsync(fd) == 0;
    const int error = errno;
    close(fd);
    return good ? LS_OK : ls_fail_errno(error, "can't shorten %s to %zu bytes", path, bytes);
}

/* Both ways are atomic: a crash leaves the old file or the new one. Cutting the end off is the
 * usual one, because a resume drops the last steps, and it copies nothing. */
static ls_status rewrite(const char *path, const ls_file_map *map, const kept_lines *kept)
{
    if (kept->prefix_bytes == map->bytes) {
        return LS_OK;
    }
    if (kept->rest.bytes == 0) {
        return cut_end(path, kept->prefix_bytes);
    }
    ls_text whole = {0};
    ls_text_append_bytes(&whole, map->data, kept->prefix_bytes);
    ls_text_append_bytes(&whole, kept->rest.data, kept->rest.bytes);
    const ls_status status = ls_file_write_atomic(path, whole.data, whole.bytes);
    ls_text_release(&whole);
    return status;
}

/* Reduces the file at `path` to what `keep` keeps of it. */
static ls_status cut(ls_run_log *log, const char *path, uint64_t restored_step, keep_lines keep,
                     ls_run_totals *totals)
{
    ls_file_map map = {0};
    if (ls_path_exists(path)) {
        LS_TRY(ls_file_map_open(path, &map));
    }
    kept_lines kept = {0};
    keep(log, &map, restored_step, &kept, totals);
    const ls_status status = rewrite(path, &map, &kept);
    ls_text_release(&kept.rest);
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
    LS_TRY(cut(log, log->metrics_path, restored_step, keep_metrics, totals));
    LS_TRY(cut(log, log->events_path, restored_step, keep_events, totals));
    LS_TRY(open_append(log->metrics_path, &log->metrics_fd));
    return open_append(log->events_path, &log->events_fd);
}

void ls_run_log_enable_tensorboard(ls_run_log *log, uint64_t restored_step)
{
    if (ls_tensorboard_open(log->tensorboard_dir, restored_step + 1, &log->tensorboard) != LS_OK) {
        ls_log_warn("TensorBoard events are not written: %s", ls_error_text());
    }
}

ls_status ls_run_log_open(const char *dir, uint64_t restored_step, ls_run_log **log_out,
                          ls_run_totals *totals_out)
{
    ls_run_log *log = calloc(1, sizeof *log);
    if (!log) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the run log");
    }
    log->metrics_fd = log->events_fd = -1;
    log->metrics_path = ls_path_join(&log->arena, dir, "metrics.jsonl");
    log->events_path = ls_path_join(&log->arena, dir, "events.jsonl");
    log->tensorboard_dir = ls_path_join(&log->arena, dir, "tb");
    ls_curve_init(&log->curve);
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
    ls_tensorboard_close(log->tensorboard);
    ls_curve_release(&log->curve);
    ls_text_release(&log->line);
    ls_arena_release(&log->arena);
    free(log);
}

/* ---- writing ---- */

void ls_run_log_curve_hash(const ls_run_log *log, char hex_out[LS_SHA256_HEX_BYTES])
{
    hex_out[0] = '\0';
    if (log->curve_known) {
        ls_curve_hash(&log->curve, hex_out);
    }
}

static void put_f64(ls_text *line, const char *key, double value)
{
    ls_text_printf(line, ", \"%s\": ", key);
    if (!isfinite(value)) {
        ls_text_append(line, "null");
    } else if (value == 0.0 && signbit(value)) {
        ls_text_append(line, "-0.0"); /* "-0" would be read as an integer, without its sign */
    } else {
        ls_text_printf(line, "%.9g", value);
    }
}

/* Writes log->line. After an error nothing more is written, so that a torn line stays the last. */
static ls_status write_line(ls_run_log *log, int fd, const char *path)
{
    if (log->status != LS_OK) {
        return ls_fail(log->status, "%s", log->error_text);
    }
    ls_text_append(&log->line, "\n");
    log->status = ls_file_write_all(fd, path, log->line.data, log->line.bytes);
    if (log->status != LS_OK) {
        snprintf(log->error_text, sizeof log->error_text, "%s", ls_error_text());
    }
    return log->status;
}

/* TensorBoard is not worth a run: the first error ends the event file. */
static void to_tensorboard(ls_run_log *log, uint64_t step, const ls_tensorboard_scalar *scalars, size_t count)
{
    if (log->tensorboard &&
        ls_tensorboard_write(log->tensorboard, ls_clock_wall_s(), step, scalars, count) != LS_OK) {
        ls_log_warn("TensorBoard events are no longer written: %s", ls_error_text());
        ls_tensorboard_close(log->tensorboard);
        log->tensorboard = NULL;
    }
}

static void compose_step(ls_text *line, const ls_step_metrics *m)
{
    ls_text_clear(line);
    ls_text_printf(line, "{\"step\": %" PRIu64, m->step);
    put_f64(line, "loss", (double)m->loss); /* 9 digits restore a float32 */
    put_f64(line, "lr", m->lr);
    put_f64(line, "grad_norm", m->grad_norm);
    ls_text_printf(line, ", \"tokens\": %" PRIu64 ", \"loss_tokens\": %" PRIu64, m->tokens, m->loss_tokens);
    put_f64(line, "tokens_per_s", m->tokens_per_s);
    put_f64(line, "step_s", m->step_s);
    put_f64(line, "data_s", m->data_s);
    put_f64(line, "forward_s", m->forward_s);
    put_f64(line, "backward_s", m->backward_s);
    put_f64(line, "reduce_s", m->reduce_s);
    put_f64(line, "optimizer_s", m->optimizer_s);
    put_f64(line, "wait_s", m->wait_s);
    put_f64(line, "mfu", m->mfu > 0.0 ? m->mfu : NAN);
    put_f64(line, "hfu", m->hfu > 0.0 ? m->hfu : NAN);
    ls_text_printf(line, ", \"rss_bytes\": %" PRIu64, m->rss_bytes);
    if (m->dense_bytes > 0) {
        ls_text_printf(line, ", \"link_bytes\": %" PRIu64 ", \"dense_bytes\": %" PRIu64, m->link_bytes,
                       m->dense_bytes);
    }
    if (m->saved_s != 0.0) {
        put_f64(line, "saved_s", m->saved_s);
    }
    if (m->residual_norm > 0.0) {
        put_f64(line, "residual_norm", m->residual_norm);
    }
    if (m->has_val_loss) {
        put_f64(line, "val_loss", m->val_loss);
    }
    ls_text_append(line, "}");
}

ls_status ls_run_log_step(ls_run_log *log, const ls_step_metrics *m)
{
    compose_step(&log->line, m);
    ls_curve_add(&log->curve, m->step, m->loss);
    const ls_tensorboard_scalar scalars[] = {
        {"loss", (double)m->loss},
        {"lr", m->lr},
        {"grad_norm", m->grad_norm},
        {"tokens_per_s", m->tokens_per_s},
        {"mfu", m->mfu > 0.0 ? m->mfu : NAN},
    };
    to_tensorboard(log, m->step, scalars, sizeof scalars / sizeof scalars[0]);
    return write_line(log, log->metrics_fd, log->metrics_path);
}

static void evaluation_to_tensorboard(ls_run_log *log, const json_t *event)
{
    uint64_t step = 0;
    if (ls_event_step(event, &step)) {
        const ls_tensorboard_scalar scalar = {"val_loss", ls_json_number(event, "val_loss")};
        to_tensorboard(log, step, &scalar, 1);
    }
}

ls_status ls_run_log_event(ls_run_log *log, const char *name, json_t *fields)
{
    json_t *event = json_pack("{s:f, s:s}", "time", ls_clock_wall_s(), "event", name);
    json_object_update_missing(event, fields);
    json_decref(fields);
    if (strcmp(name, "evaluation") == 0) {
        evaluation_to_tensorboard(log, event);
    }
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
    if (!text) {
        return ls_fail(LS_ERR_FAILED, "the event %s of the run cannot be written to its log as JSON", name);
    }
    ls_text_clear(&log->line);
    ls_text_append(&log->line, text);
    free(text);
    return write_line(log, log->events_fd, log->events_path);
}

json_t *ls_run_log_events(const char *dir, const char *name)
{
    ls_arena arena = {0};
    ls_file_map map = {0};
    json_t *list = json_array(), *event = NULL;
    if (ls_file_map_open(ls_path_join(&arena, dir, "events.jsonl"), &map) != LS_OK) {
        ls_error_clear(); /* there are no events */
    }
    ls_line_reader reader = {.text = (const char *)map.data, .bytes = map.bytes};
    for (ls_line_kind kind; (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END;) {
        if (kind != LS_LINE_GOOD) {
            continue;
        }
        if (strcmp(json_string_value(json_object_get(event, "event")), name) == 0) {
            json_object_del(event, "event");
            json_object_del(event, "time");
            json_array_append(list, event);
        }
        json_decref(event);
    }
    ls_file_map_close(&map);
    ls_arena_release(&arena);
    return list;
}

/* ---- as the sink of base/emit ---- */

static void complain_once(const ls_run_log *log, ls_status before)
{
    if (before == LS_OK && log->status != LS_OK) {
        ls_log_error("%s", log->error_text);
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
    return log->status == LS_OK ? LS_OK : ls_fail(log->status, "%s", log->error_text);
}

ls_status ls_run_log_flush(const ls_run_log *log)
{
    if (fdatasync(log->metrics_fd) != 0) {
        return ls_fail_errno(errno, "can't flush %s to disk", log->metrics_path);
    }
    if (fdatasync(log->events_fd) != 0) {
        return ls_fail_errno(errno, "can't flush %s to disk", log->events_path);
    }
    return LS_OK;
}
