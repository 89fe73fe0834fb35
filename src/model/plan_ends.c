// SPDX-License-Identifier: Apache-2.0
/* The ends of the model while a plan is built: embedding, final norm, head, and what stages
 * exchange. */
#include "model/plan_layer.h"

/* ---- forward ---- */

static int32_t add_embedding(builder *b, plan_ends *ends)
{
    const bool gpt2 = b->config->family == LS_FAMILY_GPT2;
    const int32_t stream = add_value(b, "embedded", b->own, b->config->width);
    const int32_t partial = ls_plan_scatter(b, stream, LS_NONE, &ends->embedded);
    const int32_t index = ends->embedding = add_op(b, LS_OP_EMBEDDING);
    op_at(b, index)->out[0] = partial;
    op_at(b, index)->weight =
        find_parameter(b, gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
    op_at(b, index)->bias = find_parameter(b, "transformer.wpe.weight");
    add_step(b, LS_PHASE_FORWARD, index);
    add_step(b, LS_PHASE_FORWARD, ends->embedded);
    return stream;
}

static void add_final_norm(builder *b, const layer_values *last, plan_ends *ends)
{
    const bool gpt2 = b->config->family == LS_FAMILY_GPT2;
    const int32_t sum = add_value(b, "final stream", b->own, b->config->width);
    const int32_t mean = b->config->rms_norm ? LS_NONE : add_float_value(b, "final mean", b->own, 1);
    const int32_t rstd = add_float_value(b, "final rstd", b->own, 1);
    const int32_t normed = add_value(b, "hidden", b->own, b->config->width);
    const int32_t weight = find_parameter(b, gpt2 ? "transformer.ln_f.weight" : "model.norm.weight");
    const int32_t bias = find_parameter(b, "transformer.ln_f.bias");
    ends->final_norm = ls_plan_add_norm(b, sum, (int32_t[]){last->middle, last->down},
                                        (norm_values){normed, mean, rstd, weight, bias});
    b->plan->hidden = ls_plan_gather(b, normed, &ends->gathered);
    add_step(b, LS_PHASE_FORWARD, ends->final_norm);
    add_step(b, LS_PHASE_FORWARD, ends->gathered);
}

/* Target size of a chunk of logits in bytes. Larger chunks touch the head's weight gradient less
 * often, smaller ones need less memory. */
static const int64_t LOGITS_FLOATS = 16 << 20;

/* Tokens whose logits exist at once: a function of the device and these two sizes only, because it
 * affects the bits. */
static int64_t chunk_rows_of(const ls_plan_options *options, int64_t rows, int64_t vocab)
{
    const int64_t fitting = options->logits_rows > 0 ? options->logits_rows : LOGITS_FLOATS / vocab / 64 * 64;
    const int64_t most = fitting < 64 ? 64 : fitting;
    if (rows <= most) {
        return rows;
    }
    /* Chunks of nearly equal size, multiples of 64, so that the last one is not tiny. */
    const int64_t chunks = (rows + most - 1) / most;
    const int64_t even = (rows + chunks - 1) / chunks;
    return (even + 63) / 64 * 64;
}

/* What the head needs beside the logits when the vocabulary is cut. */
static void add_head_scratch(builder *b, ls_op *op)
{
    const ls_plan_options *o = &b->plan->options;
    op->backward_input_cut = b->pieces;
    if (o->tensor_degree > 1) {
        op->stats[0] = add_float_value(b, "loss statistics", 3, op->chunk_rows);
    }
    if (o->training) {
        op->stats[1] = add_scratch(
            b, "head workspace",
            o->workspaces.linear(op->chunk_rows, op->in_features, op->out_features, 1, b->pieces));
    }
}

static int32_t add_head(builder *b)
{
    const int32_t index = add_op(b, LS_OP_HEAD_LOSS);
    ls_op *op = op_at(b, index);
    op->in[0] = b->plan->hidden;
    op->weight = b->config->tied ? (int32_t)b->plan->layout->table : find_parameter(b, "lm_head.weight");
    op->in_features = b->config->width;
    op->out_features = b->config->vocab;
    op->chunk_rows = chunk_rows_of(&b->plan->options, b->n, b->vocab);
    b->plan->logits = add_value(b, "logits", op->chunk_rows, b->config->vocab);
    ls_value *logits = &b->plan->values[b->plan->logits];
    const int64_t align = b->plan->options.logits_align > 0 ? b->plan->options.logits_align : 1;
    logits->stride = (logits->cols + align - 1) / align * align;
    logits->scratch = true;
    op->workspace = b->plan->logits;
    add_head_scratch(b, op);
    if (b->plan->options.training) {
        b->plan->dhidden = add_value(b, "d hidden", b->n, b->config->width);
        op->din[0] = b->plan->dhidden;
    }
    add_step(b, LS_PHASE_FORWARD, index);
    return index;
}

/* A stage that is not the last sends the sum of its last layer's branches. */
static void add_stage_end(builder *b, const layer_values *last)
{
    const int32_t index = add_op(b, LS_OP_ADD);
    b->plan->stage.out = add_value(b, "sent stream", b->own, b->config->width);
    op_at(b, index)->in[0] = last->middle;
    op_at(b, index)->in[1] = last->down;
    op_at(b, index)->out[0] = b->plan->stage.out;
    add_step(b, LS_PHASE_FORWARD, index);
}

int32_t ls_plan_begin(builder *b, plan_ends *ends)
{
    if (b->plan->options.first_layer == 0) {
        return add_embedding(b, ends);
    }
    return b->plan->stage.in = add_value(b, "received stream", b->own, b->config->width);
}

void ls_plan_end(builder *b, const layer_values *last, plan_ends *ends)
{
    const ls_plan_options *o = &b->plan->options;
    if (o->first_layer + o->layer_count < b->config->layers) {
        add_stage_end(b, last);
        return;
    }
    add_final_norm(b, last, ends);
    ends->head = o->losses ? add_head(b) : LS_NONE;
}

/* ---- backward ---- */

/* The table's gradient that the head makes, apart from the embedding's. */
static void add_head_gradient(builder *b, int32_t embedding, int32_t head)
{
    const uint32_t table = b->plan->layout->table;
    if (!b->config->tied || b->plan->layout->parameters[table].frozen) {
        return;
    }
    b->plan->head_gradient = add_float_value(b, "head gradient", b->config->vocab, b->config->width);
    op_at(b, head)->dweight = b->plan->head_gradient;
    if (embedding != LS_NONE) {
        op_at(b, embedding)->dweight = b->plan->head_gradient;
    }
}

void ls_plan_end_backward(builder *b, const plan_ends *ends)
{
    if (ends->final_norm == LS_NONE) {
        b->plan->stage.dout = b->dstream;
        return;
    }
    int32_t dnormed = b->plan->dhidden;
    add_head_gradient(b, ends->embedding, ends->head);
    if (ends->gathered != LS_NONE) {
        dnormed = add_value(b, "d hidden of own rows", b->own, b->config->width);
        set_pair(b, ends->gathered, dnormed, b->plan->dhidden);
    }
    ls_plan_norm_gradients(b, ends->final_norm, dnormed, false);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ends->gathered);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ends->final_norm);
}

void ls_plan_begin_backward(builder *b, const plan_ends *ends)
{
    if (ends->embedding == LS_NONE) {
        b->plan->stage.din = b->dstream;
        return;
    }
    int32_t dembedded = b->dstream;
    if (ends->embedded != LS_NONE) {
        dembedded = add_value(b, "d embedded", b->n, b->config->width);
        set_pair(b, ends->embedded, dembedded, b->dstream);
    }
    op_at(b, ends->embedding)->dout[0] = dembedded;
    add_step(b, LS_PHASE_BACKWARD_INPUT, ends->embedded);
    add_step(b, LS_PHASE_BACKWARD_WEIGHT, ends->embedding);
}
