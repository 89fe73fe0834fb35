// SPDX-License-Identifier: Apache-2.0
#include "orchestration/simulate/summary.h"

#include "base/math.h"

#include <inttypes.h>
#include <math.h>

#define MS_PER_H 3.6e6

static const struct {
    const char *name;
    uint32_t most;
} sizes[LS_SIM_SIZES] = {{"1", 1}, {"2-4", 4}, {"5-8", 8}, {"9-16", 16}, {"17-64", 64}, {"65+", UINT32_MAX}};

static uint32_t size_of(uint32_t gpus)
{
    uint32_t size = 0;
    while (gpus > sizes[size].most) {
        size++;
    }
    return size;
}

/* ---- parts ---- */

static double wait_h(const ls_trace_job *spec, const ls_sim_job *job)
{
    return (double)(job->end_ms - spec->submit_ms - job->held_ms) / MS_PER_H;
}

/* Means and tails of the ended jobs for which `belongs` is true. */
static void sum_up(ls_arena *arena, const ls_sim_run *run,
                   bool (*belongs)(const ls_sim_run *, size_t, uint32_t), uint32_t which, ls_sim_part *part)
{
    const ls_trace *trace = run->trace;
    double *waits = ls_arena_new(arena, double, trace->job_count);
    double jct = 0.0, wait = 0.0, slowdown = 0.0;
    for (size_t i = 0; i < trace->job_count; i++) {
        const ls_sim_job *job = &run->jobs[i];
        if (job->end_ms == LS_SIM_NEVER || !belongs(run, i, which)) {
            continue;
        }
        const double jct_ms = (double)(job->end_ms - trace->jobs[i].submit_ms);
        waits[part->jobs++] = wait_h(&trace->jobs[i], job);
        jct += jct_ms / MS_PER_H;
        wait += wait_h(&trace->jobs[i], job);
        slowdown += jct_ms / (double)trace->jobs[i].run_ms;
        part->device_h += (double)job->held_device_ms / MS_PER_H;
    }
    if (part->jobs > 0) {
        const double count = (double)part->jobs;
        ls_sort_f64(waits, part->jobs);
        part->jct_h = jct / count;
        part->wait_h = wait / count;
        part->slowdown = slowdown / count;
        part->wait_p50_h = waits[part->jobs / 2];
        part->wait_p99_h = waits[(size_t)(0.99 * count)];
    }
}

static bool is_any(const ls_sim_run *run, size_t job, uint32_t which)
{
    (void)run, (void)job, (void)which;
    return true;
}

static bool is_of_size(const ls_sim_run *run, size_t job, uint32_t size)
{
    return size_of(run->trace->jobs[job].gpus) == size;
}

static bool is_of_group(const ls_sim_run *run, size_t job, uint32_t group)
{
    return run->group_of[run->trace->jobs[job].account] == group;
}

/* ---- fairness ---- */

/*
 * Max-min shares: a group that asks for less than an even share of the rest gets all it asks for.
 */
static void fair_shares(const double *asked, uint32_t count, double devices, double *fair)
{
    bool done[LS_SIM_GROUPS] = {false};
    uint32_t left = count;
    for (bool changed = true; changed && left > 0;) {
        const double even = devices / left;
        changed = false;
        for (uint32_t g = 0; g < count; g++) {
            if (!done[g] && asked[g] <= even) {
                fair[g] = asked[g];
                devices -= asked[g];
                done[g] = changed = true;
                left--;
            }
        }
    }
    for (uint32_t g = 0; g < count; g++) {
        fair[g] = done[g] ? fair[g] : devices / left;
    }
}

void ls_sim_fair_shares(const ls_sim_run *run, const ls_sim_state *mean, double *had, double *fair)
{
    double asked[LS_SIM_GROUPS];
    for (uint32_t g = 0; g < run->group_count; g++) {
        asked[g] = fmax(0.0, mean->group_allocated[g] + mean->group_wanted[g]);
        had[g] = mean->group_allocated[g];
    }
    fair_shares(asked, run->group_count, run->devices, fair);
}

/* The fairness of an interval; *weight_out: the sum of the fair shares. */
static double fairness_of(const ls_sim_run *run, const ls_sim_state *mean, double *weight_out)
{
    double had[LS_SIM_GROUPS], fair[LS_SIM_GROUPS], met = 0.0, sum = 0.0;
    ls_sim_fair_shares(run, mean, had, fair);
    for (uint32_t g = 0; g < run->group_count; g++) {
        met += fmin(had[g], fair[g]);
        sum += fair[g];
    }
    *weight_out = sum;
    return sum > 1e-9 ? met / sum : NAN;
}

static void sum_up_fairness(ls_arena *arena, ls_sim_summary *s)
{
    double *over = ls_arena_new(arena, double, s->run->bucket_count + 1);
    double sum = 0.0, weights = 0.0;
    for (size_t i = 0; i < s->run->bucket_count; i++) {
        const ls_sim_state mean = ls_sim_run_mean(s->run, i);
        double weight = 0.0;
        over[i] = fairness_of(s->run, &mean, &weight);
        if (isfinite(over[i])) {
            sum += weight * over[i];
            weights += weight;
        }
    }
    s->fair_over = over;
    s->fairness = weights > 0.0 ? sum / weights : 1.0;
}

/* ---- all of it ---- */

static void sum_up_totals(ls_sim_summary *s)
{
    const ls_sim_run *run = s->run;
    double held = 0.0, lost = 0.0;
    uint64_t last_ms = 0;
    for (size_t i = 0; i < run->trace->job_count; i++) {
        const ls_sim_job *job = &run->jobs[i];
        s->refused += job->refused;
        s->preemptions += job->preemptions;
        s->resizes += job->resizes;
        held += (double)job->held_device_ms;
        lost += (double)job->lost_device_ms;
        last_ms = job->end_ms != LS_SIM_NEVER && job->end_ms > last_ms ? job->end_ms : last_ms;
    }
    const double capacity = (double)run->devices * (double)last_ms;
    s->lost_device_h = lost / MS_PER_H;
    s->makespan_h = (double)last_ms / MS_PER_H;
    s->allocated = capacity > 0.0 ? held / capacity : 0.0;
    s->utilization = capacity > 0.0 ? (held - lost) / capacity : 0.0;
    s->short_h = run->short_ms / MS_PER_H;
    s->allocated_when_short =
        run->short_ms > 0.0 ? run->short_device_ms / (run->short_ms * run->devices) : 1.0;
}

void ls_sim_summarise(ls_arena *arena, const ls_sim_run *run, ls_sim_summary *summary_out)
{
    ls_sim_summary s = {.run = run, .all = {.name = "all"}};
    double *jcts = ls_arena_new(arena, double, run->trace->job_count);
    size_t ended = 0;
    for (size_t i = 0; i < run->trace->job_count; i++) {
        if (run->jobs[i].end_ms != LS_SIM_NEVER) {
            jcts[ended++] = (double)(run->jobs[i].end_ms - run->trace->jobs[i].submit_ms) / MS_PER_H;
        }
    }
    ls_sort_f64(jcts, ended);
    s.jcts_h = jcts;
    s.jct_p50_h = ended ? jcts[ended / 2] : 0.0;
    s.jct_p99_h = ended ? jcts[(size_t)(0.99 * (double)ended)] : 0.0;
    sum_up(arena, run, is_any, 0, &s.all);
    for (uint32_t i = 0; i < LS_SIM_SIZES; i++) {
        s.sizes[i].name = sizes[i].name;
        sum_up(arena, run, is_of_size, i, &s.sizes[i]);
    }
    for (uint32_t i = 0; i < run->group_count; i++) {
        s.groups[i].name = run->group_names[i];
        sum_up(arena, run, is_of_group, i, &s.groups[i]);
    }
    sum_up_totals(&s);
    sum_up_fairness(arena, &s);
    *summary_out = s;
}

/* ---- JSON ---- */

static json_t *part_json(const ls_sim_part *part, const char *key)
{
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", key, part->name, "jobs",
                     (json_int_t)part->jobs, "avg_jct_h", part->jct_h, "avg_wait_h", part->wait_h,
                     "p50_wait_h", part->wait_p50_h, "p99_wait_h", part->wait_p99_h, "gpu_h", part->device_h,
                     "avg_slowdown", part->slowdown);
}

static json_t *parts_json(const ls_sim_part *parts, size_t count, const char *key)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        if (parts[i].jobs > 0) {
            json_array_append_new(list, part_json(&parts[i], key));
        }
    }
    return list;
}

json_t *ls_sim_summary_json(const ls_sim_summary *s)
{
    const ls_sim_run *run = s->run;
    json_t *root = json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "trace", run->trace->name,
                             "format", ls_trace_format_name(run->trace->format), "policy", run->policy,
                             "pooled", run->pooled, "gpus", (json_int_t)run->devices, "jobs",
                             (json_int_t)s->all.jobs, "refused", (json_int_t)s->refused, "unfinished",
                             (json_int_t)run->unfinished, "left_out", (json_int_t)run->trace->left_out);
    json_object_set_new(root, "refused_why", run->refused_why ? json_string(run->refused_why) : json_null());
    json_t *numbers = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:I}",
        "avg_jct_h", s->all.jct_h, "avg_wait_h", s->all.wait_h, "p50_wait_h", s->all.wait_p50_h, "p99_wait_h",
        s->all.wait_p99_h, "p50_jct_h", s->jct_p50_h, "p99_jct_h", s->jct_p99_h, "avg_slowdown",
        s->all.slowdown, "makespan_h", s->makespan_h, "utilization", s->utilization, "allocated",
        s->allocated, "short_h", s->short_h, "allocated_when_short", s->allocated_when_short, "preemptions",
        (json_int_t)s->preemptions, "resizes", (json_int_t)s->resizes, "lost_gpu_h", s->lost_device_h,
        "fairness", s->fairness, "passes", (json_int_t)run->passes, "decisions", (json_int_t)run->decisions);
    json_object_update(root, numbers);
    json_decref(numbers);
    json_object_set_new(root, "by_size", parts_json(s->sizes, LS_SIM_SIZES, "gpus"));
    json_object_set_new(root, "by_account", parts_json(s->groups, run->group_count, "account"));
    return root;
}

/* ---- for people ---- */

static void append_parts(const ls_sim_part *parts, size_t count, const char *title, ls_text *text)
{
    ls_text_printf(text, "\n%-12s %8s %10s %10s %10s %12s %9s\n", title, "jobs", "JCT h", "wait h",
                   "p99 wait", "GPU-h", "slowdown");
    for (size_t i = 0; i < count; i++) {
        const ls_sim_part *p = &parts[i];
        if (p->jobs > 0) {
            ls_text_printf(text, "%-12.12s %8zu %10.2f %10.2f %10.1f %12.0f %8.1fx\n", p->name, p->jobs,
                           p->jct_h, p->wait_h, p->wait_p99_h, p->device_h, p->slowdown);
        }
    }
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

/* Decimals of a number of hours: more for small numbers, which would show as 0. */
static int digits(double hours, int usual)
{
    return hours > 0.0 && hours < 0.1 ? 4 : usual;
}

void ls_sim_summary_append(const ls_sim_summary *s, ls_text *text)
{
    const ls_sim_run *run = s->run;
    ls_text_printf(text, "%zu job%s on %u GPU%s%s, policy %s\n", s->all.jobs, plural(s->all.jobs),
                   run->devices, plural(run->devices), run->pooled ? " (pooled)" : "", run->policy);
    if (s->refused) {
        ls_text_printf(text, "%zu job%s refused; the first: %s\n", s->refused,
                       s->refused == 1 ? " was" : "s were", run->refused_why);
    }
    if (run->unfinished) {
        ls_text_printf(text, "%zu job%s did not end\n", run->unfinished, plural(run->unfinished));
    }
    if (run->trace->left_out) {
        ls_text_printf(text, "%zu row%s of the trace left out, because they %s\n", run->trace->left_out,
                       plural(run->trace->left_out), run->trace->left_out_why);
    }
    ls_text_printf(text, "\n  average JCT        %10.*f h   (half are done in %.*f h, 99 %% in %.*f h)\n",
                   digits(s->all.jct_h, 2), s->all.jct_h, digits(s->jct_p50_h, 2), s->jct_p50_h,
                   digits(s->jct_p99_h, 1), s->jct_p99_h);
    ls_text_printf(text, "  average wait       %10.*f h   (half wait %.*f h at most, 99 %% %.*f h)\n",
                   digits(s->all.wait_h, 2), s->all.wait_h, digits(s->all.wait_p50_h, 2), s->all.wait_p50_h,
                   digits(s->all.wait_p99_h, 1), s->all.wait_p99_h);
    ls_text_printf(text, "  makespan           %10.*f h\n", digits(s->makespan_h, 1), s->makespan_h);
    ls_text_printf(text, "  utilization        %10.1f %%\n", 100.0 * s->utilization);
    if (run->short_ms > 0.0) {
        ls_text_printf(
            text,
            "  allocated          %10.1f %%   of GPU-hours while the queue asked for more than was "
            "free (%.0f h)\n",
            100.0 * s->allocated_when_short, s->short_h);
    } else {
        ls_text_append(text,
                       "  allocated                       the queue never asked for more than was free\n");
    }
    if (!run->pooled) {
        ls_text_printf(
            text, "  preemptions        %10" PRIu64 "     resizes %" PRIu64 ", GPU-hours lost by both %.0f\n",
            s->preemptions, s->resizes, s->lost_device_h);
    }
    ls_text_printf(text, "  fairness           %10.3f     the part of their fair shares that accounts had\n",
                   s->fairness);
    append_parts(s->sizes, LS_SIM_SIZES, "GPUs", text);
    if (run->group_count > 1) {
        append_parts(s->groups, run->group_count, "account", text);
    }
}

/* ---- jobs ---- */

/* Names come from a file and are quoted where CSV needs it. */
static void append_cell(const char *cell, ls_text *text)
{
    bool plain = true;
    for (const char *c = cell; *c; c++) {
        plain = plain && *c != ',' && *c != '"' && *c != '\n' && *c != '\r' && *c != '#';
    }
    if (plain && cell[0] != ' ') {
        ls_text_append(text, cell);
        return;
    }
    ls_text_append(text, "\"");
    for (const char *c = cell; *c; c++) {
        ls_text_append_bytes(text, c, 1);
        if (*c == '"') {
            ls_text_append(text, "\"");
        }
    }
    ls_text_append(text, "\"");
}

void ls_sim_jobs_append(const ls_sim_run *run, ls_text *text)
{
    ls_text_append(text,
                   "job,account,gpus,submit_s,duration_s,start_s,end_s,jct_s,wait_s,held_gpu_s,lost_gpu_s,"
                   "preemptions,resizes,state\n");
    for (size_t i = 0; i < run->trace->job_count; i++) {
        const ls_trace_job *spec = &run->trace->jobs[i];
        const ls_sim_job *job = &run->jobs[i];
        const bool ended = job->end_ms != LS_SIM_NEVER, started = job->first_start_ms != LS_SIM_NEVER;
        append_cell(spec->name, text);
        ls_text_append(text, ",");
        append_cell(run->trace->accounts[spec->account], text);
        ls_text_printf(text, ",%u,%.3f,%.3f,", spec->gpus, 1e-3 * (double)spec->submit_ms,
                       1e-3 * (double)spec->run_ms);
        if (started) {
            ls_text_printf(text, "%.3f", 1e-3 * (double)job->first_start_ms);
        }
        ls_text_append(text, ",");
        if (ended) {
            ls_text_printf(text, "%.3f,%.3f,%.3f", 1e-3 * (double)job->end_ms,
                           1e-3 * (double)(job->end_ms - spec->submit_ms), 3600.0 * wait_h(spec, job));
        } else {
            ls_text_append(text, ",,");
        }
        ls_text_printf(text, ",%.3f,%.3f,%u,%u,%s\n", 1e-3 * (double)job->held_device_ms,
                       1e-3 * (double)job->lost_device_ms, job->preemptions, job->resizes,
                       job->refused ? "refused"
                       : ended      ? "ended"
                       : started    ? "running"
                                    : "waiting");
    }
}
