// SPDX-License-Identifier: Apache-2.0
/* Continues a run from its newest good checkpoint. */
#include "execution/run/trainer_internal.h"

#include "base/log.h"

#include <inttypes.h>
#include <string.h>

/* LS_OK: none of the shards that the checkpoint names has other content now. */
static ls_status explain_shards(const ls_trainer *trainer, const json_t *before)
{
    const char *address = NULL;
    json_t *was = NULL, *now = ls_dataset_shards(trainer->session.dataset);
    ls_status status = LS_OK;
    json_object_foreach((json_t *)(uintptr_t)before, address, was)
    {
        const json_t *is = json_object_get(now, address);
        const char *old = json_string_value(json_object_get(was, "sha256"));
        const char *found = json_string_value(json_object_get(is, "sha256"));
        if (old && found && strcmp(old, found) != 0) {
            const char *etag = json_string_value(json_object_get(was, "etag"));
            status = ls_fail(
                LS_ERR_DATA,
                "%s has changed since the run in %s began: its content had SHA-256 %.16s (etag %s) and has "
                "%.16s now (etag %s). Put the old version there again, use another --run-dir, or start over "
                "with --fresh (the old run is moved aside)",
                address, trainer->dir.path, old, etag ? etag : "not known", found,
                json_string_value(json_object_get(is, "etag")));
            break;
        }
    }
    json_decref(now);
    return status;
}

/* The settings agree (ls_run_dir_check_identity) but the identity of the run differs: says what
 * data the run had and what they are now. */
static ls_status explain_identity(const ls_trainer *trainer, ls_arena *arena)
{
    ls_status status = LS_ERR_INVALID;
    const char *text = ls_arena_strdup(arena, ls_error_text());
    const char *now = ls_dataset_hash(trainer->session.dataset);
    ls_checkpoint_latest latest = {0};
    if (ls_checkpoint_find_latest(arena, trainer->dir.checkpoints, NULL, UINT64_MAX, &latest) != LS_OK ||
        !latest.checkpoint) {
        return ls_fail(status, "%s", text);
    }
    const json_t *extra = latest.checkpoint->meta.extra;
    const char *before = json_string_value(json_object_get(extra, "data_hash"));
    if (before && strcmp(before, now) != 0) {
        ls_fail(status,
                "%s holds a run on other data: data.train or data.validation had hash %.16s in the run and "
                "has %.16s now (other files, or changed ones). Restore the data, use another --run-dir, or "
                "start over with --fresh (the old run is moved aside)",
                trainer->dir.path, before, now);
        const ls_status changed = explain_shards(trainer, json_object_get(extra, "shards"));
        status = changed != LS_OK ? changed : status;
    } else {
        ls_fail(status, "%s", text);
    }
    ls_checkpoint_close(latest.checkpoint);
    return status;
}

/* Keeps what was repaired or skipped: the log is opened only after the run has been restored. */
static void keep_for_log(ls_trainer_saving *saving, const ls_checkpoint_latest *latest)
{
    json_decref(saving->restore_events);
    saving->restore_events = json_array();
    for (size_t i = 0; i < latest->skipped_count; i++) {
        json_array_append_new(saving->restore_events,
                              json_pack("{s:s, s:I, s:s}", "event", "checkpoint_skipped", "step",
                                        (json_int_t)latest->skipped[i].step, "text",
                                        latest->skipped[i].problem));
    }
    for (size_t i = 0; i < latest->mend_count; i++) {
        const ls_checkpoint_mend *mend = &latest->mends[i];
        json_array_append_new(
            saving->restore_events,
            json_pack("{s:s, s:I, s:s, s:o, s:s, s:s}", "event", "checkpoint_repaired", "step",
                      (json_int_t)latest->checkpoint->meta.step, "file", mend->file, "block",
                      mend->block == LS_CHECKPOINT_HEADER ? json_null()
                                                          : json_integer((json_int_t)mend->block),
                      "text", mend->problem, "source", mend->source));
    }
}

void ls_trainer_report_restored(ls_trainer_saving *saving)
{
    for (size_t i = 0; i < json_array_size(saving->restore_events); i++) {
        const json_t *event = json_array_get(saving->restore_events, i);
        json_t *fields = json_copy((json_t *)(uintptr_t)event);
        json_object_del(fields, "event");
        ls_emit_event(json_string_value(json_object_get(event, "event")), fields);
    }
    json_decref(saving->restore_events);
    saving->restore_events = NULL;
}

void ls_trainer_take_base_digest(ls_trainer *trainer, const ls_checkpoint *checkpoint)
{
    const char *digest = ls_checkpoint_base_digest(checkpoint);
    if (digest && strlen(digest) < sizeof trainer->session.base_digest) {
        memcpy(trainer->session.base_digest, digest, strlen(digest) + 1);
    }
}

/* The newest checkpoint into the state; latest_out->checkpoint NULL: there is none. */
static ls_status load_newest(ls_trainer *trainer, ls_arena *arena, ls_checkpoint_latest *latest_out)
{
    size_t count = 0;
    const ls_checkpoint_tensor *tensors =
        ls_state_tensors(arena, ls_state_host(&trainer->backend.state), &count);
    const ls_checkpoint_load_options options = {.threads = ls_queue_threads(trainer->session.queue)};
    LS_TRY(ls_checkpoint_load_latest(arena, trainer->dir.checkpoints, trainer->session.identity, tensors,
                                     count, &options, latest_out));
    keep_for_log(&trainer->saving, latest_out);
    if (!latest_out->checkpoint) {
        return LS_OK;
    }
    ls_state_turn_residuals(&trainer->backend.state, latest_out->checkpoint->meta.step);
    return ls_state_from_host(&trainer->backend.state);
}

/* The state before the first step, from the seed. */
static ls_status begin_anew(ls_trainer *trainer)
{
    const ls_session *session = &trainer->session;
    ls_state *state = ls_state_host(&trainer->backend.state);
    const size_t floats = (size_t)session->layout.float_count;
    if (session->run.model.from[0] || session->layout.adapter) {
        return ls_fail(LS_ERR_RANKS_LOST,
                       "a host was lost that alone had a part of the state, and there is no checkpoint yet "
                       "(checkpoint.every_steps): run the same command again");
    }
    memset(state->m, 0, floats * sizeof *state->m);
    memset(state->v, 0, floats * sizeof *state->v);
    for (uint32_t i = 0; i < 3 * state->worker_count; i++) {
        memset(ls_state_worker(state, i / 3, i % 3), 0, floats * sizeof *state->workers);
    }
    for (uint32_t i = 0; i < 2 * state->residual_count; i++) {
        memset(state->residuals[i % 2][i / 2], 0, floats * sizeof *state->residuals[0][0]);
    }
    return ls_session_begin_weights(&trainer->session, &trainer->backend.state);
}

ls_status ls_trainer_return(void *context, uint64_t *step_out)
{
    ls_trainer *trainer = context;
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    ls_status status = load_newest(trainer, &arena, &latest);
    const uint64_t step = latest.checkpoint ? latest.checkpoint->meta.step : 0;
    if (status == LS_OK && !latest.checkpoint) {
        status = begin_anew(trainer);
    }
    if (status == LS_OK) {
        ls_trainer_report_restored(&trainer->saving);
        ls_emit_event("returned", json_pack("{s:I, s:I}", "step", (json_int_t)trainer->loop.step,
                                            "checkpoint", (json_int_t)step));
        ls_progress_print(trainer->books.progress,
                          "no host that is left has all of the state: all return to step %" PRIu64
                          " (%s) and make the steps after it again",
                          step, step > 0 ? "the newest checkpoint" : "the beginning");
    }
    trainer->backend.redoes = true;
    *step_out = ls_local_turns(&trainer->backend.local, step);
    ls_checkpoint_close(latest.checkpoint);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_trainer_restore(ls_trainer *trainer)
{
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    ls_status status = load_newest(trainer, &arena, &latest);
    if (status == LS_ERR_INVALID) {
        status = explain_identity(trainer, &arena);
    }
    if (status == LS_OK && latest.checkpoint) {
        ls_trainer_take_base_digest(trainer, latest.checkpoint);
        trainer->loop.step = latest.checkpoint->meta.step;
        trainer->saving.saved_step = trainer->loop.step;
        const char *class_now = ls_queue_determinism_class(trainer->session.device);
        if (strcmp(latest.checkpoint->meta.determinism, class_now) != 0) {
            ls_log_warn("the checkpoint was computed in determinism class %s, and this machine has class %s: "
                        "from here on, steps may differ in their last bits from an uninterrupted run",
                        latest.checkpoint->meta.determinism, class_now);
        }
        if (latest.checkpoint->meta.has_val_loss) {
            trainer->loop.val_loss = latest.checkpoint->meta.val_loss;
            trainer->loop.evaluated_step = trainer->loop.step;
        }
        ls_checkpoint_close(latest.checkpoint);
    }
    ls_arena_release(&arena);
    return status;
}
