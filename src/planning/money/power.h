// SPDX-License-Identifier: Apache-2.0
/*
 * Power and cooling: what nodes draw in training, at most, and at the electricity meter; how many
 * racks they need; which cooling; and whether a site can supply them. Pure.
 *
 *   node, training   GPUs * TDP * 0.875 + host
 *                    (matrix products keep a GPU between 0.85 and 0.9 of its limit)
 *   host             (published maximum of the node - GPUs * TDP) * 0.76, which gives the 8.4 kW
 *                    measured on a DGX H100 of 10.2 kW; where no maximum is published, 0.35 of the
 *                    GPUs' TDP (0.25 to 0.45 occur)
 *   network          4.5 % of the nodes (3 to 6 occur), where there is more than one node
 *   facility         * PUE
 *   rack             as many nodes as fit by their maximum, and no more than the cooling supports
 *   energy           kWh = facility kW * hours
 *
 * Racks follow the maximum, energy follows the draw in training.
 */
#ifndef LS_PLANNING_MONEY_POWER_H
#define LS_PLANNING_MONEY_POWER_H

#include "base/text.h"
#include "planning/assumptions.h"
#include "planning/hardware/catalogue.h"

#define LS_POWER_GPU_SHARE      0.875
#define LS_POWER_HOST_MAX_SHARE 0.76
#define LS_POWER_HOST_OF_GPUS   0.35
#define LS_POWER_NETWORK_SHARE  0.045
/* Of the GPUs' TDP: the host's share where no maximum is published. */
#define LS_POWER_HOST_MAX_OF_GPUS 0.45

/* Of a rack, where neither space nor cooling limits it. */
#define LS_POWER_RACK_MOST_KW        140.0
#define LS_POWER_NODES_PER_RACK_MOST 16

typedef struct ls_power {
    int64_t nodes;
    double node_w, node_max_w; /* While training; at most. */
    double network_kw;
    double it_kw, it_max_kw; /* Of all nodes and the network. */
    double facility_kw;      /* While training, at the electricity meter. */
    double facility_max_kw;
    int64_t nodes_per_rack; /* 0: not even one fits. */
    int64_t racks;
    double rack_kw;            /* Of a full rack, at most. */
    const ls_cooling *cooling; /* The cooling such a rack needs; NULL when power is not known. */
    /* False: the catalogue has no power for this accelerator; all other fields are 0. */
    bool known;
    bool possible;     /* At the site. */
    char why_not[200]; /* The limit that is exceeded, in words; "" when possible. */
} ls_power;

/* Computes only what the machines draw: nodes, node_w, node_max_w, network_kw, it_kw, it_max_kw,
 * known. For machines at a site that is not known. */
void ls_power_of_machines(const ls_node *node, int64_t gpus, ls_power *power_out);

void ls_power_compute(const ls_catalogue *catalogue, const ls_node *node, int64_t gpus, const ls_site *site,
                      ls_power *power_out);

/* Adds the assumption: the share of their TDP that GPUs draw. */
void ls_power_assume(ls_assumptions *list);

/* --explain power. */
void ls_power_explain(const ls_catalogue *catalogue, const ls_node *node, int64_t gpus, const ls_site *site,
                      ls_text *text);

#endif
