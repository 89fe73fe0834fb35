// SPDX-License-Identifier: Apache-2.0
/* Traces on arbitrary bytes: an error with text, or jobs in order that every number of which is in
 * its range. Small ones are simulated, pooled. */
#include "base/assert.h"
#include "orchestration/simulate/pooled.h"
#include "orchestration/simulate/summary.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_jobs(const ls_trace *trace)
{
    LS_ASSERT(trace->job_count > 0 && trace->jobs[0].submit_ms == 0);
    for (size_t i = 0; i < trace->job_count; i++) {
        const ls_trace_job *job = &trace->jobs[i];
        LS_ASSERT(job->gpus >= 1 && job->gpus <= LS_TRACE_GPUS_MAX && job->run_ms >= 1);
        LS_ASSERT(job->min_gpus <= job->gpus && job->gpus <= job->max_gpus && job->min_gpus >= 1);
        LS_ASSERT(job->account < trace->account_count && trace->accounts[job->account] && job->name);
        LS_ASSERT(i == 0 || trace->jobs[i - 1].submit_ms <= job->submit_ms);
        LS_ASSERT(ls_trace_job_run_ms(job, job->min_gpus, 1) >= 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { GPUS = 64 };
    ls_arena arena = {0};
    ls_trace trace = {0};
    ls_error_clear();
    if (ls_trace_parse(&arena, (const char *)data, bytes, "fuzz.csv", LS_TRACE_AUTO, &trace) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0');
    } else {
        ls_sim_run run;
        ls_sim_summary summary;
        ls_text text = {0};
        check_jobs(&trace);
        ls_pooled_run(&arena, &trace, GPUS, (ls_pooled_policy)(bytes % LS_POOLED_COUNT), &run);
        ls_sim_summarise(&arena, &run, &summary);
        LS_ASSERT(summary.all.jobs + summary.refused == trace.job_count);
        ls_sim_jobs_append(&run, &text);
        ls_text_release(&text);
    }
    ls_arena_release(&arena);
    return 0;
}
