// SPDX-License-Identifier: Apache-2.0
#include "orchestration/simulate/simulator.h"

#include "base/assert.h"
#include "orchestration/simulate/cluster.h"

#include <string.h>

enum { NOWHERE = UINT32_MAX, PASSES_MOST = 64, PROGRESS_EVENTS = 1024 };

/* What a job does, besides what ls_sim_job records. */
typedef struct progress {
    /* run time of the whole job as it is placed now, or was last; 0: it was never placed */
    uint64_t run_ms;
    uint64_t left_ms;  /* of run_ms */
    uint64_t lost_ms;  /* time of this stretch that is lost before it makes progress */
    uint64_t since_ms; /* start of this stretch */
    uint64_t end_ms;
    uint32_t ranks;   /* 0: it waits */
    uint32_t heap_at; /* its place in the heap of ends */
} progress;

typedef struct simulator {
    ls_arena *arena;
    const ls_trace *trace;
    const ls_policy_cluster *cluster;
    const ls_simulator_options *options;
    ls_sim_run *run;
    ls_policy *policy;
    progress *jobs;
    /* running jobs, a heap with the earliest end at the root; equal ends by number */
    uint32_t *heap;
    uint32_t running;
    uint32_t devices_per_node;
    size_t ended;
    uint64_t now_ms, events;
} simulator;

/* ---- endings ---- */

static bool ends_before(const simulator *s, uint32_t a, uint32_t b)
{
    return s->jobs[a].end_ms != s->jobs[b].end_ms ? s->jobs[a].end_ms < s->jobs[b].end_ms : a < b;
}

static void heap_set(simulator *s, uint32_t at, uint32_t job)
{
    s->heap[at] = job;
    s->jobs[job].heap_at = at;
}

/* Moves the job at a place of the heap to where it belongs. */
static void heap_settle(simulator *s, uint32_t at)
{
    const uint32_t job = s->heap[at];
    while (at > 0 && ends_before(s, job, s->heap[(at - 1) / 2])) {
        heap_set(s, at, s->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < s->running && ends_before(s, s->heap[child + 1], s->heap[child])) {
            child++;
        }
        if (child >= s->running || !ends_before(s, s->heap[child], job)) {
            break;
        }
        heap_set(s, at, s->heap[child]);
        at = child;
    }
    heap_set(s, at, job);
}

static void heap_add(simulator *s, uint32_t job)
{
    s->heap[s->running] = job;
    heap_settle(s, s->running++);
}

static void heap_drop(simulator *s, uint32_t job)
{
    const uint32_t at = s->jobs[job].heap_at;
    s->jobs[job].heap_at = NOWHERE;
    if (at != --s->running) {
        s->heap[at] = s->heap[s->running];
        heap_settle(s, at);
    }
}

/* ---- stretches: times with the same devices ---- */

static void begin_stretch(simulator *s, uint32_t job, uint32_t ranks, uint32_t nodes, uint64_t lost_ms)
{
    const ls_trace_job *spec = &s->trace->jobs[job];
    progress *p = &s->jobs[job];
    const uint64_t run_ms = ls_trace_job_run_ms(spec, ranks, nodes);
    if (p->run_ms == 0) {
        p->left_ms = run_ms;
    } else if (p->run_ms != run_ms) {
        const unsigned __int128 left = (unsigned __int128)p->left_ms * run_ms;
        p->left_ms = (uint64_t)((left + p->run_ms - 1) / p->run_ms);
    }
    p->run_ms = run_ms;
    p->lost_ms = lost_ms;
    p->since_ms = s->now_ms;
    p->end_ms = s->now_ms + lost_ms + p->left_ms;
    p->ranks = ranks;
    ls_sim_run_runs(s->run, spec, ranks, 1);
    heap_add(s, job);
}

static void end_stretch(simulator *s, uint32_t job)
{
    progress *p = &s->jobs[job];
    ls_sim_job *record = &s->run->jobs[job];
    const uint64_t held_ms = s->now_ms - p->since_ms;
    const uint64_t lost_ms = held_ms < p->lost_ms ? held_ms : p->lost_ms;
    record->held_ms += held_ms;
    record->held_device_ms += held_ms * p->ranks;
    record->lost_device_ms += lost_ms * p->ranks;
    p->left_ms -= held_ms - lost_ms;
    ls_sim_run_runs(s->run, &s->trace->jobs[job], p->ranks, -1);
    heap_drop(s, job);
    p->ranks = 0;
}

static void end_job(simulator *s, uint32_t job)
{
    end_stretch(s, job);
    s->run->jobs[job].end_ms = s->now_ms;
    s->ended++;
}

/* ---- submission ---- */

/* For the policy: throughput at each size relative to that on the fewest GPUs. */
static uint32_t gains_of(const simulator *s, const ls_trace_job *spec, uint32_t *gains)
{
    uint32_t count = 0;
    const uint32_t per_node = s->devices_per_node;
    const uint64_t slowest_ms =
        ls_trace_job_run_ms(spec, spec->min_gpus, (spec->min_gpus + per_node - 1) / per_node);
    for (uint32_t gpus = spec->min_gpus; gpus <= spec->max_gpus && count < LS_GAINS_MAX; gpus++) {
        const uint64_t ms = ls_trace_job_run_ms(spec, gpus, (gpus + per_node - 1) / per_node);
        const uint64_t gain = 1000 * slowest_ms / ms;
        gains[count++] = gain > 0 ? (uint32_t)gain : 1;
    }
    return count;
}

static ls_policy_job policy_job(const simulator *s, uint32_t job, uint32_t *gains)
{
    const ls_trace_job *spec = &s->trace->jobs[job];
    const bool oracle =
        s->options->settings.order == LS_ORDER_SJF_ORACLE || s->options->settings.order == LS_ORDER_EASY;
    ls_policy_job value = ls_policy_job_default();
    value.id = job + 1;
    value.account = spec->account;
    value.priority = spec->priority;
    value.ranks = spec->gpus;
    value.min_ranks = spec->min_gpus;
    value.max_ranks = spec->max_gpus;
    value.devices_per_node = spec->gpus_per_node;
    value.kind = spec->kind[0] ? ls_cluster_kind(s->cluster, spec->kind) : -1;
    value.cpus_per_rank = s->options->hosts_known ? spec->cpus_per_gpu : 0;
    value.memory_mib_per_rank = s->options->hosts_known ? spec->memory_mib_per_gpu : 0;
    value.required = spec->required;
    value.spot = spec->spot;
    value.preemptible = spec->preemptible;
    value.submit_ms = spec->submit_ms;
    value.limit_ms = spec->limit_ms;
    value.expected_ms = oracle ? spec->run_ms : spec->expected_ms;
    if (s->options->settings.elastic && spec->min_gpus < spec->max_gpus) {
        value.gain_permille = gains;
        value.gain_count = gains_of(s, spec, gains);
    } else {
        value.min_ranks = value.max_ranks = value.ranks;
    }
    return value;
}

static ls_status submit(simulator *s, uint32_t job)
{
    uint32_t gains[LS_GAINS_MAX];
    const ls_trace_job *spec = &s->trace->jobs[job];
    const ls_policy_job value = policy_job(s, job, gains);
    const bool no_such_kind = s->trace->format == LS_TRACE_OWN && spec->kind[0] && value.kind < 0;
    const ls_status status = no_such_kind ? LS_ERR_INVALID : ls_policy_submit(s->policy, s->now_ms, &value);
    if (status == LS_ERR_INVALID) {
        /* it can never run here; the daemon would refuse it, too */
        s->run->jobs[job].refused = true;
        if (!s->run->refused_why) {
            s->run->refused_why =
                no_such_kind
                    ? ls_arena_printf(s->arena, "job %s: this cluster has no devices of kind '%.40s'",
                                      spec->name, spec->kind)
                    : ls_arena_printf(s->arena, "job %s: %s", spec->name, ls_error_text());
        }
        ls_error_clear();
        return LS_OK;
    }
    LS_TRY(status);
    ls_sim_run_waits(s->run, spec, spec->gpus, 1);
    return LS_OK;
}

/* ---- what a pass decides ---- */

static ls_status apply_start(simulator *s, const ls_action *action, uint32_t job)
{
    const ls_trace_job *spec = &s->trace->jobs[job];
    ls_sim_job *record = &s->run->jobs[job];
    const bool again = record->first_start_ms != LS_SIM_NEVER;
    record->first_start_ms = again ? record->first_start_ms : s->now_ms;
    ls_sim_run_waits(s->run, spec, spec->gpus, -1);
    begin_stretch(s, job, action->ranks, action->share_count,
                  again ? s->options->restart_cost_ms : s->options->start_cost_ms);
    return ls_policy_started(s->policy, s->now_ms, action->job);
}

static ls_status apply_preempt(simulator *s, const ls_action *action, uint32_t job)
{
    end_stretch(s, job);
    s->run->jobs[job].preemptions++;
    ls_sim_run_waits(s->run, &s->trace->jobs[job], s->trace->jobs[job].gpus, 1);
    return ls_policy_requeued(s->policy, s->now_ms, action->job);
}

static ls_status apply_resize(simulator *s, const ls_action *action, uint32_t job)
{
    end_stretch(s, job);
    s->run->jobs[job].resizes++;
    begin_stretch(s, job, action->ranks, action->share_count, s->options->restart_cost_ms);
    return ls_policy_resized(s->policy, s->now_ms, action->job);
}

static ls_status apply_action(simulator *s, const ls_action *action)
{
    const uint32_t job = (uint32_t)(action->job - 1);
    const bool runs = action->job >= 1 && action->job <= s->trace->job_count && s->jobs[job].ranks > 0;
    if (runs != (action->kind != LS_ACTION_START && action->kind != LS_ACTION_CANNOT)) {
        return ls_fail(LS_ERR_FAILED, "the scheduler made an impossible decision: %s for job %llu, which %s",
                       ls_action_name(action->kind), (unsigned long long)action->job,
                       runs ? "runs" : "does not run");
    }
    switch (action->kind) {
    case LS_ACTION_START:
        return apply_start(s, action, job);
    case LS_ACTION_PREEMPT:
        return apply_preempt(s, action, job);
    case LS_ACTION_SHRINK:
    case LS_ACTION_GROW:
        return apply_resize(s, action, job);
    case LS_ACTION_END:
        end_job(s, job);
        return ls_policy_ended(s->policy, s->now_ms, action->job, false);
    case LS_ACTION_CANNOT:
        ls_sim_run_waits(s->run, &s->trace->jobs[job], s->trace->jobs[job].gpus, -1);
        return LS_OK;
    }
    return LS_OK;
}

/* Makes passes until one frees nothing. */
static ls_status decide(simulator *s)
{
    for (int pass = 0; pass < PASSES_MOST; pass++) {
        const ls_action *actions = NULL;
        uint32_t count = 0;
        ls_policy_pass(s->policy, s->now_ms, &actions, &count);
        s->run->passes++;
        s->run->decisions += count;
        bool freed = false;
        for (uint32_t i = 0; i < count; i++) {
            freed = freed || (actions[i].kind != LS_ACTION_START && actions[i].kind != LS_ACTION_GROW);
            LS_TRY(apply_action(s, &actions[i]));
        }
        if (!freed) {
            return LS_OK;
        }
    }
    return LS_OK; /* continues at the next event */
}

/* ---- the run ---- */

static uint64_t next_event_ms(const simulator *s, uint32_t next_job)
{
    uint64_t next_ms = LS_SIM_NEVER;
    if (next_job < s->trace->job_count) {
        next_ms = s->trace->jobs[next_job].submit_ms;
    }
    if (s->running > 0 && s->jobs[s->heap[0]].end_ms < next_ms) {
        next_ms = s->jobs[s->heap[0]].end_ms;
    }
    if (s->running > 0 || next_job < s->trace->job_count || s->run->now.waiting > 0.0) {
        uint64_t own_ms = ls_policy_next_ms(s->policy, s->now_ms);
        own_ms = own_ms <= s->now_ms ? s->now_ms + 1 : own_ms;
        next_ms = own_ms < next_ms ? own_ms : next_ms;
    }
    return next_ms;
}

static ls_status run_events(simulator *s)
{
    uint32_t next_job = 0;
    for (;;) {
        const uint64_t now_ms = next_event_ms(s, next_job);
        if (now_ms == LS_SIM_NEVER) {
            return LS_OK;
        }
        ls_sim_run_advance(s->run, now_ms);
        s->now_ms = now_ms;
        while (s->running > 0 && s->jobs[s->heap[0]].end_ms <= now_ms) {
            const uint32_t job = s->heap[0];
            end_job(s, job);
            LS_TRY(ls_policy_ended(s->policy, now_ms, job + 1, true));
        }
        while (next_job < s->trace->job_count && s->trace->jobs[next_job].submit_ms == now_ms) {
            LS_TRY(submit(s, next_job++));
        }
        LS_TRY(decide(s));
        if (s->options->progress && ++s->events % PROGRESS_EVENTS == 0) {
            s->options->progress(s->options->context, s->run, s->ended);
        }
    }
}

static ls_policy_settings fitted_settings(const simulator *s)
{
    ls_policy_settings settings = s->options->settings;
    settings.jobs_max = s->trace->job_count < LS_JOBS_MAX ? (uint32_t)s->trace->job_count : LS_JOBS_MAX;
    settings.accounts_max = s->trace->account_count;
    settings.restart_cost_ms = s->options->restart_cost_ms;
    return settings;
}

ls_status ls_simulator_run(ls_arena *arena, const ls_trace *trace, const ls_policy_cluster *cluster,
                           const ls_simulator_options *options, ls_sim_run *run_out)
{
    const uint32_t devices = ls_cluster_devices(cluster);
    const size_t most_running = trace->job_count < devices ? trace->job_count : devices;
    simulator s = {.arena = arena, .trace = trace, .cluster = cluster, .options = options, .run = run_out};
    s.jobs = ls_arena_new(arena, progress, trace->job_count);
    s.heap = ls_arena_new(arena, uint32_t, most_running + 1);
    s.devices_per_node = cluster->nodes[0].devices;
    ls_sim_run_init(arena, trace, devices, ls_order_name(options->settings.order), run_out);
    const ls_policy_settings settings = fitted_settings(&s);
    LS_TRY(ls_policy_create(cluster, &settings, &s.policy));
    const ls_status status = run_events(&s);
    ls_policy_destroy(s.policy);
    for (size_t i = 0; i < trace->job_count; i++) {
        run_out->unfinished += run_out->jobs[i].end_ms == LS_SIM_NEVER && !run_out->jobs[i].refused;
    }
    return status;
}
