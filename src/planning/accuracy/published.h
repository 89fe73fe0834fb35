// SPDX-License-Identifier: Apache-2.0
/*
 * Published runs: measured steps to compare predictions with.
 *
 * Two layouts of CSV are read, distinguished by their columns: that of data/published_runs.csv, and
 * that of vTrain's tables ("# GPUs, global batch, micro batch, hidden size, ..., iteration time
 * (ms)"; runs of Megatron-LM on A100s). A row becomes a setting, a strategy, and a measured step.
 * What a row leaves open is chosen as the people who ran it would have chosen: the fastest that
 * fits. `assumed` lists it.
 *
 * The measured step is iter_time_s; else tokens per step over tokens_per_s; else the FLOPs of the
 * row's convention over tflops_per_gpu; else from the MFU; else from the HFU, with the recompute
 * that the row names. Conventions differ by source: "hardware(96BsLh^2 ...)" is 96 B s L h^2 (1 +
 * s/6h + V/16Lh), recomputed forward included; "model" counts all pairs of attention, except
 * Megatron-Bridge's, which counts the causal half.
 *
 * Ownership: everything lives in the arena. Pure.
 */
#ifndef LS_PLANNING_ACCURACY_PUBLISHED_H
#define LS_PLANNING_ACCURACY_PUBLISHED_H

#include "planning/step/estimate.h"

typedef struct ls_published_run {
    uint32_t line; /* in its file */
    const char *source, *model, *accelerator, *stack_name;
    bool fully_specified;
    bool held_out; /* not among the rows that constants were fitted on */

    /* Why nothing is predicted; NULL: it is, and the fields below are valid */
    const char *left_out;
    const char *assumed; /* what was chosen for blanks; NULL: nothing */
    const ls_shape *shape;
    ls_stack stack;
    ls_setting setting; /* points to shape and stack of this run */
    ls_strategy strategy;
    ls_strategy_request given; /* the source's note about it */

    double measured_step_s;       /* 0: none */
    double measured_memory_bytes; /* 0: none */
} ls_published_run;

typedef struct ls_published {
    const char *name; /* of the file */
    ls_published_run *runs;
    size_t count;
} ls_published;

/*
 * `text` of `bytes` as CSV; columns in any order, others between them. Needed are n_accel,
 * accelerator, one of model, params_b and layers, and a measurement; or vTrain's "# GPUs", "global
 * batch", "hidden size", "# layers", "sequence length" and "iteration time (ms)". Columns that are
 * missing are read as blanks.
 *
 * A row that can't be read or predicted (a cell that is no number, a name that is not known, a
 * split that is impossible) is left out and says why, with its column; the others count. Errors:
 * LS_ERR_DATA when those columns are not there, or no row is left; published_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_published_parse(ls_arena *arena, const ls_catalogue *catalogue, const char *text,
                                           size_t bytes, const char *name, ls_published *published_out);

/* The rows that ship. */
LS_MUST_CHECK ls_status ls_published_shipped(ls_arena *arena, const ls_catalogue *catalogue,
                                             ls_published *published_out);

#endif
