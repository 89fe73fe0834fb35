// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/time_log.h"

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

/* a line covers at least this, and is written again at most this often */
#define SLICE_S_MIN 0.1
#define SLICE_SHARE (1.0 / 256) /* ... and this share of the start's age */

struct ls_time_log {
    ls_arena arena;
    const char *path;
    int fd; /* -1 after an error */
    ls_goodput *goodput;
    uint64_t start, restored, step;
    double begun_s;
    double age_s;        /* age of the start when its last line was written */
    double slice_age_s;  /* ... and when the last slice began */
    double step_begin_s; /* compute time before the running step; NaN: no step runs */
    off_t line_at;       /* offset of the last line */
    size_t line_bytes;   /* length of the last line; 0: not written yet */
    ls_text line;
};

/* ---- writing ---- */

/* The offset of the next line: after the last whole one. A torn end is cut off. */
static ls_status find_end(ls_time_log *log)
{
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(&log->arena, log->path, 64u << 20, &text, &bytes));
    size_t end = bytes;
    while (end > 0 && text[end - 1] != '\n') {
        end--;
    }
    if (end < bytes && ftruncate(log->fd, (off_t)end) != 0) {
        return ls_fail_errno(errno, "can't remove the unfinished last line of %s", log->path);
    }
    log->line_at = (off_t)end;
    return LS_OK;
}

/* Opens the file; the number of the start follows those that are in it. */
static ls_status begin(ls_time_log *log, const char *dir)
{
    ls_time_history history;
    const ls_status status = ls_time_history_load(dir, &history);
    log->start = history.start_count + 1;
    ls_time_history_release(&history);
    LS_TRY(status);
    log->fd = open(log->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (log->fd < 0) {
        return ls_fail_errno(errno, "can't open %s", log->path);
    }
    return find_end(log);
}

ls_status ls_time_log_open(const char *dir, ls_goodput *goodput, double begun_s, uint64_t restored,
                           ls_time_log **log_out)
{
    ls_time_log *log = calloc(1, sizeof *log);
    if (!log) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the time log");
    }
    log->fd = -1;
    log->path = ls_path_join(&log->arena, dir, "time.jsonl");
    log->goodput = goodput;
    log->begun_s = begun_s;
    log->restored = log->step = restored;
    log->step_begin_s = NAN;
    log->age_s = -1.0;
    const ls_status status = begin(log, dir);
    if (status != LS_OK) {
        ls_time_log_close(log);
        return status;
    }
    *log_out = log;
    ls_time_log_note(log);
    return LS_OK;
}

/* Compute time of the running step, which is lost if the step is not finished. */
static double unfinished_s(const ls_time_log *log)
{
    return isnan(log->step_begin_s) ? 0.0
                                    : fmax(0.0, log->goodput->seconds[LS_TIME_COMPUTE] - log->step_begin_s);
}

static void compose(ls_time_log *log)
{
    ls_text *line = &log->line;
    ls_text_clear(line);
    ls_text_printf(line,
                   "{\"start\": %" PRIu64 ", \"begun\": %.6f, \"restored\": %" PRIu64 ", \"step\": %" PRIu64,
                   log->start, log->begun_s, log->restored, log->step);
    if (unfinished_s(log) > 0.0) {
        ls_text_printf(line, ", \"unfinished_s\": %.6f", unfinished_s(log));
    }
    if (log->goodput->cost_usd > 0.0) {
        ls_text_printf(line, ", \"cost_usd\": %.9g", log->goodput->cost_usd);
    }
    if (log->goodput->energy_j > 0.0) {
        ls_text_printf(line, ", \"energy_j\": %.9g", log->goodput->energy_j);
    }
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        if (log->goodput->seconds[i] > 0.0) {
            ls_text_printf(line, ", \"%s\": %.6f", ls_time_class_name((ls_time_class)i),
                           log->goodput->seconds[i]);
        }
    }
}

/* Writes the line over the last one. It is padded with blanks so that it never gets shorter than
 * the line it replaces: a reader always sees whole lines. */
static void write_line(ls_time_log *log)
{
    const size_t bytes = log->line.bytes + 2;
    if (bytes < log->line_bytes) {
        ls_text_repeat(&log->line, ' ', log->line_bytes - bytes);
    }
    ls_text_append(&log->line, "}\n");
    log->line_bytes = log->line.bytes;
    const ls_status status =
        ls_file_pwrite_all(log->fd, log->path, log->line.data, log->line.bytes, (uint64_t)log->line_at);
    if (status != LS_OK) {
        ls_log_warn("the time log is no longer written: %s", ls_error_text());
        ls_error_clear();
        close(log->fd);
        log->fd = -1;
    }
}

/* Starts a new line once the last one covers a slice. A slice is a share of the age of the start,
 * so the number of lines grows only with the logarithm of that age. */
static void turn_line(ls_time_log *log, double age_s)
{
    if (log->line_bytes > 0 && age_s - log->slice_age_s >= fmax(SLICE_S_MIN, SLICE_SHARE * age_s)) {
        log->line_at += (off_t)log->line_bytes;
        log->line_bytes = 0;
        log->slice_age_s = age_s;
    }
}

void ls_time_log_write(ls_time_log *log)
{
    if (!log || log->fd < 0) {
        return;
    }
    ls_goodput_update(log->goodput);
    log->age_s = ls_goodput_wall_s(log->goodput);
    compose(log);
    write_line(log);
    turn_line(log, log->age_s);
}

void ls_time_log_note(ls_time_log *log)
{
    if (!log || log->fd < 0) {
        return;
    }
    ls_goodput_update(log->goodput);
    if (log->age_s < 0.0 || ls_goodput_wall_s(log->goodput) - log->age_s >= SLICE_S_MIN) {
        ls_time_log_write(log);
    }
}

void ls_time_log_step_begins(ls_time_log *log)
{
    if (log) {
        log->step_begin_s = log->goodput->seconds[LS_TIME_COMPUTE];
    }
}

void ls_time_log_step_ends(ls_time_log *log, uint64_t step)
{
    if (log) {
        log->step_begin_s = NAN;
        log->step = step;
        ls_time_log_note(log);
    }
}

void ls_time_log_end(ls_time_log *log, const char *status, bool away)
{
    if (!log || log->fd < 0) {
        return;
    }
    ls_goodput_update(log->goodput);
    compose(log);
    ls_text_printf(&log->line, ", \"ended\": \"%s\", \"away\": %s", status, away ? "true" : "false");
    write_line(log);
}

void ls_time_log_close(ls_time_log *log)
{
    if (!log) {
        return;
    }
    if (log->fd >= 0) {
        close(log->fd);
    }
    ls_text_release(&log->line);
    ls_arena_release(&log->arena);
    free(log);
}
