// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/alert.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOSSES_MIN = 20 };       /* fewer say nothing about what is usual */
#define MEMORY     (1.0 / 32.0) /* by which a loss moves the mean */
#define SPREAD_MIN 0.01         /* of the mean: quieter losses count as this */

static const char *const names[LS_ALERT_KINDS] = {
    [LS_ALERT_OTHER] = "other",      [LS_ALERT_NOT_FINITE] = "not_finite",   [LS_ALERT_LOSS_SPIKE] = "spike",
    [LS_ALERT_STALL] = "stall",      [LS_ALERT_UTILISATION] = "utilisation", [LS_ALERT_IDLE] = "idle",
    [LS_ALERT_CAP] = "cap",          [LS_ALERT_BUDGET] = "budget",           [LS_ALERT_DISK] = "disk",
    [LS_ALERT_RANKS] = "lost_ranks", [LS_ALERT_DEADLINE] = "deadline",
};

const char *ls_alert_name(ls_alert_kind kind)
{
    return names[kind];
}

ls_alert_kind ls_alert_named(const char *name)
{
    for (int kind = 0; name && kind < LS_ALERT_KINDS; kind++) {
        if (strcmp(names[kind], name) == 0) {
            return (ls_alert_kind)kind;
        }
    }
    return LS_ALERT_OTHER;
}

/* ---- holding ---- */

static void ceases(ls_alert_watch *watch, ls_alert_kind kind)
{
    watch->holding &= ~(UINT32_C(1) << kind);
}

static void holds(ls_alert_watch *watch, ls_alert_kind kind, const char *format, ...) LS_PRINTF(3, 4);
static void holds(ls_alert_watch *watch, ls_alert_kind kind, const char *format, ...)
{
    char text[LS_ALERT_TEXT_BYTES];
    va_list arguments;
    if (watch->holding >> kind & 1) {
        return;
    }
    watch->holding |= UINT32_C(1) << kind;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    watch->tell(watch->context, kind, text);
}

void ls_alert_watch_begin(ls_alert_watch *watch, const ls_run_alerts *rules)
{
    watch->rules = rules;
    watch->holding = 0;
    watch->losses = 0;
    watch->step_at_s = watch->window_from_s = 0.0;
}

void ls_alert_watch_happened(ls_alert_watch *watch, ls_alert_kind kind, const char *text)
{
    const bool matters = kind == LS_ALERT_NOT_FINITE ? watch->rules->not_finite
                         : kind == LS_ALERT_RANKS    ? watch->rules->lost_ranks
                                                     : true;
    if (matters) {
        ceases(watch, kind); /* each is news */
        holds(watch, kind, "%s", text);
    }
}

/* ---- steps ---- */

static void look_at_loss(ls_alert_watch *watch, uint64_t step, double loss)
{
    const double spread = fmax(watch->loss_spread, SPREAD_MIN * fabs(watch->loss_mean));
    const bool is_spike = watch->rules->loss_spike > 0.0 && watch->losses >= LOSSES_MIN &&
                          loss > watch->loss_mean + watch->rules->loss_spike * spread;
    if (is_spike) {
        holds(watch, LS_ALERT_LOSS_SPIKE,
              "the loss rose to %.4g at step %" PRIu64
              ", while the steps before had %.4g, give or take %.2g (alerts.loss_spike: %.3g times that)",
              loss, step, watch->loss_mean, spread, watch->rules->loss_spike);
        return; /* a spike is not what is usual */
    }
    ceases(watch, LS_ALERT_LOSS_SPIKE);
    const double weight = fmax(MEMORY, 1.0 / (double)(watch->losses + 1));
    watch->loss_spread += weight * (fabs(loss - watch->loss_mean) * (watch->losses > 0) - watch->loss_spread);
    watch->loss_mean += weight * (loss - watch->loss_mean);
    watch->losses++;
}

void ls_alert_watch_step(ls_alert_watch *watch, uint64_t step, double loss, double now_s)
{
    watch->step = step;
    watch->step_at_s = now_s;
    ceases(watch, LS_ALERT_STALL);
    if (isfinite(loss)) {
        look_at_loss(watch, step, loss);
    }
}

/* ---- time ---- */

/* "28 % waiting for data": what took most of a window besides computing. */
static ls_time_class largest_loss(const ls_goodput *from, const ls_goodput *now)
{
    ls_time_class largest = LS_TIME_OTHER;
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        const double seconds = now->seconds[i] - from->seconds[i];
        if (i != LS_TIME_COMPUTE && seconds > now->seconds[largest] - from->seconds[largest]) {
            largest = (ls_time_class)i;
        }
    }
    return largest;
}

static void look_at_window(ls_alert_watch *watch, const ls_goodput *time, double now_s)
{
    const double span_s = now_s - watch->window_from_s, least = watch->rules->utilisation;
    if (watch->window_from_s > 0.0 && span_s < watch->rules->utilisation_for_s) {
        return;
    }
    if (watch->window_from_s > 0.0) {
        const ls_goodput *from = &watch->window_from;
        const double busy = (time->seconds[LS_TIME_COMPUTE] - from->seconds[LS_TIME_COMPUTE]) / span_s;
        const ls_time_class why = largest_loss(from, time);
        if (busy < least) {
            holds(watch, LS_ALERT_UTILISATION,
                  "only %.0f %% of the last %s was spent computing, less than %.0f %% (alerts.utilisation): "
                  "%.0f %% was spent %s",
                  100.0 * busy, ls_duration_of(span_s).text, 100.0 * least,
                  100.0 * (time->seconds[why] - from->seconds[why]) / span_s, ls_time_class_label(why));
        } else {
            ceases(watch, LS_ALERT_UTILISATION);
        }
    }
    watch->window_from_s = now_s;
    watch->window_from = *time;
}

void ls_alert_watch_tick(ls_alert_watch *watch, const ls_goodput *time, double now_s)
{
    const double stall_s = watch->rules->stall_s;
    if (watch->step_at_s <= 0.0) {
        return; /* it has not begun to train */
    }
    if (stall_s > 0.0 && now_s - watch->step_at_s >= stall_s) {
        holds(watch, LS_ALERT_STALL, "no step has ended for %s, since step %" PRIu64 " (alerts.stall)",
              ls_duration_of(now_s - watch->step_at_s).text, watch->step);
    }
    if (watch->rules->utilisation_for_s > 0.0) {
        look_at_window(watch, time, now_s);
    }
}

void ls_alert_watch_disk(ls_alert_watch *watch, const char *folder, uint64_t free_bytes)
{
    const uint64_t least = watch->rules->disk_bytes;
    if (free_bytes >= least + least / 8) { /* not again for every block that is freed */
        ceases(watch, LS_ALERT_DISK);
    } else if (free_bytes < least) {
        holds(watch, LS_ALERT_DISK,
              "the disk of %.160s has only %" PRIu64 " MiB left, less than %" PRIu64 " MiB (alerts.disk)",
              folder, free_bytes >> 20, least >> 20);
    }
}
