// SPDX-License-Identifier: Apache-2.0
/*
 * Paths: where a model could be trained. This machine or another that fits under a desk, rented GPUs, a cloud, machines of one's own, or an outside API instead.
 *
 * A path is one place at one price: the catalogue's, or an offer of one's own, so that each offer has a row of its own and a reason of its own why it can't be taken. An own
 * offer by the hour (or to buy) stands for the catalogue's price as far as it reaches: beyond its gpus_min and gpus_max the catalogue's price is what there is. Offers
 * of other kinds (reserved, spot, capacity blocks) stand beside it.
 *
 * By size a path has how fast it is: `points`, ascending by GPUs, that the caller fills from the search over strategies (ls_path_add_point). With one point the size is
 * fixed; with several the verdict takes the cheapest that meets the deadline.
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
    double slow;             /* at the 90 % end of the band a run takes so many times as long; 1: not known */
    double goodput;          /* with the largest model's checkpoints */
} ls_path_point;

typedef struct ls_path {
    ls_path_kind kind;
    const char *name;       /* "H100, rented", "H100, provider B", "this machine" */
    const char *short_name; /* "H100": of the accelerator */
    const ls_node *node;    /* NULL: API */
    bool is_here;           /* local: it need not be bought */
    ls_offer offer;         /* rented, cloud: usd per GPU and hour; local, owned: usd per GPU */
    const ls_offer *own; /* of a catalogue's price: all own offers of this kind of path for the accelerator */
    size_t own_count;
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
 * The paths of a kind for `node`, without points: own offers, cheapest first, then the catalogue's price. Prices are named in `assumptions`; there too is what was left out
 * where there are more than `most` or LS_PATH_OFFERS_MOST. Local with `is_here`: it costs its energy only. API: node NULL, one path.
 * Errors: LS_ERR_NOT_FOUND when there is no price: the message says how to give one.
 */
LS_MUST_CHECK ls_status ls_path_build(ls_arena *arena, const ls_path_settings *settings, ls_path_kind kind,
                                      const ls_node *node, bool is_here, ls_assumptions *assumptions,
                                      size_t most, ls_path *paths_out, size_t *count_out);

/* How fast one size is. */
typedef struct ls_path_size {
    int64_t gpus;
    const double *tokens_ps; /* of each workload; copied */
    size_t count;            /* of workloads */
    double slow;             /* as in ls_path_point; 0: not known */
    double parameters;       /* of the largest, for the checkpoint */
} ls_path_size;

/* Adds a size; goodput follows from it and from the offer's kind. Nothing happens when there is no room, or to an API. */
void ls_path_add_point(ls_path *path, ls_arena *arena, const ls_path_size *size);

/* Whether an own offer stands for the catalogue's price of this path, for so many GPUs. */
bool ls_path_is_replaced(const ls_path *path, int64_t gpus);

/* GPUs that are bought where so many are needed: whole nodes of them. */
int64_t ls_path_whole_gpus(const ls_path *path, int64_t gpus);

/* What so many GPUs of one's own are: whole nodes, their network, and who looks after them. The factors are on prices. */
ls_ownership ls_path_ownership(const ls_path *path, int64_t gpus, double buy_factor, double energy_factor,
                               double staff_factor);

/* "H100", "RTX-4090": an accelerator's name without what nobody says. In `arena`. */
const char *ls_path_short_name(ls_arena *arena, const ls_accelerator *accelerator);

#endif
