// SPDX-License-Identifier: Apache-2.0
#include "execution/integrity/op_trace.h"

#include "base/arena.h"
#include "base/assert.h"
#include "compute/kernels/adamw.h"

#include <math.h>
#include <stdio.h>

static const char *const phase_names[] = {"forward", "backward", "weight gradient"};

typedef struct trace {
    ls_executor *executor;
    const ls_executor_batch *batch;
    const ls_op *op;
    ls_op_range range; /* of the current output */
    ls_op_range_fn fn;
    void *context;
    bool ended;
    ls_arena host; /* copies of what is on a device */
} trace;

/* ---- one output ---- */

void ls_op_range_measure(const ls_tensor *t, ls_op_range *range)
{
    double min = INFINITY, max = -INFINITY, squares = 0.0;
    int64_t finite = 0, first_bad = -1;
    for (int64_t r = 0; r < t->rows; r++) {
        const float *row = ls_tensor_row(t, r);
        for (int64_t c = 0; c < t->cols; c++) {
            const double x = (double)row[c];
            if (!isfinite(x)) {
                first_bad = first_bad < 0 ? r * t->cols + c : first_bad;
                continue;
            }
            min = x < min ? x : min;
            max = x > max ? x : max;
            squares += x * x;
            finite++;
        }
    }
    range->rows = t->rows;
    range->cols = t->cols;
    range->min = finite ? min : 0.0;
    range->max = finite ? max : 0.0;
    range->rms = finite ? sqrt(squares / (double)finite) : 0.0;
    range->nonfinite = t->rows * t->cols - finite;
    range->bad_row = first_bad < 0 ? -1 : first_bad / t->cols;
    range->bad_col = first_bad < 0 ? -1 : first_bad % t->cols;
}

/* The tensor as float32 that the host can read: itself on the CPU, else a copy in t->host. */
static ls_status bring_to_host(trace *t, ls_tensor *tensor)
{
    ls_queue *queue = t->executor->queue;
    if (ls_queue_device(queue) == LS_DEVICE_CPU) {
        return LS_OK;
    }
    const int64_t count = tensor->rows * tensor->cols, size = ls_dtype_bytes(tensor->dtype);
    float *values = ls_arena_new(&t->host, float, (size_t)count);
    /* bfloat16 arrives in the upper half of the buffer and is widened from its front. */
    char *raw = (char *)values + count * ((int64_t)sizeof *values - size);
    for (int64_t row = 0; row < tensor->rows; row++) {
        LS_TRY(ls_queue_move(queue, raw + row * tensor->cols * size, ls_tensor_at(tensor, row, 0),
                             (size_t)(tensor->cols * size)));
    }
    LS_TRY(ls_queue_wait(queue));
    for (int64_t i = 0; i < count && tensor->dtype == LS_BF16; i++) {
        values[i] = ls_master_join(((const uint16_t *)raw)[i], 0);
    }
    *tensor = ls_tensor_f32(values, tensor->rows, tensor->cols);
    return LS_OK;
}

static void show(trace *t, const char *name, bool is_gradient, ls_tensor tensor)
{
    if (t->ended || !tensor.data) {
        return;
    }
    if (bring_to_host(t, &tensor) != LS_OK) {
        t->ended = true;
        return;
    }
    t->range.name = name;
    t->range.is_gradient = is_gradient;
    ls_op_range_measure(&tensor, &t->range);
    t->ended = !t->fn(t->context, &t->range);
    ls_arena_release(&t->host);
}

static void show_value(trace *t, int32_t value)
{
    if (value != LS_NONE) {
        show(t, t->executor->plan->values[value].name, false, ls_executor_value(t->executor, value));
    }
}

static void show_columns(trace *t, int32_t value, int64_t first, int64_t count)
{
    show(t, t->executor->plan->values[value].name, false,
         ls_tensor_columns(ls_executor_value(t->executor, value), first, count));
}

/* Reports the gradients of parameter `index` and of those fused after it, `floats` in total; 0:
 * only of that one. */
static void show_gradients(trace *t, int32_t index, int64_t floats)
{
    const ls_layout *layout = t->executor->plan->layout;
    if (index == LS_NONE) {
        return;
    }
    const ls_parameter *p = &layout->parameters[index];
    int64_t left = floats > 0 ? floats : p->rows * p->cols;
    for (; left > 0; left -= p->rows * p->cols, p++) {
        LS_ASSERT(p < layout->parameters + layout->parameter_count);
        show(t, p->name, true, ls_tensor_f32(t->batch->gradients + p->offset, p->rows, p->cols));
    }
}

/* ---- what a step wrote ---- */

static void show_head(trace *t)
{
    const ls_plan_options *options = &t->executor->plan->options;
    show(t, "losses", false, ls_tensor_f32(t->batch->losses, options->sequences, options->length));
    if (options->training) {
        show_value(t, t->op->din[0]);
        show_value(t, t->op->dweight);
        show_gradients(t, t->op->dweight == LS_NONE ? t->op->weight : LS_NONE, 0);
    }
}

/* With query and key norms, the gradient of queries and keys has a matrix of its own, and of the
 * fused one only the values' columns are written here. */
static void show_attention_backward(trace *t)
{
    const ls_model_config *config = &t->executor->plan->config;
    const int64_t q = config->heads * config->head_dim, kv = config->kv_heads * config->head_dim;
    show_value(t, t->op->din[0]);
    if (t->op->din[1] != t->op->din[0]) {
        show_columns(t, t->op->din[1], q + kv, kv);
    }
}

static void show_backward_input(trace *t)
{
    const ls_model_config *config = &t->executor->plan->config;
    switch (t->op->kind) {
    case LS_OP_ATTENTION:
        show_attention_backward(t);
        return;
    case LS_OP_QK_NORM:
        /* The values' columns beside them were written by attention. */
        show_columns(t, t->op->din[0], 0, (config->heads + config->kv_heads) * config->head_dim);
        show_gradients(t, t->op->weight, 0);
        show_gradients(t, t->op->bias, 0);
        return;
    case LS_OP_NORM:
    case LS_OP_ADD_NORM:
        show_value(t, t->op->din[0]);
        show_gradients(t, t->op->weight, 0);
        show_gradients(t, t->op->bias, 0);
        return;
    default:
        show_value(t, t->op->din[0]);
    }
}

static void show_outputs(trace *t, ls_phase phase)
{
    const ls_op *op = t->op;
    if (phase == LS_PHASE_BACKWARD_WEIGHT) {
        const int64_t experts = op->kind == LS_OP_EXPERT_LINEAR ? t->executor->plan->config.experts
                                : op->kind == LS_OP_LINEAR      ? 1
                                                                : 0;
        show_gradients(t, op->weight, experts * op->in_features * op->out_features);
        show_gradients(t, op->bias, op->kind == LS_OP_LINEAR ? op->out_features : 0);
    } else if (phase == LS_PHASE_BACKWARD_INPUT) {
        show_backward_input(t);
    } else if (op->kind == LS_OP_HEAD_LOSS) {
        show_head(t);
    } else {
        show_value(t, op->out[0]);
        show_value(t, op->out[1]);
    }
}

/* The outputs of each piece of the sequences. */
static void show_pieces(trace *t, const ls_executor_batch *batch, ls_phase phase)
{
    for (uint32_t piece = 0; piece < t->executor->plan->pieces; piece++) {
        ls_executor_batch own = *batch;
        own.gradients = batch->piece_gradients ? batch->piece_gradients[piece] : batch->gradients;
        t->executor->piece = piece;
        t->batch = &own;
        show_outputs(t, phase);
    }
    t->batch = batch;
}

ls_status ls_op_trace_run(ls_executor *executor, const ls_executor_batch *batch, ls_op_range_fn fn,
                          void *context, bool *ended_out)
{
    trace t = {.executor = executor, .batch = batch, .fn = fn, .context = context};
    for (uint32_t i = 0; i < executor->plan->step_count && !t.ended; i++) {
        LS_TRY(ls_executor_step(executor, batch, i));
        LS_TRY(ls_queue_wait(executor->queue));
        const ls_plan_step step = executor->plan->steps[i];
        t.op = &executor->plan->ops[step.op];
        t.range = (ls_op_range){.step = i,
                                .op = ls_op_kind_name(t.op->kind),
                                .phase = phase_names[step.phase],
                                .layer = t.op->layer};
        show_pieces(&t, batch, step.phase);
    }
    *ended_out = t.ended;
    return LS_OK;
}

/* ---- in words ---- */

void ls_op_range_describe(const ls_op_range *range, char *text_out, size_t text_bytes)
{
    char layer[32] = "", element[64] = "";
    if (range->layer >= 0) {
        snprintf(layer, sizeof layer, "layer %d ", range->layer);
    }
    if (range->nonfinite > 0) {
        snprintf(element, sizeof element, ", row %lld, column %lld", (long long)range->bad_row,
                 (long long)range->bad_col);
    }
    snprintf(text_out, text_bytes, "%s%s %s, %s '%s'%s", layer, range->op, range->phase,
             range->is_gradient ? "gradient of" : "value", range->name, element);
}
