// SPDX-License-Identifier: Apache-2.0
/*
 * What a number in the flight recorder means: plan step 17 of a run is "layer 3 attention". Pure.
 */
#ifndef LS_EXECUTION_DIAGNOSE_DESCRIBE_H
#define LS_EXECUTION_DIAGNOSE_DESCRIBE_H

#include "execution/diagnose/graph.h"
#include "model/plan.h"

/* By the plan, which must outlive it. */
ls_describe ls_describe_plan(const ls_plan *plan);

/* By the plan that a run's run.yaml (fully resolved) leads to; tables live in `arena`. Errors: those of ls_run_file_load and
 * ls_plan_build; LS_ERR_UNSUPPORTED when the model's sizes are not in the run file. */
LS_MUST_CHECK ls_status ls_describe_run(ls_arena *arena, const char *run_yaml, ls_describe *describe_out);

#endif
