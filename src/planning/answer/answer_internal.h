// SPDX-License-Identifier: Apache-2.0
/* What the files of planning/answer share. */
#ifndef LS_PLANNING_ANSWER_ANSWER_INTERNAL_H
#define LS_PLANNING_ANSWER_ANSWER_INTERNAL_H

#include "planning/answer/answer.h"

/* ---- question.c ---- */

/* Reads the question: catalogue, model, node and GPU count (0: not named), tokens, strategy. */
LS_MUST_CHECK ls_status ls_plan_read_question(ls_plan_answer *answer);
/* The setting for the answer's node and count, with an assumption for every value it chooses. */
LS_MUST_CHECK ls_status ls_plan_settle(ls_plan_answer *answer);
/* A number with a unit of thousands: "1.4T", "300e9", "2 M", "15000". Errors: LS_ERR_INVALID with
 * the option's name and the range. */
LS_MUST_CHECK ls_status ls_plan_parse_quantity(const char *option, const char *text, double min, double max,
                                               double *value_out);
/* The stack that was asked for, else the usual one of the accelerator. */
const char *ls_plan_stack_name(const ls_plan_answer *answer, const ls_accelerator *accelerator);
/* The setting of `work` on a machine; the global batch is spread over its GPUs. */
LS_MUST_CHECK ls_status ls_plan_setting_on(ls_plan_answer *answer, const ls_plan_work *work,
                                           const ls_node *node, int64_t gpus, ls_setting *setting_out);
/* The work that the answer is about. */
ls_plan_work ls_plan_own_work(const ls_plan_answer *answer);

/* ls_search_run; where the micro-batch of a run file rules out every strategy, a second time with
 * the micro-batch left open. */
LS_MUST_CHECK ls_status ls_plan_search(ls_plan_answer *answer, const ls_setting *setting,
                                       const ls_search_options *options, ls_search_result *result);
/* Halves the sequence until something fits, where its length was chosen here; else changes
 * nothing. */
LS_MUST_CHECK ls_status ls_plan_shorten(ls_plan_answer *answer, const ls_search_options *options);
/* For a setting that does not fit: "; or with --seq 4096, or with --optimizer adamw-8bit". Each was
 * tried; "" when none helps. */
const char *ls_plan_ways_out(const ls_plan_answer *answer);

/* ---- this_machine.c ---- */

/* This machine as a node; NULL when it was never calibrated, which becomes an assumption. */
const ls_node *ls_plan_describe_here(ls_plan_answer *answer);
/* The step of `setting` on this machine, from the op plan. What --strategy leaves open is the first
 * way that fits, else the one that needs the least memory. Errors: LS_ERR_UNSUPPORTED,
 * LS_ERR_INVALID: what the trainer cannot do here, and what it can. */
LS_MUST_CHECK ls_status ls_plan_estimate_here(ls_plan_answer *answer, const ls_setting *setting,
                                              ls_plan_own *own, ls_estimate *estimate);
/* The answer's own setting on this machine. */
LS_MUST_CHECK ls_status ls_plan_evaluate_here(ls_plan_answer *answer);
/* Why this machine has no calibration. */
const char *ls_plan_why_not_here(const ls_assumptions *assumptions);

/* ---- links.c ---- */

/* Reads --link and --hosts for the machine that was named. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_plan_connect(ls_plan_answer *answer);
/* Fills `links`, once there is an estimate. Errors: LS_ERR_INVALID when the model does not fit on
 * one of the machines. */
LS_MUST_CHECK ls_status ls_plan_add_links(ls_plan_answer *answer);

/* ---- costs.c ---- */

/* An own offer and the catalogue's price. */
enum { LS_PLAN_PATHS_KEPT = 2 };

/* The question about money while it is put together: the work, the prices, the paths and their
 * sizes. */
typedef struct ls_plan_money {
    ls_plan_answer *answer;
    ls_path_settings prices;
    ls_plan_work models[LS_PORTFOLIO_MOST];
    ls_workload workloads[LS_PORTFOLIO_MOST];
    size_t workload_count;
    double parameters_most;
    ls_path paths[LS_PATHS_MOST];
    size_t path_count;
    /* kinds of paths still to be added, for each of which room is kept; 0: not known */
    size_t kinds_left;
} ls_plan_money;

/* The work and the prices, without paths; in the answer's arena. */
LS_MUST_CHECK ls_status ls_plan_money_begin(ls_plan_answer *answer, ls_plan_money **money_out);
/* Adds the paths of a kind, one for each price; a missing price becomes an assumption. */
LS_MUST_CHECK ls_status ls_plan_money_add_path(ls_plan_money *money, ls_path_kind kind, const ls_node *node,
                                               bool is_here);
/* Adds a size to the paths from `first` on, which share a node. Returns the speed of the slowest
 * workload. */
double ls_plan_money_add_size(ls_plan_money *money, size_t first, const ls_node *node, int64_t gpus);
/* The verdict over all paths, and the outcome that the answer is about. Errors: LS_ERR_INVALID when
 * money was asked about and no price is known. */
LS_MUST_CHECK ls_status ls_plan_money_decide(ls_plan_money *money);
/* Failures, power, money and the verdict for the machine that was named. Needs the estimate. */
LS_MUST_CHECK ls_status ls_plan_add_costs(ls_plan_answer *answer);
/* Estimates `work` on a machine: with the answer's estimate where that is the same, else with the
 * best strategy. False: it does not fit. */
bool ls_plan_estimate_on(ls_plan_answer *answer, const ls_plan_work *work, const ls_node *node, int64_t gpus,
                         ls_setting *setting_out, ls_estimate *estimate_out);
/* Whether this many GPUs of `node` stand under a desk: few cards without a network of their own. */
bool ls_plan_is_workstation(const ls_node *node, int64_t gpus);

/* ---- places.c ---- */

/* For when no machine was named: compares all places and chooses one, which gives the answer its
 * node and GPUs. Where the model fits on none, the largest machine that was looked at is taken, and
 * `refusal` says so. */
LS_MUST_CHECK ls_status ls_plan_compare(ls_plan_answer *answer);

/* ---- runs of a portfolio ---- */

/* Reads the portfolio, if one was given, and finds the run that is examined. */
LS_MUST_CHECK ls_status ls_plan_find_model(ls_plan_answer *answer);
/* Tokens, batch and sequence of the examined run, where nothing else was given. */
void ls_plan_adopt_portfolio(ls_plan_answer *answer);
/* Fills `runs`, once there is a verdict. */
void ls_plan_list_runs(ls_plan_answer *answer);

/* ---- curve.c ---- */

/* Half as many GPUs and twice as many; the whole curve where it was asked for. */
LS_MUST_CHECK ls_status ls_plan_scale(ls_plan_answer *answer);
/* Fills the ladder of stages. */
void ls_plan_climb(ls_plan_answer *answer);

#endif
