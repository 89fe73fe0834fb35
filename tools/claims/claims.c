// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "claims_internal.h"

#include <math.h>
#include <string.h>

#define SAME 0.05 /* a claim in round numbers may differ this much from the computed value */

static const ls_claim_area *const areas[] = {&ls_claims_models, &ls_claims_networks, &ls_claims_scale,
                                             &ls_claims_money};
enum { AREA_COUNT = sizeof areas / sizeof areas[0] };

const char *ls_claim_verdict_name(ls_claim_verdict verdict)
{
    static const char *const names[] = {"holds", "does not hold", "depends", "not verifiable"};
    return names[verdict];
}

double ls_claim_put(ls_claim *claim, const char *name, double value)
{
    LS_ASSERT(claim->value_count < LS_CLAIM_VALUES_MOST);
    claim->values[claim->value_count++] = (ls_claim_value){name, value};
    return value;
}

void ls_claim_say(const ls_claim_desk *desk, ls_claim *claim, ls_claim_verdict verdict, const char *format,
                  ...)
{
    ls_text text = {0};
    va_list args;
    va_start(args, format);
    ls_text_vprintf(&text, format, args);
    va_end(args);
    claim->verdict = verdict;
    claim->found = ls_arena_strdup(desk->arena, ls_text_string(&text));
    ls_text_release(&text);
}

const char *ls_claim_grouped(const ls_claim_desk *desk, double value)
{
    const long long whole = llround(value);
    return whole < 1000 ? ls_arena_printf(desk->arena, "%lld", whole)
                        : ls_arena_printf(desk->arena, "%s,%03lld",
                                          ls_claim_grouped(desk, (double)(whole / 1000)), whole % 1000);
}

ls_claim_verdict ls_claim_compare(double claimed, double found)
{
    return fabs(claimed / found - 1.0) <= SAME ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD;
}

static ls_status lay_out_desk(ls_arena *arena, ls_claim_desk *desk)
{
    const char *from = NULL;
    desk->arena = arena;
    LS_TRY(ls_catalogue_load(arena, NULL, 0, &desk->catalogue));
    LS_TRY(ls_catalogue_find_node(&desk->catalogue, "dgx-h100", &desk->h100));
    LS_TRY(ls_catalogue_find_node(&desk->catalogue, "dgx-a100", &desk->a100));
    LS_TRY(ls_catalogue_find_node(&desk->catalogue, "p5", &desk->p5));
    LS_TRY(ls_catalogue_find_node(&desk->catalogue, "p4d", &desk->p4d));
    LS_TRY(ls_shape_parse(arena, "llama2-7b", &desk->llama_7b));
    LS_TRY(ls_shape_parse(arena, "llama2-70b", &desk->llama_70b));
    LS_TRY(ls_shape_parse(arena, "llama3-405b", &desk->llama_405b));
    return ls_stack_find("megatron-core", desk->h100->accelerator, &desk->stack, &from);
}

static ls_status check_row(const ls_claim_desk *desk, const char *area, const ls_claim_row *row,
                           ls_claim *claim)
{
    *claim = (ls_claim){.name = row->name,
                        .area = area,
                        .said = row->said,
                        .assumed = row->assumed,
                        .by = row->by,
                        .verdict = LS_CLAIM_NOT_VERIFIABLE,
                        .found = row->known};
    return row->check ? row->check(desk, claim) : LS_OK;
}

ls_status ls_claims_compute(ls_arena *arena, ls_claim claims_out[LS_CLAIMS_MOST], size_t *count_out)
{
    ls_claim_desk *desk = ls_arena_new(arena, ls_claim_desk, 1);
    size_t count = 0;
    LS_TRY(lay_out_desk(arena, desk));
    for (size_t a = 0; a < AREA_COUNT; a++) {
        for (size_t i = 0; i < areas[a]->count; i++) {
            LS_ASSERT(count < LS_CLAIMS_MOST);
            LS_TRY(check_row(desk, areas[a]->name, &areas[a]->rows[i], &claims_out[count++]));
        }
    }
    *count_out = count;
    return LS_OK;
}

/* ---- the page ---- */

static size_t count_verdict(const ls_claim *claims, size_t count, ls_claim_verdict verdict)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += claims[i].verdict == verdict;
    }
    return found;
}

static void append_table(const ls_claim *claims, size_t count, ls_text *text)
{
    ls_text_append(text, "| claim | verdict |\n|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        ls_text_printf(text, "| [%s](#%s) | %s |\n", claims[i].said, claims[i].name,
                       ls_claim_verdict_name(claims[i].verdict));
    }
}

/* "path:name path:name" as code, with commas. */
static void append_functions(const char *by, ls_text *text)
{
    for (const char *word = by; *word;) {
        const size_t bytes = strcspn(word, " ");
        ls_text_append(text, word == by ? "`" : ", `");
        ls_text_append_bytes(text, word, bytes);
        ls_text_append(text, "`");
        word += bytes + strspn(word + bytes, " ");
    }
}

static void append_claim(const ls_claim *claim, ls_text *text)
{
    ls_text_printf(text, "\n### %s\n\n", claim->name);
    ls_text_printf(text, "*%s* **%c%s.** %s\n", claim->said, ls_claim_verdict_name(claim->verdict)[0] - 32,
                   ls_claim_verdict_name(claim->verdict) + 1, claim->found);
    if (claim->assumed[0]) {
        ls_text_printf(text, "\nAssumed: %s\n", claim->assumed);
    }
    if (claim->by[0]) {
        ls_text_append(text, "\nComputed by ");
        append_functions(claim->by, text);
        ls_text_append(text, ".\n");
    }
}

void ls_claims_append(const ls_claim *claims, size_t count, ls_text *text)
{
    ls_text_append(text, "# Claims often heard, computed again\n\nCommon statements about training large "
                         "models, each checked with the planner's own functions and the catalogue that ships "
                         "with it. `tools/docs.sh` writes this page with the program `lockstep-claims`, and "
                         "a test compares the two. The verdicts follow from the numbers. A claim in round "
                         "numbers holds when it is within 5 % of the computed value. GB are 1e9 bytes.\n\n");
    ls_text_printf(
        text,
        "Of %zu claims, %zu hold, %zu do not, %zu depend on what is meant, and %zu cannot be verified.\n\n",
        count, count_verdict(claims, count, LS_CLAIM_HOLDS),
        count_verdict(claims, count, LS_CLAIM_DOES_NOT_HOLD), count_verdict(claims, count, LS_CLAIM_DEPENDS),
        count_verdict(claims, count, LS_CLAIM_NOT_VERIFIABLE));
    append_table(claims, count, text);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(claims[i].area, claims[i - 1].area) != 0) {
            ls_text_printf(text, "\n## %s\n", claims[i].area);
        }
        append_claim(&claims[i], text);
    }
}
