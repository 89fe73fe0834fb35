// SPDX-License-Identifier: Apache-2.0
/* plan: failures, power, money, and the verdict over all places where the work could be done. */
#include "cli/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define GPUS_MOST        32768 /* of the sizes that are compared when none was named */
#define GAIN_LEAST       1.05  /* twice the GPUs must be so much faster to be looked at */
#define WORKSTATION_GPUS 4     /* cards without a network of their own: this many stand under a desk */
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

/* Adds a path, or says why there is none. */
static ls_status add_path(plan_money *money, ls_path_kind kind, const ls_node *node, bool is_here)
{
    ls_plan_answer *answer = money->answer;
    const ls_status built = ls_path_build(answer->arena, &money->prices, kind, node, is_here,
                                          &answer->assumptions, &money->paths[money->path_count]);
    if (built == LS_OK) {
        money->path_count++;
        return LS_OK;
    }
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
    ls_search_options options = {.top = 0};
    if (is_own) { /* --strategy is for what is looked at; the portfolio's other runs have their own best */
        options.request = answer->request;
    }
    const ls_status status = ls_search_run(setting_out, &options, result);
    ls_error_clear();
    *estimate_out = result->best;
    return status == LS_OK;
}

static double measure_speed(plan_money *money, size_t workload, const ls_node *node, int64_t gpus)
{
    ls_setting setting;
    ls_estimate estimate;
    return ls_plan_estimate_on(money->answer, &money->models[workload], node, gpus, &setting, &estimate)
               ? estimate.tokens_ps
               : 0.0;
}

/* Adds a size to the paths from `first` on, which share a node. Returns the speed of the slowest workload. */
static double add_size(plan_money *money, size_t first, const ls_node *node, int64_t gpus)
{
    double speeds[LS_PORTFOLIO_MOST], least = INFINITY;
    for (size_t i = 0; i < money->workload_count; i++) {
        speeds[i] = measure_speed(money, i, node, gpus);
        least = fmin(least, speeds[i]);
    }
    for (size_t i = first; i < money->path_count; i++) {
        ls_path_add_point(&money->paths[i], money->answer->arena, gpus, speeds, money->workload_count,
                          money->parameters_most);
    }
    return least;
}

/* Sizes doubled until they are hardly faster. */
static void add_sizes(plan_money *money, size_t first, const ls_node *node)
{
    double before = 0.0;
    for (int64_t gpus = 1; gpus <= GPUS_MOST && first < money->path_count; gpus *= 2) {
        const double speed = add_size(money, first, node, gpus);
        if (before > 0.0 && speed < GAIN_LEAST * before) {
            return;
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

/* The path that is told about: the chosen one, else the first on which the work would be possible but for one thing. */
static const ls_path_outcome *find_outcome(const ls_verdict *verdict)
{
    if (verdict->chosen >= 0 && verdict->outcomes[verdict->chosen].path->node) {
        return &verdict->outcomes[verdict->chosen];
    }
    const ls_path_outcome *best = NULL;
    for (size_t i = 0; i < verdict->outcome_count; i++) {
        const ls_path_outcome *outcome = &verdict->outcomes[i];
        if (outcome->path->node && outcome->gpus > 0 && isfinite(outcome->days) &&
            (!best || (outcome->possible && !best->possible))) {
            best = outcome;
        }
    }
    return best;
}

static ls_status decide(plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const bool is_priced = money->path_count > 0;
    if (is_priced && answer->settings->api_price > 0.0) {
        LS_TRY(add_path(money, LS_PATH_API, NULL, false));
    }
    if (!is_priced) {
        return asks_for_money(answer->settings)
                   ? ls_fail(LS_ERR_INVALID,
                             "no price is known for %s: give one with --quote FILE or --catalogue FILE",
                             answer->node.accelerator->name)
                   : LS_OK;
    }
    LS_TRY(ask_question(money));
    ls_verdict_compute(&answer->question, &answer->verdict);
    answer->outcome = find_outcome(&answer->verdict);
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

/* ---- no machine was named ---- */

static ls_status add_local_paths(plan_money *money)
{
    static const char *const cards[] = {"RTX-5090-32GB", "Mac-Studio-M3-Ultra-512"};
    ls_plan_answer *answer = money->answer;
    const ls_node *here = ls_plan_describe_here(answer);
    if (here) {
        LS_TRY(add_path(money, LS_PATH_LOCAL, here, true));
        add_size(money, 0, here, 1);
    }
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
        const ls_accelerator *accelerator = NULL;
        const ls_node *node = NULL;
        if (ls_catalogue_find_node(&answer->catalogue, cards[i], &node) != LS_OK) {
            LS_TRY(ls_catalogue_find_accelerator(&answer->catalogue, cards[i], &accelerator));
            node = ls_catalogue_usual_node(&answer->catalogue, answer->arena, accelerator);
        }
        ls_error_clear();
        const size_t first = money->path_count;
        LS_TRY(add_path(money, LS_PATH_LOCAL, node, false));
        add_size(money, first, node, 1);
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
    const size_t first = money->path_count;
    const ls_node *node = ls_arena_new(answer->arena, ls_node, 1);
    *(ls_node *)(uintptr_t)node = answer->node;
    LS_TRY(add_path(money, LS_PATH_RENTED, node, false));
    LS_TRY(add_path(money, LS_PATH_CLOUD, node, false));
    LS_TRY(add_path(money, LS_PATH_OWNED, node, false));
    add_sizes(money, first, node);
    LS_TRY(decide(money));
    if (!answer->outcome) {
        return ls_fail(LS_ERR_INVALID, "%s does not fit on any machine that was looked at, up to %d x %s",
                       answer->shape.name, GPUS_MOST, node->accelerator->name);
    }
    answer->node = *answer->outcome->path->node;
    answer->setting.gpus = answer->outcome->gpus;
    make_room(answer);
    return LS_OK;
}

/* ---- a machine was named ---- */

static ls_status judge_machine(ls_plan_answer *answer)
{
    plan_money *money = NULL;
    LS_TRY(begin(answer, &money));
    if (is_workstation(&answer->node, answer->setting.gpus)) {
        LS_TRY(add_path(money, LS_PATH_LOCAL, &answer->node, ls_plan_is_here(answer, &answer->node)));
    } else {
        LS_TRY(add_path(money, LS_PATH_RENTED, &answer->node, false));
        LS_TRY(add_path(money, LS_PATH_CLOUD, &answer->node, false));
        LS_TRY(add_path(money, LS_PATH_OWNED, &answer->node, false));
    }
    add_size(money, 0, &answer->node, answer->setting.gpus);
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

ls_status ls_plan_reckon(ls_plan_answer *answer)
{
    const double step_s = answer->estimate.time.step_s;
    answer->band = ls_plan_is_here(answer, &answer->node)
                       ? ls_accuracy_band_here(step_s)
                       : ls_accuracy_band(&answer->setting, &answer->estimate.strategy, step_s);
    if (!answer->outcome && answer->estimate.fit != LS_FIT_NO) {
        LS_TRY(judge_machine(answer));
    }
    ls_power_compute(&answer->catalogue, &answer->node, answer->setting.gpus, &answer->site, &answer->power);
    reckon_failures(answer);
    answer->days /= answer->failure.goodput;
    ls_plan_list_runs(answer);
    return LS_OK;
}
