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

static ls_status prune(ls_trainer *trainer, ls_arena *arena)
{
    const ls_checkpoint_prune_options options = {.keep_last = trainer->session.run.checkpoint.keep_last,
                                                 .keep_best = trainer->session.run.checkpoint.keep_best};
    uint64_t *removed = NULL;
    size_t count = 0;
    return ls_checkpoint_prune(arena, trainer->dir.checkpoints, &options, &removed, &count);
}

static ls_status save_now(ls_trainer *trainer, ls_arena *arena, ls_checkpoint_saved *saved_out)
{
    const ls_session *session = &trainer->session;
    ls_checkpoint_attachment *attachments = NULL;
    size_t attachment_count = 0;
    LS_TRY(attach(trainer, arena, &attachments, &attachment_count));
    json_t *extra = json_pack("{s:s, s:s, s:I, s:f, s:s}", "run", session->run.name, "tokenizer",
                              !session->tokenizer                                 ? "none"
                              : session->run.tokenizer.kind == LS_TOKENIZER_BYTES ? "bytes"
                                                                                  : "attached",
                              "tokens", (json_int_t)trainer->tokens, "loss", (double)trainer->loss,
                              "data_hash", ls_dataset_hash(session->dataset));
    const bool evaluated = trainer->evaluated_step == trainer->step && isfinite(trainer->val_loss);
    const ls_checkpoint_meta meta = {
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
        .extra = extra,
    };
    const ls_checkpoint_save_options options = {
        .root = trainer->dir.checkpoints,
        .meta = &meta,
        .tensors = ls_state_tensors(arena, &trainer->state),
        .tensor_count = session->layout.parameter_count,
        .attachments = attachments,
        .attachment_count = attachment_count,
        .threads = ls_queue_threads(session->queue),
    };
    const ls_status status = ls_checkpoint_save(&options, saved_out);
    json_decref(extra);
    return status;
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

ls_status ls_trainer_save(ls_trainer *trainer)
{
    if (trainer->saved_step == trainer->step) {
        return LS_OK;
    }
    ls_trainer_gather(trainer);
    if (!ls_trainer_is_whole(trainer)) {
        return fail_not_whole(trainer);
    }
    LS_TRY(check_state(trainer));
    ls_goodput_enter(&trainer->goodput, LS_TIME_CHECKPOINT);
    ls_progress_activity(trainer->progress, "saving");
    ls_arena arena = {0};
    ls_checkpoint_saved saved = {0};
    const double start_s = ls_clock_monotonic_s();
    /* The metrics of a checkpoint's steps are on disk before the checkpoint is. */
    ls_status status = ls_run_log_sync(trainer->log);
    if (status == LS_OK) {
        status = save_now(trainer, &arena, &saved);
    }
    if (status == LS_OK) {
        trainer->saved_step = trainer->step;
        const char *path = ls_arena_printf(&arena, "%s/%" PRIu64, trainer->dir.checkpoints, trainer->step);
        ls_emit_event("checkpoint", json_pack("{s:I, s:s, s:f, s:I}", "step", (json_int_t)trainer->step,
                                              "path", path, "stall_s", ls_clock_monotonic_s() - start_s,
                                              "bytes", (json_int_t)saved.bytes));
        ls_trainer_note_save(trainer, ls_clock_monotonic_s() - start_s);
        status = prune(trainer, &arena);
    } else {
        ls_fail_within(status, "step %" PRIu64 " could not be saved; older checkpoints are as they were",
                       trainer->step);
    }
    ls_arena_release(&arena);
    ls_progress_activity(trainer->progress, NULL);
    ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
    return status;
}

/* The settings agree (ls_run_dir_check_identity), the identities do not: says what the data were and are. */
static ls_status explain_identity(const ls_trainer *trainer, ls_arena *arena)
{
    const ls_status status = LS_ERR_INVALID;
    const char *text = ls_arena_strdup(arena, ls_error_text());
    const char *now = ls_dataset_hash(trainer->session.dataset);
    ls_checkpoint_latest latest = {0};
    if (ls_checkpoint_find_latest(arena, trainer->dir.checkpoints, NULL, UINT64_MAX, &latest) != LS_OK ||
        !latest.checkpoint) {
        return ls_fail(status, "%s", text);
    }
    const char *before = json_string_value(json_object_get(latest.checkpoint->meta.extra, "data_hash"));
    if (before && strcmp(before, now) != 0) {
        ls_fail(status,
                "%s holds a run on other data: data.train or data.validation has hash %.16s in the run, "
                "%.16s now (other files, or changed ones). Use the data as they were, another --run-dir, or "
                "--fresh to start over (the old run is moved aside)",
                trainer->dir.path, before, now);
    } else {
        ls_fail(status, "%s", text);
    }
    ls_checkpoint_close(latest.checkpoint);
    return status;
}

ls_status ls_trainer_restore(ls_trainer *trainer)
{
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    const ls_checkpoint_tensor *tensors = ls_state_tensors(&arena, &trainer->state);
    const ls_checkpoint_load_options options = {.threads = ls_queue_threads(trainer->session.queue)};
    ls_status status =
        ls_checkpoint_load_latest(&arena, trainer->dir.checkpoints, trainer->session.identity, tensors,
                                  trainer->session.layout.parameter_count, &options, &latest);
    if (status == LS_ERR_INVALID) {
        status = explain_identity(trainer, &arena);
    }
    if (status == LS_OK && latest.checkpoint) {
        trainer->step = latest.checkpoint->meta.step;
        trainer->saved_step = trainer->step;
        const char *class_now = ls_queue_determinism_class(trainer->session.queue);
        if (strcmp(latest.checkpoint->meta.determinism, class_now) != 0) {
            ls_log_warn("the checkpoint was computed in determinism class %s, this machine is %s: the steps "
                        "from here on may "
                        "differ in their last bits from an uninterrupted run",
                        latest.checkpoint->meta.determinism, class_now);
        }
        if (latest.checkpoint->meta.has_val_loss) {
            trainer->val_loss = latest.checkpoint->meta.val_loss;
            trainer->evaluated_step = trainer->step;
        }
        ls_checkpoint_close(latest.checkpoint);
    }
    ls_arena_release(&arena);
    return status;
}
