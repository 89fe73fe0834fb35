// SPDX-License-Identifier: Apache-2.0
/* Reasons to stop: signals, the time limit, the cap, a request, and preemption notices, which also
 * become events. */
#include "execution/run/trainer_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "execution/run/signals.h"

#include <inttypes.h>
#include <math.h>

ls_status ls_trainer_stop_status(const ls_trainer *trainer)
{
    const double limit_s = trainer->session.run.job.time_limit_s, now_s = ls_clock_monotonic_s();
    if ((limit_s > 0.0 && now_s - trainer->options->start_s > limit_s) ||
        ls_meter_is_over(&trainer->control.meter, now_s)) {
        return LS_STOPPED;
    }
    const ls_status signal = ls_signals_status();
    return signal == LS_OK && trainer->control.leaving ? LS_STOPPED : signal;
}

/* ---- notices ---- */

ls_status ls_trainer_open_notices(ls_trainer *trainer)
{
    return ls_preemption_watch_for(&trainer->session.run.job, &trainer->control.notices);
}

static void send_notice(const char *source, double grace_s, bool leave, const char *action)
{
    ls_emit_event("notice", json_pack("{s:s, s:o, s:b, s:s}", "source", source, "grace_s",
                                      grace_s > 0.0 ? json_real(grace_s) : json_null(), "leave", leave,
                                      "action", action));
}

static void warn_of_short_grace(const ls_trainer_saving *saving, double grace_s)
{
    if (grace_s > 0.0 && saving->write_s > grace_s) {
        ls_log_warn("the last checkpoint took %.1f s, and this machine goes away in %.0f s: if the next one "
                    "cannot be finished, the run continues from step %" PRIu64,
                    saving->write_s, grace_s, saving->saved_step == UINT64_MAX ? 0 : saving->saved_step);
    }
}

static void act_on(ls_trainer *trainer, const ls_preemption_notice *notice)
{
    const char *source = ls_preemption_source_name(notice->source);
    send_notice(source, notice->grace_s, notice->leave, notice->action);
    if (!notice->leave) {
        ls_log_warn("preemption notice from %s: %s", source, notice->action);
        return;
    }
    trainer->control.leaving = true;
    ls_progress_print(trainer->books.progress, "preemption notice from %s: %s", source, notice->action);
    warn_of_short_grace(&trainer->saving, notice->grace_s);
}

/* Sends new notices and requests to stop as events, each once, and acts on them. */
static void poll_notices(ls_trainer *trainer)
{
    if (!trainer->books.log) {
        return; /* there is no log yet: the notices stay where they are until then */
    }
    ls_preemption_notice notice;
    while (ls_preemption_watch_take(trainer->control.notices, &notice)) {
        act_on(trainer, &notice);
    }
    if (!trainer->control.leaving && atomic_load(&trainer->control.shared.stop_asked)) {
        trainer->control.leaving = true;
        send_notice("control", 0.0, true, "save and end with 75");
    }
    if (!trainer->control.has_reported_signal && ls_signals_status() == LS_STOPPED) {
        trainer->control.has_reported_signal = true;
        send_notice("signal", 0.0, true, "save and end with 75");
    }
}

void ls_trainer_note_energy(ls_trainer *trainer)
{
    ls_trainer_control *control = &trainer->control;
    if (control->rapl) {
        trainer->books.goodput.energy_j +=
            1e-6 * control->energy_part * (double)ls_rapl_take_uj(control->rapl);
    }
}

/* Brings the cost up to date, and tells once that it has reached the cap. */
static void watch_cost(ls_trainer *trainer)
{
    ls_trainer_control *control = &trainer->control;
    ls_meter *meter = &control->meter;
    const double now_s = ls_clock_monotonic_s();
    const uint32_t devices =
        trainer->backend.workers ? ls_workers_ranks(trainer->backend.workers) : meter->devices;
    trainer->books.goodput.cost_usd = ls_meter_note(meter, devices > 0 ? devices : meter->devices, now_s);
    if (now_s - control->energy_read_s >= 1.0) {
        control->energy_read_s = now_s;
        ls_trainer_note_energy(trainer);
    }
    if (control->has_told_cap || !trainer->books.log || !ls_meter_is_over(meter, now_s)) {
        return;
    }
    control->has_told_cap = true;
    ls_trainer_alert(trainer, LS_ALERT_CAP,
                     ls_arena_printf(&trainer->arena,
                                     "the run has cost %.2f USD, and its cap is %.2f USD (job.max_cost): it "
                                     "saves and stops, and continues when the cap is raised",
                                     ls_meter_usd(meter, now_s), meter->cap_usd));
}

bool ls_trainer_should_stop(void *context)
{
    ls_trainer *trainer = context;
    watch_cost(trainer);
    ls_trainer_watch_alerts(trainer);
    ls_time_log_note(trainer->books.time_log);
    poll_notices(trainer);
    return ls_trainer_stop_status(trainer) != LS_OK;
}

/* ---- the notice period ---- */

/* The shortest period that the configured sources of notices grant; INFINITY if none is known. */
static double least_grace_s(const ls_preemption_watch *watch)
{
    double least_s = INFINITY;
    for (int s = 0; s < LS_PREEMPTION_SOURCES; s++) {
        const double grace_s = ls_preemption_source_grace_s((ls_preemption_source)s);
        if ((ls_preemption_watch_sources(watch) & 1u << s) && grace_s > 0.0) {
            least_s = fmin(least_s, grace_s);
        }
    }
    return least_s;
}

void ls_trainer_note_save(ls_trainer *trainer, double seconds)
{
    trainer->saving.write_s = seconds;
    if (trainer->control.notices && !trainer->control.has_warned_of_grace &&
        seconds > least_grace_s(trainer->control.notices)) {
        trainer->control.has_warned_of_grace = true;
        ls_log_warn(
            "a checkpoint takes %.1f s, but a preemption notice leaves only %.0f s: steps since the newest "
            "checkpoint may then be lost. Use a smaller checkpoint.every_steps or a faster disk",
            seconds, least_grace_s(trainer->control.notices));
    }
}
