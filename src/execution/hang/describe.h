// SPDX-License-Identifier: Apache-2.0
/*
 * What the numbers in a flight file mean: plan step 17 of a run is "layer 3 attention". Pure.
 */
#ifndef LS_EXECUTION_HANG_DESCRIBE_H
#define LS_EXECUTION_HANG_DESCRIBE_H

#include "execution/hang/wait_graph.h"
#include "model/plan.h"

/* Describes activities by a plan, which must outlive the result. NULL: without the names of
 * operations, which stages of a pipeline number differently. */
ls_describe ls_describe_plan(const ls_plan *plan, ls_mesh mesh);

/* The same by the plan that follows from a run's fully resolved run.yaml; tables live in `arena`.
 * Errors: those of ls_run_file_load and ls_plan_build; LS_ERR_UNSUPPORTED if the run file does not
 * hold the model's sizes. */
LS_MUST_CHECK ls_status ls_describe_run(ls_arena *arena, const char *run_yaml, ls_describe *describe_out);

/* How many leaves of a step each of `ranks` ranks computes according to that file; leaves_out has
 * room for one number per rank. Errors: those of ls_run_file_load; LS_ERR_UNSUPPORTED if there are
 * fewer leaves than ranks. */
LS_MUST_CHECK ls_status ls_describe_leaves(ls_arena *arena, const char *run_yaml, uint32_t ranks,
                                           uint32_t *leaves_out);

#endif
