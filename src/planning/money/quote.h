// SPDX-License-Identifier: Apache-2.0
/*
 * Offers: prices at which accelerators are available, from the catalogue's price ranges or from
 * your own file: `plan --quote FILE`.
 *
 * The file is YAML (examples/plan/quote.yaml):
 *
 *   storage_usd_gb_month: 0.02
 *   egress_usd_tb: 90
 *   offers:
 *     - name: provider A, 12 months     # name in the answer
 *       kind: reserved                  # on-demand, reserved, capacity-block, spot, purchase
 *       accelerator: h100               # or  node: DGX-H100
 *       usd: 2.10                       # per GPU and hour; purchase: per GPU, host included
 *       per: gpu                        # or node: usd covers all GPUs of the node  [gpu]
 *       gpus_min: 8                     # [1]
 *       gpus_max: 512                   # [no limit]
 *       months: 12                      # months paid, used or not; reserved only  [0]
 *       lead_time: 14d                  # time until delivery  [0]
 *       preemptions_per_day: 0.5        # of a node; spot only  [1]
 *       date: 2026-11                   # [not given]
 *       cloud: false                    # true: counts as a cloud's offer  [false]
 *
 * planning/money/paths.h says how own offers and the catalogue's prices combine. Bad values are
 * refused with file, line and range.
 */
#ifndef LS_PLANNING_MONEY_QUOTE_H
#define LS_PLANNING_MONEY_QUOTE_H

#include "base/arena.h"
#include "planning/assumptions.h"
#include "planning/hardware/catalogue.h"

typedef enum ls_offer_kind {
    LS_OFFER_ON_DEMAND,
    LS_OFFER_RESERVED,
    LS_OFFER_CAPACITY_BLOCK,
    LS_OFFER_SPOT,
    LS_OFFER_PURCHASE
} ls_offer_kind;
const char *ls_offer_kind_name(ls_offer_kind kind);
enum { LS_OFFER_PER_GPU, LS_OFFER_PER_NODE };

/* More GPUs than this need a negotiated contract, unless an own offer covers them: the most that a
 * cloud's capacity blocks provide at once. */
#define LS_OFFER_GPUS_MOST 2048

typedef struct ls_offer {
    const char *name;
    int kind;                       /* an ls_offer_kind */
    const char *accelerator, *node; /* names as written; "": the other one is given */
    double usd;                     /* per GPU and hour; purchase: per GPU */
    /* while a quote is read: whether usd is per GPU or per node */
    int unit;
    /* the range that usd was taken from; both equal usd where there is no range */
    double usd_low, usd_high;
    uint64_t gpus_min, gpus_max; /* gpus_max 0: no limit */
    double months;
    double lead_time_s;
    double preemptions_per_day;
    bool cloud;
    bool is_own; /* from a quote, not from the catalogue */
    const char *date, *confidence;
} ls_offer;

typedef struct ls_quote {
    const ls_offer *offers;
    size_t count;
    double storage_usd_gb_month, egress_usd_tb; /* usual values where the file has none */
    bool has_storage, has_egress;               /* whether the file has them */
} ls_quote;

LS_MUST_CHECK ls_status ls_quote_load(ls_arena *arena, const char *path, ls_quote *quote_out);
/* The same from a text; NULL: from the file `name`. */
LS_MUST_CHECK ls_status ls_quote_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                       ls_quote *quote_out);

/* Checks that every offer is for something the catalogue has. Errors: LS_ERR_INVALID with the
 * offer and the nearest names. */
LS_MUST_CHECK ls_status ls_quote_check(const ls_quote *quote, const ls_catalogue *catalogue);

/*
 * Offers of the catalogue. A published range low..high becomes one price a third of the way up, in
 * ratio: low (high / low)^(1/3). For H100 that is 3.01 USD an hour; a market index has a median of
 * 2.95. That is the price to rent; a cloud on demand costs the high end. False: the catalogue has
 * no price.
 */
bool ls_offer_rented(const ls_node *node, ls_offer *offer_out);
bool ls_offer_cloud(const ls_node *node, ls_offer *offer_out);
bool ls_offer_purchase(const ls_node *node, ls_offer *offer_out);

/*
 * Finds the offers of a quote for the node's accelerator, purchase or not, cloud or not, priced per
 * GPU. The cheapest of each kind and size (gpus_min, gpus_max, months, lead time, preemptions) come
 * first, sorted by price, then those that cost more than a similar one. `offers_out` has room for
 * the whole quote. Returns how many.
 */
size_t ls_quote_find(const ls_quote *quote, const ls_catalogue *catalogue, const ls_node *node, bool purchase,
                     bool cloud, ls_offer *offers_out);
/* Whether an offer is for this node, or for its accelerator. */
bool ls_offer_is_for(const ls_offer *offer, const ls_catalogue *catalogue, const ls_node *node);

/* "H100-SXM5-80GB, rented: 3.01 USD per GPU and hour (range 1.99 to 6.88, 2026-05, specs high;
 * price medium)". */
const char *ls_offer_assume(const ls_offer *offer, ls_assumptions *list);

#endif
