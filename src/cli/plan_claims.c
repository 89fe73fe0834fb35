// SPDX-License-Identifier: Apache-2.0
/* plan --claims: what is often said about training at scale, computed again. */
#include "cli/plan.h"
#include "planning/check/claims.h"

#include <math.h>
#include <stdio.h>

static json_t *claim_to_json(const ls_claim *claim)
{
    json_t *values = json_object();
    for (size_t i = 0; i < claim->value_count; i++) {
        const double value = claim->values[i].value;
        json_object_set_new(values, claim->values[i].name, isfinite(value) ? json_real(value) : json_null());
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "name", claim->name, "area", claim->area, "claim",
                     claim->said, "verdict", ls_claim_verdict_name(claim->verdict), "found", claim->found,
                     "assumed", claim->assumed, "values", values);
}

ls_status ls_plan_print_claims(const ls_invocation *invocation)
{
    const ls_plan_settings *settings = invocation->settings;
    ls_claim *claims = ls_arena_new(invocation->arena, ls_claim, LS_CLAIMS_MOST);
    size_t count = 0;
    LS_TRY(ls_claims_compute(invocation->arena, claims, &count));
    if (settings->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < count; i++) {
            json_array_append_new(list, claim_to_json(&claims[i]));
        }
        json_t *root = json_pack("{s:o}", "claims", list);
        ls_print_json(root);
        json_decref(root);
        return LS_OK;
    }
    ls_text text = {0};
    ls_claims_append(claims, count, &text);
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
    return LS_OK;
}
