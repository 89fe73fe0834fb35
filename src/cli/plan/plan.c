// SPDX-License-Identifier: Apache-2.0
/* plan: what would training a model take? Options, the order of things, and the command line that
 * asks again. */
#include "cli/plan/plan.h"
#include "compute/queue.h"
#include "execution/calibrate/calibrate.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static_assert(offsetof(ls_plan_settings, question) == 0, "rows of the table name its members alone");
#define TEXT_ROW(record, name, value, text) LS_ROW_TEXT(record, name, value, text, .value_needed = true)
static const char *const precisions[] = {"bf16", "fp16", "fp8", "fp32", "tf32", "auto", NULL};
static const char *const optimizers[] = {"adamw", "adamw-no-master", "adamw-8bit", "sgd", "muon", NULL};
static const char *const lists[] = {"none", "models", "gpus", "nodes", "stacks", "sites", NULL};
static const char *const data_controls[] = {"any", "contract", "own", NULL};
static const char *const finetune_names[] = {"none", "full", "lora", "qlora", NULL};
static const char *const schedule_names[] = {"1f1b", "gpipe", "zb-h1", "zb-h2", "auto", "any", NULL};

static const ls_option plan_options[] = {
    TEXT_ROW(ls_plan_question, model, "MODEL", "model to plan for; use it instead of the argument MODEL"),
    TEXT_ROW(ls_plan_question, tokens, "N",
             "number of tokens to train on, such as 1.4T; default: 20 per parameter of the model"),
    TEXT_ROW(ls_plan_question, gpus, "KIND:COUNT",
             "accelerators to train on, such as h100:64, rtx-4090:1 or m3-ultra:1; here:1 is this machine "
             "(--list gpus)"),
    TEXT_ROW(ls_plan_question, nodes, "KIND:COUNT", "nodes to train on, such as dgx-h100:8 (--list nodes)"),
    LS_ROW_U64(ls_plan_question, global_batch, "0", 0, 1e9,
               "number of sequences per step; 0: chosen near the critical batch size"),
    LS_ROW_U64(ls_plan_question, seq, "0", 0, 1e8,
               "number of tokens per sequence (8k means 8000); 0: the model's context, at most 8192"),
    LS_ROW_CHOICE(ls_plan_question, precision, "auto", precisions,
                  "number format of the matrix products; auto: bf16, or fp32 on a CPU"),
    LS_ROW_CHOICE(ls_plan_question, optimizer, "adamw", optimizers,
                  "optimizer, which determines how many bytes of state each parameter needs"),
    TEXT_ROW(ls_plan_question, strategy, "KEY=VALUE,...",
             "how the work is divided between GPUs, such as tp=8,pp=2,dp=16,cp=1,ep=1,vpp=4,mb=1,zero=1,"
             "recompute=none|selective|full,sp=1; keys that are left out are chosen for you (if only vpp, sp "
             "and the schedule are left out, they are 1, on and 1f1b)"),
    LS_ROW_CHOICE(ls_plan_question, schedule, "auto", schedule_names,
                  "pipeline schedule; auto: 1f1b, or interleaved 1f1b where it is faster; any: the fastest "
                  "of all schedules, zero-bubble ones included"),
    TEXT_ROW(ls_plan_question, stack, "NAME",
             "training software whose measured efficiency the prediction uses (--list stacks)"),
    LS_ROW_TEXTS(
        ls_plan_question, catalogue, "FILE",
        "CSV file that describes your own hardware, with the columns of data/hardware.csv; may be repeated"),
    LS_ROW_U64(ls_plan_question, top, "5", 0, LS_SEARCH_TOP_MAX,
               "number of strategies to show that were considered but not chosen", .value_name = "K"),
    LS_ROW_DURATION(ls_plan_question, deadline, deadline, "0", 0, 1e10,
                    "time within which the run must end, such as 60d; 0: no deadline", .unit_needed = true),
    TEXT_ROW(ls_plan_question, link, "RATE",
             "rate of the link between machines, such as 100Mbit, 1Gbit or 12.5MB/s: show what data parallel "
             "training over it takes with compressed sums and with local steps"),
    LS_ROW_U64(ls_plan_question, hosts, "0", 0, 1024,
               "number of machines that --link connects; 0: those that --gpus or --nodes name"),
    TEXT_ROW(ls_plan_question, budget, "USD", "money that may be spent, such as 1M; default: no limit"),
    LS_ROW_F64(ls_plan_question, runs_per_month, "0", 0, 1e6,
               "number of times per month that the model is trained; 0: it is trained only once"),
    TEXT_ROW(ls_plan_question, portfolio, "FILE",
             "file that lists models and their training runs per month; costs cover all of them, and details "
             "are shown for MODEL, or for the first one"),
    TEXT_ROW(ls_plan_question, quote, "FILE",
             "file with price offers you have received (see examples/plan/quote.yaml)"),
    LS_ROW_F64(ls_plan_question, api_price, "0", 0, 1e6,
               "price per million tokens of a commercial API to compare with; 0: do not compare with an API",
               .value_name = "USD"),
    TEXT_ROW(ls_plan_question, api_tokens, "N",
             "number of tokens per month that the API of --api-price would answer, such as 2B"),
    TEXT_ROW(
        ls_plan_question, site, "NAME|FILE",
        "place for machines that you buy: colocation, hyperscale, enterprise, server-room, office-230v, ... "
        "(--list sites), or a file"),
    LS_ROW_F64(
        ls_plan_question, staff, "0", 0, 1e12,
        "cost per year of the people who operate bought machines; 0: estimated from the number of machines",
        .value_name = "USD"),
    LS_ROW_F64(ls_plan_question, utilization, "0", 0, 1,
               "share of the hours in which bought machines are in use; with --runs-per-month: upper limit "
               "of that share; 0: unknown"),
    LS_ROW_DURATION(ls_plan_question, lead_time, lead_time, "auto", 0, 1e9,
                    "time from order to delivery of bought machines, such as 12w", .allow_auto = true,
                    .unit_needed = true),
    LS_ROW_CHOICE(
        ls_plan_question, data_control, "any", data_controls,
        "who may hold the data: any provider, only those under contract, or only your own machines"),
    LS_ROW_CHOICE(
        ls_plan_settings, finetune, "none", finetune_names,
        "plan to train MODEL further from its trained weights. full: all weights; lora: adapters on frozen "
        "weights; qlora: adapters on frozen weights kept in 4 bits; none: plan to train MODEL from nothing"),
    LS_ROW_U64(ls_plan_settings, rank, "16", 1, 1024, "rank of the adapters of --finetune"),
    LS_ROW_BOOL(ls_plan_question, ladder,
                "show the test runs to do before the full run, from one node upwards, each with its cost and "
                "the criteria for passing"),
    LS_ROW_BOOL(ls_plan_question, scaling,
                "show days and cost for many GPU counts, and where adding GPUs stops paying"),
    TEXT_ROW(ls_plan_settings, memo, "FILE",
             "write a one-page memo for the person who approves the spending to this file"),
    TEXT_ROW(ls_plan_settings, html, "FILE", "write the answer as a web page with figures to this file"),
    TEXT_ROW(ls_plan_settings, explain, "TERM",
             "show the formula behind the number of the answer that TERM names, with its values"),
    LS_ROW_BOOL(
        ls_plan_settings, accuracy,
        "show predictions next to the results of real training runs, the worst prediction first, and exit"),
    TEXT_ROW(ls_plan_settings, data, "FILE",
             "CSV file of measured runs for --accuracy, with the columns of data/published_runs.csv or of "
             "vTrain's "
             "tables"),
    LS_ROW_CHOICE(ls_plan_settings, list, "none", lists,
                  "print all names of this kind that the planner knows, such as those for --gpus, and exit"),
    LS_ROW_BOOL(ls_plan_settings, why, "show why the recommended strategy was chosen and others were not"),
    LS_ROW_BOOL(ls_plan_settings, assumptions, "show every assumption that the answer depends on"),
    LS_ROW_BOOL(ls_plan_settings, all, "show the whole answer, not only the first screen"),
    LS_ROW_BOOL(ls_plan_settings, csv,
                "print the strategies as CSV; with --scaling, print one row per GPU count"),
    LS_ROW_JSON(ls_plan_settings),
};
static const ls_option_table plan_table = LS_OPTIONS(plan_options);

/* ---- the command again ---- */

/* A word for a shell, in quotes where it needs them. */
static void append_word(const char *word, ls_text *text)
{
    const bool plain =
        word[0] && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/") ==
                       strlen(word);
    ls_text_printf(text, plain ? " %s" : " '%s'", word);
}

/* One option as it was given; nothing where its value is the default. */
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
        /* the default: not printed */
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

/* The command that asks the same question again: all that was given, without the forms of the
 * answer. */
static const char *write_command(const ls_plan_settings *settings, const ls_plan_answer *answer)
{
    static const char *const outputs[] = {"model",   "json",   "csv", "html",        "memo", "explain",
                                          "scaling", "ladder", "why", "assumptions", "all"};
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
            append_given(&plan_options[i], settings, defaults, &text);
        }
    }
    return ls_text_keep(&text, answer->arena);
}

/* ---- the answer ---- */

/* This machine's calibration; planning itself computes nothing on a device. */
static bool find_calibration(ls_arena *arena, ls_calibration *calibration_out, char *why_out,
                             size_t why_bytes)
{
    ls_queue *queue = NULL;
    if (ls_queue_create_cpu(1, &queue) != LS_OK) {
        ls_error_clear();
        why_out[0] = '\0';
        return false;
    }
    const bool found = ls_calibration_find(arena, queue, calibration_out, why_out, why_bytes);
    ls_queue_destroy(queue);
    return found;
}

ls_status ls_plan_answer_for(ls_arena *arena, const char *model, const char *gpus, const char *strategy,
                             uint64_t global_batch, const ls_plan_answer **answer_out)
{
    ls_plan_settings *settings = ls_arena_new(arena, ls_plan_settings, 1);
    ls_plan_answer *answer = ls_arena_new(arena, ls_plan_answer, 1);
    ls_options_defaults(&plan_table, settings, arena);
    ls_plan_question *question = &settings->question;
    question->model = model;
    question->gpus = gpus;
    question->strategy = strategy;
    question->global_batch = global_batch;
    question->scaling = true;
    question->find_calibration = find_calibration;
    LS_TRY(ls_plan_answer_compute(arena, question, answer));
    answer->command = write_command(settings, answer);
    *answer_out = answer;
    return LS_OK;
}

static ls_status explain(const ls_plan_settings *settings, const ls_plan_answer *answer, ls_text *text)
{
    LS_TRY(ls_plan_explain(answer, settings->explain, text));
    if (settings->json) {
        json_t *root = json_pack("{s:s, s:s}", "term", settings->explain, "text", ls_text_string(text));
        ls_print_json(root);
        json_decref(root);
        ls_text_clear(text);
    }
    return LS_OK;
}

static void append_sections(const ls_plan_settings *settings, const ls_plan_answer *answer, ls_text *text)
{
    if (settings->all) {
        ls_plan_append_text(answer, text);
    } else if (settings->why || settings->assumptions) {
        if (settings->why) {
            ls_plan_append_why(answer, text);
        }
        if (settings->assumptions) {
            ls_plan_append_assumptions(answer, text);
        }
    } else {
        ls_plan_append_screen(answer, text);
    }
    ls_plan_append_extras(answer, text);
}

static ls_status print_answer(const ls_plan_settings *settings, const ls_plan_answer *answer)
{
    ls_text text = {0};
    ls_status status = LS_OK;
    if (settings->explain[0]) {
        status = explain(settings, answer, &text);
    } else if (settings->json) {
        json_t *root = ls_plan_to_json(answer);
        ls_print_json(root);
        json_decref(root);
    } else if (settings->csv && settings->question.scaling && answer->curve) {
        ls_plan_append_scaling_csv(answer, &text);
    } else if (settings->csv) {
        ls_plan_append_csv(answer, &text);
    } else {
        append_sections(settings, answer, &text);
    }
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
    return status;
}

/* MODEL is a word or --model; a portfolio needs neither. */
static ls_status choose_model(const ls_invocation *invocation, ls_plan_question *question)
{
    const char *word = invocation->word_count > 0 ? invocation->words[0] : NULL;
    const char *name = word ? word : question->model;
    if ((word && question->model[0]) || (!name[0] && !question->portfolio[0])) {
        return ls_fail(LS_ERR_INVALID, "give one MODEL: a preset (llama3-70b), a config.json, a run file or "
                                       "layers=32,hidden=4096,heads=32,...");
    }
    question->model = name;
    return LS_OK;
}

static ls_status run_plan(const ls_invocation *invocation)
{
    const ls_plan_settings *settings = invocation->settings;
    if (settings->accuracy) {
        return ls_plan_print_accuracy(invocation);
    }
    if (settings->list != LS_PLAN_LIST_NONE) {
        return ls_plan_print_list(invocation->arena, settings);
    }
    if (settings->json && settings->csv) {
        return ls_fail(LS_ERR_INVALID, "--json and --csv are two forms of the same answer: give one of them");
    }
    if (settings->data[0]) {
        return ls_fail(LS_ERR_INVALID, "--data is a table of measured runs and needs --accuracy");
    }
    ls_plan_question question = settings->question;
    question.find_calibration = find_calibration;
    question.draw = settings->html[0];
    question.needs_price = settings->memo[0];
    LS_TRY(choose_model(invocation, &question));
    if (settings->finetune > 0) {
        return ls_plan_print_finetune(invocation, &question);
    }
    ls_plan_answer *answer = ls_arena_new(invocation->arena, ls_plan_answer, 1);
    LS_TRY(ls_plan_answer_compute(invocation->arena, &question, answer));
    answer->command = write_command(settings, answer);
    LS_TRY(print_answer(settings, answer));
    if (settings->memo[0] && !answer->refusal) {
        LS_TRY(ls_plan_write_memo(answer, settings->memo));
    }
    if (settings->html[0]) {
        LS_TRY(ls_plan_write_html(answer, settings->html));
    }
    return answer->refusal ? ls_fail(LS_ERR_INVALID, "%s", answer->refusal) : LS_OK;
}

const ls_command ls_command_plan = {
    .name = "plan",
    LS_WORDS("MODEL", 0, 1),
    .summary = "predict memory, time and cost of training a model",
    .details = "MODEL is a preset (gpt2, llama3-8b, llama3-70b, mixtral-8x7b, ...), a Hugging\n"
               "Face config.json, a run file, or a list such as\n"
               "\n"
               "  layers=96,hidden=12288,heads=96,kv_heads=96,ffn=49152,vocab=51200,mlp=gelu\n"
               "\n"
               "With experts=8 the list also has top_k=2, expert_ffn=14336, shared=1 (experts\n"
               "that every token passes through) and dense_layers=1 (layers without experts).\n"
               "\n"
               "A full --strategy (tp, pp, dp, cp, ep, mb, zero, recompute) is evaluated as\n"
               "given; otherwise the fastest one that fits is searched for. The first screen has\n"
               "the decision; --why, --assumptions and --all show the rest.\n"
               "\n"
               "Examples:\n"
               "  lockstep plan llama3-70b --gpus h100:64 --tokens 1.4T\n"
               "  lockstep plan llama3-8b --nodes dgx-h100:4 --strategy tp=2,pp=1,mb=1 --json\n"
               "  lockstep plan llama3-8b --gpus h100:32 --explain bubble\n"
               "  lockstep plan llama3-70b --gpus h100:64 --html plan.html\n"
               "  lockstep plan --portfolio examples/plan/portfolio.yaml\n"
               "  lockstep plan --accuracy\n"
               "  lockstep plan --list models",
    .options = &plan_table,
    .settings_bytes = sizeof(ls_plan_settings),
    .run = run_plan,
};
