// SPDX-License-Identifier: Apache-2.0
/* Building the ops, values and steps. Placement is plan_place.c, accounting plan_account.c. */
#include "model/plan_layer.h"

#include "base/pieces.h"

#include <string.h>

enum {
    LAYER_OPS_MAX = 24,
    /* of one set of ops: outputs, statistics, gradients, workspaces */
    LAYER_VALUES_MAX = 60,
    /* forward 22, clones 20, backward 34 */
    LAYER_STEPS_MAX = 76,
    OUTER_MAX = 12
};

/* ---- parameters ---- */

static layer_parameters layer_parameters_of(const builder *b)
{
    const bool gpt2 = b->config->family == LS_FAMILY_GPT2;
    layer_parameters p = {
        .norm_1 = layer_parameter(b, gpt2 ? "ln_1.weight" : "input_layernorm.weight"),
        .norm_1_bias = layer_parameter(b, "ln_1.bias"),
        .qkv = layer_parameter(b, gpt2 ? "attn.c_attn.weight" : "self_attn.q_proj.weight"),
        .qkv_bias = layer_parameter(b, gpt2 ? "attn.c_attn.bias" : "self_attn.q_proj.bias"),
        .q_norm = layer_parameter(b, "self_attn.q_norm.weight"),
        .k_norm = layer_parameter(b, "self_attn.k_norm.weight"),
        .project = layer_parameter(b, gpt2 ? "attn.c_proj.weight" : "self_attn.o_proj.weight"),
        .project_bias = layer_parameter(b, gpt2 ? "attn.c_proj.bias" : "self_attn.o_proj.bias"),
        .norm_2 = layer_parameter(b, gpt2 ? "ln_2.weight" : "post_attention_layernorm.weight"),
        .norm_2_bias = layer_parameter(b, "ln_2.bias"),
        .up = layer_parameter(b, gpt2 ? "mlp.c_fc.weight" : "mlp.gate_proj.weight"),
        .up_bias = layer_parameter(b, gpt2 ? "mlp.c_fc.bias" : "mlp.gate_proj.bias"),
        .down = layer_parameter(b, gpt2 ? "mlp.c_proj.weight" : "mlp.down_proj.weight"),
        .down_bias = layer_parameter(b, gpt2 ? "mlp.c_proj.bias" : "mlp.down_proj.bias"),
        .router = LS_NONE,
    };
    if (b->config->experts > 0) {
        const bool mixtral = b->config->family == LS_FAMILY_MIXTRAL;
        p.router = layer_parameter(b, mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight");
        p.up = layer_parameter(b, mixtral ? "experts.0.w1.weight" : "experts.0.gate_proj.weight");
        p.down = layer_parameter(b, mixtral ? "experts.0.w2.weight" : "experts.0.down_proj.weight");
    }
    return p;
}

/* ---- workspaces ---- */

static int64_t norm_floats(const builder *b, int64_t rows, int64_t cols, int64_t groups)
{
    return b->plan->options.workspaces.norm(b->plan->options.workspaces.context, rows, cols, groups);
}

static int64_t attention_floats(const builder *b)
{
    const ls_plan_options *o = &b->plan->options;
    const ls_model_config *c = b->config;
    const int64_t sequences = o->sequence_cut > 1 ? 1 : o->sequences; /* cut ones go one by one */
    return o->workspaces.attention(o->workspaces.context, sequences, o->length, c,
                                   ls_model_config_window(c, b->layer));
}

/* ---- single ops ---- */

int32_t ls_plan_add_norm(builder *b, int32_t sum, const int32_t addends[2], norm_values n)
{
    const int32_t index = add_op(b, addends ? LS_OP_ADD_NORM : LS_OP_NORM);
    ls_op *op = op_at(b, index);
    op->in[0] = addends ? addends[0] : sum;
    op->in[1] = addends ? addends[1] : LS_NONE;
    op->out[0] = addends ? sum : n.normed;
    op->out[1] = addends ? n.normed : LS_NONE;
    op->stats[0] = n.mean;
    op->stats[1] = n.rstd;
    op->weight = n.weight;
    op->bias = n.bias;
    op->backward_input_cut = b->pieces;
    return index;
}

void ls_plan_set_cut(builder *b, int32_t index, ls_linear_split split)
{
    ls_op *op = op_at(b, index);
    op->split = b->plan->options.tensor_degree > 1 ? split : LS_LINEAR_SPLIT_NONE;
    op->forward_cut = split == LS_LINEAR_SPLIT_IN ? b->pieces : 1;
    op->backward_input_cut = split == LS_LINEAR_SPLIT_OUT ? b->pieces : 1;
    const int64_t floats = b->plan->options.workspaces.linear(b->n, op->in_features, op->out_features,
                                                              op->forward_cut, op->backward_input_cut);
    op->workspace = add_scratch(b, "linear workspace", floats);
}

/* The index of the parameter called `name` among those that are trained; LS_NONE if there is none.
 * */
static int32_t trained_parameter(const builder *b, const char *name)
{
    const ls_layout *layout = b->plan->layout;
    return layer_parameter_in(b, 0, layout->trained_count, name);
}

/* Finds which segments of a linear, whose tensors are parameters op->weight and following, have an
 * adapter. Returns the sum of their ranks. */
static int64_t find_adapters(builder *b, ls_op *op, int32_t weight)
{
    const ls_layout *layout = b->plan->layout;
    int64_t ranks = 0;
    for (uint32_t s = 0; s < op->segment_count && layout->adapter; s++) {
        const char *name = layout->parameters[weight + (int32_t)s].name;
        const int32_t a = trained_parameter(b, ls_adapter_name(b->arena, name, 'A'));
        const int32_t first_b = trained_parameter(b, ls_adapter_name(b->arena, name, 'B'));
        op->segment_adapted[s] = a != LS_NONE;
        if (a != LS_NONE && ranks == 0) {
            op->weight = a;
            op->bias = first_b;
        }
        ranks += a != LS_NONE ? layout->adapter->rank : 0;
    }
    return ranks;
}

/* What the adapter on linear `which` reads while training with dropout. */
static int32_t add_dropout(builder *b, int32_t in, int which, int32_t *dropped)
{
    const ls_value *x = &b->plan->values[in];
    if (*dropped == LS_NONE) {
        *dropped = add_value(b, "dropped", x->rows, x->cols);
    }
    const int32_t index = add_op(b, LS_OP_DROPOUT);
    ls_op *op = op_at(b, index);
    op->in[0] = in;
    op->out[0] = *dropped;
    op->accumulate_din = true;
    op->site = (uint32_t)b->layer * LINEAR_COUNT + (uint32_t)which;
    return index;
}

/* Linear `which` of a layer with what stands beside it. Values that `v` has already are those of
 * the first forward pass. */
static linear_ops with_adapter(builder *b, int32_t linear, int which, layer_values *v)
{
    linear_ops ops = linear_alone(linear);
    ls_op found = *op_at(b, linear);
    if (found.weight_in_out) { /* gpt2: one tensor for all segments */
        found.segment_count = 1;
        found.segment[0] = found.out_features;
    }
    const int64_t ranks = find_adapters(b, &found, found.weight);
    if (ranks == 0) {
        return ops;
    }
    if (v->low[which] == LS_NONE) {
        v->low[which] = add_value(b, "adapter", b->n, ranks);
    }
    found.accumulate_din = true;
    if (b->plan->options.training && b->plan->layout->adapter->dropout > 0.0) {
        ops.dropout = add_dropout(b, found.in[0], which, &v->dropped[which]);
        found.in[0] = v->dropped[which];
        found.accumulate_din = false;
    }
    ops.adapter = add_op(b, LS_OP_ADAPTER);
    found.kind = LS_OP_ADAPTER;
    found.workspace = LS_NONE;
    found.forward_cut = found.backward_input_cut = 1;
    found.low = v->low[which];
    *op_at(b, ops.adapter) = found;
    return ops;
}

/* ---- values of a layer ---- */

static void add_attention_values(builder *b, layer_values *v)
{
    const ls_model_config *c = b->config;
    v->qkv = add_value(b, "qkv", b->n, b->q + 2 * b->kv);
    v->qk = v->qkv;
    v->qk_rstd = LS_NONE;
    if (c->qk_norm) {
        v->qk = add_value(b, "normed qk", b->n, b->q + b->kv);
        v->qk_rstd = add_float_value(b, "qk rstd", b->n, c->heads + c->kv_heads);
    }
    v->attended = add_value(b, "attention", b->n, b->q);
    v->lse = add_float_value(b, "attention lse", b->n, c->heads);
    v->projected = add_value(b, "attention branch", b->own, c->width);
}

static void add_norm_values(builder *b, int which, int32_t *normed, int32_t *mean, int32_t *rstd)
{
    const bool first = which == 1;
    *normed = add_value(b, first ? "normed 1" : "normed 2", b->own, b->config->width);
    *mean = b->config->rms_norm ? LS_NONE : add_float_value(b, first ? "mean 1" : "mean 2", b->own, 1);
    *rstd = add_float_value(b, first ? "rstd 1" : "rstd 2", b->own, 1);
}

/* Rows of the MLP: all experts' together. */
static int64_t mlp_rows(const builder *b)
{
    return b->config->experts > 0 ? ls_plan_expert_rows(b->plan) : b->n;
}

static int32_t add_up_value(builder *b)
{
    const int64_t ffn = ls_model_config_mlp_ffn(b->config);
    return add_value(b, b->config->swiglu ? "gate|up" : "up", mlp_rows(b), b->config->swiglu ? 2 * ffn : ffn);
}

static int32_t add_activated_value(builder *b)
{
    return add_value(b, "activated", mlp_rows(b), ls_model_config_mlp_ffn(b->config));
}

/* A full set. stream: given for layer 0 and for clones, else LS_NONE. */
static layer_values add_layer_values(builder *b, int32_t stream, int32_t down)
{
    layer_values v = {.stream =
                          stream != LS_NONE ? stream : add_value(b, "stream", b->own, b->config->width)};
    add_norm_values(b, 1, &v.normed_1, &v.mean_1, &v.rstd_1);
    add_attention_values(b, &v);
    v.middle = add_value(b, "middle stream", b->own, b->config->width);
    add_norm_values(b, 2, &v.normed_2, &v.mean_2, &v.rstd_2);
    v.experts = ls_plan_expert_values(b);
    v.up = add_up_value(b);
    v.activated = add_activated_value(b);
    v.down = down != LS_NONE ? down : add_value(b, "MLP branch", b->own, b->config->width);
    for (int i = 0; i < LINEAR_COUNT; i++) {
        v.low[i] = v.dropped[i] = LS_NONE;
    }
    return v;
}

/* The set that the backward of a layer reads. */
static layer_values add_backward_values(builder *b, const layer_values *forward)
{
    layer_values v = *forward;
    if (b->plan->options.recompute == LS_RECOMPUTE_FULL) {
        v = add_layer_values(b, forward->stream, forward->down);
        v.low[DOWN] = forward->low[DOWN]; /* the only linear that is not computed again */
        return v;
    }
    if (b->plan->options.recompute == LS_RECOMPUTE_SELECTIVE) {
        add_norm_values(b, 1, &v.normed_1, &v.mean_1, &v.rstd_1);
        add_norm_values(b, 2, &v.normed_2, &v.mean_2, &v.rstd_2);
        v.activated = add_activated_value(b);
        if (b->config->experts > 0) {
            ls_plan_expert_dispatch_again(b, &v.experts);
        }
        for (int i = 0; i < LINEAR_COUNT; i++) {
            v.dropped[i] = LS_NONE;
        }
        if (b->config->qk_norm) {
            v.qk = add_value(b, "normed qk", b->n, b->q + b->kv);
            v.qk_rstd = add_float_value(b, "qk rstd", b->n, b->config->heads + b->config->kv_heads);
        }
    }
    return v;
}

/* ---- ops of a layer ---- */

static void add_attention_ops(builder *b, layer_values *v, const layer_parameters *p, layer_ops *ops)
{
    const ls_model_config *c = b->config;
    int32_t gather, scatter;
    const int32_t normed = ls_plan_gather(b, v->normed_1, &gather);
    const int32_t qkv = add_linear(b, normed, v->qkv, p->qkv, p->qkv_bias);
    set_segments(b, qkv, 3, (const int64_t[]){b->q, b->kv, b->kv});
    ls_plan_set_cut(b, qkv, LS_LINEAR_SPLIT_OUT);
    ops->linears[QKV] = with_adapter(b, qkv, QKV, v);
    ops->linears[QKV].gather = gather;
    ops->qk_norm = LS_NONE;
    if (c->qk_norm) {
        ops->qk_norm = add_op(b, LS_OP_QK_NORM);
        ls_op *op = op_at(b, ops->qk_norm);
        op->in[0] = v->qkv;
        op->out[0] = v->qk;
        op->stats[1] = v->qk_rstd;
        op->weight = p->q_norm;
        op->bias = p->k_norm;
        op->backward_input_cut = b->pieces;
    }
    ops->rotary = LS_NONE;
    if (c->rotary) {
        ops->rotary = add_op(b, LS_OP_ROTARY);
        op_at(b, ops->rotary)->in[0] = v->qk;
        op_at(b, ops->rotary)->out[0] = v->qk;
    }
    ops->attention = add_op(b, LS_OP_ATTENTION);
    ls_op *attention = op_at(b, ops->attention);
    attention->in[0] = v->qk;
    attention->in[1] = v->qkv;
    attention->out[0] = v->attended;
    attention->stats[0] = v->lse;
    attention->window = ls_model_config_window(c, b->layer);
    const int32_t branch = ls_plan_scatter(b, v->projected, p->project_bias, &scatter);
    const int32_t project = add_linear(b, v->attended, branch, p->project, p->project_bias);
    ls_plan_set_cut(b, project, LS_LINEAR_SPLIT_IN);
    ops->linears[PROJECT] = with_adapter(b, project, PROJECT, v);
    ops->linears[PROJECT].scatter = scatter;
}

static void add_mlp_ops(builder *b, layer_values *v, const layer_parameters *p, layer_ops *ops)
{
    const ls_model_config *c = b->config;
    if (c->experts > 0) {
        ls_plan_expert_ops(b, v, p, ops);
        return;
    }
    int32_t gather, scatter;
    const int32_t normed = ls_plan_gather(b, v->normed_2, &gather);
    const int32_t up = add_linear(b, normed, v->up, p->up, p->up_bias);
    if (c->swiglu) {
        set_segments(b, up, 2, (const int64_t[]){c->ffn, c->ffn});
    }
    ls_plan_set_cut(b, up, LS_LINEAR_SPLIT_OUT);
    ops->linears[UP] = with_adapter(b, up, UP, v);
    ops->linears[UP].gather = gather;
    ops->activate = add_op(b, c->swiglu ? LS_OP_SWIGLU : LS_OP_GELU);
    op_at(b, ops->activate)->in[0] = v->up;
    op_at(b, ops->activate)->out[0] = v->activated;
    const int32_t branch = ls_plan_scatter(b, v->down, p->down_bias, &scatter);
    const int32_t down = add_linear(b, v->activated, branch, p->down, p->down_bias);
    ls_plan_set_cut(b, down, LS_LINEAR_SPLIT_IN);
    ops->linears[DOWN] = with_adapter(b, down, DOWN, v);
    ops->linears[DOWN].scatter = scatter;
}

/*
 * before: the layer before this one, whose MLP branch joins the stream here; NULL when the stream
 * already exists (layer 0, clones). middle_kept: the middle stream exists too (selective
 * recompute), so its norm is a plain one.
 */
static layer_ops add_layer_ops(builder *b, layer_values *v, const layer_values *before, bool middle_kept)
{
    const layer_parameters p = layer_parameters_of(b);
    layer_ops ops;
    ops.norm_1 = ls_plan_add_norm(b, v->stream, before ? (int32_t[]){before->middle, before->down} : NULL,
                                  (norm_values){v->normed_1, v->mean_1, v->rstd_1, p.norm_1, p.norm_1_bias});
    add_attention_ops(b, v, &p, &ops);
    ops.norm_2 = ls_plan_add_norm(b, v->middle, middle_kept ? NULL : (int32_t[]){v->stream, v->projected},
                                  (norm_values){v->normed_2, v->mean_2, v->rstd_2, p.norm_2, p.norm_2_bias});
    add_mlp_ops(b, v, &p, &ops);
    return ops;
}

/* ---- gradients ---- */

/* What the gradient of a norm over rows of the stream needs. With a canonical cut: the largest
 * piece's, and the sums of each piece. */
static int64_t row_norm_floats(const builder *b, const ls_op *op)
{
    const int64_t width = b->config->width;
    const uint32_t pieces = b->pieces;
    int64_t most = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        const int64_t first = ls_piece_first(b->own, pieces, i), end = ls_piece_first(b->own, pieces, i + 1);
        const int64_t floats = norm_floats(b, end - first, width, 1);
        most = floats > most ? floats : most;
    }
    const int64_t gradients = op->bias != LS_NONE ? 2 : 1;
    return most + (b->plan->options.tensor_cut > 1 ? pieces * gradients * width : 0);
}

void ls_plan_norm_gradients(builder *b, int32_t index, int32_t dnormed, bool accumulate)
{
    ls_op *op = op_at(b, index);
    const bool joins = op->kind == LS_OP_ADD_NORM;
    op->din[0] = b->dstream;
    op->din[1] = joins ? b->dstream : LS_NONE;
    op->dout[0] = joins ? (accumulate ? b->dstream : LS_NONE) : dnormed;
    op->dout[1] = joins ? dnormed : LS_NONE;
    op->accumulate_din = accumulate;
    op->workspace = add_scratch(b, "norm workspace", row_norm_floats(b, op));
}

/* The gradient of the stream changes before the linear's weight gradient is made of it. */
static int32_t add_copy(builder *b, int32_t from)
{
    const int32_t index = add_op(b, LS_OP_ADD);
    const int32_t copy = add_value(b, "d stream copy", b->n, b->config->width);
    op_at(b, index)->in[0] = from;
    op_at(b, index)->out[0] = copy;
    return index;
}

/* din, dout: of the linear; its adapter adds to din, with dropout through the gradient of what was
 * dropped. */
static void set_linear_gradients(builder *b, linear_ops *ops, int32_t din, int32_t dout)
{
    if (ops->scatter != LS_NONE) {
        const int32_t all = add_value(b, "d gathered", b->n, b->config->width);
        set_pair(b, ops->scatter, all, dout);
        dout = all;
    }
    if (ops->gather != LS_NONE) {
        const int32_t partial = add_value(b, "d partial", b->n, b->plan->values[din].cols);
        set_pair(b, ops->gather, din, partial);
        din = partial;
    }
    if (b->plan->options.split_backward && dout == b->dstream) {
        ops->copy = add_copy(b, dout);
        dout = op_at(b, ops->copy)->out[0];
    }
    set_pair(b, ops->linear, din, dout);
    if (ops->adapter == LS_NONE) {
        return;
    }
    const ls_value *low = &b->plan->values[op_at(b, ops->adapter)->low];
    const int32_t dlow = add_value(b, "d adapter", b->n, low->cols);
    op_at(b, ops->adapter)->dlow = dlow;
    if (ops->dropout != LS_NONE) {
        const int32_t ddropped = add_value(b, "d dropped", b->n, b->plan->values[din].cols);
        set_pair(b, ops->dropout, din, ddropped);
        din = ddropped;
    }
    set_pair(b, ops->adapter, din, dout);
}

static void set_attention_gradients(builder *b, layer_ops *ops)
{
    const ls_model_config *c = b->config;
    const int32_t dattended = add_value(b, "d attention", b->n, b->q);
    const int32_t dqkv = add_value(b, "d qkv", b->n, b->q + 2 * b->kv);
    const int32_t dqk = c->qk_norm ? add_value(b, "d normed qk", b->n, b->q + b->kv) : dqkv;
    set_linear_gradients(b, &ops->linears[PROJECT], dattended, b->dstream);
    set_pair(b, ops->attention, dqk, dattended);
    op_at(b, ops->attention)->din[1] = dqkv;
    op_at(b, ops->attention)->workspace = add_scratch(b, "attention workspace", attention_floats(b));
    set_pair(b, ops->rotary, dqk, dqk);
    set_pair(b, ops->qk_norm, dqkv, dqk);
    if (c->qk_norm) {
        const int64_t q = norm_floats(b, b->n, b->q, c->heads);
        const int64_t k = norm_floats(b, b->n, b->kv, c->kv_heads);
        const int64_t sums = b->plan->options.tensor_cut > 1 ? 2 * b->pieces * c->head_dim : 0;
        op_at(b, ops->qk_norm)->workspace = add_scratch(b, "qk norm workspace", sums + (q > k ? q : k));
    }
    const int32_t dnormed = add_value(b, "d normed 1", b->own, c->width);
    set_linear_gradients(b, &ops->linears[QKV], dnormed, dqkv);
    ls_plan_norm_gradients(b, ops->norm_1, dnormed, true);
}

static void set_mlp_gradients(builder *b, const layer_values *v, layer_ops *ops)
{
    if (b->config->experts > 0) {
        ls_plan_norm_gradients(b, ops->norm_2, ls_plan_expert_gradients(b, v, ops), true);
        return;
    }
    const int32_t dactivated = add_value(b, "d activated", b->n, b->config->ffn);
    const int32_t dup = b->config->swiglu ? v->up : dactivated; /* in place, see the header */
    const int32_t dnormed = add_value(b, "d normed 2", b->own, b->config->width);
    set_linear_gradients(b, &ops->linears[DOWN], dactivated, b->dstream);
    set_pair(b, ops->activate, dup, dactivated);
    set_linear_gradients(b, &ops->linears[UP], dnormed, dup);
    ls_plan_norm_gradients(b, ops->norm_2, dnormed, true);
}

/* ---- steps ---- */

static void add_linear_forward(builder *b, const linear_ops *ops)
{
    add_step(b, LS_PHASE_FORWARD, ops->gather);
    add_step(b, LS_PHASE_FORWARD, ops->linear);
    add_step(b, LS_PHASE_FORWARD, ops->scatter);
    add_step(b, LS_PHASE_FORWARD, ops->dropout);
    add_step(b, LS_PHASE_FORWARD, ops->adapter);
}

static void add_forward_steps(builder *b, const layer_ops *ops, bool with_down)
{
    const int32_t attention[] = {ops->qk_norm, ops->rotary, ops->attention};
    add_step(b, LS_PHASE_FORWARD, ops->norm_1);
    add_linear_forward(b, &ops->linears[QKV]);
    for (size_t i = 0; i < sizeof attention / sizeof *attention; i++) {
        add_step(b, LS_PHASE_FORWARD, attention[i]);
    }
    add_linear_forward(b, &ops->linears[PROJECT]);
    add_step(b, LS_PHASE_FORWARD, ops->norm_2);
    if (b->config->experts > 0) {
        ls_plan_expert_forward(b, ops, with_down);
        return;
    }
    add_linear_forward(b, &ops->linears[UP]);
    add_step(b, LS_PHASE_FORWARD, ops->activate);
    if (with_down) {
        add_linear_forward(b, &ops->linears[DOWN]);
    } else {
        add_step(b, LS_PHASE_FORWARD, ops->linears[DOWN].dropout);
    }
}

/* again: what the linear reads is gathered, and what the adapter reads dropped, again first. */
static void add_linear_backward(builder *b, const linear_ops *ops, bool again)
{
    add_step(b, LS_PHASE_FORWARD, again ? ops->gather : LS_NONE);
    add_step(b, LS_PHASE_FORWARD, again ? ops->dropout : LS_NONE);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->scatter);
    add_step(b, LS_PHASE_FORWARD, ops->copy);
    add_step(b, LS_PHASE_BACKWARD_WEIGHT, ops->linear);
    add_step(b, LS_PHASE_BACKWARD_WEIGHT, ops->adapter);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->linear);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->adapter);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->dropout);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->gather);
}

static void add_mlp_backward(builder *b, const layer_ops *ops, bool lazily)
{
    if (b->config->experts > 0) {
        ls_plan_expert_backward(b, ops, lazily);
        return;
    }
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->activate : LS_NONE);
    add_linear_backward(b, &ops->linears[DOWN], lazily);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->activate);
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->norm_2 : LS_NONE);
    add_linear_backward(b, &ops->linears[UP], lazily);
}

static void add_backward_steps(builder *b, const layer_ops *ops)
{
    const ls_recompute recompute = b->plan->options.recompute;
    const bool lazily = recompute == LS_RECOMPUTE_SELECTIVE;
    if (recompute == LS_RECOMPUTE_FULL) {
        add_forward_steps(b, ops, false);
    }
    add_mlp_backward(b, ops, lazily);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->norm_2);
    add_linear_backward(b, &ops->linears[PROJECT], lazily);
    if (lazily && ops->qk_norm != LS_NONE) {
        add_step(b, LS_PHASE_FORWARD, ops->qk_norm);
        add_step(b, LS_PHASE_FORWARD, ops->rotary);
    }
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->attention);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->rotary);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->qk_norm);
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->norm_1 : LS_NONE);
    add_linear_backward(b, &ops->linears[QKV], lazily);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->norm_1);
}

/* ---- the whole ---- */

static void add_layer_backward(builder *b, int32_t layer, const layer_values *forward,
                               const layer_ops *forward_ops)
{
    const ls_recompute recompute = b->plan->options.recompute;
    b->layer = layer;
    layer_values values = *forward;
    layer_ops ops = *forward_ops;
    if (recompute != LS_RECOMPUTE_NONE) {
        b->suffix = " again";
        values = add_backward_values(b, forward);
        ops = add_layer_ops(b, &values, NULL, recompute == LS_RECOMPUTE_SELECTIVE);
        b->suffix = "";
    }
    set_mlp_gradients(b, &values, &ops);
    set_attention_gradients(b, &ops);
    add_backward_steps(b, &ops);
    b->layer = -1;
}

/* The layers of the plan, forward; returns the last one's values. */
static const layer_values *add_layers(builder *b, layer_values *values, layer_ops *ops, int32_t stream)
{
    const ls_plan_options *o = &b->plan->options;
    const layer_values *before = NULL;
    for (uint32_t i = 0; i < o->layer_count; i++) {
        b->layer = (int32_t)(o->first_layer + i);
        values[i] = add_layer_values(b, before ? LS_NONE : stream, LS_NONE);
        ops[i] = add_layer_ops(b, &values[i], before, false);
        add_forward_steps(b, &ops[i], true);
        before = &values[i];
    }
    b->layer = -1;
    return before;
}

static void build(builder *b)
{
    ls_plan *plan = b->plan;
    const ls_plan_options *o = &plan->options;
    layer_values *values = ls_arena_new(b->arena, layer_values, o->layer_count);
    layer_ops *ops = ls_arena_new(b->arena, layer_ops, o->layer_count);
    plan_ends ends = {LS_NONE, LS_NONE, LS_NONE, LS_NONE, LS_NONE};
    const int32_t stream = ls_plan_begin(b, &ends);
    ls_plan_end(b, add_layers(b, values, ops, stream), &ends);
    plan->forward_steps = plan->step_count;
    if (!o->training) {
        return;
    }
    b->dstream = add_value(b, "d stream", b->own, b->config->width);
    ls_plan_end_backward(b, &ends);
    for (uint32_t i = o->layer_count; i-- > 0;) {
        add_layer_backward(b, (int32_t)(o->first_layer + i), &values[i], &ops[i]);
    }
    ls_plan_begin_backward(b, &ends);
}

/* Moves the steps that make gradients of weights after all others, in the same order. */
static void split_backward(ls_arena *arena, ls_plan *plan)
{
    plan->first_weight_step = plan->step_count;
    if (!plan->options.split_backward) {
        return;
    }
    ls_plan_step *weights = ls_arena_new(arena, ls_plan_step, plan->step_count);
    uint32_t kept = plan->forward_steps, moved = 0;
    for (uint32_t i = plan->forward_steps; i < plan->step_count; i++) {
        if (plan->steps[i].phase == LS_PHASE_BACKWARD_WEIGHT) {
            weights[moved++] = plan->steps[i];
        } else {
            plan->steps[kept++] = plan->steps[i];
        }
    }
    plan->first_weight_step = kept;
    memcpy(plan->steps + kept, weights, moved * sizeof *weights);
}

ls_status ls_plan_build(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                        const ls_plan_options *options, ls_plan *plan_out)
{
    LS_TRY(ls_model_config_check(config));
    LS_TRY(ls_plan_check_options(config, layout, options));
    ls_plan plan = {.config = *config, .options = *options, .layout = layout};
    plan.hidden = plan.logits = plan.dhidden = plan.head_gradient = LS_NONE;
    plan.stage = (ls_plan_stage){LS_NONE, LS_NONE, LS_NONE, LS_NONE};
    plan.options.slots = options->slots > 0 ? options->slots : 1;
    plan.options.layer_count = options->layer_count > 0 ? options->layer_count : (uint32_t)config->layers;
    plan.options.workspaces = ls_plan_workspaces_or_estimates(options->workspaces);
    plan.options.tensor_degree = options->tensor_degree > 1 ? options->tensor_degree : 1;
    plan.options.expert_degree = options->expert_degree > 1 ? options->expert_degree : 1;
    ls_plan_take_pieces(&plan);
    ls_plan_take_share(&plan);

    const uint32_t layers = plan.options.layer_count;
    builder b = {
        .arena = arena,
        .plan = &plan,
        .config = &plan.config,
        .vocab = config->vocab,
        .pieces = options->tensor_cut / plan.options.tensor_degree,
        .n = plan.rows,
        .own = plan.own_rows,
        .q = plan.config.heads * config->head_dim,
        .kv = plan.config.kv_heads * config->head_dim,
        .layer = -1,
        .suffix = "",
        .dstream = LS_NONE,
        .capacity_ops = 2 * LAYER_OPS_MAX * layers + OUTER_MAX,
        .capacity_values = 2 * LAYER_VALUES_MAX * layers + OUTER_MAX,
        .capacity_steps = LAYER_STEPS_MAX * layers + OUTER_MAX,
    };
    plan.ops = ls_arena_new(arena, ls_op, b.capacity_ops);
    plan.values = ls_arena_new(arena, ls_value, b.capacity_values);
    plan.steps = ls_arena_new(arena, ls_plan_step, b.capacity_steps);
    build(&b);
    ls_plan_leave_out_frozen(arena, &plan);
    split_backward(arena, &plan);
    ls_plan_find_lives(&plan);
    ls_plan_place(arena, &plan);
    ls_plan_place_pieces(&plan);
#ifdef LS_DEBUG
    ls_plan_check(&plan);
#endif
    *plan_out = plan;
    return LS_OK;
}
