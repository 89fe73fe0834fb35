// SPDX-License-Identifier: Apache-2.0
/*
 * plan: what its files share. cli/plan.c has the options and the order of things, plan_ask.c makes a setting of what a person wrote, plan_print.c and plan_json.c
 * show the answer.
 */
#ifndef LS_CLI_PLAN_H
#define LS_CLI_PLAN_H

#include "cli/command.h"
#include "planning/check/accuracy.h"
#include "planning/hardware/calibration.h"
#include "planning/money/failure.h"
#include "planning/money/ladder.h"
#include "planning/money/memo.h"
#include "planning/money/portfolio.h"
#include "planning/money/runs.h"
#include "planning/money/verdict.h"
#include "planning/run_file.h"
#include "planning/step/evidence.h"
#include "planning/step/own_time.h"
#include "planning/step/scaling.h"

#include <string.h>

/* Begins the assumption that says why this machine has no numbers. */
#define LS_PLAN_NOT_HERE "this machine is not compared: "

#define LS_PLAN_HERE     "this machine" /* the name of its node and accelerator */

#define LS_PLAN_GIB      1073741824.0

/* As written; "" when not given. */
typedef struct ls_plan_settings {
    const char *model, *tokens, *gpus, *nodes, *strategy, *stack, *explain, *data;
    const char *budget, *portfolio, *quote, *site, *memo, *html, *api_tokens;
    ls_option_strings catalogue;
    uint64_t global_batch, seq, top;
    double runs_per_month, api_price, staff, utilization, deadline, lead_time;
    int list;         /* ls_plan_list */
    int data_control; /* ls_data_control */
    int precision;    /* ls_plan_precision, or LS_PLAN_PRECISION_AUTO */
    int optimizer;    /* ls_plan_optimizer */
    int schedule;     /* ls_pipeline_schedule, or LS_PLAN_SCHEDULE_AUTO, LS_PLAN_SCHEDULE_ANY */
    bool accuracy, claims, ladder, scaling, json, csv;
} ls_plan_settings;

typedef enum ls_plan_list {
    LS_PLAN_LIST_NONE,
    LS_PLAN_LIST_MODELS,
    LS_PLAN_LIST_GPUS,
    LS_PLAN_LIST_NODES,
    LS_PLAN_LIST_STACKS,
    LS_PLAN_LIST_SITES
} ls_plan_list;
enum { LS_PLAN_PRECISION_AUTO = LS_PLAN_TF32 + 1 };
enum { LS_PLAN_SCHEDULE_AUTO = LS_PIPELINE_ZB_H2 + 1, LS_PLAN_SCHEDULE_ANY };

/* One model of the work. */
typedef struct ls_plan_work {
    const ls_shape *shape;
    uint64_t global_batch, length; /* 0: chosen */
} ls_plan_work;

/* The runs of a portfolio on the path that is told about. */
typedef struct ls_plan_run {
    bool known; /* false: this machine, where no strategy is chosen and the trainer can't run it */
    ls_setting setting;
    ls_estimate estimate;
} ls_plan_run;
typedef struct ls_plan_runs {
    ls_runs table;
    ls_plan_run plans[LS_PORTFOLIO_MOST];
} ls_plan_runs;

/* How our own trainer would run it on this machine. */
typedef struct ls_plan_own {
    ls_own_run run;
    ls_memory_plan memory;
} ls_plan_own;

/* The question, complete, and its answer. Lives in the invocation's arena. */
typedef struct ls_plan_answer {
    const char *model; /* as it was asked for */
    const ls_plan_settings
        *settings; /* with what a run file or a portfolio says in place of what was left out */
    const ls_plan_settings *given; /* as it was asked */
    ls_arena *arena;
    ls_assumptions assumptions;

    ls_portfolio portfolio; /* count 0: none was given */
    const ls_portfolio_run
        *examined; /* the run of it that shape, tokens, estimate and days are about; NULL: of none */

    ls_catalogue catalogue;
    ls_shape shape;
    ls_node node;
    ls_setting setting;
    double tokens;    /* to train on */
    size_t chosen_at; /* of the assumptions: where those of ls_plan_settle begin */
    int64_t too_long; /* sequences that would have been chosen, had anything fitted with them; 0: they are */
    const ls_run_file *
        run; /* that the model came in: its batch, tokens, leaves and ranks hold where nothing else is said; NULL: none */

    const ls_calibration *here; /* of this machine; NULL: not asked for, or there is none */
    const ls_plan_own *own;     /* what the estimate is of, when it is of this machine; else NULL */

    ls_strategy_request request;
    bool micro_batch_is_of_file;    /* the request's, which is given up where nothing is possible with it */
    const ls_search_result *search; /* NULL: the strategy was given */
    ls_estimate estimate;
    const char *refusal; /* why: it does not fit, and what would; NULL: it fits */
    const ls_search_result
        *instead;       /* of a strategy that was given and refused: what fits; NULL: nothing does */
    ls_band band;       /* of the step, from the error table */
    double steps, days; /* days: failures and all */

    ls_site site;
    ls_quote quote;
    ls_failure_setting failure_setting;
    ls_failure_estimate failure;
    ls_power power;
    const ls_plan_work *work; /* the question's workloads */
    ls_question question;
    ls_verdict verdict;
    const ls_plan_runs *runs; /* of the portfolio; NULL: there is none, or no price */
    const ls_path_outcome
        *outcome;      /* the chosen path, or the one that came nearest; NULL: there was none to look at */
    ls_ladder ladder;  /* count 0: not asked for */
    ls_scaling *curve; /* NULL: not asked for */
} ls_plan_answer;

/* A number with a unit of thousands: "1.4T", "300e9", "2 M", "15000". Errors: LS_ERR_INVALID with the option's name and the range. */
LS_MUST_CHECK ls_status ls_plan_parse_quantity(const char *option, const char *text, double min, double max,
                                               double *value_out);

/* Reads the question: catalogue, shape, node and count (0: not named), tokens (unless they are known), request. */
LS_MUST_CHECK ls_status ls_plan_ask(const ls_plan_settings *settings, const char *model,
                                    ls_plan_answer *answer);

/* ls_search_run for the answer's own request, or one that is open. */
LS_MUST_CHECK ls_status ls_plan_search(ls_plan_answer *answer, const ls_setting *setting,
                                       const ls_search_options *options, ls_search_result *result);

/* The setting for node and count, and what was chosen in it. */
LS_MUST_CHECK ls_status ls_plan_settle(ls_plan_answer *answer);

/* The stack that was asked for, else the usual one of the accelerator. */
const char *ls_plan_stack_name(const ls_plan_answer *answer, const ls_accelerator *accelerator);

/* The stack's constants for a machine, and the whole setting there; the global batch is shared out over its GPUs. Both are new in the arena. */
LS_MUST_CHECK ls_status ls_plan_setting_on(ls_plan_answer *answer, const ls_shape *shape, const ls_node *node,
                                           int64_t gpus, uint64_t global_batch, uint64_t length,
                                           ls_setting *setting_out);

/* The setting with half the sequence, and half of that, until something fits with what the options give, where the length is the program's own choice; else as it was. */
LS_MUST_CHECK ls_status ls_plan_shorten(ls_plan_answer *answer, const ls_search_options *options);
/* Of a setting that does not fit: "; or with --seq 4096, or with --optimizer adamw-8bit", each of which was tried; "" when none helps. In the arena. */
const char *ls_plan_ways_out(const ls_plan_answer *answer);

/* This machine as a node; NULL when it was never calibrated, which becomes an assumption. */
const ls_node *ls_plan_describe_here(ls_plan_answer *answer);
/* Its step of `setting`, from the op plan. What --strategy leaves open is the first way that fits, else the one that takes least. Errors: LS_ERR_UNSUPPORTED, LS_ERR_INVALID:
 * what the trainer can't do here, and what it can. */
LS_MUST_CHECK ls_status ls_plan_estimate_here(ls_plan_answer *answer, const ls_setting *setting,
                                              ls_plan_own *own, ls_estimate *estimate);
/* The answer's setting on this machine. */
LS_MUST_CHECK ls_status ls_plan_evaluate_here(ls_plan_answer *answer);
/* --explain for it; false: not a term of it. */
bool ls_plan_explain_here(const ls_plan_answer *answer, const char *term, ls_text *text);
static inline bool ls_plan_is_here(const ls_plan_answer *answer, const ls_node *node)
{
    return answer->here && strcmp(node->name, LS_PLAN_HERE) == 0;
}

/* Compares all places where the work could be done, and chooses one: node and GPUs of the answer follow from it. For when no machine was named. Where it fits on none they are
 * the largest that was looked at, and `refusal` says so. */
LS_MUST_CHECK ls_status ls_plan_compare(ls_plan_answer *answer);
/* The node whose power the answer tells: of a rented one only the GPUs that are rented, with their share of the host. */
ls_node ls_plan_powered_node(const ls_plan_answer *answer);
/* Failures, power, money and the verdict for the machine that was named, once the estimate stands. */
LS_MUST_CHECK ls_status ls_plan_reckon(ls_plan_answer *answer);

/* The work on a machine: as asked where it is the one that is looked at, else the best strategy. False: it does not fit. */
bool ls_plan_estimate_on(ls_plan_answer *answer, const ls_plan_work *work, const ls_node *node, int64_t gpus,
                         ls_setting *setting_out, ls_estimate *estimate_out);

/* The model that is looked at: `word` (NULL: none) or --model, by name or model of the portfolio's runs where there is one; without either its first run. */
LS_MUST_CHECK ls_status ls_plan_find_model(ls_plan_answer *answer, const ls_plan_settings *settings,
                                           const char *word, const char **model_out);
/* Tokens, batch and sequence of the examined run, where nothing else was said. */
void ls_plan_adopt_portfolio(ls_plan_answer *answer);
/* Fills `runs`, once the verdict stands. */
void ls_plan_list_runs(ls_plan_answer *answer);
/* What the run that is looked at costs on the path that is told about. False: not known. */
bool ls_plan_run_usd(const ls_plan_answer *answer, double *usd_out);
void ls_plan_append_runs(const ls_plan_answer *answer, ls_text *text);
json_t *ls_plan_runs_to_json(const ls_plan_answer *answer);

/* Half as many GPUs and twice as many; the whole curve with --scaling. */
LS_MUST_CHECK ls_status ls_plan_scale(ls_plan_answer *answer);
void ls_plan_append_scaling(const ls_plan_answer *answer, ls_text *text);
void ls_plan_append_scaling_csv(const ls_plan_answer *answer, ls_text *text);
json_t *ls_plan_scaling_to_json(const ls_plan_answer *answer);

/* Fills the ladder. */
void ls_plan_climb(ls_plan_answer *answer);
json_t *ls_plan_ladder_to_json(const ls_ladder *ladder);
/* To the file of --memo. */
LS_MUST_CHECK ls_status ls_plan_write_memo(const ls_plan_answer *answer);

/* The answer to `plan MODEL --gpus GPUS --strategy STRATEGY --global_batch N` with a scaling curve: for pictures. "" and 0 leave it open. */
LS_MUST_CHECK ls_status ls_plan_answer_for(ls_arena *arena, const char *model, const char *gpus,
                                           const char *strategy, uint64_t global_batch,
                                           const ls_plan_answer **answer_out);
/* The command that asks the same question again: all that was given. In the answer's arena. */
const char *ls_plan_write_command(const ls_plan_answer *answer);
/* A picture of it by the number of its name (telemetry/plan_page.h). */
LS_MUST_CHECK ls_status ls_plan_draw(const ls_plan_answer *answer, int figure, int width, ls_text *text);

/* To the file of --html. */
LS_MUST_CHECK ls_status ls_plan_write_html(const ls_plan_answer *answer);

/* --explain TERM. */
LS_MUST_CHECK ls_status ls_plan_explain(const ls_plan_answer *answer, ls_text *text);

/* --list: the names there are. */
LS_MUST_CHECK ls_status ls_plan_print_list(ls_arena *arena, const ls_plan_settings *settings);

/* --accuracy: the error table. */
LS_MUST_CHECK ls_status ls_plan_print_accuracy(const ls_invocation *invocation);

/* --claims: docs/claims.md. */
LS_MUST_CHECK ls_status ls_plan_print_claims(const ls_invocation *invocation);

json_t *ls_plan_strategy_to_json(const ls_strategy *strategy);
/* JSON of the contract; the caller drops it. */
json_t *ls_plan_to_json(const ls_plan_answer *answer);
/* For people. */
void ls_plan_append_text(const ls_plan_answer *answer, ls_text *text);
/* One row per strategy: the best and those that lost. */
void ls_plan_append_csv(const ls_plan_answer *answer, ls_text *text);

#endif
