// SPDX-License-Identifier: Apache-2.0
/* plan: the runs of a portfolio, as a table and as JSON. */
#include "cli/plan/plan.h"

#include <inttypes.h>

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
