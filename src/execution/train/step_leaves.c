// SPDX-License-Identifier: Apache-2.0
/* One leaf, and the leaves of a part added up in the tree. */
#include "base/assert.h"
#include "base/clock.h"
#include "comm/flight/flight.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/tree_sum.h"
#include "execution/train/step_internal.h"

#include <assert.h>
#include <string.h>

static_assert((int)LS_NO_TARGET == (int)LS_TARGET_IGNORED, "targets go to the kernels as they are");

/* ---- micro-batches ---- */

void ls_stepper_lap(ls_stepper *stepper, double *sum_s)
{
    const double now_s = ls_clock_monotonic_s(), wait_s = ls_data_parallel_wait_s(stepper->parallel);
    *sum_s += now_s - stepper->last_s - (wait_s - stepper->last_wait_s);
    stepper->last_s = now_s;
    stepper->last_wait_s = wait_s;
}

static ls_status draw_micro_batch(ls_stepper *stepper, uint64_t position)
{
    const ls_step_settings *s = &stepper->settings;
    const ls_sample *rows = &stepper->rows;
    for (uint32_t i = 0; i < s->micro_batch; i++) {
        const int64_t at = i * stepper->length;
        const ls_sample sample = {.tokens = rows->tokens + at,
                                  .targets = rows->targets + at,
                                  .first = rows->first ? rows->first + at : NULL,
                                  .record = rows->record + at};
        LS_TRY(s->sample(s->sample_context, position + i, &sample));
        stepper->pass[i] = s->pass ? s->pass(s->sample_context, position + i) : 0;
    }
    return LS_OK;
}

/* The shares of the work of a crew between two nodes of its stack: the leaves that an expert group
 * computes side by side, and of each the pieces of its sequences. This is the first share of this
 * rank. */
static uint32_t first_share(const ls_stepper *stepper)
{
    const ls_plan *plan = stepper->executor->plan;
    return plan->options.expert_member * plan->options.sequence_cut +
           plan->options.context_member * plan->pieces;
}

static void sum_losses(ls_stepper *stepper)
{
    const ls_plan *plan = stepper->executor->plan;
    for (uint32_t piece = 0; piece < plan->pieces; piece++) {
        ls_leaf_sum *node = &stepper->shares[first_share(stepper) + piece];
        double sum = 0.0;
        for (int64_t row = 0; row < plan->rows; row++) {
            const int64_t token = ls_plan_token(plan, piece, row);
            sum += (double)stepper->losses[token];
            node->tokens += stepper->rows.targets[token] != LS_TARGET_IGNORED;
        }
        node->loss_sum += sum;
    }
}

static const ls_part *current_part(const ls_stepper *stepper)
{
    return ls_data_parallel_part(stepper->parallel, stepper->index);
}

/* With ZeRO stage 3 waits until the weights of this plan step have arrived. */
static ls_status before_plan_step(void *context, uint32_t plan_step)
{
    ls_stepper *stepper = context;
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_PLAN, stepper->step);
    return stepper->fetches ? ls_data_parallel_before_step(stepper->parallel, plan_step) : LS_OK;
}

static ls_executor_batch batch_into(ls_stepper *stepper, uint32_t buffer, bool accumulate)
{
    float *const *all = &current_part(stepper)->gradients[buffer];
    float *const *own = all + first_share(stepper);
    const ls_plan *plan = stepper->executor->plan;
    return (ls_executor_batch){
        .weights = ls_stepper_weights(stepper),
        .gradients = own[0],
        .piece_gradients = own,
        .member_gradients = all + plan->options.context_member * plan->pieces,
        .accumulate = accumulate,
        .tokens = stepper->rows.tokens,
        .targets = stepper->rows.targets,
        .first = stepper->rows.first,
        .dropout_seed = stepper->settings.seed,
        .record = stepper->rows.record,
        .pass = stepper->pass,
        .losses = stepper->losses,
        .crew = ls_data_parallel_crew(stepper->parallel),
        .before_step = before_plan_step,
        .context = stepper,
    };
}

static uint64_t leaf_position(const ls_stepper *stepper, uint64_t step, uint32_t leaf)
{
    const ls_step_settings *s = &stepper->settings;
    const ls_local_turn *turn = &stepper->turn;
    const uint64_t batches = s->local.steps > 0 ? turn->step * s->local.workers + turn->worker : step;
    return batches * s->global_batch + (uint64_t)leaf * (s->global_batch / s->leaves);
}

/* Called between two steps of the last backward pass of a part, while its gradients become
 * final. */
static ls_status after_backward_step(void *context, uint32_t plan_step)
{
    ls_stepper *stepper = context;
    ls_stepper_lap(stepper, &stepper->result.backward_s);
    LS_TRY(ls_data_parallel_after_step(stepper->parallel, stepper->index, stepper->state->queue, plan_step));
    ls_stepper_lap(stepper, &stepper->result.reduce_s);
    return LS_OK;
}

/* Fault injection: dies in the backward pass. */
static ls_status die_in_backward(void *context, uint32_t plan_step)
{
    ls_stepper *stepper = context;
    (void)plan_step;
    stepper->settings.fault_injection->met = stepper->settings.fault_injection->nth - 1;
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_LEAF, stepper->step);
    return LS_OK;
}

static ls_status run_micro_batch(ls_stepper *stepper, const ls_executor_batch *batch)
{
    if (stepper->look) {
        return ls_op_trace_run(stepper->executor, batch, stepper->look, stepper->look_context,
                               &stepper->look_ended);
    }
    LS_TRY(ls_executor_forward(stepper->executor, batch));
    ls_stepper_lap(stepper, &stepper->result.forward_s);
    LS_TRY(ls_executor_backward(stepper->executor, batch));
    return ls_queue_wait(stepper->state->queue);
}

/* ---- one leaf of a stage ---- */

/* A leaf that a stage computes. */
typedef struct leaf_walk {
    ls_stepper *stepper;
    uint64_t step, position; /* of its first sample */
    uint32_t buffer;
} leaf_walk;

static uint32_t micro_batches_of(const ls_step_settings *s)
{
    return s->global_batch / s->leaves / s->micro_batch;
}

/* The samples of a micro-batch are drawn for each of its passes: that is cheap, and many
 * micro-batches are on their way. */
static ls_status before_pass(void *context, const ls_pipeline_work *work, ls_executor_batch *batch)
{
    const leaf_walk *walk = context;
    ls_stepper *stepper = walk->stepper;
    const ls_step_settings *s = &stepper->settings;
    if (s->should_stop && s->should_stop(s->stop_context)) {
        return LS_STOPPED;
    }
    ls_flight_activity(LS_ACTIVITY_DATA, work->micro_batch);
    stepper->position = walk->position + (uint64_t)work->micro_batch * s->micro_batch;
    LS_TRY(draw_micro_batch(stepper, stepper->position));
    ls_stepper_lap(stepper, &stepper->result.data_s);
    *batch = batch_into(stepper, walk->buffer, false);
    if (work->pass != LS_PIPELINE_FORWARD && work->micro_batch + 1 == micro_batches_of(s) &&
        ls_fault_injection_is_due(s->fault_injection, LS_PHASE_LEAF, walk->step)) {
        batch->after_step = die_in_backward;
    }
    return LS_OK;
}

static ls_status after_pass(void *context, const ls_pipeline_work *work, const ls_executor_batch *batch)
{
    const leaf_walk *walk = context;
    ls_stepper *stepper = walk->stepper;
    ls_step_result *result = &stepper->result;
    const bool is_forward = work->pass == LS_PIPELINE_FORWARD;
    if (is_forward && batch->crew->stage + 1 == batch->crew->stages &&
        work->chunk + 1 == stepper->settings.pipeline->chunks) {
        sum_losses(stepper);
    }
    ls_stepper_lap(stepper, is_forward ? &result->forward_s : &result->backward_s);
    return LS_OK;
}

/* The buckets of a leaf are posted at its end: what the embedding shares with the head is complete
 * only then. */
static ls_status run_stage_leaf(ls_stepper *stepper, uint64_t step, uint32_t buffer, uint32_t leaf)
{
    leaf_walk walk = {
        .stepper = stepper, .step = step, .position = leaf_position(stepper, step, leaf), .buffer = buffer};
    const ls_stage stage = {.pipeline = stepper->settings.pipeline,
                            .list = stepper->settings.pipeline_list,
                            .executors = stepper->executor,
                            .crew = ls_data_parallel_crew(stepper->parallel),
                            .before = before_pass,
                            .after = after_pass,
                            .context = &walk};
    ls_flight_position(step + 1, leaf);
    return ls_stage_run(&stage);
}

/* ---- one leaf ---- */

/* Computes one leaf: share i of the crew into gradient buffer `buffer` + i of the current part.
 * is_last: the buffer does not change afterwards, so its buckets can be posted while the
 * backward pass still runs. */
static ls_status run_shares(ls_stepper *stepper, uint64_t step, uint32_t buffer, bool is_last, uint32_t leaf)
{
    const ls_step_settings *s = &stepper->settings;
    const uint32_t micro_batches = micro_batches_of(s);
    const uint64_t position = leaf_position(stepper, step, leaf);
    memset(stepper->shares, 0, sizeof stepper->shares);
    if (s->pipeline) {
        return run_stage_leaf(stepper, step, buffer, leaf);
    }
    ls_flight_position(stepper->turn.step + 1, leaf); /* counted from 1, as in metrics.jsonl */
    for (uint32_t i = 0; i < micro_batches && !stepper->look_ended; i++) {
        if (stepper->turn.is_first && s->should_stop && s->should_stop(s->stop_context)) {
            return LS_STOPPED;
        }
        ls_flight_activity(LS_ACTIVITY_DATA, i);
        stepper->position = position + (uint64_t)i * s->micro_batch;
        LS_TRY(draw_micro_batch(stepper, stepper->position));
        ls_stepper_lap(stepper, &stepper->result.data_s);
        ls_executor_batch batch = batch_into(stepper, buffer, i > 0);
        batch.more = i + 1 < micro_batches;
        if (is_last && i + 1 == micro_batches) {
            batch.after_step = after_backward_step;
        }
        if (i + 1 == micro_batches && ls_fault_injection_is_due(s->fault_injection, LS_PHASE_LEAF, step)) {
            batch.after_step = die_in_backward;
        }
        LS_TRY(run_micro_batch(stepper, &batch));
        sum_losses(stepper);
        ls_stepper_lap(stepper, &stepper->result.backward_s);
    }
    return LS_OK;
}

/* ---- the tree ---- */

/* The number of nodes on top of the stack that merge into one: the top two are a pair, that pair
 * and the node below it are another pair, and so on. 1: none. */
static uint32_t nodes_to_merge(const ls_stepper *stepper, const ls_node_stack *stack)
{
    const uint32_t depth = atomic_load(&stack->depth);
    uint32_t count = 1;
    ls_leaf_range right = depth > 0 ? stack->nodes[depth - 1].leaves : (ls_leaf_range){0};
    while (depth > count) {
        const ls_leaf_range left = stack->nodes[depth - 1 - count].leaves;
        if (!ls_tree_is_pair(stepper->settings.leaves, stepper->settings.group, left, right)) {
            break;
        }
        right = (ls_leaf_range){left.first, left.count + right.count};
        count++;
    }
    return count;
}

/* Adds `range` of gradient buffers [first, first + sum->input_count) into the first. */
static ls_status add_range(ls_stepper *stepper, uint32_t first, const ls_tree_sum *sum, ls_owned_slice range)
{
    ls_queue *queue = stepper->state->queue;
    const float *inputs[LS_TREE_SUM_DEPTH_MAX];
    for (uint32_t i = 0; i < sum->input_count; i++) {
        inputs[i] = current_part(stepper)->gradients[first + i] + range.offset;
    }
    float *out = current_part(stepper)->gradients[first] + range.offset;
    if (ls_fault_injection_is_due(stepper->settings.fault_injection, LS_PHASE_MERGE, stepper->step)) {
        LS_TRY(ls_tree_sum_run(queue, sum, inputs, range.count / 2, out, NULL));
        stepper->settings.fault_injection->met--;
        ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_MERGE, stepper->step);
    }
    return ls_tree_sum_run(queue, sum, inputs, range.count, out, NULL);
}

/* Adds this rank's share of gradient buffers [first, first + sum->input_count) into the first. */
static ls_status add_buffers(ls_stepper *stepper, uint32_t first, const ls_tree_sum *sum)
{
    const ls_part *part = current_part(stepper);
    for (uint32_t i = 0; i < part->merge_count; i++) {
        LS_TRY(add_range(stepper, first, sum, part->merges[i]));
    }
    return ls_queue_wait(stepper->state->queue);
}

/* Adds the gradients of nodes [first, first + count) into the buffer of the first, from right to
 * left. */
static ls_status add_nodes(ls_stepper *stepper, uint32_t first, uint32_t count)
{
    uint16_t program[2 * LS_TREE_SUM_DEPTH_MAX];
    for (uint32_t i = 0; i < count; i++) {
        program[i] = (uint16_t)i;
        program[count + i] = LS_TREE_SUM_ADD;
    }
    return add_buffers(
        stepper, first,
        &(ls_tree_sum){.program = program, .length = 2 * count - 1, .depth = count, .input_count = count});
}

/*
 * Replaces the top `count` nodes by their sum a + (b + (c + ...)), the order of the tree, in one
 * pass over the buffers.
 *
 * The sum overwrites the buffer of the first node, so while it is being made neither the nodes nor
 * the sum are valid. Therefore the nodes are popped before the first addition, and the sum is
 * pushed after the last. If the process dies in between, the stack shows that these leaves are
 * missing, and the next holder of the part computes them again. In a crew the leader does so, and
 * each member adds its share, between meetings.
 */
static ls_status merge_top(ls_stepper *stepper, ls_node_stack *stack, uint32_t count)
{
    const ls_part *part = current_part(stepper);
    const uint32_t depth = atomic_load(&stack->depth), first = depth - count;
    LS_DCHECK(count >= 2 && count <= depth);
    /* all have read the depth */
    LS_TRY(ls_data_parallel_meet_crew(stepper->parallel));
    if (part->leads) {
        atomic_store(&stack->depth, first);
    }
    LS_TRY(ls_data_parallel_meet_crew(stepper->parallel));
    LS_TRY(add_nodes(stepper, first, count));
    LS_TRY(ls_data_parallel_meet_crew(stepper->parallel));
    for (uint32_t i = depth - 1; i > first && part->leads; i--) {
        stack->nodes[i - 1].leaves.count += stack->nodes[i].leaves.count;
        stack->nodes[i - 1].loss_sum += stack->nodes[i].loss_sum;
        stack->nodes[i - 1].tokens += stack->nodes[i].tokens;
    }
    if (part->leads) {
        atomic_store(&stack->depth, first + 1);
    }
    return ls_data_parallel_meet_crew(stepper->parallel);
}

/* Whether this rank has losses of its leaves, those of its shares: alone, or in
 * the last stage. What members of a tensor group all have, the first of them writes. */
static bool has_losses(const ls_crew *crew)
{
    return !crew || (crew->tensor_member == 0 && crew->stage + 1 == crew->stages);
}

/* Tells the crew the losses of this rank's shares, and learns those of the others. They lie above
 * the nodes of the stack, where the leaf that is being computed has its buffers. */
static ls_status exchange_losses(ls_stepper *stepper, uint32_t buffer, uint32_t count)
{
    const ls_crew *crew = ls_data_parallel_crew(stepper->parallel);
    ls_leaf_sum *nodes = current_part(stepper)->stack->nodes + buffer;
    if (!crew) {
        return LS_OK;
    }
    if (has_losses(crew)) {
        const uint32_t first = first_share(stepper);
        memcpy(nodes + first, stepper->shares + first, stepper->executor->plan->pieces * sizeof *nodes);
    }
    LS_TRY(ls_data_parallel_meet_crew(stepper->parallel));
    memcpy(stepper->shares, nodes, count * sizeof *nodes);
    return LS_OK;
}

/* `count` shares are a node of the tree: adds up their gradients and losses. */
static ls_status add_shares(ls_stepper *stepper, uint32_t buffer, uint32_t count)
{
    ls_leaf_range ranges[LS_SHARES_MAX];
    uint16_t program[LS_TREE_PROGRAM_MAX];
    ls_tree_sum sum = {.program = program, .input_count = count};
    LS_TRY(exchange_losses(stepper, buffer, count));
    for (uint32_t i = 0; i < count; i++) {
        ranges[i] = (ls_leaf_range){i, 1};
    }
    sum.length = ls_tree_program(count, ranges, count, program, &sum.depth);
    LS_TRY(add_buffers(stepper, buffer, &sum));
    for (uint32_t step = 1; step < count; step *= 2) {
        for (uint32_t i = 0; i < count; i += 2 * step) {
            stepper->shares[i].loss_sum += stepper->shares[i + step].loss_sum;
            stepper->shares[i].tokens += stepper->shares[i + step].tokens;
        }
    }
    return ls_data_parallel_meet_crew(stepper->parallel);
}

/* The leaf that this rank computes while its crew makes the node `leaves`. A member of an expert
 * group for which there is none computes the last again, because the others need its experts. */
static uint32_t own_leaf(const ls_stepper *stepper, ls_leaf_range leaves)
{
    const uint32_t member = stepper->executor->plan->options.expert_member;
    return leaves.first + (member < leaves.count ? member : leaves.count - 1);
}

/* ---- the outer step ---- */

/* The leaves of an outer step: the first is the sum over all workers, or the outer gradient that
 * was made of it, zero outside the fragment; the others are zero, so that the tree of the leaves
 * adds nothing to the tree of the workers. */
static ls_status run_outer_leaf(ls_stepper *stepper, uint32_t buffer, ls_leaf_sum *node)
{
    const ls_step_settings *s = &stepper->settings;
    const int64_t floats = stepper->state->layout->float_count;
    float *sum = current_part(stepper)->gradients[buffer];
    int64_t count;
    const int64_t at =
        ls_layout_run(stepper->state->layout, s->local.fragments, stepper->turn.fragment, &count);
    if (node->leaves.first > 0 || count < floats) {
        memset(sum, 0, (size_t)floats * sizeof *sum);
    }
    if (node->leaves.first > 0) {
        return LS_OK;
    }
    if (!stepper->turn.makes) {
        memcpy(sum + at, stepper->state->v + at, (size_t)count * sizeof *sum);
        node->tokens = 1;
        return LS_OK;
    }
    node->tokens = stepper->state->worker_count; /* what the sum is divided by */
    return s->add_workers ? s->add_workers(s->workers_context, at, count, sum + at)
                          : ls_outer_sum_add(stepper->outer, at, count, NULL, sum + at, NULL);
}

/* ---- the leaves of a part ---- */

/* Computes the leaves of a node into gradient buffer `buffer`. is_last: as in run_shares. */
static ls_status run_node(ls_stepper *stepper, uint64_t step, uint32_t buffer, bool is_last,
                          ls_leaf_sum *node)
{
    const ls_plan_options *o = &stepper->executor->plan->options;
    const bool is_shared = o->sequence_cut > 1 || o->expert_degree > 1;
    const uint32_t shares = o->sequence_cut * node->leaves.count;
    if (stepper->turn.is_outer) {
        LS_TRY(run_outer_leaf(stepper, buffer, node));
        return is_last ? after_backward_step(stepper, stepper->executor->plan->step_count) : LS_OK;
    }
    LS_TRY(run_shares(stepper, step, buffer, is_last && !is_shared, own_leaf(stepper, node->leaves)));
    if (is_shared) {
        LS_TRY(add_shares(stepper, buffer, shares));
    }
    if (is_shared && is_last) { /* all buckets are final now */
        LS_TRY(after_backward_step(stepper, stepper->executor->plan->step_count));
    }
    node->loss_sum = stepper->shares[0].loss_sum;
    node->tokens = stepper->shares[0].tokens;
    return LS_OK;
}

/* The SDC monitor must hash an audited leaf before other gradients are added to it, so its buckets
 * are not posted early. The leaf is pushed last, when its gradient, sums and hash are complete, on
 * all members of a crew: a process that takes over computes a leaf that was not pushed again, hash
 * included. */
static ls_status run_own_node(ls_stepper *stepper, ls_node_stack *stack, uint64_t step, ls_leaf_range leaves,
                              bool is_last)
{
    const ls_plan_options *o = &stepper->executor->plan->options;
    const uint32_t buffer = atomic_load(&stack->depth), leaf = leaves.first;
    LS_ASSERT(buffer + o->sequence_cut * o->expert_degree <= current_part(stepper)->gradient_count);
    ls_leaf_sum sum = {.leaves = leaves};
    LS_TRY(
        run_node(stepper, step, buffer, is_last && !ls_sdc_monitor_wants(stepper->sdc_monitor, leaf), &sum));
    ls_sdc_monitor_leaf(stepper->sdc_monitor, stepper->index, leaf, current_part(stepper)->gradients[buffer],
                        sum.loss_sum, sum.tokens);
    if (has_losses(ls_data_parallel_crew(stepper->parallel)) ||
        (current_part(stepper)->leads && !current_part(stepper)->has_losses)) {
        stack->nodes[buffer] = sum;
    }
    LS_TRY(ls_data_parallel_meet_crew(stepper->parallel));
    if (current_part(stepper)->leads) {
        atomic_store(&stack->depth, buffer + 1);
    }
    return ls_data_parallel_meet_crew(stepper->parallel);
}

/* The first leaf of a part that is in no node of its stack. */
static uint32_t next_leaf(const ls_part *part)
{
    const uint32_t depth = atomic_load(&part->stack->depth);
    const ls_leaf_range last = depth > 0 ? part->stack->nodes[depth - 1].leaves : part->leaves;
    return depth > 0 ? last.first + last.count : part->leaves.first;
}

/* A crew whose stack is complete does not meet again: members may have made their claims already.
 * Otherwise none has, because the leader completes the stack before the last meeting of all. */
ls_status ls_stepper_run_leaves(ls_stepper *stepper, uint64_t step)
{
    const ls_part *part = current_part(stepper);
    const uint32_t past = part->leaves.first + part->leaves.count;
    LS_TRY(ls_data_parallel_await_crew(stepper->parallel));
    for (uint32_t leaf = next_leaf(part); leaf < past; leaf = next_leaf(part)) {
        const uint32_t count = nodes_to_merge(stepper, part->stack);
        if (count >= 2) {
            LS_TRY(merge_top(stepper, part->stack, count));
        }
        ls_stepper_lap(stepper, &stepper->result.reduce_s);
        const ls_leaf_range leaves =
            ls_tree_next_node(leaf, past, stepper->executor->plan->options.expert_degree);
        LS_TRY(run_own_node(stepper, part->stack, step, leaves, leaf + leaves.count == past));
    }
    return LS_OK;
}

/* ---- one leaf alone ---- */

ls_status ls_stepper_compute_alone(void *context, uint32_t index, uint64_t step, uint32_t leaf,
                                   double *loss_sum_out, uint64_t *tokens_out)
{
    ls_stepper *stepper = context;
    LS_ASSERT(leaf < stepper->settings.leaves);
    const uint32_t before = stepper->index;
    ls_leaf_sum node = {.leaves = {leaf, 1}};
    stepper->index = index;
    stepper->turn = ls_local_turn_at(&stepper->settings.local, step);
    const ls_status status = run_node(stepper, step, 0, false, &node);
    stepper->index = before;
    LS_TRY(status);
    *loss_sum_out = node.loss_sum;
    *tokens_out = node.tokens;
    return LS_OK;
}

ls_status ls_stepper_run_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf, double *loss_sum_out,
                              uint64_t *tokens_out)
{
    return ls_stepper_compute_alone(stepper, 0, step, leaf, loss_sum_out, tokens_out);
}

ls_status ls_stepper_trace_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf, ls_op_range_fn fn,
                                void *context)
{
    LS_ASSERT(leaf < stepper->settings.leaves);
    stepper->turn = ls_local_turn_at(&stepper->settings.local, step);
    stepper->look = fn;
    stepper->look_context = context;
    stepper->look_ended = false;
    stepper->index = 0;
    const ls_status status = run_shares(stepper, step, 0, false, leaf);
    stepper->look = NULL;
    stepper->look_ended = false;
    return status;
}
