// SPDX-License-Identifier: Apache-2.0
/*
 * Accuracy: predictions compared with measurements, and the band that every answer gets from them.
 *
 * Errors are |predicted / measured - 1|, fractions; "signed" ones without the bars. Quantiles
 * interpolate between neighbours. Rows that constants were fitted on and rows that were held out
 * are distinguished (planning/accuracy/published.h).
 *
 * Choice: among the measured configurations of one model on the same number of GPUs (same sizes,
 * sequence, accelerator and stack), how much more GPU time per token the one takes that was
 * predicted to be fastest, compared with the one that was.
 */
#ifndef LS_PLANNING_ACCURACY_ACCURACY_H
#define LS_PLANNING_ACCURACY_ACCURACY_H

#include "base/json.h"
#include "planning/accuracy/published.h"
#include "planning/hardware/calibration.h"

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
    /* not the rows that ship: nothing was fitted on them, so all are held out and that is not
     * printed */
    bool is_own;
    size_t run_count, left_out;
    /* the rows that could be predicted and have a measured step; fully specified ones first, each
     * part in the file's order */
    ls_accuracy_row *rows;
    size_t row_count, full_count;
    ls_error_summary full, full_held_out, partial, memory;
    ls_accuracy_stack *stacks; /* of the fully specified rows */
    size_t stack_count;
    ls_choice_summary choice; /* of the fully specified rows */
    const ls_published *published;
} ls_accuracy;

/* Everything in `arena`; `published` outlives it. */
void ls_accuracy_compute(ls_arena *arena, const ls_published *published, ls_accuracy *accuracy_out);

/* Writes tables: per stack, and the `worst` rows with the largest errors. */
void ls_accuracy_print(const ls_accuracy *accuracy, size_t worst, ls_text *text);

/*
 * {file, rows, left_out, errors_are, fully_specified{count, median, mean, worst, p10, p50, p90,
 * held_out{..}}, stacks[{stack, generation, count, .., held_out{..}}], partly_specified{..},
 * memory{..}, choice{groups, median, mean, worst}, runs[{line, source, model, accelerator, gpus,
 * stack, strategy, predicted_s, measured_s, error, fully_specified, held_out, assumed}],
 * not_predicted[{line, source, model, why}]}; the caller owns it.
 */
json_t *ls_accuracy_json(const ls_accuracy *accuracy);

/*
 * Bands. How far off an answer may be depends on what it rests on, and the error table shows that
 * for five cases:
 *
 *   own         a pair of stack and generation: its fully specified runs
 *   blanks      something is not known of a run, or was never measured on its pair
 *               (planning/step/evidence.h): all dense runs with blanks, of all stacks
 *   experts     the runs of mixtures of experts, all of them with blanks
 *   generation  constants taken over from another generation: every fully specified run, predicted
 *               with its stack's constants of another one
 *   stack       a program of which no run is in the table: every fully specified run, predicted
 *               with the constants of each other stack on its generation
 *
 * The quantiles are of these runs, 10, 50 and 90 %. Runs of one source are alike, and constants
 * were fitted on half of some: they are stretched until eight in ten of the runs of a source lie
 * inside the band made of the other sources' (where those are too few: of the runs that nothing was
 * fitted on, inside that of the others). What is borrowed from whom is chance, so the last two hold
 * each error both ways round, and are not stretched: there are four pairs of which more than one
 * generation is known. tests/planning/accuracy/test_accuracy.c
 * makes the table again and compares it.
 */
typedef enum ls_band_kind {
    LS_BAND_OWN,
    LS_BAND_BLANKS,
    LS_BAND_EXPERTS,
    LS_BAND_GENERATION,
    LS_BAND_STACK
} ls_band_kind;

typedef struct ls_band_row {
    ls_band_kind kind;
    const char *stack, *generation; /* of LS_BAND_OWN */
    double p10, p50, p90;           /* signed errors; p10 and p90 stretched */
    double stretch;
    int runs;
    const char *from; /* "139 runs of fsdp on a100" */
} ls_band_row;
/* The table of bands. tests/planning/accuracy/band_errors.h makes it again from the runs. */
const ls_band_row *ls_accuracy_band_rows(size_t *count_out);

/*
 * The step times that bound a prediction: of runs like the measured ones, a tenth were faster than
 * low_s, half faster than middle_s, a tenth slower than high_s.
 *
 * From the pair's own runs, where there are eight that were fully specified; else from runs with
 * blanks. Each of these widens it: a feature that the pair's runs don't show, experts, constants of
 * another generation, of another stack. Independent errors add as squares. Constants that are a
 * guess: half to twice.
 */
typedef struct ls_band {
    double low_s, middle_s, high_s;
    char from[256]; /* "139 runs of fsdp on a100"; where it is wider: ", and ..." */
} ls_band;
ls_band ls_accuracy_band(const ls_setting *setting, const ls_strategy *strategy, double step_s);

/* The same for Lockstep itself on a calibrated machine: a tenth either way, the worst of five runs
 * (docs/benchmarks.md), and wider where the calibration is doubtful (ls_calibration_spread), which
 * is then stated. */
ls_band ls_accuracy_band_here(const ls_calibration *calibration, double step_s);

#endif
