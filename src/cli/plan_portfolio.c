// SPDX-License-Identifier: Apache-2.0
/*
 * plan: a portfolio. All its runs together are the question about money; MODEL, or the first run, is what is looked at in detail, with --tokens, --seq,
 * --global-batch and --strategy.
 */
#include "base/file.h"
#include "cli/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* A run file says more than a model: what the portfolio leaves open is as it says. */
static ls_status adopt_run_files(ls_plan_answer *answer, const char *path)
{
    ls_portfolio *portfolio = &answer->portfolio;
    ls_portfolio_run *runs = ls_arena_new(answer->arena, ls_portfolio_run, portfolio->count);
    memcpy(runs, portfolio->runs, portfolio->count * sizeof *runs);
    portfolio->runs = runs;
    for (size_t i = 0; i < portfolio->count; i++) {
        if (!ls_path_has_suffix(runs[i].model, ".yaml") && !ls_path_has_suffix(runs[i].model, ".yml")) {
            continue;
        }
        ls_run_file *file = ls_arena_new(answer->arena, ls_run_file, 1);
        const ls_status loaded = ls_run_file_load(runs[i].model, NULL, 0, answer->arena, file);
        if (loaded != LS_OK) {
            return ls_fail_within(loaded, "%s", path);
        }
        runs[i].sequence = runs[i].sequence ? runs[i].sequence : file->model.context;
        runs[i].global_batch = runs[i].global_batch ? runs[i].global_batch : file->train.global_batch;
    }
    return LS_OK;
}

ls_status ls_plan_find_model(ls_plan_answer *answer, const ls_plan_settings *settings, const char *word,
                             const char **model_out)
{
    const char *name = word ? word : settings->model;
    if ((word && settings->model[0]) || (!name[0] && !settings->portfolio[0])) {
        return ls_fail(LS_ERR_INVALID, "give one MODEL: a preset (llama3-70b), a config.json, a run file or "
                                       "layers=32,hidden=4096,heads=32,...");
    }
    *model_out = name;
    if (!settings->portfolio[0]) {
        return LS_OK;
    }
    LS_TRY(ls_portfolio_load(answer->arena, settings->portfolio, &answer->portfolio));
    LS_TRY(adopt_run_files(answer, settings->portfolio));
    const int found = name[0] ? ls_portfolio_find(&answer->portfolio, name) : 0;
    if (found >= 0) {
        answer->examined = &answer->portfolio.runs[found];
        *model_out = answer->examined->model;
    }
    return LS_OK;
}

void ls_plan_adopt_portfolio(ls_plan_answer *answer)
{
    const ls_portfolio_run *run = answer->examined;
    if (answer->portfolio.count == 0) {
        return;
    }
    if (!run) {
        ls_assumptions_add(
            &answer->assumptions,
            "the portfolio has no run of %s: it is looked at in detail, and costs are without it",
            answer->shape.name);
        return;
    }
    ls_plan_settings *settings = ls_arena_new(answer->arena, ls_plan_settings, 1);
    *settings = *answer->settings;
    settings->seq = settings->seq ? settings->seq : run->sequence;
    settings->global_batch = settings->global_batch ? settings->global_batch : run->global_batch;
    answer->tokens = run->tokens;
    answer->settings = settings;
    ls_assumptions_add(&answer->assumptions,
                       "of the portfolio, %s is looked at in detail (MODEL); --tokens, --seq, --global-batch "
                       "and --strategy are for it",
                       run->name);
}

/* ---- how long each takes, and what it costs ---- */

void ls_plan_list_runs(ls_plan_answer *answer)
{
    const ls_path_outcome *outcome = answer->outcome;
    if (answer->portfolio.count == 0 || !outcome) {
        return;
    }
    ls_plan_runs *runs = ls_arena_new(answer->arena, ls_plan_runs, 1);
    ls_runs_compute(&answer->question, outcome, &runs->table);
    for (size_t i = 0; i < runs->table.count; i++) {
        ls_plan_run *run = &runs->plans[i];
        run->known = ls_plan_estimate_on(answer, &answer->work[i], outcome->path->node, outcome->gpus,
                                         &run->setting, &run->estimate);
    }
    answer->runs = runs;
    if (answer->examined &&
        runs->table.count > 0) { /* its checkpoints are those of the largest model, as the path has them */
        answer->days = runs->table.items[answer->examined - answer->portfolio.runs].days;
    }
    if (runs->table.count > 1) {
        ls_assumptions_add(&answer->assumptions,
                           "what a run costs beside the paths is the mean of %s runs a month of %zu models",
                           ls_plain_of(runs->table.runs_per_month).text, runs->table.count);
        if (answer->settings->api_price > 0.0) {
            ls_assumptions_add(&answer->assumptions,
                               "the API is set against a model of the mean size of those runs");
        }
    }
}

bool ls_plan_run_usd(const ls_plan_answer *answer, double *usd_out)
{
    if (answer->portfolio.count == 0) {
        *usd_out = answer->outcome ? answer->outcome->run_usd : 0.0;
        return answer->outcome != NULL;
    }
    if (!answer->examined || !answer->runs || answer->runs->table.count == 0) {
        return false;
    }
    *usd_out = answer->runs->table.items[answer->examined - answer->portfolio.runs].usd;
    return true;
}

/* ---- for people ---- */

static bool has_names(const ls_portfolio *portfolio)
{
    for (size_t i = 0; i < portfolio->count; i++) {
        if (portfolio->runs[i].name != portfolio->runs[i].model) {
            return true;
        }
    }
    return false;
}

static void append_run(const ls_plan_answer *answer, size_t index, ls_text *text)
{
    const ls_portfolio_run *said = &answer->portfolio.runs[index];
    const ls_run_outcome *run = &answer->runs->table.items[index];
    const ls_plan_run *plan = &answer->runs->plans[index];
    char strategy[192] = "";
    if (plan->known) {
        ls_strategy_describe(&plan->estimate.strategy, strategy, sizeof strategy);
    }
    ls_text_printf(text, "%c %-20.20s ", said == answer->examined ? '>' : ' ', said->name);
    if (has_names(&answer->portfolio)) {
        ls_text_printf(text, "%-14.14s ", said->model);
    }
    ls_text_printf(text, "%7s %7s %6" PRId64 " %8s %9s %9s %5.0f %%  %s\n",
                   ls_quantity_of(run->workload->tokens).text, ls_plain_of(run->runs_per_month).text,
                   run->gpus, ls_plain_of(run->days).text, ls_usd_of(run->usd).text,
                   ls_usd_of(run->month_usd).text, 100.0 * run->share, strategy);
}

void ls_plan_append_runs(const ls_plan_answer *answer, ls_text *text)
{
    if (!answer->runs || answer->runs->table.count == 0) {
        return;
    }
    const ls_runs *table = &answer->runs->table;
    const bool named = has_names(&answer->portfolio);
    ls_text_printf(text, "  %-20s %s%7s %7s %6s %8s %9s %9s %7s  plan\n", "run",
                   named ? "model          " : "", "tokens", "a month", "GPUs", "days", "each", "a month",
                   "share");
    for (size_t i = 0; i < table->count; i++) {
        append_run(answer, i, text);
    }
    ls_text_printf(text, "  %-20s %s%7s %7s %6s %8s %9s %9s  (%s)\n", "in all",
                   named ? "               " : "", "", ls_plain_of(table->runs_per_month).text, "", "", "",
                   ls_usd_of(table->month_usd).text, answer->outcome->name);
}

/* ---- JSON ---- */

static json_t *run_to_json(const ls_plan_answer *answer, size_t index)
{
    const ls_portfolio_run *said = &answer->portfolio.runs[index];
    const ls_run_outcome *run = &answer->runs->table.items[index];
    const ls_plan_run *plan = &answer->runs->plans[index];
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:I, s:o, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "name",
                     said->name, "model", said->model, "parameters", run->workload->parameters, "tokens",
                     run->workload->tokens, "runs_per_month", run->runs_per_month, "gpus",
                     (json_int_t)run->gpus, "strategy",
                     plan->known ? ls_plan_strategy_to_json(&plan->estimate.strategy) : json_null(),
                     "sequence", (json_int_t)plan->setting.length, "global_batch",
                     (json_int_t)plan->setting.global_batch, "days", run->days, "gpu_hours", run->gpu_hours,
                     "cost_usd", run->usd, "month_usd", run->month_usd, "share", run->share);
}

json_t *ls_plan_runs_to_json(const ls_plan_answer *answer)
{
    const ls_runs *table = &answer->runs->table;
    json_t *list = json_array();
    for (size_t i = 0; i < table->count; i++) {
        json_array_append_new(list, run_to_json(answer, i));
    }
    const bool any = table->count > 0;
    return json_pack("{s:o, s:f, s:f, s:o, s:o, s:o}", "runs", list, "runs_per_month", table->runs_per_month,
                     "month_usd", table->month_usd, "longest",
                     any ? json_string(answer->portfolio.runs[table->longest].name) : json_null(),
                     "longest_days", any ? json_real(table->items[table->longest].days) : json_null(),
                     "examined", answer->examined ? json_string(answer->examined->name) : json_null());
}
