// SPDX-License-Identifier: Apache-2.0
/*
 * Predictions about jobs: when they will start and end, and how good these predictions were.
 *
 *   left     how long a job will still run, from its own steps (LS_ENGINE_PROGRESS). The policy
 *            uses it for reservations, for backfilling and in `why`
 *   start    of a waiting job: the first start that the policy can name
 *   end      of an epoch: the first end that follows from its steps
 *
 * Start and end are kept in the job's record with the time when they were predicted and the time
 * when they came, so that everybody can see how far to trust them.
 */
#include "orchestration/control/answers.h"

#include "base/assert.h"
#include "base/math.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { STARTS_PER_TURN = 8 }; /* each costs one ls_policy_why */

#define LEFT_MAX_S  1e9 /* longer times, and NaN, count as this */
#define SPAN_MIN_S  1.0 /* shorter spans say nothing about how good a prediction was */
#define SAY_AGAIN_S 1.0 /* pause before a start that was not known is asked for again */

/* ---- the plan ---- */

static double no_longer(double left_s)
{
    return fmin(LEFT_MAX_S, left_s); /* also for NaN */
}

void ls_foresight_plan(const ls_controller *c, ls_job *job)
{
    /* the machines of an engine that decides are not the one that was measured */
    if (c->policy && c->calls.foresee) {
        c->calls.foresee(c->calls.context, job);
        job->plan.run_s = no_longer(job->plan.run_s);
        job->left_s = job->plan.run_s;
        job->left_at_s = c->time_s;
    }
}

uint32_t ls_foresight_speed(const ls_job *job, uint32_t ranks)
{
    const uint32_t min = job->spec.min_ranks;
    return ranks >= min && ranks - min < job->plan.curve_count ? job->plan.curve[ranks - min] : 0;
}

/* Converts the time left to `after` ranks instead of `before`, as of now. */
void ls_foresight_resized(const ls_controller *c, ls_job *job, uint32_t before, uint32_t after)
{
    const uint32_t speed = ls_foresight_speed(job, before), speed_now = ls_foresight_speed(job, after);
    if (job->left_s > 0.0) {
        const double left_s = fmax(1e-3, job->left_s - fmax(0.0, c->time_s - job->left_at_s));
        job->left_s = no_longer(speed > 0 && speed_now > 0 ? left_s * speed / speed_now : left_s);
        job->left_at_s = c->time_s;
    }
}

/* ---- progress ---- */

void ls_foresight_progress(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    const bool is_new = report->step != job->step;
    job->step = report->step;
    job->steps = report->steps;
    if (!(report->left_s > 0.0)) {
        if (is_new) {
            ls_alerts_stepped(c, entry);
        }
        return;
    }
    job->left_s = no_longer(report->left_s);
    job->left_at_s = c->time_s;
    if (is_new) {
        ls_alerts_stepped(c, entry);
    }
    ls_job_foresight *seen = &job->foresight;
    if (seen->end_said_s <= 0.0) {
        seen->end_s = c->time_s + job->left_s;
        seen->end_said_s = c->time_s;
        ls_controller_touch(c, entry);
    }
    ls_foresight_tell(c, entry);
}

void ls_foresight_tell(ls_controller *c, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    if (!c->policy || !entry->in_policy || job->left_s <= 0.0) {
        return;
    }
    const double passed_s = ls_job_has_devices(job) ? fmax(0.0, c->time_s - job->left_at_s) : 0.0;
    const uint64_t left_ms = ls_controller_ms(fmax(1e-3, job->left_s - passed_s));
    LS_ASSERT(ls_policy_progress(c->policy, ls_controller_ms(c->time_s), job->id, left_ms) == LS_OK);
}

/* ---- starts and ends ---- */

void ls_foresight_began(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    ls_job_foresight *seen = &job->foresight;
    job->left_at_s = c->time_s; /* it made no progress while it waited */
    ls_foresight_resized(c, job, job->ranks, job->ranks_now);
    seen->end_s = seen->end_said_s = 0.0;
    if (seen->started_s <= 0.0) {
        seen->started_s = c->time_s;
    }
}

void ls_foresight_ended(ls_entry *entry)
{
    ls_job *job = entry->job;
    if (job->state == LS_JOB_SUCCEEDED) { /* the last report may be from before its last step */
        job->step = job->steps;
    }
}

/* After a pass: records starts that can be named now and could not before. Each turn continues
 * after the last job that was asked about, by number, so that every job has its turn. */
void ls_foresight_starts(ls_controller *c)
{
    uint32_t asked = 0, first = 0;
    while (first < c->entry_count && c->entries[first]->job->id <= c->start_asked) {
        first++;
    }
    for (uint32_t i = 0; i < c->entry_count && asked < STARTS_PER_TURN; i++) {
        ls_entry *entry = c->entries[(first + i) % c->entry_count];
        ls_job_foresight *seen = &entry->job->foresight;
        if (entry->job->state != LS_JOB_QUEUED || seen->start_said_s > 0.0 || seen->started_s > 0.0 ||
            entry->say_again_s > c->time_s) {
            continue;
        }
        ls_why why;
        asked++;
        c->start_asked = entry->job->id;
        entry->say_again_s = c->time_s + SAY_AGAIN_S;
        if (ls_policy_why(c->policy, ls_controller_ms(c->time_s), entry->job->id, &why) == LS_OK &&
            why.eta_ms > 0) {
            seen->start_s = fmax(c->time_s, 1e-3 * (double)why.eta_ms);
            seen->start_said_s = c->time_s;
            ls_controller_touch(c, entry);
        }
    }
}

double ls_foresight_end_s(const ls_job *job)
{
    const double limit_s = job->spec.time_limit_s;
    double end_s = INFINITY;
    if (!ls_job_has_devices(job)) {
        return 0.0;
    }
    if (job->left_s > 0.0) {
        end_s = job->left_at_s + job->left_s;
    }
    if (limit_s > 0.0 && job->started_s > 0.0) {
        end_s = fmin(end_s, job->started_s + fmax(0.0, limit_s - job->run_s));
    }
    return isinf(end_s) ? 0.0 : end_s;
}

const char *ls_foresight_source(const ls_job *job)
{
    const double limit_s = job->spec.time_limit_s, end_s = ls_foresight_end_s(job);
    if (end_s <= 0.0) {
        return NULL;
    }
    if (job->left_s <= 0.0 || end_s < job->left_at_s + job->left_s) {
        return limit_s > 0.0 ? "limit" : NULL;
    }
    return job->foresight.end_said_s > 0.0 ? "steps" : "plan";
}

/* ---- as JSON ---- */

void ls_foresight_add(const ls_job *job, json_t *item)
{
    json_object_set_new(item, "ends", ls_answers_time(ls_foresight_end_s(job)));
    const char *source = ls_foresight_source(job);
    json_object_set_new(item, "ends_from", source ? json_string(source) : json_null());
    json_object_set_new(item, "step", job->step > 0 ? json_integer((json_int_t)job->step) : json_null());
    json_object_set_new(item, "steps", job->steps > 0 ? json_integer((json_int_t)job->steps) : json_null());
}

json_t *ls_foresight_json(const ls_job *job)
{
    const ls_job_foresight *seen = &job->foresight;
    json_t *plan = json_null();
    if (job->plan.curve_count > 0) {
        json_t *curve = json_object();
        for (uint32_t i = 0; i < job->plan.curve_count; i++) {
            char ranks[16];
            snprintf(ranks, sizeof ranks, "%u", job->spec.min_ranks + i);
            json_object_set_new(curve, ranks, json_real(1e-3 * job->plan.curve[i]));
        }
        plan = json_pack("{s:o, s:o, s:s}", "run_s", ls_answers_time(job->plan.run_s), "speeds", curve,
                         "source", job->plan.source);
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "plan", plan, "start",
                     ls_answers_time(seen->start_s), "start_said", ls_answers_time(seen->start_said_s),
                     "started", ls_answers_time(seen->started_s), "end", ls_answers_time(seen->end_s),
                     "end_said", ls_answers_time(seen->end_said_s), "ended", ls_answers_time(job->ended_s));
}

/* ---- how right it was ---- */

typedef struct errors {
    double *errors_s, *ratios;
    uint32_t count, ratio_count;
} errors;

static void add(errors *list, double said_s, double foreseen_s, double happened_s)
{
    const double wanted_s = foreseen_s - said_s, was_s = happened_s - said_s;
    list->errors_s[list->count++] = fabs(was_s - wanted_s);
    if (wanted_s >= SPAN_MIN_S) {
        list->ratios[list->ratio_count++] = was_s / wanted_s;
    }
}

static json_t *median(double *values, uint32_t count)
{
    if (count == 0) {
        return json_null();
    }
    ls_sort_f64(values, count);
    return json_real(values[count / 2]);
}

static json_t *summary(const errors *list)
{
    return json_pack("{s:i, s:o, s:o}", "count", (int)list->count, "error_median_s",
                     median(list->errors_s, list->count), "ratio_median",
                     median(list->ratios, list->ratio_count));
}

json_t *ls_foresight_summary(const ls_controller *c)
{
    double *room = calloc(6 * ((size_t)c->entry_count + 1), sizeof *room);
    LS_ASSERT(room && "not enough memory for a summary");
    const size_t each = (size_t)c->entry_count + 1;
    errors starts = {.errors_s = room, .ratios = room + each};
    errors ends = {.errors_s = room + 2 * each, .ratios = room + 3 * each};
    errors plans = {.errors_s = room + 4 * each, .ratios = room + 5 * each};
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        const ls_job_foresight *seen = &job->foresight;
        if (seen->start_said_s > 0.0 && seen->started_s > 0.0) {
            add(&starts, seen->start_said_s, seen->start_s, seen->started_s);
        }
        /* other ends cannot be predicted */
        if (seen->end_said_s > 0.0 && job->state == LS_JOB_SUCCEEDED) {
            add(&ends, seen->end_said_s, seen->end_s, job->ended_s);
        }
        if (job->plan.run_s > 0.0 && job->state == LS_JOB_SUCCEEDED && job->epoch == 1) {
            add(&plans, job->started_s, job->started_s + job->plan.run_s, job->ended_s);
        }
    }
    json_t *all = json_pack("{s:o, s:o, s:o}", "starts", summary(&starts), "ends", summary(&ends), "plans",
                            summary(&plans));
    free(room);
    return all;
}
