// SPDX-License-Identifier: Apache-2.0
/*
 * The verdict: LOCAL, RENT, OWN, FRONTIER or DON'T, with the reason in one sentence; what every path costs, how long it takes and what can be lost on it at most; and
 * the nearest change that makes the verdict another one.
 *
 * A question is the work (one model once, or a portfolio by the month), the paths on which it could be done (planning/money/paths.h builds them), and what holds:
 * deadline, budget, who may see the data, how well own machines are used. ls_verdict_decide is a pure function of it; the nearest changes are found by calling it
 * again and again with one number changed, never by rules of their own (flip.c).
 *
 * How it is decided, in this order:
 *   1. fewer tokens than parameters (of a portfolio: in all of its runs)                                            DON'T: too little data; fine-tune instead
 *   2. of each path, the cheapest size that holds the model, the deadline and the budget (both at the 90 % end of the band) and the site, and ends a run before the
 *      machines' life does; else why not. Where no deadline is
 *      given: a size that ends a run within 30 days on a local machine, within 60 elsewhere when several sizes are compared, if there is one
 *   3. no path is left                                                         DON'T, with what stands in the way on the path that comes nearest; the API where that is possible
 *   4. an outside API answers the tokens of a month for less than the cheapest path (serving included) does    DON'T: use the API
 *   5. the cheapest local machine costs no more than the cheapest rented one   LOCAL
 *      ... or would be done sooner, for less, than all that could be bought
 *   6. owning has paid within half its life, and work is known for it (runs per month, or a use that was stated); or nothing else is possible    OWN
 *   7. rented or cloud, whichever is cheaper                                   RENT
 *   8. the same, but with more GPUs than anybody rents out without a contract (LS_OFFER_GPUS_MOST): only looked at when nothing smaller is possible
 *                                                                              FRONTIER: network, power and staff named
 *
 * Cheapest is what costs least at the 90 % end of the band: a card whose constants were taken over from another must be cheaper by more than it may miss.
 *
 * Maximum loss: what is gone when the work turns out to be worth nothing, at the worst moment.
 *   local, owned    capex less resale, a year of what runs on without use (staff, place, interest, maintenance), and the energy of a run
 *   rented, cloud   one run, or the whole commitment where that is more
 * A run is the dearest of a portfolio, at the 90 % end of the band.
 *   API             a month's bill
 *
 * Pure; allocates nothing; thread-safe.
 */
#ifndef LS_PLANNING_MONEY_VERDICT_H
#define LS_PLANNING_MONEY_VERDICT_H

#include "base/text.h"
#include "planning/money/cost.h"
#include "planning/money/paths.h"
#include "planning/money/portfolio.h"

#include <stdbool.h>

typedef enum ls_verdict_kind {
    LS_VERDICT_LOCAL,
    LS_VERDICT_RENT,
    LS_VERDICT_OWN,
    LS_VERDICT_FRONTIER,
    LS_VERDICT_DONT
} ls_verdict_kind;
const char *ls_verdict_kind_name(ls_verdict_kind kind); /* "LOCAL", ..., "DON'T" */

#define LS_VERDICT_LOCAL_S     (30.0 * 86400.0)
#define LS_VERDICT_SIZE_S      (60.0 * 86400.0)
#define LS_VERDICT_LONGEST_S   (LS_COST_LIFE_YEARS * 365.0 * 86400.0) /* no run is longer than machines live */
#define LS_VERDICT_MODEL_YEARS 2.0 /* so long a model is used, when training it is set against an API */
#define LS_VERDICT_SERVE_SHARE 0.2 /* of the peak, when a model answers */

/* Whom the data may be given to. */
typedef enum ls_data_control {
    LS_DATA_ANYWHERE, /* "any" */
    LS_DATA_CONTRACT, /* "contract": rented machines, but no API and no spot market */
    LS_DATA_OWN       /* "own": machines of one's own only */
} ls_data_control;

/* One model to be trained. */
typedef struct ls_workload {
    const char *name;
    double parameters, active_parameters;
    double tokens;         /* of one run */
    double runs_per_month; /* 0 for all: one run, and nothing after it */
} ls_workload;

/* Begin with ls_question_init. */
typedef struct ls_question {
    const ls_workload *workloads;
    size_t workload_count; /* 1 to LS_PORTFOLIO_MOST */
    const ls_path *paths;
    size_t path_count; /* 1 to LS_PATHS_MOST */

    double
        runs_per_month; /* of all workloads together, shared out in their proportion; 0: as the workloads say */
    double
        utilization; /* of own machines, 0 to 1: with runs by the month the most they are used; 0: 0.9 at most, and without runs 0.6 for information */
    double deadline_s; /* for a run to end, from today; 0: none */
    double
        budget_usd; /* for a run (rented), for the machine and a run (owned), for two years (API); 0: none */
    double rent_factor, buy_factor, energy_factor, staff_factor; /* on prices, 1 */
    double tokens_factor;                                        /* on the tokens of every run, 1 */
    const ls_path *priced_path; /* offer_factor is on the price of this path alone; NULL: of none */
    double offer_factor;
    ls_data_control data_control;
    double api_usd_per_million; /* 0: not asked */
    double api_tokens_month;    /* 0: not known */
    double storage_usd_gb_month, egress_usd_tb;
    double checkpoints_kept; /* full ones, as long as the run goes on and at least a month; the data too */
} ls_question;

void ls_question_init(ls_question *question);

/* What stands in the way, from the nearest to the farthest. */
typedef enum ls_obstacle {
    LS_OBSTACLE_NONE,
    LS_OBSTACLE_BUDGET,
    LS_OBSTACLE_DEADLINE,
    LS_OBSTACLE_LIFE, /* a run is longer than LS_VERDICT_LONGEST_S */
    LS_OBSTACLE_USE,  /* the runs need more of its hours than there are */
    LS_OBSTACLE_SITE,
    LS_OBSTACLE_SIZE, /* more or fewer GPUs than are to be had */
    LS_OBSTACLE_MEMORY,
    LS_OBSTACLE_TOKENS, /* API: nobody said how many tokens a month it would answer */
    LS_OBSTACLE_OFFER,  /* a price of the catalogue where an own offer holds */
    LS_OBSTACLE_CONTROL
} ls_obstacle;

typedef struct ls_path_outcome {
    const ls_path *path;
    const ls_path_point
        *point; /* the size looked at: the cheapest possible one, else the one that came nearest; NULL: API */
    const ls_offer *offer; /* the path's; NULL: API */
    const char *name;      /* the path's */
    bool possible;
    ls_obstacle obstacle;
    char why_not[256]; /* "" when possible */
    bool frontier;     /* more GPUs than are rented out without a contract */
    int64_t gpus;      /* that a run takes */
    int64_t
        copies; /* owned, reserved, under a desk: so many runs go on at a time, each on GPUs of its own; else 1 */
    int64_t machines; /* GPUs that are paid for: of all copies, and of one's own whole nodes */
    double run_days;  /* of the longest run, while it goes on */
    double days;      /* until it has ended, from today: lead time included; INFINITY: it does not fit */
    double days_slow; /* the same at the 90 % end of the band: what a deadline is held against */
    double gpu_hours; /* of a run, mean over the workloads */
    double goodput;

    double run_usd; /* a run, everything in it; owned: its share of the years. The parts add up to it: */
    double compute_usd, storage_usd, egress_usd, energy_usd, staff_usd, depreciation_usd, other_usd;
    double run_usd_low, run_usd_high; /* with the ends of the price's range */
    double
        run_usd_slow; /* at the 90 % end of the band: by this paths are chosen, so that a guess does not win by its luck */
    double usd_per_gpu_hour;
    double upfront_usd; /* before the first step: capex, or a commitment */
    double month_usd;   /* then, every month; 0 for a single rented run */
    double total_usd;   /* of the run; with runs by the month over the life of own machines */
    double max_loss_usd;

    /* Local, owned. */
    double utilization;
    ls_power power; /* of all copies; not known in other paths */
    /* Owned against the cheapest of rented and cloud, for the same runs; 0 where there is nothing to compare with. */
    double rent_usd_per_gpu_hour;  /* what an hour of an own GPU would cost there */
    double break_even_months;      /* INFINITY: never */
    double break_even_utilization; /* to have paid within half the life; above 1: it can't */
    double break_even_rate;        /* rent per GPU and hour from which it has */
} ls_path_outcome;

/* What may be changed to flip the verdict. */
typedef enum ls_lever {
    LS_LEVER_RENT_PRICE,
    LS_LEVER_BUY_PRICE,
    LS_LEVER_OFFER_PRICE, /* of the chosen path alone */
    LS_LEVER_UTILIZATION,
    LS_LEVER_RUNS,
    LS_LEVER_DEADLINE,
    LS_LEVER_TOKENS,
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
        to; /* in the lever's unit: a factor on prices and tokens, a share, runs a month, seconds, USD, tokens */
    double
        utilization; /* that own machines must have besides; 0: none. For prices, where no work is known for own machines */
    ls_verdict_kind becomes;
    int path; /* that is chosen then: an outcome; -1: none */
    /* "OWN (H100 of one's own) when rented GPUs cost 36 % more (H100, rented: 4.10 USD an hour)" */
    char text[320];
} ls_flip;

typedef struct ls_verdict {
    ls_verdict_kind kind;
    char reason[480];                        /* one sentence */
    ls_path_outcome outcomes[LS_PATHS_MOST]; /* in the question's order */
    size_t outcome_count;
    int chosen; /* an outcome; -1: none */
    int told; /* the outcome that all numbers are about: the chosen one; beside an API, or with too little data, the one that would be; else the one that comes nearest; -1: the model fits nowhere */
    size_t workload_count;       /* of the question */
    double runs_per_month;       /* of all workloads; 0: one run */
    double tokens_per_parameter; /* the most of the workloads */
    int rented;                  /* what own machines are compared with: an outcome; -1: there is none */
    int owned;                   /* the best owned path: an outcome; -1: there is none */
    double break_even_months, break_even_utilization; /* of it; 0: there is nothing to compare */
    /* The API's bill for a month, and what training and answering as much with the cheapest path cost; 0: not asked or not known. */
    double api_usd_month, train_usd_month, serve_usd_month;
    double api_break_even_tokens_month; /* from here on the API is dearer; INFINITY: never; 0: not asked */
    ls_flip flips[LS_LEVER_COUNT];      /* nearest first, one for each lever that has one */
    size_t flip_count;
} ls_verdict;

/* Without the flips: about a microsecond for each size of each path. */
void ls_verdict_decide(const ls_question *question, ls_verdict *verdict_out);
/* And with them. */
void ls_verdict_compute(const ls_question *question, ls_verdict *verdict_out);

/* The rules that were used, with their numbers: how long is too long, from where on it is FRONTIER, how an API is set against training. */
void ls_verdict_assume(const ls_question *question, const ls_verdict *verdict, ls_assumptions *list);

/* The paths side by side, as a table of text: GPUs, days, a run, upfront, a month, at most lost, why not. */
void ls_verdict_append_paths(const ls_verdict *verdict, ls_text *text);

#endif
