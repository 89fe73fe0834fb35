// SPDX-License-Identifier: Apache-2.0
/* The trainer and those who give notice: what they say becomes an event, and the end of this start. */
#include "execution/train/trainer_internal.h"

#include "base/log.h"
#include "execution/train/signals.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

ls_status ls_trainer_open_notices(ls_trainer *trainer)
{
    return ls_notice_watch_for(&trainer->session.run.job, &trainer->notices);
}

/* ---- what was said ---- */

static void tell(const char *source, double grace_s, bool leave, const char *action)
{
    ls_emit_event("notice", json_pack("{s:s, s:o, s:b, s:s}", "source", source, "grace_s",
                                      grace_s > 0.0 ? json_real(grace_s) : json_null(), "leave", leave,
                                      "action", action));
}

static void warn_of_grace(const ls_trainer *trainer, double grace_s)
{
    if (grace_s > 0.0 && trainer->save_s > grace_s) {
        ls_log_warn(
            "a checkpoint took %.1f s, and this machine is to be gone in %.0f s: should this one not be "
            "finished, the run goes on from step %" PRIu64,
            trainer->save_s, grace_s, trainer->saved_step == UINT64_MAX ? 0 : trainer->saved_step);
    }
}

static void hear(ls_trainer *trainer, const ls_notice *notice)
{
    const char *source = ls_notice_source_name(notice->source);
    tell(source, notice->grace_s, notice->leave, notice->action);
    if (!notice->leave) {
        ls_log_warn("%s says: %s", source, notice->action);
        return;
    }
    trainer->leaving = true;
    ls_progress_print(trainer->progress, "notice from %s: %s", source, notice->action);
    warn_of_grace(trainer, notice->grace_s);
}

void ls_trainer_hear_notices(ls_trainer *trainer)
{
    if (!trainer->log) {
        return; /* nobody could be told yet: they are taken later */
    }
    ls_notice notice;
    while (ls_notice_watch_take(trainer->notices, &notice)) {
        hear(trainer, &notice);
    }
    if (!trainer->leaving && atomic_load(&trainer->shared.stop_asked)) {
        trainer->leaving = true;
        tell("control", 0.0, true, "save and end with 75");
    }
    if (!trainer->told_signal && ls_signals_status() == LS_STOPPED) {
        trainer->told_signal = true;
        tell("signal", 0.0, true, "save and end with 75");
    }
}

/* ---- what is known beforehand ---- */

static double least_grace_s(const ls_notice_watch *watch)
{
    double least_s = INFINITY;
    for (int s = 0; s < LS_NOTICE_SOURCES; s++) {
        const double grace_s = ls_notice_source_grace_s((ls_notice_source)s);
        if ((ls_notice_watch_sources(watch) & 1u << s) && grace_s > 0.0) {
            least_s = fmin(least_s, grace_s);
        }
    }
    return least_s;
}

void ls_trainer_note_save(ls_trainer *trainer, double seconds)
{
    trainer->save_s = seconds;
    if (trainer->notices && !trainer->told_late && seconds > least_grace_s(trainer->notices)) {
        trainer->told_late = true;
        ls_log_warn(
            "a checkpoint takes %.1f s here, and whoever gives notice grants %.0f s: what was trained since "
            "the newest checkpoint may be lost then. A smaller checkpoint.every_steps or a faster disk "
            "helps",
            seconds, least_grace_s(trainer->notices));
    }
}
