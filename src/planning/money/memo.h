// SPDX-License-Identifier: Apache-2.0
/*
 * The memo: the page that a decision-maker signs. Question, answer, numbers with their bands, paths
 * side by side, risks, what would change the answer, what it rests on, and lines for signatures.
 * Markdown that reads well as plain text. `plan --memo FILE`. Pure.
 *
 * Ranges are the band of the prediction: one run in ten is below it and one in ten above, at the
 * given prices. The effect of other prices has its own line, because nobody can say how likely a
 * price is. The most that can be lost is computed at the slow end of the band, so it is never less
 * than what a run may cost. The page names only prices and values that were left open and chosen;
 * the command that writes the page prints all assumptions.
 */
#ifndef LS_PLANNING_MONEY_MEMO_H
#define LS_PLANNING_MONEY_MEMO_H

#include "base/text.h"
#include "planning/assumptions.h"
#include "planning/money/failure.h"
#include "planning/money/ladder.h"
#include "planning/money/runs.h"
#include "planning/money/verdict.h"

typedef struct ls_memo {
    /* The question in words: "train llama3-70b on 1.4T tokens on 64 x H100 within 60 days for at
     * most $2M". */
    const char *question;
    const char *command; /* The command line that writes this page again; NULL: left out. */
    const char *date;    /* "2026-11-21", from the local clock; NULL: a blank to fill in. */
    const ls_verdict *verdict;
    /* The model that strategy, step, memory and choices belong to, where there are several; NULL:
     * there is one model. */
    const char *subject;
    const char *strategy;          /* In words; NULL: not chosen. */
    double step_s, step_band_s[2]; /* 10 % and 90 % quantiles; 0: none. */
    const char *band_from;         /* "17 runs of megatron-core on h100"; NULL: not stated. */
    double tokens_ps, mfu;         /* 0: no step is shown. */
    double memory_gib, memory_capacity_gib;
    const ls_failure_estimate *failure; /* NULL: not known. */
    /* The runs of a portfolio on the chosen path; NULL: one model. */
    const ls_runs *runs;
    const ls_ladder *ladder;           /* NULL: none */
    const ls_assumptions *assumptions; /* NULL: none */
} ls_memo;

void ls_memo_append(const ls_memo *memo, ls_text *text);

#endif
