// SPDX-License-Identifier: Apache-2.0
/*
 * The verdict: LOCAL, RENT, OWN, FRONTIER or DON'T, with the reason in one sentence; what every
 * path costs, how long it takes and how much can be lost on it; and the nearest change that would
 * make the verdict another one.
 *
 * A question holds the work (one model once, or a portfolio per month), the paths on which it could
 * be done (planning/money/paths.h builds them), and the limits: deadline, budget, who may hold the
 * data, how well own machines are used. ls_verdict_decide is a pure function of the question. The
 * nearest changes are found by calling it repeatedly with one number changed, never by rules of
 * their own (tipping_points.c).
 *
 * The rules, in this order:
 *   1. fewer tokens than parameters (for a portfolio: in all of its runs)      DON'T: fine-tune
 *   2. for each path, take the cheapest size that holds the model, meets deadline and budget (both
 *      at the 90 % end of the band), suits the site, and finishes a run within the life of the
 *      machines; else record why not. Without a deadline, prefer a size that finishes a run within
 *      30 days on a local machine, or within 60 elsewhere where several sizes are compared
 *   3. no path is left                        DON'T, with what rules out the closest path; the API
 *                                             where that is possible
 *   4. an outside API serves a month's tokens for less than training and serving on the cheapest
 *      path                                                                    DON'T: use the API
 *   5. the cheapest local machine costs no more than the cheapest rented one, or finishes sooner
 *      and for less than all machines that could be bought                     LOCAL
 *   6. owning pays back within half its life, and work is known for it (runs per month, or a stated
 *      utilization); or nothing else is possible                               OWN
 *   7. rented or cloud, whichever is cheaper                                   RENT
 *   8. the same with more GPUs than can be rented without a contract (LS_OFFER_GPUS_MOST);
 *      considered only when nothing smaller is possible   FRONTIER: network, power and staff named
 *
 * "Cheapest" means the lowest cost at the 90 % end of the band: a GPU whose constants were taken
 * over from another one must be cheaper by more than its prediction may be wrong.
 *
 * Maximum loss: what is gone if the work turns out to be worthless, at the worst moment.
 *   local, owned    capex less resale, a year of costs that do not depend on use (staff, space,
 *                   interest, maintenance), and the energy of a run
 *   rented, cloud   one run, or the whole commitment where that is more
 *   API             a month's bill
 * For a portfolio, a run is its most expensive one, at the 90 % end of the band.
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

#define LS_VERDICT_LOCAL_S (30.0 * 86400.0)
#define LS_VERDICT_SIZE_S  (60.0 * 86400.0)
/* A run must be shorter than the life of the machines. */
#define LS_VERDICT_LONGEST_S (LS_COST_LIFE_YEARS * 365.0 * 86400.0)
/* How long a model is used, where training is compared with an API. */
#define LS_VERDICT_MODEL_YEARS 2.0
#define LS_VERDICT_SERVE_SHARE 0.2 /* of the peak, while a model serves */

/* Who may hold the data. */
typedef enum ls_data_control {
    LS_DATA_ANYWHERE, /* "any" */
    LS_DATA_CONTRACT, /* "contract": rented machines, but no API and no spot market */
    LS_DATA_OWN       /* "own": own machines only */
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

    /* Of all workloads together, in their proportion; 0: the sum of the workloads' own */
    double runs_per_month;
    /* Utilization of own machines, 0 to 1; an upper limit where there are runs per month. 0: at
     * most 0.9, and 0.6 for information where there are no runs per month */
    double utilization;
    double deadline_s; /* for a run to end, from today; 0: none */
    /* For a run (rented), for the machine and a run (owned), for two years (API); 0: none */
    double budget_usd;
    double rent_factor, buy_factor, energy_factor, staff_factor; /* on prices; 1 */
    double tokens_factor;                                        /* on the tokens of every run; 1 */
    /* offer_factor applies to the price of this path alone; NULL: none */
    const ls_path *priced_path;
    double offer_factor;
    ls_data_control data_control;
    double api_usd_per_million; /* 0: not asked */
    double api_tokens_month;    /* 0: not known */
    double storage_usd_gb_month, egress_usd_tb;
    /* Full checkpoints stored during a run, and at least for a month; the data are stored too */
    double checkpoints_kept;
} ls_question;

void ls_question_init(ls_question *question);

/* What rules a path out, from the closest to the farthest from possible. */
typedef enum ls_obstacle {
    LS_OBSTACLE_NONE,
    LS_OBSTACLE_BUDGET,
    LS_OBSTACLE_DEADLINE,
    LS_OBSTACLE_LIFE, /* a run is longer than LS_VERDICT_LONGEST_S */
    LS_OBSTACLE_USE,  /* the runs need more hours than there are */
    LS_OBSTACLE_SITE,
    LS_OBSTACLE_SIZE, /* more or fewer GPUs than are available */
    LS_OBSTACLE_MEMORY,
    LS_OBSTACLE_TOKENS, /* API: the tokens per month are not known */
    LS_OBSTACLE_OFFER,  /* a price of the catalogue that an own offer replaces */
    LS_OBSTACLE_CONTROL
} ls_obstacle;

typedef struct ls_path_outcome {
    const ls_path *path;
    /* The cheapest possible size, else the closest to possible; NULL: API */
    const ls_path_point *point;
    const ls_offer *offer; /* the path's; NULL: API */
    const char *name;      /* the path's */
    bool possible;
    ls_obstacle obstacle;
    char why_not[256]; /* "" when possible */
    bool frontier;     /* more GPUs than can be rented without a contract */
    int64_t gpus;      /* for one run */
    /* owned, reserved, under a desk: runs in progress at a time, each on its own GPUs; else 1 */
    int64_t copies;
    int64_t machines; /* GPUs that are paid for: those of all copies; whole nodes where owned */
    double run_days;  /* duration of the longest run */
    /* from today to the end of the run, delivery included; INFINITY: it does not fit */
    double days;
    double days_slow; /* the same at the 90 % end of the band, which a deadline is compared with */
    double gpu_hours; /* of a run, the mean over the workloads */
    double goodput;

    /* The whole cost of a run; where owned, its share of the machines' life. The sum of the
     * parts: */
    double run_usd;
    double compute_usd, storage_usd, egress_usd, energy_usd, staff_usd, depreciation_usd, other_usd;
    double run_usd_low, run_usd_high; /* with the ends of the price's range */
    /* At the 90 % end of the band: by this paths are chosen, so that a guess does not win by its
     * luck */
    double run_usd_slow;
    double usd_per_gpu_hour;
    double upfront_usd; /* before the first step: capex or a commitment */
    double month_usd;   /* after that, per month; 0 for a single rented run */
    double total_usd;   /* of the run; with runs per month, over the life of own machines */
    double max_loss_usd;

    /* Local, owned. */
    double utilization;
    ls_power power; /* of all copies; unknown for other paths */
    /* Owned, compared with the cheapest of rented and cloud for the same runs; 0 where there is
     * nothing to compare with. */
    double rent_usd_per_gpu_hour;  /* cost of the same GPU-hour there */
    double break_even_months;      /* INFINITY: never */
    double break_even_utilization; /* to pay back within half the life; above 1: impossible */
    double break_even_rate;        /* rent per GPU and hour at which it does */
} ls_path_outcome;

/* Numbers whose change may change the verdict. */
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

typedef struct ls_tipping_point {
    ls_lever lever;
    /* in the lever's unit: a factor on prices and tokens, a share, runs a month, seconds, USD,
     * tokens */
    double from, to;
    /* That own machines must have besides; 0: none. For prices, where no work is known for own
     * machines */
    double utilization;
    ls_verdict_kind becomes;
    int path; /* the outcome that is then chosen; -1: none */
    /* "OWN (H100, owned) when rented GPUs cost 36 % more (H100, rented: 4.10 USD an hour)" */
    char text[320];
} ls_tipping_point;

typedef struct ls_verdict {
    ls_verdict_kind kind;
    char reason[480];                        /* one sentence */
    ls_path_outcome outcomes[LS_PATHS_MOST]; /* in the question's order */
    size_t outcome_count;
    int chosen; /* index of an outcome; -1: none */
    /* The outcome that all numbers are about: the chosen one; where an API wins or the data are too
     * few, the one that would be chosen otherwise; else the closest; -1: the model fits nowhere. */
    int told;
    size_t workload_count;       /* of the question */
    double runs_per_month;       /* of all workloads; 0: one run */
    double tokens_per_parameter; /* the most of the workloads */
    /* the outcome that own machines are compared with; -1: there is none */
    int rented;
    /* the outcome of the best owned path; -1: there is none */
    int owned;
    double break_even_months, break_even_utilization; /* of that path; 0: nothing to compare */
    /* The API's monthly bill, and the monthly cost of training, and of serving the same tokens, on
     * the cheapest path; 0: not asked or not known. */
    double api_usd_month, train_usd_month, serve_usd_month;
    /* above this the API costs more; INFINITY: never; 0: not asked */
    double api_break_even_tokens_month;
    ls_tipping_point flips[LS_LEVER_COUNT]; /* nearest first; one for each lever that has one */
    size_t flip_count;
} ls_verdict;

/* Decides without the tipping points: about a microsecond for each size of each path. */
void ls_verdict_decide(const ls_question *question, ls_verdict *verdict_out);
/* Decides and finds the tipping points. */
void ls_verdict_compute(const ls_question *question, ls_verdict *verdict_out);

/* Adds the rules that were used, with their numbers: how long is too long, where FRONTIER begins,
 * how an API is compared with training. */
void ls_verdict_assume(const ls_question *question, const ls_verdict *verdict, ls_assumptions *list);

/* Appends the paths as a table: GPUs, time, cost of a run, upfront, per month, most that can be
 * lost, why not. */
void ls_verdict_append_paths(const ls_verdict *verdict, ls_text *text);

#endif
