// SPDX-License-Identifier: Apache-2.0
/* The trainer's side of several ranks: what is due decides how far they may run ahead. */
#include "execution/train/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "execution/train/memory.h"
#include "telemetry/metrics_reader.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What became of the parts of `count` ranks that were lost. */
static const char *recovery_text(const ls_trainer *trainer, const json_t *fields, size_t count)
{
    if (trainer->options->hosts) {
        return "the others go on";
    }
    const bool some_left = strcmp(json_string_value(json_object_get(fields, "how")), "takeover") == 0;
    return !some_left ? "replaced" : count == 1 ? "its part taken over" : "their parts taken over";
}

/* "rank 2 lost, its part taken over in 34 ms". */
static void say_recovered(const ls_trainer *trainer, const json_t *fields)
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
    ls_progress_print(trainer->progress, "rank%s %s lost, %s %s %.0f ms", count == 1 ? "" : "s",
                      ls_text_string(&names), recovery_text(trainer, fields, count),
                      trainer->options->hosts ? "after" : "in",
                      json_number_value(json_object_get(fields, "ms")));
    ls_text_release(&names);
}

/* "rank 3 joins behind step 120 (host b)". The host is told when there are several. */
static void say_member(const ls_trainer *trainer, const json_t *fields, const char *verb)
{
    const char *host = json_string_value(json_object_get(fields, "host"));
    const bool tells_host = trainer->options->hosts && host;
    ls_progress_print(trainer->progress,
                      "rank %" JSON_INTEGER_FORMAT " %s behind step %" JSON_INTEGER_FORMAT "%s%s%s",
                      json_integer_value(json_object_get(fields, "rank")), verb,
                      json_integer_value(json_object_get(fields, "step")), tells_host ? " (host " : "",
                      tells_host ? host : "", tells_host ? ")" : "");
}

/* What the service thread has to tell. A recovery is no work: its time is booked with the step it was in. */
static void hear(void *context, const char *name, json_t *fields)
{
    ls_trainer *trainer = context;
    const double ms = json_number_value(json_object_get(fields, "ms"));
    uint64_t step = 0;
    if (strcmp(name, "recovered") == 0 && ms > 0.0 && ls_event_step(fields, &step)) {
        ls_trainer_book_recovery(trainer, step, 1e-3 * ms);
        ls_trainer_note_recovery(trainer, fields);
    } else if (strcmp(name, "hung") == 0) {
        trainer->hung_s = fmax(trainer->hung_s, json_number_value(json_object_get(fields, "waited_s")));
    }
    trainer->leaving = trainer->leaving || json_is_true(json_object_get(fields, "ends_run"));
    if (strcmp(name, "recovered") == 0 && json_is_array(json_object_get(fields, "lost"))) {
        say_recovered(trainer, fields);
    } else if (strcmp(name, "rank_joined") == 0) {
        say_member(trainer, fields, "joins");
    } else if (strcmp(name, "rank_left") == 0) {
        say_member(trainer, fields, "leaves");
    }
    ls_emit_event(name, fields);
}

/* ---- beginning ---- */

/* The step of the last good line of metrics.jsonl; 0: there is none. */
static uint64_t last_step_heard(ls_trainer *trainer)
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
    return trainer->gang && ls_gang_is_adopted(trainer->gang, &finished);
}

/* A segment made anew gets the state from the ranks that went on, but for what is frozen, which nobody hands over to the trainer's host: from
 * a checkpoint, which all have the same, or from where the run began. */
static ls_status restore_frozen(ls_trainer *trainer, ls_arena *arena, const ls_checkpoint *checkpoint)
{
    const ls_layout *layout = &trainer->session.layout;
    if (layout->frozen_elements == 0 || !ls_gang_is_fresh(trainer->gang)) {
        return LS_OK;
    }
    if (!checkpoint) {
        return ls_session_begin_weights(&trainer->session, &trainer->state);
    }
    const ls_checkpoint_load_options options = {.allow_partial = true};
    return ls_checkpoint_load(checkpoint, ls_state_tensors(arena, &trainer->state) + layout->trained_count,
                              layout->parameter_count - layout->trained_count, &options);
}

/* Ranks were left behind and went on: what they did since is heard from them, and nothing is done again. */
ls_status ls_trainer_adopt(ls_trainer *trainer)
{
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    trainer->step = last_step_heard(trainer);
    trainer->granted = ls_gang_granted(trainer->gang);
    if (trainer->step < trainer->granted) {
        trainer->evaluated_step = trainer->step; /* the state is theirs until then */
    }
    ls_status status = ls_checkpoint_find_latest(&arena, trainer->dir.checkpoints, trainer->session.identity,
                                                 UINT64_MAX, &latest);
    if (status == LS_OK) {
        trainer->saved_step = latest.checkpoint ? latest.checkpoint->meta.step : trainer->saved_step;
        status = restore_frozen(trainer, &arena, latest.checkpoint);
        ls_checkpoint_close(latest.checkpoint);
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_trainer_create_gang(ls_trainer *trainer)
{
    const ls_session *session = &trainer->session;
    /* What opening took here, some multiple of it may take with all of them at once. */
    const double opening_s = ls_clock_monotonic_s() - trainer->options->start_s;
    const double asked_s = trainer->options->start_timeout_s;
    const ls_gang_hosts *hosts = trainer->options->hosts;
    const ls_gang_options options = {
        .session = session,
        .run_dir = trainer->dir.path,
        .ranks = session->ranks,
        .threads = ls_session_rank_threads(session, hosts ? hosts->local_ranks : session->ranks),
        .hosts = hosts,
        .adopt = session->run.job.lease_s > 0 && trainer->dir.had_run,
        .heard = last_step_heard(trainer),
        .start_timeout_s = asked_s > 0 ? asked_s : 60.0 + 2.0 * session->ranks * opening_s,
        .should_stop = ls_trainer_should_stop,
        .stop_context = trainer,
        .event = hear,
        .event_context = trainer,
    };
    LS_TRY(ls_gang_create(&options, &trainer->gang));
    ls_gang_state(trainer->gang, session->queue, &session->layout, &trainer->state);
    return LS_OK;
}

ls_status ls_trainer_launch_gang(ls_trainer *trainer)
{
    if (!ls_trainer_is_adopted(trainer)) {
        trainer->granted = trainer->step;
    }
    return trainer->gang ? ls_gang_launch(trainer->gang, trainer->step) : LS_OK;
}

static void tell_started(const ls_trainer *trainer)
{
    for (uint32_t rank = 0; rank < ls_gang_ranks(trainer->gang); rank++) {
        const ls_gang_member member = ls_gang_member_at(trainer->gang, rank);
        if (member.pid == 0) {
            continue; /* lost while there was no trainer */
        }
        ls_emit_event("rank_started",
                      json_pack("{s:i, s:i, s:s, s:I, s:I, s:s}", "rank", (int)rank, "pid", (int)member.pid,
                                "host", member.host, "epoch", (json_int_t)ls_gang_epoch(trainer->gang),
                                "step", (json_int_t)trainer->step, "device",
                                ls_queue_device_name(trainer->session.queue)));
    }
}

ls_status ls_trainer_await_gang(ls_trainer *trainer)
{
    if (!trainer->gang) {
        return LS_OK;
    }
    const ls_status status = ls_gang_wait(trainer->gang);
    if (status == LS_STOPPED) {
        return LS_OK; /* the loop looks at the signal */
    }
    if (status != LS_OK) {
        ls_trainer_explain_gang(trainer, status);
        return status;
    }
    tell_started(trainer);
    return LS_OK;
}

/* ---- steps ---- */

static uint64_t next_due(uint64_t step, uint64_t every_steps)
{
    return every_steps > 0 ? (step / every_steps + 1) * every_steps : UINT64_MAX;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The next step behind which the state is wanted; the first one alone, so that the machine's speed is measured while ranks wait. */
static uint64_t next_stop(const ls_trainer *trainer)
{
    const ls_run_file *run = &trainer->session.run;
    const uint64_t step = trainer->step;
    if (trainer->first_step_s == 0.0) {
        return step + 1;
    }
    uint64_t until = earlier(trainer->stop_step, ls_trainer_next_save(trainer));
    until = earlier(until, next_due(step, run->checkpoint.weights_every_steps));
    until = earlier(until, next_due(step, run->eval.every_steps));
    return earlier(until, trainer->generator ? next_due(step, run->sample.every_steps) : UINT64_MAX);
}

ls_status ls_trainer_compute(ls_trainer *trainer, double lr, ls_step_result *result_out, double *seconds_out)
{
    if (!trainer->gang) {
        const double start_s = ls_clock_monotonic_s();
        LS_TRY(ls_stepper_run(trainer->stepper, trainer->step, lr, result_out));
        *seconds_out = ls_clock_monotonic_s() - start_s;
        return LS_OK;
    }
    if (trainer->step >= trainer->granted) {
        trainer->granted = next_stop(trainer);
    }
    return ls_gang_step(trainer->gang, trainer->step, trainer->granted, result_out, seconds_out);
}

/* ---- what it is like ---- */

void ls_trainer_gather(ls_trainer *trainer)
{
    const char *text = ls_arena_strdup(&trainer->arena, ls_error_text());
    if (trainer->gang && ls_gang_gather(trainer->gang, trainer->step) != LS_OK) {
        ls_log_debug("the state of all hosts could not be brought together: %s", ls_error_text());
    }
    ls_error_clear();
    if (text[0]) {
        (void)ls_fail(LS_ERR_FAILED, "%s", text);
    }
}

bool ls_trainer_is_whole(const ls_trainer *trainer)
{
    uint64_t finished = 0;
    return !trainer->gang || (ls_gang_is_consistent(trainer->gang, &finished) && finished == trainer->step);
}

uint64_t ls_trainer_memory(ls_trainer *trainer)
{
    enum { EVERY_STEPS = 16 };
    if (!trainer->gang) {
        return ls_memory_peak();
    }
    /* The resident set of this process counts what it touched of the segment, too. */
    if (trainer->memory_bytes == 0 || trainer->step % EVERY_STEPS == 0 || trainer->step == trainer->granted) {
        const uint64_t bytes = ls_memory_private_peak() + ls_gang_memory(trainer->gang);
        trainer->memory_bytes = bytes > trainer->memory_bytes ? bytes : trainer->memory_bytes;
    }
    return trainer->memory_bytes;
}

/* ---- the end ---- */

void ls_trainer_explain_gang(ls_trainer *trainer, ls_status status)
{
    if (!trainer->gang) {
        return;
    }
    char *text = ls_arena_strdup(&trainer->arena, ls_error_text());
    uint32_t rank = 0;
    double silent_s = 0.0;
    if (ls_gang_lost(trainer->gang, &rank, &silent_s)) {
        ls_emit_event("rank_lost", json_pack("{s:i, s:s, s:f, s:I, s:b}", "rank", (int)rank, "cause", text,
                                             "detected_ms", 1e3 * silent_s, "step", (json_int_t)trainer->step,
                                             "state_whole", ls_trainer_is_whole(trainer)));
    }
    /* Events of the watch tell of whom one waits; this one that the run ended by it. */
    if (status == LS_ERR_MISMATCH && strncmp(text, "hang: ", strlen("hang: ")) == 0) {
        ls_emit_event("hang", json_pack("{s:s%, s:I}", "text", text, strcspn(text, "\n"), "step",
                                        (json_int_t)trainer->step));
    }
    ls_fail(status, "%s", text);
}
