// SPDX-License-Identifier: Apache-2.0
#include "execution/run/prediction.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "execution/calibrate/calibrate.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t tokens_per_step(const ls_session *session)
{
    return session->run.train.global_batch * session->run.model.context;
}

ls_own_time ls_prediction_time(const ls_calibration *calibration, const ls_session *session,
                               const ls_run_parallel *parallel, const ls_plan *member, ls_arena *scratch)
{
    const ls_run_file divided = {.parallel = *parallel};
    const uint32_t ranks = (uint32_t)ls_run_file_ranks(&divided);
    const ls_pipeline pipeline = ls_session_pipeline(session, parallel);
    const ls_own_run run = {.plan = member,
                            .whole = &session->plan,
                            .pipeline = pipeline.stages > 1 ? &pipeline : NULL,
                            .scratch = scratch,
                            .leaves = (uint32_t)ls_run_file_rank_leaves(&session->run, false),
                            .micro_batches = pipeline.micro_batches,
                            .ranks = ranks,
                            .threads = ls_session_rank_threads(session, ranks),
                            .saves_behind = session->snapshot_bytes > 0,
                            .hash_every_steps = session->run.train.hash_every_steps};
    ls_own_time time;
    ls_own_time_compute(calibration, &run, &time);
    return time;
}

void ls_prediction_make(ls_arena *arena, const ls_session *session, bool several_hosts,
                        ls_prediction *prediction_out)
{
    *prediction_out = (ls_prediction){.memory_bytes = ls_session_bytes(session)};
    if (ls_session_is_on_gpu(session)) {
        snprintf(prediction_out->why_not, sizeof prediction_out->why_not,
                 "on a GPU it can't be predicted yet");
        return;
    }
    if (several_hosts) {
        snprintf(prediction_out->why_not, sizeof prediction_out->why_not,
                 "step times can only be predicted for runs on one host; 'lockstep plan FILE --gpus here:1 "
                 "--hosts N --link RATE' says what a link between hosts allows, and what compressed sums or "
                 "local steps would gain");
        return;
    }
    ls_calibration calibration;
    if (!ls_calibration_find(arena, session->queue, &calibration, prediction_out->why_not,
                             sizeof prediction_out->why_not)) {
        return;
    }
    const ls_mesh mesh = ls_session_mesh(session);
    ls_plan member;
    if (ls_session_build_member_plan(session, arena, mesh, 0, &member) != LS_OK) {
        snprintf(prediction_out->why_not, sizeof prediction_out->why_not, "%s", ls_error_text());
        ls_error_clear();
        return;
    }
    prediction_out->time = ls_prediction_time(&calibration, session, &session->run.parallel, &member, arena);
    prediction_out->calibration = calibration.date;
    ls_calibration_doubt(&calibration, prediction_out->doubt, sizeof prediction_out->doubt);
    prediction_out->has_time = true;
}

/* ---- as text and JSON ---- */

static void print_duration(double seconds, char *text_out, size_t bytes)
{
    if (seconds < 1.0) {
        snprintf(text_out, bytes, "%.3g ms", 1e3 * seconds);
    } else if (seconds < 120.0) {
        snprintf(text_out, bytes, "%.1f s", seconds);
    } else if (seconds < 7200.0) {
        snprintf(text_out, bytes, "%.0f min", seconds / 60.0);
    } else if (seconds < 172800.0) {
        snprintf(text_out, bytes, "%.1f h", seconds / 3600.0);
    } else {
        snprintf(text_out, bytes, "%.1f days", seconds / 86400.0);
    }
}

void ls_prediction_describe(const ls_prediction *prediction, const ls_session *session, ls_text *text)
{
    if (!prediction->has_time) {
        ls_text_printf(text, "time    not predicted: %s\n", prediction->why_not);
        return;
    }
    const ls_own_time *t = &prediction->time;
    char step[32], all[32];
    print_duration(t->step_s, step, sizeof step);
    print_duration(t->step_s * (double)session->run.train.steps, all, sizeof all);
    ls_text_printf(text,
                   "time    a step takes %s, %.0f tokens/s; the run %s, by this machine's calibration\n",
                   step, t->tokens_ps, all);
    ls_text_append(text, "       ");
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        if (t->terms_s[term] >= 0.005 * t->step_s) {
            ls_text_printf(text, " %s %.0f %%", ls_term_name((ls_term)term),
                           100.0 * t->terms_s[term] / t->step_s);
        }
    }
    ls_text_append(text, "\n");
    if (prediction->doubt[0]) {
        ls_text_printf(text, "        rough: %s (lockstep calibrate)\n", prediction->doubt);
    }
}

json_t *ls_prediction_to_json(const ls_prediction *prediction)
{
    if (!prediction->has_time) {
        return json_pack("{s:n, s:n, s:n, s:n, s:n}", "step_s", "tokens_per_s", "checkpoint_stall_s",
                         "breakdown_s", "doubt");
    }
    const ls_own_time *t = &prediction->time;
    json_t *breakdown = json_object();
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        if (t->terms_s[term] > 0.0) {
            json_object_set_new(breakdown, ls_term_name((ls_term)term), json_real(t->terms_s[term]));
        }
    }
    return json_pack("{s:f, s:f, s:o, s:o, s:s?}", "step_s", t->step_s, "tokens_per_s", t->tokens_ps,
                     "checkpoint_stall_s",
                     t->checkpoint_stall_s > 0.0 ? json_real(t->checkpoint_stall_s) : json_null(),
                     "breakdown_s", breakdown, "doubt", prediction->doubt[0] ? prediction->doubt : NULL);
}

/* ---- the record ---- */

/* Appends the line with a single write, so that runs that end at the same time do not mix lines. */
static ls_status append_line(const char *path, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(7));
    ls_text line = {0};
    ls_text_printf(&line, "%s\n", text ? text : "");
    free(text);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    ls_status status = fd >= 0 ? ls_file_write_all(fd, path, line.data, line.bytes)
                               : ls_fail_errno(errno, "cannot open %s", path);
    ls_text_release(&line);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static ls_status append_row(ls_arena *arena, const ls_own_run_row *row)
{
    const char *path = ls_home_path(arena, "accuracy.jsonl");
    if (!path) {
        return LS_OK;
    }
    LS_TRY(ls_dir_create(ls_path_dirname(arena, path)));
    json_t *object = ls_own_run_to_json(row);
    const ls_status status = append_line(path, object);
    json_decref(object);
    return status;
}

void ls_prediction_keep(const ls_prediction *prediction, const ls_session *session,
                        const ls_own_run_side *measured, uint64_t steps)
{
    ls_arena arena = {0};
    char now[32];
    const time_t seconds = (time_t)ls_clock_wall_s();
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const ls_own_time *t = &prediction->time;
    const ls_own_run_row row = {
        .time = now,
        .run = session->run.name,
        .model = ls_family_name(session->config.family),
        .device = ls_queue_device_name(session->queue),
        .calibration = prediction->calibration,
        .parameters = (uint64_t)session->layout.element_count,
        .layers = (uint64_t)session->config.layers,
        .width = (uint64_t)session->config.width,
        .ranks = session->ranks,
        .threads = ls_session_rank_threads(session, session->ranks),
        .tokens_per_step = tokens_per_step(session),
        .steps = steps,
        .predicted = {.step_s = prediction->has_time ? t->step_s : NAN,
                      .tokens_ps = prediction->has_time ? t->tokens_ps : NAN,
                      .memory_bytes = (double)prediction->memory_bytes,
                      .checkpoint_stall_s = prediction->has_time ? t->checkpoint_stall_s : NAN},
        .measured = *measured};
    if (append_row(&arena, &row) != LS_OK) {
        ls_log_warn("the predicted and the measured step time of this run could not be saved: %s",
                    ls_error_text());
        ls_error_clear();
    }
    ls_arena_release(&arena);
}
