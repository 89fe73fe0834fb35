// SPDX-License-Identifier: Apache-2.0
/*
 * Alerts of a run (telemetry/record/alert.h): on the terminal, in events.jsonl, and for the queue.
 *
 * A job of the queue has a folder, LOCKSTEP_JOB_DIR. Whatever appears there under the name
 * alerts.jsonl, by rename, is read by the daemon at once: one object {"kind", "text"} a line. So a
 * program of job.command can raise alerts, too.
 */
#include "execution/run/trainer_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include <math.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#define DISK_LOOK_S 2.0

static void write_for_queue(ls_trainer_alerts *alerts)
{
    if (alerts->file &&
        ls_file_write_atomic(alerts->file, alerts->lines.data, alerts->lines.bytes) != LS_OK) {
        ls_log_warn("the queue does not hear of alerts: %s", ls_error_text());
        ls_error_clear();
        alerts->file = NULL;
    }
}

static void tell(void *context, ls_alert_kind kind, const char *text)
{
    ls_trainer *trainer = context;
    ls_trainer_alerts *alerts = &trainer->alerts;
    json_t *fields = json_pack("{s:s, s:s, s:I}", "kind", ls_alert_name(kind), "text", text, "step",
                               (json_int_t)trainer->loop.step);
    char *line = fields ? json_dumps(fields, JSON_COMPACT) : NULL;
    ls_progress_print(trainer->books.progress, "alert: %s", text);
    if (line && alerts->count++ < LS_TRAINER_ALERTS_MAX) {
        ls_text_printf(&alerts->lines, "%s\n", line);
        write_for_queue(alerts);
    }
    free(line);
    ls_emit_event("alert", fields);
}

void ls_trainer_begin_alerts(ls_trainer *trainer)
{
    ls_trainer_alerts *alerts = &trainer->alerts;
    const char *folder = getenv("LOCKSTEP_JOB_DIR");
    alerts->watch.tell = tell;
    alerts->watch.context = trainer;
    alerts->file = folder && folder[0] ? ls_path_join(&trainer->arena, folder, "alerts.jsonl") : NULL;
    ls_alert_watch_begin(&alerts->watch, &trainer->session.run.alerts);
    ls_alert_watch_step(&alerts->watch, trainer->loop.step, NAN, ls_clock_monotonic_s());
}

static void look_at_disk(ls_trainer *trainer, double now_s)
{
    struct statvfs disk;
    if (trainer->session.run.alerts.disk_bytes == 0 || now_s - trainer->alerts.disk_at_s < DISK_LOOK_S) {
        return;
    }
    trainer->alerts.disk_at_s = now_s;
    if (statvfs(trainer->dir.path, &disk) == 0) {
        ls_alert_watch_disk(&trainer->alerts.watch, trainer->dir.path,
                            (uint64_t)disk.f_bavail * disk.f_frsize);
    }
}

void ls_trainer_watch_alerts(ls_trainer *trainer)
{
    if (!trainer->alerts.watch.rules || !trainer->books.log || !trainer->books.progress) {
        return;
    }
    const double now_s = ls_clock_monotonic_s();
    ls_goodput_update_at(&trainer->books.goodput, now_s);
    ls_alert_watch_tick(&trainer->alerts.watch, &trainer->books.goodput, now_s);
    look_at_disk(trainer, now_s);
}

void ls_trainer_alert(ls_trainer *trainer, ls_alert_kind kind, const char *text)
{
    if (trainer->alerts.watch.rules) {
        ls_alert_watch_happened(&trainer->alerts.watch, kind, text);
    }
}
