// SPDX-License-Identifier: Apache-2.0
/* checkpoint.mirror: brings a run back from its mirror, and keeps the mirror up to date. */
#include "execution/run/trainer_internal.h"

#include "base/file.h"
#include "base/log.h"

#include <inttypes.h>

/* ---- bringing a run back ---- */

/* Writes a small file of a checkpoint into the run directory. */
static ls_status restore_file(ls_trainer *trainer, ls_blob_store *store, uint64_t step, const char *name,
                              bool is_needed)
{
    char *data = NULL;
    size_t bytes = 0;
    const ls_status status = ls_mirror_attachment(store, &trainer->arena, step, name, &data, &bytes);
    if (status == LS_ERR_NOT_FOUND && !is_needed) {
        ls_error_clear();
        return LS_OK;
    }
    LS_TRY(status);
    return ls_file_write_atomic(ls_path_join(&trainer->arena, trainer->dir.path, name), data, bytes);
}

/* run.yaml comes first: a run directory that has it and no checkpoint is completed by the next
 * start. */
static ls_status restore_step(ls_trainer *trainer, ls_blob_store *store, uint64_t step)
{
    if (!trainer->dir.had_run) {
        LS_TRY(restore_file(trainer, store, step, "tokenizer.json", false));
        LS_TRY(restore_file(trainer, store, step, "run.yaml", true));
        trainer->dir.had_run = true;
        trainer->dir.is_new = false;
    }
    LS_TRY(ls_dir_create(trainer->dir.checkpoints));
    return ls_mirror_get(store, step, trainer->dir.checkpoints);
}

/* The newest good checkpoint of the mirror; one that is damaged is told and left out. */
static ls_status restore_newest(ls_trainer *trainer, ls_blob_store *store)
{
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_mirror_list(store, &trainer->arena, &entries, NULL, &count));
    ls_status status = LS_OK;
    for (size_t i = count; i-- > 0;) {
        status = entries[i].problem ? ls_fail(LS_ERR_DATA, "%s", entries[i].problem)
                                    : restore_step(trainer, store, entries[i].step);
        if (status == LS_OK && trainer->options->out) {
            fprintf(trainer->options->out, "brought back step %" PRIu64 " from %s (%.1f MB)\n",
                    entries[i].step, ls_blob_address(store), (double)entries[i].bytes / 1e6);
        }
        if (status != LS_ERR_DATA && status != LS_ERR_NOT_FOUND) {
            return status;
        }
        ls_log_warn("the mirror's checkpoint of step %" PRIu64 " cannot be used: %s", entries[i].step,
                    ls_error_text());
    }
    return status == LS_OK ? LS_OK
                           : ls_fail(LS_ERR_DATA,
                                     "no checkpoint of %s can be used; the newest problem is in the "
                                     "log. To begin a new run, give it another checkpoint.mirror",
                                     ls_blob_address(store));
}

ls_status ls_trainer_restore_mirror(ls_trainer *trainer, const ls_run_file *run)
{
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    if (!run->checkpoint.mirror[0] || trainer->options->mode == LS_RUN_FRESH) {
        return LS_OK;
    }
    LS_TRY(ls_checkpoint_list(&trainer->arena, trainer->dir.checkpoints, &entries, &count));
    if (count > 0) {
        return LS_OK;
    }
    ls_blob_store *store = NULL;
    ls_status status = ls_blob_open(run->checkpoint.mirror, NULL, &store);
    if (status == LS_OK) {
        status = restore_newest(trainer, store);
        ls_blob_close(store);
    }
    return status == LS_OK ? LS_OK : ls_fail_within(status, "checkpoint.mirror");
}

/* ---- keeping it up to date ---- */

ls_status ls_trainer_begin_mirror(ls_trainer *trainer)
{
    const ls_run_checkpoint *c = &trainer->session.run.checkpoint;
    if (!c->mirror[0]) {
        return LS_OK;
    }
    const ls_mirroring_options options = {
        .address = c->mirror,
        .root = trainer->dir.checkpoints,
        .rules = {.keep = {.keep_last = c->mirror_keep_last,
                           .keep_best = c->keep_best,
                           .keep_every = c->keep_every,
                           .bytes_max = (uint64_t)(1e9 * c->mirror_budget / c->mirror_price)},
                  .keep_for_s = c->mirror_keep_for_s}};
    const ls_status status = ls_mirroring_start(&options, &trainer->saving.mirroring);
    if (status != LS_OK) {
        return ls_fail_within(status, "checkpoint.mirror");
    }
    if (trainer->saving.saved_step != UINT64_MAX) {
        ls_mirroring_want(trainer->saving.mirroring, trainer->saving.saved_step);
    }
    return LS_OK;
}

static void report(const char *address, const ls_mirrored *done)
{
    if (done->status == LS_OK) {
        ls_emit_event("mirrored",
                      json_pack("{s:I, s:s, s:I, s:f}", "step", (json_int_t)done->step, "address", address,
                                "sent_bytes", (json_int_t)done->sent_bytes, "seconds", done->seconds));
    } else {
        ls_emit_event("mirror_failed", json_pack("{s:I, s:s, s:s}", "step", (json_int_t)done->step, "address",
                                                 address, "text", done->text));
    }
    if (done->text[0]) {
        ls_log_warn("%s: step %" PRIu64 " %s: %s", address, done->step,
                    done->status == LS_OK ? "is mirrored, but older ones could not be removed"
                                          : "could not be mirrored; it is in the run directory alone",
                    done->text);
    }
}

void ls_trainer_poll_mirror(ls_trainer *trainer, bool wait)
{
    ls_mirrored done;
    if (!trainer->saving.mirroring) {
        return;
    }
    if (wait) {
        ls_progress_activity(trainer->books.progress, "mirroring");
    }
    while (ls_mirroring_take(trainer->saving.mirroring, wait, &done)) {
        report(trainer->session.run.checkpoint.mirror, &done);
    }
    if (wait) {
        ls_progress_activity(trainer->books.progress, NULL);
    }
}
