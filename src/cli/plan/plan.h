// SPDX-License-Identifier: Apache-2.0
/*
 * plan: what its files share. The answer itself is computed by planning/answer/answer.h; here are
 * its options (plan.c) and the forms in which it is shown: the first screen (plan_screen.c), the
 * full text (plan_print.c), JSON, CSV, explanations of terms, the memo and the page.
 */
#ifndef LS_CLI_PLAN_PLAN_H
#define LS_CLI_PLAN_PLAN_H

#include "cli/command.h"
#include "planning/answer/answer.h"

#include <string.h>

/* Options as written; texts are "" when not given. */
typedef struct ls_plan_settings {
    ls_plan_question question;
    const char *explain, *data, *memo, *html;
    int list;     /* ls_plan_list */
    int finetune; /* 0: pre-training; else 1 + ls_finetune_kind */
    uint64_t rank;
    bool why, assumptions, all, accuracy, json, csv;
} ls_plan_settings;

typedef enum ls_plan_list {
    LS_PLAN_LIST_NONE,
    LS_PLAN_LIST_MODELS,
    LS_PLAN_LIST_GPUS,
    LS_PLAN_LIST_NODES,
    LS_PLAN_LIST_STACKS,
    LS_PLAN_LIST_SITES
} ls_plan_list;

/* ---- text ---- */

/* The first screen: at most 20 lines. */
void ls_plan_append_screen(const ls_plan_answer *answer, ls_text *text);
/* Why this strategy: --why. */
void ls_plan_append_why(const ls_plan_answer *answer, ls_text *text);
/* All assumptions: --assumptions. */
void ls_plan_append_assumptions(const ls_plan_answer *answer, ls_text *text);
/* Everything: --all. */
void ls_plan_append_text(const ls_plan_answer *answer, ls_text *text);
/* The runs of a portfolio; nothing without one. */
void ls_plan_append_runs(const ls_plan_answer *answer, ls_text *text);
/* The ladder and the scaling curve, where they were asked for. */
void ls_plan_append_extras(const ls_plan_answer *answer, ls_text *text);
void ls_plan_append_scaling(const ls_plan_answer *answer, ls_text *text);
/* What a slow link is worth: a table, or a line for the first screen, in the answer's arena. Both
 * for answers with links. */
void ls_plan_append_links(const ls_plan_answer *answer, ls_text *text);
const char *ls_plan_link_line(const ls_plan_answer *answer);
/* --explain TERM. */
LS_MUST_CHECK ls_status ls_plan_explain(const ls_plan_answer *answer, const char *term, ls_text *text);

/* "tight", "does not fit", "fits". */
const char *ls_plan_fit_name(ls_fit fit);

/* ---- CSV and JSON ---- */

/* One row per strategy: the best one and those that lost. */
void ls_plan_append_csv(const ls_plan_answer *answer, ls_text *text);
void ls_plan_append_scaling_csv(const ls_plan_answer *answer, ls_text *text);
/* The JSON of the contract; the caller drops it. */
json_t *ls_plan_to_json(const ls_plan_answer *answer);
json_t *ls_plan_strategy_to_json(const ls_strategy *strategy);
json_t *ls_plan_memory_to_json(const ls_memory_estimate *memory);
json_t *ls_plan_runs_to_json(const ls_plan_answer *answer);
json_t *ls_plan_scaling_to_json(const ls_plan_answer *answer);
json_t *ls_plan_ladder_to_json(const ls_ladder *ladder);
json_t *ls_plan_links_to_json(const ls_plan_links *links);

/* ---- files and figures ---- */

/* The page a decision-maker signs, to the file of --memo. */
LS_MUST_CHECK ls_status ls_plan_write_memo(const ls_plan_answer *answer, const char *path);
/* The page with pictures, to the file of --html. */
LS_MUST_CHECK ls_status ls_plan_write_html(const ls_plan_answer *answer, const char *path);
/* The answer to `plan MODEL --gpus GPUS --strategy STRATEGY --global-batch N` with its scaling
 * curve, for figures. "" and 0 leave a value open. */
LS_MUST_CHECK ls_status ls_plan_answer_for(ls_arena *arena, const char *model, const char *gpus,
                                           const char *strategy, uint64_t global_batch,
                                           const ls_plan_answer **answer_out);
/* A figure of the answer, by its number in telemetry/plan_page/plan_page.h. */
LS_MUST_CHECK ls_status ls_plan_draw(const ls_plan_answer *answer, int figure, int width, ls_text *text);

/* ---- instead of an answer ---- */

/* --finetune: full, LoRA and QLoRA side by side. Errors: LS_ERR_INVALID, after printing, when the
 * kind that was asked for does not fit. */
LS_MUST_CHECK ls_status ls_plan_print_finetune(const ls_invocation *invocation,
                                               const ls_plan_question *question);

/* --list: the names that can be used. */
LS_MUST_CHECK ls_status ls_plan_print_list(ls_arena *arena, const ls_plan_settings *settings);
/* --accuracy: the error table. */
LS_MUST_CHECK ls_status ls_plan_print_accuracy(const ls_invocation *invocation);

#endif
