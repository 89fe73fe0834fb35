// SPDX-License-Identifier: Apache-2.0
/* What a person types after plan, from arbitrary bytes: a strategy and a shape are an error with
 * text, or something that can be described and read again. */
#include "base/assert.h"
#include "planning/step/search.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void try_strategy(const char *text)
{
    ls_strategy_request request, again;
    char words[256], written[256];
    if (ls_strategy_parse(text, &request) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0');
        return;
    }
    ls_strategy *s = &request.strategy;
    int64_t *const parts[] = {&s->tp, &s->pp, &s->dp, &s->cp, &s->ep, &s->vpp, &s->micro_batch};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        LS_ASSERT(*parts[i] >= 0);
        *parts[i] = *parts[i] > 0 ? *parts[i] : 1;
    }
    ls_strategy_describe(s, words, sizeof words);
    ls_strategy_format(s, written, sizeof written);
    LS_ASSERT(ls_strategy_parse(written, &again) == LS_OK);
    LS_ASSERT(memcmp(&again.strategy.tp, &s->tp, 7 * sizeof s->tp) == 0 && again.strategy.zero == s->zero);
}

static void try_shape(ls_arena *arena, const char *text)
{
    ls_shape shape;
    /* Only what is spelt out: names would be looked for in the file system. */
    if (!strchr(text, '=') || strchr(text, '/')) {
        return;
    }
    if (ls_shape_parse(arena, text, &shape) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0');
        return;
    }
    LS_ASSERT(shape.parameters > 0 && shape.active_parameters > 0 &&
              shape.active_parameters <= shape.parameters);
    LS_ASSERT(isfinite(ls_shape_forward_flops(&shape, 128, LS_FLOPS_FULL_ATTENTION)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    char *text = ls_arena_strndup(&arena, (const char *)data, bytes);
    ls_error_clear();
    try_strategy(text);
    ls_error_clear();
    try_shape(&arena, text);
    ls_arena_release(&arena);
    return 0;
}
