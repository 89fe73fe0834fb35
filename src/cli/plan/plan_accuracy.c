// SPDX-License-Identifier: Apache-2.0
/* plan --accuracy: predictions next to measurements, including the worst rows. */
#include "base/file.h"
#include "base/math.h"
#include "cli/plan/plan.h"
#include "planning/accuracy/own_runs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_MOST     ((size_t)64 << 20)
#define WORST_MOST    12
#define OWN_SHOWN     10
#define LEFT_OUT_MOST ((size_t)12)

/* ---- the keys of the contract: rows, median_error, mean_error, by_stack ---- */

/* Summarises the rows of one stack, or of all with NULL; only the fully specified ones, where there
 * are any. The object is new. */
static json_t *summarise(const ls_accuracy *accuracy, const char *stack, double *scratch)
{
    const size_t rows = accuracy->full_count > 0 ? accuracy->full_count : accuracy->row_count;
    size_t count = 0;
    double sum = 0.0;
    for (size_t i = 0; i < rows; i++) {
        const ls_accuracy_row *row = &accuracy->rows[i];
        if (!stack || strcmp(row->run->stack_name, stack) == 0) {
            scratch[count] = fabs(row->error);
            sum += scratch[count++];
        }
    }
    if (count == 0) {
        return json_pack("{s:i, s:n, s:n}", "rows", 0, "median_error", "mean_error");
    }
    const double median = ls_median_f64(scratch, count);
    return json_pack("{s:I, s:f, s:f, s:f}", "rows", (json_int_t)count, "median_error", median, "mean_error",
                     sum / (double)count, "worst_error", scratch[count - 1]);
}

static json_t *accuracy_to_json(ls_arena *arena, const ls_accuracy *accuracy)
{
    double *scratch = ls_arena_new(arena, double, accuracy->row_count + 1);
    json_t *root = ls_accuracy_json(accuracy), *by_stack = json_object();
    json_t *all = summarise(accuracy, NULL, scratch);
    json_object_update(root, all);
    json_decref(all);
    const size_t rows = accuracy->full_count > 0 ? accuracy->full_count : accuracy->row_count;
    for (size_t i = 0; i < rows; i++) {
        const char *stack = accuracy->rows[i].run->stack_name;
        if (!json_object_get(by_stack, stack)) {
            json_object_set_new(by_stack, stack, summarise(accuracy, stack, scratch));
        }
    }
    json_object_set_new(root, "by_stack", by_stack);
    return root;
}

/* ---- own runs ---- */

typedef struct own_runs {
    const ls_own_run_row *rows;
    size_t count, bad;
} own_runs;

/* Loads this user's own runs; there may be none. */
static ls_status load_own_runs(ls_arena *arena, own_runs *own)
{
    const char *path = ls_home_path(arena, "accuracy.jsonl");
    ls_own_run_row *rows = NULL;
    char *text = NULL;
    size_t bytes = 0;
    if (!path || !ls_path_exists(path)) {
        return LS_OK;
    }
    LS_TRY(ls_file_read(arena, path, FILE_MOST, &text, &bytes));
    ls_own_runs_parse(arena, text, bytes, &rows, &own->count, &own->bad);
    own->rows = rows;
    return LS_OK;
}

/* Signed; NAN when either side is not known. */
static double error_of(double predicted, double measured)
{
    return predicted > 0.0 && measured > 0.0 ? predicted / measured - 1.0 : NAN;
}

/* The median of the known errors, without sign; *count_out: how many are known. */
static double median_of(double *errors, size_t count, size_t *count_out)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(errors[i])) {
            errors[known++] = fabs(errors[i]);
        }
    }
    *count_out = known;
    return known > 0 ? ls_median_f64(errors, known) : NAN;
}

typedef struct own_summary {
    double step_median, memory_median; /* NAN: not known */
    size_t step_count, memory_count;
} own_summary;

static own_summary summarise_own(ls_arena *arena, const own_runs *own)
{
    own_summary summary;
    double *steps = ls_arena_new(arena, double, own->count + 1);
    double *memories = ls_arena_new(arena, double, own->count + 1);
    for (size_t i = 0; i < own->count; i++) {
        const ls_own_run_row *row = &own->rows[i];
        steps[i] = error_of(row->predicted.step_s, row->measured.step_s);
        memories[i] = error_of(row->predicted.memory_bytes, row->measured.memory_bytes);
    }
    summary.step_median = median_of(steps, own->count, &summary.step_count);
    summary.memory_median = median_of(memories, own->count, &summary.memory_count);
    return summary;
}

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *own_to_json(ls_arena *arena, const own_runs *own)
{
    const own_summary summary = summarise_own(arena, own);
    json_t *runs = json_array();
    for (size_t i = 0; i < own->count; i++) {
        json_array_append_new(runs, ls_own_run_to_json(&own->rows[i]));
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "rows", (json_int_t)own->count, "step_median_error",
                     real_or_null(summary.step_median), "memory_median_error",
                     real_or_null(summary.memory_median), "runs", runs);
}

static void append_error(double error, ls_text *text)
{
    if (isfinite(error)) {
        ls_text_printf(text, "  %+8.1f %%", 100.0 * error);
    } else {
        ls_text_append(text, "           -");
    }
}

static void append_median(const char *what, double median, size_t count, ls_text *text)
{
    if (count > 0) {
        ls_text_printf(text, " %s %.1f %% of %zu", what, 100.0 * median, count);
    } else {
        ls_text_printf(text, " %s not measured", what);
    }
}

static void append_own(ls_arena *arena, const own_runs *own, ls_text *text)
{
    if (own->count == 0) {
        ls_text_append(text, "\nown runs: none yet; every 'lockstep train' adds one\n");
        return;
    }
    const own_summary summary = summarise_own(arena, own);
    const size_t first = own->count > OWN_SHOWN ? own->count - OWN_SHOWN : 0;
    ls_text_printf(text, "\nown runs, error %% (%zu in all, the newest %zu shown)\n", own->count,
                   own->count - first);
    ls_text_append(text, "run                     parameters  ranks        step      memory\n");
    for (size_t i = first; i < own->count; i++) {
        const ls_own_run_row *row = &own->rows[i];
        ls_text_printf(text, "%-20.20s  %12.4g  %5" PRIu64, row->run, (double)row->parameters, row->ranks);
        append_error(error_of(row->predicted.step_s, row->measured.step_s), text);
        append_error(error_of(row->predicted.memory_bytes, row->measured.memory_bytes), text);
        ls_text_append(text, "\n");
    }
    ls_text_append(text, "median without sign:");
    append_median("step", summary.step_median, summary.step_count, text);
    ls_text_append(text, ",");
    append_median("memory", summary.memory_median, summary.memory_count, text);
    ls_text_append(text, "\n");
}

/* Lists the rows of the given table that were left out. */
static void append_left_out(const ls_published *published, ls_text *text)
{
    size_t count = 0;
    for (size_t i = 0; i < published->count; i++) {
        const ls_published_run *run = &published->runs[i];
        const char *why = run->left_out                   ? run->left_out
                          : !(run->measured_step_s > 0.0) ? "no step was measured"
                                                          : NULL;
        if (why && ++count <= LEFT_OUT_MOST) {
            ls_text_printf(text, "%sline %u%s%s: %s\n", count == 1 ? "\nleft out\n" : "", run->line,
                           run->model[0] ? ", " : "", run->model, why);
        }
    }
    if (count > LEFT_OUT_MOST) {
        ls_text_printf(text, "and %zu more (--json has them all)\n", count - LEFT_OUT_MOST);
    }
}

/* ---- all ---- */

static ls_status load_runs(ls_arena *arena, const ls_catalogue *catalogue, const char *path,
                           ls_published *published)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!path[0]) {
        return ls_published_shipped(arena, catalogue, published);
    }
    const ls_status read = ls_file_read(arena, path, FILE_MOST, &text, &bytes);
    if (read != LS_OK) {
        return ls_fail_within(read, "--accuracy (measured runs, --data)");
    }
    return ls_published_parse(arena, catalogue, text, bytes, path, published);
}

ls_status ls_plan_print_accuracy(const ls_invocation *invocation)
{
    const ls_plan_settings *settings = invocation->settings;
    ls_arena *arena = invocation->arena;
    const char *file =
        settings->data[0] == '\0' && invocation->word_count > 0 ? invocation->words[0] : settings->data;
    ls_catalogue catalogue;
    ls_published published;
    ls_accuracy accuracy;
    own_runs own = {0};
    LS_TRY(ls_catalogue_load(arena, settings->question.catalogue.items, settings->question.catalogue.count,
                             &catalogue));
    LS_TRY(load_runs(arena, &catalogue, file, &published));
    LS_TRY(load_own_runs(arena, &own));
    ls_accuracy_compute(arena, &published, &accuracy);
    accuracy.is_own = file[0] != '\0';
    if (settings->json) {
        json_t *root = accuracy_to_json(arena, &accuracy);
        json_object_set_new(root, "own", own_to_json(arena, &own));
        ls_print_json(root);
        json_decref(root);
    } else {
        ls_text text = {0};
        ls_accuracy_print(&accuracy, WORST_MOST, &text);
        if (file[0]) {
            append_left_out(&published, &text);
        }
        append_own(arena, &own, &text);
        fputs(ls_text_string(&text), stdout);
        ls_text_release(&text);
    }
    return LS_OK;
}
