// SPDX-License-Identifier: Apache-2.0
/*
 * Search: every way to split a model over a number of GPUs, the best of them, and why each other one loses.
 *
 * All (tp, pp, dp, cp, ep, vpp, micro-batch, ZeRO, recompute, sequence parallel, schedule) that ls_strategy_check allows and that the request leaves open are
 * looked at; those that don't fit in memory are discarded before their time is computed, whole branches at once where even the thriftiest member of a branch
 * doesn't fit. Two rules save work without losing the best: with everything else equal, recomputing more is never faster than what fits without; and GPipe is
 * never better than 1F1B. Left out, unless given, is also what programs don't do: ZeRO-2 and 3 with
 * pipelines, ZeRO-2 in stacks without FSDP, embedding and head counted as layers of the interleaving, chunks of different sizes on a stage, parts of a sequence (cp) below 1,024 tokens. Schedules that few programs run (zero-bubble) are tried when asked for.
 *
 * At a given number of GPUs the fastest is the cheapest. What is 85 to 95 % full is taken when it is more than LS_SEARCH_TIGHT_GAIN faster than what has room. What
 * no run of the stack on this generation has shown (planning/step/evidence.h), and another strategy can do without, must gain LS_SEARCH_UNMEASURED_GAIN for each: nine in
 * ten of the published runs with context parallelism were within that of their prediction, so a smaller gain may be none.
 *
 * How many GPUs there should be is the question above it: planning/step/scaling.h.
 *
 * Pure; ls_search_run allocates nothing. 1,024 GPUs take less than 0.2 s, 16,384 less than 2 s (lockstep bench plan).
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
    ls_strategy_request request; /* what is given stays; the rest is chosen */
    size_t top;                  /* how many others are ranked, 0..LS_SEARCH_TOP_MAX */
    bool any_schedule; /* zero-bubble schedules too (memory of ZB-H2: twice), where the request names none */
} ls_search_options;

/* One that lost. */
typedef struct ls_search_rival {
    ls_estimate estimate; /* without time when it does not fit */
    char why
        [LS_SEARCH_WHY_BYTES]; /* "+6.1 % bubble, +1.2 % pipeline": shares of the best one's step; or "does not fit: ..." */
    char change
        [LS_SEARCH_CHANGE_BYTES]; /* neighbours: what differs from the best, "ZeRO-3", "micro-batch 2"; else "" */
} ls_search_rival;

typedef struct ls_search_result {
    ls_estimate best;
    /* The best of each other cut, in this order. A cut is (tp, pp); where the request gives both, (cp, ep). */
    ls_search_rival ranked[LS_SEARCH_TOP_MAX];
    size_t ranked_count;
    /* The best one with one thing changed: ZeRO, recompute, micro-batch, interleaving, ...; those that can be run at all. */
    ls_search_rival neighbours[LS_SEARCH_NEIGHBOURS_MAX];
    size_t neighbour_count;
    uint64_t possible;  /* strategies looked at, those in branches that were cut off not counted */
    uint64_t discarded; /* of them by memory */
    uint64_t evaluated; /* of them in time */
} ls_search_result;

/*
 * Errors: LS_ERR_INVALID when nothing can be run (with what stands in the way: the batch, the request), or when nothing fits (with the least that it
 * would take, and what to change: a strategy, a batch or a count with which this function succeeds). result_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_search_run(const ls_setting *setting, const ls_search_options *options,
                                      ls_search_result *result_out);

/* What takes the least memory of all that the request leaves open and ls_strategy_check allows, whether it fits or not. False: nothing is allowed, the outputs are untouched. */
bool ls_search_least(const ls_setting *setting, const ls_search_options *options, ls_strategy *strategy_out,
                     ls_memory_estimate *memory_out);

/* "what fits: TP 8 x PP 2, ... (61.3 GiB, 5.7 s a step): --strategy tp=8,pp=2,...": to be given back as it stands. */
void ls_search_offer(const ls_estimate *estimate, char *text, size_t bytes);

/* Writes which terms of `other` are larger than those of `best`, in percent of best's step: "+6.1 % bubble, +1.2 % tensor, -0.8 % matmul". Cut to fit. */
void ls_search_why(const ls_estimate *best, const ls_estimate *other, char *text, size_t bytes);

#endif
