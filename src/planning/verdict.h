// SPDX-License-Identifier: Apache-2.0
/*
 * The verdict: LOCAL, RENT, OWN, FRONTIER or DON'T, with the reason in one sentence; what every path costs, how long it takes and what can be lost on it at most; and
 * the nearest change that makes the verdict another one.
 *
 * A question is the work (one model once, or a portfolio by the month), the paths on which it could be done (planning/paths.h builds them), and what holds:
 * deadline, budget, who may see the data, how well own machines are used. ls_verdict_decide is a pure function of it; the nearest changes are found by calling it
 * again and again with one number changed, never by rules of their own.
 *
 * How it is decided, in this order:
 *   1. fewer tokens than parameters                                            DON'T: too little data; fine-tune instead
 *   2. of each path, the cheapest size that holds the model, the deadline, the budget and the site; else why not
 *   3. no path is left                                                         DON'T, with what stood in the way on the path that came nearest
 *   4. an outside API answers the tokens of a month for less than the cheapest path (serving included) does    DON'T: use the API
 *   5. the cheapest local machine costs no more than the cheapest rented       LOCAL
 *   6. owning has paid within half its life, and work is known for it (runs per month, or a use that was stated)    OWN
 *   7. rented or cloud                                                         RENT
 *   8. what is left needs more GPUs than anybody rents out without a contract  FRONTIER: network, power and staff named
 *
 * Maximum loss: what is gone when the work turns out to be worth nothing, at the worst moment.
 *   local, owned    capex less what it sells for at the end, + a year of what runs on (staff, place, interest, maintenance; a local machine has none), + energy of the run
 *   rented, cloud   one run, or the whole commitment where that is more
 *   API             a month's bill
 *
 * Pure; allocates nothing; thread-safe.
 */
#ifndef LS_PLANNING_VERDICT_H
#define LS_PLANNING_VERDICT_H

#include "planning/cost.h"
#include "planning/paths.h"
#include "planning/portfolio.h"

#include <stdbool.h>

typedef enum ls_verdict_kind {
    LS_VERDICT_LOCAL,
    LS_VERDICT_RENT,
    LS_VERDICT_OWN,
    LS_VERDICT_FRONTIER,
    LS_VERDICT_DONT
} ls_verdict_kind;
const char *ls_verdict_name(ls_verdict_kind kind); /* "LOCAL", ..., "DON'T" */

#define LS_VERDICT_PATIENCE_S (30.0 * 86400.0) /* for a local machine, where no deadline is given */

/* Whom the data may be given to. */
typedef enum ls_data_control {
    LS_DATA_ANYWHERE, /* "any" */
    LS_DATA_CONTRACT, /* "contract": rented machines, but no API and no spot market */
    LS_DATA_OWN       /* "own": machines of one's own only */
} ls_data_control;
LS_MUST_CHECK ls_status ls_data_control_parse(const char *text, ls_data_control *control_out);

/* One model to be trained. */
typedef struct ls_workload {
    const char *name;
    double parameters, active_parameters;
    double tokens;         /* of one run */
    double runs_per_month; /* 0 in all: one run, and nothing after it */
} ls_workload;

typedef struct ls_question {
    const ls_workload *workloads;
    size_t workload_count; /* 1 to LS_PORTFOLIO_MOST */
    const ls_path *paths;
    size_t path_count; /* 1 to LS_PATHS_MOST */
    /* The numbers of ls_lever. Zero-initialised is not enough: begin with ls_question_init. */
    double runs_per_month; /* of all workloads together, shared out as they are; 0: one run of each */
    double utilization;    /* 0: not stated */
    double deadline_s;     /* for a run to end, from today; 0: none */
    double budget_usd; /* that may be spent on a run (rented), on the machine and a run (owned); 0: none */
    double rent_factor, buy_factor, energy_factor, staff_factor, api_factor; /* on prices */
    ls_data_control data_control;
    double api_usd_per_million; /* 0: not asked */
    double api_tokens_month;    /* 0: not known: then the tokens at which the API gets dearer are told */
    double storage_usd_gb_month, egress_usd_tb;
    double checkpoints_kept; /* full ones, for a month */
} ls_question;

/* Defaults for everything but workloads and paths. */
void ls_question_init(ls_question *question);

typedef struct ls_path_outcome {
    const ls_path *path;
    bool possible;
    char why_not[200]; /* "" when possible */
    int64_t gpus;      /* of the size looked at: the cheapest possible one, else the largest */
    double days;       /* the longest run, from today: lead time included */
    double gpu_hours;  /* of one run, mean over the workloads */
    double run_usd;    /* one run, everything in it; owned: its share of the years */
    double compute_usd, storage_usd, egress_usd, energy_usd, staff_usd,
        depreciation_usd; /* parts of run_usd; energy of rented machines is in compute */
    double upfront_usd;   /* before the first step: capex, or a commitment */
    double month_usd;     /* then, every month: 0 for a single rented run */
    double total_usd;     /* over the life of an owned machine with runs by the month; else of the run */
    double max_loss_usd;
    double usd_per_gpu_hour;
    double run_usd_low, run_usd_high; /* with the ends of the price range */
    double goodput;
    double utilization; /* of the owned machine */
    double power_kw;    /* at the meter; 0 not known */
    int64_t racks;
    /* Owned against the cheapest of rented and cloud: */
    double break_even_months;      /* INFINITY: never; 0 for other paths */
    double break_even_utilization; /* to have paid within half the life */
    double break_even_rate;        /* rent per GPU and hour from which it has */
} ls_path_outcome;

/* What may be changed to flip the verdict. */
typedef enum ls_lever {
    LS_LEVER_RENT_PRICE,
    LS_LEVER_BUY_PRICE,
    LS_LEVER_UTILIZATION,
    LS_LEVER_RUNS,
    LS_LEVER_DEADLINE,
    LS_LEVER_BUDGET,
    LS_LEVER_ENERGY_PRICE,
    LS_LEVER_STAFF,
    LS_LEVER_API_PRICE,
    LS_LEVER_API_TOKENS,
    LS_LEVER_COUNT
} ls_lever;
const char *ls_lever_name(ls_lever lever); /* "rent_price", ...: JSON */

typedef struct ls_flip {
    ls_lever lever;
    double from,
        to; /* in the lever's unit: a factor on prices, a share, runs a month, seconds, USD, tokens */
    ls_verdict_kind becomes;
    char text[160]; /* "OWN when rent rises by 36 %, to 4.10 USD per GPU and hour" */
} ls_flip;

typedef struct ls_verdict {
    ls_verdict_kind kind;
    char reason[320];                        /* one sentence */
    ls_path_outcome outcomes[LS_PATHS_MOST]; /* in the question's order */
    size_t outcome_count;
    int chosen; /* an outcome; -1: none */
    double tokens_per_parameter;
    double break_even_months,
        break_even_utilization; /* of the first owned path: at the stated, the demanded, or 60 % use */
    double api_usd_month,
        serve_usd_month; /* the API's bill, and that of answering as much with the model; 0: not asked or not known */
    double api_break_even_tokens_month; /* from here on the API is dearer; INFINITY: never */
    ls_flip flips[LS_LEVER_COUNT];      /* nearest first, one for each lever that has one */
    size_t flip_count;
} ls_verdict;

/* Without the flips: about a microsecond for each size of each path. */
void ls_verdict_decide(const ls_question *question, ls_verdict *verdict_out);
/* And with them. */
void ls_verdict_compute(const ls_question *question, ls_verdict *verdict_out);

/* The paths side by side as a table of text: path, GPUs, days, a run, upfront, a month, maximum loss, why not. */
void ls_verdict_append_paths(const ls_verdict *verdict, ls_text *text);

#endif
