// SPDX-License-Identifier: Apache-2.0
/* The values of web/sweep.html: how far a sweep is, and which of its jobs is best by how much. */
#include "orchestration/page/page_values.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS_MAX = 200 };

/* "1 finished, 3 paused, 12 stopped" */
static void set_states(const json_t *sweep, ls_values *row)
{
    const char *state = NULL;
    json_t *count = NULL;
    ls_text text = {0};
    json_object_foreach(json_object_get(sweep, "states"), state, count)
    {
        if (json_integer_value(count) > 0) {
            ls_text_printf(&text, "%s%" PRId64 " %s", text.bytes > 0 ? ", " : "",
                           (int64_t)json_integer_value(count), state);
        }
    }
    ls_values_text(row, "states", ls_text_string(&text));
    ls_text_release(&text);
}

static void set_best(const json_t *sweep, ls_values *row)
{
    const json_t *best = json_object_get(sweep, "best"), *noise = json_object_get(sweep, "noise");
    const json_t *lead = json_object_get(best, "lead");
    ls_values_flag(row, "has_best", json_is_object(best));
    ls_values_flag(row, "has_second", json_is_number(lead));
    ls_values_flag(row, "has_noise", json_is_object(best) && json_is_object(noise));
    ls_page_set_integer(row, best, "job");
    ls_page_set_integer(row, best, "step");
    ls_page_set_integer(row, best, "second");
    ls_page_set_text(row, sweep, "metric", 32);
    ls_values_printf(row, "result", "%.6g", ls_page_number(best, "result"));
    ls_values_printf(row, "lead", "%.3g %s", fabs(json_number_value(lead)),
                     json_number_value(lead) < 0.0 ? "worse" : "better");
    ls_page_set_integer(row, best, "lead_step");
    const double deviation = ls_page_number(noise, "deviation");
    ls_values_printf(row, "deviation", "%.3g", deviation);
    ls_values_flag(row, "by_chance",
                   json_is_number(lead) && json_is_object(noise) &&
                       json_number_value(lead) < 2.0 * deviation);
}

/* The furthest first, then the best. */
static int by_success(const void *a, const void *b)
{
    const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
    const size_t far_x = json_array_size(json_object_get(x, "results")),
                 far_y = json_array_size(json_object_get(y, "results"));
    const json_t *of_x = json_object_get(x, "result"), *of_y = json_object_get(y, "result");
    const double value_x = json_is_number(of_x) ? json_number_value(of_x) : INFINITY,
                 value_y = json_is_number(of_y) ? json_number_value(of_y) : INFINITY;
    if (far_x != far_y) {
        return far_x < far_y ? 1 : -1;
    }
    if (value_x != value_y) {
        return value_x < value_y ? -1 : 1;
    }
    return ls_page_integer(x, "job") < ls_page_integer(y, "job") ? -1 : 1;
}

static void add_trials(const json_t *trials, int64_t best, ls_values *row)
{
    const json_t *sorted[TRIALS_MAX];
    ls_text ids = {0};
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(trials) && count < TRIALS_MAX; i++) {
        sorted[count++] = json_array_get(trials, i);
    }
    qsort(sorted, count, sizeof *sorted, by_success);
    for (size_t i = 0; i < count; i++) {
        ls_values *trial = ls_values_add(row, "trials");
        const json_t *result = json_object_get(sorted[i], "result");
        const int64_t job = ls_page_integer(sorted[i], "job");
        ls_text_printf(&ids, "%s%" PRId64, i > 0 ? "," : "", job);
        ls_page_set_integer(trial, sorted[i], "job");
        ls_page_set_text(trial, sorted[i], "trial", 32);
        ls_values_text(trial, "look", job == best ? "good" : "dim");
        ls_page_set_integer(trial, sorted[i], "step");
        ls_values_text(trial, "result", NULL);
        if (json_is_number(result)) {
            ls_values_printf(trial, "result", "%.4f", json_number_value(result));
        }
        ls_page_set_text(trial, sorted[i], "values", 200);
        ls_values_cut(trial, "why", ls_page_string(sorted[i], "why"), 300);
    }
    ls_values_text(row, "ids", ls_text_string(&ids));
    ls_text_release(&ids);
}

void ls_page_add_sweep(const json_t *sweep, ls_values *page)
{
    ls_values *row = ls_values_add(page, "sweeps");
    const json_t *trials = json_object_get(sweep, "trials");
    const double steps = ls_page_number(sweep, "steps"), full = ls_page_number(sweep, "full_steps");
    ls_page_set_text(row, sweep, "sweep", 40);
    ls_page_set_text(row, sweep, "name", 60);
    ls_page_set_integer(row, sweep, "first");
    ls_page_set_integer(row, sweep, "jobs");
    ls_values_printf(row, "share", "%.0f %%", full > 0.0 ? 100.0 * steps / full : 0.0);
    ls_values_cut(row, "text", ls_page_string(sweep, "text"), 300);
    set_states(sweep, row);
    set_best(sweep, row);
    ls_values_flag(row, "has_trials", json_array_size(trials) > 0);
    add_trials(trials, ls_page_integer(json_object_get(sweep, "best"), "job"), row);
}
