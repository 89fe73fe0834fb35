// SPDX-License-Identifier: Apache-2.0
/*
 * The memo: the one page that a decision-maker signs. Question, answer, numbers with their bands, paths side by side, risks, what would change the answer, what it
 * rests on, lines for signatures. Markdown that reads well as plain text. `plan --memo FILE`. Pure.
 */
#ifndef LS_PLANNING_MONEY_MEMO_H
#define LS_PLANNING_MONEY_MEMO_H

#include "base/text.h"
#include "planning/assumptions.h"
#include "planning/money/failure.h"
#include "planning/money/ladder.h"
#include "planning/money/verdict.h"

typedef struct ls_memo {
    const char *
        question; /* "train llama3-70b on 1.4T tokens by 2027-02-01 for at most $2M"; what the person asked for, in words */
    const char *command; /* the command line that makes this page again; NULL: left out */
    const char *date;    /* "2026-11-21", of the reader's clock; NULL: a blank to fill in */
    const ls_verdict *verdict;
    const char *strategy;          /* in words; NULL: not chosen */
    double step_s, step_band_s[2]; /* 10 % and 90 %; 0: none */
    double tokens_ps, mfu;
    double memory_gib, memory_capacity_gib;
    double days_band[2];                /* 0: as step_band_s */
    const ls_failure_estimate *failure; /* NULL: not known */
    const ls_power *power;              /* NULL: not known */
    const ls_ladder *ladder;            /* NULL: none */
    const ls_assumptions *assumptions;  /* NULL: none */
} ls_memo;

void ls_memo_append(const ls_memo *memo, ls_text *text);

#endif
