// SPDX-License-Identifier: Apache-2.0
/*
 * The memo: the one page that a decision-maker signs. Question, answer, numbers with their bands, paths side by side, risks, what would change the answer, what it
 * rests on, lines for signatures. Markdown that reads well as plain text. `plan --memo FILE`. Pure.
 *
 * Ranges are the band of the prediction: in one of ten runs it is less, in one of ten more, at the prices as given. What other prices would make of it is a line of
 * its own, for nobody knows how likely a price is. What is lost at most is reckoned at the slow end of the band, so that it is never less than what a run may cost.
 * Not every assumption is on the page, only prices and what was left open and chosen; the command that makes the page prints all.
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
    const char *
        question; /* "train llama3-70b on 1.4T tokens on 64 x H100 within 60 days for at most $2M": what the person asked for, in words */
    const char *command; /* the command line that makes this page again; NULL: left out */
    const char *date;    /* "2026-11-21", of the reader's clock; NULL: a blank to fill in */
    const ls_verdict *verdict;
    const char *
        subject; /* whose strategy, step, memory and choices these are, where there are several; NULL: the one model's */
    const char *strategy;          /* in words; NULL: not chosen */
    double step_s, step_band_s[2]; /* 10 % and 90 %; 0: none */
    const char *band_from;         /* "17 runs of megatron-core on h100"; NULL: not said */
    double tokens_ps, mfu;         /* 0: no step is shown */
    double memory_gib, memory_capacity_gib;
    const ls_failure_estimate *failure; /* NULL: not known */
    const ls_runs *runs;                /* of a portfolio, on the chosen path; NULL: one model */
    const ls_ladder *ladder;            /* NULL: none */
    const ls_assumptions *assumptions;  /* NULL: none */
} ls_memo;

void ls_memo_append(const ls_memo *memo, ls_text *text);

#endif
