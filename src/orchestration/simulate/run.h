// SPDX-License-Identifier: Apache-2.0
/*
 * The results of a trace: for each job, and over time. Written by the two simulators (pooled.h,
 * simulator.h), read by summary.h and simulation_page.h.
 *
 * Over time: a simulator reports what changes (a job waits, runs, ends) and when. Means over
 * intervals of equal length are kept; the length is doubled whenever there would be more than
 * LS_SIM_BUCKETS, so a trace of a minute and one of ten years take the same memory. Exact sums are
 * kept besides.
 *
 * Everything lives in the arena it was created with. One owner.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_RUN_H
#define LS_ORCHESTRATION_SIMULATE_RUN_H

#include "orchestration/simulate/trace.h"

#define LS_SIM_NEVER UINT64_MAX

enum {
    LS_SIM_BUCKETS = 1024,
    /* groups of accounts; the last one is "all others" when there are more accounts */
    LS_SIM_GROUPS = 8
};

typedef struct ls_sim_job {
    uint64_t first_start_ms, end_ms; /* LS_SIM_NEVER: that did not happen */
    uint64_t held_ms;                /* time with devices */
    uint64_t held_device_ms;         /* times the number of devices */
    uint64_t lost_device_ms;         /* of it, lost to restarts and repeated work */
    uint32_t preemptions, resizes;
    bool refused; /* it can never run on this cluster */
} ls_sim_job;

/* How many devices, or jobs, are in which state. */
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
    const char *refused_why;    /* of the first refused job; NULL: none was refused */
    uint64_t passes, decisions; /* counted by the simulator */

    uint32_t group_count;
    const char *group_names[LS_SIM_GROUPS];
    uint8_t *group_of; /* (trace->account_count) */

    uint64_t now_ms;
    ls_sim_state now;
    uint64_t bucket_ms;
    size_t bucket_count;
    ls_sim_state
        /* (LS_SIM_BUCKETS) sums of value x ms: divide by bucket_ms, the last one by its part that
         * is over */
        *buckets;
    /* while waiting jobs asked for more devices than were free: how long, and allocated devices x
     * ms */
    double short_ms, short_device_ms;
} ls_sim_run;

/* An empty run at time 0, in which no job has started. */
void ls_sim_run_init(ls_arena *arena, const ls_trace *trace, uint32_t devices, const char *policy,
                     ls_sim_run *run_out);

/* Moves time forward to now_ms. */
void ls_sim_run_advance(ls_sim_run *run, uint64_t now_ms);

/* A job starts (+1) or stops (-1) waiting for `devices` devices; having them. */
void ls_sim_run_waits(ls_sim_run *run, const ls_trace_job *job, uint32_t devices, int sign);
void ls_sim_run_runs(ls_sim_run *run, const ls_trace_job *job, uint32_t devices, int sign);

/* The mean of interval `bucket`, per millisecond. */
ls_sim_state ls_sim_run_mean(const ls_sim_run *run, size_t bucket);

#endif
