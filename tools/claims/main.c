// SPDX-License-Identifier: Apache-2.0
/* lockstep-claims: prints docs/claims.md. tools/docs.sh runs it. */
#include "claims.h"

#include <stdio.h>

int main(void)
{
    static ls_claim claims[LS_CLAIMS_MOST];
    size_t count = 0;
    ls_arena arena;
    ls_text text = {0};
    ls_arena_init(&arena);
    const ls_status status = ls_claims_compute(&arena, claims, &count);
    if (status == LS_OK) {
        ls_claims_append(claims, count, &text);
        fputs(ls_text_string(&text), stdout);
    } else {
        fprintf(stderr, "lockstep-claims: %s\n", ls_error_text());
    }
    ls_text_release(&text);
    ls_arena_release(&arena);
    return status == LS_OK ? 0 : 1;
}
