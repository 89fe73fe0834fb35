// SPDX-License-Identifier: Apache-2.0
/*
 * Common claims about training at scale, each computed again with the planner's own functions. The
 * program lockstep-claims writes docs/claims.md from them.
 *
 * A claim is a sentence, the computed result, its assumptions, and a verdict. Where there are
 * numbers, the verdict follows from them and is not written down. A claim without a computable
 * number is marked as not verifiable, with what is known about it.
 *
 * All inputs are the catalogue that ships and the constants in the sentence itself; user files have
 * no effect.
 */
#ifndef LS_PLANNING_CLAIMS_CLAIMS_H
#define LS_PLANNING_CLAIMS_CLAIMS_H

#include "base/arena.h"
#include "base/text.h"

#include <stddef.h>

enum { LS_CLAIMS_MOST = 48, LS_CLAIM_VALUES_MOST = 12 };

typedef enum ls_claim_verdict {
    LS_CLAIM_HOLDS,
    LS_CLAIM_DOES_NOT_HOLD,
    LS_CLAIM_DEPENDS,
    LS_CLAIM_NOT_VERIFIABLE
} ls_claim_verdict;
const char *ls_claim_verdict_name(ls_claim_verdict verdict); /* "holds", "does not hold", ... */

/* A computed number, by name; `found` prints it. */
typedef struct ls_claim_value {
    const char *name; /* "launch_months" */
    double value;     /* INFINITY: never */
} ls_claim_value;

typedef struct ls_claim {
    const char *name;    /* "break-even": short, unique */
    const char *area;    /* "Networks": claims of an area are printed together */
    const char *said;    /* the claim */
    const char *assumed; /* "" when nothing is assumed */
    /* what computed it, "src/planning/money/cost.h:ls_cost_break_even_months ..."; "" when not
     * verifiable */
    const char *by;
    ls_claim_verdict verdict;
    const char *found; /* sentences with the values */
    ls_claim_value values[LS_CLAIM_VALUES_MOST];
    size_t value_count;
} ls_claim;

/* Everything lives in `arena`. Errors: those of the catalogue, where it lacks something that a
 * claim is about. */
LS_MUST_CHECK ls_status ls_claims_compute(ls_arena *arena, ls_claim claims_out[LS_CLAIMS_MOST],
                                          size_t *count_out);

/* Writes a page of Markdown: how many claims hold, a table, then each claim with its numbers. */
void ls_claims_append(const ls_claim *claims, size_t count, ls_text *text);

#endif
