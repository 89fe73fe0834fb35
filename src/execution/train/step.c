// SPDX-License-Identifier: Apache-2.0
#include "execution/train/step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/elementwise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A leaf, or the sum of the leaves [first, first + count). */
typedef struct tree_node {
    uint32_t first, count;
    uint32_t buffer; /* index of its gradient buffer */
    double loss_sum;
    uint64_t tokens;
} tree_node;

struct ls_stepper {
    ls_walk *walk;
    ls_state *state;
    ls_step_settings settings;
    int64_t length;
    int32_t *samples; /* micro_batch x (length + 1) as drawn */
    int32_t *tokens;  /* micro_batch x length */
    int32_t *targets; /* micro_batch x length */
    float *losses;    /* micro_batch x length */
    double *block_sums;
    int64_t block_count;
    tree_node stack[LS_GRADIENT_BUFFERS_MAX];
    uint32_t depth;
    double last_s;       /* when the current part of the step began */
    ls_op_range_fn look; /* sees every output of a leaf that is traced; NULL: not traced */
    void *look_context;
    bool look_ended;
    uint64_t position; /* of the micro-batch being computed */
    ls_step_result result;
};

/* Adds the time since the last call to `*sum_s`. */
static void lap(ls_stepper *stepper, double *sum_s)
{
    const double now_s = ls_clock_monotonic_s();
    *sum_s += now_s - stepper->last_s;
    stepper->last_s = now_s;
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

static ls_walk_batch batch_into(const ls_stepper *stepper, uint32_t buffer, bool accumulate)
{
    return (ls_walk_batch){
        .parameters = stepper->state->parameters,
        .gradients = stepper->state->gradients[buffer],
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

static ls_status run_leaf(ls_stepper *stepper, uint64_t step, tree_node *node)
{
    const ls_step_settings *s = &stepper->settings;
    const uint32_t micro_batches = s->global_batch / s->leaves / s->micro_batch;
    const uint64_t position = leaf_position(stepper, step, node->first);
    for (uint32_t i = 0; i < micro_batches && !stepper->look_ended; i++) {
        if (s->should_stop && s->should_stop(s->stop_context)) {
            return LS_STOPPED;
        }
        stepper->position = position + (uint64_t)i * s->micro_batch;
        LS_TRY(draw_micro_batch(stepper, stepper->position));
        lap(stepper, &stepper->result.data_s);
        const ls_walk_batch batch = batch_into(stepper, node->buffer, i > 0);
        LS_TRY(run_micro_batch(stepper, &batch));
        sum_losses(stepper, &node->loss_sum, &node->tokens);
        lap(stepper, &stepper->result.backward_s);
    }
    return LS_OK;
}

/* ---- the tree ---- */

/* Adds the top of the stack into the node below it. */
static ls_status merge_top(ls_stepper *stepper)
{
    LS_DCHECK(stepper->depth >= 2);
    const tree_node *right = &stepper->stack[stepper->depth - 1];
    tree_node *left = &stepper->stack[stepper->depth - 2];
    LS_DCHECK(left->first + left->count == right->first);
    const int64_t count = stepper->state->layout->float_count;
    const ls_tensor a = ls_tensor_f32(stepper->state->gradients[left->buffer], 1, count);
    const ls_tensor b = ls_tensor_f32(stepper->state->gradients[right->buffer], 1, count);
    LS_TRY(ls_add(stepper->state->queue, &a, &b, &a));
    left->count += right->count;
    left->loss_sum += right->loss_sum;
    left->tokens += right->tokens;
    stepper->depth--;
    return LS_OK;
}

/* Leaves arrive in order; two neighbours of one size that form an aligned pair are a node of the tree. What
 * is left over at the end joins from the right, which is the same tree: [0, V) splits at the largest power of
 * two below V. */
static ls_status reduce_leaves(ls_stepper *stepper, uint64_t step)
{
    stepper->depth = 0;
    for (uint32_t leaf = 0; leaf < stepper->settings.leaves; leaf++) {
        tree_node *node = &stepper->stack[stepper->depth];
        *node = (tree_node){.first = leaf, .count = 1, .buffer = stepper->depth};
        LS_ASSERT(stepper->depth < stepper->state->gradient_count);
        LS_TRY(run_leaf(stepper, step, node));
        stepper->depth++;
        while (stepper->depth >= 2 &&
               stepper->stack[stepper->depth - 2].count == stepper->stack[stepper->depth - 1].count) {
            LS_TRY(merge_top(stepper));
        }
        lap(stepper, &stepper->result.reduce_s);
    }
    while (stepper->depth >= 2) {
        LS_TRY(merge_top(stepper));
    }
    lap(stepper, &stepper->result.reduce_s);
    return LS_OK;
}

/* ---- norm and update ---- */

static ls_status gradient_norm(ls_stepper *stepper, double *norm_out)
{
    LS_TRY(ls_square_sums(stepper->state->queue, stepper->state->gradients[0],
                          stepper->state->layout->float_count, stepper->block_sums));
    LS_TRY(ls_queue_wait(stepper->state->queue));
    double sum = 0.0;
    for (int64_t i = 0; i < stepper->block_count; i++) {
        sum += stepper->block_sums[i];
    }
    *norm_out = sqrt(sum) / (double)stepper->stack[0].tokens;
    return LS_OK;
}

/* Parameters of one decay group that lie side by side are updated in one call. */
static ls_status update_parameters(ls_stepper *stepper, uint64_t step, double lr, float gradient_scale)
{
    const ls_layout *layout = stepper->state->layout;
    const ls_state *state = stepper->state;
    ls_adamw adamw = {
        .lr = (float)lr,
        .beta1 = stepper->settings.beta1,
        .beta2 = stepper->settings.beta2,
        .eps = stepper->settings.eps,
        .gradient_scale = gradient_scale,
        .step = step + 1,
    };
    for (uint32_t i = 0; i < layout->parameter_count;) {
        const ls_parameter *first = &layout->parameters[i];
        int64_t end = first->offset + first->rows * first->cols;
        for (i++; i < layout->parameter_count; i++) {
            const ls_parameter *next = &layout->parameters[i];
            if (next->offset != end || next->decay != first->decay) {
                break;
            }
            end += next->rows * next->cols;
        }
        const int64_t at = first->offset;
        adamw.weight_decay = first->decay ? stepper->settings.weight_decay : 0.0f;
        LS_TRY(ls_adamw_update(state->queue, &adamw, end - at, state->parameters + at,
                               state->gradients[0] + at, state->m + at, state->v + at));
    }
    return ls_queue_wait(state->queue);
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
    tree_node node = {.first = leaf, .count = 1, .buffer = 0};
    const ls_status status = run_leaf(stepper, step, &node);
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

/* Replays leaf after leaf, op by op, until a value that is not finite shows up. */
static ls_status explain_nonfinite(ls_stepper *stepper, uint64_t step, double loss, double norm,
                                   uint32_t *leaf_out)
{
    const unsigned long long number = step + 1;
    int64_t element = -1;
    *leaf_out = LS_NO_LEAF;
    LS_TRY(ls_find_nonfinite(stepper->state->queue, stepper->state->parameters,
                             stepper->state->layout->float_count, &element));
    if (element >= 0) {
        return ls_fail(LS_ERR_FAILED,
                       "step %llu: parameter %s holds a value that is not finite before the step", number,
                       parameter_holding(stepper->state->layout, element));
    }
    for (uint32_t leaf = 0; leaf < stepper->settings.leaves; leaf++) {
        ls_leaf_fault fault;
        LS_TRY(ls_stepper_find_nonfinite(stepper, step, leaf, &fault));
        if (fault.found) {
            *leaf_out = leaf;
            return ls_fail(LS_ERR_FAILED,
                           "step %llu: loss %g, gradient norm %g; first value that is not finite: leaf %u, "
                           "sample position %llu, %s. Try a lower learning rate, a longer warm-up or "
                           "train.clip_norm",
                           number, loss, norm, leaf, (unsigned long long)fault.position, fault.where);
        }
    }
    return ls_fail(LS_ERR_FAILED,
                   "step %llu: loss %g, gradient norm %g; every leaf is finite on its own: the sum over the "
                   "batch overflowed. Try a lower learning rate",
                   number, loss, norm);
}

/* ---- the step ---- */

ls_status ls_stepper_run(ls_stepper *stepper, uint64_t step, double lr, ls_step_result *result_out)
{
    stepper->result = (ls_step_result){0};
    stepper->last_s = ls_clock_monotonic_s();
    LS_TRY(reduce_leaves(stepper, step));

    const tree_node *root = &stepper->stack[0];
    LS_ASSERT(root->count == stepper->settings.leaves);
    double norm = 0.0;
    LS_TRY(gradient_norm(stepper, &norm));
    const double loss = root->loss_sum / (double)root->tokens;
    if (!isfinite(loss) || !isfinite(norm)) {
        return explain_nonfinite(stepper, step, loss, norm, &result_out->failed_leaf);
    }
    const double clip_norm = stepper->settings.clip_norm;
    const double clip = clip_norm > 0.0 && norm > clip_norm ? clip_norm / (norm + 1e-6) : 1.0;
    LS_TRY(update_parameters(stepper, step, lr, (float)(clip / (double)root->tokens)));
    lap(stepper, &stepper->result.optimizer_s);

    stepper->result.loss = (float)loss;
    stepper->result.grad_norm = norm;
    stepper->result.tokens = root->tokens;
    *result_out = stepper->result;
    return LS_OK;
}

ls_status ls_stepper_run_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf, double *loss_sum_out,
                              uint64_t *tokens_out)
{
    LS_ASSERT(leaf < stepper->settings.leaves);
    tree_node node = {.first = leaf, .count = 1, .buffer = 0};
    LS_TRY(run_leaf(stepper, step, &node));
    *loss_sum_out = node.loss_sum;
    *tokens_out = node.tokens;
    return LS_OK;
}

/* ---- life ---- */

static ls_status alloc_buffers(ls_stepper *stepper)
{
    const size_t rows = (size_t)stepper->settings.micro_batch * (size_t)stepper->length;
    stepper->samples = calloc(rows + stepper->settings.micro_batch, sizeof *stepper->samples);
    stepper->tokens = calloc(rows, sizeof *stepper->tokens);
    stepper->targets = calloc(rows, sizeof *stepper->targets);
    stepper->losses = calloc(rows, sizeof *stepper->losses);
    stepper->block_count = (stepper->state->layout->float_count + LS_NORM_BLOCK - 1) / LS_NORM_BLOCK;
    stepper->block_sums = calloc((size_t)stepper->block_count, sizeof *stepper->block_sums);
    if (!stepper->samples || !stepper->tokens || !stepper->targets || !stepper->losses ||
        !stepper->block_sums) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the tokens of a micro-batch (%zu tokens)", rows);
    }
    return LS_OK;
}

ls_status ls_stepper_create(ls_walk *walk, ls_state *state, const ls_step_settings *settings,
                            ls_stepper **stepper_out)
{
    LS_ASSERT(settings->leaves >= 1 && settings->global_batch % settings->leaves == 0);
    LS_ASSERT(settings->global_batch / settings->leaves % settings->micro_batch == 0);
    LS_ASSERT(walk->plan->options.training && walk->plan->options.sequences == settings->micro_batch);
    LS_ASSERT(state->gradient_count == ls_tree_buffers(settings->leaves));
    ls_stepper *stepper = calloc(1, sizeof *stepper);
    if (!stepper) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the training step");
    }
    stepper->walk = walk;
    stepper->state = state;
    stepper->settings = *settings;
    stepper->length = walk->plan->options.length;
    const ls_status status = alloc_buffers(stepper);
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
    free(stepper->samples);
    free(stepper->tokens);
    free(stepper->targets);
    free(stepper->losses);
    free(stepper->block_sums);
    free(stepper);
}
