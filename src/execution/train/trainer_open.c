// SPDX-License-Identifier: Apache-2.0
#include "execution/train/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "execution/train/memory.h"
#include "execution/train/signals.h"
#include "telemetry/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* A run of fewer steps says nothing of how right its prediction was. */
enum { KEPT_STEPS_MIN = 5 };

/* ---- stopping ---- */

ls_status ls_trainer_stop_status(const ls_trainer *trainer)
{
    const double limit_s = trainer->session.run.job.time_limit_s;
    if (limit_s > 0.0 && ls_clock_monotonic_s() - trainer->options->start_s > limit_s) {
        return LS_STOPPED;
    }
    const ls_status signal = ls_signals_status();
    return signal == LS_OK && trainer->leaving ? LS_STOPPED : signal;
}

bool ls_trainer_should_stop(void *context)
{
    ls_trainer *trainer = context;
    ls_time_log_note(trainer->time_log);
    ls_trainer_hear_notices(trainer);
    return ls_trainer_stop_status(trainer) != LS_OK;
}

/* ---- opening ---- */

static void tell_tokenising(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    FILE *out = context;
    if (isatty(fileno(out))) {
        fprintf(out, "\rtokenising %s: %3.0f %%%s", ls_path_basename(path),
                total_bytes ? 100.0 * (double)done_bytes / (double)total_bytes : 100.0,
                done_bytes >= total_bytes ? "\n" : "");
        fflush(out);
    }
}

static void tell_line(void *context, const char *text)
{
    FILE *out = context;
    fprintf(out, "%s\n", text);
    fflush(out);
}

/* Tokenising takes as long as the data are large: who wants the run to end need not wait for it. */
static ls_status stop_opening(void *context)
{
    (void)context;
    const ls_status signal = ls_signals_status();
    return signal == LS_OK ? LS_OK : ls_fail(signal, "stopped while its data were being prepared");
}

/* Once for a new run: what would let it be predicted. */
static void tell_prediction(const ls_trainer *trainer)
{
    const ls_prediction *p = &trainer->prediction;
    FILE *out = trainer->options->out;
    if (!out || trainer->step > 0) {
        return;
    }
    if (p->has_time) {
        ls_text text = {0};
        ls_prediction_describe(p, &trainer->session, &text);
        fputs(ls_text_string(&text), out);
        ls_text_release(&text);
    } else {
        fprintf(out, "the time of a step is not predicted: %s\n", p->why_not);
    }
}

static ls_status open_session(ls_trainer *trainer, const ls_run_file *run, const char *run_dir)
{
    const ls_session_options options = {
        .run_dir = run_dir,
        .threads = trainer->options->threads,
        .progress = trainer->options->out ? tell_tokenising : NULL,
        .tell = trainer->options->out ? tell_line : NULL,
        .stop = stop_opening,
        .context = trainer->options->out,
    };
    LS_TRY(ls_session_open(&trainer->arena, run, &options, &trainer->session));
    ls_prediction_make(&trainer->arena, &trainer->session, trainer->options->hosts != NULL,
                       &trainer->prediction);
    return LS_OK;
}

static ls_status create_stepper(ls_trainer *trainer)
{
    ls_step_settings settings = ls_session_step_settings(&trainer->session);
    settings.should_stop = ls_trainer_should_stop;
    settings.stop_context = trainer;
#ifdef LS_DEBUG
    LS_TRY(ls_flip_from_environment(&trainer->flip));
    settings.flip = &trainer->flip;
#endif
    return ls_stepper_create(&trainer->walk, &trainer->state, &settings, &trainer->stepper);
}

static ls_status create_side_work(ls_trainer *trainer)
{
    ls_session *session = &trainer->session;
    if (ls_dataset_token_count(session->dataset, LS_SPLIT_VALIDATION) >= 2) {
        LS_TRY(ls_evaluator_create(session->queue, &session->config, &session->layout,
                                   (int64_t)session->run.train.micro_batch,
                                   (int64_t)session->run.model.context, &trainer->evaluator));
    }
    if (session->run.sample.every_steps > 0) {
        LS_TRY(ls_generator_create(session->queue, &session->config, &session->layout,
                                   trainer->state.parameters, (int64_t)session->run.model.context,
                                   &trainer->generator));
    }
    return LS_OK;
}

/* Memory for everything, after the check that it is there. */
static ls_status take_memory(ls_trainer *trainer)
{
    ls_session *session = &trainer->session;
    LS_TRY(ls_session_check_memory(session));
    if (session->is_gang) {
        LS_TRY(ls_trainer_create_gang(trainer));
        return create_side_work(trainer);
    }
    LS_TRY(ls_state_init(&trainer->state, session->queue, &session->layout, session->memory.tree_buffers));
    LS_TRY(ls_walk_init(&trainer->walk, session->queue, &session->plan, session->plan.options.length));
    LS_TRY(create_stepper(trainer));
    return create_side_work(trainer);
}

/* A run whose time can't be accounted for is still a run. */
static void open_time_log(ls_trainer *trainer)
{
    const double begun_s = ls_clock_wall_s() - (ls_clock_monotonic_s() - trainer->options->start_s);
    ls_time_history history;
    if (ls_time_history_load(trainer->dir.path, &history) != LS_OK ||
        ls_time_log_open(trainer->dir.path, &trainer->goodput, begun_s, trainer->step, &trainer->time_log) !=
            LS_OK) {
        ls_log_warn("no accounts of where the time goes: %s", ls_error_text());
        ls_error_clear();
    }
    trainer->redone_until = history.highest_step;
    ls_time_history_release(&history);
}

static const char *every_steps_text(ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.every_steps;
    return every == LS_AUTO_U64 ? "auto" : ls_arena_printf(&trainer->arena, "%" PRIu64, every);
}

/* Where the run goes on, and what that costs. */
static void tell_resumed(const ls_trainer *trainer)
{
    if (!trainer->options->out || trainer->step >= trainer->session.run.train.steps) {
        return;
    }
    fprintf(trainer->options->out, "going on from step %" PRIu64 ", %s", trainer->step,
            ls_trainer_is_adopted(trainer) ? "with its ranks, which outlived the trainer"
                                           : "the newest checkpoint");
    if (trainer->redone_until > trainer->step) {
        fprintf(trainer->options->out, "; steps %" PRIu64 " to %" PRIu64 " are computed again",
                trainer->step + 1, trainer->redone_until);
    }
    fputc('\n', trainer->options->out);
}

static ls_status open_log(ls_trainer *trainer)
{
    ls_run_totals totals = {0};
    LS_TRY(ls_run_log_open(trainer->dir.path, trainer->step, &trainer->log, &totals));
    if (trainer->session.run.log.tensorboard) {
        ls_run_log_enable_tensorboard(trainer->log, trainer->step);
    }
    ls_run_log_install(trainer->log);
    trainer->tokens = totals.tokens;
    if (totals.highest_step > trainer->redone_until) {
        trainer->redone_until = totals.highest_step;
    }
    trainer->loss = trainer->step > 0 ? totals.last_loss : NAN;
    if (totals.has_val_loss && !isfinite(trainer->val_loss)) {
        trainer->val_loss = totals.last_val_loss;
    }
    if (trainer->step > 0) {
        ls_emit_event("resumed", json_pack("{s:I, s:s}", "step", (json_int_t)trainer->step, "from",
                                           ls_trainer_is_adopted(trainer) ? "ranks" : "checkpoint"));
        ls_trainer_tell_restored(trainer);
        tell_resumed(trainer);
    } else if (totals.highest_step > 0 && trainer->options->out) {
        fprintf(trainer->options->out,
                "no checkpoint yet: starting over from step 1; checkpoint.every_steps is %s\n",
                every_steps_text(trainer));
    }
    if (trainer->gang) {
        return LS_OK; /* its ranks are told of when they are ready */
    }
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    ls_emit_event("rank_started", json_pack("{s:i, s:i, s:s, s:i, s:I, s:s}", "rank", 0, "pid", (int)getpid(),
                                            "host", host, "epoch", 0, "step", (json_int_t)trainer->step,
                                            "device", ls_queue_device_name(trainer->session.queue)));
    return LS_OK;
}

/* The run is sound and has its memory: what it replaces makes way, and its tokenizer is kept. */
static ls_status settle(ls_trainer *trainer)
{
    const char *moved = NULL;
    LS_TRY(ls_run_dir_settle(&trainer->arena, &trainer->dir, &moved));
    if (moved && trainer->options->out) {
        fprintf(trainer->options->out, "the earlier run is now in %s\n", moved);
    }
    const char *path = ls_path_join(&trainer->arena, trainer->dir.path, "tokenizer.json");
    if (trainer->session.run.tokenizer.kind == LS_TOKENIZER_TRAIN && !trainer->dir.had_run) {
        LS_TRY(ls_tokenizer_save(trainer->session.tokenizer, path));
    }
    return LS_OK;
}

/* Of this step, and with nothing given up at it: an interrupted evaluation of the last step is made up for. */
static bool is_result(const ls_trainer *trainer, const json_t *summary)
{
    const char *status = json_string_value(json_object_get(summary, "status"));
    const bool finished = trainer->step >= trainer->session.run.train.steps;
    return status && strcmp(status, finished ? "finished" : "stopped") == 0 &&
           (uint64_t)json_integer_value(json_object_get(summary, "step")) == trainer->step;
}

/* A run that already reached its last step: its result is printed again, and nothing in its folder changes. */
static void find_result(ls_trainer *trainer)
{
    json_t *object = NULL;
    if (trainer->step == 0 || trainer->step < trainer->stop_step ||
        ls_summary_load(trainer->dir.path, &object) != LS_OK) {
        return;
    }
    if (is_result(trainer, object)) {
        trainer->finished = object;
    } else {
        json_decref(object);
    }
}

static ls_status restore_or_begin(ls_trainer *trainer)
{
    trainer->saved_step = trainer->evaluated_step = UINT64_MAX;
    trainer->val_loss = NAN;
    LS_TRY(ls_trainer_is_adopted(trainer) ? ls_trainer_adopt(trainer) : ls_trainer_restore(trainer));
    find_result(trainer);
    if (trainer->finished) {
        return LS_OK;
    }
    open_time_log(trainer);
    ls_trainer_begin_cadence(trainer);
    LS_TRY(ls_trainer_launch_gang(trainer)); /* which changes the environment: other threads come after it */
    LS_TRY(ls_trainer_open_notices(trainer));
    ls_trainer_open_control(trainer);
    if (trainer->step == 0 && !ls_trainer_is_adopted(trainer)) {
        LS_TRY(ls_session_begin_weights(&trainer->session, &trainer->state));
    }
    ls_model_file_close(trainer->session.source);
    trainer->session.source = NULL;
    trainer->begun_at = trainer->step;
    /* Only a run that was accepted by the checkpoint in its folder may change what is there. */
    LS_TRY(ls_run_file_save(&trainer->session.run,
                            ls_path_join(&trainer->arena, trainer->dir.path, "run.yaml")));
    /* Made here, and never by a save: one that finds the run directory moved away must not make another in its place. */
    LS_TRY(ls_dir_create(trainer->dir.checkpoints));
    return open_log(trainer);
}

static ls_status open_progress(ls_trainer *trainer)
{
    const ls_progress_options options = {
        .out = trainer->options->out,
        .steps = trainer->stop_step,
        .first_step = trainer->step,
        .every_steps = trainer->session.run.log.every_steps,
    };
    return ls_progress_create(&options, &trainer->progress);
}

/* --ranks is an override like any other. */
static ls_status load_run(ls_trainer *trainer, ls_run_file *run_out)
{
    const ls_train_options *options = trainer->options;
    const char **overrides = ls_arena_new(&trainer->arena, const char *, options->override_count + 1);
    size_t count = 0;
    for (; count < options->override_count; count++) {
        overrides[count] = options->overrides[count];
    }
    if (options->ranks > 0) {
        overrides[count++] = ls_arena_printf(&trainer->arena, "parallel.ranks=%" PRIu64, options->ranks);
    }
    LS_TRY(ls_run_file_load(options->config, overrides, count, &trainer->arena, run_out));
    if (run_out->job.command.count > 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s names a program (job.command) instead of a model to train; 'lockstep submit' queues it",
            options->config);
    }
    return LS_OK;
}

static ls_status open_run(ls_trainer *trainer)
{
    const ls_train_options *options = trainer->options;
    ls_run_file run;
    LS_TRY(load_run(trainer, &run));
    if (options->dry_run) {
        return open_session(trainer, &run, NULL);
    }
    const char *path =
        options->run_dir ? options->run_dir : ls_arena_printf(&trainer->arena, "runs/%s", run.name);
    LS_TRY(ls_run_dir_open(&trainer->arena, path, options->mode, &trainer->dir));
    LS_TRY(open_session(trainer, &run, trainer->dir.had_run ? trainer->dir.path : NULL));
    const uint64_t steps = trainer->session.run.train.steps;
    trainer->stop_step = options->stop_step && options->stop_step < steps ? options->stop_step : steps;
    trainer->schedule = ls_session_schedule(&trainer->session);
    if (trainer->dir.had_run) {
        LS_TRY(ls_run_dir_check_identity(&trainer->arena, &trainer->dir, &trainer->session.run));
    }
    return LS_OK;
}

ls_status ls_trainer_open(ls_trainer *trainer, const ls_train_options *options)
{
    *trainer = (ls_trainer){.options = options, .dir = {.lock_fd = -1}};
    pthread_mutex_init(&trainer->shared.lock, NULL);
    ls_goodput_begin(&trainer->goodput, options->start_s);
    LS_TRY(open_run(trainer));
    if (options->dry_run) {
        return LS_OK;
    }
    LS_TRY(take_memory(trainer));
    LS_TRY(settle(trainer));
    LS_TRY(restore_or_begin(trainer));
    if (trainer->finished) {
        return LS_OK;
    }
    tell_prediction(trainer);
    LS_TRY(open_progress(trainer));
    return ls_trainer_await_gang(trainer);
}

void ls_trainer_close(ls_trainer *trainer)
{
    ls_trainer_close_control(trainer);
    ls_notice_watch_stop(trainer->notices);
    ls_progress_destroy(trainer->progress);
    ls_save_job_release(&trainer->pending);
    json_decref(trainer->restore_events);
    ls_saver_destroy(trainer->saver);
    ls_emit_install(NULL);
    ls_run_log_close(trainer->log);
    ls_time_log_close(trainer->time_log);
    ls_generator_destroy(trainer->generator);
    ls_evaluator_destroy(trainer->evaluator);
    ls_stepper_destroy(trainer->stepper);
    ls_walk_release(&trainer->walk);
    ls_state_release(&trainer->state);
    ls_state_release(&trainer->snapshot);
    ls_gang_destroy(trainer->gang);
    ls_session_close(&trainer->session);
    ls_run_dir_close(&trainer->dir);
    ls_arena_release(&trainer->arena);
    pthread_mutex_destroy(&trainer->shared.lock);
}

/* ---- the end ---- */

static const char *status_word(const ls_trainer *trainer, ls_status status)
{
    switch (status) {
    case LS_OK:
        return trainer->step >= trainer->session.run.train.steps ? "finished" : "stopped";
    case LS_STOPPED:
        return "stopped";
    case LS_INTERRUPTED:
        return "interrupted";
    default:
        return "failed";
    }
}

static double per_process(const ls_trainer *trainer, double flops)
{
    const uint64_t steps = trainer->step - trainer->begun_at;
    return steps > 0 && trainer->step_s > 0.0 && trainer->peak_flops > 0.0
               ? flops * (double)steps / trainer->step_s / trainer->peak_flops
               : NAN;
}

/* What is set beside the prediction: of the steps of this process. */
static ls_own_run_side measured_side(ls_trainer *trainer)
{
    const uint64_t steps = trainer->step - trainer->begun_at;
    return (ls_own_run_side){
        .step_s = steps > 0 ? trainer->step_s / (double)steps : 0.0,
        .tokens_ps = trainer->step_s > 0.0 ? (double)trainer->process_tokens / trainer->step_s : NAN,
        .memory_bytes = (double)ls_trainer_memory(trainer),
        .checkpoint_stall_s = trainer->stall_count > 0 ? trainer->stall_s / trainer->stall_count : 0.0};
}

/* Ends the account of this start and adds all of them up. */
static void end_time_log(ls_trainer *trainer, ls_status status, ls_time_history *history_out)
{
    const bool away = status != LS_OK && status != LS_INTERRUPTED;
    ls_time_log_end(trainer->time_log, status_word(trainer, status), away);
    if (ls_time_history_load(trainer->dir.path, history_out) != LS_OK || history_out->start_count == 0) {
        ls_error_clear();
        ls_goodput_update(&trainer->goodput);
        history_out->total = trainer->goodput; /* better than nothing */
    }
}

ls_status ls_trainer_finish(ls_trainer *trainer, ls_status status, json_t **result_out)
{
    const ls_session *session = &trainer->session;
    const double bytes_per_token = ls_dataset_bytes_per_token(session->dataset, LS_SPLIT_VALIDATION);
    const ls_prediction *prediction = &trainer->prediction;
    const ls_own_run_side measured = measured_side(trainer);
    ls_time_history history;
    end_time_log(trainer, status, &history);
    json_t *time = ls_goodput_to_json(&history.total), *starts = ls_time_history_to_json(&history);
    json_t *recoveries = ls_run_log_events(trainer->dir.path, "recovered");
    ls_summary summary = {
        .run = session->run.name,
        .run_dir = trainer->dir.path,
        .status = status_word(trainer, status),
        .step = trainer->step,
        .steps = session->run.train.steps,
        .loss = (double)trainer->loss,
        .val_loss = trainer->val_loss,
        .val_loss_per_byte = bytes_per_token > 0.0 ? trainer->val_loss / bytes_per_token : NAN,
        .tokens = trainer->tokens,
        .tokens_per_s = measured.tokens_ps,
        .mfu = per_process(trainer, ls_session_step_flops(session, false)),
        .hfu = per_process(trainer, ls_session_step_flops(session, true)),
        .peak_rss_bytes = (uint64_t)measured.memory_bytes,
        .wall_s = ls_goodput_wall_s(&history.total),
        .first_step_s = trainer->first_step_s > 0.0 ? trainer->first_step_s : NAN,
        .goodput = ls_goodput_fraction(&history.total),
        .parameters = (uint64_t)session->layout.element_count,
        .frozen_parameters = (uint64_t)session->layout.frozen_elements,
        .predicted_memory_bytes = prediction->memory_bytes,
        .predicted_step_s = prediction->time.step_s,
        .predicted_tokens_per_s = prediction->time.tokens_ps,
        .predicted_checkpoint_stall_s = prediction->time.checkpoint_stall_s,
        .prediction_doubt = prediction->doubt,
        .checkpoint_stall_s = measured.checkpoint_stall_s,
        .step_s = measured.step_s,
        .flops_per_step = ls_session_step_flops(session, true),
        .recoveries = recoveries,
        .time = time,
        .starts = starts,
    };
    ls_status result = LS_OK;
    ls_trainer_gather(trainer);
    if (ls_trainer_is_whole(trainer)) { /* else it is that of no step */
        result = ls_state_hash_now(&trainer->state, trainer->step, summary.state_hash);
    }
    ls_run_log_curve_hash(trainer->log, summary.curve_hash);
    ls_emit_event("ended",
                  json_pack("{s:I, s:s}", "step", (json_int_t)trainer->step, "status", summary.status));
    if (result == LS_OK) {
        result = ls_summary_save(&summary, trainer->dir.path);
    }
    *result_out = ls_summary_to_json(&summary);
    json_decref(time);
    json_decref(starts);
    json_decref(recoveries);
    ls_time_history_release(&history);
    LS_TRY(result);
    if (status == LS_OK && trainer->step - trainer->begun_at >= KEPT_STEPS_MIN) {
        ls_prediction_keep(prediction, session, &measured, trainer->step - trainer->begun_at);
    }
    return ls_report_write(trainer->dir.path,
                           ls_path_join(&trainer->arena, trainer->dir.path, "report.html"));
}
