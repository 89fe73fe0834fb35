// SPDX-License-Identifier: Apache-2.0
/* Failures, power, money, and the verdict over all places where the work could be done. */
#include "planning/answer/answer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WORKSTATION_GPUS 4 /* Cards without a network of their own: this many fit under a desk. */
#define MONEY_MAX        1e15

/* ---- the work ---- */

static void add_workload(ls_plan_money *money, const ls_plan_work *work, const ls_portfolio_run *run)
{
    const size_t i = money->workload_count++;
    const ls_shape *shape = work->shape;
    money->models[i] = *work;
    money->workloads[i] = (ls_workload){.name = run->name,
                                        .parameters = (double)shape->parameters,
                                        .active_parameters = (double)shape->active_parameters,
                                        .tokens = run->tokens,
                                        .runs_per_month = run->runs_per_month};
    money->parameters_most = fmax(money->parameters_most, (double)shape->parameters);
}

/* The work that the answer is about: what the command line says replaces what the portfolio
 * says. */
static void add_own(ls_plan_money *money, const char *name, double runs_per_month)
{
    const ls_plan_work work = ls_plan_own_work(money->answer);
    const ls_portfolio_run run = {
        .name = name, .tokens = money->answer->tokens, .runs_per_month = runs_per_month};
    add_workload(money, &work, &run);
}

static ls_status add_portfolio(ls_plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    for (size_t i = 0; i < answer->portfolio.count; i++) {
        const ls_portfolio_run *run = &answer->portfolio.runs[i];
        if (run == answer->examined) {
            add_own(money, run->name, run->runs_per_month);
            continue;
        }
        ls_shape *shape = ls_arena_new(answer->arena, ls_shape, 1);
        const ls_status parsed = ls_shape_parse(answer->arena, run->model, shape);
        if (parsed != LS_OK) {
            return ls_fail_within(parsed, "%s", answer->asked->portfolio);
        }
        const ls_plan_work work = {shape, run->global_batch, run->sequence};
        add_workload(money, &work, run);
    }
    return LS_OK;
}

static ls_status collect_work(ls_plan_money *money)
{
    const ls_plan_answer *answer = money->answer;
    if (answer->portfolio.count > 0) {
        return add_portfolio(money);
    }
    add_own(money, answer->shape.name, answer->asked->runs_per_month);
    return LS_OK;
}

/* ---- prices and places ---- */

static ls_status collect_prices(ls_plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_plan_question *settings = answer->asked;
    if (settings->quote[0]) {
        LS_TRY(ls_quote_load(answer->arena, settings->quote, &answer->quote));
        const ls_status checked = ls_quote_check(&answer->quote, &answer->catalogue);
        if (checked != LS_OK) {
            return ls_fail_within(checked, "%s", settings->quote);
        }
    }
    money->prices = (ls_path_settings){.arena = answer->arena,
                                       .assumptions = &answer->assumptions,
                                       .catalogue = &answer->catalogue,
                                       .quote = settings->quote[0] ? &answer->quote : NULL,
                                       .site = answer->site,
                                       .staff_usd_year = settings->staff,
                                       .lead_time_s = settings->lead_time};
    return LS_OK;
}

static bool asks_for_money(const ls_plan_question *settings)
{
    return settings->budget[0] || settings->quote[0] || settings->portfolio[0] || settings->needs_price ||
           settings->runs_per_month > 0.0 || settings->utilization > 0.0 || settings->ladder ||
           settings->deadline > 0.0 || settings->api_price > 0.0 || settings->staff > 0.0 ||
           settings->data_control != 0;
}

ls_status ls_plan_money_add_path(ls_plan_money *money, ls_path_kind kind, const ls_node *node, bool is_here)
{
    ls_plan_answer *answer = money->answer;
    size_t count = 0;
    /* The last place is the API's. */
    const size_t room = LS_PATHS_MOST - money->path_count - (kind != LS_PATH_API);
    if (money->kinds_left > 0) {
        money->kinds_left--;
    }
    const size_t kept = LS_PLAN_PATHS_KEPT * money->kinds_left;
    const size_t most = room > kept ? room - kept : room > 0;
    if (most == 0) {
        ls_assumptions_add(&answer->assumptions, "%s: %s is left out, because there are %d paths already",
                           node->accelerator->name, ls_path_kind_name(kind), LS_PATHS_MOST);
        return LS_OK;
    }
    const ls_path_request request = {.kind = kind, .node = node, .is_here = is_here, .most = most};
    const ls_status built = ls_path_build(&money->prices, &request, &money->paths[money->path_count], &count);
    money->path_count += count;
    if (built != LS_ERR_NOT_FOUND) {
        return built;
    }
    ls_assumptions_add(&answer->assumptions, "%s", ls_error_text());
    ls_error_clear();
    return LS_OK;
}

bool ls_plan_is_workstation(const ls_node *node, int64_t gpus)
{
    const ls_accelerator *accelerator = node->accelerator;
    return gpus <= WORKSTATION_GPUS &&
           (accelerator->class == LS_CLASS_APPLE || accelerator->class == LS_CLASS_CPU ||
            (accelerator->class == LS_CLASS_GPU && accelerator->scaleup_domain <= 1));
}

/* ---- how fast each size is ---- */

bool ls_plan_estimate_on(ls_plan_answer *answer, const ls_plan_work *work, const ls_node *node, int64_t gpus,
                         ls_setting *setting_out, ls_estimate *estimate_out)
{
    const bool is_own = work->shape == &answer->shape;
    if (is_own && gpus == answer->setting.gpus && answer->setting.node &&
        node->accelerator == answer->node.accelerator && node->count == answer->node.count &&
        answer->estimate.tokens_ps > 0.0) {
        *setting_out = answer->setting;
        *estimate_out = answer->estimate;
        return answer->estimate.fit != LS_FIT_NO;
    }
    if (ls_plan_setting_on(answer, work, node, gpus, setting_out) != LS_OK) {
        ls_error_clear();
        return false;
    }
    if (ls_plan_is_here(answer, node)) {
        ls_plan_own own;
        if (ls_plan_estimate_here(answer, setting_out, &own, estimate_out) == LS_OK) {
            return estimate_out->fit != LS_FIT_NO;
        }
        ls_assumptions_add(&answer->assumptions, "this machine: %s", ls_error_text());
        ls_error_clear();
        return false;
    }
    ls_search_result *result = ls_arena_new(answer->arena, ls_search_result, 1);
    ls_search_options options = {.any_schedule = answer->asked->schedule == LS_PLAN_SCHEDULE_ANY};
    /* --strategy is for the examined work; each other run of a portfolio gets its own best
     * strategy. */
    if (is_own) {
        options.request = answer->request;
    }
    const ls_status status = ls_plan_search(answer, setting_out, &options, result);
    ls_error_clear();
    *estimate_out = result->best;
    return status == LS_OK;
}

static ls_band band_on(const ls_plan_answer *answer, const ls_node *node, const ls_setting *setting,
                       const ls_estimate *estimate)
{
    return ls_plan_is_here(answer, node)
               ? ls_accuracy_band_here(answer->here, estimate->time.step_s)
               : ls_accuracy_band(setting, &estimate->strategy, estimate->time.step_s);
}

typedef struct pace {
    double tokens_ps; /* 0: it does not fit, or cannot run there */
    double slow;      /* one run in ten takes this many times as long */
} pace;

static pace measure_speed(ls_plan_money *money, size_t workload, const ls_node *node, int64_t gpus)
{
    ls_setting setting;
    ls_estimate estimate;
    if (!ls_plan_estimate_on(money->answer, &money->models[workload], node, gpus, &setting, &estimate)) {
        return (pace){.slow = 1.0};
    }
    const ls_band band = band_on(money->answer, node, &setting, &estimate);
    return (pace){.tokens_ps = estimate.tokens_ps, .slow = band.high_s / estimate.time.step_s};
}

double ls_plan_money_add_size(ls_plan_money *money, size_t first, const ls_node *node, int64_t gpus)
{
    double speeds[LS_PORTFOLIO_MOST], least = INFINITY, slow = 1.0;
    for (size_t i = 0; i < money->workload_count; i++) {
        const pace one = measure_speed(money, i, node, gpus);
        speeds[i] = one.tokens_ps;
        least = fmin(least, one.tokens_ps);
        slow = fmax(slow, one.slow);
    }
    const ls_path_size size = {.gpus = gpus,
                               .tokens_ps = speeds,
                               .count = money->workload_count,
                               .slow = slow,
                               .parameters = money->parameters_most};
    for (size_t i = first; i < money->path_count; i++) {
        ls_path_add_point(&money->paths[i], money->answer->arena, &size);
    }
    return least;
}

/* ---- the question ---- */

static ls_status ask_question(ls_plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_plan_question *settings = answer->asked;
    ls_question *question = &answer->question;
    ls_question_init(question);
    question->workloads = money->workloads;
    question->workload_count = money->workload_count;
    question->paths = money->paths;
    question->path_count = money->path_count;
    question->runs_per_month = settings->runs_per_month;
    question->utilization = settings->utilization;
    question->deadline_s = settings->deadline;
    question->api_usd_per_million = settings->api_price;
    if (settings->budget[0]) {
        LS_TRY(ls_plan_parse_quantity("--budget", settings->budget, 1, MONEY_MAX, &question->budget_usd));
    }
    if (settings->api_tokens[0] && !(settings->api_price > 0.0)) {
        return ls_fail(
            LS_ERR_INVALID,
            "--api-tokens is %s, but their price is missing: give --api-price USD, per million tokens",
            settings->api_tokens);
    }
    if (settings->api_tokens[0]) {
        LS_TRY(ls_plan_parse_quantity("--api-tokens", settings->api_tokens, 1, 1e18,
                                      &question->api_tokens_month));
    }
    if (settings->quote[0]) {
        question->storage_usd_gb_month = answer->quote.storage_usd_gb_month;
        question->egress_usd_tb = answer->quote.egress_usd_tb;
    }
    question->data_control = (ls_data_control)settings->data_control;
    return LS_OK;
}

static ls_status decide_without_price(ls_plan_answer *answer)
{
    ls_verdict *verdict = &answer->verdict;
    const char *name = answer->node.accelerator->name;
    if (asks_for_money(answer->asked)) {
        return ls_fail(LS_ERR_INVALID,
                       "no price is known for %s: give one with --quote FILE or --catalogue FILE", name);
    }
    *verdict = (ls_verdict){.kind = LS_VERDICT_DONT, .chosen = -1, .told = -1, .owned = -1};
    snprintf(verdict->reason, sizeof verdict->reason,
             "no path is possible: no price to rent or to buy %s is known; give one with --quote FILE", name);
    return LS_OK;
}

ls_status ls_plan_money_decide(ls_plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    ls_verdict *verdict = &answer->verdict;
    if (money->path_count == 0) {
        return decide_without_price(answer);
    }
    if (answer->asked->api_price > 0.0) {
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_API, NULL, false));
    }
    LS_TRY(ask_question(money));
    ls_verdict_compute(&answer->question, verdict);
    ls_verdict_assume(&answer->question, verdict, &answer->assumptions);
    answer->outcome = verdict->told >= 0 ? &verdict->outcomes[verdict->told] : NULL;
    return LS_OK;
}

ls_status ls_plan_money_begin(ls_plan_answer *answer, ls_plan_money **money_out)
{
    ls_plan_money *money = ls_arena_new(answer->arena, ls_plan_money, 1);
    money->answer = answer;
    LS_TRY(collect_work(money));
    LS_TRY(collect_prices(money));
    answer->work = money->models;
    *money_out = money;
    return LS_OK;
}

/* ---- a machine was named ---- */

/* Names own offers for other machines, so that none is ignored silently. */
static void say_other_offers(ls_plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_quote *quote = money->prices.quote;
    for (size_t i = 0; quote && i < quote->count; i++) {
        const ls_offer *offer = &quote->offers[i];
        if (!ls_offer_is_for(offer, &answer->catalogue, &answer->node)) {
            ls_assumptions_add(&answer->assumptions,
                               "the offer \"%s\" is not compared: it is for %s, and the question is about %s "
                               "(without --gpus all are compared)",
                               offer->name, offer->node[0] ? offer->node : offer->accelerator,
                               answer->node.accelerator->name);
        }
    }
}

/* ---- what would do, where nothing that was asked for does ---- */

#define SIZES_GPUS_MOST 32768

/* The next size: times 1.5, then times 2, in whole nodes. */
static int64_t next_size(const ls_node *node, int64_t first, int64_t gpus)
{
    int64_t doubled = first;
    while (2 * doubled <= gpus) {
        doubled *= 2;
    }
    const int64_t half = doubled / 2 * 3, next = gpus < half ? half : 2 * doubled;
    return next < node->count ? next : (next + node->count - 1) / node->count * node->count;
}

/* Finds the smallest size at which a path is possible when no budget applies. False: none that was
 * examined. Sizes are added to the paths; the caller takes them away. */
static bool find_size(ls_plan_money *money, ls_verdict *verdict_out)
{
    ls_plan_answer *answer = money->answer;
    ls_question question = answer->question;
    const int64_t first = answer->setting.gpus;
    question.budget_usd = 0.0;
    question.api_usd_per_million = 0.0;
    for (int64_t gpus = first;
         gpus <= SIZES_GPUS_MOST && money->paths[money->path_count - 1].point_count < LS_PATH_POINTS_MOST;) {
        ls_verdict_decide(&question, verdict_out);
        if (verdict_out->chosen >= 0) {
            return true;
        }
        gpus = next_size(&answer->node, first, gpus);
        ls_plan_money_add_size(money, 0, &answer->node, gpus);
        for (size_t i = 0; i < money->path_count; i++) { /* only one machine stands under a desk */
            money->paths[i].point_count =
                money->paths[i].kind == LS_PATH_LOCAL ? 1 : money->paths[i].point_count;
        }
    }
    return false;
}

static void append_size(const ls_plan_answer *answer, const ls_verdict *found, ls_text *text)
{
    const ls_path_outcome *o = &found->outcomes[found->chosen];
    const bool is_late = answer->question.deadline_s > 0.0;
    ls_text_printf(text, "; %s%" PRId64 " of them %s: %s, %s (%s)", is_late ? "" : "at least ", o->machines,
                   is_late ? "meet the deadline" : "are needed", ls_span_of(o->days).text,
                   ls_usd_of(o->run_usd).text, o->name);
}

/* Appends how many tokens the budget pays for on the cheapest rented path. */
static void append_budget(const ls_plan_answer *answer, const ls_verdict *found, ls_text *text)
{
    const double budget_usd = answer->question.budget_usd;
    const ls_path_outcome *o = found->rented >= 0 ? &found->outcomes[found->rented] : NULL;
    if (!(budget_usd > 0.0) || !o || !isfinite(o->days)) {
        return;
    }
    const double share = budget_usd / o->run_usd_slow;
    if (share >= 1.0) {
        ls_text_printf(text, "; %s pays for that", ls_usd_of(budget_usd).text);
    } else {
        ls_text_printf(text, "; %s pays for about %s tokens", ls_usd_of(budget_usd).text,
                       ls_quantity_of(share * answer->tokens).text);
    }
}

/* Appends to the reason how many of these machines would do, and what the budget buys. Only for a
 * question about one model. */
static void suggest(ls_plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    ls_verdict *verdict = &answer->verdict;
    const ls_path_outcome *told = answer->outcome;
    if (verdict->chosen >= 0 || !told || money->workload_count != 1 || verdict->tokens_per_parameter < 1.0 ||
        (told->obstacle != LS_OBSTACLE_DEADLINE && told->obstacle != LS_OBSTACLE_LIFE &&
         told->obstacle != LS_OBSTACLE_BUDGET)) {
        return;
    }
    size_t before[LS_PATHS_MOST];
    for (size_t i = 0; i < money->path_count; i++) {
        before[i] = money->paths[i].point_count;
    }
    ls_verdict *found = ls_arena_new(answer->arena, ls_verdict, 1);
    ls_text text = {0};
    const bool is_found = find_size(money, found);
    if (is_found && told->obstacle != LS_OBSTACLE_BUDGET) {
        append_size(answer, found, &text);
    } else if (!is_found) {
        ls_text_append(&text, "; more of them would not help");
    }
    append_budget(answer, is_found ? found : verdict, &text);
    const size_t used = strlen(verdict->reason);
    snprintf(verdict->reason + used, sizeof verdict->reason - used, "%s", ls_text_string(&text));
    ls_text_release(&text);
    for (size_t i = 0; i < money->path_count; i++) {
        money->paths[i].point_count = before[i];
    }
}

static ls_status judge_machine(ls_plan_answer *answer)
{
    ls_plan_money *money = NULL;
    const ls_node *node = &answer->node;
    const bool is_here = ls_plan_is_here(answer, node);
    const bool is_desk = ls_plan_is_workstation(node, answer->setting.gpus);
    LS_TRY(ls_plan_money_begin(answer, &money));
    if (is_desk) {
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_LOCAL, node, is_here));
    }
    if (!is_here) {
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_RENTED, node, false));
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_CLOUD, node, false));
    }
    if (!is_desk) {
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_OWNED, node, false));
    }
    say_other_offers(money);
    ls_plan_money_add_size(money, 0, node, answer->setting.gpus);
    LS_TRY(ls_plan_money_decide(money));
    suggest(money);
    return LS_OK;
}

/* ---- failures, power ---- */

static void reckon_failures(ls_plan_answer *answer)
{
    const ls_accelerator *accelerator = answer->node.accelerator;
    ls_failure_setting *setting = &answer->failure_setting;
    *setting = (ls_failure_setting){.gpus = answer->setting.gpus,
                                    .gpus_per_node = answer->node.count,
                                    .parameters = (double)answer->shape.parameters,
                                    .is_desk = ls_plan_is_workstation(&answer->node, answer->setting.gpus),
                                    .snapshot_bytes_ps = accelerator->pcie_bytes_ps};
    const ls_path_outcome *outcome = answer->outcome;
    if (outcome && outcome->offer->kind == LS_OFFER_SPOT) {
        setting->preemptions_per_day = outcome->offer->preemptions_per_day;
        setting->wait_s = LS_FAILURE_SPOT_WAIT_S;
    }
    ls_failure_compute(setting, &answer->failure);
    ls_failure_assume(setting, &answer->assumptions);
}

ls_node ls_plan_powered_node(const ls_plan_answer *answer)
{
    ls_node node = answer->node;
    const ls_path_outcome *o = answer->outcome;
    const bool is_rented = o && (o->path->kind == LS_PATH_RENTED || o->path->kind == LS_PATH_CLOUD);
    if (is_rented && answer->setting.gpus < node.count) {
        node.power_w *= (double)answer->setting.gpus / (double)node.count;
        node.count = answer->setting.gpus;
    }
    return node;
}

ls_status ls_plan_add_costs(ls_plan_answer *answer)
{
    answer->band = band_on(answer, &answer->node, &answer->setting, &answer->estimate);
    if (!answer->outcome && answer->estimate.fit != LS_FIT_NO) {
        LS_TRY(judge_machine(answer));
    }
    const ls_node powered = ls_plan_powered_node(answer);
    ls_power_compute(&answer->catalogue, &powered, answer->setting.gpus, &answer->site, &answer->power);
    if (answer->power.known) {
        ls_power_assume(&answer->assumptions);
    }
    reckon_failures(answer);
    answer->days /= answer->failure.goodput;
    ls_plan_list_runs(answer);
    return LS_OK;
}
