// SPDX-License-Identifier: Apache-2.0
/*
 * Paths: where a model could be trained. On this machine or another that fits under a desk, on
 * rented GPUs, in a cloud, on own machines, or by using an outside API instead.
 *
 * A path is one place at one price: the catalogue's or an own offer's. So each offer has its own
 * row and its own reason why it cannot be used. An own offer by the hour (or to buy) replaces the
 * catalogue's price within its gpus_min and gpus_max; outside them the catalogue's price applies.
 * Offers of other kinds (reserved, spot, capacity blocks) are compared with it.
 *
 * For each size a path has a speed: `points`, ascending by GPUs, which the caller fills from the
 * search over strategies (ls_path_add_point). With one point the size is fixed; with several the
 * verdict takes the cheapest one that meets the deadline.
 */
#ifndef LS_PLANNING_MONEY_PATHS_H
#define LS_PLANNING_MONEY_PATHS_H

#include "planning/assumptions.h"
#include "planning/hardware/catalogue.h"
#include "planning/money/cost.h"
#include "planning/money/power.h"
#include "planning/money/quote.h"

#include <stdbool.h>

enum {
    LS_PATHS_MOST = 96,
    LS_PATH_POINTS_MOST = 24,
    LS_PATH_OFFERS_MOST = 12 /* own ones of a kind of path for one accelerator */
};

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
    const double *tokens_ps; /* of each workload, while steps run; 0: it does not fit */
    /* at the 90 % end of the band a run takes so many times as long; 1: not known */
    double slow;
    double goodput; /* with the largest model's checkpoints */
} ls_path_point;

typedef struct ls_path {
    ls_path_kind kind;
    const char *name;       /* "H100, rented", "H100, provider B", "this machine" */
    const char *short_name; /* "H100": of the accelerator */
    const ls_node *node;    /* NULL: API */
    bool is_here;           /* local: it need not be bought */
    ls_offer offer;         /* rented, cloud: usd per GPU and hour; local, owned: usd per GPU */
    /* of a catalogue's price: all own offers of this kind of path for the accelerator */
    const ls_offer *own;
    size_t own_count;
    double host_usd; /* local, owned: around one GPU, where it is sold without a machine */
    /* local, owned: of one GPU, without its price; staff_usd_year 0: by ls_cost_staff_usd_year */
    ls_ownership terms;
    ls_site site; /* local, owned */
    const ls_catalogue *catalogue;
    const char *assumed_price; /* the assumption that names the price; NULL: none */
    ls_path_point points[LS_PATH_POINTS_MOST];
    size_t point_count;
} ls_path;

/* What a person says about prices and places, besides the question itself; and where paths and what
 * they assume go. */
typedef struct ls_path_settings {
    ls_arena *arena;
    ls_assumptions *assumptions; /* NULL: not collected */
    const ls_catalogue *catalogue;
    const ls_quote *quote; /* NULL: none */
    ls_site site;
    double staff_usd_year; /* 0: by the number of nodes */
    double lead_time_s;    /* until machines one buys are there; < 0: LS_PATH_LEAD_TIME_S */
} ls_path_settings;

#define LS_PATH_LEAD_TIME_S       (120.0 * 86400.0) /* order, delivery, installation: a guess */
#define LS_PATH_LOCAL_LEAD_TIME_S (7.0 * 86400.0)

/* Which paths to build. */
typedef struct ls_path_request {
    ls_path_kind kind;
    const ls_node *node; /* NULL: API, which is one path */
    bool is_here;        /* local: it costs its energy only */
    size_t most;         /* paths that may be built */
} ls_path_request;

/*
 * Builds the paths of a request, without points: own offers, cheapest first, then the catalogue's
 * price. Prices become assumptions, and so does what was left out where there are more than `most`
 * or LS_PATH_OFFERS_MOST.
 * Errors: LS_ERR_NOT_FOUND when there is no price; the message says how to give one.
 */
LS_MUST_CHECK ls_status ls_path_build(const ls_path_settings *settings, const ls_path_request *request,
                                      ls_path *paths_out, size_t *count_out);

/* How fast one size is. */
typedef struct ls_path_size {
    int64_t gpus;
    const double *tokens_ps; /* of each workload; copied */
    size_t count;            /* of workloads */
    double slow;             /* as in ls_path_point; 0: not known */
    double parameters;       /* of the largest, for the checkpoint */
} ls_path_size;

/* Adds a size, with its goodput. Does nothing when there is no room left, or for an API. */
void ls_path_add_point(ls_path *path, ls_arena *arena, const ls_path_size *size);

/* Whether an own offer replaces the catalogue's price of this path for this many GPUs. */
bool ls_path_is_replaced(const ls_path *path, int64_t gpus);

/* GPUs that are bought where `gpus` are needed: whole nodes. */
int64_t ls_path_whole_gpus(const ls_path *path, int64_t gpus);

/* The ownership of this many GPUs: whole nodes, their network and their staff. The factors multiply
 * prices. */
ls_ownership ls_path_ownership(const ls_path *path, int64_t gpus, double buy_factor, double energy_factor,
                               double staff_factor);

#endif
