// SPDX-License-Identifier: Apache-2.0
#include "orchestration/simulate/run.h"

#include "base/assert.h"

#include <stdlib.h>

enum { STATE_VALUES = sizeof(ls_sim_state) / sizeof(double), FIRST_BUCKET_MS = 1000 };

/* ---- groups of accounts ---- */

typedef struct account_use {
    double device_ms;
    uint32_t account;
} account_use;

static int by_use(const void *a, const void *b)
{
    const account_use *x = a, *y = b;
    return x->device_ms != y->device_ms ? (x->device_ms < y->device_ms) - (x->device_ms > y->device_ms)
                                        : (x->account > y->account) - (x->account < y->account);
}

/* The accounts that ask for most are groups of their own. */
static void group_accounts(ls_arena *arena, ls_sim_run *run)
{
    const ls_trace *trace = run->trace;
    account_use *uses = ls_arena_new(arena, account_use, trace->account_count);
    for (uint32_t a = 0; a < trace->account_count; a++) {
        uses[a].account = a;
    }
    for (size_t i = 0; i < trace->job_count; i++) {
        uses[trace->jobs[i].account].device_ms += (double)trace->jobs[i].run_ms * trace->jobs[i].gpus;
    }
    qsort(uses, trace->account_count, sizeof uses[0], by_use);
    run->group_of = ls_arena_new(arena, uint8_t, trace->account_count);
    const bool others = trace->account_count > LS_SIM_GROUPS;
    run->group_count = others ? LS_SIM_GROUPS : trace->account_count;
    for (uint32_t a = 0; a < trace->account_count; a++) {
        const uint32_t group = a < LS_SIM_GROUPS ? a : LS_SIM_GROUPS - 1;
        run->group_of[uses[a].account] = (uint8_t)group;
        if (a < LS_SIM_GROUPS) {
            run->group_names[a] = trace->accounts[uses[a].account];
        }
    }
    if (others) {
        run->group_names[LS_SIM_GROUPS - 1] =
            ls_arena_printf(arena, "%u others", trace->account_count - LS_SIM_GROUPS + 1);
    }
}

void ls_sim_run_init(ls_arena *arena, const ls_trace *trace, uint32_t devices, const char *policy,
                     ls_sim_run *run_out)
{
    *run_out = (ls_sim_run){.trace = trace,
                            .policy = policy,
                            .devices = devices,
                            .jobs = ls_arena_new(arena, ls_sim_job, trace->job_count),
                            .bucket_ms = FIRST_BUCKET_MS,
                            .buckets = ls_arena_new(arena, ls_sim_state, LS_SIM_BUCKETS)};
    for (size_t i = 0; i < trace->job_count; i++) {
        run_out->jobs[i].first_start_ms = run_out->jobs[i].end_ms = LS_SIM_NEVER;
    }
    group_accounts(arena, run_out);
}

/* ---- time ---- */

static void add_state(ls_sim_state *sum, const ls_sim_state *state, double factor)
{
    double *to = (double *)sum;
    const double *from = (const double *)state;
    for (size_t i = 0; i < STATE_VALUES; i++) {
        to[i] += factor * from[i];
    }
}

/* Merges each pair of intervals into one. */
static void merge_buckets(ls_sim_run *run)
{
    for (size_t i = 0; i < LS_SIM_BUCKETS; i++) {
        const ls_sim_state first = i < LS_SIM_BUCKETS / 2 ? run->buckets[2 * i] : (ls_sim_state){0};
        run->buckets[i] = first;
        if (i < LS_SIM_BUCKETS / 2) {
            add_state(&run->buckets[i], &run->buckets[2 * i + 1], 1.0);
        }
    }
    run->bucket_ms *= 2;
}

void ls_sim_run_advance(ls_sim_run *run, uint64_t now_ms)
{
    LS_ASSERT(now_ms >= run->now_ms);
    const double ms = (double)(now_ms - run->now_ms);
    if (run->now.wanted > run->devices - run->now.allocated) {
        run->short_ms += ms;
        run->short_device_ms += ms * run->now.allocated;
    }
    while (now_ms > LS_SIM_BUCKETS * run->bucket_ms) {
        merge_buckets(run);
    }
    while (run->now_ms < now_ms) {
        const size_t bucket = run->now_ms / run->bucket_ms;
        const uint64_t end_ms = (bucket + 1) * run->bucket_ms;
        const uint64_t until_ms = end_ms < now_ms ? end_ms : now_ms;
        add_state(&run->buckets[bucket], &run->now, (double)(until_ms - run->now_ms));
        run->now_ms = until_ms;
        run->bucket_count = bucket + 1;
    }
}

ls_sim_state ls_sim_run_mean(const ls_sim_run *run, size_t bucket)
{
    const uint64_t start_ms = bucket * run->bucket_ms, end_ms = start_ms + run->bucket_ms;
    ls_sim_state mean = {0};
    LS_ASSERT(bucket < run->bucket_count);
    add_state(&mean, &run->buckets[bucket],
              1.0 / (double)((end_ms < run->now_ms ? end_ms : run->now_ms) - start_ms));
    return mean;
}

/* ---- what changes ---- */

void ls_sim_run_waits(ls_sim_run *run, const ls_trace_job *job, uint32_t devices, int sign)
{
    run->now.waiting += sign;
    run->now.wanted += sign * (double)devices;
    run->now.group_wanted[run->group_of[job->account]] += sign * (double)devices;
}

void ls_sim_run_runs(ls_sim_run *run, const ls_trace_job *job, uint32_t devices, int sign)
{
    run->now.running += sign;
    run->now.allocated += sign * (double)devices;
    run->now.group_allocated[run->group_of[job->account]] += sign * (double)devices;
}
