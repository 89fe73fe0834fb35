// SPDX-License-Identifier: Apache-2.0
/*
 * Run result: what a start of a training run came to, from its folder. To be read by a process of
 * the job's user: the runner on this machine, `lockstep run-result` in the batch script of Slurm.
 */
#ifndef LS_ORCHESTRATION_ENGINES_RUN_RESULT_H
#define LS_ORCHESTRATION_ENGINES_RUN_RESULT_H

#include "orchestration/job/job.h"

/* What the last lines of the run's metrics.jsonl say; what its folder holds, and what it has sent
 * to its mirror since from_s (seconds since 1970). run_dir "": it is no run. */
ls_job_result ls_run_result_read(const char *run_dir, double from_s);

#endif
