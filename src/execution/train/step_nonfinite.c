// SPDX-License-Identifier: Apache-2.0
/* Finds the origin of a loss that is not finite: the leaves are computed again, op by op. */
#include "compute/kernels/elementwise.h"
#include "execution/train/step_internal.h"

#include <math.h>
#include <stdio.h>

static const char *parameter_holding(const ls_layout *layout, int64_t offset)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        if (offset >= p->offset && offset < p->offset + p->rows * p->cols) {
            return p->name;
        }
    }
    return "padding";
}

static bool look_until_nonfinite(void *context, const ls_op_range *range)
{
    ls_leaf_fault *fault = context;
    if (range->nonfinite > 0) {
        fault->found = true;
        ls_op_range_describe(range, fault->where, sizeof fault->where);
    }
    return !fault->found;
}

ls_status ls_stepper_find_nonfinite(ls_stepper *stepper, uint64_t step, uint32_t leaf,
                                    ls_leaf_fault *fault_out)
{
    *fault_out = (ls_leaf_fault){0};
    LS_TRY(ls_stepper_trace_leaf(stepper, step, leaf, look_until_nonfinite, fault_out));
    fault_out->position = stepper->position;
    return LS_OK;
}

static ls_status replay_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf, double loss, double norm)
{
    ls_leaf_fault fault;
    LS_TRY(ls_stepper_find_nonfinite(stepper, step, leaf, &fault));
    if (!fault.found) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_FAILED,
                   "step %llu: loss %g, gradient norm %g; first value that is not finite: leaf %u, "
                   "sample position %llu, %s. Try a lower learning rate, a longer warm-up or "
                   "train.clip_norm",
                   (unsigned long long)stepper->turn.step + 1, loss, norm, leaf,
                   (unsigned long long)fault.position, fault.where);
}

/* Replays the leaves of this process, op by op, up to the first value that is not finite. LS_OK if
 * there is none. A rank of a crew cannot compute a leaf alone: a replay of the run can. */
static ls_status replay_leaves(ls_stepper *stepper, uint64_t step, double loss, double norm,
                               uint32_t *leaf_out)
{
    if (ls_data_parallel_crew(stepper->parallel)) {
        *leaf_out = LS_NO_LEAF;
        return ls_fail(LS_ERR_FAILED,
                       "step %llu: loss %g, gradient norm %g. 'lockstep replay' finds the first value that "
                       "is not finite; try a lower learning rate, a longer warm-up or train.clip_norm",
                       (unsigned long long)stepper->turn.step + 1, loss, norm);
    }
    for (uint32_t i = 0; i < ls_data_parallel_held(stepper->parallel); i++) {
        const ls_leaf_range range = ls_data_parallel_part(stepper->parallel, i)->leaves;
        for (*leaf_out = range.first; *leaf_out < range.first + range.count; ++*leaf_out) {
            LS_TRY(replay_leaf(stepper, step, *leaf_out, loss, norm));
        }
    }
    *leaf_out = LS_NO_LEAF;
    return LS_OK;
}

/* The sign of a NaN has no meaning, but printf shows it. */
static double without_nan_sign(double value)
{
    return isnan(value) ? fabs(value) : value;
}

ls_status ls_stepper_explain_nonfinite(ls_stepper *stepper, uint64_t step, double any_loss, double any_norm)
{
    const double loss = without_nan_sign(any_loss), norm = without_nan_sign(any_norm);
    const ls_state *state = stepper->state;
    const ls_layout *layout = state->layout;
    ls_leaf_report report = {
        .fault = {.kind = LS_STEP_FAULT_NOT_FINITE, .leaf = LS_NO_LEAF, .rank = LS_NO_RANK}};
    stepper->result.fault = report.fault;
    int64_t element = -1;
    LS_TRY(ls_data_parallel_hold(stepper->parallel));
    const ls_tensor weights =
        ls_tensor_of((void *)(uintptr_t)ls_stepper_weights(stepper), state->parameters ? LS_F32 : LS_BF16, 1,
                     state->workers ? layout->float_count : layout->parameter_floats);
    LS_TRY(ls_find_nonfinite(state->queue, &weights, &element));
    if (element >= 0) {
        return ls_fail(LS_ERR_FAILED,
                       "step %llu: parameter %s holds a value that is not finite before the step",
                       (unsigned long long)stepper->turn.step + 1, parameter_holding(layout, element));
    }
    if (replay_leaves(stepper, step, loss, norm, &report.fault.leaf) != LS_OK) {
        snprintf(report.text, sizeof report.text, "%s", ls_error_text());
    }
    LS_TRY(ls_data_parallel_report(stepper->parallel, &report));
    if (report.text[0]) {
        stepper->result.fault = report.fault;
        return ls_fail(LS_ERR_FAILED, "%s", report.text);
    }
    return ls_fail(LS_ERR_FAILED,
                   "step %llu: loss %g, gradient norm %g; each share of the batch (leaf) is finite on its "
                   "own: the sum over the batch overflowed. Try a lower learning rate",
                   (unsigned long long)stepper->turn.step + 1, loss, norm);
}

ls_status ls_stepper_explain_outer(ls_stepper *stepper)
{
    const ls_state *state = stepper->state;
    const ls_step_settings *s = &stepper->settings;
    const unsigned long long step = stepper->turn.step + 1, round = stepper->turn.step / s->local.steps + 1;
    uint32_t worker = state->worker_count;
    char cause[64] = "the sum of the workers' differences";
    /* first: another rank may end the run with its reason as soon as all know the worker */
    stepper->result.fault =
        (ls_step_fault){.kind = LS_STEP_FAULT_WORKER, .leaf = LS_NO_LEAF, .rank = LS_NO_RANK};
    if (s->find_worker) {
        LS_TRY(s->find_worker(s->workers_context, &worker));
    } else {
        worker = ls_local_not_finite(state, 0, state->worker_count);
    }
    if (worker < state->worker_count) {
        snprintf(cause, sizeof cause, "the parameters of worker %u", worker);
    }
    return ls_fail(LS_ERR_FAILED,
                   "step %llu: the outer gradient of round %llu is not finite, because of %s: try a lower "
                   "train.optimizer.lr or a shorter round (train.local.steps)",
                   step, round, cause);
}
