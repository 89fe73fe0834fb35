// SPDX-License-Identifier: Apache-2.0
/* plan: what would it take? A model, GPUs, tokens; memory, the best strategy, step time, days, money. */
#include "cli/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define FIELD(name) .offset = offsetof(ls_plan_settings, name)
#define TEXT_ROW(name, value, text)                                                                          \
    {                                                                                                        \
        .key = #name, .type = LS_OPTION_STRING, FIELD(name), .default_text = "\"\"", .value_needed = true,   \
        .value_name = (value), .help = (text)                                                                \
    }
static const char *const precisions[] = {"bf16", "fp16", "fp8", "fp32", "tf32", "auto", NULL};
static const char *const optimizers[] = {"adamw", "adamw-no-master", "adamw-8bit", "sgd", "muon", NULL};
static const char *const lists[] = {"none", "models", "gpus", "nodes", "stacks", "sites", NULL};
static const char *const data_controls[] = {"any", "contract", "own", NULL};
static const char *const schedule_names[] = {"1f1b", "gpipe", "zb-h1", "zb-h2", "auto", "any", NULL};

static const ls_option plan_options[] = {
    TEXT_ROW(model, "MODEL", "the same as the word MODEL"),
    TEXT_ROW(tokens, "N", "to train on, as 1.4T; 20 per parameter when not given"),
    TEXT_ROW(gpus, "KIND:COUNT",
             "accelerators, as h100:64, rtx-4090:1 or m3-ultra:1; here:1 is this machine (--list gpus)"),
    TEXT_ROW(nodes, "KIND:COUNT", "nodes, as dgx-h100:8"),
    {.key = "global_batch",
     .type = LS_OPTION_U64,
     FIELD(global_batch),
     .default_text = "0",
     .min = 0,
     .max = 1e9,
     .help = "sequences per step; 0: near the critical batch"},
    {.key = "seq",
     .type = LS_OPTION_U64,
     FIELD(seq),
     .default_text = "0",
     .min = 0,
     .max = 1e8,
     .help = "tokens per sequence (8k is 8000); 0: the model's context, 8192 at most"},
    {.key = "precision",
     .type = LS_OPTION_CHOICE,
     FIELD(precision),
     .default_text = "auto",
     .choices = precisions,
     .help = "of the matrix products; auto: bf16, on a CPU fp32"},
    {.key = "optimizer",
     .type = LS_OPTION_CHOICE,
     FIELD(optimizer),
     .default_text = "adamw",
     .choices = optimizers,
     .help = "decides how much state a parameter has"},
    TEXT_ROW(strategy, "KEY=VALUE,...",
             "tp=8,pp=2,dp=16,cp=1,ep=1,vpp=4,mb=1,zero=1,recompute=none|selective|full,sp=1; what is left "
             "out is chosen (vpp, sp and the schedule: 1, on, 1f1b where the rest is given)"),
    {.key = "schedule",
     .type = LS_OPTION_CHOICE,
     FIELD(schedule),
     .default_text = "auto",
     .choices = schedule_names,
     .help = "of the pipeline; auto: 1f1b, interleaved where that helps; any: zero-bubble ones too"},
    TEXT_ROW(stack, "NAME", "the software that trains; its constants are used"),
    {.key = "catalogue",
     .type = LS_OPTION_STRINGS,
     FIELD(catalogue),
     .default_text = "[]",
     .value_name = "FILE",
     .help = "rows of your own, with the columns of data/hardware.csv; may be repeated"},
    {.key = "top",
     .type = LS_OPTION_U64,
     FIELD(top),
     .default_text = "5",
     .min = 0,
     .max = LS_SEARCH_TOP_MAX,
     .value_name = "K",
     .help = "how many strategies that lost are shown"},
    {.key = "deadline",
     .type = LS_OPTION_DURATION,
     FIELD(deadline),
     .default_text = "0",
     .min = 0,
     .max = 1e10,
     .unit_needed = true,
     .help = "the run is to end within, as 60d; 0: none"},
    TEXT_ROW(budget, "USD", "that may be spent, as 1M"),
    {.key = "runs_per_month",
     .type = LS_OPTION_F64,
     FIELD(runs_per_month),
     .default_text = "0",
     .min = 0,
     .max = 1e6,
     .help = "how often it will be trained; 0: once"},
    TEXT_ROW(
        portfolio, "FILE",
        "models and their runs per month: costs are of all of them; MODEL, or the first, is shown in detail"),
    TEXT_ROW(quote, "FILE", "offers of your own"),
    {.key = "api_price",
     .type = LS_OPTION_F64,
     FIELD(api_price),
     .default_text = "0",
     .min = 0,
     .max = 1e6,
     .value_name = "USD",
     .help = "of an outside API, per million tokens; 0: not compared"},
    TEXT_ROW(api_tokens, "N", "that the API would answer in a month, as 2B"),
    TEXT_ROW(site, "NAME|FILE",
             "where machines of your own would stand: colocation, hyperscale, enterprise, server-room, "
             "office-230v, ... or a file"),
    {.key = "staff",
     .type = LS_OPTION_F64,
     FIELD(staff),
     .default_text = "0",
     .min = 0,
     .max = 1e12,
     .value_name = "USD",
     .help = "a year for people who run own machines; 0: by their number"},
    {.key = "utilization",
     .type = LS_OPTION_F64,
     FIELD(utilization),
     .default_text = "0",
     .min = 0,
     .max = 1,
     .help = "share of the hours that own machines are used; with runs by the month, at most; 0: not known"},
    {.key = "lead_time",
     .type = LS_OPTION_DURATION,
     FIELD(lead_time),
     .default_text = "auto",
     .allow_auto = true,
     .min = 0,
     .max = 1e9,
     .unit_needed = true,
     .help = "until machines one buys are there, as 12w"},
    {.key = "data_control",
     .type = LS_OPTION_CHOICE,
     FIELD(data_control),
     .default_text = "any",
     .choices = data_controls,
     .help = "who may hold the data: anybody, whom a contract binds, or only own machines"},
    {.key = "ladder",
     .type = LS_OPTION_BOOL,
     FIELD(ladder),
     .default_text = "false",
     .help = "stages from one node to the full run, with cost and pass criteria"},
    {.key = "scaling",
     .type = LS_OPTION_BOOL,
     FIELD(scaling),
     .default_text = "false",
     .help = "days against money over GPU counts, the knee, and what limits there"},
    TEXT_ROW(memo, "FILE", "write the one page a decision-maker signs"),
    TEXT_ROW(html, "FILE", "write a page with pictures, for a screen or a phone"),
    TEXT_ROW(explain, "TERM", "the formula behind a number of the answer, with the numbers in"),
    {.key = "accuracy",
     .type = LS_OPTION_BOOL,
     FIELD(accuracy),
     .default_text = "false",
     .help = "instead: predictions beside measured runs, worst ones included"},
    TEXT_ROW(data, "FILE",
             "of measured runs for --accuracy (or the word after it), with the columns of "
             "data/published_runs.csv or of vTrain's tables"),
    {.key = "claims",
     .type = LS_OPTION_BOOL,
     FIELD(claims),
     .default_text = "false",
     .help = "instead: what is often said about training at scale, computed again (docs/claims.md)"},
    {.key = "list",
     .type = LS_OPTION_CHOICE,
     FIELD(list),
     .default_text = "none",
     .choices = lists,
     .help = "instead: the names there are"},
    {.key = "csv",
     .type = LS_OPTION_BOOL,
     FIELD(csv),
     .default_text = "false",
     .help = "print strategies as CSV; with --scaling the GPU counts"},
    LS_ROW_JSON(ls_plan_settings),
};
static const ls_option_table plan_table = LS_OPTIONS(plan_options);

/* ---- the answer ---- */

/* What fits instead of a strategy that doesn't, in the answer's place for those that lost. */
static void find_instead(ls_plan_answer *answer)
{
    const ls_search_options open = {.top = answer->settings->top};
    ls_search_result *result = ls_arena_new(answer->arena, ls_search_result, 1);
    if (!ls_plan_is_here(answer, &answer->node) && ls_search_run(&answer->setting, &open, result) == LS_OK) {
        answer->instead = result;
    }
}

/* Why a strategy that was given is refused. */
static void refuse_given(ls_plan_answer *answer)
{
    const ls_memory_estimate *memory = &answer->estimate.memory;
    char given[192], offer[LS_SEARCH_OFFER_BYTES];
    ls_strategy_describe(&answer->estimate.strategy, given, sizeof given);
    const bool is_here = ls_plan_is_here(answer, &answer->node);
    const char *hint = "a smaller model, shorter sequences (--seq), or other machines (--gpus KIND:COUNT)";
    find_instead(answer);
    if (answer->instead) {
        ls_search_offer(&answer->instead->best, offer, sizeof offer);
        hint = offer;
    } else if (!is_here) {
        hint = ls_arena_strdup(answer->arena, ls_error_text());
    }
    answer->refusal = ls_arena_printf(
        answer->arena,
        "%s does not fit with %s: %.1f GiB of each GPU's %.1f are needed, 95 %% may be full; %s%s",
        answer->shape.name, given, memory->total / LS_PLAN_GIB, memory->capacity / LS_PLAN_GIB, hint,
        ls_plan_ways_out(answer));
    ls_error_clear();
}

/* Nothing fits: what takes least stands in the answer's place, with the search's reason for refusing it. Not refused, but a failure, is what can't be split that way. */
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
    if (answer->settings->strategy[0]) {
        find_instead(answer);
        ls_error_clear();
    }
    ls_assumptions_add(&answer->assumptions,
                       "strategy: what takes least memory, for nothing fits (--strategy)");
    return LS_OK;
}

static ls_status search_strategy(ls_plan_answer *answer)
{
    ls_search_options options = {.request = answer->request,
                                 .top = answer->settings->top,
                                 .any_schedule = answer->settings->schedule == LS_PLAN_SCHEDULE_ANY};
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
    ls_assumptions_add(
        &answer->assumptions, "%s: the fastest that fits of %" PRIu64 " looked at (--strategy)",
        answer->settings->strategy[0] ? "what the strategy leaves open" : "strategy", result->possible);
    return LS_OK;
}

static ls_status evaluate_strategy(ls_plan_answer *answer)
{
    const ls_strategy strategy = ls_strategy_resolve(&answer->request, answer->setting.gpus);
    LS_TRY(ls_strategy_check(&strategy, &answer->shape, answer->setting.gpus, answer->setting.global_batch,
                             answer->setting.length));
    if (strategy.sequence_parallel && !answer->request.has_sequence_parallel) {
        ls_assumptions_add(&answer->assumptions,
                           "sequence parallelism beside tensor parallelism (sp=0 in --strategy: without)");
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
        refuse_given(answer); /* else the search has said why */
    }
    if (answer->refusal && !ls_plan_is_here(answer, &answer->node)) {
        ls_assumptions_add(&answer->assumptions,
                           "memory as Megatron-Core and FSDP hold it: programs that free tensors early need "
                           "less (Llama 3 405B at Meta: docs/planning-accuracy.md)");
    }
    answer->steps = ceil(answer->tokens / (double)(answer->setting.global_batch * answer->setting.length));
    answer->days = answer->tokens / answer->estimate.tokens_ps / 86400.0;
    LS_TRY(ls_plan_reckon(answer));
    if (answer->settings->ladder) {
        ls_plan_climb(answer);
    }
    LS_TRY(answer->search || answer->settings->scaling ? ls_plan_scale(answer) : LS_OK);
    if (answer->settings->html[0] && !answer->curve && !ls_plan_is_here(answer, &answer->node) &&
        ls_plan_scale(answer) != LS_OK) {
        answer->curve = NULL; /* the page says that there is none */
        ls_error_clear();
    }
    return LS_OK;
}

ls_status ls_plan_answer_for(ls_arena *arena, const char *model, const char *gpus, const char *strategy,
                             uint64_t global_batch, const ls_plan_answer **answer_out)
{
    ls_plan_settings *settings = ls_arena_new(arena, ls_plan_settings, 1);
    ls_plan_answer *answer = ls_arena_new(arena, ls_plan_answer, 1);
    ls_options_defaults(&plan_table, settings, arena);
    settings->gpus = gpus;
    settings->strategy = strategy;
    settings->global_batch = global_batch;
    settings->scaling = true;
    answer->arena = arena;
    LS_TRY(ls_plan_ask(settings, model, answer));
    LS_TRY(answer_question(answer));
    *answer_out = answer;
    return LS_OK;
}

/* For a shell: in quotes where it must be. */
static void append_word(const char *word, ls_text *text)
{
    const bool plain =
        word[0] && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/") ==
                       strlen(word);
    ls_text_printf(text, plain ? " %s" : " '%s'", word);
}

/* One option as it was given; nothing when its value is that of `defaults`. */
static void append_given(const ls_option *option, const ls_plan_settings *settings,
                         const ls_plan_settings *defaults, ls_text *text)
{
    ls_text value = {0}, usual = {0};
    ls_options_append_value(option, settings, &value);
    ls_options_append_value(option, defaults, &usual);
    char key[32];
    snprintf(key, sizeof key, "%s", option->key);
    for (char *at = key; *at; at++) {
        *at = *at == '_' ? '-' : *at;
    }
    const void *field = (const char *)settings + option->offset;
    if (strcmp(ls_text_string(&value), ls_text_string(&usual)) == 0) {
        /* as ever */
    } else if (option->type == LS_OPTION_BOOL) {
        ls_text_printf(text, " --%s", key);
    } else if (option->type == LS_OPTION_STRINGS) {
        const ls_option_strings *list = field;
        for (size_t i = 0; i < list->count; i++) {
            ls_text_printf(text, " --%s", key);
            append_word(list->items[i], text);
        }
    } else {
        ls_text_printf(text, " --%s", key);
        append_word(option->type == LS_OPTION_STRING ? *(const char *const *)field : ls_text_string(&value),
                    text);
    }
    ls_text_release(&usual);
    ls_text_release(&value);
}

const char *ls_plan_write_command(const ls_plan_answer *answer)
{
    static const char *const outputs[] = {"model", "json",    "csv",     "html",
                                          "memo",  "explain", "scaling", "ladder"};
    ls_plan_settings *defaults = ls_arena_new(answer->arena, ls_plan_settings, 1);
    ls_text text = {0};
    ls_options_defaults(&plan_table, defaults, answer->arena);
    ls_text_append(&text, "lockstep plan");
    append_word(answer->examined ? answer->examined->name : answer->model, &text);
    for (size_t i = 0; i < plan_table.count; i++) {
        bool is_output = false;
        for (size_t k = 0; k < sizeof outputs / sizeof outputs[0]; k++) {
            is_output = is_output || strcmp(plan_options[i].key, outputs[k]) == 0;
        }
        if (!is_output) {
            append_given(&plan_options[i], answer->given, defaults, &text);
        }
    }
    const char *command = ls_arena_strdup(answer->arena, ls_text_string(&text));
    ls_text_release(&text);
    return command;
}

static ls_status print_answer(const ls_plan_answer *answer)
{
    const ls_plan_settings *settings = answer->settings;
    ls_text text = {0};
    ls_status status = LS_OK;
    if (settings->explain[0]) {
        status = ls_plan_explain(answer, &text);
        if (status == LS_OK && settings->json) {
            json_t *root = json_pack("{s:s, s:s}", "term", settings->explain, "text", ls_text_string(&text));
            ls_print_json(root);
            json_decref(root);
            ls_text_clear(&text);
        }
    } else if (settings->json) {
        json_t *root = ls_plan_to_json(answer);
        ls_print_json(root);
        json_decref(root);
    } else if (settings->csv && settings->scaling && answer->curve) {
        ls_plan_append_scaling_csv(answer, &text);
    } else if (settings->csv) {
        ls_plan_append_csv(answer, &text);
    } else {
        ls_plan_append_text(answer, &text);
    }
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
    return status;
}

static ls_status run_plan(const ls_invocation *invocation)
{
    const ls_plan_settings *settings = invocation->settings;
    const char *model = NULL;
    if (settings->accuracy) {
        return ls_plan_print_accuracy(invocation);
    }
    if (settings->list != LS_PLAN_LIST_NONE) {
        return ls_plan_print_list(invocation->arena, settings);
    }
    if (settings->claims) {
        return ls_plan_print_claims(invocation);
    }
    if (settings->json && settings->csv) {
        return ls_fail(LS_ERR_INVALID, "--json and --csv are two forms of one answer: give one of them");
    }
    if (settings->data[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "--data is a table of measured runs for --accuracy, which is not there");
    }
    ls_plan_answer *answer = ls_arena_new(invocation->arena, ls_plan_answer, 1);
    answer->arena = invocation->arena;
    LS_TRY(ls_plan_find_model(answer, settings, invocation->word_count > 0 ? invocation->words[0] : NULL,
                              &model));
    LS_TRY(ls_plan_ask(invocation->settings, model, answer));
    LS_TRY(answer_question(answer));
    LS_TRY(print_answer(answer));
    if (answer->settings->memo[0] && !answer->refusal) {
        LS_TRY(ls_plan_write_memo(answer));
    }
    if (answer->settings->html[0]) {
        LS_TRY(ls_plan_write_html(answer));
    }
    return answer->refusal ? ls_fail(LS_ERR_INVALID, "%s", answer->refusal) : LS_OK;
}

const ls_command ls_command_plan = {
    .name = "plan",
    .words = "MODEL",
    .summary = "what would it take? memory, strategy, step time, days, money",
    .details =
        "MODEL is a preset (gpt2, llama3-8b, llama3-70b, mixtral-8x7b, ...), a Hugging Face "
        "config.json, a run file, or\n"
        "layers=96,hidden=12288,heads=96,kv_heads=96,ffn=49152,vocab=51200,mlp=gelu; with experts=8 "
        "also top_k=2,\n"
        "expert_ffn=14336, shared=1 (experts every token goes through), dense_layers=1 (layers without "
        "experts).\n"
        "With a full --strategy (tp, pp, dp, cp, ep, mb, zero, recompute) that one is evaluated; else "
        "all are searched,\n"
        "and it is said why the next ones lose.\n"
        "\nExamples:\n"
        "  lockstep plan llama3-70b --gpus h100:64 --tokens 1.4T\n"
        "  lockstep plan llama3-8b --nodes dgx-h100:4 --strategy tp=2,pp=1,mb=1 --json\n"
        "  lockstep plan llama3-8b --gpus h100:32 --explain bubble\n"
        "  lockstep plan llama3-70b --gpus h100:64 --html plan.html\n"
        "  lockstep plan --portfolio examples/plan/portfolio.yaml\n"
        "  lockstep plan --accuracy\n"
        "  lockstep plan --list models",
    .words_min = 0,
    .words_max = 1,
    .options = &plan_table,
    .settings_bytes = sizeof(ls_plan_settings),
    .run = run_plan,
};
