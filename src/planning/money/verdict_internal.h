// SPDX-License-Identifier: Apache-2.0
/* What verdict.c, path_outcome.c, verdict_text.c and flip.c share. */
#ifndef LS_PLANNING_MONEY_VERDICT_INTERNAL_H
#define LS_PLANNING_MONEY_VERDICT_INTERNAL_H

#include "planning/money/verdict.h"

/* The work of a question, reckoned once. */
typedef struct ls_verdict_work {
    double runs_per_month;                        /* 0: one run */
    double share[LS_PORTFOLIO_MOST];              /* of the runs, adds up to 1 */
    double parameters, active_parameters, tokens; /* mean over the runs */
} ls_verdict_work;

/* How strict a look at the sizes is. */
typedef struct ls_verdict_pass {
    bool frontier; /* sizes that nobody rents out without a contract too */
    bool patient;  /* without a deadline: any length of a run will do */
} ls_verdict_pass;

void ls_verdict_work_compute(const ls_question *question, ls_verdict_work *work_out);

/* The best size of a path, numbers only: why_not is not written. */
void ls_path_outcome_compute(const ls_question *question, const ls_verdict_work *work, const ls_path *path,
                             ls_verdict_pass pass, ls_path_outcome *outcome_out);
/* What a run costs that takes `factor` times as long as expected. */
double ls_path_outcome_run_usd_at(const ls_path_outcome *outcome, double factor);
/* What is held against a budget: at the slow end of the band. */
double ls_path_outcome_spent_usd(const ls_path_outcome *outcome);
/* What the price of this path alone is multiplied with. */
double ls_question_offer_factor(const ls_question *question, const ls_path *path);
/* The longest that a run may take on this path; INFINITY: anything. */
double ls_path_outcome_limit_s(const ls_question *question, const ls_path *path, ls_verdict_pass pass);
/* An owned path set against what the same runs would cost elsewhere. */
void ls_path_outcome_compare(const ls_question *question, const ls_verdict_work *work, double rent_run_usd,
                             ls_path_outcome *outcome);

/* Everything but texts and flips. */
void ls_verdict_reckon(const ls_question *question, ls_verdict *verdict_out);
/* why_not of all outcomes, and the reason. */
void ls_verdict_describe(const ls_question *question, ls_verdict *verdict);
/* The nearest changes. */
void ls_verdict_find_flips(const ls_question *question, ls_verdict *verdict);

#endif
