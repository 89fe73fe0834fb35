// SPDX-License-Identifier: Apache-2.0
#include "planning/answer/answer_internal.h"

#include <inttypes.h>
#include <math.h>

/* Finds what fits in place of a strategy that does not. */
static void find_instead(ls_plan_answer *answer)
{
    const ls_search_options open = {.top = answer->asked->top};
    ls_search_result *result = ls_arena_new(answer->arena, ls_search_result, 1);
    if (!ls_plan_is_here(answer, &answer->node) && ls_search_run(&answer->setting, &open, result) == LS_OK) {
        answer->instead = result;
    }
}

/* Writes why a given strategy is refused. */
static void refuse_given(ls_plan_answer *answer)
{
    const ls_memory_estimate *memory = &answer->estimate.memory;
    char given[192], offer[LS_SEARCH_OFFER_BYTES];
    ls_strategy_describe(&answer->estimate.strategy, given, sizeof given);
    const bool is_here = ls_plan_is_here(answer, &answer->node);
    const char *hint =
        "use a smaller model, shorter sequences (--seq), or other machines (--gpus KIND:COUNT)";
    find_instead(answer);
    if (answer->instead) {
        ls_search_offer(&answer->instead->best, offer, sizeof offer);
        hint = offer;
    } else if (!is_here) {
        hint = ls_arena_strdup(answer->arena, ls_error_text());
    }
    answer->refusal = ls_arena_printf(answer->arena,
                                      "%s does not fit with %s: it needs %.1f GiB on each GPU, which has "
                                      "%.1f GiB, and 95 %% of that may be used; %s%s",
                                      answer->shape.name, given, memory->total / LS_PLAN_GIB,
                                      memory->capacity / LS_PLAN_GIB, hint, ls_plan_ways_out(answer));
    ls_error_clear();
}

/* Nothing fits: the answer is the strategy that needs the least memory, with the search's reason as
 * the refusal. A model that cannot be split this way at all is an error. */
static ls_status answer_misfit(ls_plan_answer *answer, const ls_search_options *options, ls_status status)
{
    ls_strategy least;
    ls_memory_estimate memory;
    const char *why = ls_arena_strdup(answer->arena, ls_error_text());
    if (!ls_search_least(&answer->setting, options, &least, &memory)) {
        return ls_fail(status, "%s", why);
    }
    if (!answer->refusal) {
        answer->refusal = ls_arena_printf(answer->arena, "%s%s", why, ls_plan_ways_out(answer));
    }
    ls_estimate_compute(&answer->setting, &least, &answer->estimate);
    if (answer->asked->strategy[0]) {
        find_instead(answer);
        ls_error_clear();
    }
    answer->assumed_strategy = ls_assumptions_add(
        &answer->assumptions,
        "strategy: the one that needs the least memory, because nothing fits (--strategy)");
    return LS_OK;
}

static ls_status search_strategy(ls_plan_answer *answer)
{
    ls_search_options options = {.request = answer->request,
                                 .top = answer->asked->top,
                                 .any_schedule = answer->asked->schedule == LS_PLAN_SCHEDULE_ANY};
    ls_search_result *result = ls_arena_new(answer->arena, ls_search_result, 1);
    LS_TRY(ls_plan_shorten(answer, &options));
    const ls_status status = ls_plan_search(answer, &answer->setting, &options, result);
    if (status == LS_ERR_INVALID) {
        return answer_misfit(answer, &options, status);
    }
    LS_TRY(status);
    answer->refusal = NULL;
    answer->search = result;
    answer->estimate = result->best;
    answer->assumed_strategy = ls_assumptions_add(
        &answer->assumptions, "%s: the fastest that fits of %" PRIu64 " examined (--strategy)",
        answer->asked->strategy[0] ? "keys left out of --strategy" : "strategy", result->possible);
    return LS_OK;
}

static ls_status evaluate_strategy(ls_plan_answer *answer)
{
    const ls_strategy strategy = ls_strategy_resolve(&answer->request, answer->setting.gpus);
    LS_TRY(ls_strategy_check(&strategy, &answer->shape, answer->setting.gpus, answer->setting.global_batch,
                             answer->setting.length));
    if (strategy.sequence_parallel && !answer->request.has_sequence_parallel) {
        ls_assumptions_add(
            &answer->assumptions,
            "sequence parallelism together with tensor parallelism (sp=0 in --strategy turns it off)");
    }
    ls_estimate_compute(&answer->setting, &strategy, &answer->estimate);
    return LS_OK;
}

static ls_status answer_question(ls_plan_answer *answer)
{
    if (answer->setting.gpus == 0) {
        LS_TRY(ls_plan_compare(answer));
    }
    LS_TRY(ls_plan_settle(answer));
    LS_TRY(ls_plan_is_here(answer, &answer->node)      ? ls_plan_evaluate_here(answer)
           : ls_strategy_is_complete(&answer->request) ? evaluate_strategy(answer)
                                                       : search_strategy(answer));
    if (!ls_plan_is_here(answer, &answer->node)) {
        ls_evidence_assume(&answer->setting, &answer->estimate.strategy, &answer->assumptions);
    }
    if (answer->estimate.fit == LS_FIT_NO && !answer->refusal) {
        refuse_given(answer); /* otherwise the search has given the reason */
    }
    if (answer->refusal && !ls_plan_is_here(answer, &answer->node)) {
        ls_assumptions_add(&answer->assumptions,
                           "memory as in Megatron-Core and FSDP: programs that free tensors early need less "
                           "(Llama 3 405B at Meta: docs/planning-accuracy.md)");
    }
    answer->steps = ceil(answer->tokens / (double)(answer->setting.global_batch * answer->setting.length));
    answer->days = answer->tokens / answer->estimate.tokens_ps / 86400.0;
    LS_TRY(answer->refusal && answer->hosts == 0 ? LS_OK : ls_plan_add_links(answer));
    LS_TRY(ls_plan_add_costs(answer));
    if (answer->asked->ladder) {
        ls_plan_climb(answer);
    }
    LS_TRY(answer->search || answer->asked->scaling ? ls_plan_scale(answer) : LS_OK);
    if (answer->asked->draw && !answer->curve && !ls_plan_is_here(answer, &answer->node) &&
        ls_plan_scale(answer) != LS_OK) {
        answer->curve = NULL; /* the page says that it has no curve */
        ls_error_clear();
    }
    return LS_OK;
}

/* Finds the assumptions to check first: those about chosen values that affect days and cost
 * most. */
static void find_key_assumptions(ls_plan_answer *answer)
{
    const char *const candidates[] = {
        answer->assumed_tokens,    answer->outcome ? answer->outcome->path->assumed_price : NULL,
        answer->assumed_constants, answer->assumed_batch,
        answer->assumed_length,    answer->assumed_strategy,
    };
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        if (candidates[i] && answer->key_count < LS_PLAN_KEY_ASSUMPTIONS) {
            answer->key_assumptions[answer->key_count++] = candidates[i];
        }
    }
}

ls_status ls_plan_answer_compute(ls_arena *arena, const ls_plan_question *question,
                                 ls_plan_answer *answer_out)
{
    *answer_out = (ls_plan_answer){
        .arena = arena, .given = question, .asked = question, .assumptions = {.arena = arena}};
    LS_TRY(ls_plan_read_question(answer_out));
    LS_TRY(answer_question(answer_out));
    find_key_assumptions(answer_out);
    return LS_OK;
}
