// SPDX-License-Identifier: Apache-2.0
/*
 * The ladder: how to spend little before spending much. One node, 8 GPUs, a tenth, full; each stage has a purpose, a size, a time, a price, and what must be seen
 * before the next one begins. `plan --ladder`. Pure.
 *
 *   one node   a copy with few layers, an hour: it learns, resumes bit for bit, and data and tokenizer are those of the real run
 *   8 GPUs     the layers that fit there, two hours: step time and memory are what was predicted
 *   a tenth    the whole model on a tenth of the nodes (a power of two of them, at least two, so that there is a network), a day: speed, checkpoints, a killed
 *              node, the loss on its curve
 *   full       the run
 *
 * Stages are in the order of their sizes; those that would be as large as the full run are left out. A stage is never longer than a share of the full run: 2, 5, 20 %.
 */
#ifndef LS_PLANNING_MONEY_LADDER_H
#define LS_PLANNING_MONEY_LADDER_H

#include "base/text.h"
#include "planning/hardware/catalogue.h"

enum { LS_LADDER_MOST = 4, LS_LADDER_CRITERIA = 4 };

typedef struct ls_ladder_setting {
    const ls_node *node;
    int64_t gpus;        /* of the full run */
    double step_s;       /* predicted, full */
    double step_band[2]; /* factors of the 10 % and 90 % quantile on it: 0.9, 1.1 ; 0: those */
    double memory_gib;   /* predicted, the fullest GPU */
    double run_days;     /* the full run, goodput in it */
    double goodput;
    double usd_per_gpu_hour;
    double interval_s; /* between checkpoints */
    double restart_s;
    double tokens_ps; /* full */
    /* Of a tenth of the GPUs, from the same search; 0: proportional. */
    double tenth_tokens_ps;
} ls_ladder_setting;

typedef struct ls_ladder_stage {
    const char *name; /* "one node", "8 GPUs", "a tenth", "full" */
    const char *purpose;
    int64_t gpus;
    double hours;
    double usd, cumulated_usd;
    char criteria[LS_LADDER_CRITERIA][160]; /* that must hold before the next stage; "" beyond the last */
} ls_ladder_stage;

typedef struct ls_ladder {
    ls_ladder_stage stages[LS_LADDER_MOST];
    size_t count;
} ls_ladder;

/* The sizes alone, so that the caller can estimate them first. Returns how many. */
size_t ls_ladder_gpus(const ls_node *node, int64_t gpus, int64_t gpus_out[LS_LADDER_MOST]);

void ls_ladder_compute(const ls_ladder_setting *setting, ls_ladder *ladder_out);

void ls_ladder_append(const ls_ladder *ladder, ls_text *text);

#endif
