// SPDX-License-Identifier: Apache-2.0
#include "execution/train/step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/tree_sum.h"
#include "execution/comm/flight.h"
#include "execution/diagnose/sentinel.h"
#include "execution/train/update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ls_stepper {
    ls_walk *walk;
    ls_state *state;
    ls_step_settings settings;
    ls_data_parallel *parallel; /* settings.parallel, or `alone` */
    ls_data_parallel *alone;    /* of a process that is the only rank, with its exchange area */
    void *exchange;
    int64_t length;
    int32_t *samples;    /* micro_batch x (length + 1) as drawn */
    int32_t *tokens;     /* micro_batch x length */
    int32_t *targets;    /* micro_batch x length */
    float *losses;       /* micro_batch x length */
    ls_update **updates; /* per part of this process */
    uint32_t update_count;
    uint64_t step;              /* that runs */
    uint32_t index;             /* of the part that is computed, among those of this process */
    double last_s, last_wait_s; /* when the current part of the step began */
    ls_op_range_fn look;        /* sees every output of a leaf that is traced; NULL: not traced */
    void *look_context;
    bool look_ended;
    uint64_t position; /* of the micro-batch being computed */
    bool fetches;      /* leaves of a step whose weights come from other hosts */
    ls_sentinel *sentinel;
    float *snapshot[3]; /* of the step that comes: where its update keeps what was before it; NULL: nowhere */
    ls_step_result result;
};

/* Adds the time since the last call to `*sum_s`, without what was spent waiting for other ranks. */
static void lap(ls_stepper *stepper, double *sum_s)
{
    const double now_s = ls_clock_monotonic_s(), wait_s = ls_data_parallel_wait_s(stepper->parallel);
    *sum_s += now_s - stepper->last_s - (wait_s - stepper->last_wait_s);
    stepper->last_s = now_s;
    stepper->last_wait_s = wait_s;
}

/* ---- one leaf ---- */

static ls_status draw_micro_batch(ls_stepper *stepper, uint64_t position)
{
    const ls_step_settings *s = &stepper->settings;
    const int64_t length = stepper->length;
    for (uint32_t i = 0; i < s->micro_batch; i++) {
        int32_t *sample = stepper->samples + i * (length + 1);
        LS_TRY(s->sample(s->sample_context, position + i, sample));
        memcpy(stepper->tokens + i * length, sample, (size_t)length * sizeof *sample);
        memcpy(stepper->targets + i * length, sample + 1, (size_t)length * sizeof *sample);
    }
    return LS_OK;
}

static void sum_losses(const ls_stepper *stepper, double *loss_sum, uint64_t *tokens)
{
    const int64_t count = stepper->settings.micro_batch * stepper->length;
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)stepper->losses[i];
        *tokens += stepper->targets[i] != LS_TARGET_IGNORED;
    }
    *loss_sum += sum;
}

static const ls_part *current_part(const ls_stepper *stepper)
{
    return ls_data_parallel_part(stepper->parallel, stepper->index);
}

static ls_walk_batch batch_into(const ls_stepper *stepper, uint32_t buffer, bool accumulate)
{
    return (ls_walk_batch){
        .parameters = stepper->state->parameters,
        .gradients = current_part(stepper)->gradients[buffer],
        .accumulate = accumulate,
        .tokens = stepper->tokens,
        .targets = stepper->targets,
        .losses = stepper->losses,
    };
}

static uint64_t leaf_position(const ls_stepper *stepper, uint64_t step, uint32_t leaf)
{
    const ls_step_settings *s = &stepper->settings;
    return step * s->global_batch + (uint64_t)leaf * (s->global_batch / s->leaves);
}

/* Between two steps of the backward that leaves a part's last gradients. */
static ls_status after_backward_step(void *context, uint32_t plan_step)
{
    ls_stepper *stepper = context;
    lap(stepper, &stepper->result.backward_s);
    LS_TRY(ls_data_parallel_after_step(stepper->parallel, stepper->index, stepper->state->queue, plan_step));
    lap(stepper, &stepper->result.reduce_s);
    return LS_OK;
}

/* Sabotage. */
static ls_status die_in_backward(void *context, uint32_t plan_step)
{
    ls_stepper *stepper = context;
    (void)plan_step;
    stepper->settings.sabotage->met = stepper->settings.sabotage->nth - 1;
    ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_LEAF, stepper->step);
    return LS_OK;
}

/* ZeRO stage 3: the weights of this step are on their way. */
static ls_status before_plan_step(void *context, uint32_t plan_step)
{
    ls_stepper *stepper = context;
    return ls_data_parallel_before_step(stepper->parallel, plan_step);
}

static ls_status run_micro_batch(ls_stepper *stepper, const ls_walk_batch *batch)
{
    if (stepper->look) {
        return ls_op_trace_run(stepper->walk, batch, stepper->look, stepper->look_context,
                               &stepper->look_ended);
    }
    LS_TRY(ls_walk_forward(stepper->walk, batch));
    LS_TRY(ls_queue_wait(stepper->state->queue));
    lap(stepper, &stepper->result.forward_s);
    LS_TRY(ls_walk_backward(stepper->walk, batch));
    return ls_queue_wait(stepper->state->queue);
}

/* One leaf into gradient buffer `buffer` of the current part. is_last: nothing is added to it afterwards. */
static ls_status run_leaf(ls_stepper *stepper, uint64_t step, uint32_t buffer, bool is_last,
                          ls_leaf_sum *node)
{
    const ls_step_settings *s = &stepper->settings;
    const uint32_t micro_batches = s->global_batch / s->leaves / s->micro_batch;
    const uint64_t position = leaf_position(stepper, step, node->leaves.first);
    ls_flight_position(step + 1, node->leaves.first); /* as metrics.jsonl counts them */
    for (uint32_t i = 0; i < micro_batches && !stepper->look_ended; i++) {
        if (s->should_stop && s->should_stop(s->stop_context)) {
            return LS_STOPPED;
        }
        ls_flight_activity(LS_ACTIVITY_DATA, i);
        stepper->position = position + (uint64_t)i * s->micro_batch;
        LS_TRY(draw_micro_batch(stepper, stepper->position));
        lap(stepper, &stepper->result.data_s);
        ls_walk_batch batch = batch_into(stepper, buffer, i > 0);
        batch.context = stepper;
        batch.before_step = stepper->fetches ? before_plan_step : NULL;
        if (is_last && i + 1 == micro_batches) {
            batch.after_step = after_backward_step;
        }
        if (i + 1 == micro_batches && ls_sabotage_is_due(s->sabotage, LS_PHASE_LEAF, step)) {
            batch.after_step = die_in_backward;
        }
        LS_TRY(run_micro_batch(stepper, &batch));
        sum_losses(stepper, &node->loss_sum, &node->tokens);
        lap(stepper, &stepper->result.backward_s);
    }
    return LS_OK;
}

/* ---- the tree ---- */

/* How many nodes on top of the stack are one: the last two a pair, that pair and the one below it another, and so on. */
static uint32_t nodes_to_merge(const ls_stepper *stepper, const ls_node_stack *stack)
{
    const uint32_t depth = atomic_load(&stack->depth);
    uint32_t count = 1;
    ls_leaf_range right = depth > 0 ? stack->nodes[depth - 1].leaves : (ls_leaf_range){0};
    while (depth > count) {
        const ls_leaf_range left = stack->nodes[depth - 1 - count].leaves;
        if (!ls_tree_is_pair(stepper->settings.leaves, left, right)) {
            break;
        }
        right = (ls_leaf_range){left.first, left.count + right.count};
        count++;
    }
    return count;
}

/* Replaces the `count` nodes on top by their sum, a + (b + (c + ...)): one pass over the buffers. While they are added up none of them counts:
 * the sum goes where the first of them is. */
static ls_status merge_top(ls_stepper *stepper, ls_node_stack *stack, uint32_t count)
{
    const ls_part *part = current_part(stepper);
    const ls_state *state = stepper->state;
    const uint32_t depth = atomic_load(&stack->depth), first = depth - count;
    LS_DCHECK(count >= 2 && count <= depth);
    uint16_t program[2 * LS_TREE_SUM_DEPTH_MAX];
    for (uint32_t i = 0; i < count; i++) {
        program[i] = (uint16_t)i;
        program[count + i] = LS_TREE_SUM_ADD;
    }
    const ls_tree_sum sum = {
        .program = program, .length = 2 * count - 1, .depth = count, .input_count = count};
    atomic_store(&stack->depth, first);
    if (ls_sabotage_is_due(stepper->settings.sabotage, LS_PHASE_MERGE, stepper->step)) {
        LS_TRY(ls_tree_sum_run(state->queue, &sum, (const float *const *)&part->gradients[first],
                               state->layout->float_count / 2, part->gradients[first], NULL));
        stepper->settings.sabotage->met--;
        ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_MERGE, stepper->step);
    }
    LS_TRY(ls_tree_sum_run(state->queue, &sum, (const float *const *)&part->gradients[first],
                           state->layout->float_count, part->gradients[first], NULL));
    LS_TRY(ls_queue_wait(state->queue));
    for (uint32_t i = depth - 1; i > first; i--) {
        stack->nodes[i - 1].leaves.count += stack->nodes[i].leaves.count;
        stack->nodes[i - 1].loss_sum += stack->nodes[i].loss_sum;
        stack->nodes[i - 1].tokens += stack->nodes[i].tokens;
    }
    atomic_store(&stack->depth, first + 1);
    return LS_OK;
}

/* A leaf that is audited is whole before anybody adds to it: its buckets are handed over in the agreement. It counts when all about it is
 * said. */
static ls_status run_own_leaf(ls_stepper *stepper, ls_node_stack *stack, uint64_t step, uint32_t leaf,
                              bool is_last)
{
    const uint32_t buffer = atomic_load(&stack->depth);
    LS_ASSERT(buffer < current_part(stepper)->gradient_count);
    ls_leaf_sum *sum = &stack->nodes[buffer];
    *sum = (ls_leaf_sum){.leaves = {leaf, 1}};
    LS_TRY(run_leaf(stepper, step, buffer, is_last && !ls_sentinel_wants(stepper->sentinel, leaf), sum));
    ls_sentinel_leaf(stepper->sentinel, stepper->index, leaf, current_part(stepper)->gradients[buffer],
                     sum->loss_sum, sum->tokens);
    atomic_store(&stack->depth, buffer + 1);
    return LS_OK;
}

/* The first leaf of a part that no node on its stack has. */
static uint32_t next_leaf(const ls_part *part)
{
    const uint32_t depth = atomic_load(&part->stack->depth);
    const ls_leaf_range last = depth > 0 ? part->stack->nodes[depth - 1].leaves : part->leaves;
    return depth > 0 ? last.first + last.count : part->leaves.first;
}

/* The leaves of the current part, in order, merging pairs before the next. What stands behind the last one is handed over: its owners add it
 * up with what the other parts have (ls_tree_handover). Goes on where the stack says. */
static ls_status run_leaves(ls_stepper *stepper, uint64_t step)
{
    const ls_part *part = current_part(stepper);
    const uint32_t past = part->leaves.first + part->leaves.count;
    for (uint32_t leaf = next_leaf(part); leaf < past; leaf++) {
        const uint32_t count = nodes_to_merge(stepper, part->stack);
        if (count >= 2) {
            LS_TRY(merge_top(stepper, part->stack, count));
        }
        lap(stepper, &stepper->result.reduce_s);
        LS_TRY(run_own_leaf(stepper, part->stack, step, leaf, leaf + 1 == past));
    }
    return LS_OK;
}

/* ---- update ---- */

/* Sabotage. */
static void die_in_block(void *context)
{
    ls_stepper *stepper = context;
    ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_BLOCK, stepper->step);
}

static ls_status update_part(ls_stepper *stepper, uint32_t index, ls_update_options *options)
{
    const ls_part *part = ls_data_parallel_part(stepper->parallel, index);
    options->record = part->undo;
    for (uint32_t i = 0; i < part->slice_count; i++) {
        ls_flight_activity(LS_ACTIVITY_UPDATE, part->slices[i].bucket);
        LS_TRY(ls_update_run(stepper->updates[index], i, options));
        ls_data_parallel_updated(stepper->parallel, index, stepper->state->parameters, i);
    }
    return LS_OK;
}

/* This process' share of parameters and moments. */
static ls_status update_parameters(ls_stepper *stepper, uint64_t step, double lr, float gradient_scale)
{
    const ls_state *state = stepper->state;
    const ls_step_settings *s = &stepper->settings;
    ls_update_options options = {
        .queue = state->queue,
        .adamw = {.lr = (float)lr,
                  .beta1 = s->beta1,
                  .beta2 = s->beta2,
                  .eps = s->eps,
                  .weight_decay = s->weight_decay,
                  .gradient_scale = gradient_scale,
                  .step = step + 1},
        .flats = {state->parameters, state->m, state->v},
        .gradients = ls_data_parallel_sums(stepper->parallel),
        .snapshot = {stepper->snapshot[0], stepper->snapshot[1], stepper->snapshot[2]},
    };
    if (s->sabotage && s->sabotage->phase == LS_PHASE_BLOCK) {
        options.halfway = die_in_block;
        options.context = stepper;
    }
    LS_TRY(ls_data_parallel_begin_update(stepper->parallel));
    ls_sabotage_at(s->sabotage, LS_PHASE_UPDATE, step);
    for (uint32_t i = 0; i < stepper->update_count; i++) {
        if (!ls_data_parallel_is_ahead(stepper->parallel, i)) {
            LS_TRY(update_part(stepper, i, &options));
        }
    }
    return ls_data_parallel_end_update(stepper->parallel, state->parameters);
}

/* ---- a loss that is not finite ---- */

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

ls_status ls_stepper_trace_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf, ls_op_range_fn fn,
                                void *context)
{
    LS_ASSERT(leaf < stepper->settings.leaves);
    stepper->look = fn;
    stepper->look_context = context;
    stepper->look_ended = false;
    ls_leaf_sum node = {.leaves = {leaf, 1}};
    stepper->index = 0;
    const ls_status status = run_leaf(stepper, step, 0, false, &node);
    stepper->look = NULL;
    stepper->look_ended = false;
    return status;
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
                   (unsigned long long)step + 1, loss, norm, leaf, (unsigned long long)fault.position,
                   fault.where);
}

/* Replays the leaves of this process, op by op, until a value that is not finite shows up. LS_OK when none does. */
static ls_status replay_leaves(ls_stepper *stepper, uint64_t step, double loss, double norm,
                               uint32_t *leaf_out)
{
    for (uint32_t i = 0; i < ls_data_parallel_held(stepper->parallel); i++) {
        const ls_leaf_range range = ls_data_parallel_part(stepper->parallel, i)->leaves;
        for (*leaf_out = range.first; *leaf_out < range.first + range.count; ++*leaf_out) {
            LS_TRY(replay_leaf(stepper, step, *leaf_out, loss, norm));
        }
    }
    *leaf_out = LS_NO_LEAF;
    return LS_OK;
}

/* The sign of a value that is no number says nothing; printf shows it. */
static double without_nan_sign(double value)
{
    return isnan(value) ? fabs(value) : value;
}

/* All ranks come here, or none, and all leave with the same text. */
static ls_status explain_nonfinite(ls_stepper *stepper, uint64_t step, double any_loss, double any_norm)
{
    const double loss = without_nan_sign(any_loss), norm = without_nan_sign(any_norm);
    const ls_state *state = stepper->state;
    ls_leaf_report report = {
        .fault = {.kind = LS_STEP_FAULT_NOT_FINITE, .leaf = LS_NO_LEAF, .rank = LS_NO_RANK}};
    stepper->result.fault = report.fault;
    int64_t element = -1;
    LS_TRY(ls_data_parallel_hold(stepper->parallel));
    LS_TRY(ls_find_nonfinite(state->queue, state->parameters, state->layout->float_count, &element));
    if (element >= 0) {
        return ls_fail(LS_ERR_FAILED,
                       "step %llu: parameter %s holds a value that is not finite before the step",
                       (unsigned long long)step + 1, parameter_holding(state->layout, element));
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
                   "step %llu: loss %g, gradient norm %g; every leaf is finite on its own: the sum over the "
                   "batch overflowed. Try a lower learning rate",
                   (unsigned long long)step + 1, loss, norm);
}

/* ---- the step ---- */

/* What has to agree between ranks that are in one step. */
static uint64_t fingerprint_of(const ls_stepper *stepper, uint64_t step, double lr)
{
    const ls_step_settings *s = &stepper->settings;
    const uint64_t counts[] = {step,
                               s->leaves,
                               s->global_batch,
                               s->micro_batch,
                               (uint64_t)stepper->state->layout->float_count,
                               s->seed,
                               s->audit_every_steps};
    const double numbers[] = {lr, s->clip_norm, s->beta1, s->beta2, s->eps, s->weight_decay};
    return ls_xxh3(numbers, sizeof numbers, ls_xxh3(counts, sizeof counts, 0));
}

static ls_status compute_part(ls_stepper *stepper, uint64_t step)
{
    LS_TRY(ls_sentinel_begin_part(stepper->sentinel, stepper->index));
    stepper->fetches = ls_data_parallel_fetches(stepper->parallel);
    const ls_status status = run_leaves(stepper, step);
    stepper->fetches = false;
    return status;
}

/* This process' parts, up to the agreement: what is left of them. */
static ls_status compute_parts(ls_stepper *stepper, uint64_t step)
{
    LS_TRY(ls_sentinel_begin(stepper->sentinel, step));
    bool computes = false;
    for (stepper->index = 0; stepper->index < ls_data_parallel_held(stepper->parallel); stepper->index++) {
        if (ls_data_parallel_computes(stepper->parallel, stepper->index)) {
            computes = true;
            LS_TRY(compute_part(stepper, step));
        }
    }
    return computes ? ls_sentinel_before_agreement(stepper->sentinel) : LS_OK;
}

/* Everything up to the update. */
static ls_status compute(ls_stepper *stepper, uint64_t step, ls_agreement *agreement_out)
{
    const ls_status status = compute_parts(stepper, step);
    if (status == LS_FENCED) {
        return status;
    }
    for (uint32_t i = 0; i < ls_data_parallel_held(stepper->parallel) && status != LS_OK; i++) {
        if (ls_data_parallel_computes(stepper->parallel, i)) {
            ls_data_parallel_give_up(stepper->parallel, i, status, ls_sentinel_fault(stepper->sentinel));
        }
    }
    const ls_status agreed = ls_data_parallel_agree(stepper->parallel, stepper->state->queue, agreement_out);
    lap(stepper, &stepper->result.reduce_s);
    if (agreed != LS_OK && agreed != LS_FENCED) {
        stepper->result.fault = *ls_data_parallel_fault(stepper->parallel);
    }
    return agreed;
}

/* The sums are there: what speaks against an update with them, the same on all ranks. */
static ls_status check_sums(ls_stepper *stepper, uint64_t step, double loss, double norm)
{
    const ls_status status = ls_sentinel_after_agreement(stepper->sentinel);
    if (status != LS_OK) {
        stepper->result.fault = *ls_sentinel_fault(stepper->sentinel);
        return status;
    }
    return isfinite(loss) && isfinite(norm) ? LS_OK : explain_nonfinite(stepper, step, loss, norm);
}

static ls_status run_step(ls_stepper *stepper, uint64_t step, double lr)
{
    ls_agreement sums;
    LS_TRY(compute(stepper, step, &sums));
    ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_AGREED, step);
    const double loss = sums.loss_sum / (double)sums.tokens;
    const double norm = sqrt(sums.square_sum) / (double)sums.tokens;
    const ls_status status = check_sums(stepper, step, loss, norm);
    if (status == LS_FENCED) {
        return status;
    }
    if (status != LS_OK) {
        LS_TRY(ls_data_parallel_leave(stepper->parallel, false));
        return status;
    }
    const double clip_norm = stepper->settings.clip_norm;
    const double clip = clip_norm > 0.0 && norm > clip_norm ? clip_norm / (norm + 1e-6) : 1.0;
    ls_sentinel_before_update(stepper->sentinel);
    LS_TRY(update_parameters(stepper, step, lr, (float)(clip / (double)sums.tokens)));
    ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_UPDATED, step);
    ls_sentinel_after_update(stepper->sentinel);
    ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_END, step);
    LS_TRY(ls_data_parallel_leave(stepper->parallel, true));
    ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_FINISHED, step);
    lap(stepper, &stepper->result.optimizer_s);

    stepper->result.loss = (float)loss;
    stepper->result.grad_norm = norm;
    stepper->result.tokens = sums.tokens;
    stepper->result.wait_s = ls_data_parallel_wait_s(stepper->parallel);
    stepper->result.audited = ls_sentinel_audited(stepper->sentinel);
    stepper->result.state_is_hashed = ls_sentinel_state_sum(stepper->sentinel, &stepper->result.state_sum);
    return LS_OK;
}

ls_status ls_stepper_run(ls_stepper *stepper, uint64_t step, double lr, ls_step_result *result_out)
{
    ls_data_parallel_enter(stepper->parallel, step, fingerprint_of(stepper, step, lr));
    stepper->result = (ls_step_result){0};
    stepper->step = step;
    ls_sabotage_at(stepper->settings.sabotage, LS_PHASE_ENTER, step);
    stepper->last_s = ls_clock_monotonic_s();
    stepper->last_wait_s = ls_data_parallel_wait_s(stepper->parallel);
    const ls_status status = run_step(stepper, step, lr);
    if (status != LS_FENCED) {
        memset(stepper->snapshot, 0, sizeof stepper->snapshot);
    }
    if (status == LS_OK) {
        *result_out = stepper->result;
    } else {
        result_out->fault = stepper->result.fault;
    }
    return status;
}

void ls_stepper_keep(ls_stepper *stepper, float *const snapshot[3])
{
    memcpy(stepper->snapshot, snapshot, sizeof stepper->snapshot);
}

ls_status ls_stepper_check_state(ls_stepper *stepper, ls_step_fault *fault_out)
{
    const ls_status status = ls_sentinel_check_state(stepper->sentinel);
    if (status != LS_OK) {
        *fault_out = *ls_sentinel_fault(stepper->sentinel);
    }
    return status;
}

/* Into gradient buffer 0 of part `index`. */
static ls_status compute_alone(void *context, uint32_t index, uint64_t step, uint32_t leaf,
                               double *loss_sum_out, uint64_t *tokens_out)
{
    ls_stepper *stepper = context;
    LS_ASSERT(leaf < stepper->settings.leaves);
    const uint32_t before = stepper->index;
    ls_leaf_sum node = {.leaves = {leaf, 1}};
    stepper->index = index;
    const ls_status status = run_leaf(stepper, step, 0, false, &node);
    stepper->index = before;
    LS_TRY(status);
    *loss_sum_out = node.loss_sum;
    *tokens_out = node.tokens;
    return LS_OK;
}

ls_status ls_stepper_run_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf, double *loss_sum_out,
                              uint64_t *tokens_out)
{
    return compute_alone(stepper, 0, step, leaf, loss_sum_out, tokens_out);
}

/* ---- life ---- */

static ls_status alloc_buffers(ls_stepper *stepper)
{
    const size_t rows = (size_t)stepper->settings.micro_batch * (size_t)stepper->length;
    stepper->samples = calloc(rows + stepper->settings.micro_batch, sizeof *stepper->samples);
    stepper->tokens = calloc(rows, sizeof *stepper->tokens);
    stepper->targets = calloc(rows, sizeof *stepper->targets);
    stepper->losses = calloc(rows, sizeof *stepper->losses);
    if (!stepper->samples || !stepper->tokens || !stepper->targets || !stepper->losses) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the tokens of a micro-batch (%zu tokens)", rows);
    }
    return LS_OK;
}

static void release_updates(ls_stepper *stepper)
{
    for (uint32_t i = 0; i < stepper->update_count; i++) {
        ls_update_destroy(stepper->updates[i]);
    }
    free(stepper->updates);
    stepper->updates = NULL;
    stepper->update_count = 0;
}

static ls_status make_updates(ls_stepper *stepper)
{
    const uint32_t count = ls_data_parallel_held(stepper->parallel);
    stepper->updates = calloc(count, sizeof *stepper->updates);
    if (!stepper->updates) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the optimizer's tables of %u parts", count);
    }
    for (; stepper->update_count < count; stepper->update_count++) {
        const ls_part *part = ls_data_parallel_part(stepper->parallel, stepper->update_count);
        LS_TRY(ls_update_create(stepper->state->layout, part->slices, part->slice_count,
                                &stepper->updates[stepper->update_count]));
    }
    return LS_OK;
}

ls_status ls_stepper_assign(ls_stepper *stepper)
{
    release_updates(stepper);
    LS_TRY(make_updates(stepper));
    return ls_sentinel_assign(stepper->sentinel);
}

static float *own_gradient(void *context, uint32_t part, uint32_t index)
{
    (void)part;
    return ((const ls_state *)context)->gradients[index];
}

/* This process is the only rank: the same code, an exchange area of its own. */
static ls_status make_alone(ls_stepper *stepper)
{
    const uint64_t bytes = ls_data_parallel_exchange_bytes(stepper->state->layout, 0);
    LS_TRY(ls_device_alloc(stepper->state->queue, bytes, &stepper->exchange));
    const ls_data_parallel_options options = {
        .plan = stepper->walk->plan,
        .leaves = stepper->settings.leaves,
        .parts = 1,
        .local_parts = 1,
        .is_alone = true,
        .gradient = own_gradient,
        .context = stepper->state,
        .exchange = stepper->exchange,
    };
    LS_TRY(ls_data_parallel_create(&options, &stepper->alone));
    stepper->parallel = stepper->alone;
    return LS_OK;
}

static ls_status make_sentinel(ls_stepper *stepper)
{
    const ls_step_settings *s = &stepper->settings;
    const ls_sentinel_options options = {
        .state = stepper->state,
        .parallel = stepper->parallel,
        .seed = s->seed,
        .audit_every_steps = s->audit_every_steps,
        .hash_every_steps = s->hash_every_steps,
        .leaves = s->leaves,
        .flip = s->flip,
        .compute = compute_alone,
        .context = stepper,
    };
    return ls_sentinel_create(&options, &stepper->sentinel);
}

static ls_status prepare(ls_stepper *stepper)
{
    LS_TRY(alloc_buffers(stepper));
    if (stepper->parallel == NULL) {
        LS_ASSERT(stepper->state->gradient_count == ls_tree_buffers(stepper->settings.leaves));
        LS_TRY(make_alone(stepper));
    }
    LS_TRY(make_sentinel(stepper));
    return make_updates(stepper);
}

ls_status ls_stepper_create(ls_walk *walk, ls_state *state, const ls_step_settings *settings,
                            ls_stepper **stepper_out)
{
    LS_ASSERT(settings->leaves >= 1 && settings->global_batch % settings->leaves == 0);
    LS_ASSERT(settings->global_batch / settings->leaves % settings->micro_batch == 0);
    LS_ASSERT(walk->plan->options.training && walk->plan->options.sequences == settings->micro_batch);
    ls_stepper *stepper = calloc(1, sizeof *stepper);
    if (!stepper) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the training step");
    }
    stepper->walk = walk;
    stepper->state = state;
    stepper->settings = *settings;
    stepper->parallel = settings->parallel;
    stepper->length = walk->plan->options.length;
    const ls_status status = prepare(stepper);
    if (status != LS_OK) {
        ls_stepper_destroy(stepper);
        return status;
    }
    *stepper_out = stepper;
    return LS_OK;
}

void ls_stepper_destroy(ls_stepper *stepper)
{
    if (!stepper) {
        return;
    }
    ls_sentinel_destroy(stepper->sentinel);
    ls_data_parallel_destroy(stepper->alone);
    ls_device_free(stepper->state->queue, stepper->exchange,
                   ls_data_parallel_exchange_bytes(stepper->state->layout, 0));
    free(stepper->samples);
    free(stepper->tokens);
    free(stepper->targets);
    free(stepper->losses);
    release_updates(stepper);
    free(stepper);
}
