// SPDX-License-Identifier: Apache-2.0
#include "execution/train/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_FILE_BYTES_MAX = 1 << 24 };

/* The tokenizer, as the model the run began with brought it, with all that belongs to it, or as one file. */
static size_t attach_tokenizer(const ls_session *session, ls_checkpoint_attachment *list)
{
    if (session->carried_count > 0) {
        for (size_t i = 0; i < session->carried_count; i++) {
            const ls_hf_file *file = &session->carried[i];
            list[i] = (ls_checkpoint_attachment){file->name, file->data, file->bytes};
        }
        return session->carried_count;
    }
    if (!session->tokenizer || session->run.tokenizer.kind == LS_TOKENIZER_BYTES) {
        return 0;
    }
    const char *name = NULL;
    const void *data = NULL;
    size_t bytes = 0;
    ls_tokenizer_source(session->tokenizer, &name, &data, &bytes);
    list[0] = (ls_checkpoint_attachment){name, data, bytes};
    return 1;
}

/* Small files that make a checkpoint a complete model: configuration, tokenizer, run file. */
static ls_status attach(ls_trainer *trainer, ls_arena *arena, ls_checkpoint_attachment **list_out,
                        size_t *count_out)
{
    ls_checkpoint_attachment *list =
        ls_arena_new(arena, ls_checkpoint_attachment, trainer->session.carried_count + 3);
    size_t count = 0;
    char *config_text = NULL;
    LS_TRY(ls_model_file_config_text(&trainer->session.config, &config_text));
    const char *config_copy = ls_arena_strdup(arena, config_text);
    free(config_text);
    list[count++] = (ls_checkpoint_attachment){"config.json", config_copy, strlen(config_copy)};
    count += attach_tokenizer(&trainer->session, list + count);

    char *run_text = NULL;
    size_t run_bytes = 0;
    LS_TRY(ls_file_read(arena, ls_path_join(arena, trainer->dir.path, "run.yaml"), RUN_FILE_BYTES_MAX,
                        &run_text, &run_bytes));
    list[count++] = (ls_checkpoint_attachment){"run.yaml", run_text, run_bytes};
    *list_out = list;
    *count_out = count;
    return LS_OK;
}

static ls_checkpoint_meta meta_of(const ls_trainer *trainer)
{
    const ls_session *session = &trainer->session;
    const bool evaluated = trainer->evaluated_step == trainer->step && isfinite(trainer->val_loss);
    return (ls_checkpoint_meta){
        .step = trainer->step,
        .data_position = trainer->step * session->run.train.global_batch,
        .seed = session->run.train.seed,
        .leaves = session->run.train.leaves,
        .identity = session->identity,
        .determinism = ls_queue_determinism_class(session->queue),
        .has_parent = trainer->saved_step != UINT64_MAX,
        .parent_step = trainer->saved_step != UINT64_MAX ? trainer->saved_step : 0,
        .has_val_loss = evaluated,
        .val_loss = evaluated ? trainer->val_loss : 0.0,
        .extra = json_pack("{s:s, s:s, s:I, s:f, s:s}", "run", session->run.name, "tokenizer",
                           !session->tokenizer                                 ? "none"
                           : session->run.tokenizer.kind == LS_TOKENIZER_BYTES ? "bytes"
                                                                               : "attached",
                           "tokens", (json_int_t)trainer->tokens, "loss", (double)trainer->loss, "data_hash",
                           ls_dataset_hash(session->dataset)),
    };
}

bool ls_trainer_weights_are_due(const ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.weights_every_steps;
    return every > 0 && trainer->step % every == 0 && trainer->weights_step != trainer->step;
}

/* The same checkpoint without moments: whatever takes a checkpoint or a Hugging Face folder takes it. */
static void add_weights(const ls_trainer *trainer, const ls_state *state, ls_save_job *job)
{
    const ls_run_checkpoint *run = &trainer->session.run.checkpoint;
    const ls_state weights = {.queue = state->queue,
                              .layout = state->layout,
                              .parameters = state->parameters,
                              .frozen = state->frozen};
    job->weights = job->save;
    job->weights.root = ls_path_join(&job->arena, trainer->dir.checkpoints, "weights");
    job->weights.tensors = ls_state_tensors(&job->arena, &weights);
    job->weights.bf16_values = run->weights_dtype == LS_WEIGHTS_BF16;
    job->weights_prune =
        (ls_checkpoint_prune_options){.keep_last = run->weights_keep_last, .saved = job->meta.step};
}

/* A checkpoint of the finished steps whose values are, or will be, in `state`. */
static ls_status make_job(ls_trainer *trainer, const ls_state *state, ls_save_job *job_out)
{
    const ls_session *session = &trainer->session;
    const ls_run_checkpoint *run = &session->run.checkpoint;
    ls_save_job job = {.log = trainer->log};
    ls_checkpoint_attachment *attachments = NULL;
    size_t attachment_count = 0;
    const ls_status status = attach(trainer, &job.arena, &attachments, &attachment_count);
    if (status != LS_OK) {
        ls_save_job_release(&job);
        return status;
    }
    job.meta = meta_of(trainer);
    job.save = (ls_checkpoint_save_options){
        .root = trainer->dir.checkpoints,
        .tensors = ls_state_tensors(&job.arena, state),
        .tensor_count = session->layout.parameter_count,
        .attachments = attachments,
        .attachment_count = attachment_count,
        .threads = ls_queue_threads(session->queue) + 2, /* which wait for the disk */
    };
    job.prune = (ls_checkpoint_prune_options){.keep_last = run->keep_last,
                                              .keep_best = run->keep_best,
                                              .keep_every = run->keep_every,
                                              .saved = job.meta.step};
    if (ls_trainer_weights_are_due(trainer)) {
        add_weights(trainer, state, &job);
    }
    *job_out = job;
    return LS_OK;
}

/* What is saved is what the last update left. */
static ls_status check_state(ls_trainer *trainer)
{
    ls_step_fault fault = {0};
    const ls_status status = trainer->gang
                                 ? ls_gang_check_state(trainer->gang, &trainer->state, trainer->step, &fault)
                                 : ls_stepper_check_state(trainer->stepper, &fault);
    if (status != LS_OK) {
        trainer->fault = fault;
    }
    return status;
}

/* With the reason of the gang's end: who was lost matters more than what can't be saved for it. */
static ls_status fail_not_whole(const ls_trainer *trainer)
{
    const ls_status status = ls_gang_gather(trainer->gang, trainer->step);
    if (status != LS_OK) {
        return status;
    }
    return ls_fail(LS_ERR_RANKS_LOST,
                   "the state in memory is not that of step %" PRIu64
                   ": a rank was lost in the middle of an update",
                   trainer->step);
}

/* The state of the finished steps is here, whole, and what the last update left. */
static ls_status check_saveable(ls_trainer *trainer)
{
    ls_trainer_gather(trainer);
    return ls_trainer_is_whole(trainer) ? check_state(trainer) : fail_not_whole(trainer);
}

/* ---- when one is due ---- */

/* What was learned in this process, on top of what the run's starts before it saw. */
static void update_cadence(ls_trainer *trainer, const ls_save_outcome *outcome)
{
    ls_cadence *c = &trainer->cadence;
    c->stall_s = outcome->stall_s;
    c->write_s = outcome->write_s;
    ls_goodput_update(&trainer->goodput);
    ls_cadence now = *c;
    now.trained_s += ls_goodput_wall_s(&trainer->goodput);
    ls_cadence_update(&now);
    c->failure_every_s = now.failure_every_s;
    c->interval_s = now.interval_s;
    c->lost_fraction = now.lost_fraction;
    if (fabs(c->interval_s - trainer->told_interval_s) > 0.25 * trainer->told_interval_s) {
        char text[256];
        trainer->told_interval_s = c->interval_s;
        ls_cadence_describe(c, ls_trainer_usual_step_s(trainer), text, sizeof text);
        ls_progress_print(trainer->progress, "%s", text);
        ls_emit_event("cadence",
                      json_pack("{s:I, s:s, s:f, s:f, s:f, s:f}", "step", (json_int_t)trainer->step, "text",
                                text, "interval_s", c->interval_s, "stall_s", c->stall_s, "failure_every_s",
                                c->failure_every_s, "lost_fraction", c->lost_fraction));
    }
}

void ls_trainer_begin_cadence(ls_trainer *trainer)
{
    ls_time_history history;
    trainer->cadence_from = trainer->step;
    if (ls_time_history_load(trainer->dir.path, &history) == LS_OK) {
        /* The last start is this one. */
        for (size_t i = 0; i + 1 < history.start_count; i++) {
            trainer->cadence.failures += !history.starts[i].has_ended;
            trainer->cadence.trained_s += ls_goodput_wall_s(&history.starts[i].time);
        }
        ls_time_history_release(&history);
    }
    trainer->cadence.recovery_s = ls_clock_monotonic_s() - trainer->options->start_s;
    ls_cadence_update(&trainer->cadence);
}

uint64_t ls_trainer_next_save(const ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.every_steps, step = trainer->step;
    if (every != LS_AUTO_U64) {
        return every > 0 ? (step / every + 1) * every : UINT64_MAX;
    }
    const double step_s = ls_trainer_usual_step_s(trainer);
    const uint64_t due = trainer->cadence_from + ls_cadence_steps(&trainer->cadence, step_s);
    return step_s > 0.0 && due > step ? due : step + 1;
}

bool ls_trainer_save_is_due(const ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.every_steps, step = trainer->step;
    if (every != LS_AUTO_U64) {
        return every > 0 && step % every == 0;
    }
    /* Ranks that run ahead can't be asked for this step's state. */
    const uint64_t due =
        trainer->cadence_from + ls_cadence_steps(&trainer->cadence, ls_trainer_usual_step_s(trainer));
    return step >= due && step >= trainer->granted;
}

/* ---- how a save ended ---- */

static void tell_saved(ls_trainer *trainer, const ls_save_outcome *outcome)
{
    trainer->saved_step = outcome->step;
    trainer->save_failures = 0;
    const bool behind = trainer->session.snapshot_bytes > 0;
    if (!behind || outcome->step < trainer->stop_step) { /* behind the last step nothing else goes on */
        trainer->stall_s += outcome->stall_s;
        trainer->stall_count++;
    }
    ls_trainer_note_save(trainer, outcome->write_s);
    ls_arena arena = {0};
    const char *path = ls_arena_printf(&arena, "%s/%" PRIu64, trainer->dir.checkpoints, outcome->step);
    ls_emit_event("checkpoint", json_pack("{s:I, s:s, s:f, s:f, s:I}", "step", (json_int_t)outcome->step,
                                          "path", path, "stall_s", outcome->stall_s, "write_s",
                                          outcome->write_s, "bytes", (json_int_t)outcome->bytes));
    ls_arena_release(&arena);
}

static void tell_failed(ls_trainer *trainer, const ls_save_outcome *outcome)
{
    trainer->save_failures++;
    ls_emit_event("checkpoint_failed",
                  json_pack("{s:I, s:s, s:i}", "step", (json_int_t)outcome->step, "text", outcome->text,
                            "failures_in_a_row", (int)trainer->save_failures));
    ls_log_warn("checkpoint of step %" PRIu64 " failed, %u of at most %d in a row; the run goes on%s: %s",
                outcome->step, trainer->save_failures, LS_SAVER_FAILURES_MAX - 1,
                trainer->saved_step == UINT64_MAX
                    ? ", but there is no checkpoint yet, and what it has trained would be lost with it"
                    : "",
                outcome->text);
}

static void tell_weights(ls_trainer *trainer, const ls_save_outcome *outcome)
{
    trainer->weights_step = outcome->step;
    ls_arena arena = {0};
    if (outcome->weights_status == LS_OK) {
        const char *path =
            ls_arena_printf(&arena, "%s/weights/%" PRIu64, trainer->dir.checkpoints, outcome->step);
        ls_emit_event("weights", json_pack("{s:I, s:s, s:I}", "step", (json_int_t)outcome->step, "path", path,
                                           "bytes", (json_int_t)outcome->weights_bytes));
    } else {
        ls_emit_event("weights_failed", json_pack("{s:I, s:s}", "step", (json_int_t)outcome->step, "text",
                                                  outcome->weights_text));
        ls_log_warn("weights of step %" PRIu64 " not saved; the run goes on: %s", outcome->step,
                    outcome->weights_text);
    }
    ls_arena_release(&arena);
}

/* Events for how a save ended. Errors: those of a save that must not fail, or of pruning. */
static ls_status take_outcome(ls_trainer *trainer, const ls_save_outcome *outcome, bool must_not_fail)
{
    if (outcome->has_weights) {
        tell_weights(trainer, outcome);
    }
    if (!outcome->has_state) {
        return LS_OK;
    }
    if (outcome->status == LS_OK) {
        tell_saved(trainer, outcome);
        if (!must_not_fail && trainer->session.run.checkpoint.every_steps == LS_AUTO_U64) {
            update_cadence(trainer, outcome);
        }
        return outcome->prune_status == LS_OK ? LS_OK : ls_fail(outcome->prune_status, "%s", outcome->text);
    }
    const bool one_too_many = trainer->save_failures + 1 >= LS_SAVER_FAILURES_MAX;
    if (!must_not_fail && !one_too_many) {
        tell_failed(trainer, outcome);
        return LS_OK;
    }
    return ls_fail(
        outcome->status, "step %" PRIu64 " could not be saved; older checkpoints are as they were%s: %s",
        outcome->step, must_not_fail ? "" : ", and this was one failure too many in a row", outcome->text);
}

/* ---- saving while steps go on ---- */

static void drop_pending(ls_trainer *trainer)
{
    ls_save_job_release(&trainer->pending);
    trainer->is_pending = false;
}

/* The step behind it is over: the snapshot is the state before that step, whole. */
static void begin_pending(ls_trainer *trainer)
{
    if (trainer->is_pending && trainer->step > trainer->pending.meta.step) {
        trainer->is_pending = false;
        ls_saver_begin(trainer->saver, &trainer->pending);
    }
}

/* How long it is to the first checkpoint, as soon as it is known in steps; from then on update_cadence tells. */
static void tell_first_cadence(ls_trainer *trainer)
{
    const double step_s = ls_trainer_usual_step_s(trainer);
    const ls_cadence *c = &trainer->cadence;
    if (trainer->session.run.checkpoint.every_steps != LS_AUTO_U64 || trainer->told_cadence ||
        step_s <= 0.0) {
        return;
    }
    char text[256];
    const uint64_t steps = ls_cadence_steps(c, step_s);
    trainer->told_cadence = true;
    snprintf(text, sizeof text,
             "checkpoint.every_steps is auto: the first checkpoint in about %.0f s (%" PRIu64
             " steps); what it costs says how often from then on",
             c->interval_s, steps);
    ls_progress_print(trainer->progress, "%s", text);
    ls_emit_event("cadence",
                  json_pack("{s:I, s:s, s:f, s:f, s:f, s:f}", "step", (json_int_t)trainer->step, "text", text,
                            "interval_s", c->interval_s, "stall_s", c->stall_s, "failure_every_s",
                            c->failure_every_s, "lost_fraction", c->lost_fraction));
}

ls_status ls_trainer_poll_saver(ls_trainer *trainer, bool wait)
{
    ls_save_outcome outcome;
    tell_first_cadence(trainer);
    begin_pending(trainer);
    if (!trainer->saver || !ls_saver_is_busy(trainer->saver)) {
        return LS_OK;
    }
    if (wait) {
        ls_goodput_enter(&trainer->goodput, LS_TIME_CHECKPOINT);
        ls_progress_activity(trainer->progress, "saving");
    }
    const double start_s = ls_clock_monotonic_s();
    const bool taken = ls_saver_take(trainer->saver, wait, &outcome);
    if (wait) {
        ls_progress_activity(trainer->progress, NULL);
        ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
        outcome.stall_s += ls_clock_monotonic_s() - start_s;
    }
    return taken ? take_outcome(trainer, &outcome, false) : LS_OK;
}

static ls_status prepare_snapshot(ls_trainer *trainer)
{
    if (!trainer->saver) {
        LS_TRY(ls_saver_create(&trainer->saver));
    }
    if (trainer->snapshot.parameters) {
        return LS_OK;
    }
    if (trainer->gang) {
        ls_gang_snapshot(trainer->gang, trainer->session.queue, &trainer->session.layout, &trainer->snapshot);
        return LS_OK;
    }
    return ls_state_init_snapshot(&trainer->snapshot, &trainer->state);
}

/* One process, or the ranks of one host: the update of the step that comes keeps the old values of all it changes. */
static bool keep_in_next_update(ls_trainer *trainer)
{
    if (trainer->gang) {
        return ls_gang_keep(trainer->gang, trainer->step);
    }
    float *const kept[3] = {trainer->snapshot.parameters, trainer->snapshot.m, trainer->snapshot.v};
    ls_stepper_keep(trainer->stepper, kept);
    return true;
}

/*
 * The state gets into the snapshot by the update of the step that comes, and then the saver begins. With several hosts it was gathered for this,
 * and is copied while ranks wait.
 */
static ls_status save_behind(ls_trainer *trainer, bool weights_alone)
{
    const double start_s = ls_clock_monotonic_s();
    LS_TRY(check_saveable(trainer));
    LS_TRY(prepare_snapshot(trainer));
    LS_TRY(make_job(trainer, &trainer->snapshot, &trainer->pending));
    trainer->pending.without_state = weights_alone;
    trainer->is_pending = true;
    if (keep_in_next_update(trainer)) {
        trainer->pending.stall_s = ls_clock_monotonic_s() - start_s;
        return LS_OK;
    }
    const ls_status status = ls_state_copy(&trainer->snapshot, &trainer->state);
    if (status != LS_OK) {
        drop_pending(trainer);
        return status;
    }
    trainer->pending.stall_s = ls_clock_monotonic_s() - start_s;
    trainer->is_pending = false;
    ls_saver_begin(trainer->saver, &trainer->pending);
    return LS_OK;
}

ls_status ls_trainer_save_behind(ls_trainer *trainer)
{
    /* A run file that says every N steps means it: the one in flight is waited for, which counts as a stall. */
    LS_TRY(ls_trainer_poll_saver(trainer, true));
    if (trainer->saved_step == trainer->step) {
        return LS_OK;
    }
    ls_goodput_enter(&trainer->goodput, LS_TIME_CHECKPOINT);
    trainer->cadence_from = trainer->step;
    const ls_status status = trainer->session.snapshot_bytes > 0 ? save_behind(trainer, false)
                                                                 : ls_trainer_save_now(trainer, false);
    ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
    return status;
}

/* ---- saving while steps wait ---- */

static ls_status save_now(ls_trainer *trainer, bool weights_alone, bool must_not_fail)
{
    LS_TRY(check_saveable(trainer));
    const double start_s = ls_clock_monotonic_s();
    ls_save_job job;
    LS_TRY(make_job(trainer, &trainer->state, &job));
    job.without_state = weights_alone;
    ls_save_outcome outcome;
    ls_save_job_run(&job, &outcome);
    outcome.stall_s = ls_clock_monotonic_s() - start_s;
    return take_outcome(trainer, &outcome, must_not_fail);
}

ls_status ls_trainer_save_now(ls_trainer *trainer, bool must_not_fail)
{
    return save_now(trainer, false, must_not_fail);
}

ls_status ls_trainer_save_weights(ls_trainer *trainer)
{
    if (!ls_trainer_weights_are_due(trainer) || trainer->is_pending) {
        return LS_OK;
    }
    LS_TRY(ls_trainer_poll_saver(trainer, true));
    if (!ls_trainer_weights_are_due(trainer)) { /* the one that was in flight had them */
        return LS_OK;
    }
    ls_goodput_enter(&trainer->goodput, LS_TIME_CHECKPOINT);
    const bool behind = trainer->session.snapshot_bytes > 0 && trainer->step < trainer->stop_step;
    const ls_status status = behind ? save_behind(trainer, true) : save_now(trainer, true, false);
    ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
    return status;
}

ls_status ls_trainer_save(ls_trainer *trainer)
{
    /* How it ends, and why, is what the reader of an error wants; one that is in flight tells its own. */
    LS_TRY(ls_trainer_poll_saver(trainer, true));
    drop_pending(
        trainer); /* the step that was to fill its snapshot did not finish; the state itself is here */
    if (trainer->saved_step == trainer->step) {
        return LS_OK;
    }
    ls_goodput_enter(&trainer->goodput, LS_TIME_CHECKPOINT);
    ls_progress_activity(trainer->progress, "saving");
    const ls_status status = ls_trainer_save_now(trainer, true);
    ls_progress_activity(trainer->progress, NULL);
    ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
    return status;
}
