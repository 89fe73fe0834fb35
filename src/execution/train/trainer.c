// SPDX-License-Identifier: Apache-2.0
#include "execution/train/trainer.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "execution/diagnose/flat_hash.h"
#include "execution/diagnose/replay.h"
#include "execution/train/memory.h"
#include "execution/train/signals.h"
#include "execution/train/trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- evaluation and samples ---- */

/* What a process that was lost had done before is lost work when it is done again. */
static ls_time_class unless_redone(const ls_trainer *trainer, ls_time_class time_class)
{
    return trainer->step < trainer->redone_until ? LS_TIME_LOST_WORK : time_class;
}

/* Between windows is a good moment to notice that the run should stop. */
static ls_status read_validation(void *context, uint64_t first, uint64_t count, int32_t *tokens_out)
{
    ls_trainer *trainer = context;
    (void)ls_trainer_should_stop(trainer);
    LS_TRY(ls_trainer_stop_status(trainer));
    return ls_dataset_tokens(trainer->session.dataset, LS_SPLIT_VALIDATION, 0, first, count, tokens_out);
}

/* With ZeRO stage 3 on several hosts each keeps only its share of the weights between steps. */
static ls_status bring_weights(ls_trainer *trainer)
{
    return trainer->gang && trainer->session.run.parallel.zero >= 3
               ? ls_gang_gather(trainer->gang, trainer->step)
               : LS_OK;
}

ls_status ls_trainer_evaluate(ls_trainer *trainer)
{
    if (!trainer->evaluator || trainer->evaluated_step == trainer->step) {
        return LS_OK;
    }
    LS_TRY(bring_weights(trainer));
    ls_goodput_enter(&trainer->goodput, unless_redone(trainer, LS_TIME_EVALUATION));
    ls_progress_activity(trainer->progress, "evaluating");
    const ls_session *session = &trainer->session;
    const double start_s = ls_clock_monotonic_s();
    ls_evaluation evaluation = {0};
    LS_TRY(ls_evaluator_run(trainer->evaluator, trainer->state.parameters, read_validation, trainer,
                            ls_dataset_stream_tokens(session->dataset, LS_SPLIT_VALIDATION, 0),
                            session->run.eval.batches * session->run.train.global_batch, &evaluation));
    trainer->peak_flops = ls_queue_gemm_peak_flops(session->queue);
    trainer->val_loss = evaluation.loss;
    trainer->evaluated_step = trainer->step;
    json_t *fields =
        json_pack("{s:I, s:f, s:I, s:f}", "step", (json_int_t)trainer->step, "val_loss", evaluation.loss,
                  "tokens", (json_int_t)evaluation.tokens, "seconds", ls_clock_monotonic_s() - start_s);
    const double bytes_per_token = ls_dataset_bytes_per_token(session->dataset, LS_SPLIT_VALIDATION);
    if (bytes_per_token > 0.0) {
        json_object_set_new(fields, "val_loss_per_byte", json_real(evaluation.loss / bytes_per_token));
    }
    ls_emit_event("evaluation", fields);
    ls_progress_validation(trainer->progress, evaluation.loss);
    ls_progress_activity(trainer->progress, NULL);
    ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
    return LS_OK;
}

typedef struct sample_text {
    const ls_tokenizer *tokenizer;
    ls_tokenizer_stream stream;
    ls_text_buffer text;
    ls_status status;
} sample_text;

static bool collect_token(void *context, int32_t token)
{
    sample_text *sample = context;
    /* A model may have more ids than its tokenizer has names for. */
    if ((uint32_t)token >= ls_tokenizer_vocab_size(sample->tokenizer)) {
        return true;
    }
    sample->status = ls_tokenizer_stream_next(sample->tokenizer, &sample->stream, token, true, &sample->text);
    return sample->status == LS_OK && ls_signals_status() == LS_OK;
}

static ls_status sample_text_run(ls_trainer *trainer, const ls_token_buffer *prompt, sample_text *sample)
{
    const ls_run_sample *settings = &trainer->session.run.sample;
    const ls_sampling sampling = {.temperature = settings->temperature,
                                  .top_k = (uint32_t)settings->top_k,
                                  .top_p = settings->top_p,
                                  .seed = trainer->session.run.train.seed};
    for (size_t i = 0; i < prompt->count; i++) {
        LS_TRY(ls_tokenizer_stream_next(sample->tokenizer, &sample->stream, prompt->ids[i], true,
                                        &sample->text));
    }
    LS_TRY(ls_generator_run(trainer->generator, prompt->ids, prompt->count, settings->max_tokens, &sampling,
                            ls_tokenizer_eos(sample->tokenizer), collect_token, sample));
    LS_TRY(sample->status);
    return ls_tokenizer_stream_end(&sample->stream, &sample->text);
}

ls_status ls_trainer_sample(ls_trainer *trainer)
{
    if (!trainer->generator) {
        return LS_OK;
    }
    LS_TRY(bring_weights(trainer));
    ls_goodput_enter(&trainer->goodput, unless_redone(trainer, LS_TIME_SAMPLING));
    ls_progress_activity(trainer->progress, "sampling");
    const char *text = trainer->session.run.sample.prompt;
    sample_text sample = {.tokenizer = trainer->session.tokenizer};
    ls_token_buffer prompt = {0};
    /* An empty prompt begins with a new line. */
    ls_status status = ls_tokenizer_encode(sample.tokenizer, NULL, text[0] ? text : "\n",
                                           text[0] ? strlen(text) : 1, false, &prompt);
    if (status == LS_OK) {
        status = sample_text_run(trainer, &prompt, &sample);
    }
    if (status == LS_OK) {
        ls_progress_activity(trainer->progress, NULL);
        ls_progress_print(trainer->progress, "sample at step %" PRIu64 ": %s", trainer->step,
                          sample.text.data ? sample.text.data : "");
        /* Bytes tokenizers can produce anything; JSON takes UTF-8 alone, which the stream decoder guarantees. */
        ls_emit_event("sample", json_pack("{s:I, s:s%}", "step", (json_int_t)trainer->step, "text",
                                          sample.text.data ? sample.text.data : "", sample.text.bytes));
    }
    ls_token_buffer_release(&prompt);
    ls_text_buffer_release(&sample.text);
    ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
    return status;
}

/* ---- the loop ---- */

static bool is_due(uint64_t step, uint64_t every_steps)
{
    return every_steps > 0 && step % every_steps == 0;
}

static void record_step(ls_trainer *trainer, const ls_step_result *result, double lr, double step_s)
{
    const ls_session *session = &trainer->session;
    const double usual_s = ls_trainer_usual_step_s(trainer);
    if (trainer->is_pending && usual_s > 0.0) { /* its update kept the state for a checkpoint */
        trainer->stall_s += fmax(0.0, step_s - usual_s);
    }
    trainer->step++;
    atomic_store(&trainer->shared.step, trainer->step);
    trainer->loss = result->loss;
    trainer->tokens += result->tokens;
    trainer->process_tokens += result->tokens;
    trainer->step_s += step_s;
    if (trainer->first_step_s == 0.0) {
        trainer->first_step_s = ls_clock_monotonic_s() - trainer->options->start_s;
        /* Measured now, so that nobody waits for it before the first step. */
        trainer->peak_flops = ls_queue_gemm_peak_flops(session->queue);
        ls_progress_print(trainer->progress,
                          "MFU is measured against this machine's own matrix products: %.0f GFLOP/s",
                          trainer->peak_flops * 1e-9);
    }
    const double peak = trainer->peak_flops;
    const ls_step_metrics metrics = {
        .step = trainer->step,
        .loss = result->loss,
        .lr = lr,
        .grad_norm = result->grad_norm,
        .tokens = result->tokens,
        .step_s = step_s,
        .tokens_per_s = (double)result->tokens / step_s,
        .data_s = result->data_s,
        .forward_s = result->forward_s,
        .backward_s = result->backward_s,
        .reduce_s = result->reduce_s,
        .optimizer_s = result->optimizer_s,
        .mfu = peak > 0.0 ? ls_session_step_flops(session, false) / step_s / peak : 0.0,
        .hfu = peak > 0.0 ? ls_session_step_flops(session, true) / step_s / peak : 0.0,
        .rss_bytes = ls_trainer_memory(trainer),
    };
    ls_emit_step(&metrics);
    if (result->audited != LS_NO_LEAF) {
        ls_emit_event("audit", json_pack("{s:I, s:I}", "step", (json_int_t)trainer->step, "leaf",
                                         (json_int_t)result->audited));
    }
    ls_progress_step(trainer->progress, &metrics);
}

/* The first sample is drawn before the first step, so that a reader sees what training changes. */
static ls_status side_work(ls_trainer *trainer)
{
    const ls_run_file *run = &trainer->session.run;
    const bool last = trainer->step == trainer->stop_step, first = trainer->step == 0;
    const bool is_asked = !first && ls_trainer_wants_save(trainer);
    const bool save = !first && (last || is_asked || ls_trainer_save_is_due(trainer));
    /* The best checkpoints are kept by their validation loss: each that is saved needs one. */
    const bool compared = run->checkpoint.keep_best > 0 && run->checkpoint.every_steps != LS_AUTO_U64;
    if (!first && (last || is_due(trainer->step, run->eval.every_steps) || (save && compared))) {
        LS_TRY(ls_trainer_evaluate(trainer));
    }
    if (trainer->generator && (first || last || is_due(trainer->step, run->sample.every_steps))) {
        LS_TRY(ls_trainer_sample(trainer));
    }
    if (save) {
        LS_TRY(last ? ls_trainer_save(trainer) : ls_trainer_save_behind(trainer));
    }
    LS_TRY(first ? LS_OK : ls_trainer_save_weights(trainer));
    LS_TRY(ls_trainer_poll_saver(trainer, false));
    char advice[256];
    ls_goodput_update(&trainer->goodput);
    ls_progress_advice(trainer->progress,
                       ls_goodput_advice(&trainer->goodput, advice, sizeof advice) ? advice : NULL);
    return ls_run_log_status(trainer->log);
}

double ls_trainer_usual_step_s(const ls_trainer *trainer)
{
    const uint64_t steps = trainer->step - trainer->begun_at;
    return steps > 0 ? trainer->step_s / (double)steps : 0.0;
}

/* A step of ranks that is given up: what it took beyond the usual, one rank kept the others waiting; the rest has to be done again. */
static void book_lost_step(ls_trainer *trainer, double passed_s)
{
    const double usual_s = ls_trainer_usual_step_s(trainer);
    const double lost_s = trainer->gang && passed_s > usual_s ? usual_s : passed_s;
    ls_goodput_move(&trainer->goodput, LS_TIME_COMPUTE, LS_TIME_LOST_WORK, lost_s);
    ls_goodput_move(&trainer->goodput, LS_TIME_COMPUTE, LS_TIME_WAITING, passed_s - lost_s);
}

/* Books `seconds` of the `*left_s` that are left of a step as something else than work. */
static void book(ls_trainer *trainer, ls_time_class time_class, double seconds, double *left_s)
{
    const double booked_s = fmin(fmax(seconds, 0.0), *left_s);
    ls_goodput_move(&trainer->goodput, LS_TIME_COMPUTE, time_class, booked_s);
    *left_s -= booked_s;
}

/* Where the time of a finished step went. Who waits for a recovery does so in a collective: that is not communication. Leaves of a rank that
 * was lost are computed again: what the step then took beyond the usual. */
static void book_step(ls_trainer *trainer, const ls_step_result *result, double passed_s)
{
    double left_s = passed_s;
    const double recovery_s = trainer->recovery_s, usual_s = ls_trainer_usual_step_s(trainer);
    const bool again = trainer->step < trainer->redone_until;
    book(trainer, LS_TIME_WAITING, trainer->hung_s, &left_s);
    book(trainer, LS_TIME_RECOVERY, recovery_s, &left_s);
    book(trainer, LS_TIME_DATA, result->data_s, &left_s);
    const double before_s = left_s;
    book(trainer, LS_TIME_COMMUNICATION, result->wait_s - recovery_s - trainer->hung_s, &left_s);
    trainer->booked_wait_s = before_s - left_s;
    trainer->booked_work_s = again ? 0.0 : left_s;
    if (again) {
        book(trainer, LS_TIME_LOST_WORK, left_s, &left_s);
    } else if (recovery_s > 0.0 && usual_s > 0.0) {
        book(trainer, LS_TIME_LOST_WORK, left_s - usual_s, &left_s);
    }
    trainer->recovery_s = trainer->hung_s = 0.0;
}

static double take(double *from_s, double wanted_s)
{
    const double taken_s = fmin(*from_s, wanted_s);
    *from_s -= taken_s;
    return taken_s;
}

/* Ranks are faster than those who tell of it: the step may be booked already. Then what was said to be waiting, or work, was neither. */
void ls_trainer_book_recovery(ls_trainer *trainer, uint64_t step, double seconds)
{
    if (step >= trainer->step) {
        trainer->recovery_s += seconds;
        return;
    }
    const double waited_s = take(&trainer->booked_wait_s, seconds);
    const double worked_s = take(&trainer->booked_work_s, seconds - waited_s);
    ls_goodput_move(&trainer->goodput, LS_TIME_COMMUNICATION, LS_TIME_RECOVERY, waited_s);
    ls_goodput_move(&trainer->goodput, LS_TIME_COMPUTE, LS_TIME_RECOVERY, worked_s);
}

static ls_status run_step(ls_trainer *trainer)
{
    atomic_store(&trainer->shared.is_training, true);
    ls_goodput_enter(&trainer->goodput, LS_TIME_COMPUTE);
    ls_time_log_step_begins(trainer->time_log);
    const double start_s = ls_clock_monotonic_s();
    const double lr = ls_schedule_lr(&trainer->schedule, trainer->step);
    ls_step_result result = {.fault = {.leaf = LS_NO_LEAF, .rank = LS_NO_RANK}};
    double step_s = 0.0;
    const ls_status status = ls_trainer_compute(trainer, lr, &result, &step_s);
    const double passed_s = ls_clock_monotonic_s() - start_s;
    ls_goodput_enter(&trainer->goodput, LS_TIME_OTHER);
    if (status != LS_OK) {
        trainer->fault = result.fault;
        book_lost_step(trainer, passed_s);
        ls_time_log_step_ends(trainer->time_log, trainer->step);
        return status;
    }
    book_step(trainer, &result, passed_s);
    record_step(trainer, &result, lr, step_s);
    ls_time_log_step_ends(trainer->time_log, trainer->step);
    return LS_OK;
}

/* Before the first step of this process: the first sample, or what a signal gave up behind the step it resumes from. */
static ls_status catch_up(ls_trainer *trainer)
{
    if (trainer->step == 0 || trainer->step == trainer->stop_step) {
        return side_work(trainer);
    }
    return is_due(trainer->step, trainer->session.run.eval.every_steps) ? ls_trainer_evaluate(trainer)
                                                                        : LS_OK;
}

static ls_status loop(ls_trainer *trainer)
{
    LS_TRY(catch_up(trainer));
    while (trainer->step < trainer->stop_step) {
        LS_TRY(run_step(trainer));
        LS_TRY(side_work(trainer));
        /* Behind the last step nothing is left to give up; what a gang was granted it gives up itself. */
        if (trainer->step < trainer->stop_step && trainer->step >= trainer->granted) {
            (void)ls_trainer_should_stop(trainer);
            LS_TRY(ls_trainer_stop_status(trainer));
        }
    }
    return LS_OK;
}

/* ---- a run, from begin to end ---- */

/* Keeps the state that a loss which is not finite came from, under its step, beside what the text says and how to look at it again. */
static void keep_failed_state(ls_trainer *trainer, const char *text)
{
    ls_arena *arena = &trainer->arena;
    char *copy = ls_arena_strdup(arena, text);
    const char *command = ls_replay_command(arena, trainer->dir.path, trainer->step + 1, trainer->fault.leaf);
    ls_emit_event(
        "not_finite",
        json_pack("{s:I, s:o, s:s, s:s}", "step", (json_int_t)trainer->step, "leaf",
                  trainer->fault.leaf == LS_NO_LEAF ? json_null() : json_integer(trainer->fault.leaf), "text",
                  copy, "replay", command));
    if (trainer->step == 0) {
        ls_fail(LS_ERR_FAILED,
                "%s. It was the first step: it began from the weights of the run file. To see it again, op "
                "by op: %s",
                copy, command);
    } else if (ls_trainer_save(trainer) == LS_OK) {
        ls_fail(LS_ERR_FAILED,
                "%s. The state before that step is in %s/%" PRIu64 ". To see it again, op by op: %s", copy,
                trainer->dir.checkpoints, trainer->step, command);
    } else {
        const char *problem = ls_arena_strdup(arena, ls_error_text());
        ls_fail(LS_ERR_FAILED,
                "%s. The state before that step could not be saved: %s. To see it again from an older one, "
                "op by op: %s",
                copy, problem, command);
    }
}

static void emit_corruption(const ls_trainer *trainer, const char *text)
{
    const ls_step_fault *f = &trainer->fault;
    const bool leaf = f->kind == LS_STEP_FAULT_LEAF;
    char name[32];
    const bool is_known = f->bucket != LS_NO_BUCKET;
    json_t *fields = json_pack(
        "{s:I, s:s, s:s, s:o, s:o, s:o}", "step", (json_int_t)trainer->step, "found_by",
        leaf ? "audit" : "hash", "text", text, "bucket", is_known ? json_integer(f->bucket) : json_null(),
        "bucket_name",
        is_known ? json_string(ls_bucket_name(&trainer->session.layout, f->bucket, name)) : json_null(),
        "rank", f->rank == LS_NO_RANK ? json_null() : json_integer(f->rank));
    if (leaf) {
        json_object_set_new(fields, "leaf", json_integer(f->leaf));
        json_object_set_new(fields, "computed_by",
                            json_pack("[i, i, i]", (int)f->owner, (int)f->checker, (int)f->judge));
    }
    ls_emit_event("corruption", fields);
}

/* The state changed by itself. One process looks before it saves; of ranks, a checkpoint of this very step may hold what changed. */
static void end_corrupt_state(ls_trainer *trainer, const char *text)
{
    if (trainer->saved_step == trainer->step) {
        ls_fail(LS_ERR_MISMATCH,
                "%s. Checkpoint %s/%" PRIu64
                " was saved since that update and may hold the change: remove it. Look at "
                "the machine; the same command then goes on from the checkpoint before it",
                text, trainer->dir.checkpoints, trainer->step);
    } else {
        ls_fail(
            LS_ERR_MISMATCH,
            "%s and was not saved. Look at the machine; the same command goes on from the newest checkpoint "
            "in %s",
            text, trainer->dir.checkpoints);
    }
}

/* Bits that should be the same are not. A leaf that was computed wrongly has not touched the state, which is saved; a state that changed by
 * itself is not: the run goes on from the newest checkpoint. */
static void end_corrupt(ls_trainer *trainer, const char *text)
{
    ls_arena *arena = &trainer->arena;
    char *copy = ls_arena_strdup(arena, text);
    const ls_step_fault fault = trainer->fault;
    emit_corruption(trainer, copy);
    if (fault.kind == LS_STEP_FAULT_STATE) {
        end_corrupt_state(trainer, copy);
        return;
    }
    const char *saved = trainer->step == 0 ? "; it was the first step"
                        : ls_trainer_save(trainer) == LS_OK
                            ? ls_arena_printf(arena, "; the state before that step is in %s/%" PRIu64,
                                              trainer->dir.checkpoints, trainer->step)
                            : "; the state before that step could not be saved";
    ls_fail(
        LS_ERR_MISMATCH,
        "%s%s. Look at the machine, then run the same command again: it goes on from there. To compute the "
        "leaf once more, here or elsewhere: lockstep replay %s --step %" PRIu64 " --leaf %u",
        copy, saved, ls_shell_quote(arena, trainer->dir.path), trainer->step + 1, fault.leaf);
}

static bool is_corrupt(const ls_trainer *trainer)
{
    return trainer->fault.kind == LS_STEP_FAULT_LEAF || trainer->fault.kind == LS_STEP_FAULT_STATE;
}

/* Ranks that run ahead finish, or give up, what they are in: then the state is that of a step that is known here. */
static void catch_up_with_gang(ls_trainer *trainer)
{
    const char *text = ls_arena_strdup(&trainer->arena, ls_error_text());
    if (trainer->gang && trainer->step < trainer->granted) {
        ls_gang_stop(trainer->gang);
        while (trainer->step < trainer->granted && run_step(trainer) == LS_OK) {
        }
    }
    text[0] ? (void)ls_fail(LS_ERR_FAILED, "%s", text) : ls_error_clear();
}

/* What became of the steps so far, behind the first line of an error; a stack may follow that. */
static void tell_what_is_saved(ls_trainer *trainer, ls_status status, const char *reason, ls_status saved)
{
    const int line = (int)strcspn(reason, "\n");
    const char *rest = reason + line;
    if (saved == LS_OK && trainer->saved_step != UINT64_MAX) {
        ls_fail(status, "%.*s. Step %" PRIu64 " is saved: run the same command again to go on from there%s",
                line, reason, trainer->saved_step, rest);
    } else if (trainer->saved_step != UINT64_MAX) {
        ls_fail(status,
                "%.*s. What came behind step %" PRIu64
                " is lost, run the same command again to go on from there%s",
                line, reason, trainer->saved_step, rest);
    } else {
        ls_fail(status, "%.*s. Nothing was saved yet: run the same command again%s", line, reason, rest);
    }
}

/* Saves what was finished, whatever ended the run; the reason stays the result unless saving itself fails. */
static ls_status end_early(ls_trainer *trainer, ls_status status)
{
    catch_up_with_gang(trainer);
    if (status == LS_ERR_FAILED) {
        keep_failed_state(trainer, ls_error_text());
        return status;
    }
    if (is_corrupt(trainer)) {
        end_corrupt(trainer, ls_error_text());
        return status;
    }
    const bool asked = status == LS_STOPPED || status == LS_INTERRUPTED;
    const char *reason = ls_arena_strdup(&trainer->arena, asked ? "" : ls_error_text());
    ls_status saved = LS_OK;
    if (!asked) {
        ls_trainer_explain_gang(trainer, status);
    }
    if (asked) {
        status = ls_trainer_stop_status(trainer);
        ls_progress_print(trainer->progress, "stopping: saving step %" PRIu64, trainer->step);
    }
    /* A full disk has no room for a checkpoint either. */
    if (trainer->step > 0 && status != LS_ERR_DISK) {
        saved = ls_trainer_save(trainer);
        if (is_corrupt(trainer)) {
            end_corrupt(trainer, ls_error_text());
            return saved;
        }
        if (saved != LS_OK && asked) {
            return saved;
        }
    }
    if (trainer->gang && !asked && status != LS_ERR_DISK) {
        tell_what_is_saved(trainer, status, reason, saved);
        return status;
    }
    reason[0] ? (void)ls_fail(status, "%s", reason) : ls_error_clear();
    return status;
}

/* Whatever ends the run, a checkpoint in flight is waited for; what came first is the reason. */
static ls_status settle_saver(ls_trainer *trainer, ls_status status)
{
    const char *text = ls_arena_strdup(&trainer->arena, ls_error_text());
    const ls_status saved = ls_trainer_poll_saver(trainer, true);
    if (status == LS_OK) {
        return saved;
    }
    text[0] ? (void)ls_fail(status, "%s", text) : ls_error_clear();
    return status;
}

static ls_status train(ls_trainer *trainer, json_t **result_out)
{
    ls_status status = loop(trainer);
    status = settle_saver(trainer, status);
    if (status != LS_OK) {
        status = end_early(trainer, status);
    }
    const char *reason = ls_arena_strdup(&trainer->arena, ls_error_text());
    const ls_status finish = ls_trainer_finish(trainer, status, result_out);
    if (status == LS_OK) {
        return finish;
    }
    reason[0] ? (void)ls_fail(status, "%s", reason) : ls_error_clear();
    return status;
}

static ls_status dry_run(ls_trainer *trainer, json_t **result_out)
{
    ls_text text = {0};
    ls_session_describe(&trainer->session, &text);
    ls_prediction_describe(&trainer->prediction, &trainer->session, &text);
    if (trainer->options->out) {
        fputs(ls_text_string(&text), trainer->options->out);
    }
    ls_text_release(&text);
    *result_out = ls_session_to_json(&trainer->session);
    json_object_set_new(*result_out, "predicted", ls_prediction_to_json(&trainer->prediction));
    return ls_session_check_memory(&trainer->session);
}

ls_status ls_train(const ls_train_options *options, json_t **result_out)
{
    *result_out = NULL;
    ls_trainer trainer;
    ls_signals_install();
    ls_status status = ls_trainer_open(&trainer, options);
    if (status == LS_OK && options->dry_run) {
        status = dry_run(&trainer, result_out);
    } else if (status == LS_OK && trainer.finished) {
        *result_out = trainer.finished;
    } else if (status == LS_OK) {
        status = train(&trainer, result_out);
    }
    ls_trainer_close(&trainer);
    ls_signals_restore();
    return status;
}
