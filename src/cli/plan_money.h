// SPDX-License-Identifier: Apache-2.0
/*
 * plan: the question about money while it is put together: the work, the prices, the paths with their sizes. plan_compare.c adds the paths where no machine was named,
 * plan_money.c those of the one that was, and both let it be decided.
 */
#ifndef LS_CLI_PLAN_MONEY_H
#define LS_CLI_PLAN_MONEY_H

#include "cli/plan.h"

/* An own offer's, and the catalogue's price. */
enum { LS_PLAN_PATHS_KEPT = 2 };

typedef struct ls_plan_money {
    ls_plan_answer *answer;
    ls_path_settings prices;
    ls_plan_work models[LS_PORTFOLIO_MOST];
    ls_workload workloads[LS_PORTFOLIO_MOST];
    size_t workload_count;
    double parameters_most;
    ls_path paths[LS_PATHS_MOST];
    size_t path_count;
    size_t
        kinds_left; /* kinds of paths that are still to come: room for some of each is kept; 0: not known */
} ls_plan_money;

/* The work and the prices, without paths; in the answer's arena. */
LS_MUST_CHECK ls_status ls_plan_money_begin(ls_plan_answer *answer, ls_plan_money **money_out);

/* Adds the paths of a kind, one for each price; where there is none the assumptions say so. */
LS_MUST_CHECK ls_status ls_plan_money_add_path(ls_plan_money *money, ls_path_kind kind, const ls_node *node,
                                               bool is_here);

/* Adds a size to the paths from `first` on, which share a node. Returns the speed of the slowest workload. */
double ls_plan_money_add_size(ls_plan_money *money, size_t first, const ls_node *node, int64_t gpus);

/* The verdict over all paths, and the outcome that the answer is about. Errors: LS_ERR_INVALID when money was asked about and no price is known. */
LS_MUST_CHECK ls_status ls_plan_money_decide(ls_plan_money *money);

/* Whether so many stand under a desk: few cards without a network of their own. */
bool ls_plan_is_workstation(const ls_node *node, int64_t gpus);

#endif
