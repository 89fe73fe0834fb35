// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the plan; not for inclusion elsewhere. */
#ifndef LS_MODEL_PLAN_INTERNAL_H
#define LS_MODEL_PLAN_INTERNAL_H

#include "model/plan.h"

/* Errors: LS_ERR_INVALID, as ls_plan_build says. */
LS_MUST_CHECK ls_status ls_plan_check_options(const ls_model_config *config, const ls_layout *layout,
                                              const ls_plan_options *o);

/* `given`, with estimates in place of what is NULL. */
ls_plan_workspaces ls_plan_workspaces_or_estimates(ls_plan_workspaces given);

/* Leaves in the plan's configuration what its member of the tensor group computes. */
void ls_plan_take_share(ls_plan *plan);

/* The most rows that the experts of a plan can get: the visits of the tokens of all members. */
int64_t ls_plan_expert_rows(const ls_plan *plan);

/* Sets what a plan says about pieces of sequences: how many the process holds, and their rows. */
void ls_plan_take_pieces(ls_plan *plan);

/* Adds the memory of the other pieces, and of keys and values of all tokens, to that of one piece.
 * */
void ls_plan_place_pieces(ls_plan *plan);

/* The room of `value` in the arena in units of 4 bytes, rounded up to the alignment of offsets. */
int64_t ls_value_span(const ls_value *value);

/* FLOPs of step `step`, recomputation included. */
double ls_plan_step_flops(const ls_plan *plan, uint32_t step);

/* Whether step `step` makes the gradient of a parameter for which `wanted` holds. */
bool ls_plan_makes_gradient(const ls_plan *plan, uint32_t step,
                            bool (*wanted)(const ls_parameter *parameter, uint32_t argument),
                            uint32_t argument);

/* Removes the backward steps that no trained parameter needs; none if all are trained. */
void ls_plan_leave_out_frozen(ls_arena *arena, ls_plan *plan);

/* Sets first_step, last_step and in_slot of every value from the steps. */
void ls_plan_find_lives(ls_plan *plan);

/* Sets offsets, arena_floats, slot_floats and live_floats. `arena` is for scratch tables. */
void ls_plan_place(ls_arena *arena, ls_plan *plan);

#endif
