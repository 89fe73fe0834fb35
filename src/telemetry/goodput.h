// SPDX-License-Identifier: Apache-2.0
/*
 * Goodput: every second of wall time falls in exactly one class, and the classes add up to the wall time.
 *
 * One process has one; what all starts of a run add up to is telemetry/time_log.h's. Used by one thread. Pure but for the clock.
 */
#ifndef LS_TELEMETRY_GOODPUT_H
#define LS_TELEMETRY_GOODPUT_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum ls_time_class {
    LS_TIME_STARTUP, /* process start to the first step */
    LS_TIME_COMPUTE, /* forward, backward, reduction of leaves, update: useful work */
    LS_TIME_DATA,    /* waiting for samples */
    LS_TIME_COMMUNICATION,
    LS_TIME_EVALUATION,
    LS_TIME_SAMPLING,
    LS_TIME_CHECKPOINT,
    LS_TIME_RECOVERY,
    LS_TIME_LOST_WORK, /* steps done again, or given up in the middle */
    LS_TIME_WAITING,   /* stopped, starved of processors */
    LS_TIME_OTHER,     /* logs, reports, the end */
    LS_TIME_DOWN, /* nobody trained: from the end of a start that was lost, failed or told to leave, to the next */
    LS_TIME_PAUSED, /* nobody trained, and nobody wanted it: the run had ended, or a person had interrupted it */
    LS_TIME_CLASS_COUNT
} ls_time_class;

#define LS_GOODPUT_GOOD    0.7  /* from this share of useful work on there is nothing to say */
#define LS_GOODPUT_GRACE_S 10.0 /* so long nothing is said */

typedef struct ls_goodput {
    double seconds[LS_TIME_CLASS_COUNT];
    ls_time_class current;
    double since_s; /* monotonic, when the current class began */
} ls_goodput;

/* Begins in LS_TIME_STARTUP, at `start_s` (monotonic; the process's start when known). */
void ls_goodput_begin(ls_goodput *goodput, double start_s);
/* Ends the current class and begins another. */
void ls_goodput_enter(ls_goodput *goodput, ls_time_class next);
/* The same at a time of the caller's; a time before the last one counts as that one. */
void ls_goodput_enter_at(ls_goodput *goodput, ls_time_class next, double now_s);
void ls_goodput_update_at(ls_goodput *goodput, double now_s);
/* Books `seconds` of what was counted as `from` under `to` instead; at most what `from` has. */
void ls_goodput_move(ls_goodput *goodput, ls_time_class from, ls_time_class to, double seconds);
/* Adds all of `more`; what is current stays. */
void ls_goodput_add(ls_goodput *goodput, const ls_goodput *more);
/* Counts the current class up to now. */
void ls_goodput_update(ls_goodput *goodput);

double ls_goodput_wall_s(const ls_goodput *goodput);
/* Share of useful work in the time the run was wanted: all but LS_TIME_PAUSED. 0..1. */
double ls_goodput_fraction(const ls_goodput *goodput);

/* "compute", "data", ...: the names in JSON. */
const char *ls_time_class_name(ls_time_class time_class);
/* "training", "waiting for data", ...: for people. */
const char *ls_time_class_label(ls_time_class time_class);

/*
 * When less than 70 % of the time was useful, and more than 10 seconds have passed besides starting up, names the largest loss and what
 * to do about it:
 * "61 % busy: 28 % waiting for data, try ...". False, and text_out untouched, when there is nothing to say.
 */
bool ls_goodput_advice(const ls_goodput *goodput, char *text_out, size_t text_bytes);

/* "92 % training, 5 % starting up, 3 % saving": all from half a percent on, the largest first. */
void ls_goodput_describe(const ls_goodput *goodput, char *text_out, size_t text_bytes);

/* {"compute": seconds, ...}. */
json_t *ls_goodput_to_json(const ls_goodput *goodput);
/* What ls_goodput_to_json made; classes that are absent or no positive number are 0. `object` may be NULL. */
void ls_goodput_from_json(const json_t *object, ls_goodput *goodput_out);

#endif
