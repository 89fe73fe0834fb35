// SPDX-License-Identifier: Apache-2.0
#include "planning/money/runs.h"

#include "planning/money/failure.h"
#include "planning/money/verdict_internal.h"

#include <math.h>

static double kept_bytes(const ls_question *question, double parameters, double tokens)
{
    return question->checkpoints_kept * LS_CHECKPOINT_BYTES_PER_PARAMETER * parameters +
           LS_COST_BYTES_PER_TOKEN * tokens;
}

static ls_run_outcome charge(const ls_question *question, const ls_verdict_work *work,
                             const ls_path_outcome *o, size_t index)
{
    const ls_workload *workload = &question->workloads[index];
    const double tokens = workload->tokens * question->tokens_factor;
    const double hours = tokens / (o->point->tokens_ps[index] * o->goodput) / 3600.0;
    ls_run_outcome run = {.workload = workload,
                          .runs_per_month = work->share[index] * work->runs_per_month,
                          .gpus = o->gpus,
                          .days = hours / 24.0,
                          .gpu_hours = hours * (double)o->gpus};
    const double by_hour_usd = o->run_usd - o->storage_usd - o->egress_usd;
    run.usd = by_hour_usd * run.gpu_hours / o->gpu_hours +
              o->storage_usd * kept_bytes(question, workload->parameters, tokens) /
                  kept_bytes(question, work->parameters, work->tokens) +
              o->egress_usd * workload->parameters / work->parameters;
    run.month_usd = run.usd * run.runs_per_month;
    return run;
}

void ls_runs_compute(const ls_question *question, const ls_path_outcome *outcome, ls_runs *runs_out)
{
    ls_runs runs = {0};
    ls_verdict_work work;
    ls_verdict_work_compute(question, &work);
    runs.runs_per_month = work.runs_per_month;
    for (size_t i = 0; outcome->point && isfinite(outcome->days) && i < question->workload_count; i++) {
        runs.items[i] = charge(question, &work, outcome, i);
        runs.month_usd += runs.items[i].month_usd;
        runs.longest = runs.items[i].days > runs.items[runs.longest].days ? i : runs.longest;
        runs.count++;
    }
    for (size_t i = 0; i < runs.count && runs.month_usd > 0.0; i++) {
        runs.items[i].share = runs.items[i].month_usd / runs.month_usd;
    }
    *runs_out = runs;
}
