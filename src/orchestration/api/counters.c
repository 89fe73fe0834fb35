// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/counters.h"

#include <inttypes.h>

static const double wait_bounds_s[LS_API_BUCKETS] = {0.1, 1, 10, 60, 300, 1800, 7200, 28800, 86400, 604800};
static const double turn_bounds_s[LS_API_BUCKETS] = {0.0005, 0.001, 0.002, 0.005, 0.01,
                                                     0.02,   0.05,  0.1,   0.5,   2};

static void observe(ls_api_histogram *histogram, const double bounds[LS_API_BUCKETS], double value)
{
    size_t bucket = 0;
    while (bucket < LS_API_BUCKETS && value > bounds[bucket]) {
        bucket++;
    }
    histogram->counts[bucket]++;
    histogram->sum += value > 0.0 ? value : 0.0;
}

void ls_api_counters_tell(ls_api_counters *c, const ls_transition *t, const ls_job *job)
{
    c->succeeded += t->to == LS_JOB_SUCCEEDED;
    c->failed += t->to == LS_JOB_FAILED;
    c->cancelled += t->to == LS_JOB_CANCELLED;
    c->preempted += t->to == LS_JOB_PREEMPTING;
    c->lost += t->cause == LS_CAUSE_LOST;
    const bool starts =
        ls_job_state_is_waiting(t->from) && !ls_job_state_is_waiting(t->to) && !ls_job_state_is_final(t->to);
    c->started += starts;
    if (starts && job->epoch <= 1) {
        observe(&c->wait_s, wait_bounds_s, t->time_s - job->submitted_s);
    }
}

void ls_api_counters_turn(ls_api_counters *c, double seconds)
{
    observe(&c->turn_s, turn_bounds_s, seconds);
}

static void append_counter(ls_text *text, const char *name, const char *help, uint64_t value)
{
    ls_text_printf(text, "# HELP %s %s\n# TYPE %s counter\n%s %" PRIu64 "\n", name, help, name, name, value);
}

static void append_histogram(ls_text *text, const char *name, const char *help,
                             const ls_api_histogram *histogram, const double bounds[LS_API_BUCKETS])
{
    uint64_t count = 0;
    ls_text_printf(text, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (size_t i = 0; i < LS_API_BUCKETS; i++) {
        count += histogram->counts[i];
        ls_text_printf(text, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], count);
    }
    count += histogram->counts[LS_API_BUCKETS];
    ls_text_printf(text, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum ", name, count, name);
    ls_text_append_f64(text, histogram->sum);
    ls_text_printf(text, "\n%s_count %" PRIu64 "\n", name, count);
}

void ls_api_counters_append(const ls_api_counters *c, ls_text *text)
{
    static const char ended[] = "lockstep_jobs_ended_total";
    ls_text_printf(text,
                   "# HELP %s Jobs that ended since the daemon started, by outcome.\n# TYPE %s counter\n"
                   "%s{outcome=\"succeeded\"} %" PRIu64 "\n%s{outcome=\"failed\"} %" PRIu64
                   "\n%s{outcome=\"cancelled\"} %" PRIu64 "\n",
                   ended, ended, ended, c->succeeded, ended, c->failed, ended, c->cancelled);
    append_counter(text, "lockstep_job_starts_total",
                   "Starts of jobs; a job that is started again counts again.", c->started);
    append_counter(text, "lockstep_job_preemptions_total", "Times a job was stopped for another.",
                   c->preempted);
    append_counter(text, "lockstep_job_losses_total", "Times a job lost its processes or its machine.",
                   c->lost);
    append_histogram(text, "lockstep_job_wait_seconds",
                     "Time from the submission of a job to its first start.", &c->wait_s, wait_bounds_s);
    append_histogram(text, "lockstep_turn_seconds",
                     "Duration of a turn of the daemon: policy, transaction, orders and answers.", &c->turn_s,
                     turn_bounds_s);
}
