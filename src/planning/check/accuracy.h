// SPDX-License-Identifier: Apache-2.0
/*
 * Accuracy: predictions beside measurements, and the band that every answer gets from them.
 *
 * Errors are |predicted / measured - 1|, fractions; "signed" ones without the bars. Quantiles interpolate between neighbours. Rows that constants were fitted on and rows
 * that were held out are told apart (planning/check/published.h).
 *
 * Choice: among the measured configurations of one model on as many GPUs (same sizes, sequence, accelerator, stack) the one that is predicted to take the least GPU time a
 * token, against the one that did: how much more its tokens cost.
 */
#ifndef LS_PLANNING_CHECK_ACCURACY_H
#define LS_PLANNING_CHECK_ACCURACY_H

#include "base/json.h"
#include "planning/check/published.h"

typedef struct ls_accuracy_row {
    const ls_published_run *run;
    double predicted_step_s;
    double error;        /* signed */
    double memory_error; /* signed; NAN: not measured */
} ls_accuracy_row;

typedef struct ls_error_summary {
    size_t count;
    double median, mean, worst; /* without sign */
    double p10, p50, p90;       /* signed */
} ls_error_summary;

typedef struct ls_accuracy_stack {
    const char *stack, *generation;
    ls_error_summary all, held_out;
} ls_accuracy_stack;

typedef struct ls_choice_summary {
    size_t groups; /* with at least two configurations */
    double median, mean, worst;
} ls_choice_summary;

typedef struct ls_accuracy {
    const char *name; /* of the file */
    size_t run_count, left_out;
    ls_accuracy_row *
        rows; /* those that could be predicted and have a measured step; fully specified ones first, each part in the file's order */
    size_t row_count, full_count;
    ls_error_summary full, full_held_out, partial, memory;
    ls_accuracy_stack *stacks; /* of the fully specified rows */
    size_t stack_count;
    ls_choice_summary choice; /* of the fully specified rows */
    const ls_published *published;
} ls_accuracy;

/* Everything in `arena`; `published` outlives it. */
void ls_accuracy_compute(ls_arena *arena, const ls_published *published, ls_accuracy *accuracy_out);

/* Tables for people: per stack, and the `worst` rows that miss most. */
void ls_accuracy_print(const ls_accuracy *accuracy, size_t worst, ls_text *text);

/*
 * {file, rows, left_out, errors_are, fully_specified{count, median, mean, worst, p10, p50, p90, held_out{..}}, stacks[{stack, generation, count, .., held_out{..}}],
 * partly_specified{..}, memory{..}, choice{groups, median, mean, worst}, runs[{line, source, model, accelerator, gpus, stack, strategy, predicted_s, measured_s, error,
 * fully_specified, held_out, assumed}], not_predicted[{line, source, model, why}]}; the caller owns it.
 */
json_t *ls_accuracy_json(const ls_accuracy *accuracy);

/* The errors of a pair's rows, fully specified ones or those with blanks, of dense models or of mixtures of experts; stack NULL: of all pairs. */
ls_error_summary ls_accuracy_summarise(ls_arena *arena, const ls_accuracy *accuracy, const char *stack,
                                       const char *generation, bool fully_specified, bool experts);

/*
 * The step times that bound a prediction: of runs like the measured ones, a tenth were faster than low_s, half faster than middle_s, a tenth slower than high_s. From the
 * error table of the stack on the generation (constants that tests/planning/test_accuracy.c holds against the table); where there are too few rows, from that of all.
 */
typedef struct ls_band {
    double low_s, middle_s, high_s;
    const char *from; /* "139 runs of fsdp on a100" */
} ls_band;
ls_band ls_accuracy_band(const ls_setting *setting, double step_s);

/* What bands are made of: signed errors of a pair's rows. Those for all pairs have no stack and come last. */
typedef struct ls_band_row {
    const char *stack, *generation;
    bool fully_specified, experts; /* the rows it was taken from */
    double p10, p50, p90;
    const char *from;
} ls_band_row;
const ls_band_row *ls_accuracy_band_rows(size_t *count_out);

#endif
