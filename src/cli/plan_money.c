// SPDX-License-Identifier: Apache-2.0
/* plan: failures, power, money, and the verdict over all places where the work could be done. */
#include "cli/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GPUS_MOST        32768  /* of the sizes that are compared when none was named */
#define GAIN_LEAST       1.05   /* twice the GPUs must be so much faster to be looked at */
#define WORKSTATION_GPUS 4      /* cards without a network of their own: this many stand under a desk */
#define KINDS_MOST       4      /* that are compared when none was named, beside those of own offers */
#define KIND_ALWAYS      "h100" /* one of them: what most constants were measured on */
#define MONEY_MAX        1e15

typedef struct plan_money {
    ls_plan_answer *answer;
    ls_path_settings prices;
    ls_plan_work models[LS_PORTFOLIO_MOST];
    ls_workload workloads[LS_PORTFOLIO_MOST];
    size_t workload_count;
    double parameters_most;
    ls_path paths[LS_PATHS_MOST];
    size_t path_count;
} plan_money;

/* ---- the work ---- */

static void add_workload(plan_money *money, const ls_shape *shape, const char *name, double tokens,
                         double runs_per_month, uint64_t global_batch, uint64_t length)
{
    const size_t i = money->workload_count++;
    money->models[i] = (ls_plan_work){.shape = shape, .global_batch = global_batch, .length = length};
    money->workloads[i] = (ls_workload){.name = name,
                                        .parameters = (double)shape->parameters,
                                        .active_parameters = (double)shape->active_parameters,
                                        .tokens = tokens,
                                        .runs_per_month = runs_per_month};
    money->parameters_most = fmax(money->parameters_most, (double)shape->parameters);
}

/* The one that the answer is about: with what was said on the command line. */
static void add_own(plan_money *money, const char *name, double runs_per_month)
{
    const ls_plan_answer *answer = money->answer;
    add_workload(money, &answer->shape, name, answer->tokens, runs_per_month, answer->settings->global_batch,
                 answer->settings->seq);
}

static ls_status add_portfolio(plan_money *money)
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
            return ls_fail_within(parsed, "%s", answer->settings->portfolio);
        }
        add_workload(money, shape, run->name, run->tokens, run->runs_per_month, run->global_batch,
                     run->sequence);
    }
    return LS_OK;
}

static ls_status collect_work(plan_money *money)
{
    const ls_plan_answer *answer = money->answer;
    if (answer->portfolio.count > 0) {
        return add_portfolio(money);
    }
    add_own(money, answer->shape.name, answer->settings->runs_per_month);
    return LS_OK;
}

/* ---- prices and places ---- */

static ls_status collect_prices(plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_plan_settings *settings = answer->settings;
    if (settings->quote[0]) {
        LS_TRY(ls_quote_load(answer->arena, settings->quote, &answer->quote));
        const ls_status checked = ls_quote_check(&answer->quote, &answer->catalogue);
        if (checked != LS_OK) {
            return ls_fail_within(checked, "%s", settings->quote);
        }
    }
    money->prices = (ls_path_settings){.catalogue = &answer->catalogue,
                                       .quote = settings->quote[0] ? &answer->quote : NULL,
                                       .site = answer->site,
                                       .staff_usd_year = settings->staff,
                                       .lead_time_s = settings->lead_time};
    return LS_OK;
}

static bool asks_for_money(const ls_plan_settings *settings)
{
    return settings->budget[0] || settings->quote[0] || settings->portfolio[0] || settings->memo[0] ||
           settings->runs_per_month > 0.0 || settings->utilization > 0.0 || settings->ladder ||
           settings->deadline > 0.0 || settings->api_price > 0.0 || settings->staff > 0.0 ||
           settings->data_control != 0;
}

/* Adds the paths of a kind, one for each price, or says why there is none. */
static ls_status add_path(plan_money *money, ls_path_kind kind, const ls_node *node, bool is_here)
{
    ls_plan_answer *answer = money->answer;
    size_t count = 0;
    /* The last place is the API's. */
    const size_t most = LS_PATHS_MOST - money->path_count - (kind != LS_PATH_API);
    if (most == 0) {
        ls_assumptions_add(&answer->assumptions, "%s: %s is left out, there are %d paths already",
                           node->accelerator->name, ls_path_kind_name(kind), LS_PATHS_MOST);
        return LS_OK;
    }
    const ls_status built =
        ls_path_build(answer->arena, &money->prices, kind, node, is_here, &answer->assumptions, most,
                      &money->paths[money->path_count], &count);
    money->path_count += count;
    if (built != LS_ERR_NOT_FOUND) {
        return built;
    }
    ls_assumptions_add(&answer->assumptions, "%s", ls_error_text());
    ls_error_clear();
    return LS_OK;
}

static bool is_workstation(const ls_node *node, int64_t gpus)
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
    if (ls_plan_setting_on(answer, work->shape, node, gpus, work->global_batch, work->length, setting_out) !=
        LS_OK) {
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
    ls_search_options options = {.any_schedule = answer->settings->schedule == LS_PLAN_SCHEDULE_ANY};
    if (is_own) { /* --strategy is for what is looked at; the portfolio's other runs have their own best */
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
               ? ls_accuracy_band_here(estimate->time.step_s)
               : ls_accuracy_band(setting, &estimate->strategy, estimate->time.step_s);
}

typedef struct pace {
    double tokens_ps; /* 0: it does not fit, or can't run there */
    double slow;      /* a tenth of the runs take so many times as long */
} pace;

static pace measure_speed(plan_money *money, size_t workload, const ls_node *node, int64_t gpus)
{
    ls_setting setting;
    ls_estimate estimate;
    if (!ls_plan_estimate_on(money->answer, &money->models[workload], node, gpus, &setting, &estimate)) {
        return (pace){.slow = 1.0};
    }
    const ls_band band = band_on(money->answer, node, &setting, &estimate);
    return (pace){.tokens_ps = estimate.tokens_ps, .slow = band.high_s / estimate.time.step_s};
}

/* Adds a size to the paths from `first` on, which share a node. Returns the speed of the slowest workload. */
static double add_size(plan_money *money, size_t first, const ls_node *node, int64_t gpus)
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

/* Doubled; from a node on whole nodes: 1, 2, 4, ... 64, 72, 144, ... */
static int64_t next_size(const ls_node *node, int64_t gpus)
{
    return gpus < node->count && 2 * gpus > node->count ? node->count : 2 * gpus;
}

/* Sizes doubled until they are hardly faster. */
static void add_sizes(plan_money *money, size_t first, const ls_node *node)
{
    double before = 0.0;
    for (int64_t gpus = 1; gpus <= GPUS_MOST && first < money->path_count; gpus = next_size(node, gpus)) {
        const double speed = add_size(money, first, node, gpus);
        if (before > 0.0 && speed < GAIN_LEAST * before && gpus > node->count) {
            return; /* the last one may have been less than twice as many */
        }
        before = speed;
    }
}

/* ---- the question ---- */

static ls_status ask_question(plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_plan_settings *settings = answer->settings;
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
        return ls_fail(LS_ERR_INVALID,
                       "--api-tokens is %s, but what they cost is missing: --api-price USD, per "
                       "million tokens",
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
    if (asks_for_money(answer->settings)) {
        return ls_fail(LS_ERR_INVALID,
                       "no price is known for %s: give one with --quote FILE or --catalogue FILE", name);
    }
    *verdict = (ls_verdict){.kind = LS_VERDICT_DONT, .chosen = -1, .told = -1, .owned = -1};
    snprintf(verdict->reason, sizeof verdict->reason,
             "no path is open: no price to rent or to buy %s is known, give one with --quote FILE", name);
    return LS_OK;
}

static ls_status decide(plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    ls_verdict *verdict = &answer->verdict;
    if (money->path_count == 0) {
        return decide_without_price(answer);
    }
    if (answer->settings->api_price > 0.0) {
        LS_TRY(add_path(money, LS_PATH_API, NULL, false));
    }
    LS_TRY(ask_question(money));
    ls_verdict_compute(&answer->question, verdict);
    ls_verdict_assume(&answer->question, verdict, &answer->assumptions);
    answer->outcome = verdict->told >= 0 ? &verdict->outcomes[verdict->told] : NULL;
    return LS_OK;
}

static ls_status begin(ls_plan_answer *answer, plan_money **money_out)
{
    plan_money *money = ls_arena_new(answer->arena, plan_money, 1);
    money->answer = answer;
    LS_TRY(collect_work(money));
    LS_TRY(collect_prices(money));
    answer->work = money->models;
    *money_out = money;
    return LS_OK;
}

/* ---- no machine was named: under a desk ---- */

static const ls_node *usual_node(ls_plan_answer *answer, const ls_accelerator *accelerator)
{
    return ls_catalogue_usual_node(&answer->catalogue, answer->arena, accelerator);
}

/* Whether one's own offers are for this accelerator. */
static bool has_own_offer(const plan_money *money, const ls_node *node)
{
    const ls_quote *quote = money->prices.quote;
    for (size_t i = 0; quote && i < quote->count; i++) {
        if (ls_offer_is_for(&quote->offers[i], &money->answer->catalogue, node)) {
            return true;
        }
    }
    return false;
}

static ls_status add_desk(plan_money *money, const ls_node *node, bool is_rented)
{
    const size_t first = money->path_count;
    LS_TRY(add_path(money, LS_PATH_LOCAL, node, false));
    if (is_rented) {
        LS_TRY(add_path(money, LS_PATH_RENTED, node, false));
        LS_TRY(add_path(money, LS_PATH_CLOUD, node, false));
    }
    add_size(money, first, node, 1);
    return LS_OK;
}

static ls_status add_local_paths(plan_money *money)
{
    static const char *const cards[] = {"RTX-5090-32GB", "Mac-Studio-M3-Ultra-512"};
    enum { CARDS = sizeof cards / sizeof cards[0] };
    ls_plan_answer *answer = money->answer;
    const ls_accelerator *usual[CARDS] = {NULL};
    const ls_node *here = ls_plan_describe_here(answer);
    if (here) {
        LS_TRY(add_path(money, LS_PATH_LOCAL, here, true));
        add_size(money, 0, here, 1);
    }
    for (size_t i = 0; i < CARDS; i++) {
        const ls_node *node = NULL;
        if (ls_catalogue_find_node(&answer->catalogue, cards[i], &node) != LS_OK) {
            LS_TRY(ls_catalogue_find_accelerator(&answer->catalogue, cards[i], &usual[i]));
            node = usual_node(answer, usual[i]);
        }
        ls_error_clear();
        usual[i] = node->accelerator;
        LS_TRY(add_desk(money, node, has_own_offer(money, node)));
    }
    for (size_t i = 0; i < answer->catalogue.accelerator_count; i++) {
        const ls_accelerator *accelerator = &answer->catalogue.accelerators[i];
        const ls_node *node = usual_node(answer, accelerator);
        const bool is_usual = accelerator == usual[0] || accelerator == usual[1];
        if (!is_usual && node->count == 1 && is_workstation(node, 1) && has_own_offer(money, node)) {
            LS_TRY(add_desk(money, node, true));
        }
    }
    return LS_OK;
}

/* ---- no machine was named: in a hall ---- */

/* A kind of accelerator that could be compared. */
typedef struct candidate {
    const ls_node *node;
    double usd_by_peak; /* to rent, for an hour of 1e15 FLOP/s of bf16; INFINITY: nobody rents it out */
    bool is_measured;   /* the stack's constants are of its own generation */
    bool is_own;        /* there are own offers for it */
    bool is_compared;
} candidate;

static bool is_measured(const ls_plan_answer *answer, const ls_accelerator *accelerator)
{
    const char *from = NULL;
    ls_stack stack;
    const ls_status found =
        ls_stack_find(ls_plan_stack_name(answer, accelerator), accelerator, &stack, &from);
    ls_error_clear();
    return found == LS_OK && !from;
}

/* Those that come in servers; in the catalogue's order. */
static size_t find_candidates(const plan_money *money, candidate *candidates)
{
    ls_plan_answer *answer = money->answer;
    size_t count = 0;
    for (size_t i = 0; i < answer->catalogue.accelerator_count; i++) {
        const ls_accelerator *a = &answer->catalogue.accelerators[i];
        const ls_node *node = usual_node(answer, a);
        const bool is_served = (a->class == LS_CLASS_GPU || a->class == LS_CLASS_TPU) && node->count > 1;
        ls_offer offer;
        if (is_served) {
            const bool is_rented = ls_offer_rented(node, &offer) && a->bf16_flops > 0.0;
            candidates[count++] =
                (candidate){.node = node,
                            .usd_by_peak = is_rented ? offer.usd * 1e15 / a->bf16_flops : INFINITY,
                            .is_measured = is_measured(answer, a),
                            .is_own = has_own_offer(money, node)};
        }
    }
    return count;
}

/* All of own offers, the one that is always there, and the cheapest by their peak. */
static void choose_candidates(const ls_accelerator *always, candidate *candidates, size_t count)
{
    size_t chosen = 1;
    for (size_t i = 0; i < count; i++) {
        candidates[i].is_compared = candidates[i].is_own || candidates[i].node->accelerator == always;
    }
    while (chosen < KINDS_MOST) {
        candidate *best = NULL;
        for (size_t i = 0; i < count; i++) {
            candidate *one = &candidates[i];
            if (!one->is_compared && one->is_measured && isfinite(one->usd_by_peak) &&
                (!best || one->usd_by_peak < best->usd_by_peak)) {
                best = one;
            }
        }
        if (!best) {
            return;
        }
        best->is_compared = true;
        chosen++;
    }
}

/* Why a candidate is compared, or not. */
typedef enum candidate_group { COMPARED, DEARER, NOT_MEASURED, NO_RENT } candidate_group;

static candidate_group group_of(const candidate *one)
{
    return one->is_compared              ? COMPARED
           : !isfinite(one->usd_by_peak) ? NO_RENT
           : !one->is_measured           ? NOT_MEASURED
                                         : DEARER;
}

/* The names of a group, between commas, with what an hour of their peak costs. */
static void append_group(ls_plan_answer *answer, const candidate *candidates, size_t count,
                         candidate_group group, const char *what, const char *hint)
{
    ls_text text = {0};
    for (size_t i = 0; i < count; i++) {
        const candidate *one = &candidates[i];
        if (group_of(one) == group) {
            ls_text_printf(&text, "%s%s", text.bytes > 0 ? ", " : "", one->node->accelerator->name);
            if (isfinite(one->usd_by_peak)) {
                ls_text_printf(&text, " %.2f", one->usd_by_peak);
            }
        }
    }
    if (text.bytes > 0) {
        ls_assumptions_add(&answer->assumptions, "%s: %s (%s)", what, ls_text_string(&text), hint);
    }
    ls_text_release(&text);
}

static void assume_candidates(ls_plan_answer *answer, const candidate *candidates, size_t count)
{
    append_group(answer, candidates, count, COMPARED,
                 "compared: H100, what own offers are for, and the cheapest by their peak",
                 "USD to rent 1 PFLOP/s of bf16 for an hour");
    append_group(answer, candidates, count, DEARER, "not compared, for their peak is dearer",
                 "--gpus KIND:COUNT asks about one");
    append_group(answer, candidates, count, NOT_MEASURED,
                 "not compared, for the software was never measured on them",
                 "--gpus KIND:COUNT asks about one all the same");
    append_group(answer, candidates, count, NO_RENT, "not compared, for no rent is known",
                 "--quote FILE gives one");
}

static ls_status add_hall_paths(plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_accelerator *always = NULL;
    candidate *candidates = ls_arena_new(answer->arena, candidate, answer->catalogue.accelerator_count);
    const size_t count = find_candidates(money, candidates);
    LS_TRY(ls_catalogue_find_accelerator(&answer->catalogue, KIND_ALWAYS, &always));
    choose_candidates(always, candidates, count);
    assume_candidates(answer, candidates, count);
    for (size_t i = 0; i < count; i++) {
        const ls_node *node = candidates[i].node;
        const size_t first = money->path_count;
        if (!candidates[i].is_compared) {
            continue;
        }
        LS_TRY(add_path(money, LS_PATH_RENTED, node, false));
        LS_TRY(add_path(money, LS_PATH_CLOUD, node, false));
        LS_TRY(add_path(money, LS_PATH_OWNED, node, false));
        add_sizes(money, first, node);
    }
    return LS_OK;
}

/* A model that is none of the portfolio's may need more GPUs than those that were chosen for its runs. */
static void make_room(ls_plan_answer *answer)
{
    const ls_plan_work own = {&answer->shape, answer->settings->global_batch, answer->settings->seq};
    ls_setting setting;
    ls_estimate estimate;
    if (answer->portfolio.count == 0 || answer->examined) {
        return;
    }
    while (answer->setting.gpus < GPUS_MOST &&
           !ls_plan_estimate_on(answer, &own, &answer->node, answer->setting.gpus, &setting, &estimate)) {
        answer->setting.gpus *= 2;
    }
}

ls_status ls_plan_compare(ls_plan_answer *answer)
{
    plan_money *money = NULL;
    LS_TRY(begin(answer, &money));
    LS_TRY(add_local_paths(money));
    LS_TRY(add_hall_paths(money));
    LS_TRY(decide(money));
    if (!answer->outcome) {
        const char *strategy = answer->settings->strategy;
        return ls_fail(
            LS_ERR_INVALID, "%s does not fit on any machine that was looked at, up to %d x %s%s%s%s",
            answer->shape.name, GPUS_MOST, answer->node.accelerator->name,
            strategy[0] ? ", with --strategy " : "", strategy,
            strategy[0] ? ": leave zero, tp and pp open, and what fits is found (ZeRO-3 shares out "
                          "weights, gradients and optimizer, tp and pp cut the model)"
                        : "");
    }
    answer->node = *answer->outcome->path->node;
    answer->setting.gpus = answer->outcome->gpus;
    make_room(answer);
    return LS_OK;
}

/* ---- a machine was named ---- */

/* Own offers that are for something else are not forgotten in silence. */
static void say_other_offers(plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_quote *quote = money->prices.quote;
    for (size_t i = 0; quote && i < quote->count; i++) {
        const ls_offer *offer = &quote->offers[i];
        if (!ls_offer_is_for(offer, &answer->catalogue, &answer->node)) {
            ls_assumptions_add(
                &answer->assumptions,
                "the offer \"%s\" is not compared: it is for %s, the question is about %s (without "
                "--gpus all are compared)",
                offer->name, offer->node[0] ? offer->node : offer->accelerator,
                answer->node.accelerator->name);
        }
    }
}

static ls_status judge_machine(ls_plan_answer *answer)
{
    plan_money *money = NULL;
    const ls_node *node = &answer->node;
    const bool is_here = ls_plan_is_here(answer, node);
    const bool is_desk = is_workstation(node, answer->setting.gpus);
    LS_TRY(begin(answer, &money));
    if (is_desk) {
        LS_TRY(add_path(money, LS_PATH_LOCAL, node, is_here));
    }
    if (!is_here) {
        LS_TRY(add_path(money, LS_PATH_RENTED, node, false));
        LS_TRY(add_path(money, LS_PATH_CLOUD, node, false));
    }
    if (!is_desk) {
        LS_TRY(add_path(money, LS_PATH_OWNED, node, false));
    }
    say_other_offers(money);
    add_size(money, 0, node, answer->setting.gpus);
    return decide(money);
}

/* ---- failures, power ---- */

static void reckon_failures(ls_plan_answer *answer)
{
    const ls_accelerator *accelerator = answer->node.accelerator;
    ls_failure_setting *setting = &answer->failure_setting;
    *setting = (ls_failure_setting){.gpus = answer->setting.gpus,
                                    .gpus_per_node = answer->node.count,
                                    .parameters = (double)answer->shape.parameters,
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

ls_status ls_plan_reckon(ls_plan_answer *answer)
{
    answer->band = band_on(answer, &answer->node, &answer->setting, &answer->estimate);
    if (!answer->outcome && answer->estimate.fit != LS_FIT_NO) {
        LS_TRY(judge_machine(answer));
    }
    const ls_node powered = ls_plan_powered_node(answer);
    ls_power_compute(&answer->catalogue, &powered, answer->setting.gpus, &answer->site, &answer->power);
    reckon_failures(answer);
    answer->days /= answer->failure.goodput;
    ls_plan_list_runs(answer);
    return LS_OK;
}
