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

/* How many leaves of a step each of `ranks` ranks has by that file; leaves_out has room for as many. Errors: those of ls_run_file_load;
 * LS_ERR_UNSUPPORTED when it has fewer leaves than ranks. */
LS_MUST_CHECK ls_status ls_describe_leaves(ls_arena *arena, const char *run_yaml, uint32_t ranks,
                                           uint32_t *leaves_out);

#endif
