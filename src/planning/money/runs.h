// SPDX-License-Identifier: Apache-2.0
/*
 * The runs of a question, one by one: how long each takes on a path and what it costs there. A
 * month of them adds up to the path's own monthly figure.
 *
 * The path's cost of a run is the mean over the runs of a month. Each run pays by its GPU-hours for
 * everything paid by the hour or the year, by its checkpoints and text for storage, and by its
 * weights for egress.
 *
 * Pure; allocates nothing; thread-safe.
 */
#ifndef LS_PLANNING_MONEY_RUNS_H
#define LS_PLANNING_MONEY_RUNS_H

#include "planning/money/verdict.h"

typedef struct ls_run_outcome {
    const ls_workload *workload;
    double runs_per_month;
    int64_t gpus;
    double days; /* of training; the path's lead time is not in it */
    double gpu_hours;
    double usd;       /* one run, everything in it */
    double month_usd; /* all of them in a month */
    double share;     /* of the month's money, 0 to 1 */
} ls_run_outcome;

typedef struct ls_runs {
    ls_run_outcome items[LS_PORTFOLIO_MOST]; /* in the question's order */
    size_t count;                            /* 0: not all of them fit on the path */
    size_t longest;                          /* an item */
    double runs_per_month, month_usd;        /* of all */
} ls_runs;

/* `outcome` is one of the question's paths with machines; with runs_per_month 0 (one run) the
 * months are 0. */
void ls_runs_compute(const ls_question *question, const ls_path_outcome *outcome, ls_runs *runs_out);

#endif
