// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of our own trainer: what it will allocate, from the plan it will run (model/plan.h).
 */
#ifndef LS_PLANNING_STEP_MEMORY_OWN_H
#define LS_PLANNING_STEP_MEMORY_OWN_H

#include "model/plan.h"
#include "planning/step/estimate.h"

/*
 * One rank's memory. Ranks of a host share weights and moments, so each counts its part of them;
 * gradients (with the sums of the tree of leaves) and activations are its own; one process
 * evaluates, with an arena for it. False when the trainer can't run it (tensor or pipeline
 * parallel, a mixture, a sequence longer than the model's context): use the general formulas.
 */
bool ls_memory_own(const ls_setting *setting, const ls_strategy *strategy, ls_memory_estimate *memory_out);

/* What the trainer allocates (ls_plan_memory), in the terms of every other estimate. */
ls_memory_estimate ls_own_memory_estimate(const ls_memory_plan *memory, double capacity_bytes);

/* A term of it, or "memory", all of it, with the numbers in; the last line but for memory's second
 * has the figure of the answer. False: not a term. */
bool ls_own_memory_explain(const ls_memory_plan *memory, double capacity_bytes, const char *term,
                           ls_text *text);

#endif
