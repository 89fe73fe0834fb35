// SPDX-License-Identifier: Apache-2.0
/*
 * Search: every way to split a model over a number of GPUs, the best of them, and why each other
 * one loses.
 *
 * Examined are all combinations of tp, pp, dp, cp, ep, vpp, micro-batch, ZeRO, recompute, sequence
 * parallelism and schedule that ls_strategy_check allows and the request leaves open. Those that do
 * not fit in memory are discarded before their time is computed, and whole branches at once where
 * even the member with the least memory does not fit. Two rules save work without losing the best:
 * with all else equal, recomputing more is never faster than what fits without it, and GPipe is
 * never better than 1F1B.
 *
 * What programs do not offer is left out unless the request names it: ZeRO-2 and 3 with pipelines,
 * ZeRO-2 in stacks without FSDP, embedding and head counted as layers of the interleaving, chunks
 * of different sizes on a stage, parts of a sequence (cp) below 1,024 tokens. Schedules that few
 * programs offer (zero-bubble) are tried when asked for.
 *
 * At a given number of GPUs the fastest strategy is the cheapest. One that fills 85 to 95 % of the
 * memory is chosen if it is more than LS_SEARCH_TIGHT_GAIN faster than one with more room. Each
 * feature that no run of the stack on this generation has shown (planning/step/evidence.h), and
 * that another strategy can avoid, must gain LS_SEARCH_UNMEASURED_GAIN: nine of ten published runs
 * with context parallelism were within that of their prediction, so a smaller gain may not be real.
 *
 * planning/step/scaling.h answers how many GPUs to use.
 *
 * Pure; ls_search_run allocates nothing. 1,024 GPUs take less than 0.2 s, 16,384 less than 2 s
 * (lockstep bench plan).
 */
#ifndef LS_PLANNING_STEP_SEARCH_H
#define LS_PLANNING_STEP_SEARCH_H

#include "planning/step/estimate.h"

#define LS_SEARCH_TIGHT_GAIN      0.02
#define LS_SEARCH_UNMEASURED_GAIN 0.10

enum {
    LS_SEARCH_TOP_MAX = 64,
    LS_SEARCH_NEIGHBOURS_MAX = 16,
    LS_SEARCH_WHY_BYTES = 192,
    LS_SEARCH_CHANGE_BYTES = 48,
    LS_SEARCH_OFFER_BYTES = 448
};

typedef struct ls_search_options {
    ls_strategy_request request; /* what is given is kept; the rest is chosen */
    size_t top;                  /* number of others to rank, 0..LS_SEARCH_TOP_MAX */
    /* zero-bubble schedules too (memory of ZB-H2: twice), where the request names none */
    bool any_schedule;
} ls_search_options;

/* A strategy that lost. */
typedef struct ls_search_rival {
    ls_estimate estimate; /* without time when it does not fit */
    /* "+6.1 % bubble, +1.2 % pipeline": shares of the best one's step; or "does not fit: ..." */
    char why[LS_SEARCH_WHY_BYTES];
    /* neighbours: what differs from the best, "ZeRO-3", "micro-batch 2"; else "" */
    char change[LS_SEARCH_CHANGE_BYTES];
} ls_search_rival;

typedef struct ls_search_result {
    ls_estimate best;
    /* The best strategy of each other cut, sorted. A cut is (tp, pp), or (cp, ep) where the request
     * gives both. */
    ls_search_rival ranked[LS_SEARCH_TOP_MAX];
    size_t ranked_count;
    /* The best strategy with one thing changed: ZeRO, recompute, micro-batch, interleaving, ...
     * Only those that can be run at all. */
    ls_search_rival neighbours[LS_SEARCH_NEIGHBOURS_MAX];
    size_t neighbour_count;
    uint64_t possible;  /* strategies examined, without those in branches that were cut off */
    uint64_t discarded; /* of them: discarded by memory */
    uint64_t evaluated; /* of them: timed */
} ls_search_result;

/* Errors: LS_ERR_INVALID when nothing can be run (with the obstacle: the batch, the request), or
 * when nothing fits (with the least memory needed, and what to change: a strategy, a batch or a
 * count with which this function succeeds). result_out is then untouched. */
LS_MUST_CHECK ls_status ls_search_run(const ls_setting *setting, const ls_search_options *options,
                                      ls_search_result *result_out);

/* Finds the strategy that needs the least memory among those that the request leaves open and
 * ls_strategy_check allows, whether it fits or not. False: nothing is allowed, and the outputs are
 * untouched. */
bool ls_search_least(const ls_setting *setting, const ls_search_options *options, ls_strategy *strategy_out,
                     ls_memory_estimate *memory_out);

/* Writes "what fits: TP 8 x PP 2, ... (61.3 GiB, 5.7 s a step): --strategy tp=8,pp=2,...", which
 * can be given back unchanged. */
void ls_search_offer(const ls_estimate *estimate, char *text, size_t bytes);

/* Writes which terms of `other` are larger than those of `best`, in percent of best's step: "+6.1 %
 * bubble, +1.2 % tensor, -0.8 % matmul". Cut to fit. */
void ls_search_why(const ls_estimate *best, const ls_estimate *other, char *text, size_t bytes);

#endif
