// SPDX-License-Identifier: Apache-2.0
/*
 * Alerts of a run: what is worth a person's attention, told once, in a sentence that says what and
 * why. The rules are the section `alerts` of the run file; docs/alerts.md lists them.
 *
 * The watch is fed with finished steps, the account of time, and free disk space. A rule that
 * begins to hold calls `tell` once; it may tell again after it has ceased to hold.
 *
 * Pure but for `tell`. Used by one thread; no allocation.
 */
#ifndef LS_TELEMETRY_RECORD_ALERT_H
#define LS_TELEMETRY_RECORD_ALERT_H

#include "config/run_file.h"
#include "telemetry/record/goodput.h"

#include <stdint.h>

typedef enum ls_alert_kind {
    LS_ALERT_OTHER,       /* of a program that says so itself */
    LS_ALERT_NOT_FINITE,  /* a loss or gradient is not a number */
    LS_ALERT_LOSS_SPIKE,  /* the loss is far above that of the steps before */
    LS_ALERT_STALL,       /* no step has ended for a long time */
    LS_ALERT_UTILISATION, /* devices are busy for too small a part of the time */
    LS_ALERT_IDLE,        /* devices that a job holds do nothing */
    LS_ALERT_CAP,         /* the cost of a job has reached its cap */
    LS_ALERT_BUDGET,      /* an account has used 80 % or all of its budget */
    LS_ALERT_DISK,        /* little space is left */
    LS_ALERT_RANKS,       /* ranks, or all processes of a job, were lost */
    LS_ALERT_DEADLINE,    /* the expected end is after the deadline */
    LS_ALERT_KINDS
} ls_alert_kind;

enum { LS_ALERT_TEXT_BYTES = 320 };

/* "not_finite", ... */
const char *ls_alert_name(ls_alert_kind kind);
/* LS_ALERT_OTHER for other names and NULL. */
ls_alert_kind ls_alert_named(const char *name);

typedef struct ls_alert_watch {
    const ls_run_alerts *rules;
    void (*tell)(void *context, ls_alert_kind kind, const char *text);
    void *context;
    uint32_t holding; /* kinds that were told and still hold, as bits */
    uint64_t step;
    double step_at_s; /* monotonic; when it ended, or training began; 0: not yet */
    /* of the losses so far: mean and mean distance from it, with older steps counting less */
    double loss_mean, loss_spread;
    uint64_t losses;
    double window_from_s; /* the window in which utilisation is measured; 0: none yet */
    ls_goodput window_from;
} ls_alert_watch;

/* rules: borrowed. */
void ls_alert_watch_begin(ls_alert_watch *watch, const ls_run_alerts *rules);
/* Training is about to begin at step + 1, or has finished this step. loss NAN: not known. */
void ls_alert_watch_step(ls_alert_watch *watch, uint64_t step, double loss, double now_s);
/* time: the account of this process, up to now. */
void ls_alert_watch_tick(ls_alert_watch *watch, const ls_goodput *time, double now_s);
void ls_alert_watch_disk(ls_alert_watch *watch, const char *folder, uint64_t free_bytes);
/* Tells once what has happened, unless the rules say that it does not matter. */
void ls_alert_watch_happened(ls_alert_watch *watch, ls_alert_kind kind, const char *text);

#endif
