// SPDX-License-Identifier: Apache-2.0
/*
 * Claims that are often heard about training at scale, each computed again with the planner's own functions: `plan --claims`, and docs/claims.md, which is what that
 * prints.
 *
 * A claim is a sentence, what comes out when it is computed here, under which assumptions, and a verdict that follows from the numbers where there are numbers: it is not
 * written down beside them. What has no number that could be computed is said to be not verifiable, with what is known.
 *
 * Everything a claim rests on is the catalogue that ships and the constants that the sentence itself gives; user files don't change it.
 */
#ifndef LS_PLANNING_CHECK_CLAIMS_H
#define LS_PLANNING_CHECK_CLAIMS_H

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

/* A number that was computed, by name; `found` prints it. */
typedef struct ls_claim_value {
    const char *name; /* "launch_months" */
    double value;     /* INFINITY: never */
} ls_claim_value;

typedef struct ls_claim {
    const char *name;    /* "break-even": short, unique */
    const char *area;    /* "Networks": claims of an area stand together */
    const char *said;    /* the claim */
    const char *assumed; /* "" when nothing is */
    const char *
        by; /* what computed it, "src/planning/money/cost.h:ls_cost_break_even_months ..."; "" when not verifiable */
    ls_claim_verdict verdict;
    const char *found; /* sentences with the values in */
    ls_claim_value values[LS_CLAIM_VALUES_MOST];
    size_t value_count;
} ls_claim;

/* Everything lies in `arena`. Errors: those of the catalogue that ships, when it lacks what a claim is about. */
LS_MUST_CHECK ls_status ls_claims_compute(ls_arena *arena, ls_claim claims_out[LS_CLAIMS_MOST],
                                          size_t *count_out);

/* A page of Markdown: how many hold, a table, then each claim with its numbers. */
void ls_claims_append(const ls_claim *claims, size_t count, ls_text *text);

#endif
