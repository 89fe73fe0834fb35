// SPDX-License-Identifier: Apache-2.0
/*
 * Evidence: what of a setting and a strategy has been seen in measured runs of the same stack on the same generation of accelerators.
 *
 * An estimate is as good as the runs its constants were held against. What none of them did (context parallelism, fp8, many times as many GPUs) is computed by the same
 * formulas, but nobody has looked whether they hold. The search prefers what was measured (planning/step/search.h), bands are wider where something was not
 * (planning/check/accuracy.h), and the answer names it (ls_evidence_assume).
 *
 * The table is a digest of data/published_runs.csv: tests/planning/test_accuracy.c holds it against the runs. Pure, allocates nothing, any thread.
 */
#ifndef LS_PLANNING_STEP_EVIDENCE_H
#define LS_PLANNING_STEP_EVIDENCE_H

#include "planning/assumptions.h"
#include "planning/step/estimate.h"

typedef enum ls_feature {
    LS_FEATURE_TENSOR = 1,        /* tp > 1 */
    LS_FEATURE_PIPELINE = 2,      /* pp > 1 */
    LS_FEATURE_CONTEXT = 4,       /* cp > 1 */
    LS_FEATURE_SHORT_CONTEXT = 8, /* cp > 1, and parts of a sequence of fewer than LS_EVIDENCE_PART_TOKENS */
    LS_FEATURE_FSDP = 16,         /* ZeRO-2 or 3 */
    LS_FEATURE_FP8 = 32,
    LS_FEATURE_FP32 = 64,     /* fp32 or tf32 */
    LS_FEATURE_SCHEDULE = 128 /* not 1F1B */
} ls_feature;

enum {
    LS_FEATURE_BITS = 8,
    LS_FEATURES_OPTIONAL =
        LS_FEATURE_CONTEXT | LS_FEATURE_SHORT_CONTEXT |
        LS_FEATURE_SCHEDULE,        /* that a search need not use, for another strategy does the same */
    LS_EVIDENCE_PART_TOKENS = 4096, /* the shortest parts of a sequence that any measured run had */
    LS_EVIDENCE_RUNS = 4            /* that make a feature measured */
};

/* What measured runs of a pair show. */
typedef struct ls_evidence {
    const char *stack, *generation;
    int full, partial;       /* runs: fully specified, with blanks */
    unsigned full_features;  /* in LS_EVIDENCE_RUNS fully specified ones or more */
    unsigned features;       /* in as many of all of them */
    int64_t full_gpus, gpus; /* the most */
} ls_evidence;
const ls_evidence *ls_evidence_table(size_t *count_out);

/* The pair whose constants `stack` has; NULL: no run of it is in the table. */
const ls_evidence *ls_evidence_find(const ls_stack *stack);

unsigned ls_evidence_features(const ls_setting *setting, const ls_strategy *strategy);

/* Of these features those that `evidence` (NULL: none) does not show. */
unsigned ls_evidence_missing(const ls_evidence *evidence, unsigned features);

/* "context parallelism, fp8". Cut to fit. */
void ls_evidence_describe(unsigned features, char *text, size_t bytes);

/* True where the constants are those of another generation of accelerators. */
bool ls_evidence_is_borrowed(const ls_setting *setting);

/* True where the stack's constants are a guess: our own program, anywhere but on this machine (`calibrate`). */
bool ls_evidence_is_guess(const ls_stack *stack);

/* Says what of this estimate was never measured, and what the formulas leave out that matters here. */
void ls_evidence_assume(const ls_setting *setting, const ls_strategy *strategy, ls_assumptions *list);

#endif
