// SPDX-License-Identifier: Apache-2.0
/*
 * Pooled mode: GPUs are counted, not placed, and run times are known. This is the reference for
 * policies: a policy that has to place jobs on nodes, or does not know how long they take, cannot
 * be expected to use more than it does.
 *
 * The next event is the earlier of the next submission and the earliest end. At each event time all
 * jobs that end are freed, all that are submitted join the queue, and the queue is looked through
 * once, in the order of the policy (jobs with equal keys by submission):
 *
 *   fifo         by submission; a job that does not fit stops all jobs after it
 *   fifo-skip    by submission; a job that does not fit is skipped
 *   easy         by submission; the first job that does not fit gets a reservation: the earliest
 *                time at which enough GPUs are free. Others start if they end before that time, or
 *                take no more than the GPUs left over then
 *   sjf-oracle   shortest run time first; jobs that do not fit are skipped
 *   small-first  smallest run time x GPUs first; jobs that do not fit are skipped
 *
 * Jobs larger than the cluster are refused. Pure.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_POOLED_H
#define LS_ORCHESTRATION_SIMULATE_POOLED_H

#include "orchestration/simulate/run.h"

typedef enum ls_pooled_policy {
    LS_POOLED_FIFO,
    LS_POOLED_FIFO_SKIP,
    LS_POOLED_EASY,
    LS_POOLED_SJF_ORACLE,
    LS_POOLED_SMALL_FIRST,
    LS_POOLED_COUNT
} ls_pooled_policy;
/* Errors: LS_ERR_INVALID, naming the policies. */
LS_MUST_CHECK ls_status ls_pooled_policy_parse(const char *name, ls_pooled_policy *policy_out);

/* Runs the whole trace on `devices` GPUs. */
void ls_pooled_run(ls_arena *arena, const ls_trace *trace, uint32_t devices, ls_pooled_policy policy,
                   ls_sim_run *run_out);

#endif
