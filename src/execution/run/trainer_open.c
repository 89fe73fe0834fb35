// SPDX-License-Identifier: Apache-2.0
/* Opens a run, from the run file to the first step, and closes it. */
#include "execution/run/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "execution/run/mesh_choice.h"
#include "execution/run/signals.h"
#include "telemetry/record/metrics_reader.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static void print_tokenising(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    FILE *out = context;
    if (isatty(fileno(out))) {
        fprintf(out, "\rtokenising %s: %3.0f %%%s", ls_path_basename(path),
                total_bytes ? 100.0 * (double)done_bytes / (double)total_bytes : 100.0,
                done_bytes >= total_bytes ? "\n" : "");
        fflush(out);
    }
}

static void print_line(void *context, const char *text)
{
    FILE *out = context;
    fprintf(out, "%s\n", text);
    fflush(out);
}

/* Tokenising may take long: a signal ends it. */
static ls_status stop_opening(void *context)
{
    (void)context;
    const ls_status signal = ls_signals_status();
    return signal == LS_OK ? LS_OK : ls_fail(signal, "stopped while the data were being prepared");
}

/* Prints, once for a new run, what its data and settings amount to, and the prediction or what to
 * do to get one. */
static void print_prediction(const ls_trainer *trainer)
{
    const ls_prediction *p = &trainer->prediction;
    FILE *out = trainer->options->out;
    if (!out || trainer->loop.step > 0) {
        return;
    }
    ls_text text = {0};
    ls_session_describe_sources(&trainer->session, &text);
    ls_session_describe_warnings(&trainer->session, &text);
    if (p->has_time) {
        ls_prediction_describe(p, &trainer->session, &text);
    } else {
        ls_text_printf(&text, "the step time is not predicted: %s\n", p->why_not);
    }
    fputs(ls_text_string(&text), out);
    ls_text_release(&text);
}

static ls_status choose_mesh(void *chooser, const ls_session *session, ls_run_parallel *parallel)
{
    ls_trainer *trainer = chooser;
    if (trainer->options->hosts) {
        return LS_OK; /* they divide the batch */
    }
    ls_text why = {0};
    const ls_status status = ls_mesh_choose(session, parallel, &why);
    if (status == LS_OK) {
        trainer->mesh_choice = ls_arena_strdup(&trainer->arena, ls_text_string(&why));
    }
    if (status == LS_OK && trainer->options->out) {
        fputs(trainer->mesh_choice, trainer->options->out);
    }
    ls_text_release(&why);
    return status;
}

/* Where people start the agents, each is expected to be a host with one rank. */
static uint32_t count_hosts(const ls_workers_hosts *hosts, uint64_t ranks)
{
    return hosts->others ? hosts->other_count + 1 : (uint32_t)ranks - hosts->local_ranks + 1;
}

static ls_status open_session(ls_trainer *trainer, const ls_run_file *run, const char *run_dir)
{
    const ls_workers_hosts *hosts = trainer->options->hosts;
    const uint64_t ranks = ls_run_file_ranks(run);
    const ls_session_options options = {
        .run_dir = run_dir,
        .hosts = hosts ? count_hosts(hosts, ranks) : 0,
        .host_ranks = hosts ? hosts->local_ranks : 0,
        .threads = trainer->options->threads,
        .progress = trainer->options->out ? print_tokenising : NULL,
        .tell = trainer->options->out ? print_line : NULL,
        .stop = stop_opening,
        .context = trainer->options->out,
        .choose = choose_mesh,
        .chooser = trainer,
    };
    const uint64_t most = hosts ? run->train.local.workers : ls_run_file_rank_leaves(run, false);
    if (run->train.local.steps > 0 && ranks > most && !(hosts && hosts->others)) {
        return ls_fail(LS_ERR_INVALID,
                       "the run would have %" PRIu64 " ranks, but %s; use at most %" PRIu64
                       ", or other values of train.leaves and train.local.workers in a new run",
                       ranks,
                       hosts ? "each needs a worker to itself (train.local.workers)"
                             : "they share the leaves of one worker (train.leaves / "
                               "train.local.workers)",
                       most);
    }
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
    LS_TRY(ls_bit_flip_from_environment(&trainer->backend.flip));
    settings.flip = &trainer->backend.flip;
#endif
    return ls_stepper_create(&trainer->backend.executor, &trainer->backend.state, &settings,
                             &trainer->backend.stepper);
}

/* The validation loss of a mixture is also known by source, unless validation has files of its
 * own. */
static void divide_validation(ls_trainer *trainer)
{
    const ls_session *session = &trainer->session;
    if (session->source_count < 2 || session->run.data.validation.count > 0) {
        return;
    }
    uint64_t *ends = ls_arena_new(&trainer->arena, uint64_t, session->source_count);
    for (size_t i = 0; i < session->source_count; i++) {
        ends[i] = ls_dataset_validation_end(session->dataset, (uint32_t)i);
    }
    ls_evaluator_divide(trainer->evaluator, ends, session->source_count);
}

static ls_status create_side_work(ls_trainer *trainer)
{
    ls_session *session = &trainer->session;
    if (ls_dataset_token_count(session->dataset, LS_SPLIT_VALIDATION) >= 2) {
        const ls_model_on_device model = ls_session_model(session, &trainer->backend.state);
        LS_TRY(ls_evaluator_create(&model, (int64_t)session->run.train.micro_batch,
                                   (int64_t)session->run.model.context, &trainer->evaluator));
        divide_validation(trainer);
    } else if (session->run.eval.patience > 0) {
        return ls_fail(LS_ERR_INVALID,
                       "eval.patience is %" PRIu64 ", but there is no validation data to evaluate: set "
                       "data.validation or data.validation_fraction, or eval.patience: 0",
                       session->run.eval.patience);
    }
    if (session->run.sample.every_steps > 0) {
        const ls_model_on_device model = ls_session_model(session, &trainer->backend.state);
        LS_TRY(ls_generator_create(&model, &(ls_generator_options){.slots = 1}, &trainer->generator));
    }
    return LS_OK;
}

/* Takes the memory for everything, after checking that the machine has it. */
static ls_status take_memory(ls_trainer *trainer)
{
    ls_session *session = &trainer->session;
    LS_TRY(ls_session_check_memory(session));
    if (session->is_gang) {
        LS_TRY(ls_trainer_create_workers(trainer));
        trainer->backend.state.has_gradient = session->run.train.local.delay > 0;
        return create_side_work(trainer);
    }
    LS_TRY(ls_state_init(&trainer->backend.state, session->device, ls_session_activations(session),
                         &session->layout, session->memory.tree_buffers));
    trainer->backend.state.has_gradient = session->run.train.local.delay > 0;
    if (session->run.train.local.steps > 0) {
        LS_TRY(ls_state_add_workers(&trainer->backend.state, (uint32_t)session->run.train.local.workers));
    }
    LS_TRY(ls_state_add_residuals(&trainer->backend.state, session->run.train.compression.kind,
                                  (uint32_t)session->run.train.compression.groups));
    LS_TRY(ls_executor_init(&trainer->backend.executor, session->device, &session->plan,
                            session->plan.options.length));
    LS_TRY(create_stepper(trainer));
    return create_side_work(trainer);
}

/* A GPU's energy is not counted here, so a run on one reports none. */
static void open_energy(ls_trainer *trainer)
{
    const char *part = getenv("LOCKSTEP_ENERGY_PART");
    char *end = NULL;
    const double told = part ? strtod(part, &end) : 1.0;
    trainer->control.energy_part = told > 0.0 && told <= 1.0 && !(end && *end) ? told : 1.0;
    trainer->control.rapl = trainer->session.device == trainer->session.queue ? ls_rapl_open(NULL) : NULL;
}

/* Reads what earlier starts took and cost, and begins the account of this one. A run can do without
 * a time log, but not go beyond its cap. */
static ls_status open_books(ls_trainer *trainer)
{
    const ls_run_file *run = &trainer->session.run;
    const double begun_s = ls_clock_wall_s() - (ls_clock_monotonic_s() - trainer->options->start_s);
    ls_time_history history;
    ls_status is_there = ls_time_history_load(trainer->dir.path, &history);
    const ls_status status =
        ls_meter_open(&run->job, (uint32_t)ls_run_file_ranks(run), trainer->options->start_s,
                      history.total.cost_usd, &trainer->control.meter);
    trainer->loop.redone_until = history.highest_step;
    ls_time_history_release(&history);
    LS_TRY(status);
    open_energy(trainer);
    if (is_there == LS_OK) {
        is_there = ls_time_log_open(trainer->dir.path, &trainer->books.goodput, begun_s, trainer->loop.step,
                                    &trainer->books.time_log);
    }
    if (is_there != LS_OK) {
        ls_log_warn("the time log (time.jsonl) cannot be written: %s", ls_error_text());
        ls_error_clear();
    }
    return LS_OK;
}

static const char *every_steps_text(ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.every_steps;
    return every == LS_AUTO_U64 ? "auto" : ls_arena_printf(&trainer->arena, "%" PRIu64, every);
}

/* Prints from which step the run continues, and which steps are computed again. */
static void print_resumed(const ls_trainer *trainer)
{
    if (!trainer->options->out || trainer->loop.step >= trainer->session.run.train.steps) {
        return;
    }
    const uint64_t first = trainer->loop.step + 1, last = trainer->loop.redone_until;
    fprintf(trainer->options->out, "continuing from step %" PRIu64 ", %s", trainer->loop.step,
            ls_trainer_is_adopted(trainer) ? "with its ranks, which outlived the trainer"
                                           : "the newest checkpoint");
    if (last == first) {
        fprintf(trainer->options->out, "; step %" PRIu64 " is computed again", first);
    } else if (last > first) {
        fprintf(trainer->options->out, "; steps %" PRIu64 " to %" PRIu64 " are computed again", first, last);
    }
    fputc('\n', trainer->options->out);
}

static ls_status open_log(ls_trainer *trainer)
{
    ls_run_totals totals = {0};
    LS_TRY(ls_run_log_open(trainer->dir.path, trainer->loop.step, &trainer->books.log, &totals));
    if (trainer->session.run.log.tensorboard) {
        ls_run_log_enable_tensorboard(trainer->books.log, trainer->loop.step);
    }
    ls_run_log_install(trainer->books.log);
    trainer->loop.tokens = totals.tokens;
    if (totals.highest_step > trainer->loop.redone_until) {
        trainer->loop.redone_until = totals.highest_step;
    }
    trainer->loop.loss = trainer->loop.step > 0 ? totals.last_loss : NAN;
    if (totals.has_val_loss && !isfinite(trainer->loop.val_loss)) {
        trainer->loop.val_loss = totals.last_val_loss;
    }
    if (trainer->loop.step > 0) {
        ls_emit_event("resumed", json_pack("{s:I, s:s}", "step", (json_int_t)trainer->loop.step, "from",
                                           ls_trainer_is_adopted(trainer) ? "ranks" : "checkpoint"));
        ls_trainer_report_restored(&trainer->saving);
        print_resumed(trainer);
    } else if (totals.highest_step > 0 && trainer->options->out) {
        fprintf(trainer->options->out,
                "no checkpoint yet: starting over from step 1; checkpoint.every_steps is %s\n",
                every_steps_text(trainer));
    }
    if (trainer->backend.workers) {
        return LS_OK; /* rank_started is sent when the ranks are ready */
    }
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    ls_emit_event("rank_started", json_pack("{s:i, s:i, s:s, s:i, s:I, s:s}", "rank", 0, "pid", (int)getpid(),
                                            "host", host, "epoch", 0, "step", (json_int_t)trainer->loop.step,
                                            "device", ls_queue_device_name(trainer->session.device)));
    return LS_OK;
}

/* The run is valid and has its memory: moves aside the run that it replaces, and keeps its
 * tokenizer. */
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

/* The evaluations of earlier starts count towards eval.patience. If they used it up, the run is at
 * its end. */
static void restore_patience(ls_trainer *trainer)
{
    const ls_run_eval *eval = &trainer->session.run.eval;
    ls_patience *patience = &trainer->loop.patience;
    *patience = (ls_patience){.limit = eval->patience, .min_delta = eval->min_delta};
    json_t *events = eval->patience > 0 ? ls_run_log_events(trainer->dir.path, "evaluation") : NULL;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        uint64_t step = 0;
        if (ls_event_step(event, &step) && step > 0 && step <= trainer->loop.step &&
            step % eval->every_steps == 0) {
            (void)ls_patience_add(patience, step, ls_json_number(event, "val_loss"));
        }
    }
    json_decref(events);
    if (ls_patience_is_over(patience)) {
        trainer->loop.stop_step = trainer->loop.step;
    }
}

/* Whether the summary is the result of this very step and complete. If the last evaluation was
 * interrupted it is not, and the run makes up for it. */
static bool is_result(const ls_trainer *trainer, const json_t *summary)
{
    const char *status = json_string_value(json_object_get(summary, "status"));
    return status && strcmp(status, ls_trainer_ended_as(trainer)) == 0 &&
           (uint64_t)json_integer_value(json_object_get(summary, "step")) == trainer->loop.step;
}

/* If the run had already reached its last step, its result is printed again and nothing in its
 * directory changes. */
static void find_result(ls_trainer *trainer)
{
    json_t *object = NULL;
    if (trainer->loop.step > trainer->loop.stop_step && trainer->options->out) {
        fprintf(trainer->options->out,
                "the run has finished %" PRIu64 " steps already, more than the %" PRIu64
                " asked for: nothing is trained\n",
                trainer->loop.step, trainer->loop.stop_step);
    }
    if (trainer->loop.step == 0 || trainer->loop.step < trainer->loop.stop_step ||
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
    trainer->saving.saved_step = trainer->loop.evaluated_step = UINT64_MAX;
    trainer->loop.val_loss = NAN;
    LS_TRY(ls_trainer_is_adopted(trainer) ? ls_trainer_adopt(trainer) : ls_trainer_restore(trainer));
    restore_patience(trainer);
    find_result(trainer);
    if (trainer->finished) {
        return LS_OK;
    }
    LS_TRY(open_books(trainer));
    ls_trainer_begin_interval(trainer);
    /* Launching changes environment variables, so all other threads are started after it. */
    LS_TRY(ls_trainer_launch_workers(trainer));
    LS_TRY(ls_trainer_open_notices(trainer));
    ls_trainer_open_control(trainer);
    if (trainer->loop.step == 0 && !ls_trainer_is_adopted(trainer)) {
        LS_TRY(ls_session_begin_weights(&trainer->session, &trainer->backend.state));
    } else if (!ls_trainer_is_adopted(trainer)) {
        LS_TRY(ls_session_load_base(&trainer->session, &trainer->backend.state));
    }
    ls_model_file_close(trainer->session.source);
    trainer->session.source = NULL;
    trainer->loop.begun_at = trainer->loop.step;
    /* The directory changes only from here on: the checkpoint in it has accepted this run. */
    LS_TRY(ls_run_file_save(&trainer->session.run,
                            ls_path_join(&trainer->arena, trainer->dir.path, "run.yaml")));
    /* Created here and never by a save: a save that finds the run directory moved away must not
     * make a new one in its place. */
    LS_TRY(ls_dir_create(trainer->dir.checkpoints));
    LS_TRY(open_log(trainer));
    return ls_trainer_begin_mirror(trainer);
}

static ls_status open_progress(ls_trainer *trainer)
{
    const ls_progress_options options = {
        .out = trainer->options->out,
        .steps = trainer->loop.stop_step,
        .first_step = trainer->loop.step,
        .every_steps = trainer->session.run.log.every_steps,
    };
    return ls_progress_create(&options, &trainer->books.progress);
}

/* Loads the run file. --ranks is an override like any other. */
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
    LS_TRY(ls_meter_open(&run_out->job, 1, 0.0, 0.0, &(ls_meter){0})); /* a cap needs a price */
    LS_TRY(ls_meter_room(&run_out->checkpoint, &(uint64_t){0}));
    if (run_out->job.command.count > 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s names a program (job.command) instead of a model to train; use 'lockstep submit' to queue it",
            options->config);
    }
    return LS_OK;
}

/* Says what a new length means for a run that has begun. */
static void print_new_length(const ls_trainer *trainer, const ls_run_file *begun)
{
    const ls_run_train *train = &trainer->session.run.train;
    const ls_schedule *schedule = &trainer->loop.schedule;
    FILE *out = trainer->options->out;
    if (!out || train->steps == begun->train.steps) {
        return;
    }
    fprintf(out, "this run now has %" PRIu64 " steps instead of %" PRIu64, train->steps, begun->train.steps);
    if (schedule->kind != LS_SCHEDULE_CONSTANT && train->steps != schedule->steps) {
        fprintf(out, "; its learning-rate schedule stays that of %" PRIu64 " steps", schedule->steps);
    }
    if (schedule->kind != LS_SCHEDULE_CONSTANT && train->steps > schedule->steps) {
        fprintf(out, ", so later steps train with %.3g (for another schedule, start over with --fresh)",
                ls_schedule_lr(schedule, schedule->steps));
    }
    fputc('\n', out);
}

/* --steps is a limit: it cannot make a run longer. */
static void print_steps_beyond(const ls_trainer *trainer)
{
    const uint64_t asked = trainer->options->stop_step, steps = trainer->session.run.train.steps;
    if (asked > steps && trainer->options->out) {
        fprintf(trainer->options->out,
                "--steps is %" PRIu64 ", but the run ends after step %" PRIu64
                " (train.steps). To make it longer, use --set train.steps=%" PRIu64 "\n",
                asked, steps, asked);
    }
}

static ls_status open_run(ls_trainer *trainer)
{
    const ls_train_options *options = trainer->options;
    ls_run_file run;
    LS_TRY(load_run(trainer, &run));
    if (options->dry_run) {
        LS_TRY(ls_run_file_check_effect(&run));
        return open_session(trainer, &run, NULL);
    }
    const char *path =
        options->run_dir ? options->run_dir : ls_arena_printf(&trainer->arena, "runs/%s", run.name);
    ls_run_file begun;
    /* A run that is resumed may be in its mirror alone. */
    const bool in_mirror = run.checkpoint.mirror[0] && options->mode == LS_RUN_RESUME;
    LS_TRY(
        ls_run_dir_open(&trainer->arena, path, in_mirror ? LS_RUN_CONTINUE : options->mode, &trainer->dir));
    LS_TRY(ls_trainer_restore_mirror(trainer, &run));
    if (in_mirror && !trainer->dir.had_run) {
        return ls_fail(
            LS_ERR_INVALID,
            "nothing to resume: %s has no run.yaml, and %s has no checkpoint. Leave out --resume to "
            "begin a new run",
            path, run.checkpoint.mirror);
    }
    if (trainer->dir.had_run) {
        LS_TRY(ls_run_dir_begun(&trainer->arena, &trainer->dir, &begun));
        LS_TRY(ls_run_file_adopt_begun(&run, &begun));
    } else {
        LS_TRY(ls_run_file_check_effect(&run));
    }
    LS_TRY(open_session(trainer, &run, trainer->dir.had_run ? trainer->dir.path : NULL));
    const uint64_t steps = trainer->session.run.train.steps;
    trainer->loop.stop_step = options->stop_step && options->stop_step < steps ? options->stop_step : steps;
    trainer->loop.schedule = ls_session_schedule(&trainer->session);
    trainer->backend.local = ls_session_local(&trainer->session);
    if (trainer->dir.had_run) {
        LS_TRY(ls_run_dir_check_identity(&trainer->dir, &begun, &trainer->session.run));
        print_new_length(trainer, &begun);
    }
    print_steps_beyond(trainer);
    return LS_OK;
}

ls_status ls_trainer_open(ls_trainer *trainer, const ls_train_options *options)
{
    *trainer = (ls_trainer){.options = options, .dir = {.lock_fd = -1}};
    pthread_mutex_init(&trainer->control.shared.lock, NULL);
    ls_goodput_begin(&trainer->books.goodput, options->start_s);
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
    print_prediction(trainer);
    LS_TRY(open_progress(trainer));
    LS_TRY(ls_trainer_await_workers(trainer));
    ls_trainer_begin_alerts(trainer);
    return LS_OK;
}

void ls_trainer_close(ls_trainer *trainer)
{
    ls_trainer_close_control(&trainer->control);
    ls_preemption_watch_stop(trainer->control.notices);
    ls_rapl_close(trainer->control.rapl);
    ls_text_release(&trainer->alerts.lines);
    ls_progress_destroy(trainer->books.progress);
    ls_save_job_release(&trainer->saving.pending);
    json_decref(trainer->saving.restore_events);
    ls_saver_destroy(trainer->saving.saver);
    ls_mirroring_stop(trainer->saving.mirroring);
    ls_emit_install(NULL);
    ls_run_log_close(trainer->books.log);
    ls_time_log_close(trainer->books.time_log);
    ls_generator_destroy(trainer->generator);
    ls_evaluator_destroy(trainer->evaluator);
    ls_stepper_destroy(trainer->backend.stepper);
    ls_executor_release(&trainer->backend.executor);
    ls_state_release(&trainer->backend.state);
    ls_state_release(&trainer->saving.snapshot);
    ls_workers_destroy(trainer->backend.workers);
    ls_session_close(&trainer->session);
    ls_run_dir_close(&trainer->dir);
    ls_arena_release(&trainer->arena);
    pthread_mutex_destroy(&trainer->control.shared.lock);
}
