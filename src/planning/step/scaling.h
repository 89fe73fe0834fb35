// SPDX-License-Identifier: Apache-2.0
/*
 * Scaling: how many GPUs? One search per GPU count; days against cost, and the knee.
 *
 * The global batch is the same for all counts, because it belongs to the training and not to the
 * machine. In the end it is what limits scaling: data parallel parts get smaller, and pipelines
 * have less to do between filling and draining.
 *
 * Pure, allocates nothing.
 */
#ifndef LS_PLANNING_STEP_SCALING_H
#define LS_PLANNING_STEP_SCALING_H

#include "planning/step/search.h"

#define LS_SCALING_KNEE 0.5

enum { LS_SCALING_POINTS_MAX = 32 };

typedef struct ls_scaling_point {
    int64_t gpus;
    bool fits;            /* false: no strategy fits, and nothing below is set */
    ls_estimate estimate; /* of the best strategy */
    double goodput;
    double days;
    double gpu_hours;
    double cost_usd;   /* gpu_hours times the price; 0 when there is none */
    double speedup;    /* over the smallest count that fits */
    double efficiency; /* speedup over the growth in GPUs */
    /* dSpeed / dN * N / Speed between this and the count before; 1 for the first */
    double marginal;
    ls_term grew; /* the term whose share of the step grew most since the smallest count */
    bool pareto;  /* no other count is both faster and cheaper */
} ls_scaling_point;

typedef struct ls_scaling_options {
    ls_search_options search;
    int64_t gpus_min, gpus_max; /* counts are gpus_min, doubled until gpus_max */
    double tokens;              /* to train on */
    double price_gpu_hour;      /* USD, 0: not known */
    /* Share of the time that goes into steps; NULL: all of it. */
    double (*goodput)(void *context, const ls_setting *setting, const ls_estimate *estimate);
    void *context;
} ls_scaling_options;

typedef struct ls_scaling {
    ls_scaling_point points[LS_SCALING_POINTS_MAX];
    size_t count;
    /* the first count whose marginal efficiency is below 0.5; 0: none up to gpus_max */
    int64_t knee_gpus;
    ls_term takes_over; /* the term that grew most there, or at the end when there is no knee */
} ls_scaling;

/* `setting`'s gpus are replaced. Errors: LS_ERR_INVALID when no count fits (the text of the
 * largest's search). */
LS_MUST_CHECK ls_status ls_scaling_compute(const ls_setting *setting, const ls_scaling_options *options,
                                           ls_scaling *scaling_out);

#endif
