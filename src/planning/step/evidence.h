// SPDX-License-Identifier: Apache-2.0
/*
 * Evidence: which features of a setting and a strategy occur in measured runs of the same stack on
 * the same generation of accelerators.
 *
 * An estimate is as good as the runs that its constants were compared with. Features of none of
 * those runs (context parallelism, fp8, many times as many GPUs) are computed by the same formulas,
 * which were never checked for them. So the search prefers what was measured
 * (planning/step/search.h), bands are wider where something was not (planning/accuracy/accuracy.h),
 * and the answer names it (ls_evidence_assume).
 *
 * The table is a digest of data/published_runs.csv; tests/planning/accuracy/test_accuracy.c
 * compares the two. Pure, allocates nothing, any thread.
 */
#ifndef LS_PLANNING_STEP_EVIDENCE_H
#define LS_PLANNING_STEP_EVIDENCE_H

#include "planning/assumptions.h"
#include "planning/step/estimate.h"

typedef enum ls_feature {
    LS_FEATURE_TENSOR = 1,   /* tp > 1 */
    LS_FEATURE_PIPELINE = 2, /* pp > 1 */
    LS_FEATURE_CONTEXT = 4,  /* cp > 1 */
    /* cp > 1, and parts of a sequence of fewer than LS_EVIDENCE_PART_TOKENS */
    LS_FEATURE_SHORT_CONTEXT = 8,
    /* ZeRO-2 or 3 */
    LS_FEATURE_FSDP = 16,
    LS_FEATURE_FP8 = 32,
    /* fp32 or tf32 */
    LS_FEATURE_FP32 = 64,
    LS_FEATURE_SCHEDULE = 128 /* not 1F1B */
} ls_feature;

enum {
    LS_FEATURE_BITS = 8,
    /* Features that a search can avoid, because another strategy does the same. */
    LS_FEATURES_OPTIONAL = LS_FEATURE_CONTEXT | LS_FEATURE_SHORT_CONTEXT | LS_FEATURE_SCHEDULE,
    LS_EVIDENCE_PART_TOKENS = 4096, /* shortest part of a sequence in any measured run */
    LS_EVIDENCE_RUNS = 4            /* number of runs from which a feature counts as measured */
};

/* What measured runs of a pair show. */
typedef struct ls_evidence {
    const char *stack, *generation;
    int full, partial;       /* runs: fully specified, with blanks */
    unsigned full_features;  /* features in at least LS_EVIDENCE_RUNS fully specified runs */
    unsigned features;       /* features in at least as many runs of any kind */
    int64_t full_gpus, gpus; /* the largest number of GPUs */
} ls_evidence;

/* The pair whose constants `stack` has; NULL: the table has no run of it. */
const ls_evidence *ls_evidence_find(const ls_stack *stack);

unsigned ls_evidence_features(const ls_setting *setting, const ls_strategy *strategy);

/* Those of `features` that `evidence` (NULL: none) does not show. */
unsigned ls_evidence_missing(const ls_evidence *evidence, unsigned features);

/* Writes "context parallelism, fp8", cut to fit. */
void ls_evidence_describe(unsigned features, char *text, size_t bytes);

/* True where the constants are those of another generation of accelerators. */
bool ls_evidence_is_borrowed(const ls_setting *setting);

/* True where the stack's constants are a guess: Lockstep itself, except on this machine
 * (`calibrate`). */
bool ls_evidence_is_guess(const ls_stack *stack);

/* Adds as assumptions what of this estimate was never measured, and what the formulas omit that
 * matters here. */
void ls_evidence_assume(const ls_setting *setting, const ls_strategy *strategy, ls_assumptions *list);

#endif
