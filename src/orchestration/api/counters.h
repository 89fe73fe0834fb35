// SPDX-License-Identifier: Apache-2.0
/*
 * Counters: what happened since the daemon started, for /metrics. They only grow; a restarted
 * daemon starts at 0, which Prometheus handles. Pure; one owner.
 */
#ifndef LS_ORCHESTRATION_API_COUNTERS_H
#define LS_ORCHESTRATION_API_COUNTERS_H

#include "base/text.h"
#include "orchestration/control/controller.h"

enum { LS_API_BUCKETS = 10 };

typedef struct ls_api_histogram {
    uint64_t counts[LS_API_BUCKETS + 1]; /* not cumulative; the last: above all bounds */
    double sum;
} ls_api_histogram;

typedef struct ls_api_counters {
    uint64_t succeeded, failed, cancelled;
    uint64_t started; /* a restart counts again */
    uint64_t preempted, lost;
    ls_api_histogram wait_s; /* from submission to the first start */
    ls_api_histogram turn_s; /* of the daemon */
} ls_api_counters;

/* job: its state after the turn. */
void ls_api_counters_tell(ls_api_counters *counters, const ls_transition *transition, const ls_job *job);
void ls_api_counters_turn(ls_api_counters *counters, double seconds);
/* In Prometheus' text format. */
void ls_api_counters_append(const ls_api_counters *counters, ls_text *text);

#endif
