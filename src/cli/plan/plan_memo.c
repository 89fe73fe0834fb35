// SPDX-License-Identifier: Apache-2.0
/* plan: the ladder of stages as JSON, and the memo. */
#include "base/file.h"
#include "cli/plan/plan.h"
#include "planning/money/memo.h"

#include <inttypes.h>
#include <time.h>

enum { NAMES_SHOWN = 6 }; /* names of runs in a sentence */

json_t *ls_plan_ladder_to_json(const ls_ladder *ladder)
{
    json_t *stages = json_array();
    for (size_t i = 0; i < ladder->count; i++) {
        const ls_ladder_stage *stage = &ladder->stages[i];
        json_t *criteria = json_array();
        for (size_t j = 0; j < LS_LADDER_CRITERIA && stage->criteria[j][0]; j++) {
            json_array_append_new(criteria, json_string(stage->criteria[j]));
        }
        const bool is_priced = stage->cumulated_usd > 0.0;
        json_array_append_new(
            stages,
            json_pack("{s:s, s:s, s:s, s:I, s:f, s:o, s:o, s:o}", "stage", stage->name, "purpose",
                      stage->purpose, "note", stage->note, "gpus", (json_int_t)stage->gpus, "hours",
                      stage->hours, "usd", is_priced ? json_real(stage->usd) : json_null(), "cumulated_usd",
                      is_priced ? json_real(stage->cumulated_usd) : json_null(), "criteria", criteria));
    }
    return stages;
}

/* ---- the memo ---- */

static void append_work(const ls_plan_answer *answer, ls_text *text)
{
    const ls_plan_question *given = answer->given;
    if (answer->runs && answer->portfolio.count > 1) {
        ls_text_printf(text, "Train %zu models, %s runs a month in all (", answer->portfolio.count,
                       ls_plain_of(answer->runs->table.runs_per_month).text);
        for (size_t i = 0; i < answer->portfolio.count && i < NAMES_SHOWN; i++) {
            ls_text_printf(text, "%s%s", i > 0 ? ", " : "", answer->portfolio.runs[i].name);
        }
        ls_text_append(text, answer->portfolio.count > NAMES_SHOWN ? ", ...)" : ")");
        return;
    }
    ls_text_printf(text, "Train %s (%s parameters) on %s tokens%s", answer->shape.name,
                   ls_quantity_of((double)answer->shape.parameters).text, ls_quantity_of(answer->tokens).text,
                   given->tokens[0] || answer->examined || answer->run
                       ? ""
                       : " (20 per parameter, because no number was given)");
    if (answer->verdict.runs_per_month > 0.0) {
        ls_text_printf(text, ", %s times a month", ls_plain_of(answer->verdict.runs_per_month).text);
    }
}

/* The question in words: everything that was asked for, and nothing else. */
static const char *write_question(const ls_plan_answer *answer)
{
    static const char *const controls[] = {"", ", with data only at providers under contract",
                                           ", with data only on our own machines"};
    const ls_plan_question *given = answer->given;
    ls_text text = {0};
    append_work(answer, &text);
    if (given->gpus[0] || given->nodes[0]) {
        ls_text_printf(&text, ", on %" PRId64 " x %s", answer->setting.gpus, answer->node.accelerator->name);
    } else {
        ls_text_append(&text, ", on the cheapest machines");
    }
    if (given->deadline > 0.0) {
        ls_text_printf(&text, ", within %s days", ls_plain_of(given->deadline / 86400.0).text);
    }
    if (given->budget[0]) {
        ls_text_printf(&text, ", for at most %s", ls_usd_of(answer->question.budget_usd).text);
    }
    ls_text_append(&text, controls[given->data_control]);
    if (given->api_price > 0.0) {
        ls_text_printf(&text, ", or use an API at %s USD per million tokens",
                       ls_plain_of(given->api_price).text);
    }
    ls_text_append(&text, "?");
    return ls_text_keep(&text, answer->arena);
}

ls_status ls_plan_write_memo(const ls_plan_answer *answer, const char *path)
{
    const time_t now = time(NULL);
    struct tm day;
    char date[16], strategy[192];
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    ls_strategy_describe(&answer->estimate.strategy, strategy, sizeof strategy);
    const bool is_portfolio = answer->runs && answer->portfolio.count > 1;
    ls_memo memo = {
        .question = write_question(answer),
        .date = date,
        .verdict = &answer->verdict,
        .step_s = answer->estimate.time.step_s,
        .step_band_s = {answer->band.low_s, answer->band.high_s},
        .band_from = answer->band.from,
        .failure = &answer->failure,
        .runs = is_portfolio ? &answer->runs->table : NULL,
        .ladder = answer->ladder.count > 0 ? &answer->ladder : NULL,
        .assumptions = &answer->assumptions,
        .command = answer->command,
    };
    /* otherwise it is about a model that was not asked for */
    if (answer->portfolio.count == 0 || answer->examined) {
        memo.subject = is_portfolio ? answer->examined->name : NULL;
        memo.strategy = strategy;
        memo.tokens_ps = answer->estimate.tokens_ps;
        memo.mfu = answer->estimate.mfu;
        memo.memory_gib = answer->estimate.memory.total / LS_PLAN_GIB;
        memo.memory_capacity_gib = answer->estimate.memory.capacity / LS_PLAN_GIB;
    }
    ls_text text = {0};
    ls_memo_append(&memo, &text);
    const ls_status status = ls_file_write_atomic(path, text.data, text.bytes);
    ls_text_release(&text);
    return status;
}
