// SPDX-License-Identifier: Apache-2.0
/* Answers about sweeps: what became of each job, who has won, and by how much. */
#include "orchestration/control/controller_internal.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* The number of jobs that each assignment is made for. */
static json_t *count_sets(const ls_sweep *sweep)
{
    json_t *counts = json_object(), *set, *assignment;
    size_t i, k;
    json_array_foreach(sweep->sets, i, set)
    {
        json_array_foreach(set, k, assignment)
        {
            const char *text = json_string_value(assignment);
            json_object_set_new(counts, text,
                                json_integer(json_integer_value(json_object_get(counts, text)) + 1));
        }
    }
    return counts;
}

/* What sets a job apart from others: "train.optimizer.lr=3e-4  train.seed=1". */
static json_t *values_json(const ls_sweep *sweep, uint32_t index, const json_t *counts)
{
    ls_text text = {0};
    json_t *assignment;
    size_t i;
    json_array_foreach(json_array_get(sweep->sets, index), i, assignment)
    {
        const char *one = json_string_value(assignment);
        if (sweep->count == 1 || json_integer_value(json_object_get(counts, one)) < sweep->count) {
            ls_text_printf(&text, "%s%s", text.bytes > 0 ? "  " : "", one);
        }
    }
    json_t *values = json_string(ls_text_string(&text));
    ls_text_release(&text);
    return values ? values : json_string("");
}

static json_t *trial_json(const ls_controller *c, const ls_sweep *sweep, uint32_t index, const json_t *counts)
{
    const ls_trial *trial = &sweep->trials[index];
    const ls_entry *entry = ls_controller_find(c, sweep->first + index);
    const ls_job *job = entry ? entry->job : NULL;
    const uint64_t reached = trial->reached > 0 ? sweep->asha.rungs[trial->reached - 1] : 0;
    json_t *results = json_array();
    for (uint32_t i = 0; i < trial->reached; i++) {
        json_array_append_new(results, number_or_null(trial->results[i]));
    }
    return json_pack("{s:I, s:s, s:o, s:I, s:o, s:o, s:O, s:o, s:O}", "job",
                     (json_int_t)(sweep->first + index), "trial", ls_trial_state_name(trial->state), "state",
                     job ? json_string(ls_job_state_name(job->state)) : json_null(), "step",
                     (json_int_t)(job && job->step > reached ? job->step : reached), "result",
                     number_or_null(trial->reached > 0 ? trial->results[trial->reached - 1] : NAN), "results",
                     results, "set", json_array_get(sweep->sets, index), "values",
                     values_json(sweep, index, counts), "why", json_array_get(sweep->whys, index));
}

/* ---- who has won ---- */

/* The best and the second of those that have reached the rung; UINT32_MAX: none. */
static void find_best(const ls_sweep *sweep, uint32_t rung, uint32_t *best_out, uint32_t *second_out)
{
    *best_out = *second_out = UINT32_MAX;
    for (uint32_t i = 0; i < sweep->count; i++) {
        const bool counts = sweep->trials[i].reached > rung && isfinite(sweep->trials[i].results[rung]);
        const uint32_t place = counts ? ls_asha_place(sweep->trials, sweep->count, rung, i) : 0;
        *best_out = place == 1 ? i : *best_out;
        *second_out = place == 2 ? i : *second_out;
    }
}

/* What a trial sets apart from its seed. */
static void append_setting(const json_t *set, ls_text *text)
{
    for (size_t i = 0; i < json_array_size(set); i++) {
        const char *assignment = json_string_value(json_array_get(set, i));
        if (assignment && strncmp(assignment, "train.seed=", 11) != 0) {
            ls_text_printf(text, "%s\n", assignment);
        }
    }
}

/* Mean and sum of squared deviations of one setting, over its seeds. */
typedef struct spread {
    uint32_t count;
    double mean, squares;
} spread;

static void add_to(spread *s, double value)
{
    const double before = value - s->mean;
    s->count++;
    s->mean += before / s->count;
    s->squares += before * (value - s->mean);
}

/* Each setting with its seeds at one rung, by its text. Returns an object of spreads' indices. */
static uint32_t spreads_at(const ls_sweep *sweep, uint32_t rung, spread *spreads, uint32_t *of_trial)
{
    json_t *known = json_object();
    ls_text setting = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < sweep->count; i++) {
        of_trial[i] = UINT32_MAX;
        if (sweep->trials[i].reached <= rung || !isfinite(sweep->trials[i].results[rung])) {
            continue;
        }
        ls_text_clear(&setting);
        append_setting(json_array_get(sweep->sets, i), &setting);
        const json_t *found = json_object_get(known, ls_text_string(&setting));
        of_trial[i] = found ? (uint32_t)json_integer_value(found) : count++;
        json_object_set_new(known, ls_text_string(&setting), json_integer(of_trial[i]));
        add_to(&spreads[of_trial[i]], sweep->trials[i].results[rung]);
    }
    ls_text_release(&setting);
    json_decref(known);
    return count;
}

/* The standard deviation between seeds of the same setting, pooled over all settings, at the
 * highest rung that has two seeds of one; null: none has. */
static json_t *noise_json(const ls_sweep *sweep)
{
    spread *spreads = calloc(sweep->count, sizeof *spreads);
    uint32_t *of_trial = calloc(sweep->count, sizeof *of_trial);
    json_t *noise = NULL;
    for (uint32_t rung = sweep->asha.rung_count; rung-- > 0 && !noise && spreads && of_trial;) {
        memset(spreads, 0, sweep->count * sizeof *spreads);
        const uint32_t count = spreads_at(sweep, rung, spreads, of_trial);
        double squares = 0.0;
        uint32_t freedom = 0;
        for (uint32_t i = 0; i < count; i++) {
            squares += spreads[i].squares;
            freedom += spreads[i].count - 1;
        }
        if (freedom > 0) {
            noise = json_pack("{s:f, s:I, s:i}", "deviation", sqrt(squares / freedom), "step",
                              (json_int_t)sweep->asha.rungs[rung], "seeds", (int)(freedom + 1));
        }
    }
    free(spreads);
    free(of_trial);
    return noise ? noise : json_null();
}

/* {"job", "step", "result", "second", "lead", "lead_step"}; null: no job has reached a rung. Where
 * the best was alone, it is compared at the last rung where it was not. */
static json_t *best_json(const ls_sweep *sweep)
{
    uint32_t best = UINT32_MAX, second = UINT32_MAX, rung = sweep->asha.rung_count;
    while (rung > 0 && best == UINT32_MAX) {
        find_best(sweep, --rung, &best, &second);
    }
    if (best == UINT32_MAX) {
        return json_null();
    }
    uint32_t common = rung, first = best;
    while (second == UINT32_MAX && common > 0) {
        find_best(sweep, --common, &first, &second);
        second = second != UINT32_MAX && first != best ? first : second;
    }
    const double result = sweep->trials[best].results[rung];
    const bool has_second = second != UINT32_MAX;
    return json_pack("{s:I, s:I, s:f, s:o, s:o, s:I}", "job", (json_int_t)(sweep->first + best), "step",
                     (json_int_t)sweep->asha.rungs[rung], "result", result, "second",
                     has_second ? json_integer((json_int_t)(sweep->first + second)) : json_null(), "lead",
                     number_or_null(has_second ? sweep->trials[second].results[common] -
                                                     sweep->trials[best].results[common]
                                               : NAN),
                     "lead_step", (json_int_t)sweep->asha.rungs[common]);
}

/* ---- answers ---- */

static json_t *summary_json(const ls_sweep *sweep)
{
    char name[40];
    json_t *rungs = json_array();
    uint32_t counts[LS_TRIAL_STATES] = {0};
    snprintf(name, sizeof name, "sweep-%" PRIu64, sweep->first);
    for (uint32_t i = 0; i < sweep->asha.rung_count; i++) {
        json_array_append_new(rungs, json_integer((json_int_t)sweep->asha.rungs[i]));
    }
    for (uint32_t i = 0; i < sweep->count; i++) {
        counts[sweep->trials[i].state]++;
    }
    json_t *states = json_object();
    for (int i = 0; i < LS_TRIAL_STATES; i++) {
        json_object_set_new(states, ls_trial_state_name((ls_trial_state)i), json_integer(counts[i]));
    }
    const uint64_t full = sweep->count * sweep->asha.rungs[sweep->asha.rung_count - 1];
    return json_pack(
        "{s:s, s:I, s:s, s:b, s:O, s:i, s:s, s:i, s:o, s:I, s:I, s:I, s:o, s:o, s:o}", "sweep", name, "first",
        (json_int_t)sweep->first, "name", sweep->title, "ended", sweep->has_ended, "text", sweep->text,
        "jobs", (int)sweep->count, "metric", ls_sweep_metric(sweep), "eta", (int)sweep->asha.eta, "rungs",
        rungs, "budget_steps", (json_int_t)sweep->asha.budget_steps, "steps",
        (json_int_t)ls_asha_steps(&sweep->asha, sweep->trials, sweep->count), "full_steps", (json_int_t)full,
        "states", states, "best", best_json(sweep), "noise", noise_json(sweep));
}

ls_answer ls_answers_sweeps(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    json_t *list = json_array();
    (void)arguments;
    for (uint32_t i = 0; i < c->sweep_count; i++) {
        if (c->sweeps[i]->uid == caller->uid || ls_caller_is_admin(caller)) {
            json_array_append_new(list, summary_json(c->sweeps[i]));
        }
    }
    return (ls_answer){200, json_pack("{s:o}", "sweeps", list), 0};
}

ls_answer ls_answers_sweep(ls_controller *c, const ls_job *job)
{
    const ls_sweep *sweep = ls_sweeps_find(c, job->id);
    if (!sweep) {
        return ls_answer_fail(404, "job %" PRIu64 " does not belong to a sweep", job->id);
    }
    json_t *answer = summary_json(sweep), *trials = json_array(), *counts = count_sets(sweep);
    for (uint32_t i = 0; i < sweep->count; i++) {
        json_array_append_new(trials, trial_json(c, sweep, i, counts));
    }
    json_decref(counts);
    json_object_set_new(answer, "trials", trials);
    return (ls_answer){200, answer, 0};
}
