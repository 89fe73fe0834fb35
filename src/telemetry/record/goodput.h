// SPDX-License-Identifier: Apache-2.0
/*
 * Goodput: every second of wall time belongs to exactly one class, and the classes add up to the
 * wall time.
 *
 * Each process has one account; telemetry/record/time_log.h adds up those of all starts of a run.
 * Used by one thread. Pure but for the clock.
 */
#ifndef LS_TELEMETRY_RECORD_GOODPUT_H
#define LS_TELEMETRY_RECORD_GOODPUT_H

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
    LS_TIME_LOST_WORK, /* steps computed again, or given up halfway */
    LS_TIME_WAITING,   /* the process was stopped or got no processor */
    LS_TIME_OTHER,     /* logs, reports, shutting down */
    /* between two starts, when the earlier one was lost, failed or was told to leave */
    LS_TIME_DOWN,
    /* between two starts, when the earlier one had ended or a person had interrupted it */
    LS_TIME_PAUSED,
    LS_TIME_CLASS_COUNT
} ls_time_class;

#define LS_GOODPUT_GOOD    0.7  /* from this share of useful work on there is nothing to say */
#define LS_GOODPUT_GRACE_S 10.0 /* so long nothing is said */

typedef struct ls_goodput {
    double seconds[LS_TIME_CLASS_COUNT];
    ls_time_class current;
    double since_s;  /* monotonic, when the current class began */
    double cost_usd; /* of its devices in that time; 0: no price is known */
    double energy_j; /* of its part of the machine in that time; 0: not measured */
} ls_goodput;

/* Starts in class LS_TIME_STARTUP at `start_s` (monotonic; the start of the process when known). */
void ls_goodput_begin(ls_goodput *goodput, double start_s);
/* Ends the current class and starts class `next`. */
void ls_goodput_enter(ls_goodput *goodput, ls_time_class next);
/* The same at time `now_s`; a time before the last one counts as the last one. */
void ls_goodput_enter_at(ls_goodput *goodput, ls_time_class next, double now_s);
void ls_goodput_update_at(ls_goodput *goodput, double now_s);
/* Moves `seconds` from class `from` to class `to`, at most what `from` has; returns how many. */
double ls_goodput_move(ls_goodput *goodput, ls_time_class from, ls_time_class to, double seconds);
/* Adds the seconds and the cost of `more`; the current class stays. */
void ls_goodput_add(ls_goodput *goodput, const ls_goodput *more);
/* Counts the current class up to now. */
void ls_goodput_update(ls_goodput *goodput);

double ls_goodput_wall_s(const ls_goodput *goodput);
/* Useful work as a share of all time but LS_TIME_PAUSED: 0..1. */
double ls_goodput_fraction(const ls_goodput *goodput);

/* "compute", "data", ...: the names in JSON. */
const char *ls_time_class_name(ls_time_class time_class);
/* "training", "waiting for data", ...: for people. */
const char *ls_time_class_label(ls_time_class time_class);

/*
 * When less than 70 % of the time was useful and more than 10 seconds have passed besides starting
 * up, names the largest loss and a remedy: "61 % busy: 28 % waiting for data, try ...". Otherwise
 * returns false and leaves text_out untouched.
 */
bool ls_goodput_advice(const ls_goodput *goodput, char *text_out, size_t text_bytes);

/* "92 % training, 5 % starting up, 3 % saving": classes of half a percent or more, largest
 * first. */
void ls_goodput_describe(const ls_goodput *goodput, char *text_out, size_t text_bytes);

/* {"compute": seconds, ...}. */
json_t *ls_goodput_to_json(const ls_goodput *goodput);
/* Reads what ls_goodput_to_json made. Classes that are absent or not a positive number are 0.
 * `object` may be NULL. */
void ls_goodput_from_json(const json_t *object, ls_goodput *goodput_out);

#endif
