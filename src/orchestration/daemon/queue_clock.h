// SPDX-License-Identifier: Apache-2.0
/*
 * Queue clock: the time by which the queue counts. It runs as long as the machine does, suspended
 * or not, and does not jump when somebody sets the clock of the wall: no limit is reached, no hour
 * is billed and no job begins because of that.
 *
 *   now = seconds since boot + offset          offset: the wall clock's lead when the queue was first
 *                                              opened after this boot, kept in HOME/clock
 *   ahead = wall clock - now                   what people see is now + ahead
 */
#ifndef LS_ORCHESTRATION_DAEMON_QUEUE_CLOCK_H
#define LS_ORCHESTRATION_DAEMON_QUEUE_CLOCK_H

#include "env/env.h"

typedef struct ls_queue_clock {
    ls_env *env;
    double offset_s;
} ls_queue_clock;

ls_queue_clock ls_queue_clock_open(ls_env *env, const char *home);
/* Seconds since 1970, by a clock that nobody has set since this machine was started. */
double ls_queue_clock_now_s(const ls_queue_clock *clock);
/* 0 for less than a second. */
double ls_queue_clock_ahead_s(const ls_queue_clock *clock);

#endif
