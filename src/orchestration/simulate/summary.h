// SPDX-License-Identifier: Apache-2.0
/*
 * The numbers of a run: averages, tails, by size and by account, and how fair it was.
 *
 *   JCT          job completion time: from submission to end
 *   wait         the part of it without devices: before the first start, and between a preemption
 *                and the next start
 *   utilization  useful device time over devices x makespan; what restarts lost is not useful
 *   makespan     from the first submission to the last end
 *   fairness     of an interval: what accounts had of their fair shares, the sum of min(had, fair)
 *                over the sum of fair. A fair share divides the cluster evenly, and what an account
 *                does not ask for among the others (max-min)
 *
 * Pure.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_SUMMARY_H
#define LS_ORCHESTRATION_SIMULATE_SUMMARY_H

#include "base/json.h"
#include "base/text.h"
#include "orchestration/simulate/run.h"

enum { LS_SIM_SIZES = 6 };

/* The numbers of a part of the jobs, in hours. */
typedef struct ls_sim_part {
    const char *name;
    size_t jobs;
    double jct_h, wait_h, wait_p50_h, wait_p99_h; /* means, median, 99th percentile */
    double device_h;                              /* device-hours that they had */
    double slowdown;                              /* mean of JCT over run time */
} ls_sim_part;

typedef struct ls_sim_summary {
    const ls_sim_run *run;
    ls_sim_part all;
    ls_sim_part sizes[LS_SIM_SIZES];
    ls_sim_part groups[LS_SIM_GROUPS]; /* of accounts */
    size_t refused;
    double jct_p50_h, jct_p99_h, makespan_h;
    double utilization, allocated; /* fractions of devices x makespan: useful, given to jobs */
    /* while waiting jobs asked for more than was free: for how long, and which part was allocated;
     * 1 when that never happened */
    double short_h, allocated_when_short;
    uint64_t preemptions, resizes;
    double lost_device_h;
    double fairness;      /* mean over time, weighted by the fair shares */
    const double *jcts_h; /* (all.jobs) sorted */
    /* (run->bucket_count) of each interval; NAN where no account asks for anything */
    const double *fair_over;
} ls_sim_summary;

void ls_sim_summarise(ls_arena *arena, const ls_sim_run *run, ls_sim_summary *summary_out);

/* What each group of accounts had in an interval and what its fair share was, in devices. Each
 * array: (run->group_count). */
void ls_sim_fair_shares(const ls_sim_run *run, const ls_sim_state *mean, double *had, double *fair);

/* What --json prints; a new reference. */
json_t *ls_sim_summary_json(const ls_sim_summary *summary);

/* The text for a terminal. */
void ls_sim_summary_append(const ls_sim_summary *summary, ls_text *text);

/* One line per job of the trace, as CSV with a header. */
void ls_sim_jobs_append(const ls_sim_run *run, ls_text *text);

#endif
