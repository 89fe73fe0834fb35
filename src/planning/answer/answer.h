// SPDX-License-Identifier: Apache-2.0
/*
 * The answer to "what would it take?": a question as a person asks it, and everything that follows
 * from it: machine, strategy, step time, memory, failures, power, money, the verdict and its
 * assumptions. `lockstep plan` parses options into the question and prints the answer; pages,
 * memos and figures read the same answer.
 *
 * ls_plan_answer_compute works in this order:
 *
 *   question.c       reads the question: model, machine, tokens, strategy; run files and portfolios
 *                    fill in what was left open
 *   places.c         no machine was named: compares all places and chooses one
 *   question.c       chooses batch, sequence length, precision and software for that machine
 *   answer.c         evaluates the given strategy or searches for the fastest one that fits
 *   links.c          what a slow link between the machines is worth
 *   costs.c          failures, power, prices and the verdict
 *   curve.c          the same work on more and on fewer GPUs
 *
 * Every value that was chosen and not given becomes an assumption of the answer.
 *
 * What does not fit is an answer too: `refusal` says why, all numbers are those of the strategy
 * that needs the least memory, and the verdict is DON'T. An error is returned only for a question
 * that cannot be understood, or that asks for money where no price is known.
 *
 * Memory: everything lives in the arena. Not thread-safe for one arena. Nothing is printed.
 */
#ifndef LS_PLANNING_ANSWER_ANSWER_H
#define LS_PLANNING_ANSWER_ANSWER_H

#include "base/options.h"
#include "config/run_file.h"
#include "planning/accuracy/accuracy.h"
#include "planning/hardware/calibration.h"
#include "planning/money/failure.h"
#include "planning/money/ladder.h"
#include "planning/money/portfolio.h"
#include "planning/money/runs.h"
#include "planning/money/verdict.h"
#include "planning/step/evidence.h"
#include "planning/step/link.h"
#include "planning/step/own_time.h"
#include "planning/step/scaling.h"

#define LS_PLAN_HERE "this machine" /* the name of its node and accelerator */

#define LS_PLAN_GIB  1073741824.0

enum { LS_PLAN_KEY_ASSUMPTIONS = 3 };
enum { LS_PLAN_PRECISION_AUTO = LS_PLAN_TF32 + 1 };
enum { LS_PLAN_SCHEDULE_AUTO = LS_PIPELINE_ZB_H2 + 1, LS_PLAN_SCHEDULE_ANY };

/* Finds the calibration of this machine. False: there is none, and `why_out` says what to do. */
typedef bool ls_calibration_finder(ls_arena *arena, ls_calibration *calibration_out, char *why_out,
                                   size_t why_bytes);

/* The question, as it was asked. Texts are "" when not given, numbers 0; the options of
 * `lockstep plan` have the same names. */
typedef struct ls_plan_question {
    /* Preset, config.json, run file, key=value list, or a run of the portfolio */
    const char *model;
    const char *tokens, *gpus, *nodes, *strategy, *stack;
    const char *budget, *portfolio, *quote, *site, *api_tokens;
    const char *link; /* rate of the link between machines, "100Mbit" */
    uint64_t hosts;   /* machines that it connects; 0: those of `gpus` or `nodes` */
    ls_option_strings catalogue;
    uint64_t global_batch, seq, top;
    double runs_per_month, api_price, staff, utilization, deadline, lead_time;
    int data_control; /* ls_data_control */
    int precision;    /* ls_plan_precision, or LS_PLAN_PRECISION_AUTO */
    int optimizer;    /* ls_plan_optimizer */
    int schedule;     /* ls_pipeline_schedule, or LS_PLAN_SCHEDULE_AUTO, LS_PLAN_SCHEDULE_ANY */
    bool ladder;      /* also the stages from one node to the full run */
    bool scaling;     /* the whole scaling curve; without it half and twice the GPUs */
    bool draw;        /* the curve is wanted for a page, even where a strategy was given */
    bool needs_price; /* a missing price is an error, as in a memo; money options imply it */
    ls_calibration_finder *find_calibration;
} ls_plan_question;

/* One model to train. */
typedef struct ls_plan_work {
    const ls_shape *shape;
    uint64_t global_batch, length; /* 0: chosen */
} ls_plan_work;

/* The strategy of each run of a portfolio, on the path that the answer is about. */
typedef struct ls_plan_run {
    bool known; /* false: this machine cannot train the model, so it has no strategy */
    ls_setting setting;
    ls_estimate estimate;
} ls_plan_run;
typedef struct ls_plan_runs {
    ls_runs table;
    ls_plan_run plans[LS_PORTFOLIO_MOST];
} ls_plan_runs;

/* Data parallel training over a link with fewer bytes (planning/step/link.h). */
typedef struct ls_plan_links {
    ls_link_setting setting;
    ls_link_estimate rows[LS_LINK_SCHEMES];
    uint32_t chosen; /* of the rows: the gentlest that suffices */
    /* share of the answer's step that is network, where the link was not asked about; else 0 */
    double network;
} ls_plan_links;

/* How Lockstep itself would run the work on this machine. */
typedef struct ls_plan_own {
    ls_own_run run;
    ls_memory_plan memory;
} ls_plan_own;

typedef struct ls_plan_answer {
    ls_arena *arena;
    const ls_plan_question *given; /* as it was asked */
    /* the same, completed from a run file or a portfolio where something was left out */
    const ls_plan_question *asked;
    const char *model;   /* as shapes know it */
    const char *command; /* the command line that asks the same again; set by the caller */
    ls_assumptions assumptions;
    /* those that the numbers depend on most, the most important first */
    const char *key_assumptions[LS_PLAN_KEY_ASSUMPTIONS];
    size_t key_count;

    ls_portfolio portfolio; /* count 0: none was given */
    /* the run of the portfolio that shape, tokens, estimate and days are about; NULL: no run of
     * it */
    const ls_portfolio_run *examined;

    ls_catalogue catalogue;
    ls_shape shape;
    ls_node node;
    ls_setting setting;
    double tokens; /* to train on */
    /* the sequence length that would have been chosen if anything fitted with it; 0: it was */
    int64_t too_long;
    const ls_run_file *run; /* the model came in this run file; NULL: in none */

    const ls_calibration *here; /* of this machine; NULL: not asked for, or there is none */
    /* How the estimate was made, when it is for this machine; else NULL */
    const ls_plan_own *own;
    /* what is trained on this machine, an adapter and its base; NULL: the whole model */
    const ls_layout *trained;

    ls_strategy_request request;
    const ls_search_result *search; /* NULL: the strategy was given */
    ls_estimate estimate;
    const char *refusal; /* why nothing fits, and what would; NULL: it fits */
    /* what fits in place of a given strategy that was refused; NULL: nothing does */
    const ls_search_result *instead;
    ls_band band;       /* of the step time, from the error table */
    double steps, days; /* days include failures */

    ls_site site;
    ls_quote quote;
    ls_failure_setting failure_setting;
    ls_failure_estimate failure;
    ls_power power;
    const ls_plan_work *work; /* one for each workload of `question` */
    ls_question question;
    ls_verdict verdict;
    const ls_plan_runs *runs; /* of the portfolio; NULL: there is none, or no price */
    /* the chosen path, else the one that came nearest; NULL: no path was looked at */
    const ls_path_outcome *outcome;
    ls_ladder ladder;  /* count 0: not asked for */
    ls_scaling *curve; /* NULL: not asked for */
    /* with --link; or as an alternative, where the network takes over a fifth of the step; NULL */
    const ls_plan_links *links;

    /* Private to the room. */
    /* assumptions that may become key ones; NULL: not made */
    const char *assumed_tokens, *assumed_constants, *assumed_length, *assumed_batch, *assumed_strategy;
    size_t chosen_at;            /* where the assumptions about chosen values begin */
    double link_bytes_ps;        /* --link, of each of `hosts` machines */
    int64_t hosts;               /* 0: no --link */
    bool micro_batch_is_of_file; /* it is dropped where no strategy is possible with it */
} ls_plan_answer;

/*
 * Answers `question` into `answer_out`, which may be uninitialised. Both must outlive the answer's
 * use, as must the arena.
 * Errors: LS_ERR_INVALID, LS_ERR_NOT_FOUND for a bad or unknown value, with the option's name and
 * what is allowed; LS_ERR_UNSUPPORTED for what this machine cannot train; those of reading files.
 */
LS_MUST_CHECK ls_status ls_plan_answer_compute(ls_arena *arena, const ls_plan_question *question,
                                               ls_plan_answer *answer_out);

/* Whether `node` is this machine. */
bool ls_plan_is_here(const ls_plan_answer *answer, const ls_node *node);
/* The node whose power the answer states: of a rented node only the rented GPUs, with their share
 * of the host. */
ls_node ls_plan_powered_node(const ls_plan_answer *answer);
/* What the run that is examined costs on the answer's path. False: not known. */
bool ls_plan_run_usd(const ls_plan_answer *answer, double *usd_out);
/* Explains a term of an answer about this machine. False: it is not one of its terms. */
bool ls_plan_explain_here(const ls_plan_answer *answer, const char *term, ls_text *text);

#endif
