// SPDX-License-Identifier: Apache-2.0
/* Quotes, portfolios and sites from arbitrary bytes: an error with text, or values that the verdict
 * can reckon with. */
#include "base/assert.h"
#include "planning/hardware/site.h"
#include "planning/money/portfolio.h"
#include "planning/money/quote.h"
#include "planning/money/verdict.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
const char *__lsan_default_suppressions(void);

/* See fuzz_yaml.c. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

static ls_catalogue *shipped(void)
{
    static ls_arena arena;
    static ls_catalogue catalogue;
    if (catalogue.node_count == 0) {
        LS_ASSERT(ls_catalogue_load(&arena, NULL, 0, &catalogue) == LS_OK);
    }
    return &catalogue;
}

/* Whatever was read, the verdict is one of five, with a reason, and no cost is not a number. */
static void check_verdict(ls_arena *arena, const ls_quote *quote, const ls_site *site)
{
    const ls_catalogue *catalogue = shipped();
    ls_path_settings settings = {
        .arena = arena, .catalogue = catalogue, .quote = quote, .site = *site, .lead_time_s = -1.0};
    static ls_path paths[2];
    const ls_node *node;
    LS_ASSERT(ls_catalogue_find_node(catalogue, "DGX-H100", &node) == LS_OK);
    const double tokens_ps[] = {1e5};
    size_t count;
    for (int i = 0; i < 2; i++) {
        LS_ASSERT(ls_path_build(&settings,
                                &(ls_path_request){i ? LS_PATH_OWNED : LS_PATH_RENTED, node, false, 1},
                                &paths[i], &count) == LS_OK);
        ls_path_add_point(&paths[i], arena,
                          &(ls_path_size){.gpus = 64, .tokens_ps = tokens_ps, .count = 1, .parameters = 8e9});
    }
    const ls_workload workload = {"m", 8e9, 8e9, 160e9, 3.0};
    ls_question question;
    ls_question_init(&question);
    question.workloads = &workload;
    question.workload_count = 1;
    question.paths = paths;
    question.path_count = 2;
    ls_verdict verdict;
    ls_verdict_decide(&question, &verdict);
    LS_ASSERT(verdict.reason[0] != '\0');
    for (size_t i = 0; i < verdict.outcome_count; i++) {
        LS_ASSERT(isfinite(verdict.outcomes[i].run_usd) && verdict.outcomes[i].run_usd >= 0.0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    ls_arena arena = {0};
    ls_quote quote;
    ls_portfolio portfolio;
    ls_site site, usual;
    LS_ASSERT(ls_site_load(&arena, shipped(), "", &usual) == LS_OK);
    ls_error_clear();
    const bool is_quote = ls_quote_parse(&arena, text, bytes, "fuzz.yaml", &quote) == LS_OK;
    LS_ASSERT(is_quote || ls_error_text()[0] != '\0');
    const bool is_site = ls_site_parse(&arena, shipped(), text, bytes, "fuzz.yaml", &site) == LS_OK;
    LS_ASSERT(is_site || ls_error_text()[0] != '\0');
    if (is_quote || is_site) {
        check_verdict(&arena, is_quote ? &quote : NULL, is_site ? &site : &usual);
    }
    if (ls_portfolio_parse(&arena, text, bytes, "fuzz.yaml", &portfolio) == LS_OK) {
        for (size_t i = 0; i < portfolio.count; i++) {
            LS_ASSERT(portfolio.runs[i].tokens >= 1.0 && portfolio.runs[i].runs_per_month > 0.0);
        }
    }
    ls_arena_release(&arena);
    return 0;
}
