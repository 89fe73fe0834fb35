// SPDX-License-Identifier: Apache-2.0
/*
 * The ladder: how to spend little before spending much, in stages of one node, 8 GPUs, a tenth, and
 * the full run. Each stage has a purpose, a size, a time, a price, and criteria to meet before the
 * next one begins. `plan --ladder`. Pure.
 *
 *   one node   a copy with few layers, an hour: it learns and resumes bit for bit, with the data
 *              and tokenizer of the real run
 *   8 GPUs     as many layers as fit, two hours: step time and memory match the prediction
 *   a tenth    the whole model on the fewest GPUs, a tenth or more, that hold it (whole nodes, at
 *              least two, so that there is a network), a day: speed, checkpoints, a killed node,
 *              the loss on its curve
 *   full       the run
 *
 * Stages are ordered by size; those as large as the full run are left out. A stage takes at most 2,
 * 5 and 20 % of the full run.
 */
#ifndef LS_PLANNING_MONEY_LADDER_H
#define LS_PLANNING_MONEY_LADDER_H

#include "base/text.h"
#include "planning/hardware/catalogue.h"

enum { LS_LADDER_MOST = 4, LS_LADDER_CRITERIA = 4, LS_LADDER_TENTHS = 24 };

typedef struct ls_ladder_setting {
    const ls_node *node;
    /* The stack is Lockstep's own trainer, whose hashes show whether two runs are the same. */
    bool is_exact;
    int64_t gpus;  /* For the full run. */
    double step_s; /* Predicted, for the full run. */
    /* Factors on the step time at the 10 % and 90 % quantiles; 0: 0.9 and 1.1. */
    double step_band[2];
    double memory_gib; /* Predicted, on the fullest GPU. */
    double run_days;   /* The full run, goodput included. */
    double goodput;
    double usd_per_gpu_hour;
    double interval_s; /* Between checkpoints. */
    double restart_s;
    /* The stage "a tenth", from a search of its own: the first size of ls_ladder_tenths that holds
     * the model. tenth_gpus 0: no size does, and the stage is left out. */
    int64_t tenth_gpus;
    double tenth_tokens_ps, tenth_memory_gib;
    const char *tenth_strategy; /* In words. */
} ls_ladder_setting;

typedef struct ls_ladder_stage {
    const char *name; /* "one node", "8 GPUs", "a tenth", "full" */
    const char *purpose;
    int64_t gpus;
    double hours;
    double usd, cumulated_usd; /* 0: no price is known. */
    char note[240];            /* Why this size, where that is not obvious; else "". */
    /* What must hold before the next stage; "" after the last one. */
    char criteria[LS_LADDER_CRITERIA][160];
} ls_ladder_stage;

typedef struct ls_ladder {
    ls_ladder_stage stages[LS_LADDER_MOST];
    size_t count;
} ls_ladder;

/* GPU counts to try for "a tenth", ascending: whole nodes, at least two of them and at least a
 * tenth of all GPUs, fewer than all; about four sizes per doubling. Returns how many. */
size_t ls_ladder_tenths(const ls_node *node, int64_t gpus, int64_t gpus_out[LS_LADDER_TENTHS]);

void ls_ladder_compute(const ls_ladder_setting *setting, ls_ladder *ladder_out);

void ls_ladder_append(const ls_ladder *ladder, ls_text *text);

#endif
