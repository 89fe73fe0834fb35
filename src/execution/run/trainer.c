// SPDX-License-Identifier: Apache-2.0
#include "execution/run/trainer.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "execution/integrity/flat_hash.h"
#include "execution/run/replay.h"
#include "execution/run/signals.h"
#include "execution/run/trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- evaluation and samples ---- */

/* Work that a lost process had already done counts as lost work when it is done again. */
static ls_time_class unless_redone(const ls_trainer_loop *loop, ls_time_class time_class)
{
    return loop->step < loop->redone_until ? LS_TIME_LOST_WORK : time_class;
}

/* An evaluation may take long, so it checks between its windows whether the run should stop. */
static ls_status read_validation(void *context, uint64_t first, uint64_t count, int32_t *tokens_out)
{
    ls_trainer *trainer = context;
    (void)ls_trainer_should_stop(trainer);
    LS_TRY(ls_trainer_stop_status(trainer));
    return ls_dataset_tokens(trainer->session.dataset, LS_SPLIT_VALIDATION, 0, first, count, tokens_out);
}

static ls_status read_validation_sample(void *context, uint64_t index, const ls_sample *sample)
{
    ls_trainer *trainer = context;
    (void)ls_trainer_should_stop(trainer);
    LS_TRY(ls_trainer_stop_status(trainer));
    return ls_dataset_sample(trainer->session.dataset, LS_SPLIT_VALIDATION, 0, index, sample);
}

/* The mean loss over at most eval.batches batches of validation data. */
static ls_status run_evaluator(ls_trainer *trainer, ls_evaluation *evaluation)
{
    const ls_dataset *dataset = trainer->session.dataset;
    const uint64_t most = trainer->session.run.eval.batches * trainer->session.run.train.global_batch;
    if (ls_dataset_has_documents(dataset)) {
        const ls_sample_list samples = {read_validation_sample, trainer,
                                        ls_dataset_samples(dataset, LS_SPLIT_VALIDATION)};
        return ls_evaluator_run_samples(trainer->evaluator, &samples, most, evaluation);
    }
    const ls_token_stream stream = {read_validation, trainer,
                                    ls_dataset_stream_tokens(dataset, LS_SPLIT_VALIDATION, 0)};
    return ls_evaluator_run(trainer->evaluator, &stream, most, evaluation);
}

/* With ZeRO stage 3 on several hosts, each host keeps only its share of the weights between steps;
 * evaluation and samples need all of them here. */
static ls_status gather_weights(ls_trainer *trainer)
{
    return trainer->backend.workers && ls_run_file_zero(&trainer->session.run) >= 3
               ? ls_workers_gather(trainer->backend.workers, trainer->loop.step)
               : LS_OK;
}

/* "step 40: validation loss of a.txt 2.1034, of b.txt 2.9120" */
static void print_source_losses(const ls_trainer *trainer, const json_t *sources)
{
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const json_t *source = json_array_get(sources, i);
        const json_t *loss = json_object_get(source, "val_loss");
        if (json_is_real(loss)) {
            ls_text_printf(&text, "%s of %s %.4f", text.bytes > 0 ? "," : "",
                           json_string_value(json_object_get(source, "source")), json_real_value(loss));
        }
    }
    if (text.bytes > 0) {
        ls_progress_print(trainer->books.progress, "step %" PRIu64 " validation loss%s", trainer->loop.step,
                          ls_text_string(&text));
    }
    ls_text_release(&text);
}

/* Adds to the event of an evaluation what is known by source. */
static void add_sources(ls_trainer *trainer, const ls_evaluation *evaluation, json_t *fields)
{
    trainer->loop.val_parts = evaluation->parts;
    json_t *sources =
        ls_session_sources_to_json(&trainer->session, trainer->loop.step, trainer->loop.val_parts);
    if (sources) {
        print_source_losses(trainer, sources);
        json_object_set_new(fields, "sources", sources);
    }
}

static bool is_due(uint64_t step, uint64_t every_steps)
{
    return every_steps > 0 && step % every_steps == 0;
}

/* Counts the evaluation of the finished steps. The run ends here if it was one too many without an
 * improvement. */
static void lose_patience(ls_trainer *trainer)
{
    ls_patience *patience = &trainer->loop.patience;
    const uint64_t step = trainer->loop.step;
    if (!is_due(step, trainer->session.run.eval.every_steps) ||
        ls_patience_add(patience, step, trainer->loop.val_loss) || !ls_patience_is_over(patience)) {
        return;
    }
    trainer->loop.stop_step = step;
    ls_progress_print(trainer->books.progress,
                      "the run ends early: the validation loss has not fallen in %" PRIu64
                      " evaluations, the lowest is %.4f at step %" PRIu64
                      ". To train on, run it again with a higher eval.patience, or 0",
                      patience->waited, patience->best_loss, patience->best_step);
    ls_emit_event("early_stop",
                  json_pack("{s:I, s:I, s:I, s:f}", "step", (json_int_t)step, "evaluations",
                            (json_int_t)patience->waited, "best_step", (json_int_t)patience->best_step,
                            "best_val_loss", patience->best_loss));
}

/* Mean loss on validation data, logged and remembered. */
static ls_status evaluate(ls_trainer *trainer)
{
    if (!trainer->evaluator || trainer->loop.evaluated_step == trainer->loop.step) {
        return LS_OK;
    }
    LS_TRY(gather_weights(trainer));
    ls_goodput_enter(&trainer->books.goodput, unless_redone(&trainer->loop, LS_TIME_EVALUATION));
    ls_progress_activity(trainer->books.progress, "evaluating");
    const ls_session *session = &trainer->session;
    const double start_s = ls_clock_monotonic_s();
    ls_evaluation evaluation = {0};
    LS_TRY(run_evaluator(trainer, &evaluation));
    trainer->loop.peak_flops = ls_queue_gemm_peak_flops(session->device, ls_session_activations(session));
    trainer->loop.val_loss = evaluation.loss;
    trainer->loop.evaluated_step = trainer->loop.step;
    json_t *fields =
        json_pack("{s:I, s:f, s:I, s:f}", "step", (json_int_t)trainer->loop.step, "val_loss", evaluation.loss,
                  "tokens", (json_int_t)evaluation.tokens, "seconds", ls_clock_monotonic_s() - start_s);
    const double bytes_per_token = ls_dataset_bytes_per_token(session->dataset, LS_SPLIT_VALIDATION);
    if (bytes_per_token > 0.0) {
        json_object_set_new(fields, "val_loss_per_byte", json_real(evaluation.loss / bytes_per_token));
    }
    trainer->books.row.val_loss = evaluation.loss;
    trainer->books.row.has_val_loss = true;
    ls_progress_validation(trainer->books.progress, evaluation.loss);
    add_sources(trainer, &evaluation, fields);
    ls_emit_event("evaluation", fields);
    lose_patience(trainer);
    ls_progress_activity(trainer->books.progress, NULL);
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_OTHER);
    return LS_OK;
}

typedef struct sample_text {
    const ls_tokenizer *tokenizer;
    ls_tokenizer_stream stream;
    ls_text_buffer text;
    ls_status status;
} sample_text;

static bool collect_token(void *context, int32_t token, const ls_text_scores *scores)
{
    (void)scores;
    sample_text *sample = context;
    /* A model may have more token ids than its tokenizer knows. */
    if ((uint32_t)token >= ls_tokenizer_vocab_size(sample->tokenizer)) {
        return true;
    }
    sample->status = ls_tokenizer_stream_next(sample->tokenizer, &sample->stream, token, true, &sample->text);
    return sample->status == LS_OK && ls_signals_status() == LS_OK;
}

static ls_status sample_text_run(ls_trainer *trainer, const ls_token_buffer *prompt, sample_text *sample)
{
    const ls_run_sample *settings = &trainer->session.run.sample;
    int32_t stops[LS_MODEL_STOPS_MAX];
    const ls_text_request request = {.prompt = prompt->ids,
                                     .prompt_count = prompt->count,
                                     .count = settings->max_tokens,
                                     .stops = stops,
                                     .stop_count =
                                         ls_model_stops(&trainer->session.config, sample->tokenizer, stops),
                                     .sampling = {.temperature = settings->temperature,
                                                  .top_k = (uint32_t)settings->top_k,
                                                  .top_p = settings->top_p,
                                                  .seed = trainer->session.run.train.seed},
                                     .on_token = collect_token,
                                     .context = sample};
    for (size_t i = 0; i < prompt->count; i++) {
        LS_TRY(ls_tokenizer_stream_next(sample->tokenizer, &sample->stream, prompt->ids[i], true,
                                        &sample->text));
    }
    LS_TRY(ls_generator_run(trainer->generator, &request));
    LS_TRY(sample->status);
    return ls_tokenizer_stream_end(&sample->stream, &sample->text);
}

/* Generates a sample, prints and logs it. */
static ls_status print_sample(ls_trainer *trainer)
{
    if (!trainer->generator) {
        return LS_OK;
    }
    LS_TRY(gather_weights(trainer));
    ls_goodput_enter(&trainer->books.goodput, unless_redone(&trainer->loop, LS_TIME_SAMPLING));
    ls_progress_activity(trainer->books.progress, "sampling");
    const char *text = trainer->session.run.sample.prompt;
    sample_text sample = {.tokenizer = trainer->session.tokenizer};
    ls_token_buffer prompt = {0};
    /* An empty prompt is replaced by a line end, because generation needs at least one token. */
    ls_status status = ls_tokenizer_encode(sample.tokenizer, NULL, text[0] ? text : "\n",
                                           text[0] ? strlen(text) : 1, false, &prompt);
    if (status == LS_OK) {
        status = sample_text_run(trainer, &prompt, &sample);
    }
    if (status == LS_OK) {
        ls_progress_activity(trainer->books.progress, NULL);
        ls_progress_print(trainer->books.progress, "sample at step %" PRIu64 ": %s", trainer->loop.step,
                          sample.text.data ? sample.text.data : "");
        /* A byte tokenizer can produce any bytes, but JSON needs UTF-8; the stream decoder ensures
         * that. */
        ls_emit_event("sample", json_pack("{s:I, s:s%}", "step", (json_int_t)trainer->loop.step, "text",
                                          sample.text.data ? sample.text.data : "", sample.text.bytes));
    }
    ls_token_buffer_release(&prompt);
    ls_text_buffer_release(&sample.text);
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_OTHER);
    return status;
}

/* ---- the loop ---- */

/* Writes the row of the newest step to the metrics, unless that has been done. */
static void write_row(ls_trainer_books *books)
{
    if (books->has_row) {
        books->has_row = false;
        ls_emit_step(&books->row);
    }
}

/* By how much the step would have been longer with dense sums, which the link carries no faster
 * than what it has carried fastest so far. */
static double time_saved(ls_trainer_loop *loop, const ls_rank_traffic *traffic, double step_s)
{
    if (traffic->link_bytes > 0 && traffic->link_s > 0.0) {
        loop->link_bytes_ps = fmax(loop->link_bytes_ps, (double)traffic->link_bytes / traffic->link_s);
    }
    return loop->link_bytes_ps > 0.0 && traffic->dense_bytes != traffic->link_bytes
               ? (double)traffic->dense_bytes / loop->link_bytes_ps - step_s
               : 0.0;
}

static void record_step(ls_trainer *trainer, const ls_step_result *result, double lr, double step_s)
{
    const ls_session *session = &trainer->session;
    const double usual_s = ls_trainer_usual_step_s(&trainer->loop);
    if (trainer->saving.is_pending && usual_s > 0.0) { /* its update also copied the state */
        trainer->saving.stall_s += fmax(0.0, step_s - usual_s);
    }
    trainer->loop.step++;
    atomic_store(&trainer->control.shared.step, trainer->loop.step);
    trainer->loop.loss = result->loss;
    const uint64_t tokens = session->run.train.global_batch * session->run.model.context;
    trainer->loop.tokens += tokens;
    trainer->loop.process_tokens += tokens;
    trainer->loop.step_s += step_s;
    trainer->loop.link_bytes += result->traffic.link_bytes;
    trainer->loop.dense_bytes += result->traffic.dense_bytes;
    const double saved_s = time_saved(&trainer->loop, &result->traffic, step_s);
    trainer->loop.saved_s += saved_s;
    if (trainer->loop.first_step_s == 0.0) {
        trainer->loop.first_step_s = ls_clock_monotonic_s() - trainer->options->start_s;
        /* Measured only now, so that it does not delay the first step. */
        trainer->loop.peak_flops = ls_queue_gemm_peak_flops(session->device, ls_session_activations(session));
        ls_progress_print(trainer->books.progress, "MFU is relative to %s: %.0f GFLOP/s",
                          session->device == session->queue ? "this machine's own matrix products"
                                                            : "the GPU's data sheet (dense products)",
                          trainer->loop.peak_flops * 1e-9);
    }
    const double peak = trainer->loop.peak_flops;
    trainer->books.has_row = true;
    trainer->books.row = (ls_step_metrics){
        .step = trainer->loop.step,
        .loss = result->loss,
        .lr = lr,
        .grad_norm = result->grad_norm,
        .tokens = tokens,
        .loss_tokens = result->tokens,
        .step_s = step_s,
        .tokens_per_s = (double)tokens / step_s,
        .data_s = result->data_s,
        .forward_s = result->forward_s,
        .backward_s = result->backward_s,
        .reduce_s = result->reduce_s,
        .optimizer_s = result->optimizer_s,
        .wait_s = result->wait_s,
        .link_bytes = result->traffic.link_bytes,
        .dense_bytes = result->traffic.dense_bytes,
        .saved_s = saved_s,
        .residual_norm = result->residual_norm,
        .mfu = peak > 0.0 ? ls_session_step_flops(session, false) / step_s / peak : 0.0,
        .hfu = peak > 0.0 ? ls_session_step_flops(session, true) / step_s / peak : 0.0,
        .rss_bytes = ls_trainer_memory(trainer),
    };
    if (result->audited != LS_NO_LEAF) {
        ls_emit_event("audit", json_pack("{s:I, s:I}", "step", (json_int_t)trainer->loop.step, "leaf",
                                         (json_int_t)result->audited));
    }
    ls_progress_step(trainer->books.progress, &trainer->books.row);
    ls_alert_watch_step(&trainer->alerts.watch, trainer->loop.step, (double)result->loss,
                        ls_clock_monotonic_s());
}

/*
 * What is due after a step: an evaluation, a sample, a checkpoint. The evaluation comes before the
 * row of the step and before the checkpoint, which record its loss. A checkpoint of a step that is
 * not evaluated has none, and is not compared with others (checkpoint.keep_best). The first sample
 * is drawn before the first step, so that a reader sees what training changes.
 */
static ls_status side_work(ls_trainer *trainer)
{
    const ls_run_file *run = &trainer->session.run;
    const bool first = trainer->loop.step == 0;
    const bool evaluates = !first && (trainer->loop.step == trainer->loop.stop_step ||
                                      is_due(trainer->loop.step, run->eval.every_steps));
    const ls_status evaluated = evaluates ? evaluate(trainer) : LS_OK;
    write_row(&trainer->books);
    LS_TRY(evaluated);
    /* The evaluation may have made this step the last one. */
    const bool last = trainer->loop.step == trainer->loop.stop_step;
    const bool is_best = run->eval.patience > 0 && trainer->loop.patience.best_step == trainer->loop.step;
    const bool is_asked = !first && ls_trainer_wants_save(trainer);
    const bool save = !first && (last || is_asked || is_best || ls_trainer_save_is_due(trainer));
    if (trainer->generator && (first || last || is_due(trainer->loop.step, run->sample.every_steps))) {
        LS_TRY(print_sample(trainer));
    }
    if (save) {
        LS_TRY(last ? ls_trainer_save(trainer) : ls_trainer_save_in_background(trainer));
    }
    LS_TRY(first ? LS_OK : ls_trainer_save_weights(trainer));
    LS_TRY(ls_trainer_poll_saver(trainer, false));
    ls_trainer_poll_mirror(trainer, false);
    char advice[256];
    ls_goodput_update(&trainer->books.goodput);
    ls_progress_advice(trainer->books.progress,
                       ls_goodput_advice(&trainer->books.goodput, advice, sizeof advice) ? advice : NULL);
    return ls_run_log_status(trainer->books.log);
}

double ls_trainer_usual_step_s(const ls_trainer_loop *loop)
{
    const uint64_t steps = loop->step - loop->begun_at;
    return steps > 0 ? loop->step_s / (double)steps : 0.0;
}

/* Books a step that was given up. With workers, time beyond that of a usual step was spent waiting
 * for one of them; the rest is work that has to be done again. */
static void book_lost_step(ls_trainer *trainer, double passed_s)
{
    const double usual_s = ls_trainer_usual_step_s(&trainer->loop);
    const double lost_s = trainer->backend.workers && passed_s > usual_s ? usual_s : passed_s;
    ls_goodput_move(&trainer->books.goodput, LS_TIME_COMPUTE, LS_TIME_LOST_WORK, lost_s);
    ls_goodput_move(&trainer->books.goodput, LS_TIME_COMPUTE, LS_TIME_WAITING, passed_s - lost_s);
}

/* Books `seconds` of a step as another class than compute, at most the `*left_s` not yet booked. */
static void book(ls_trainer_books *books, ls_time_class time_class, double seconds, double *left_s)
{
    const double booked_s = fmin(fmax(seconds, 0.0), *left_s);
    ls_goodput_move(&books->goodput, LS_TIME_COMPUTE, time_class, booked_s);
    *left_s -= booked_s;
}

/*
 * Books the time of a finished step; what is left at the end stays compute.
 *
 *   | recovery | hung | data | communication | lost work | compute |
 *
 * Ranks wait for a recovery inside a collective, so that time is taken off what they report as
 * communication; ls_trainer_book_recovery has booked it already. After a recovery, leaves of the
 * lost rank are computed again: the time beyond that of a usual step is lost work.
 */
static void book_step(ls_trainer *trainer, const ls_step_result *result, double passed_s)
{
    ls_trainer_books *books = &trainer->books;
    const double recovery_s = books->recovery_s, usual_s = ls_trainer_usual_step_s(&trainer->loop);
    double left_s = fmax(0.0, passed_s - recovery_s);
    book(books, LS_TIME_WAITING, books->hung_s, &left_s);
    book(books, LS_TIME_DATA, result->data_s, &left_s);
    book(books, LS_TIME_COMMUNICATION, result->wait_s - recovery_s - books->hung_s, &left_s);
    if (trainer->loop.step < trainer->loop.redone_until) {
        book(books, LS_TIME_LOST_WORK, left_s, &left_s);
    } else if (recovery_s > 0.0 && usual_s > 0.0) {
        book(books, LS_TIME_LOST_WORK, left_s - usual_s, &left_s);
    }
    books->recovery_s = books->hung_s = 0.0;
}

/*
 * The report of a recovery may arrive before or after its step has been booked. The time is moved
 * at once from the class in which it was counted, and written to the time log: a trainer that is
 * killed the next moment leaves no recovery in events.jsonl that its account lacks.
 */
void ls_trainer_book_recovery(ls_trainer *trainer, uint64_t step, double seconds)
{
    static const ls_time_class booked_as[] = {LS_TIME_COMMUNICATION, LS_TIME_COMPUTE, LS_TIME_LOST_WORK};
    ls_trainer_books *books = &trainer->books;
    const bool is_booked = step < trainer->loop.step;
    double left_s = seconds;
    ls_goodput_update(&books->goodput);
    for (size_t i = is_booked ? 0 : 1; i < sizeof booked_as / sizeof booked_as[0]; i++) {
        left_s -= ls_goodput_move(&books->goodput, booked_as[i], LS_TIME_RECOVERY, left_s);
    }
    books->recovery_s += is_booked ? 0.0 : seconds - left_s;
    ls_time_log_write(books->time_log);
}

static ls_status run_step(ls_trainer *trainer)
{
    atomic_store(&trainer->control.shared.is_training, true);
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_COMPUTE);
    ls_time_log_step_begins(trainer->books.time_log);
    const double start_s = ls_clock_monotonic_s();
    const double lr = ls_schedule_lr(&trainer->loop.schedule, trainer->loop.step);
    ls_step_result result = {.fault = {.leaf = LS_NO_LEAF, .rank = LS_NO_RANK}};
    double step_s = 0.0;
    const ls_status status = ls_trainer_compute(trainer, lr, &result, &step_s);
    const double passed_s = ls_clock_monotonic_s() - start_s;
    ls_goodput_enter(&trainer->books.goodput, LS_TIME_OTHER);
    if (status != LS_OK) {
        trainer->loop.fault = result.fault;
        book_lost_step(trainer, passed_s);
        ls_time_log_step_ends(trainer->books.time_log, trainer->loop.step);
        return status;
    }
    book_step(trainer, &result, passed_s);
    record_step(trainer, &result, lr, step_s);
    ls_time_log_step_ends(trainer->books.time_log, trainer->loop.step);
    return LS_OK;
}

/* Before the first step of this process: the first sample, or the evaluation that a signal
 * interrupted after the step it resumes from. */
static ls_status catch_up(ls_trainer *trainer)
{
    if (trainer->loop.step == 0 || trainer->loop.step == trainer->loop.stop_step) {
        return side_work(trainer);
    }
    LS_TRY(is_due(trainer->loop.step, trainer->session.run.eval.every_steps) ? evaluate(trainer) : LS_OK);
    return trainer->loop.step == trainer->loop.stop_step ? ls_trainer_save(trainer) : LS_OK;
}

static ls_status loop(ls_trainer *trainer)
{
    LS_TRY(catch_up(trainer));
    while (trainer->loop.step < trainer->loop.stop_step) {
        LS_TRY(run_step(trainer));
        LS_TRY(side_work(trainer));
        /* After the last step there is nothing left to give up. Workers give up granted steps
         * themselves, so the loop only checks once they have none left. */
        if (trainer->loop.step < trainer->loop.stop_step && trainer->loop.step >= trainer->backend.granted) {
            (void)ls_trainer_should_stop(trainer);
            LS_TRY(ls_trainer_stop_status(trainer));
        }
    }
    return LS_OK;
}

/* ---- how a run ends ---- */

/* The loss is not finite: saves the state before that step, and adds to the error where it is
 * and how to replay the step. */
static void keep_failed_state(ls_trainer *trainer, const char *text)
{
    ls_arena *arena = &trainer->arena;
    char *copy = ls_arena_strdup(arena, text);
    const char *command =
        ls_replay_command(arena, trainer->dir.path, trainer->loop.step + 1, trainer->loop.fault.leaf);
    ls_emit_event("not_finite",
                  json_pack("{s:I, s:o, s:s, s:s}", "step", (json_int_t)trainer->loop.step, "leaf",
                            trainer->loop.fault.leaf == LS_NO_LEAF ? json_null()
                                                                   : json_integer(trainer->loop.fault.leaf),
                            "text", copy, "replay", command));
    ls_trainer_alert(trainer, LS_ALERT_NOT_FINITE, copy);
    if (trainer->loop.step == 0) {
        ls_fail(
            LS_ERR_FAILED,
            "%s. It was the first step of the run, so there is no checkpoint before it: it starts from the "
            "run's initial weights, loaded or drawn at random as the run file says. To replay it op by "
            "op: %s",
            copy, command);
    } else if (ls_trainer_save(trainer) == LS_OK) {
        ls_fail(LS_ERR_FAILED,
                "%s. The state before that step is in %s/%" PRIu64 ". To replay it op by op: %s", copy,
                trainer->dir.checkpoints, trainer->loop.step, command);
    } else {
        const char *problem = ls_arena_strdup(arena, ls_error_text());
        ls_fail(LS_ERR_FAILED,
                "%s. The state before that step could not be saved: %s. To replay it from an older "
                "checkpoint, op by op: %s",
                copy, problem, command);
    }
}

/* Agents that a person started have ended by then. */
static bool may_redo(const ls_trainer *trainer)
{
    const ls_workers_hosts *hosts = trainer->options->hosts;
    return trainer->loop.fault.kind == LS_STEP_FAULT_WORKER && !trainer->is_second &&
           (!hosts || hosts->others);
}

/* Nothing is saved: the state in memory is that of no step. */
static void end_outer(ls_trainer *trainer, const char *text)
{
    char *copy = ls_arena_strdup(&trainer->arena, text);
    const bool redoes = may_redo(trainer);
    ls_emit_event("not_finite", json_pack("{s:I, s:n, s:s, s:b}", "step", (json_int_t)trainer->loop.step,
                                          "leaf", "text", copy, "redone", redoes));
    if (redoes) {
        ls_log_warn("%s. The round is made once more, from the newest checkpoint", copy);
        return;
    }
    ls_trainer_alert(trainer, LS_ALERT_NOT_FINITE, copy);
    ls_fail(LS_ERR_FAILED, "%s. %s the same command continues from the newest checkpoint", copy,
            trainer->is_second ? "It was so when the round was made again, so the training diverges;"
                               : "If the machine made a mistake,");
}

static void emit_corruption(const ls_trainer *trainer, const char *text)
{
    const ls_step_fault *f = &trainer->loop.fault;
    const bool leaf = f->kind == LS_STEP_FAULT_LEAF;
    char name[32];
    const bool is_known = f->bucket != LS_NO_BUCKET;
    json_t *fields = json_pack(
        "{s:I, s:s, s:s, s:o, s:o, s:o}", "step", (json_int_t)trainer->loop.step, "found_by",
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

/* The state in memory changed by itself. One process checks its state before it saves; with several
 * ranks, a checkpoint of this very step may already hold the change. */
static void end_corrupt_state(ls_trainer *trainer, const char *text)
{
    if (trainer->saving.saved_step == trainer->loop.step) {
        ls_fail(LS_ERR_MISMATCH,
                "%s. Checkpoint %s/%" PRIu64
                " was saved since that update and may hold the corrupted state: remove it. Check the "
                "machine; the same command then continues from the checkpoint before it",
                text, trainer->dir.checkpoints, trainer->loop.step);
    } else {
        ls_fail(
            LS_ERR_MISMATCH,
            "%s and was not saved. Check the machine; the same command continues from the newest checkpoint "
            "in %s",
            text, trainer->dir.checkpoints);
    }
}

/* Bits that should be equal differ. A leaf that was computed wrongly has not touched the state,
 * so the state is saved. A state that changed by itself is not saved: the run continues from the
 * newest checkpoint. */
static void end_corrupt(ls_trainer *trainer, const char *text)
{
    ls_arena *arena = &trainer->arena;
    char *copy = ls_arena_strdup(arena, text);
    const ls_step_fault fault = trainer->loop.fault;
    emit_corruption(trainer, copy);
    if (fault.kind == LS_STEP_FAULT_STATE) {
        end_corrupt_state(trainer, copy);
        return;
    }
    const char *saved = trainer->loop.step == 0 ? "; it was the first step"
                        : ls_trainer_save(trainer) == LS_OK
                            ? ls_arena_printf(arena, "; the state before that step is in %s/%" PRIu64,
                                              trainer->dir.checkpoints, trainer->loop.step)
                            : "; the state before that step could not be saved";
    ls_fail(LS_ERR_MISMATCH,
            "%s%s. Check the machine, then run the same command again to continue from there. To compute "
            "that share of the batch (leaf) once more, here or elsewhere: lockstep replay %s --step %" PRIu64
            " --leaf %u",
            copy, saved, ls_shell_quote(arena, trainer->dir.path), trainer->loop.step + 1, fault.leaf);
}

static bool is_corrupt(const ls_trainer_loop *loop)
{
    return loop->fault.kind == LS_STEP_FAULT_LEAF || loop->fault.kind == LS_STEP_FAULT_STATE;
}

/* Workers run ahead of the trainer. Lets them finish, or give up, the steps they are in, so that
 * the state is that of a step known here. Keeps the error text. */
static void catch_up_with_workers(ls_trainer *trainer)
{
    const char *text = ls_arena_strdup(&trainer->arena, ls_error_text());
    if (trainer->backend.workers && trainer->loop.step < trainer->backend.granted) {
        ls_workers_stop(trainer->backend.workers);
        while (trainer->loop.step < trainer->backend.granted && run_step(trainer) == LS_OK) {
            write_row(&trainer->books);
        }
    }
    text[0] ? (void)ls_fail(LS_ERR_FAILED, "%s", text) : ls_error_clear();
}

/* Adds to the first line of an error what became of the steps so far. A stack may follow that
 * line. */
static void explain_what_is_saved(ls_trainer *trainer, ls_status status, const char *reason, ls_status saved)
{
    const int line = (int)strcspn(reason, "\n");
    const char *rest = reason + line;
    if (saved == LS_OK && trainer->saving.saved_step != UINT64_MAX) {
        ls_fail(status,
                "%.*s. Step %" PRIu64 " is saved: run the same command again to continue from there%s", line,
                reason, trainer->saving.saved_step, rest);
    } else if (trainer->saving.saved_step != UINT64_MAX) {
        ls_fail(status,
                "%.*s. The steps after %" PRIu64
                " are lost: run the same command again to continue from there%s",
                line, reason, trainer->saving.saved_step, rest);
    } else {
        ls_fail(status, "%.*s. Nothing had been saved yet: run the same command again%s", line, reason, rest);
    }
}

/* Saves the finished steps, whatever ended the run. The reason for the end stays the result, unless
 * saving a run that was asked to stop fails. */
static ls_status end_early(ls_trainer *trainer, ls_status status)
{
    catch_up_with_workers(trainer);
    if (trainer->loop.fault.kind == LS_STEP_FAULT_WORKER) {
        end_outer(trainer, ls_error_text());
        return status;
    }
    if (status == LS_ERR_FAILED) {
        keep_failed_state(trainer, ls_error_text());
        return status;
    }
    if (is_corrupt(&trainer->loop)) {
        end_corrupt(trainer, ls_error_text());
        return status;
    }
    const bool asked = status == LS_STOPPED || status == LS_INTERRUPTED;
    const bool is_away = asked && trainer->backend.redoes; /* the state is of an earlier step */
    const char *reason = ls_arena_strdup(&trainer->arena, asked ? "" : ls_error_text());
    ls_status saved = LS_OK;
    if (!asked) {
        ls_trainer_explain_workers(trainer, status);
    }
    if (asked) {
        status = ls_trainer_stop_status(trainer);
        ls_progress_print(trainer->books.progress, is_away ? "stopping" : "stopping: saving step %" PRIu64,
                          trainer->loop.step);
    }
    /* A disk that was full for something else has no room for a checkpoint. */
    if (trainer->loop.step > 0 && status != LS_ERR_DISK && !is_away) {
        saved = ls_trainer_save(trainer);
        if (is_corrupt(&trainer->loop)) {
            end_corrupt(trainer, ls_error_text());
            return saved;
        }
        if (saved != LS_OK && asked) {
            return saved;
        }
    }
    if (trainer->backend.workers && !asked && status != LS_ERR_DISK) {
        explain_what_is_saved(trainer, status, reason, saved);
        return status;
    }
    reason[0] ? (void)ls_fail(status, "%s", reason) : ls_error_clear();
    return status;
}

/* Waits for a checkpoint being written, whatever ended the run. An earlier error stays the
 * result. */
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
    ls_trainer_poll_mirror(trainer, true);
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
    json_object_set_new(json_object_get(*result_out, "mesh"), "why",
                        trainer->mesh_choice ? json_string(trainer->mesh_choice) : json_null());
    return ls_session_check_memory(&trainer->session);
}

/* *again_inout: whether this is the second time, and then whether there is to be one. */
static ls_status train_once(const ls_train_options *options, bool *again_inout, json_t **result_out)
{
    *result_out = NULL;
    ls_trainer trainer;
    ls_status status = ls_trainer_open(&trainer, options);
    trainer.is_second = *again_inout;
    if (status == LS_OK && options->dry_run) {
        status = dry_run(&trainer, result_out);
    } else if (status == LS_OK && trainer.finished) {
        *result_out = trainer.finished;
    } else if (status == LS_OK) {
        status = train(&trainer, result_out);
    }
    *again_inout = may_redo(&trainer);
    ls_trainer_close(&trainer);
    return status;
}

ls_status ls_train(const ls_train_options *options, json_t **result_out)
{
    bool again = false;
    ls_signals_install();
    ls_status status = train_once(options, &again, result_out);
    if (again) {
        ls_train_options second = *options;
        second.mode = LS_RUN_CONTINUE;
        second.start_s = ls_clock_monotonic_s();
        json_decref(*result_out);
        status = train_once(&second, &again, result_out);
    }
    ls_signals_restore();
    return status;
}
