// SPDX-License-Identifier: Apache-2.0
/* What the bands of answers are made of: the errors of the published runs, row by row of the table in
 * planning/accuracy/accuracy_band.c. */
#ifndef LS_TESTS_PLANNING_ACCURACY_BAND_ERRORS_H
#define LS_TESTS_PLANNING_ACCURACY_BAND_ERRORS_H

#include "planning/accuracy/accuracy.h"

#include <string.h>

enum { TRANSFERS_MAX = 32 };

/* An error of a pool and its origin: what is left out together when a band is judged. */
typedef struct band_error {
    double error;
    const char *group;
    bool held_out;
} band_error;

/* The source without its release: "MBRIDGE-26.04" and "MBRIDGE-26.02" repeat the same runs. */
static const char *family_of(ls_arena *arena, const char *source)
{
    const size_t bytes = strcspn(source, "-");
    return strncmp(source, "MBRIDGE", bytes) == 0 || strncmp(source, "MCORE", bytes) == 0
               ? ls_arena_strndup(arena, source, bytes)
               : source;
}

/* The same model under a mixture's name: its runs differ in the release alone. */
static const char *model_of(ls_arena *arena, const ls_published_run *run)
{
    return ls_arena_strndup(arena, run->model, strcspn(run->model, "["));
}

static size_t own_errors(const ls_accuracy *a, const ls_band_row *row, band_error *errors)
{
    size_t count = 0;
    for (size_t i = 0; i < a->full_count; i++) {
        const ls_published_run *run = a->rows[i].run;
        if (strcmp(run->stack.name, row->stack) == 0 && strcmp(run->stack.generation, row->generation) == 0) {
            errors[count++] = (band_error){a->rows[i].error, run->source, run->held_out};
        }
    }
    return count;
}

static size_t blank_errors(ls_arena *arena, const ls_accuracy *a, bool experts, band_error *errors)
{
    size_t count = 0;
    for (size_t i = a->full_count; i < a->row_count; i++) {
        const ls_published_run *run = a->rows[i].run;
        if (experts == (run->shape->moe.experts > 0)) {
            errors[count++] = (band_error){
                a->rows[i].error, experts ? model_of(arena, run) : family_of(arena, run->source), true};
        }
    }
    return count;
}

static const char *pair_of(ls_arena *arena, const ls_published_run *run)
{
    return ls_arena_printf(arena, "%s/%s", run->stack.name, run->stack.generation);
}

/* The run as predicted with the constants of every other pair that shares its stack or its
 * generation; and the other way round, because which pair borrows from which is arbitrary. */
static size_t transfer_errors(ls_arena *arena, const ls_accuracy_row *row, bool same_stack,
                              band_error *errors)
{
    const ls_published_run *run = row->run;
    const char *name = NULL, *generation = NULL;
    size_t count = 0;
    for (size_t i = 0; ls_stack_pair_at(i, &name, &generation) && count + 1 < TRANSFERS_MAX; i++) {
        ls_stack other;
        ls_estimate estimate;
        ls_setting setting = run->setting;
        if ((strcmp(name, run->stack.name) == 0) != same_stack ||
            (strcmp(generation, run->stack.generation) == 0) == same_stack ||
            !ls_stack_of_pair(name, generation, &other) || other.flash != run->stack.flash) {
            continue; /* a program with fused attention is not a substitute for one without */
        }
        setting.stack = &other;
        ls_estimate_compute(&setting, &run->strategy, &estimate);
        const double ratio = estimate.time.step_s / run->measured_step_s;
        errors[count++] = (band_error){ratio - 1.0, pair_of(arena, run), true};
        errors[count++] = (band_error){1.0 / ratio - 1.0, pair_of(arena, run), true};
    }
    return count;
}

/* The errors that a row of bands is made of, in the arena. */
static size_t band_errors(ls_arena *arena, const ls_accuracy *a, const ls_band_row *row,
                          band_error **errors_out)
{
    band_error *errors = ls_arena_new(arena, band_error, a->row_count * TRANSFERS_MAX + 1);
    *errors_out = errors;
    size_t count = 0;
    switch (row->kind) {
    case LS_BAND_OWN:
        return own_errors(a, row, errors);
    case LS_BAND_BLANKS:
    case LS_BAND_EXPERTS:
        return blank_errors(arena, a, row->kind == LS_BAND_EXPERTS, errors);
    case LS_BAND_GENERATION:
    case LS_BAND_STACK:
        for (size_t i = 0; i < a->full_count; i++) {
            count += transfer_errors(arena, &a->rows[i], row->kind == LS_BAND_GENERATION, errors + count);
        }
        break;
    }
    return count;
}

#endif
