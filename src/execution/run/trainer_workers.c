// SPDX-License-Identifier: Apache-2.0
/*
 * The trainer's side of several ranks.
 *
 * Ranks do not wait for the trainer after each step. They may run all steps below `granted`, which
 * is the next step after which the trainer needs the state at rest:
 *
 *   steps       n    n+1   n+2   n+3   n+4 = granted
 *   ranks       ──▶──▶──▶──▶──▶──▶──▶──┤ wait (idle)
 *   trainer     ──▶──▶──▶ results of n, n+1, ... as they arrive; then evaluates, samples or saves
 *
 * So metrics are written while ranks already compute the next steps, and evaluation, samples and
 * checkpoints always see the state after exactly the step they belong to.
 */
#include "execution/run/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/math.h"
#include "base/text.h"
#include "execution/train/memory.h"
#include "telemetry/record/metrics_reader.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What became of the parts of `count` lost ranks. */
static const char *recovery_text(const ls_trainer *trainer, const json_t *fields, size_t count)
{
    if (trainer->options->hosts) {
        return "the others continue";
    }
    const bool some_left = strcmp(json_string_value(json_object_get(fields, "how")), "takeover") == 0;
    const bool has_crews = ls_mesh_crew(ls_session_mesh(&trainer->session)) > 1;
    return !some_left || has_crews ? "replaced"
           : count == 1            ? "its share of the step taken over"
                                   : "their shares of the step taken over";
}

/* With its place in the mesh. On several hosts, a rank has another one after each new cut. */
static const char *name_rank(const ls_trainer *trainer, const json_t *rank, char text[LS_MESH_NAME_BYTES])
{
    const ls_mesh mesh = trainer->options->hosts ? (ls_mesh){0} : ls_session_mesh(&trainer->session);
    return ls_mesh_name(mesh, (uint32_t)json_integer_value(rank), NULL, text);
}

/* "rank 2 lost, its share of the step taken over in 34 ms". */
static void print_recovered(const ls_trainer *trainer, const json_t *fields)
{
    const json_t *lost = json_object_get(fields, "lost");
    const size_t count = json_array_size(lost);
    ls_text names = {0};
    for (size_t i = 0; i < count; i++) {
        ls_text_printf(&names, "%s%" JSON_INTEGER_FORMAT,
                       i == 0           ? ""
                       : i + 1 == count ? " and "
                                        : ", ",
                       json_integer_value(json_array_get(lost, i)));
    }
    char name[LS_MESH_NAME_BYTES];
    if (count == 1) {
        ls_text_clear(&names);
        ls_text_append(&names, name_rank(trainer, json_array_get(lost, 0), name));
    }
    ls_progress_print(trainer->books.progress, "%s%s lost, %s %s %.0f ms", count == 1 ? "" : "ranks ",
                      ls_text_string(&names), recovery_text(trainer, fields, count),
                      trainer->options->hosts ? "after" : "in",
                      json_number_value(json_object_get(fields, "ms")));
    ls_text_release(&names);
}

/* "rank 3 joins after step 120 (host b)". The host is only named if there are several. */
static void print_member(const ls_trainer *trainer, const json_t *fields, const char *verb)
{
    const char *host = json_string_value(json_object_get(fields, "host"));
    const bool tells_host = trainer->options->hosts && host;
    char name[LS_MESH_NAME_BYTES];
    ls_progress_print(trainer->books.progress, "%s %s after step %" JSON_INTEGER_FORMAT "%s%s%s",
                      name_rank(trainer, json_object_get(fields, "rank"), name), verb,
                      json_integer_value(json_object_get(fields, "step")), tells_host ? " (host " : "",
                      tells_host ? host : "", tells_host ? ")" : "");
}

static void on_recovered(ls_trainer *trainer, const json_t *fields)
{
    const double ms = json_number_value(json_object_get(fields, "ms"));
    uint64_t step = 0;
    if (ms > 0.0 && ls_event_step(fields, &step)) {
        ls_trainer_book_recovery(trainer, step, 1e-3 * ms);
        ls_trainer_note_recovery(&trainer->control.shared, fields);
    }
    if (json_is_array(json_object_get(fields, "lost"))) {
        print_recovered(trainer, fields);
    }
}

static void on_hung(ls_trainer *trainer, const json_t *fields)
{
    const double waited_s = json_number_value(json_object_get(fields, "waited_s"));
    trainer->books.hung_s = fmax(trainer->books.hung_s, waited_s);
}

static void on_rank_lost(ls_trainer *trainer, const json_t *fields)
{
    const char *cause = json_string_value(json_object_get(fields, "cause"));
    char name[LS_MESH_NAME_BYTES];
    ls_trainer_alert(trainer, LS_ALERT_RANKS,
                     ls_arena_printf(&trainer->arena, "%s was lost: %.200s",
                                     name_rank(trainer, json_object_get(fields, "rank"), name),
                                     cause ? cause : "its cause is not known"));
}

static void on_rank_joined(ls_trainer *trainer, const json_t *fields)
{
    print_member(trainer, fields, "joins");
}

static void on_rank_left(ls_trainer *trainer, const json_t *fields)
{
    print_member(trainer, fields, "leaves");
}

static const struct {
    const char *event;
    void (*act)(ls_trainer *trainer, const json_t *fields);
} handlers[] = {
    {"recovered", on_recovered},     {"hung", on_hung},           {"rank_lost", on_rank_lost},
    {"rank_joined", on_rank_joined}, {"rank_left", on_rank_left},
};

/* Events of the workers, which call this on the main thread. */
static void on_event(void *context, const char *name, json_t *fields)
{
    ls_trainer *trainer = context;
    json_t *counted = json_object_get(fields, "step");
    if (json_is_integer(counted) && trainer->backend.local.steps > 0) { /* ranks count turns */
        const uint64_t turn = (uint64_t)json_integer_value(counted);
        json_integer_set(counted, (json_int_t)ls_local_turn_at(&trainer->backend.local, turn).step);
    }
    trainer->control.leaving = trainer->control.leaving || json_is_true(json_object_get(fields, "ends_run"));
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++) {
        if (strcmp(name, handlers[i].event) == 0) {
            handlers[i].act(trainer, fields);
        }
    }
    ls_emit_event(name, fields);
}

/* ---- beginning ---- */

/* The step of the last good line of metrics.jsonl; 0: there is none. */
static uint64_t last_step_recorded(ls_trainer *trainer)
{
    enum { METRICS_BYTES_MAX = 1 << 30 };
    ls_arena arena = {0};
    ls_line_reader reader = {0};
    ls_step_metrics metrics;
    char *text = NULL;
    uint64_t step = 0;
    if (ls_file_read(&arena, ls_path_join(&arena, trainer->dir.path, "metrics.jsonl"), METRICS_BYTES_MAX,
                     &text, &reader.bytes) == LS_OK) {
        reader.text = text;
        for (ls_line_kind kind; (kind = ls_metrics_reader_next(&reader, &metrics)) != LS_LINE_END;) {
            step = kind == LS_LINE_GOOD ? metrics.step : step;
        }
    }
    ls_error_clear();
    ls_arena_release(&arena);
    return step;
}

bool ls_trainer_is_adopted(const ls_trainer *trainer)
{
    uint64_t finished;
    return trainer->backend.workers && ls_workers_is_adopted(trainer->backend.workers, &finished);
}

/* A new segment receives the state from the ranks that kept running, except for frozen parameters,
 * which ranks do not send to the trainer's host. Those are the same in every checkpoint and at the
 * start of the run, so they come from there. */
static ls_status restore_frozen(ls_trainer *trainer, ls_arena *arena, const ls_checkpoint *checkpoint)
{
    const ls_layout *layout = &trainer->session.layout;
    const bool is_fresh = ls_workers_is_fresh(trainer->backend.workers);
    if (layout->adapter) {
        if (checkpoint) {
            ls_trainer_take_base_digest(trainer, checkpoint);
        }
        return is_fresh || !checkpoint
                   ? ls_session_load_base(&trainer->session, is_fresh ? &trainer->backend.state : NULL)
                   : LS_OK;
    }
    if (layout->frozen_elements == 0 || !is_fresh) {
        return LS_OK;
    }
    if (!checkpoint) {
        return ls_session_begin_weights(&trainer->session, &trainer->backend.state);
    }
    const ls_checkpoint_load_options options = {.allow_partial = true};
    return ls_checkpoint_load(checkpoint,
                              ls_state_tensors(arena, &trainer->backend.state, NULL) + layout->trained_count,
                              layout->parameter_count - layout->trained_count, &options);
}

/* Takes over ranks that kept running without a trainer. The results of the steps they did since
 * then come from them, so no step is computed again. */
ls_status ls_trainer_adopt(ls_trainer *trainer)
{
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    trainer->loop.step = last_step_recorded(trainer);
    trainer->backend.granted = ls_workers_granted(trainer->backend.workers);
    if (trainer->loop.step < trainer->backend.granted) {
        trainer->loop.evaluated_step = trainer->loop.step; /* the ranks are changing the state */
    }
    ls_status status = ls_checkpoint_find_latest(&arena, trainer->dir.checkpoints, trainer->session.identity,
                                                 UINT64_MAX, &latest);
    if (status == LS_OK) {
        trainer->saving.saved_step =
            latest.checkpoint ? latest.checkpoint->meta.step : trainer->saving.saved_step;
        status = restore_frozen(trainer, &arena, latest.checkpoint);
        ls_checkpoint_close(latest.checkpoint);
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_trainer_create_workers(ls_trainer *trainer)
{
    const ls_session *session = &trainer->session;
    /* Each rank opens the run as this process did; all at once may take a multiple of that time. */
    const double opening_s = ls_clock_monotonic_s() - trainer->options->start_s;
    const double asked_s = trainer->options->start_timeout_s;
    const ls_workers_hosts *hosts = trainer->options->hosts;
    const ls_workers_options options = {
        .session = session,
        .run_dir = trainer->dir.path,
        .ranks = session->ranks,
        .threads = ls_session_rank_threads(session, hosts ? hosts->local_ranks : session->ranks),
        .hosts = hosts,
        .adopt = session->run.job.lease_s > 0 && trainer->dir.had_run,
        .heard = last_step_recorded(trainer),
        .start_timeout_s = asked_s > 0 ? asked_s : 60.0 + 2.0 * session->ranks * opening_s,
        .should_stop = ls_trainer_should_stop,
        .stop_context = trainer,
        .event = on_event,
        .event_context = trainer,
        .restore = ls_trainer_return,
        .restore_context = trainer,
    };
    LS_TRY(ls_workers_create(&options, &trainer->backend.workers));
    ls_workers_state(trainer->backend.workers, session->queue, &session->layout, &trainer->backend.state);
    return LS_OK;
}

ls_status ls_trainer_launch_workers(ls_trainer *trainer)
{
    if (!ls_trainer_is_adopted(trainer)) {
        trainer->backend.granted = trainer->loop.step;
    }
    return trainer->backend.workers
               ? ls_workers_launch(trainer->backend.workers,
                                   ls_local_turns(&trainer->backend.local, trainer->loop.step))
               : LS_OK;
}

static void report_started(const ls_trainer *trainer)
{
    for (uint32_t rank = 0; rank < ls_workers_ranks(trainer->backend.workers); rank++) {
        const ls_workers_member member = ls_workers_member_at(trainer->backend.workers, rank);
        if (member.pid == 0) {
            continue; /* this rank was lost while there was no trainer */
        }
        ls_emit_event("rank_started", json_pack("{s:i, s:i, s:s, s:I, s:I, s:s}", "rank", (int)rank, "pid",
                                                (int)member.pid, "host", member.host, "epoch",
                                                (json_int_t)ls_workers_epoch(trainer->backend.workers),
                                                "step", (json_int_t)trainer->loop.step, "device",
                                                ls_queue_device_name(trainer->session.device)));
    }
}

ls_status ls_trainer_await_workers(ls_trainer *trainer)
{
    if (!trainer->backend.workers) {
        return LS_OK;
    }
    const ls_status status = ls_workers_wait(trainer->backend.workers);
    if (status == LS_STOPPED) {
        return LS_OK; /* the loop finds the signal */
    }
    if (status != LS_OK) {
        ls_trainer_explain_workers(trainer, status);
        return status;
    }
    report_started(trainer);
    return LS_OK;
}

/* ---- steps ---- */

static uint64_t next_due(uint64_t step, uint64_t every_steps)
{
    return every_steps > 0 ? (step / every_steps + 1) * every_steps : UINT64_MAX;
}

/* The next step after which the trainer needs the state at rest. The first step is granted
 * alone, so that the machine's peak speed is measured while the ranks wait. */
static uint64_t next_stop(const ls_trainer *trainer)
{
    const ls_run_file *run = &trainer->session.run;
    const uint64_t step = trainer->loop.step;
    if (trainer->loop.first_step_s == 0.0) {
        return step + 1;
    }
    uint64_t until = ls_min_u64(trainer->loop.stop_step, ls_trainer_next_save(trainer));
    until = ls_min_u64(until, next_due(step, run->checkpoint.weights_every_steps));
    until = ls_min_u64(until, next_due(step, run->eval.every_steps));
    return ls_min_u64(until, trainer->generator ? next_due(step, run->sample.every_steps) : UINT64_MAX);
}

static ls_status compute_turn(ls_trainer *trainer, uint64_t turn, double lr, ls_step_result *result_out,
                              double *seconds_out)
{
    ls_trainer_backend *b = &trainer->backend;
    if (b->workers) {
        return ls_workers_step(b->workers, turn, ls_local_turns(&b->local, b->granted), result_out,
                               seconds_out);
    }
    const double start_s = ls_clock_monotonic_s();
    const ls_status status = ls_stepper_run(b->stepper, turn, lr, result_out);
    *seconds_out = ls_clock_monotonic_s() - start_s;
    b->is_mid_step = status != LS_OK && !ls_local_turn_at(&b->local, turn).is_first;
    return status;
}

/* Adds what a turn took and exchanged. */
static void add_turn(ls_step_result *sum, const ls_step_result *turn)
{
    sum->tokens += turn->tokens;
    sum->data_s += turn->data_s;
    sum->forward_s += turn->forward_s;
    sum->backward_s += turn->backward_s;
    sum->reduce_s += turn->reduce_s;
    sum->optimizer_s += turn->optimizer_s;
    sum->wait_s += turn->wait_s;
    sum->traffic.link_bytes += turn->traffic.link_bytes;
    sum->traffic.dense_bytes += turn->traffic.dense_bytes;
    sum->traffic.link_s += turn->traffic.link_s;
    for (int axis = 0; axis < LS_AXIS_COUNT; axis++) {
        sum->traffic.bytes[axis] += turn->traffic.bytes[axis];
    }
}

/* The end of a round: what it sent, and how long its hosts computed, if that is known. */
static void tell_outer(ls_trainer *trainer, const ls_local_turn *turn, const ls_step_result *result,
                       double seconds)
{
    enum { SLOW = 2 };
    const uint64_t step = turn->step + 1;
    json_t *fields = json_pack("{s:I, s:I, s:I, s:f, s:f, s:I}", "step", (json_int_t)step, "round",
                               (json_int_t)((step - 1) / trainer->backend.local.steps + 1), "fragment",
                               (json_int_t)turn->fragment, "grad_norm", result->grad_norm, "seconds", seconds,
                               "sent_bytes", (json_int_t)result->traffic.link_bytes);
    if (result->fastest_s > 0.0) {
        json_object_update_new(fields,
                               json_pack("{s:i, s:f, s:f}", "slowest_rank", (int)result->slowest_rank,
                                         "slowest_s", result->slowest_s, "fastest_s", result->fastest_s));
    }
    if (result->fastest_s > 0.0 && result->slowest_s > SLOW * result->fastest_s &&
        step > trainer->loop.begun_at + trainer->backend.local.steps && !trainer->backend.has_told_slow) {
        trainer->backend.has_told_slow = true;
        ls_progress_print(trainer->books.progress,
                          "the host of rank %u computes %.1f times as long in a round as the fastest, which "
                          "waits for it (outer_step in events.jsonl)",
                          result->slowest_rank, result->slowest_s / result->fastest_s);
    }
    ls_emit_event("outer_step", fields);
}

/* The turns of a step with local steps. Its loss and norm are the means over the workers. */
static ls_status compute_turns(ls_trainer *trainer, double lr, ls_step_result *result_out,
                               double *seconds_out)
{
    const ls_local *local = &trainer->backend.local;
    const uint64_t first = ls_local_turns(local, trainer->loop.step);
    const uint64_t past = ls_local_turns(local, trainer->loop.step + 1);
    double losses[LS_SEGMENT_WORKERS_MAX], norms[LS_SEGMENT_WORKERS_MAX];
    ls_step_result sum = {.audited = LS_NO_LEAF};
    *seconds_out = 0.0;
    for (uint64_t turn = first; turn < past; turn++) {
        double turn_s = 0.0;
        LS_TRY(compute_turn(trainer, turn, lr, result_out, &turn_s));
        *seconds_out += turn_s;
        const ls_local_turn which = ls_local_turn_at(local, turn);
        losses[which.worker] = which.is_outer ? losses[which.worker] : (double)result_out->loss;
        norms[which.worker] = which.is_outer ? norms[which.worker] : result_out->grad_norm;
        if (which.applies) {
            tell_outer(trainer, &which, result_out, turn_s);
        }
        result_out->tokens = which.is_outer ? 0 : result_out->tokens;
        add_turn(&sum, result_out);
    }
    /* On several hosts the ranks have told each other, and the last worker's turn has the means. */
    const uint32_t last = local->workers - 1;
    const bool is_told = trainer->options->hosts != NULL;
    sum.loss = (float)(is_told ? losses[last] : ls_local_mean(losses, local->workers));
    sum.grad_norm = is_told ? norms[last] : ls_local_mean(norms, local->workers);
    *result_out = sum;
    return LS_OK;
}

ls_status ls_trainer_compute(ls_trainer *trainer, double lr, ls_step_result *result_out, double *seconds_out)
{
    ls_trainer_backend *b = &trainer->backend;
    if (b->workers && trainer->loop.step >= b->granted) {
        b->granted = next_stop(trainer);
    }
    const ls_status status = b->local.steps > 0
                                 ? compute_turns(trainer, lr, result_out, seconds_out)
                                 : compute_turn(trainer, trainer->loop.step, lr, result_out, seconds_out);
    b->redoes = b->redoes && status != LS_OK;
    return status;
}

/* ---- the state and its memory ---- */

void ls_trainer_gather(ls_trainer *trainer)
{
    const char *text = ls_arena_strdup(&trainer->arena, ls_error_text());
    if (trainer->backend.workers &&
        ls_workers_gather(trainer->backend.workers,
                          ls_local_turns(&trainer->backend.local, trainer->loop.step)) != LS_OK) {
        ls_log_debug(
            "the weights and the optimizer state of all hosts could not be collected on this host: %s",
            ls_error_text());
    }
    ls_error_clear();
    if (text[0]) {
        (void)ls_fail(LS_ERR_FAILED, "%s", text);
    }
}

bool ls_trainer_is_whole(const ls_trainer *trainer)
{
    uint64_t finished = 0;
    const ls_trainer_backend *b = &trainer->backend;
    return b->workers ? ls_workers_is_consistent(b->workers, &finished) &&
                            finished == ls_local_turns(&b->local, trainer->loop.step)
                      : !b->is_mid_step;
}

uint64_t ls_trainer_memory(ls_trainer *trainer)
{
    enum { EVERY_STEPS = 16 };
    if (!trainer->backend.workers) {
        return ls_memory_peak();
    }
    /* Private memory only: the segment that this process and the ranks share is counted once, by
     * ls_workers_memory. */
    if (trainer->backend.memory_bytes == 0 || trainer->loop.step % EVERY_STEPS == 0 ||
        trainer->loop.step == trainer->backend.granted) {
        const uint64_t bytes = ls_memory_private_peak() + ls_workers_memory(trainer->backend.workers);
        trainer->backend.memory_bytes =
            bytes > trainer->backend.memory_bytes ? bytes : trainer->backend.memory_bytes;
    }
    return trainer->backend.memory_bytes;
}

/* ---- the end ---- */

void ls_trainer_explain_workers(ls_trainer *trainer, ls_status status)
{
    if (!trainer->backend.workers) {
        return;
    }
    char *text = ls_arena_strdup(&trainer->arena, ls_error_text());
    uint32_t rank = 0;
    double silent_s = 0.0;
    if (ls_workers_lost(trainer->backend.workers, &rank, &silent_s)) {
        ls_emit_event("rank_lost",
                      json_pack("{s:i, s:s, s:f, s:I, s:b}", "rank", (int)rank, "cause", text, "detected_ms",
                                1e3 * silent_s, "step", (json_int_t)trainer->loop.step, "state_whole",
                                ls_trainer_is_whole(trainer)));
    }
    /* The watchdog has sent `late`, which names the rank waited for. This event says that the run
     * ended because of it. */
    if (status == LS_ERR_MISMATCH && strncmp(text, "hang: ", strlen("hang: ")) == 0) {
        ls_emit_event("hang", json_pack("{s:s%, s:I}", "text", text, strcspn(text, "\n"), "step",
                                        (json_int_t)trainer->loop.step));
    }
    ls_fail(status, "%s", text);
}
