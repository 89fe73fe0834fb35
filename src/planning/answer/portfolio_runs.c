// SPDX-License-Identifier: Apache-2.0
/* A portfolio: the question about money covers all its runs. MODEL, or the first run, is examined
 * in detail; --tokens, --seq, --global-batch and --strategy apply to it. */
#include "base/file.h"
#include "planning/answer/answer_internal.h"

#include <string.h>

/* Fills in what the portfolio leaves open from run files. */
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

ls_status ls_plan_find_model(ls_plan_answer *answer)
{
    const ls_plan_question *asked = answer->asked;
    answer->model = asked->model;
    if (!asked->portfolio[0]) {
        return LS_OK;
    }
    LS_TRY(ls_portfolio_load(answer->arena, asked->portfolio, &answer->portfolio));
    LS_TRY(adopt_run_files(answer, asked->portfolio));
    const int found = asked->model[0] ? ls_portfolio_find(&answer->portfolio, asked->model) : 0;
    if (found >= 0) {
        answer->examined = &answer->portfolio.runs[found];
        answer->model = answer->examined->model;
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
            "%s is not a run of the portfolio: it is examined in detail, and the costs do not include it",
            answer->shape.name);
        return;
    }
    ls_plan_question *settings = ls_arena_new(answer->arena, ls_plan_question, 1);
    *settings = *answer->asked;
    settings->seq = settings->seq ? settings->seq : run->sequence;
    settings->global_batch = settings->global_batch ? settings->global_batch : run->global_batch;
    answer->tokens = run->tokens;
    answer->asked = settings;
    ls_assumptions_add(&answer->assumptions,
                       "%s is the run of the portfolio that is examined in detail (MODEL); --tokens, --seq, "
                       "--global-batch and --strategy apply to it",
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
    /* as in the path, with the checkpoints of the largest model */
    if (answer->examined && runs->table.count > 0) {
        answer->days = runs->table.items[answer->examined - answer->portfolio.runs].days;
    }
    if (runs->table.count > 1) {
        ls_assumptions_add(
            &answer->assumptions,
            "the cost of a run in the table of paths is the mean of %s runs a month of %zu models",
            ls_plain_of(runs->table.runs_per_month).text, runs->table.count);
        if (answer->asked->api_price > 0.0) {
            ls_assumptions_add(&answer->assumptions,
                               "the API is compared with a model of the mean size of those runs");
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
