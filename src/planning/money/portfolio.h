// SPDX-License-Identifier: Apache-2.0
/*
 * A portfolio: the models to train, and how often. `plan [MODEL] --portfolio FILE`. The question
 * about money covers all its runs; MODEL names the run that is examined in detail.
 *
 * The file is YAML (examples/plan/portfolio.yaml):
 *
 *   runs:
 *     - model: llama3-8b          # as for plan: preset, config.json, run file, key=value list
 *       name: assistant           # name in the answer  [the model's]
 *       tokens: 200B              # of one run; numbers may end in k, M, B, T
 *       runs_per_month: 4
 *       global_batch: 1024        # sequences  [chosen]
 *       sequence: 8192            # tokens     [the model's]
 *     - {model: llama2-70b, tokens: 20e9, runs_per_month: 0.5}
 *
 * At most LS_PORTFOLIO_MOST runs. Bad values are refused with file, line and range.
 */
#ifndef LS_PLANNING_MONEY_PORTFOLIO_H
#define LS_PLANNING_MONEY_PORTFOLIO_H

#include "base/arena.h"

#include <stdint.h>

enum { LS_PORTFOLIO_MOST = 32 };

typedef struct ls_portfolio_run {
    const char *name, *model;
    double tokens;
    double runs_per_month;
    uint64_t global_batch, sequence; /* 0: not given */
} ls_portfolio_run;

typedef struct ls_portfolio {
    const ls_portfolio_run *runs;
    size_t count;
} ls_portfolio;

LS_MUST_CHECK ls_status ls_portfolio_load(ls_arena *arena, const char *path, ls_portfolio *portfolio_out);
/* The same from a text; NULL: from the file `name`. */
LS_MUST_CHECK ls_status ls_portfolio_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                           ls_portfolio *portfolio_out);

/* The first run of that name, else of that model; -1: none. */
int ls_portfolio_find(const ls_portfolio *portfolio, const char *name);

#endif
