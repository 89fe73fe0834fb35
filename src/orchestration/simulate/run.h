// SPDX-License-Identifier: Apache-2.0
/*
 * What came of a trace: of each job, and over time. Written by the two simulators (simulate/pooled.h, simulate/simulator.h), read by
 * simulate/summary.h and simulate/page.h.
 *
 * Over time: a simulator says what changes (a job waits, runs, ends) and when; kept are means over intervals of equal length, twice as long whenever there
 * would be more than LS_SIM_BUCKETS, so that a trace of a minute and one of ten years take the same memory. Exact sums are kept beside.
 *
 * Everything lives in the arena it was created with. One owner.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_RUN_H
#define LS_ORCHESTRATION_SIMULATE_RUN_H

#include "orchestration/simulate/trace.h"

#define LS_SIM_NEVER UINT64_MAX

enum {
    LS_SIM_BUCKETS = 1024,
    LS_SIM_GROUPS = 8 /* of accounts that are looked at one by one; the last are all others */
};

typedef struct ls_sim_job {
    uint64_t first_start_ms, end_ms; /* LS_SIM_NEVER: it did not */
    uint64_t held_ms;                /* with devices */
    uint64_t held_device_ms;         /* times how many */
    uint64_t lost_device_ms;         /* of it: restarts, and work done again */
    uint32_t preemptions, resizes;
    bool refused; /* can never run there */
} ls_sim_job;

/* The number of devices, or of jobs, in one state. */
typedef struct ls_sim_state {
    double allocated, wanted; /* devices that jobs have; devices that waiting jobs ask for */
    double running, waiting;  /* jobs */
    double group_allocated[LS_SIM_GROUPS], group_wanted[LS_SIM_GROUPS];
} ls_sim_state;

typedef struct ls_sim_run {
    const ls_trace *trace;
    const char *policy;
    bool pooled;
    uint32_t devices;
    ls_sim_job *jobs; /* (trace->job_count) */
    size_t unfinished;
    const char *refused_why;    /* of the first that was refused; NULL: none was */
    uint64_t passes, decisions; /* of the policy core */

    uint32_t group_count;
    const char *group_names[LS_SIM_GROUPS];
    uint8_t *group_of; /* (trace->account_count) */

    uint64_t now_ms;
    ls_sim_state now;
    uint64_t bucket_ms;
    size_t bucket_count;
    ls_sim_state
        *buckets; /* (LS_SIM_BUCKETS), sums: value x ms; divide by bucket_ms, the last one by what is in it */
    double short_ms,
        short_device_ms; /* while waiting jobs asked for more devices than were free: how long, and devices allocated then x ms */
} ls_sim_run;

/* An empty run at time 0: all jobs neither started nor ended. */
void ls_sim_run_init(ls_arena *arena, const ls_trace *trace, uint32_t devices, const char *policy,
                     ls_sim_run *run_out);

/* Time goes on; not back. */
void ls_sim_run_advance(ls_sim_run *run, uint64_t now_ms);

/* A job begins (+1) or ceases (-1) to wait for so many devices; to have so many. */
void ls_sim_run_waits(ls_sim_run *run, const ls_trace_job *job, uint32_t devices, int sign);
void ls_sim_run_runs(ls_sim_run *run, const ls_trace_job *job, uint32_t devices, int sign);

/* The mean of interval `bucket`, per millisecond. */
ls_sim_state ls_sim_run_mean(const ls_sim_run *run, size_t bucket);

#endif
