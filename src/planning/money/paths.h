// SPDX-License-Identifier: Apache-2.0
/*
 * Paths: where a model could be trained. This machine or another that fits under a desk, rented GPUs, a cloud, machines of one's own, or an outside API instead.
 *
 * A path has the prices of one place and, by size, how fast it is: `points`, ascending by GPUs, that the caller fills from the search over strategies
 * (ls_path_add_point). With one point the size is fixed; with several the verdict takes the cheapest that meets the deadline.
 */
#ifndef LS_PLANNING_MONEY_PATHS_H
#define LS_PLANNING_MONEY_PATHS_H

#include "planning/assumptions.h"
#include "planning/hardware/catalogue.h"
#include "planning/money/cost.h"
#include "planning/money/power.h"
#include "planning/money/quote.h"

#include <stdbool.h>

enum { LS_PATHS_MOST = 8, LS_PATH_POINTS_MOST = 24, LS_PATH_OFFERS_MOST = 8 };

typedef enum ls_path_kind {
    LS_PATH_LOCAL,
    LS_PATH_RENTED,
    LS_PATH_CLOUD,
    LS_PATH_OWNED,
    LS_PATH_API
} ls_path_kind;
const char *ls_path_kind_name(ls_path_kind kind); /* "local", "rented", "cloud", "owned", "api" */

typedef struct ls_path_point {
    int64_t gpus;
    const double *tokens_ps;             /* of each workload, while steps run; 0: it does not fit */
    double goodput[LS_PATH_OFFERS_MOST]; /* by offer, with the largest model's checkpoints */
} ls_path_point;

typedef struct ls_path {
    ls_path_kind kind;
    const char *name;       /* "H100, rented", "this machine" */
    const char *short_name; /* "H100": of the accelerator */
    const ls_node *node;    /* NULL: API */
    bool is_here;           /* local: it need not be bought */
    /* How the machines can be had; which is best depends on the question. Rented, cloud: usd per GPU and hour; local, owned: usd per GPU. */
    ls_offer offers[LS_PATH_OFFERS_MOST];
    size_t offer_count;
    double host_usd; /* local, owned: around one GPU, where it is sold without a machine */
    ls_ownership
        terms; /* local, owned: of one GPU, without its price; staff_usd_year 0: by ls_cost_staff_usd_year */
    ls_site site; /* local, owned */
    const ls_catalogue *catalogue;
    ls_path_point points[LS_PATH_POINTS_MOST];
    size_t point_count;
} ls_path;

/* What a person says about prices and places, beside the question itself. */
typedef struct ls_path_settings {
    const ls_catalogue *catalogue;
    const ls_quote *quote; /* NULL: none */
    ls_site site;
    double staff_usd_year; /* 0: by the number of nodes */
    double lead_time_s;    /* until machines one buys are there; < 0: LS_PATH_LEAD_TIME_S */
} ls_path_settings;

#define LS_PATH_LEAD_TIME_S       (120.0 * 86400.0) /* order, delivery, installation: a guess */
#define LS_PATH_LOCAL_LEAD_TIME_S (7.0 * 86400.0)

/*
 * A path for `node`, without points. Prices come from the quote, else from the catalogue, and are named in `assumptions`.
 * Local with `is_here`: it costs its energy only. Errors: LS_ERR_NOT_FOUND when there is no price: the message says how to give one.
 */
LS_MUST_CHECK ls_status ls_path_build(ls_arena *arena, const ls_path_settings *settings, ls_path_kind kind,
                                      const ls_node *node, bool is_here, ls_assumptions *assumptions,
                                      ls_path *path_out);

/* Adds a size: tokens_ps of `count` workloads (copied), parameters of the largest for the checkpoint; goodput follows from both and from each offer's kind. */
void ls_path_add_point(ls_path *path, ls_arena *arena, int64_t gpus, const double *tokens_ps, size_t count,
                       double parameters);

/* What so many GPUs of one's own are: whole nodes, their network, and who looks after them. The factors are on prices. */
ls_ownership ls_path_ownership(const ls_path *path, const ls_offer *offer, int64_t gpus, double buy_factor,
                               double energy_factor, double staff_factor);

/* "H100", "RTX-4090": an accelerator's name without what nobody says. In `arena`. */
const char *ls_path_short_name(ls_arena *arena, const ls_accelerator *accelerator);

#endif
