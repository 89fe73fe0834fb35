// SPDX-License-Identifier: Apache-2.0
/* The trainer's beginning: from the newest good checkpoint. */
#include "execution/train/trainer_internal.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

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

static void keep_for_log(ls_trainer *trainer, const ls_checkpoint_latest *latest)
{
    trainer->restore_events = json_array();
    for (size_t i = 0; i < latest->skipped_count; i++) {
        json_array_append_new(trainer->restore_events,
                              json_pack("{s:s, s:I, s:s}", "event", "checkpoint_skipped", "step",
                                        (json_int_t)latest->skipped[i].step, "text",
                                        latest->skipped[i].problem));
    }
    for (size_t i = 0; i < latest->mend_count; i++) {
        const ls_checkpoint_mend *mend = &latest->mends[i];
        json_array_append_new(
            trainer->restore_events,
            json_pack("{s:s, s:I, s:s, s:o, s:s, s:s}", "event", "checkpoint_repaired", "step",
                      (json_int_t)latest->checkpoint->meta.step, "file", mend->file, "block",
                      mend->block == LS_CHECKPOINT_HEADER ? json_null()
                                                          : json_integer((json_int_t)mend->block),
                      "text", mend->problem, "source", mend->source));
    }
}

void ls_trainer_tell_restored(ls_trainer *trainer)
{
    for (size_t i = 0; i < json_array_size(trainer->restore_events); i++) {
        json_t *fields = json_copy(json_array_get(trainer->restore_events, i));
        json_object_del(fields, "event");
        ls_emit_event(json_string_value(json_object_get(json_array_get(trainer->restore_events, i), "event")),
                      fields);
    }
    json_decref(trainer->restore_events);
    trainer->restore_events = NULL;
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
    if (status == LS_OK) {
        keep_for_log(trainer, &latest);
    }
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
