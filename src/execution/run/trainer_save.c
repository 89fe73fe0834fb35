// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints of a run. Two ways to save:
 *
 *   now             steps wait while the state itself is written: the last state of a run, and when
 *                   there is no memory for a snapshot
 *   in background   the update of the next step copies the old values to the snapshot as it goes:
 *
 *       | step n | due: make_job | step n + 1, its update | begin_pending: the saver | step n + 2
 *       |        | is_pending    | fills the snapshot     | writes the snapshot      |
 *
 * The job is made when the checkpoint is due, because it records what was known then: losses,
 * tokens, the parent checkpoint. It is handed to the saver only after the next step has finished,
 * because until then the snapshot is incomplete; a step that fails leaves it so, and drop_pending
 * discards the job.
 */
#include "execution/run/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "execution/train/adapter_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_FILE_BYTES_MAX = 1 << 24 };

/* Attaches the tokenizer: all its files as they came with the model the run started from, otherwise
 * one file. Returns the number of files. */
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

/* The config.json of weights that are stored as `dtype`. */
static ls_status config_of(const ls_trainer *trainer, ls_arena *arena, ls_st_dtype dtype,
                           ls_checkpoint_attachment *attachment_out)
{
    char *text = NULL;
    LS_TRY(ls_model_file_config_text(&trainer->session.config, dtype, &text));
    const char *copy = ls_arena_strdup(arena, text);
    free(text);
    *attachment_out = (ls_checkpoint_attachment){"config.json", copy, strlen(copy)};
    return LS_OK;
}

/* Attaches the settings of the adapter, and tokens of the run on which a merge is checked. */
static ls_status attach_adapter(const ls_trainer *trainer, ls_arena *arena, ls_checkpoint_attachment *list,
                                size_t *count)
{
    const ls_session *session = &trainer->session;
    const char *text = NULL;
    LS_TRY(ls_adapter_config_text(arena, &session->layout, &session->config, session->base_path, &text));
    list[(*count)++] = (ls_checkpoint_attachment){LS_ADAPTER_CONFIG_NAME, text, strlen(text)};
    LS_TRY(ls_session_merge_tokens(session, arena, &text));
    list[(*count)++] = (ls_checkpoint_attachment){LS_MERGE_TOKENS_NAME, text, strlen(text)};
    return LS_OK;
}

/* Attaches the small files that make a checkpoint a complete model: configuration, tokenizer, run
 * file. */
static ls_status attach(ls_trainer *trainer, ls_arena *arena, ls_checkpoint_attachment **list_out,
                        size_t *count_out)
{
    ls_checkpoint_attachment *list =
        ls_arena_new(arena, ls_checkpoint_attachment, trainer->session.carried_count + 5);
    size_t count = 0;
    LS_TRY(config_of(trainer, arena, LS_ST_F32, &list[count++]));
    count += attach_tokenizer(&trainer->session, list + count);
    if (trainer->session.layout.adapter) {
        LS_TRY(attach_adapter(trainer, arena, list, &count));
    }

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
    const bool evaluated =
        trainer->loop.evaluated_step == trainer->loop.step && isfinite(trainer->loop.val_loss);
    return (ls_checkpoint_meta){
        .step = trainer->loop.step,
        .data_position = trainer->loop.step * session->run.train.global_batch,
        .seed = session->run.train.seed,
        .leaves = session->run.train.leaves,
        .identity = session->identity,
        .determinism = ls_queue_determinism_class(session->device),
        .has_parent = trainer->saving.saved_step != UINT64_MAX,
        .parent_step = trainer->saving.saved_step != UINT64_MAX ? trainer->saving.saved_step : 0,
        .has_val_loss = evaluated,
        .val_loss = evaluated ? trainer->loop.val_loss : 0.0,
        .extra =
            json_pack("{s:s, s:s, s:I, s:f, s:s, s:o*, s:s*, s:s*}", "run", session->run.name, "tokenizer",
                      !session->tokenizer                                 ? "none"
                      : session->run.tokenizer.kind == LS_TOKENIZER_BYTES ? "bytes"
                                                                          : "attached",
                      "tokens", (json_int_t)trainer->loop.tokens, "loss", (double)trainer->loop.loss,
                      "data_hash", ls_dataset_hash(session->dataset), "shards",
                      ls_dataset_shards(session->dataset), "base_digest", ls_session_base_digest(session),
                      "base", session->layout.adapter ? ls_base_names[session->layout.base] : NULL),
    };
}

static bool weights_are_due(const ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.weights_every_steps;
    return every > 0 && trainer->loop.step % every == 0 && trainer->saving.weights_step != trainer->loop.step;
}

/* Adds the weights alone to the job: a checkpoint without moments, which every command that takes a
 * checkpoint or a Hugging Face folder accepts. */
static ls_status add_weights(const ls_trainer *trainer, const ls_state *state, ls_save_job *job)
{
    const ls_run_checkpoint *run = &trainer->session.run.checkpoint;
    const ls_state weights = {.queue = state->queue,
                              .layout = state->layout,
                              .parameters = state->parameters,
                              .frozen = state->frozen};
    job->weights = job->save;
    job->weights.root = ls_path_join(&job->arena, trainer->dir.checkpoints, "weights");
    job->weights.tensors = ls_state_tensors(&job->arena, &weights, NULL);
    job->weights.tensor_count = ls_state_tensor_count(state->layout);
    job->weights.bf16_values = run->weights_dtype == LS_WEIGHTS_BF16;
    job->weights_prune =
        (ls_checkpoint_prune_options){.keep_last = run->weights_keep_last, .saved = job->meta.step};
    /* attach() puts config.json first; here it must name the type of these weights. */
    const size_t count = job->save.attachment_count;
    ls_checkpoint_attachment *list = ls_arena_new(&job->arena, ls_checkpoint_attachment, count);
    memcpy(list, job->save.attachments, count * sizeof *list);
    job->weights.attachments = list;
    return config_of(trainer, &job->arena, job->weights.bf16_values ? LS_ST_BF16 : LS_ST_F32, &list[0]);
}

/* Makes the job of a checkpoint of the finished steps. Their values are in `state`, or will be. */
static ls_status make_job(ls_trainer *trainer, const ls_state *state, ls_save_job *job_out)
{
    const ls_session *session = &trainer->session;
    const ls_run_checkpoint *run = &session->run.checkpoint;
    ls_save_job job = {.log = trainer->books.log};
    ls_checkpoint_attachment *attachments = NULL;
    size_t attachment_count = 0;
    ls_status status = attach(trainer, &job.arena, &attachments, &attachment_count);
    if (status != LS_OK) {
        ls_save_job_release(&job);
        return status;
    }
    job.meta = meta_of(trainer);
    job.save = (ls_checkpoint_save_options){
        .root = trainer->dir.checkpoints,
        .attachments = attachments,
        .attachment_count = attachment_count,
        .threads = ls_queue_threads(session->queue) + 2, /* two more, as some wait for the disk */
    };
    ls_state now = *state;
    now.residual_step = job.meta.step;
    job.save.tensors = ls_state_tensors(&job.arena, &now, &job.save.tensor_count);
    job.prune = (ls_checkpoint_prune_options){.keep_last = run->keep_last,
                                              .keep_best = run->keep_best,
                                              .keep_every = run->keep_every,
                                              .saved = job.meta.step};
    status = ls_meter_room(run, &job.prune.bytes_max);
    if (status == LS_OK && weights_are_due(trainer)) {
        status = add_weights(trainer, state, &job);
    }
    if (status != LS_OK) {
        ls_save_job_release(&job);
        return status;
    }
    *job_out = job;
    return LS_OK;
}

/* Checks that the state is still what the last update left, bit for bit. */
static ls_status check_state(ls_trainer *trainer)
{
    ls_step_fault fault = {0};
    const ls_status status = trainer->backend.workers
                                 ? ls_workers_check_state(trainer->backend.workers, &trainer->backend.state,
                                                          trainer->loop.step, &fault)
                                 : ls_stepper_check_state(trainer->backend.stepper, &fault);
    if (status != LS_OK) {
        trainer->loop.fault = fault;
    }
    return status;
}

/* Fails with the reason why the workers ended if there is one: which rank was lost matters more
 * than that the state cannot be saved. */
static ls_status fail_not_whole(const ls_trainer *trainer)
{
    if (!trainer->backend.workers) {
        return ls_fail(LS_ERR_FAILED,
                       "cannot save step %" PRIu64
                       ": some of the workers (train.local.workers) had made the next step when it failed",
                       trainer->loop.step);
    }
    const ls_status status = ls_workers_gather(trainer->backend.workers,
                                               ls_local_turns(&trainer->backend.local, trainer->loop.step));
    if (status != LS_OK) {
        return status;
    }
    return ls_fail(LS_ERR_RANKS_LOST,
                   "cannot save step %" PRIu64
                   ": a rank was lost while it updated the weights, so they are not those of that step",
                   trainer->loop.step);
}

/* Checks that the state of the finished steps is here, complete and uncorrupted. */
static ls_status check_saveable(ls_trainer *trainer)
{
    ls_trainer_gather(trainer);
    return ls_trainer_is_whole(trainer) ? check_state(trainer) : fail_not_whole(trainer);
}

/* ---- when one is due ---- */

static void report_interval(ls_trainer *trainer, const char *text)
{
    const ls_checkpoint_interval *c = &trainer->saving.interval;
    ls_progress_print(trainer->books.progress, "%s", text);
    ls_emit_event("cadence",
                  json_pack("{s:I, s:s, s:f, s:f, s:f, s:f}", "step", (json_int_t)trainer->loop.step, "text",
                            text, "interval_s", c->interval_s, "stall_s", c->stall_s, "failure_every_s",
                            c->failure_every_s, "lost_fraction", c->lost_fraction));
}

/* Updates the interval with what this checkpoint cost, and reports it when it has changed by
 * more than a quarter. The earlier starts of the run are in `interval` already; the time of this
 * start is added to a copy, so that it is not counted twice. */
static void update_interval(ls_trainer *trainer, const ls_save_outcome *outcome)
{
    ls_checkpoint_interval *c = &trainer->saving.interval;
    c->stall_s = outcome->stall_s;
    c->write_s = outcome->write_s;
    ls_goodput_update(&trainer->books.goodput);
    ls_checkpoint_interval now = *c;
    now.trained_s += ls_goodput_wall_s(&trainer->books.goodput);
    ls_checkpoint_interval_update(&now);
    c->failure_every_s = now.failure_every_s;
    c->interval_s = now.interval_s;
    c->lost_fraction = now.lost_fraction;
    if (fabs(c->interval_s - trainer->saving.reported_interval_s) >
        0.25 * trainer->saving.reported_interval_s) {
        char text[256];
        trainer->saving.reported_interval_s = c->interval_s;
        ls_checkpoint_interval_describe(c, ls_trainer_usual_step_s(&trainer->loop), text, sizeof text);
        report_interval(trainer, text);
    }
}

void ls_trainer_begin_interval(ls_trainer *trainer)
{
    ls_time_history history;
    trainer->saving.interval_from = trainer->loop.step;
    if (ls_time_history_load(trainer->dir.path, &history) == LS_OK) {
        /* The last start is this one. */
        for (size_t i = 0; i + 1 < history.start_count; i++) {
            trainer->saving.interval.failures += !history.starts[i].has_ended;
            trainer->saving.interval.trained_s += ls_goodput_wall_s(&history.starts[i].time);
        }
        ls_time_history_release(&history);
    }
    trainer->saving.interval.recovery_s = ls_clock_monotonic_s() - trainer->options->start_s;
    ls_checkpoint_interval_update(&trainer->saving.interval);
}

uint64_t ls_trainer_next_save(const ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.every_steps, step = trainer->loop.step;
    if (every != LS_AUTO_U64) {
        return every > 0 ? (step / every + 1) * every : UINT64_MAX;
    }
    const double step_s = ls_trainer_usual_step_s(&trainer->loop);
    const uint64_t due =
        trainer->saving.interval_from + ls_checkpoint_interval_steps(&trainer->saving.interval, step_s);
    return step_s > 0.0 && due > step ? due : step + 1;
}

bool ls_trainer_save_is_due(const ls_trainer *trainer)
{
    const uint64_t every = trainer->session.run.checkpoint.every_steps, step = trainer->loop.step;
    if (every != LS_AUTO_U64) {
        return every > 0 && step % every == 0;
    }
    /* The state of a step is gone once ranks have run ahead of it. */
    const uint64_t due =
        trainer->saving.interval_from +
        ls_checkpoint_interval_steps(&trainer->saving.interval, ls_trainer_usual_step_s(&trainer->loop));
    return step >= due && step >= trainer->backend.granted;
}

/* ---- how a save ended ---- */

static void note_saved(ls_trainer *trainer, const ls_save_outcome *outcome)
{
    ls_trainer_saving *saving = &trainer->saving;
    saving->saved_step = outcome->step;
    saving->failures = 0;
    if (saving->mirroring) {
        ls_mirroring_want(saving->mirroring, outcome->step);
    }
    const bool in_background = trainer->session.snapshot_bytes > 0;
    /* The save after the last step stalls nothing, and would distort the mean of the others. */
    if (!in_background || outcome->step < trainer->loop.stop_step) {
        saving->stall_s += outcome->stall_s;
        saving->stall_count++;
    }
    ls_trainer_note_save(trainer, outcome->write_s);
    ls_arena arena = {0};
    const char *path = ls_arena_printf(&arena, "%s/%" PRIu64, trainer->dir.checkpoints, outcome->step);
    ls_emit_event("checkpoint", json_pack("{s:I, s:s, s:f, s:f, s:I}", "step", (json_int_t)outcome->step,
                                          "path", path, "stall_s", outcome->stall_s, "write_s",
                                          outcome->write_s, "bytes", (json_int_t)outcome->bytes));
    ls_arena_release(&arena);
}

static void note_failed(ls_trainer_saving *saving, const ls_save_outcome *outcome)
{
    saving->failures++;
    ls_emit_event("checkpoint_failed", json_pack("{s:I, s:s, s:i}", "step", (json_int_t)outcome->step, "text",
                                                 outcome->text, "failures_in_a_row", (int)saving->failures));
    ls_log_warn(
        "the checkpoint of step %" PRIu64
        " could not be saved (failure %u in a row; the run ends after more than %d); the run continues%s: %s",
        outcome->step, saving->failures, LS_SAVER_FAILURES_MAX - 1,
        saving->saved_step == UINT64_MAX
            ? ", but there is no checkpoint yet: if it ends now, all its training is lost"
            : "",
        outcome->text);
}

static void note_weights(ls_trainer *trainer, const ls_save_outcome *outcome)
{
    trainer->saving.weights_step = outcome->step;
    ls_arena arena = {0};
    if (outcome->weights_status == LS_OK) {
        const char *path =
            ls_arena_printf(&arena, "%s/weights/%" PRIu64, trainer->dir.checkpoints, outcome->step);
        ls_emit_event("weights", json_pack("{s:I, s:s, s:I}", "step", (json_int_t)outcome->step, "path", path,
                                           "bytes", (json_int_t)outcome->weights_bytes));
    } else {
        ls_emit_event("weights_failed", json_pack("{s:I, s:s}", "step", (json_int_t)outcome->step, "text",
                                                  outcome->weights_text));
        ls_log_warn("the weights of step %" PRIu64 " could not be saved; the run continues: %s",
                    outcome->step, outcome->weights_text);
    }
    ls_arena_release(&arena);
}

/* Sends the events of a save that ended. Errors: those of a save that must not fail, of one failure
 * too many in a row, and of pruning. */
static ls_status take_outcome(ls_trainer *trainer, const ls_save_outcome *outcome, bool must_not_fail)
{
    if (outcome->has_weights) {
        note_weights(trainer, outcome);
    }
    if (!outcome->has_state) {
        return LS_OK;
    }
    if (outcome->status == LS_OK) {
        note_saved(trainer, outcome);
        if (!must_not_fail && trainer->session.run.checkpoint.every_steps == LS_AUTO_U64) {
            update_interval(trainer, outcome);
        }
        return outcome->prune_status == LS_OK ? LS_OK : ls_fail(outcome->prune_status, "%s", outcome->text);
    }
    const bool one_too_many = trainer->saving.failures + 1 >= LS_SAVER_FAILURES_MAX;
    if (!must_not_fail && !one_too_many) {
        note_failed(&trainer->saving, outcome);
        return LS_OK;
    }
    return ls_fail(
        outcome->status, "step %" PRIu64 " could not be saved; older checkpoints are unchanged%s: %s",
        outcome->step, must_not_fail ? "" : ", and too many attempts failed in a row", outcome->text);
}

/* ---- saving while steps wait ---- */

static ls_status save_now(ls_trainer *trainer, bool weights_alone, bool must_not_fail)
{
    LS_TRY(check_saveable(trainer));
    const double start_s = ls_clock_monotonic_s();
    ls_save_job job;
    const ls_state *host = NULL;
    LS_TRY(ls_state_to_host(&trainer->backend.state, &host));
    LS_TRY(make_job(trainer, host, &job));
    job.without_state = weights_alone;
    ls_save_outcome outcome;
    ls_save_job_run(&job, &outcome);
    outcome.stall_s = ls_clock_monotonic_s() - start_s;
    return take_outcome(trainer, &outcome, must_not_fail);
}

/* ---- saving in the background ---- */

static void drop_pending(ls_trainer_saving *saving)
{
    ls_save_job_release(&saving->pending);
    saving->is_pending = false;
}

/* Starts the saver once the step after the checkpoint's has finished: the snapshot is then
 * complete, and holds the state before that step. */
static void begin_pending(ls_trainer_saving *saving, uint64_t step)
{
    if (saving->is_pending && step > saving->pending.meta.step) {
        saving->is_pending = false;
        ls_saver_begin(saving->saver, &saving->pending);
    }
}

/* Reports when the first checkpoint is due, as soon as the time of a step is known; later reports
 * come from update_interval. */
static void report_first_interval(ls_trainer *trainer)
{
    const double step_s = ls_trainer_usual_step_s(&trainer->loop);
    const ls_checkpoint_interval *c = &trainer->saving.interval;
    if (trainer->session.run.checkpoint.every_steps != LS_AUTO_U64 || trainer->saving.has_reported_interval ||
        step_s <= 0.0) {
        return;
    }
    char text[256];
    const uint64_t steps = ls_checkpoint_interval_steps(c, step_s);
    trainer->saving.has_reported_interval = true;
    snprintf(text, sizeof text,
             "checkpoint.every_steps is auto: the first checkpoint in about %.0f s (%" PRIu64
             " step%s); the interval is then derived from the time that it took",
             c->interval_s, steps, steps == 1 ? "" : "s");
    report_interval(trainer, text);
}

ls_status ls_trainer_poll_saver(ls_trainer *trainer, bool wait)
{
    ls_save_outcome outcome;
    report_first_interval(trainer);
    begin_pending(&trainer->saving, trainer->loop.step);
    if (!trainer->saving.saver || !ls_saver_is_busy(trainer->saving.saver)) {
        return LS_OK;
    }
    if (wait) {
        ls_goodput_enter(&trainer->books.goodput, LS_TIME_CHECKPOINT);
        ls_progress_activity(trainer->books.progress, "saving");
    }
    const double start_s = ls_clock_monotonic_s();
    const bool taken = ls_saver_take(trainer->saving.saver, wait, &outcome);
    if (wait) {
        ls_progress_activity(trainer->books.progress, NULL);
        ls_goodput_enter(&trainer->books.goodput, LS_TIME_OTHER);
        outcome.stall_s += ls_clock_monotonic_s() - start_s;
    }
    return taken ? take_outcome(trainer, &outcome, false) : LS_OK;
}

static ls_status prepare_snapshot(ls_trainer *trainer)
{
    if (!trainer->saving.saver) {
        LS_TRY(ls_saver_create(&trainer->saving.saver));
    }
    if (trainer->saving.snapshot.parameters) {
        return LS_OK;
    }
    if (trainer->backend.workers) {
        ls_workers_snapshot(trainer->backend.workers, trainer->session.queue, &trainer->session.layout,
                            &trainer->saving.snapshot);
        return LS_OK;
    }
    return ls_state_init_snapshot(&trainer->saving.snapshot, &trainer->backend.state);
}

/* Asks the update of the next step to copy the old values of all it changes to the snapshot.
 * True for one process and for the ranks of one host; false with several hosts, whose updates
 * cannot. */
static bool keep_in_next_update(ls_trainer *trainer)
{
    if (trainer->backend.workers) {
        return ls_workers_keep(trainer->backend.workers, trainer->loop.step);
    }
    if (trainer->backend.state.mirror) {
        return false; /* the whole state is copied to the host before the next step */
    }
    float *const kept[3] = {trainer->saving.snapshot.parameters, trainer->saving.snapshot.m,
                            trainer->saving.snapshot.v};
    ls_stepper_keep(trainer->backend.stepper, kept);
    return true;
}

/* Fills the snapshot by the update of the next step, after which the saver starts. With several
 * hosts the state has been gathered, is copied while ranks wait, and the saver starts at once. */
static ls_status save_in_background(ls_trainer *trainer, bool weights_alone)
{
    const double start_s = ls_clock_monotonic_s();
    LS_TRY(check_saveable(trainer));
    LS_TRY(prepare_snapshot(trainer));
    LS_TRY(make_job(trainer, &trainer->saving.snapshot, &trainer->saving.pending));
    trainer->saving.pending.without_state = weights_alone;
    trainer->saving.is_pending = true;
    if (keep_in_next_update(trainer)) {
        trainer->saving.pending.stall_s = ls_clock_monotonic_s() - start_s;
        return LS_OK;
    }
    const ls_status status = ls_state_copy(&trainer->saving.snapshot, &trainer->backend.state);
    if (status != LS_OK) {
        drop_pending(&trainer->saving);
        return status;
    }
    trainer->saving.pending.stall_s = ls_clock_monotonic_s() - start_s;
    trainer->saving.is_pending = false;
    ls_saver_begin(trainer->saving.saver, &trainer->saving.pending);
    return LS_OK;
}

ls_status ls_trainer_save_in_background(ls_trainer *trainer)
{
    /* A run file that asks for a checkpoint every N steps gets each of them: if the previous one is
     * still being written, steps wait for it, and that counts as a stall. */
    LS_TRY(ls_trainer_poll_saver(trainer, true));
    if (trainer->saving.saved_step == trainer->loop.step) {
        return LS_OK;
    }
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_CHECKPOINT);
    trainer->saving.interval_from = trainer->loop.step;
    const ls_status status = trainer->session.snapshot_bytes > 0 ? save_in_background(trainer, false)
                                                                 : save_now(trainer, false, false);
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_OTHER);
    return status;
}

/* ---- weights alone, and the last save ---- */

ls_status ls_trainer_save_weights(ls_trainer *trainer)
{
    if (!weights_are_due(trainer) || trainer->saving.is_pending) {
        return LS_OK;
    }
    LS_TRY(ls_trainer_poll_saver(trainer, true));
    if (!weights_are_due(trainer)) { /* the checkpoint that was being written included them */
        return LS_OK;
    }
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_CHECKPOINT);
    const bool in_background =
        trainer->session.snapshot_bytes > 0 && trainer->loop.step < trainer->loop.stop_step;
    const ls_status status =
        in_background ? save_in_background(trainer, true) : save_now(trainer, true, false);
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_OTHER);
    return status;
}

ls_status ls_trainer_save(ls_trainer *trainer)
{
    /* A checkpoint being written reports its own outcome first. */
    LS_TRY(ls_trainer_poll_saver(trainer, true));
    /* The step that was to fill the snapshot did not finish; the state itself is saved instead. */
    drop_pending(&trainer->saving);
    if (trainer->saving.saved_step == trainer->loop.step) {
        return LS_OK;
    }
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_CHECKPOINT);
    ls_progress_activity(trainer->books.progress, "saving");
    const ls_status status = save_now(trainer, false, true);
    ls_progress_activity(trainer->books.progress, NULL);
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_OTHER);
    return status;
}
