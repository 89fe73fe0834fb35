// SPDX-License-Identifier: Apache-2.0
/* simulate: replays a trace of jobs on a cluster under a policy and prints how long jobs would have
 * taken and waited. */
#include "cli/command.h"

#include "base/clock.h"
#include "base/file.h"
#include "orchestration/simulate/cluster.h"
#include "orchestration/simulate/pooled.h"
#include "orchestration/simulate/simulation_page.h"
#include "orchestration/simulate/simulator.h"
#include "orchestration/simulate/summary.h"

#include <stdio.h>
#include <unistd.h>

/* Settings of the policy that can be changed; auto: the defaults of the daemon. */
typedef struct policy_tuning {
    bool preempt, elastic;
    double min_run, preemption_window, half_life, age_max, patience, resize_pause;
    uint64_t reservations, preemptions, weight_priority, weight_fair, weight_age, weight_size, resize_gain;
    ls_option_strings las_hours;
} policy_tuning;

typedef struct simulate_settings {
    const char *cluster, *policy, *jobs, *html;
    int format; /* an ls_trace_format */
    bool pooled, json;
    double restart_cost, start_cost;
    policy_tuning tune;
} simulate_settings;

static const char *const format_names[] = {"auto", "own", "philly", "alibaba", NULL};

#define TUNE(name, type, default_, text, ...)                                                                \
    LS_ROW(simulate_settings, "tune." #name, tune.name, type, default_, text, __VA_ARGS__)
#define TUNE_TIME(name, text)                                                                                \
    TUNE(name, LS_OPTION_DURATION, "auto", text, .min = 0, .max = 3e9, .allow_auto = true)
#define TUNE_COUNT(name, most, text)                                                                         \
    TUNE(name, LS_OPTION_U64, "auto", text, .min = 0, .max = most, .allow_auto = true)

static const ls_option simulate_options[] = {
    LS_ROW_TEXT(simulate_settings, cluster, "SPEC",
                "cluster to simulate: NODESxGPUS such as 64x8, or a YAML file"),
    LS_ROW_TEXT_OR(
        simulate_settings, policy, "fair", "NAME",
        "scheduling policy: fair, las, fifo, fifo-skip, easy or sjf-oracle; with --pooled also small-first"),
    LS_ROW_BOOL(simulate_settings, pooled,
                "simulate all GPUs as one pool without nodes, and let the policy know all run times in "
                "advance: an idealized result to compare with"),
    LS_ROW_DURATION(simulate_settings, restart_cost, restart_cost, "60s", 0, 1e6,
                    "time that each restart or resize of a job takes; the job holds its devices meanwhile "
                    "without progress"),
    LS_ROW_DURATION(
        simulate_settings, start_cost, start_cost, "0s", 0, 1e6,
        "time that the first start of a job takes; the job holds its devices meanwhile without progress"),
    LS_ROW_CHOICE(simulate_settings, format, "auto", format_names,
                  "format of the trace file; auto: recognized by its columns"),
    LS_ROW_TEXT(simulate_settings, jobs, "FILE",
                "CSV file to write the results of the simulation to, one line per job"),
    LS_ROW_TEXT(simulate_settings, html, "FILE",
                "HTML file to write a page with charts of the simulation to"),
    LS_ROW_JSON(simulate_settings),
    TUNE(preempt, LS_OPTION_BOOL, "true",
         "allow jobs to be stopped to make room for other jobs (preemption)"),
    TUNE(elastic, LS_OPTION_BOOL, "true",
         "allow elastic jobs to change their number of devices while they run"),
    TUNE_TIME(min_run, "minimum run time before a job may be preempted"),
    TUNE_COUNT(preemptions, 1e9, "maximum number of preemptions of one job within tune.preemption-window"),
    TUNE_TIME(preemption_window,
              "length of the time window for which tune.preemptions limits the preemptions of one job"),
    TUNE_COUNT(reservations, LS_RESERVATIONS_MAX,
               "number of jobs at the head of the queue that other jobs may overtake only if that does not "
               "delay them"),
    TUNE(las_hours, LS_OPTION_STRINGS, "[]",
         "for policy las: GPU-hours after which a job moves to the queue of the next lower priority; "
         "may be repeated, with rising values",
         .value_name = "N"),
    TUNE_TIME(half_life, "time after which past usage of an account counts half as much in its fair share"),
    TUNE_TIME(age_max, "waiting time after which the age of a job raises its place in the queue no further"),
    TUNE_TIME(patience, "waiting time of a job after which devices are kept free for it"),
    TUNE_TIME(resize_pause, "minimum time between two resizes of an elastic job"),
    TUNE_COUNT(
        resize_gain, 1000000,
        "minimum speed-up, in thousandths (100 means a tenth), for which an elastic job gets more devices"),
    TUNE_COUNT(weight_priority, 1e9, "weight of a job's priority in the order of the queue"),
    TUNE_COUNT(weight_fair, 1e9, "weight of the fair share of a job's account in the order of the queue"),
    TUNE_COUNT(weight_age, 1e9, "weight of a job's waiting time in the order of the queue"),
    TUNE_COUNT(weight_size, 1e9, "weight of a job's size in the order of the queue"),
};
static const ls_option_section simulate_sections[] = {
    {"tune", "settings of the policy; auto: the daemon's default"}};
static const ls_option_table simulate_table = {.options = simulate_options,
                                               .count = sizeof simulate_options / sizeof simulate_options[0],
                                               .sections = simulate_sections,
                                               .section_count = 1};

/* ---- the policy ---- */

static void set_ms(double seconds, uint64_t *ms)
{
    *ms = seconds == LS_AUTO_F64 ? *ms : (uint64_t)(1000.0 * seconds);
}

static void set_count(uint64_t count, uint32_t *to)
{
    *to = count == LS_AUTO_U64 ? *to : (uint32_t)count;
}

static ls_status set_queues(const ls_option_strings *hours, uint64_t *thresholds)
{
    double before = 0.0;
    if (hours->count > LS_LAS_QUEUES_MAX) {
        return ls_fail(LS_ERR_INVALID, "--tune.las-hours has %llu values; at most %d are allowed",
                       (unsigned long long)hours->count, LS_LAS_QUEUES_MAX);
    }
    for (uint64_t i = 0; i < LS_LAS_QUEUES_MAX && hours->count > 0; i++) {
        char *end = NULL;
        const double value = i < hours->count ? strtod(hours->items[i], &end) : 0.0;
        if (i < hours->count && (*end || !(value > before) || value > 1e9)) {
            return ls_fail(
                LS_ERR_INVALID,
                "--tune.las-hours is '%.40s' after %g; each value must be greater than the one before",
                hours->items[i], before);
        }
        thresholds[i] = (uint64_t)(value * 3.6e6);
        before = value;
    }
    return LS_OK;
}

static ls_status read_policy(const simulate_settings *settings, ls_policy_settings *policy)
{
    const policy_tuning *tune = &settings->tune;
    *policy = ls_policy_settings_default();
    LS_TRY(ls_order_parse(settings->policy, &policy->order));
    policy->preempt = tune->preempt && (policy->order == LS_ORDER_FAIR || policy->order == LS_ORDER_LAS);
    policy->elastic = tune->elastic && policy->order == LS_ORDER_FAIR;
    set_ms(tune->min_run, &policy->min_run_ms);
    set_ms(tune->preemption_window, &policy->preemption_window_ms);
    set_ms(tune->half_life, &policy->half_life_ms);
    set_ms(tune->age_max, &policy->age_max_ms);
    set_ms(tune->patience, &policy->patience_ms);
    set_ms(tune->resize_pause, &policy->resize_pause_ms);
    set_count(tune->reservations, &policy->reservations);
    set_count(tune->preemptions, &policy->preemptions_max);
    set_count(tune->weight_priority, &policy->weight_priority);
    set_count(tune->weight_fair, &policy->weight_fair);
    set_count(tune->weight_age, &policy->weight_age);
    set_count(tune->weight_size, &policy->weight_size);
    set_count(tune->resize_gain, &policy->resize_gain_permille);
    return set_queues(&tune->las_hours, policy->las_thresholds_device_ms);
}

/* ---- progress ---- */

typedef struct progress_line {
    double shown_s;
    bool any;
} progress_line;

static void show_progress(void *context, const ls_sim_run *run, size_t ended)
{
    progress_line *line = context;
    const double now_s = ls_clock_monotonic_s();
    if (now_s - line->shown_s >= 0.2) {
        line->shown_s = now_s;
        line->any = true;
        fprintf(stderr, "\r%zu of %zu jobs done, day %.1f, %.0f wait, %.0f %% of GPUs taken   ", ended,
                run->trace->job_count, (double)run->now_ms / 86.4e6, run->now.waiting,
                100.0 * run->now.allocated / run->devices);
        fflush(stderr);
    }
}

/* ---- running ---- */

static ls_status simulate(const ls_invocation *invocation, const ls_trace *trace,
                          const ls_policy_cluster *cluster, ls_sim_run *run)
{
    const simulate_settings *settings = invocation->settings;
    ls_pooled_policy pooled;
    if (settings->pooled) {
        LS_TRY(ls_pooled_policy_parse(settings->policy, &pooled));
        ls_pooled_run(invocation->arena, trace, ls_cluster_devices(cluster), pooled, run);
        return LS_OK;
    }
    progress_line line = {.shown_s = ls_clock_monotonic_s()};
    ls_simulator_options options = {.start_cost_ms = (uint64_t)(1000.0 * settings->start_cost),
                                    .restart_cost_ms = (uint64_t)(1000.0 * settings->restart_cost),
                                    .hosts_known = !ls_cluster_spec_is_plain(settings->cluster),
                                    .progress = isatty(STDERR_FILENO) ? show_progress : NULL,
                                    .context = &line};
    LS_TRY(read_policy(settings, &options.settings));
    const ls_status status = ls_simulator_run(invocation->arena, trace, cluster, &options, run);
    if (line.any) {
        fputs("\r\033[K", stderr);
    }
    return status;
}

static ls_status write_text(const char *path, const ls_text *text)
{
    return ls_file_write_atomic(path, ls_text_string(text), text->bytes);
}

static ls_status write_files(const ls_invocation *invocation, const ls_sim_summary *summary)
{
    const simulate_settings *settings = invocation->settings;
    ls_status status = LS_OK;
    ls_text text = {0};
    if (settings->jobs[0]) {
        ls_sim_jobs_append(summary->run, &text);
        status = write_text(settings->jobs, &text);
    }
    if (settings->html[0] && status == LS_OK) {
        const char *command = ls_arena_printf(
            invocation->arena, "lockstep simulate %s --cluster %s --policy %s%s", invocation->words[0],
            settings->cluster, settings->policy, settings->pooled ? " --pooled" : "");
        ls_text_clear(&text);
        ls_sim_page_append(summary, command, &text);
        status = write_text(settings->html, &text);
    }
    ls_text_release(&text);
    return status;
}

static void print_summary(const simulate_settings *settings, const ls_sim_summary *summary, double wall_s)
{
    if (settings->json) {
        json_t *root = ls_sim_summary_json(summary);
        json_object_set_new(root, "wall_s", json_real(wall_s));
        ls_print_json(root);
        json_decref(root);
        return;
    }
    ls_text text = {0};
    ls_sim_summary_append(summary, &text);
    ls_text_printf(&text, "\nsimulated in %.2f s\n", wall_s);
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
}

static ls_status run_simulate(const ls_invocation *invocation)
{
    const simulate_settings *settings = invocation->settings;
    ls_trace trace;
    ls_policy_cluster cluster;
    ls_sim_run run;
    ls_sim_summary summary;
    const double start_s = ls_clock_monotonic_s();
    if (!settings->cluster[0]) {
        return ls_fail(LS_ERR_INVALID, "missing --cluster: give NODESxGPUS such as 64x8, or a YAML file");
    }
    LS_TRY(ls_cluster_parse(invocation->arena, settings->cluster, &cluster));
    LS_TRY(ls_trace_load(invocation->arena, invocation->words[0], (ls_trace_format)settings->format, &trace));
    LS_TRY(simulate(invocation, &trace, &cluster, &run));
    ls_sim_summarise(invocation->arena, &run, &summary);
    if (summary.refused == trace.job_count) {
        return ls_fail(LS_ERR_INVALID,
                       "cluster %s cannot run any of the %zu jobs of %s; the reason for the first one: %s",
                       settings->cluster, trace.job_count, invocation->words[0], run.refused_why);
    }
    LS_TRY(write_files(invocation, &summary));
    print_summary(settings, &summary, ls_clock_monotonic_s() - start_s);
    return LS_OK;
}

const ls_command ls_command_simulate = {
    .name = "simulate",
    LS_WORDS("TRACE", 1, 1),
    .summary = "replay a trace of jobs on a cluster under a policy",
    .details = "Prints how long the jobs of TRACE would have taken and waited on the cluster\n"
               "under the policy. docs/orchestration.md explains the policies and the numbers.\n"
               "TRACE is a CSV file in one of several formats, recognized by its columns: Philly\n"
               "(processed), Alibaba 2023, or Lockstep's own. The columns of the own format, of\n"
               "which the first three are required, with times in seconds:\n" LS_TRACE_OWN_COLUMNS "\n"
               "Example:\n"
               "  lockstep simulate trace.csv --cluster 64x8 --html simulation.html",
    .options = &simulate_table,
    .settings_bytes = sizeof(simulate_settings),
    .run = run_simulate,
};
