// SPDX-License-Identifier: Apache-2.0
/* The cost of a plan: FLOPs and bytes. */
#include "base/assert.h"
#include "model/plan_internal.h"

/* ---- FLOPs ---- */

/* Pairs (query, key) of one sequence that causality and the window leave: sum over i of min(i + 1,
 * window).
 */
static double causal_pairs(int64_t length, int64_t window)
{
    const int64_t full = window > 0 && window < length ? window : length;
    return (double)full * (double)(full + 1) / 2.0 + (double)(length - full) * (double)full;
}

/* The two products of an adapter; each has two gradients of its size. */
static double adapter_flops(const ls_plan *plan, const ls_op *op)
{
    const double n = (double)(plan->rows * plan->pieces);
    const double rank = (double)plan->layout->adapter->rank;
    double columns = 0.0;
    for (uint32_t s = 0; s < op->segment_count; s++) {
        columns += op->segment_adapted[s] ? (double)(op->in_features + op->segment[s]) : 0.0;
    }
    return 2.0 * n * rank * columns;
}

/* Forward FLOPs of one op; `causal` counts only the pairs of attention that are not masked. */
static double op_flops(const ls_plan *plan, const ls_op *op, bool causal)
{
    const ls_model_config *c = &plan->config;
    const double length = (double)plan->options.length;
    const double n = (double)(plan->rows * plan->pieces), sequences = n / length;
    if (op->kind == LS_OP_LINEAR || op->kind == LS_OP_HEAD_LOSS) {
        return 2.0 * n * (double)op->in_features * (double)op->out_features;
    }
    if (op->kind == LS_OP_EXPERT_LINEAR) {
        return 2.0 * sequences * length * (double)(c->experts_per_token * op->in_features * op->out_features);
    }
    if (op->kind == LS_OP_ADAPTER) {
        return adapter_flops(plan, op);
    }
    if (op->kind == LS_OP_ATTENTION) {
        const double pairs = causal ? causal_pairs(plan->options.length, op->window) : length * length;
        /* Scores and the weighted sum of values: two products of 2 head_dim FLOPs per pair and
         * head. */
        return 4.0 * sequences * pairs * (double)(c->heads * c->head_dim);
    }
    return 0.0;
}

static bool is_trained(const ls_parameter *parameter, uint32_t argument)
{
    (void)argument;
    return !parameter->frozen;
}

/*
 * FLOPs that a step adds to the backward pass. Each product has two gradients of its own size, each
 * made by a separate step, except attention, whose one step makes both, and the head, which makes
 * its gradients during forward. What attention's backward computes again does not count.
 */
static double backward_flops(const ls_plan *plan, uint32_t step)
{
    const ls_op *op = &plan->ops[plan->steps[step].op];
    const double product = op_flops(plan, op, false);
    if (op->kind == LS_OP_HEAD_LOSS) {
        const bool makes_weight = ls_plan_makes_gradient(plan, step, is_trained, 0);
        return (double)(makes_weight + (op->din[0] != LS_NONE)) * product;
    }
    if (plan->steps[step].phase == LS_PHASE_FORWARD) {
        return 0.0;
    }
    return op->kind == LS_OP_ATTENTION ? 2.0 * product : product;
}

double ls_plan_step_flops(const ls_plan *plan, uint32_t step)
{
    const ls_op *op = &plan->ops[plan->steps[step].op];
    const bool forward = plan->steps[step].phase == LS_PHASE_FORWARD;
    return (forward ? op_flops(plan, op, false) : 0.0) +
           (plan->options.training ? backward_flops(plan, step) : 0.0);
}

ls_plan_flops ls_plan_count_flops(const ls_plan *plan)
{
    ls_plan_flops flops = {0};
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const ls_op *op = &plan->ops[plan->steps[i].op];
        if (plan->options.training) {
            flops.backward += backward_flops(plan, i);
        }
        if (plan->steps[i].phase != LS_PHASE_FORWARD) {
            continue;
        }
        if (i >= plan->forward_steps) {
            flops.recomputed += op_flops(plan, op, false);
            continue;
        }
        flops.forward += op_flops(plan, op, false);
        flops.causal_forward += op_flops(plan, op, true);
    }
    return flops;
}

/* ---- bytes ---- */

uint32_t ls_tree_buffers(uint32_t leaves, uint32_t group)
{
    LS_ASSERT(leaves >= 1);
    if (group > 0) {
        return leaves / group - 1 + ls_tree_buffers(group, 0);
    }
    if (leaves == 1) {
        return 1;
    }
    /* the largest power of two below */
    const uint32_t left = 1u << (31 - __builtin_clz(leaves - 1));
    /* The left half needs its own stack, then leaves one sum behind while the right half runs. */
    const uint32_t in_left = ls_tree_buffers(left, 0), in_right = 1 + ls_tree_buffers(leaves - left, 0);
    return in_left > in_right ? in_left : in_right;
}

static bool is_in_bucket(const ls_parameter *parameter, uint32_t bucket)
{
    return parameter->bucket == bucket;
}

/* A first stage that is not the last gets the head's part of the table's gradient at the end. */
static bool ends_with_table(const ls_plan *plan, uint32_t bucket)
{
    const ls_parameter *table = &plan->layout->parameters[plan->layout->table];
    const bool is_first = plan->stage.in == LS_NONE && plan->stage.out != LS_NONE;
    return is_first && plan->config.tied && !table->frozen && table->bucket == bucket;
}

uint32_t ls_plan_last_gradient_step(const ls_plan *plan, uint32_t bucket)
{
    LS_ASSERT(plan->options.training && bucket < plan->layout->bucket_count);
    if (ends_with_table(plan, bucket)) {
        return plan->step_count;
    }
    for (uint32_t i = plan->step_count; i-- > 0;) {
        const ls_op *op = &plan->ops[plan->steps[i].op];
        const bool is_tied_head = op->kind == LS_OP_HEAD_LOSS && op->dweight != LS_NONE;
        if (!is_tied_head && ls_plan_makes_gradient(plan, i, is_in_bucket, bucket)) {
            return i;
        }
    }
    return 0;
}

static uint64_t other_bytes(const ls_plan *plan)
{
    const ls_model_config *c = &plan->config;
    const uint64_t tokens = (uint64_t)(plan->options.slots * plan->options.sequences * plan->options.length);
    const uint64_t rope_tables =
        c->rotary ? 2 * (uint64_t)(plan->options.length * (c->head_dim / 2)) * sizeof(float) : 0;
    /* at most */
    const uint64_t norm_sums = (uint64_t)plan->layout->float_count / LS_BUCKET_PAD * sizeof(double);
    /* Tokens, targets and losses are 4 bytes each. */
    return 3 * tokens * 4 + rope_tables + norm_sums;
}

static uint64_t value_bytes(const ls_plan *plan, int32_t value)
{
    return value == LS_NONE ? 0 : (uint64_t)ls_value_span(&plan->values[value]) * sizeof(float);
}

ls_memory_plan ls_plan_memory(const ls_plan *plan, uint32_t leaves, uint32_t group, uint32_t residuals)
{
    const uint64_t flat = (uint64_t)plan->layout->float_count * sizeof(float);
    const uint64_t arena = (uint64_t)plan->arena_floats * sizeof(float);
    ls_memory_plan memory = {.parameters = (uint64_t)plan->layout->parameter_floats * sizeof(float),
                             .tree_buffers = ls_tree_buffers(leaves, group) + plan->options.sequence_cut - 1};
    if (plan->options.training) {
        memory.gradients = flat;
        memory.optimizer = 2 * flat;
        memory.tree = (memory.tree_buffers - 1) * flat;
        memory.residuals = 2 * residuals * flat;
    }
    const uint64_t head_gradient = value_bytes(plan, plan->head_gradient);
    memory.logits = value_bytes(plan, plan->logits);
    memory.activations = arena - memory.logits - head_gradient;
    memory.other = other_bytes(plan) + head_gradient;
    memory.total = memory.parameters + memory.gradients + memory.optimizer + memory.tree + memory.residuals +
                   memory.activations + memory.logits + memory.other;
    return memory;
}
