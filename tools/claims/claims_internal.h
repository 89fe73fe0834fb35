// SPDX-License-Identifier: Apache-2.0
/* What the files of lockstep-claims share. */
#ifndef LS_PLANNING_CLAIMS_CLAIMS_INTERNAL_H
#define LS_PLANNING_CLAIMS_CLAIMS_INTERNAL_H

#include "claims.h"
#include "planning/step/estimate.h"

/* What claims are computed with. */
typedef struct ls_claim_desk {
    ls_arena *arena;
    ls_catalogue catalogue;
    const ls_node *h100, *a100, *p5, *p4d; /* nodes of eight */
    ls_shape llama_7b, llama_70b, llama_405b;
    ls_stack stack; /* megatron-core on H100 */
} ls_claim_desk;

typedef ls_status ls_claim_check(const ls_claim_desk *desk, ls_claim *claim);

/* A claim before it is checked. check NULL: nothing can be computed, and `known` is what is
 * known. */
typedef struct ls_claim_row {
    const char *name, *said, *assumed, *by;
    ls_claim_check *check;
    const char *known;
} ls_claim_row;

typedef struct ls_claim_area {
    const char *name;
    const ls_claim_row *rows;
    size_t count;
} ls_claim_area;

extern const ls_claim_area ls_claims_networks, ls_claims_models, ls_claims_scale, ls_claims_money;

/* Stores a value under a name and returns it. */
double ls_claim_put(ls_claim *claim, const char *name, double value);
/* Writes the finding with its numbers, and the verdict. */
void ls_claim_say(const ls_claim_desk *desk, ls_claim *claim, ls_claim_verdict verdict, const char *format,
                  ...) LS_PRINTF(4, 5);
/* "470,400". */
const char *ls_claim_grouped(const ls_claim_desk *desk, double value);
/* LS_CLAIM_HOLDS when the claimed value is within 5 % of the computed one. */
ls_claim_verdict ls_claim_compare(double claimed, double found);

#endif
