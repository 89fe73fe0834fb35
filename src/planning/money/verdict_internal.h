// SPDX-License-Identifier: Apache-2.0
/* What verdict.c, path_outcome.c, verdict_text.c and tipping_points.c share. */
#ifndef LS_PLANNING_MONEY_VERDICT_INTERNAL_H
#define LS_PLANNING_MONEY_VERDICT_INTERNAL_H

#include "planning/money/verdict.h"

/* The work of a question, computed once. */
typedef struct ls_verdict_work {
    double runs_per_month;                        /* 0: one run */
    double share[LS_PORTFOLIO_MOST];              /* of the runs; adds up to 1 */
    double parameters, active_parameters, tokens; /* mean over the runs */
} ls_verdict_work;

/* Which limits apply to a size. */
typedef struct ls_verdict_pass {
    bool frontier; /* sizes that need a negotiated contract are allowed */
    bool patient;  /* without a deadline, a run may take any time */
} ls_verdict_pass;

void ls_verdict_work_compute(const ls_question *question, ls_verdict_work *work_out);

/* Finds the best size of a path. Fills numbers only, not why_not. */
void ls_path_outcome_compute(const ls_question *question, const ls_verdict_work *work, const ls_path *path,
                             ls_verdict_pass pass, ls_path_outcome *outcome_out);
/* What a run costs that takes `factor` times as long as expected. */
double ls_path_outcome_run_usd_at(const ls_path_outcome *outcome, double factor);
/* What is compared with a budget: the cost at the slow end of the band. */
double ls_path_outcome_spent_usd(const ls_path_outcome *outcome);
/* The longest that a run may take on this path; INFINITY: no limit. */
double ls_path_outcome_limit_s(const ls_question *question, const ls_path *path, ls_verdict_pass pass);
/* Compares an owned path with what the same runs would cost elsewhere. */
void ls_path_outcome_compare(const ls_question *question, const ls_verdict_work *work, double rent_run_usd,
                             ls_path_outcome *outcome);

/* Everything except texts and tipping points. */
void ls_verdict_reckon(const ls_question *question, ls_verdict *verdict_out);
/* Writes why_not of all outcomes, and the reason. */
void ls_verdict_describe(const ls_question *question, ls_verdict *verdict);
/* Finds the tipping points. */
void ls_verdict_find_flips(const ls_question *question, ls_verdict *verdict);

#endif
