// SPDX-License-Identifier: Apache-2.0
/*
 * The ladder: how to spend little before spending much. One node, 8 GPUs, a tenth, full; each stage has a purpose, a size, a time, a price, and what must be seen
 * before the next one begins. `plan --ladder`. Pure.
 *
 *   one node   a copy with few layers, an hour: it learns, resumes bit for bit, and data and tokenizer are those of the real run
 *   8 GPUs     the layers that fit there, two hours: step time and memory are what was predicted
 *   a tenth    the whole model on the fewest GPUs from a tenth on that hold it (whole nodes, at least two, so that there is a network), a day: speed, checkpoints,
 *              a killed node, the loss on its curve
 *   full       the run
 *
 * Stages are in the order of their sizes; those that would be as large as the full run are left out. A stage is never longer than a share of the full run: 2, 5, 20 %.
 */
#ifndef LS_PLANNING_MONEY_LADDER_H
#define LS_PLANNING_MONEY_LADDER_H

#include "base/text.h"
#include "planning/hardware/catalogue.h"

enum { LS_LADDER_MOST = 4, LS_LADDER_CRITERIA = 4, LS_LADDER_TENTHS = 24 };

typedef struct ls_ladder_setting {
    const ls_node *node;
    bool is_exact;       /* the stack is our own trainer, whose hashes say whether a run is the same */
    int64_t gpus;        /* of the full run */
    double step_s;       /* predicted, full */
    double step_band[2]; /* factors of the 10 % and 90 % quantile on it: 0.9, 1.1 ; 0: those */
    double memory_gib;   /* predicted, the fullest GPU */
    double run_days;     /* the full run, goodput in it */
    double goodput;
    double usd_per_gpu_hour;
    double interval_s; /* between checkpoints */
    double restart_s;
    /* The stage "a tenth", from a search of its own: the first of ls_ladder_tenths that holds the model. tenth_gpus 0: none does, and the stage is left out. */
    int64_t tenth_gpus;
    double tenth_tokens_ps, tenth_memory_gib;
    const char *tenth_strategy; /* in words */
} ls_ladder_setting;

typedef struct ls_ladder_stage {
    const char *name; /* "one node", "8 GPUs", "a tenth", "full" */
    const char *purpose;
    int64_t gpus;
    double hours;
    double usd, cumulated_usd;              /* 0: no price is known */
    char note[240];                         /* how the size came about, where it is not plain; "" */
    char criteria[LS_LADDER_CRITERIA][160]; /* that must hold before the next stage; "" beyond the last */
} ls_ladder_stage;

typedef struct ls_ladder {
    ls_ladder_stage stages[LS_LADDER_MOST];
    size_t count;
} ls_ladder;

/* GPUs to try for "a tenth", ascending: whole nodes, at least two and a tenth of all, fewer than all; about four sizes to a doubling. Returns how many. */
size_t ls_ladder_tenths(const ls_node *node, int64_t gpus, int64_t gpus_out[LS_LADDER_TENTHS]);

void ls_ladder_compute(const ls_ladder_setting *setting, ls_ladder *ladder_out);

void ls_ladder_append(const ls_ladder *ladder, ls_text *text);

#endif
