// SPDX-License-Identifier: Apache-2.0
/* What the files of the plan share; nobody else includes it. */
#ifndef LS_MODEL_PLAN_INTERNAL_H
#define LS_MODEL_PLAN_INTERNAL_H

#include "model/plan.h"

/* Floats of `value`, rounded up to the alignment of offsets. */
int64_t ls_value_span(const ls_value *value);

/* Both are in memory at the same step. */
bool ls_values_meet(const ls_value *a, const ls_value *b);

/* Whether step `step` makes the gradient of a parameter for which `wanted` holds. */
bool ls_plan_makes_gradient(const ls_plan *plan, uint32_t step,
                            bool (*wanted)(const ls_parameter *parameter, uint32_t argument),
                            uint32_t argument);

/* Takes out the backward steps that no trained parameter needs; nothing when all are trained. */
void ls_plan_leave_out_frozen(ls_arena *arena, ls_plan *plan);

/* Sets first_step and last_step of every value from the steps. */
void ls_plan_find_lives(ls_plan *plan);

/* Sets offsets, arena_floats and live_floats. `arena` is for scratch tables. */
void ls_plan_place(ls_arena *arena, ls_plan *plan);

/* Tokens whose logits exist at once: a function of the two sizes alone, so that it may shape the bits. */
int64_t ls_plan_chunk_rows(int64_t rows, int64_t vocab);

#endif
