// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of our own trainer: what it will allocate, from the plan it will run (model/plan.h).
 */
#ifndef LS_PLANNING_STEP_MEMORY_OWN_H
#define LS_PLANNING_STEP_MEMORY_OWN_H

#include "planning/step/estimate.h"

/*
 * One rank's memory. Ranks of a host share weights and moments, so each counts its part of them;
 * gradients (with the sums of the tree of leaves) and activations are its own; one process
 * evaluates, with an arena for it. False when the trainer can't run it (tensor or pipeline
 * parallel, a mixture, a sequence longer than the model's context): use the general formulas.
 */
bool ls_memory_own(const ls_setting *setting, const ls_strategy *strategy, ls_memory_estimate *memory_out);

#endif
