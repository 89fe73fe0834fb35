// SPDX-License-Identifier: Apache-2.0
#include "planning/accuracy/accuracy.h"

#include "base/math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- summaries ---- */

/* `values` is sorted in place. */
static ls_error_summary summarise(double *values, size_t count)
{
    ls_error_summary s = {.count = count};
    if (count == 0) {
        return s;
    }
    ls_sort_f64(values, count);
    s.p10 = ls_quantile_f64(values, count, 0.1);
    s.p50 = ls_quantile_f64(values, count, 0.5);
    s.p90 = ls_quantile_f64(values, count, 0.9);
    for (size_t i = 0; i < count; i++) {
        values[i] = fabs(values[i]);
        s.mean += values[i] / (double)count;
    }
    s.median = ls_median_f64(values, count);
    s.worst = values[count - 1];
    return s;
}

static bool same_pair(const ls_published_run *run, const char *stack, const char *generation)
{
    return strcmp(run->stack.name, stack) == 0 &&
           strcmp(run->setting.node->accelerator->generation, generation) == 0;
}

/* Which rows a summary is of. */
typedef struct selection {
    size_t from, to;
    const char *stack, *generation; /* NULL: all pairs */
    bool held_out;                  /* only those */
} selection;

static ls_error_summary summarise_rows(ls_arena *arena, const ls_accuracy *a, const selection *of)
{
    double *values = ls_arena_new(arena, double, of->to - of->from);
    size_t count = 0;
    for (size_t i = of->from; i < of->to; i++) {
        const ls_published_run *run = a->rows[i].run;
        if ((!of->stack || same_pair(run, of->stack, of->generation)) && (!of->held_out || run->held_out)) {
            values[count++] = a->rows[i].error;
        }
    }
    return summarise(values, count);
}

static ls_error_summary summarise_memory(ls_arena *arena, const ls_accuracy *a)
{
    double *values = ls_arena_new(arena, double, a->published->count);
    size_t count = 0;
    for (size_t i = 0; i < a->published->count; i++) {
        const ls_published_run *run = &a->published->runs[i];
        if (!run->left_out && run->measured_memory_bytes > 0) {
            ls_estimate estimate;
            ls_estimate_compute(&run->setting, &run->strategy, &estimate);
            values[count++] = estimate.memory.total / run->measured_memory_bytes - 1;
        }
    }
    return summarise(values, count);
}

static void add_stacks(ls_arena *arena, ls_accuracy *a)
{
    a->stacks = ls_arena_new(arena, ls_accuracy_stack, a->full_count);
    for (size_t i = 0; i < a->full_count; i++) {
        const ls_published_run *run = a->rows[i].run;
        const char *generation = run->setting.node->accelerator->generation;
        bool known = false;
        for (size_t k = 0; k < a->stack_count; k++) {
            known = known || same_pair(run, a->stacks[k].stack, a->stacks[k].generation);
        }
        if (!known) {
            a->stacks[a->stack_count++] = (ls_accuracy_stack){
                .stack = run->stack.name,
                .generation = generation,
                .all = summarise_rows(arena, a,
                                      &(selection){.to = a->full_count,
                                                   .stack = run->stack.name,
                                                   .generation = generation,
                                                   .held_out = false}),
                .held_out = summarise_rows(arena, a,
                                           &(selection){.to = a->full_count,
                                                        .stack = run->stack.name,
                                                        .generation = generation,
                                                        .held_out = true}),
            };
        }
    }
}

/* ---- choice ---- */

static double gpu_s_per_token(const ls_published_run *run, double step_s)
{
    return step_s * (double)run->setting.gpus / (double)(run->setting.global_batch * run->setting.length);
}

static bool same_model(const ls_published_run *a, const ls_published_run *b)
{
    const ls_model_config *x = &a->shape->config, *y = &b->shape->config;
    return x->layers == y->layers && x->width == y->width && x->heads == y->heads && x->ffn == y->ffn &&
           x->vocab == y->vocab && a->setting.length == b->setting.length &&
           a->setting.gpus == b->setting.gpus && a->shape->moe.experts == b->shape->moe.experts &&
           a->setting.precision == b->setting.precision &&
           a->setting.node->accelerator == b->setting.node->accelerator &&
           strcmp(a->stack.name, b->stack.name) == 0;
}

/* How much more the configuration that is predicted to be cheapest costs than the cheapest one, in
 * the group that row `first` begins; -1: it is alone. */
static double choice_regret(const ls_accuracy *a, size_t first, bool *taken)
{
    double best = INFINITY, chosen = INFINITY, chosen_cost = 0;
    size_t members = 0;
    for (size_t i = first; i < a->full_count; i++) {
        const ls_accuracy_row *row = &a->rows[i];
        if (taken[i] || !same_model(a->rows[first].run, row->run)) {
            continue;
        }
        taken[i] = true;
        members++;
        const double cost = gpu_s_per_token(row->run, row->run->measured_step_s);
        const double predicted = gpu_s_per_token(row->run, row->predicted_step_s);
        best = fmin(best, cost);
        if (predicted < chosen) {
            chosen = predicted;
            chosen_cost = cost;
        }
    }
    return members > 1 ? chosen_cost / best - 1 : -1;
}

static ls_choice_summary summarise_choice(ls_arena *arena, const ls_accuracy *a)
{
    bool *taken = ls_arena_new(arena, bool, a->full_count);
    double *regrets = ls_arena_new(arena, double, a->full_count);
    size_t count = 0;
    for (size_t i = 0; i < a->full_count; i++) {
        const double regret = taken[i] ? -1 : choice_regret(a, i, taken);
        if (regret >= 0) {
            regrets[count++] = regret;
        }
    }
    const ls_error_summary s = summarise(regrets, count);
    return (ls_choice_summary){count, s.median, s.mean, s.worst};
}

/* ---- all of it ---- */

static bool is_comparable(const ls_published_run *run)
{
    return !run->left_out && run->measured_step_s > 0;
}

static void add_rows(ls_accuracy *a, bool full)
{
    for (size_t i = 0; i < a->published->count; i++) {
        const ls_published_run *run = &a->published->runs[i];
        if (!is_comparable(run) || run->fully_specified != full) {
            continue;
        }
        ls_estimate estimate;
        ls_estimate_compute(&run->setting, &run->strategy, &estimate);
        a->rows[a->row_count++] = (ls_accuracy_row){
            .run = run,
            .predicted_step_s = estimate.time.step_s,
            .error = estimate.time.step_s / run->measured_step_s - 1,
            .memory_error =
                run->measured_memory_bytes > 0 ? estimate.memory.total / run->measured_memory_bytes - 1 : NAN,
        };
    }
}

void ls_accuracy_compute(ls_arena *arena, const ls_published *published, ls_accuracy *accuracy_out)
{
    ls_accuracy a = {.name = published->name,
                     .published = published,
                     .run_count = published->count,
                     .rows = ls_arena_new(arena, ls_accuracy_row, published->count)};
    add_rows(&a, true);
    a.full_count = a.row_count;
    add_rows(&a, false);
    for (size_t i = 0; i < published->count; i++) {
        a.left_out += !is_comparable(&published->runs[i]);
    }
    a.full = summarise_rows(arena, &a, &(selection){.to = a.full_count, .held_out = false});
    a.full_held_out = summarise_rows(arena, &a, &(selection){.to = a.full_count, .held_out = true});
    a.partial = summarise_rows(arena, &a, &(selection){.from = a.full_count, .to = a.row_count});
    a.memory = summarise_memory(arena, &a);
    add_stacks(arena, &a);
    a.choice = summarise_choice(arena, &a);
    *accuracy_out = a;
}

/* ---- for people ---- */

static void print_summary(ls_text *text, const char *name, const ls_error_summary *s,
                          const ls_error_summary *held_out)
{
    if (s->count == 0) {
        ls_text_printf(text, "%-32s %5d %7s %7s %7s   %6s %6s %6s\n", name, 0, "-", "-", "-", "-", "-", "-");
        return;
    }
    ls_text_printf(text, "%-32s %5zu %7.1f %7.1f %7.1f   %+6.1f %+6.1f %+6.1f", name, s->count,
                   100 * s->median, 100 * s->mean, 100 * s->worst, 100 * s->p10, 100 * s->p50, 100 * s->p90);
    if (held_out && held_out->count > 0) {
        ls_text_printf(text, "   %5zu %7.1f", held_out->count, 100 * held_out->mean);
    }
    ls_text_append(text, "\n");
}

static void print_stacks(const ls_accuracy *a, ls_text *text)
{
    ls_text_printf(text, "%-32s %5s %7s %7s %7s   %6s %6s %6s   %s\n", "fully specified runs, error %",
                   "runs", "median", "mean", "worst", "p10", "p50", "p90",
                   a->is_own ? "" : "held out: runs, mean");
    for (size_t i = 0; i < a->stack_count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s on %s", a->stacks[i].stack, a->stacks[i].generation);
        print_summary(text, name, &a->stacks[i].all, a->is_own ? NULL : &a->stacks[i].held_out);
    }
    print_summary(text, "all", &a->full, a->is_own ? NULL : &a->full_held_out);
    if (a->partial.count > 0) {
        print_summary(text, "runs with blanks, filled in", &a->partial, NULL);
    }
    if (a->memory.count > 0) {
        print_summary(text, "memory", &a->memory, NULL);
    }
}

static int compare_rows(const void *a, const void *b)
{
    const ls_accuracy_row *x = *(const ls_accuracy_row *const *)a, *y = *(const ls_accuracy_row *const *)b;
    const double p = fabs(x->error), q = fabs(y->error);
    return p != q ? (p < q) - (p > q) : (x > y) - (x < y);
}

/* Of `count` rows from `first` on. */
static void print_worst(const ls_accuracy *a, size_t first, size_t count, const char *heading, size_t worst,
                        ls_text *text)
{
    const ls_accuracy_row **order = calloc(count + 1, sizeof(*order));
    for (size_t i = 0; order && i < count; i++) {
        order[i] = &a->rows[first + i];
    }
    if (!order || count == 0) {
        free(order);
        return;
    }
    qsort(order, count, sizeof(*order), compare_rows);
    ls_text_printf(text, "\n%s\n", heading);
    for (size_t i = 0; i < worst && i < count; i++) {
        const ls_published_run *run = order[i]->run;
        char strategy[160];
        ls_strategy_format(&run->strategy, strategy, sizeof(strategy));
        ls_text_printf(text, "%+6.1f %%  %.4g s, measured %.4g s  %s line %u: %s, %lld x %s, %s\n",
                       100 * order[i]->error, order[i]->predicted_step_s, run->measured_step_s, run->source,
                       run->line, run->model, (long long)run->setting.gpus, run->accelerator, strategy);
    }
    free(order);
}

void ls_accuracy_print(const ls_accuracy *a, size_t worst, ls_text *text)
{
    ls_text_printf(text, "%s: %zu runs, %zu predicted (%zu fully specified), %zu left out\n\n", a->name,
                   a->run_count, a->row_count, a->full_count, a->left_out);
    print_stacks(a, text);
    if (a->choice.groups > 0) {
        ls_text_printf(text,
                       "\nchoice among measured configurations of a model on the same number of GPUs (%zu "
                       "groups): costs %.1f %% more than the best at the median, %.1f %% at worst\n",
                       a->choice.groups, 100 * a->choice.median, 100 * a->choice.worst);
    }
    print_worst(a, 0, a->full_count, "fully specified runs with the largest errors", worst, text);
    if (a->is_own) {
        print_worst(a, a->full_count, a->row_count - a->full_count,
                    "runs with blanks with the largest errors", worst, text);
    }
}

/* ---- JSON ---- */

static json_t *summary_json(const ls_error_summary *s, const ls_error_summary *held_out)
{
    json_t *object = s->count > 0 ? json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "count",
                                              (json_int_t)s->count, "median", s->median, "mean", s->mean,
                                              "worst", s->worst, "p10", s->p10, "p50", s->p50, "p90", s->p90)
                                  : json_pack("{s:i, s:n, s:n, s:n, s:n, s:n, s:n}", "count", 0, "median",
                                              "mean", "worst", "p10", "p50", "p90");
    if (held_out) {
        json_object_set_new(object, "held_out", summary_json(held_out, NULL));
    }
    return object;
}

static json_t *row_json(const ls_accuracy_row *row)
{
    const ls_published_run *run = row->run;
    char strategy[160];
    ls_strategy_format(&run->strategy, strategy, sizeof(strategy));
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:s, s:I, s:s, s:s, s:f, s:f, s:f, s:b, s:b}", "line", (int)run->line,
                  "source", run->source, "model", run->model, "accelerator", run->accelerator, "gpus",
                  (json_int_t)run->setting.gpus, "stack", run->stack.name, "strategy", strategy,
                  "predicted_s", row->predicted_step_s, "measured_s", run->measured_step_s, "error",
                  row->error, "fully_specified", (int)run->fully_specified, "held_out", (int)run->held_out);
    if (!isnan(row->memory_error)) {
        json_object_set_new(object, "memory_error", json_real(row->memory_error));
    }
    if (run->assumed) {
        json_object_set_new(object, "assumed", json_string(run->assumed));
    }
    return object;
}

static json_t *stacks_json(const ls_accuracy *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->stack_count; i++) {
        json_t *object = summary_json(&a->stacks[i].all, a->is_own ? NULL : &a->stacks[i].held_out);
        json_object_set_new(object, "stack", json_string(a->stacks[i].stack));
        json_object_set_new(object, "generation", json_string(a->stacks[i].generation));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *left_out_json(const ls_accuracy *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->published->count; i++) {
        const ls_published_run *run = &a->published->runs[i];
        if (!is_comparable(run)) {
            json_array_append_new(list, json_pack("{s:i, s:s, s:s, s:s}", "line", (int)run->line, "source",
                                                  run->source, "model", run->model, "why",
                                                  run->left_out ? run->left_out : "no step was measured"));
        }
    }
    return list;
}

json_t *ls_accuracy_json(const ls_accuracy *a)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < a->row_count; i++) {
        json_array_append_new(runs, row_json(&a->rows[i]));
    }
    json_t *choice = json_pack("{s:I, s:f, s:f, s:f}", "groups", (json_int_t)a->choice.groups, "median",
                               a->choice.median, "mean", a->choice.mean, "worst", a->choice.worst);
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "file", a->name, "rows",
        (json_int_t)a->run_count, "predicted", (json_int_t)a->row_count, "left_out", (json_int_t)a->left_out,
        "errors_are", "predicted / measured - 1; median, mean and worst without sign", "fully_specified",
        summary_json(&a->full, a->is_own ? NULL : &a->full_held_out), "stacks", stacks_json(a),
        "partly_specified", summary_json(&a->partial, NULL), "memory", summary_json(&a->memory, NULL),
        "choice", choice, "runs", runs, "not_predicted", left_out_json(a));
}
