// SPDX-License-Identifier: Apache-2.0
/* The end of a run: the last entry of its books, the summary and the report. */
#include "execution/run/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "execution/train/preflight.h"
#include "telemetry/report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Fewer steps than this say nothing about how good the prediction was. */
enum { KEPT_STEPS_MIN = 5 };

const char *ls_trainer_ended_as(const ls_trainer *trainer)
{
    return trainer->loop.step >= trainer->session.run.train.steps ? "finished"
           : ls_patience_is_over(&trainer->loop.patience)         ? "stopped_early"
                                                                  : "stopped";
}

static const char *status_word(const ls_trainer *trainer, ls_status status)
{
    switch (status) {
    case LS_OK:
        return ls_trainer_ended_as(trainer);
    case LS_STOPPED:
        return "stopped";
    case LS_INTERRUPTED:
        return "interrupted";
    default:
        return "failed";
    }
}

/* The share of the measured peak that the steps of this process reached; NaN without a step. */
static double utilisation(const ls_trainer_loop *loop, double flops)
{
    const uint64_t steps = loop->step - loop->begun_at;
    return steps > 0 && loop->step_s > 0.0 && loop->peak_flops > 0.0
               ? flops * (double)steps / loop->step_s / loop->peak_flops
               : NAN;
}

/* What the steps of this process measured, to be compared with the prediction. */
static ls_own_run_side measured_side(ls_trainer *trainer)
{
    const uint64_t steps = trainer->loop.step - trainer->loop.begun_at;
    return (ls_own_run_side){
        .step_s = steps > 0 ? trainer->loop.step_s / (double)steps : 0.0,
        .tokens_ps =
            trainer->loop.step_s > 0.0 ? (double)trainer->loop.process_tokens / trainer->loop.step_s : NAN,
        .memory_bytes = (double)ls_trainer_memory(trainer),
        .checkpoint_stall_s =
            trainer->saving.stall_count > 0 ? trainer->saving.stall_s / trainer->saving.stall_count : 0.0};
}

/* Ends the time log of this start and adds up those of all starts. */
static void end_time_log(ls_trainer *trainer, ls_status status, ls_time_history *history_out)
{
    const bool away = status != LS_OK && status != LS_INTERRUPTED;
    ls_meter *meter = &trainer->control.meter;
    trainer->books.goodput.cost_usd = ls_meter_note(meter, meter->devices, ls_clock_monotonic_s());
    ls_trainer_note_energy(trainer);
    ls_time_log_end(trainer->books.time_log, status_word(trainer, status), away);
    if (ls_time_history_load(trainer->dir.path, history_out) != LS_OK || history_out->start_count == 0) {
        ls_error_clear();
        ls_goodput_update(&trainer->books.goodput);
        history_out->total = trainer->books.goodput; /* at least the time of this start */
    }
}

/* "0.1.0 1a2b3c4d": builds of one version differ in the second word. */
static void name_code(char text[32])
{
    unsigned char hash[LS_PREFLIGHT_HASH_BYTES] = {0};
    if (ls_preflight_hash_binary(hash) != LS_OK) {
        ls_error_clear();
    }
    snprintf(text, 32, "%.16s %02x%02x%02x%02x", LS_VERSION, hash[0], hash[1], hash[2], hash[3]);
}

ls_status ls_trainer_finish(ls_trainer *trainer, ls_status status, json_t **result_out)
{
    const ls_session *session = &trainer->session;
    const double bytes_per_token = ls_dataset_bytes_per_token(session->dataset, LS_SPLIT_VALIDATION);
    const ls_prediction *prediction = &trainer->prediction;
    const ls_own_run_side measured = measured_side(trainer);
    ls_time_history history;
    if (status == LS_OK && trainer->backend.workers) {
        ls_workers_settle(trainer->backend.workers);
    }
    end_time_log(trainer, status, &history);
    json_t *time = ls_goodput_to_json(&history.total), *starts = ls_time_history_to_json(&history);
    json_t *sources = ls_session_sources_to_json(session, trainer->loop.step, trainer->loop.val_parts);
    json_t *mesh = ls_trainer_measured_mesh(trainer), *predicted_mesh = ls_trainer_predicted_mesh(trainer);
    json_t *recoveries = ls_run_log_events(trainer->dir.path, "recovered");
    ls_checkpoint_entry best = {0};
    if (ls_checkpoint_find_best(&trainer->arena, trainer->dir.checkpoints, &best) != LS_OK) {
        ls_error_clear(); /* the run has not evaluated, or has not saved */
    }
    char code[32];
    name_code(code);
    ls_summary summary = {
        .run = session->run.name,
        .code = code,
        .run_dir = trainer->dir.path,
        .status = status_word(trainer, status),
        .step = trainer->loop.step,
        .steps = session->run.train.steps,
        .loss = (double)trainer->loop.loss,
        .val_loss = trainer->loop.val_loss,
        .val_loss_per_byte = bytes_per_token > 0.0 ? trainer->loop.val_loss / bytes_per_token : NAN,
        .tokens = trainer->loop.tokens,
        .tokens_per_s = measured.tokens_ps,
        .mfu = utilisation(&trainer->loop, ls_session_step_flops(session, false)),
        .hfu = utilisation(&trainer->loop, ls_session_step_flops(session, true)),
        .peak_rss_bytes = (uint64_t)measured.memory_bytes,
        .wall_s = ls_goodput_wall_s(&history.total),
        .first_step_s = trainer->loop.first_step_s > 0.0 ? trainer->loop.first_step_s : NAN,
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
        .link_bytes = trainer->loop.link_bytes,
        .dense_bytes = trainer->loop.dense_bytes,
        .saved_s = trainer->loop.saved_s,
        .residual_norm = trainer->books.row.residual_norm,
        .flops_per_step = ls_session_step_flops(session, true),
        .recoveries = recoveries,
        .cost_usd = history.total.cost_usd,
        .energy_j = history.total.energy_j,
        .time = time,
        .starts = starts,
        .sources = sources,
        .mesh = mesh,
        .predicted_mesh = predicted_mesh,
        .best_checkpoint = best.path,
        .best_step = best.step,
        .best_val_loss = best.val_loss,
    };
    ls_status result = LS_OK;
    ls_trainer_gather(trainer);
    if (ls_trainer_is_whole(trainer)) { /* otherwise it is not the state of any step */
        result = ls_state_hash_now(&trainer->backend.state, trainer->loop.step,
                                   ls_session_base_digest(session), summary.state_hash);
    }
    ls_run_log_curve_hash(trainer->books.log, summary.curve_hash);
    ls_emit_event("ended",
                  json_pack("{s:I, s:s}", "step", (json_int_t)trainer->loop.step, "status", summary.status));
    if (result == LS_OK) {
        result = ls_summary_save(&summary, trainer->dir.path);
    }
    *result_out = ls_summary_to_json(&summary);
    json_decref(time);
    json_decref(starts);
    json_decref(sources);
    json_decref(recoveries);
    json_decref(mesh);
    json_decref(predicted_mesh);
    ls_time_history_release(&history);
    LS_TRY(result);
    if (status == LS_OK && strcmp(summary.status, "stopped") != 0) {
        ls_trainer_register(trainer);
    }
    if (status == LS_OK && !ls_session_is_on_gpu(session) &&
        trainer->loop.step - trainer->loop.begun_at >= KEPT_STEPS_MIN) {
        ls_prediction_keep(prediction, session, &measured, trainer->loop.step - trainer->loop.begun_at);
    }
    return ls_report_write(trainer->dir.path,
                           ls_path_join(&trainer->arena, trainer->dir.path, "report.html"));
}
