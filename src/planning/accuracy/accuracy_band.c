// SPDX-License-Identifier: Apache-2.0
#include "planning/accuracy/accuracy.h"
#include "planning/step/evidence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* of the step, where constants are a guess */
static const double guess_low = 0.5, guess_high = 2.0;

/* The table that tests/planning/accuracy/test_accuracy.c prints when it does not match the runs. */
static const ls_band_row rows[] = {
    {LS_BAND_OWN, "megatron-2021", "a100", -0.107, 0.003, 0.063, 1.7, 19, "19 runs of megatron-2021 on a100"},
    {LS_BAND_OWN, "megatron-2023", "a100", -0.087, -0.008, 0.139, 1.1, 1440,
     "1,440 runs of megatron-2023 on a100"},
    {LS_BAND_OWN, "fsdp", "a100", -0.044, 0.001, 0.047, 1.1, 139, "139 runs of fsdp on a100"},
    {LS_BAND_OWN, "fsdp", "h100", -0.031, 0.006, 0.028, 1.0, 52, "52 runs of fsdp on h100"},
    {LS_BAND_OWN, "torchtitan-fsdp2", "h100", -0.057, -0.002, 0.036, 1.5, 10,
     "10 runs of torchtitan-fsdp2 on h100"},
    {LS_BAND_BLANKS, NULL, NULL, -0.114, -0.003, 0.256, 1.0, 93, "93 runs with blanks, of all stacks"},
    {LS_BAND_EXPERTS, NULL, NULL, -0.586, 0.115, 0.291, 1.2, 13, "13 runs of mixtures of experts"},
    {LS_BAND_GENERATION, NULL, NULL, -0.403, 0.0, 0.674, 1.0, 424,
     "212 runs predicted with constants of another generation"},
    {LS_BAND_STACK, NULL, NULL, -0.210, 0.0, 0.266, 1.0, 1424,
     "712 predictions with constants of another stack"},
};

const ls_band_row *ls_accuracy_band_rows(size_t *count_out)
{
    *count_out = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

/* ---- the band of an answer ---- */

static const ls_band_row *find_kind(ls_band_kind kind)
{
    const ls_band_row *row = rows;
    while (row->kind != kind) {
        row++;
    }
    return row;
}

static const ls_band_row *find_own(const ls_stack *stack)
{
    for (const ls_band_row *row = rows; row->kind == LS_BAND_OWN; row++) {
        if (strcmp(row->stack, stack->name) == 0 && strcmp(row->generation, stack->generation) == 0) {
            return row;
        }
    }
    return NULL;
}

/* Independent errors that occur together: their ends add as squares, below and above. */
typedef struct sum {
    double low, high, middle; /* low, high: squares */
    ls_band *band;
} sum;

static void add_row(sum *s, const ls_band_row *row, const char *why)
{
    const size_t used = strlen(s->band->from);
    s->low += row->p10 * row->p10;
    s->high += row->p90 * row->p90;
    s->middle = used ? s->middle : row->p50;
    snprintf(s->band->from + used, sizeof s->band->from - used, "%s%s%s", used ? "; " : "", why, row->from);
}

ls_band ls_accuracy_band(const ls_setting *setting, const ls_strategy *strategy, double step_s)
{
    const ls_stack *stack = setting->stack;
    const ls_evidence *evidence = ls_evidence_find(stack);
    const ls_band_row *own = find_own(stack);
    ls_band band = {.from = ""};
    sum s = {.band = &band};
    if (ls_evidence_is_guess(stack)) {
        band = (ls_band){guess_low * step_s, step_s, guess_high * step_s,
                         "a guess, because this stack was never measured there"};
        return band;
    }
    const bool experts = setting->shape->moe.experts > 0;
    const unsigned used = ls_evidence_features(setting, strategy);
    const unsigned missing = own ? used & ~evidence->full_features : ls_evidence_missing(evidence, used);
    if (own) {
        add_row(&s, own, "");
    } else if (!experts) {
        add_row(&s, find_kind(LS_BAND_BLANKS), "");
    }
    if (experts) {
        add_row(&s, find_kind(LS_BAND_EXPERTS), "");
    }
    if (!evidence) {
        add_row(&s, find_kind(LS_BAND_STACK), "no run of this stack: ");
    } else if (missing) {
        add_row(&s, find_kind(LS_BAND_BLANKS), "features never measured on it: ");
    }
    if (ls_evidence_is_borrowed(setting)) {
        add_row(&s, find_kind(LS_BAND_GENERATION), "another generation: ");
    }
    /* measured = predicted / (1 + error) */
    band.low_s = step_s / (1 + sqrt(s.high));
    band.middle_s = step_s / (1 + s.middle);
    band.high_s = step_s / (1 - fmin(0.9, sqrt(s.low)));
    return band;
}

ls_band ls_accuracy_band_here(const ls_calibration *calibration, double step_s)
{
    const double own_runs = 0.1;
    double low, high;
    char doubt[160];
    ls_calibration_spread(calibration, &low, &high);
    ls_band band = {low * step_s / (1 + own_runs), step_s, high * step_s / (1 - own_runs), ""};
    snprintf(band.from, sizeof band.from, "five own runs on a calibrated machine (docs/benchmarks.md)%s%s",
             ls_calibration_doubt(calibration, doubt, sizeof doubt) ? "; wider for a " : "", doubt);
    return band;
}
