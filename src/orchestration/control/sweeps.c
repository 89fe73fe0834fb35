// SPDX-License-Identifier: Apache-2.0
/*
 * Sweeps: which of their jobs train on, and which stop.
 *
 * What has happened to a job is read from its state, never from the report about it: a daemon that
 * died between two turns finds the same state and comes to the same decisions. The row of a sweep
 * is written in the transaction of the transitions that follow from it.
 */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_MAX = 1 << 20 };

const char *ls_sweep_metric(const ls_sweep *sweep)
{
    return sweep->uses_loss ? "loss" : "val_loss";
}

ls_sweep *ls_sweeps_find(const ls_controller *c, uint64_t job)
{
    for (uint32_t i = c->sweep_count; i-- > 0;) {
        ls_sweep *sweep = c->sweeps[i];
        if (job >= sweep->first && job - sweep->first < sweep->count) {
            return sweep;
        }
    }
    return NULL;
}

/* ---- beginning ---- */

static bool is_same(const ls_run_asha *a, const ls_run_asha *b)
{
    return a->first == b->first && a->eta == b->eta && a->metric == b->metric &&
           a->budget_steps == b->budget_steps;
}

ls_status ls_sweeps_check(const ls_job *first, const ls_job *job)
{
    const uint64_t rung = job->spec.asha.first, steps = job->spec.steps;
    if (rung == 0 && first->spec.asha.first == 0) {
        return LS_OK;
    }
    if (job->spec.command.count > 0 || steps == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "asha.first is %" PRIu64 ", but %s; set it to 0 to run all jobs to their end", rung,
                       job->spec.command.count > 0
                           ? "job.command runs a program, whose steps the queue does not know"
                           : "the length of the run is not given in steps (train.steps)");
    }
    if (rung >= steps) {
        return ls_fail(LS_ERR_INVALID,
                       "asha.first is %" PRIu64 ", but must be less than train.steps, which is %" PRIu64,
                       rung, steps);
    }
    if (!is_same(&job->spec.asha, &first->spec.asha) || steps != first->spec.steps) {
        return ls_fail(LS_ERR_INVALID,
                       "with asha.first, all jobs of a sweep have the same train.steps and the "
                       "same asha settings: give each of them one value");
    }
    return LS_OK;
}

/* A sweep without trials. */
static ls_sweep *add(ls_controller *c, uint64_t first, uint32_t count)
{
    ls_sweep *sweep = calloc(1, sizeof *sweep);
    c->sweeps = realloc(c->sweeps, (c->sweep_count + 1) * sizeof(ls_sweep *));
    LS_ASSERT(sweep && c->sweeps && "not enough memory for a sweep");
    *sweep = (ls_sweep){.first = first,
                        .count = count,
                        .failure = json_null(),
                        .text = json_null(),
                        .trials = calloc(count, sizeof *sweep->trials),
                        .sets = json_array(),
                        .whys = json_array()};
    LS_ASSERT(sweep->trials && "not enough memory for a sweep");
    c->sweeps[c->sweep_count++] = sweep;
    return sweep;
}

static void remove_at(ls_controller *c, uint32_t index)
{
    ls_sweep *sweep = c->sweeps[index];
    memmove(&c->sweeps[index], &c->sweeps[index + 1], (--c->sweep_count - index) * sizeof(ls_sweep *));
    json_decref(sweep->failure);
    json_decref(sweep->text);
    json_decref(sweep->sets);
    json_decref(sweep->whys);
    free(sweep->trials);
    free(sweep);
}

void ls_sweeps_let_go(ls_controller *c, uint64_t job)
{
    for (uint32_t i = 0; i < c->sweep_count; i++) {
        const ls_sweep *sweep = c->sweeps[i];
        if (job == sweep->first + sweep->count - 1 && sweep->has_ended && !sweep->is_changed) {
            remove_at(c, i);
            return;
        }
    }
}

void ls_sweeps_destroy(ls_controller *c)
{
    while (c->sweep_count > 0) {
        remove_at(c, c->sweep_count - 1);
    }
    json_decref(c->sweep_rows);
    free(c->sweeps);
}

/* What the sweep sets for this job, without its group. */
static json_t *set_of(const ls_job *job)
{
    json_t *set = json_array();
    for (uint64_t i = 0; i < job->spec.set.count; i++) {
        if (strncmp(job->spec.set.items[i], "job.group.", 10) != 0) {
            json_array_append_new(set, json_string(job->spec.set.items[i]));
        }
    }
    return set;
}

void ls_sweeps_begin(ls_controller *c, const ls_caller *caller, uint32_t count)
{
    LS_ASSERT(count > 0 && c->entry_count >= count);
    ls_entry **entries = c->entries + c->entry_count - count;
    const ls_job *job = entries[0]->job;
    const ls_run_asha *wanted = &job->spec.asha;
    ls_sweep *sweep = add(c, job->id, count);
    sweep->uid = caller->uid;
    snprintf(sweep->title, sizeof sweep->title, "%s", job->spec.name);
    sweep->asha = ls_asha_make(wanted->first, (uint32_t)wanted->eta, job->spec.steps, wanted->budget_steps);
    sweep->uses_loss = wanted->metric == 1;
    sweep->failures_max = (uint32_t)wanted->failures_max;
    sweep->is_changed = true;
    for (uint32_t i = 0; i < count; i++) {
        entries[i]->job->stop_step = sweep->asha.rung_count > 1 ? sweep->asha.rungs[0] : 0;
        json_array_append_new(sweep->sets, set_of(entries[i]->job));
        json_array_append_new(sweep->whys, json_null());
    }
}

/* ---- rows ---- */

static json_t *results_json(const ls_trial *trial)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < trial->reached; i++) {
        json_array_append_new(list, isfinite(trial->results[i]) ? json_real(trial->results[i]) : json_null());
    }
    return list;
}

static json_t *state_json(const ls_sweep *sweep)
{
    json_t *trials = json_array(), *rungs = json_array();
    for (uint32_t i = 0; i < sweep->count; i++) {
        json_array_append_new(trials,
                              json_pack("{s:s, s:o}", "state", ls_trial_state_name(sweep->trials[i].state),
                                        "results", results_json(&sweep->trials[i])));
    }
    for (uint32_t i = 0; i < sweep->asha.rung_count; i++) {
        json_array_append_new(rungs, json_integer((json_int_t)sweep->asha.rungs[i]));
    }
    return json_pack("{s:I, s:i, s:I, s:s, s:i, s:o, s:I, s:b, s:i, s:i, s:O, s:O, s:o, s:O, s:O, s:b}",
                     "first", (json_int_t)sweep->first, "count", (int)sweep->count, "uid",
                     (json_int_t)sweep->uid, "title", sweep->title, "eta", (int)sweep->asha.eta, "rungs",
                     rungs, "budget_steps", (json_int_t)sweep->asha.budget_steps, "uses_loss",
                     sweep->uses_loss, "failures_max", (int)sweep->failures_max, "failed_alike",
                     (int)sweep->failed_alike, "failure", sweep->failure, "text", sweep->text, "trials",
                     trials, "sets", sweep->sets, "whys", sweep->whys, "ended", sweep->has_ended);
}

const json_t *ls_sweeps_rows(ls_controller *c)
{
    for (uint32_t i = 0; i < c->sweep_count; i++) {
        if (c->sweeps[i]->is_changed) {
            c->sweep_rows = c->sweep_rows ? c->sweep_rows : json_array();
            json_array_append_new(c->sweep_rows, state_json(c->sweeps[i]));
            c->sweeps[i]->is_changed = false;
        }
    }
    return c->sweep_rows;
}

void ls_sweeps_written(ls_controller *c)
{
    json_decref(c->sweep_rows);
    c->sweep_rows = NULL;
}

static bool read_trial(const json_t *object, uint32_t rung_count, ls_trial *trial)
{
    const char *state = json_string_value(json_object_get(object, "state"));
    const json_t *results = json_object_get(object, "results");
    int found = 0;
    while (state && found < LS_TRIAL_STATES &&
           strcmp(state, ls_trial_state_name((ls_trial_state)found)) != 0) {
        found++;
    }
    if (!state || found == LS_TRIAL_STATES || json_array_size(results) > rung_count) {
        return false;
    }
    trial->state = (ls_trial_state)found;
    trial->reached = (uint32_t)json_array_size(results);
    for (uint32_t i = 0; i < trial->reached; i++) {
        const json_t *result = json_array_get(results, i);
        trial->results[i] = json_is_number(result) ? json_number_value(result) : NAN;
    }
    return true;
}

static void replace(json_t **member, const json_t *object, const char *key)
{
    json_decref(*member);
    json_t *value = json_object_get(object, key);
    *member = value ? json_deep_copy(value) : json_null();
}

static bool read_state(const json_t *state, ls_sweep *sweep)
{
    const json_t *trials = json_object_get(state, "trials"), *rungs = json_object_get(state, "rungs");
    const char *title = json_string_value(json_object_get(state, "title"));
    const json_int_t eta = json_integer_value(json_object_get(state, "eta"));
    const size_t rung_count = json_array_size(rungs);
    bool is_good = json_array_size(trials) == sweep->count && eta >= 2 && eta <= 1 << 20 && rung_count >= 1 &&
                   rung_count <= LS_ASHA_RUNGS_MAX && title;
    if (!is_good) {
        return false;
    }
    snprintf(sweep->title, sizeof sweep->title, "%s", title);
    sweep->uid = (uint32_t)json_integer_value(json_object_get(state, "uid"));
    sweep->asha =
        (ls_asha){.rung_count = (uint32_t)rung_count,
                  .eta = (uint32_t)eta,
                  .budget_steps = (uint64_t)json_integer_value(json_object_get(state, "budget_steps"))};
    for (size_t i = 0; i < rung_count; i++) {
        sweep->asha.rungs[i] = (uint64_t)json_integer_value(json_array_get(rungs, i));
    }
    sweep->uses_loss = json_is_true(json_object_get(state, "uses_loss"));
    sweep->failures_max = (uint32_t)json_integer_value(json_object_get(state, "failures_max"));
    sweep->failed_alike = (uint32_t)json_integer_value(json_object_get(state, "failed_alike"));
    sweep->has_ended = json_is_true(json_object_get(state, "ended"));
    replace(&sweep->failure, state, "failure");
    replace(&sweep->text, state, "text");
    replace(&sweep->sets, state, "sets");
    replace(&sweep->whys, state, "whys");
    for (uint32_t i = 0; i < sweep->count; i++) {
        is_good = is_good && read_trial(json_array_get(trials, i), sweep->asha.rung_count, &sweep->trials[i]);
    }
    return is_good && json_array_size(sweep->sets) == sweep->count &&
           json_array_size(sweep->whys) == sweep->count;
}

ls_status ls_controller_restore_sweep(ls_controller *c, const json_t *state)
{
    const json_int_t first = json_integer_value(json_object_get(state, "first"));
    const json_int_t count = json_integer_value(json_object_get(state, "count"));
    if (first < 1 || count < 1 || count > JOBS_MAX) {
        return ls_fail(LS_ERR_DATA, "the daemon's stored record of a sweep is damaged");
    }
    if (!read_state(state, add(c, (uint64_t)first, (uint32_t)count))) {
        remove_at(c, c->sweep_count - 1);
        return ls_fail(LS_ERR_DATA, "the daemon's stored record of sweep-%lld is damaged", (long long)first);
    }
    return LS_OK;
}

/* ---- what has become of a job ---- */

static void set_why(ls_sweep *sweep, uint32_t trial, const char *why)
{
    json_t *text = why ? json_string(why) : NULL;
    json_array_set_new(sweep->whys, trial, text ? text : json_null());
}

/* Two failures are alike when they differ at most in numbers: of jobs, folders, processes. */
static json_t *pattern_of(const char *text)
{
    ls_text pattern = {0};
    for (const char *at = text ? text : ""; *at; at++) {
        const bool is_digit = isdigit((unsigned char)*at);
        if (!is_digit || at == text || !isdigit((unsigned char)at[-1])) {
            ls_text_append_bytes(&pattern, is_digit ? "#" : at, 1);
        }
    }
    json_t *json = json_string(ls_text_string(&pattern));
    ls_text_release(&pattern);
    return json ? json : json_string("");
}

static void count_failure(ls_sweep *sweep, const ls_job *job)
{
    if (job->text && strstr(job->text, "not finite")) {
        return; /* a bad setting, and not a bad run file or machine */
    }
    json_t *pattern = pattern_of(job->text);
    sweep->failed_alike = json_equal(pattern, sweep->failure) ? sweep->failed_alike + 1 : 1;
    json_decref(sweep->failure);
    sweep->failure = pattern;
}

static void reach(ls_sweep *sweep, const ls_job *job, ls_trial *trial, ls_trial_state state)
{
    const ls_job_result *result = &job->result;
    LS_ASSERT(trial->reached < sweep->asha.rung_count);
    trial->results[trial->reached++] = result->step == 0  ? NAN
                                       : sweep->uses_loss ? result->loss
                                                          : result->val_loss;
    trial->state = state;
    sweep->failed_alike = 0;
}

/* Brings the trial up to the state of its job. */
static void follow(ls_controller *c, ls_sweep *sweep, uint32_t index)
{
    ls_trial *trial = &sweep->trials[index];
    const ls_entry *entry = ls_controller_find(c, sweep->first + index);
    if ((trial->state != LS_TRIAL_ACTIVE && trial->state != LS_TRIAL_PAUSED) || !entry) {
        return;
    }
    const ls_job *job = entry->job;
    const bool is_final = ls_job_state_is_final(job->state);
    if (is_final && job->state == LS_JOB_SUCCEEDED) {
        reach(sweep, job, trial, LS_TRIAL_FINISHED);
    } else if (is_final) {
        trial->state = job->cause == LS_CAUSE_SWEEP ? LS_TRIAL_STOPPED : LS_TRIAL_FAILED;
        if (job->state == LS_JOB_FAILED) {
            count_failure(sweep, job);
        }
    } else if (trial->state == LS_TRIAL_ACTIVE && job->paused) {
        reach(sweep, job, trial, LS_TRIAL_PAUSED);
    } else {
        return;
    }
    const bool has_won = trial->state == LS_TRIAL_FINISHED;
    set_why(sweep, index, !is_final ? NULL : has_won && !job->text ? "trained to its end" : job->text);
    sweep->is_changed = true;
}

/* ---- decisions ---- */

static void append_result(const ls_sweep *sweep, const ls_trial *trial, ls_text *text)
{
    const double result = trial->results[trial->reached - 1];
    ls_text_printf(text, "%s ", ls_sweep_metric(sweep));
    if (isfinite(result)) {
        ls_text_printf(text, "%.6g", result);
    } else {
        ls_text_append(text, "(not known)");
    }
}

static void go_on(ls_controller *c, ls_sweep *sweep, const ls_asha_decision *decision, ls_entry *entry,
                  ls_text *why)
{
    ls_trial *trial = &sweep->trials[decision->trial];
    ls_job *job = entry->job;
    const uint64_t from = sweep->asha.rungs[trial->reached - 1], to = sweep->asha.rungs[trial->reached];
    ls_text_printf(why, "trains on from step %" PRIu64 " to %" PRIu64 ": ", from, to);
    append_result(sweep, trial, why);
    ls_text_printf(why, " is place %u of %u, and one in %u trains on", decision->place, decision->of,
                   sweep->asha.eta);
    trial->state = LS_TRIAL_ACTIVE;
    job->paused = false;
    job->stop_step = trial->reached + 1 < sweep->asha.rung_count ? to : 0;
    job->queued_s = c->time_s;
    if (job->held) {
        ls_controller_note(c, entry, LS_CAUSE_SWEEP, ls_text_string(why));
        return;
    }
    ls_controller_move(c, entry, LS_JOB_QUEUED, LS_CAUSE_SWEEP, ls_text_string(why));
    if (c->decides) {
        ls_transitions_hand_over(c, entry);
    } else if (entry->in_policy) {
        LS_ASSERT(ls_policy_hold(c->policy, ls_controller_ms(c->time_s), job->id, false) == LS_OK);
    }
}

static void stop(ls_controller *c, ls_sweep *sweep, const ls_asha_decision *decision, ls_entry *entry,
                 ls_text *why)
{
    ls_trial *trial = &sweep->trials[decision->trial];
    const uint64_t *rungs = sweep->asha.rungs;
    ls_text_printf(why, "stopped at step %" PRIu64 " of %" PRIu64 ": ", rungs[trial->reached - 1],
                   rungs[sweep->asha.rung_count - 1]);
    append_result(sweep, trial, why);
    ls_text_printf(why, " is place %u of %u", decision->place, decision->of);
    if (decision->choice == LS_ASHA_BUDGET) {
        ls_text_printf(why,
                       ", but the budget of %" PRIu64 " steps (asha.budget_steps) has no %" PRIu64 " left",
                       sweep->asha.budget_steps, rungs[trial->reached] - rungs[trial->reached - 1]);
    } else {
        ls_text_printf(why, ", and at most %u of all train%s on", decision->go_on,
                       decision->go_on == 1 ? "s" : "");
    }
    trial->state = LS_TRIAL_STOPPED;
    ls_transitions_end(c, entry, LS_JOB_CANCELLED, LS_CAUSE_SWEEP, ls_text_string(why));
}

/* A job that has nothing to be compared by. */
static bool end_unmeasured(ls_controller *c, ls_sweep *sweep, uint32_t index, ls_entry *entry)
{
    ls_trial *trial = &sweep->trials[index];
    if (trial->state != LS_TRIAL_PAUSED || !isnan(trial->results[trial->reached - 1])) {
        return false;
    }
    const char *why = ls_arena_printf(
        &c->arena, "its run has no %s at step %" PRIu64 ", by which its sweep compares jobs%s",
        ls_sweep_metric(sweep), sweep->asha.rungs[trial->reached - 1],
        sweep->uses_loss ? ""
                         : ": it needs validation data (data.validation_fraction), or asha.metric: loss");
    trial->state = LS_TRIAL_FAILED;
    trial->reached--;
    ls_transitions_end(c, entry, LS_JOB_FAILED, LS_CAUSE_SWEEP, why);
    count_failure(sweep, entry->job);
    set_why(sweep, index, why);
    return true;
}

/* Returns the number of decisions. */
static uint32_t decide(ls_controller *c, ls_sweep *sweep)
{
    ls_asha_decision *decisions = calloc(sweep->count, sizeof *decisions);
    ls_text why = {0};
    LS_ASSERT(decisions && "not enough memory for a sweep");
    const uint32_t count = ls_asha_decide(&sweep->asha, sweep->trials, sweep->count, decisions);
    for (uint32_t i = 0; i < count; i++) {
        ls_entry *entry = ls_controller_find(c, sweep->first + decisions[i].trial);
        LS_ASSERT(entry && "a paused job of a sweep is not in the queue");
        ls_text_clear(&why);
        (decisions[i].choice == LS_ASHA_GO_ON ? go_on : stop)(c, sweep, &decisions[i], entry, &why);
        set_why(sweep, decisions[i].trial, ls_text_string(&why));
        sweep->is_changed = true;
    }
    ls_text_release(&why);
    free(decisions);
    return count;
}

/* ---- the end ---- */

static void stop_all(ls_controller *c, ls_sweep *sweep)
{
    const char *text = json_string_value(sweep->text);
    for (uint32_t i = 0; i < sweep->count; i++) {
        ls_entry *entry = ls_controller_find(c, sweep->first + i);
        ls_job *job = entry ? entry->job : NULL;
        if (!job || ls_job_state_is_final(job->state) || job->cancelled) {
            continue;
        }
        job->cancelled = true;
        if (ls_job_state_is_waiting(job->state) && !job->handed_over) {
            ls_transitions_end(c, entry, LS_JOB_CANCELLED, LS_CAUSE_SWEEP, text);
        } else if (job->state == LS_JOB_RECOVERING) {
            ls_controller_move(c, entry, LS_JOB_RECOVERING, LS_CAUSE_SWEEP, text);
        } else {
            ls_transitions_stop(c, entry, LS_JOB_STOPPING, LS_CAUSE_SWEEP, text);
        }
    }
}

static void stop_if_hopeless(ls_controller *c, ls_sweep *sweep)
{
    if (sweep->failures_max == 0 || sweep->failed_alike < sweep->failures_max ||
        json_is_string(sweep->text)) {
        return;
    }
    const char *how = json_string_value(sweep->failure);
    json_decref(sweep->text);
    sweep->text = json_string(ls_arena_printf(
        &c->arena, "its sweep was stopped: %u jobs in a row failed alike (%s)%s", sweep->failed_alike,
        how[0] ? how : "without a message", "; asha.failures_max sets how many may"));
    sweep->is_changed = true;
    stop_all(c, sweep);
}

static void turn(ls_controller *c, ls_sweep *sweep)
{
    bool lives = false;
    for (uint32_t i = 0; i < sweep->count; i++) {
        ls_entry *entry = ls_controller_find(c, sweep->first + i);
        follow(c, sweep, i);
        if (entry && end_unmeasured(c, sweep, i, entry)) {
            sweep->is_changed = true;
        }
    }
    stop_if_hopeless(c, sweep);
    while (!json_is_string(sweep->text) && decide(c, sweep) > 0) {
    }
    for (uint32_t i = 0; i < sweep->count; i++) {
        follow(c, sweep, i); /* those that were just ended */
        lives =
            lives || sweep->trials[i].state == LS_TRIAL_ACTIVE || sweep->trials[i].state == LS_TRIAL_PAUSED;
    }
    if (!lives) {
        sweep->has_ended = sweep->is_changed = true;
    }
}

void ls_sweeps_decide(ls_controller *c)
{
    if (!c->sweeps_are_due || c->paused || c->is_going_down) {
        return;
    }
    for (uint32_t i = 0; i < c->sweep_count; i++) {
        if (!c->sweeps[i]->has_ended) {
            turn(c, c->sweeps[i]);
        }
    }
    c->sweeps_are_due = false;
}
