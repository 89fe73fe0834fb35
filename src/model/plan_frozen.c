// SPDX-License-Identifier: Apache-2.0
/* Frozen parameters in a plan: which steps make gradients, and which steps remain if some
 * gradients are not wanted. */
#include "model/plan_internal.h"

/* ---- which steps make gradients ---- */

static bool makes_gradients(const ls_plan_step *step, const ls_op *op)
{
    switch (op->kind) {
    case LS_OP_NORM:
    case LS_OP_ADD_NORM:
    case LS_OP_QK_NORM:
        return step->phase == LS_PHASE_BACKWARD_INPUT;
    case LS_OP_LINEAR:
    case LS_OP_ADAPTER:
    case LS_OP_EXPERT_LINEAR:
    case LS_OP_EMBEDDING:
        return step->phase == LS_PHASE_BACKWARD_WEIGHT;
    case LS_OP_HEAD_LOSS:
        return step->phase == LS_PHASE_FORWARD; /* its gradients are made with the losses */
    default:
        return false;
    }
}

bool ls_plan_makes_gradient(const ls_plan *plan, uint32_t step,
                            bool (*wanted)(const ls_parameter *parameter, uint32_t argument),
                            uint32_t argument)
{
    const ls_op *op = &plan->ops[plan->steps[step].op];
    const ls_parameter *parameters = plan->layout->parameters;
    return makes_gradients(&plan->steps[step], op) &&
           ((op->weight != LS_NONE && wanted(&parameters[op->weight], argument)) ||
            (op->bias != LS_NONE && wanted(&parameters[op->bias], argument)));
}

static bool is_trained(const ls_parameter *parameter, uint32_t argument)
{
    (void)argument;
    return !parameter->frozen;
}

/* ---- leaving out ---- */

/* Marks what a needed step reads. Returns whether the step is needed: it makes a wanted
 * gradient, or a value that a later step reads. */
static bool is_needed(const ls_plan *plan, uint32_t step, bool *read_later)
{
    ls_value_use uses[LS_STEP_USES_MAX];
    const uint32_t count = ls_plan_step_uses(plan, step, uses);
    bool needed = ls_plan_makes_gradient(plan, step, is_trained, 0);
    for (uint32_t i = 0; i < count; i++) {
        needed = needed || ((uses[i].use & LS_USE_WRITE) && read_later[uses[i].value]);
    }
    for (uint32_t i = 0; i < count && needed; i++) {
        read_later[uses[i].value] |= (uses[i].use & LS_USE_READ) != 0;
    }
    return needed;
}

/* The head makes the gradient of its input during forward, for any step that reads it. */
static void leave_out_hidden(ls_plan *plan, const bool *read_later)
{
    for (uint32_t i = 0; i < plan->forward_steps; i++) {
        ls_op *op = &plan->ops[plan->steps[i].op];
        if (op->kind == LS_OP_HEAD_LOSS && op->din[0] != LS_NONE && !read_later[op->din[0]]) {
            op->din[0] = plan->dhidden = LS_NONE;
        }
    }
}

void ls_plan_leave_out_frozen(ls_arena *arena, ls_plan *plan)
{
    if (!plan->options.training || plan->layout->frozen_buckets == 0) {
        return;
    }
    bool *read_later = ls_arena_new(arena, bool, plan->value_count);
    bool *stays = ls_arena_new(arena, bool, plan->step_count);
    if (plan->stage.din != LS_NONE) {
        read_later[plan->stage.din] = true; /* by the stage before */
    }
    for (uint32_t i = plan->step_count; i-- > plan->forward_steps;) {
        stays[i] = is_needed(plan, i, read_later);
    }
    uint32_t count = plan->forward_steps;
    for (uint32_t i = plan->forward_steps; i < plan->step_count; i++) {
        if (stays[i]) {
            plan->steps[count++] = plan->steps[i];
        }
    }
    plan->step_count = count;
    leave_out_hidden(plan, read_later);
}
