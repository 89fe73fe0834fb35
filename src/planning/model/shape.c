// SPDX-License-Identifier: Apache-2.0
/* A shape from its sizes. How sizes are read is in shape_parse.c, shape_config.c and
 * shape_presets.c. */
#include "planning/model/shape.h"

#include "base/assert.h"
#include "planning/model/shape_internal.h"

#include <string.h>

/* ---- the digest of a dense layer ---- */

/* What a builder needs to know about a plan's values. */
typedef struct digest {
    const ls_plan *plan;
    ls_shape *shape;
    bool cut[128];       /* value is split over tp */
    bool statistic[128]; /* value is a statistic */
    bool attention[128]; /* value is read by attention */
    bool cheap[128];     /* value is made by a norm's output or an activation */
} digest;

static void mark(bool flags[128], int32_t value, bool is)
{
    if (value != LS_NONE) {
        LS_ASSERT(value < 128);
        flags[value] = is;
    }
}

/* Which values tensor parallelism splits: what comes out of column-cut products and of what works
 * on it, head by head or column by column. */
static void mark_op(digest *d, const ls_op *op)
{
    for (int i = 0; i < LS_OP_STATS_MAX; i++) {
        mark(d->statistic, op->stats[i], true);
        mark(d->cut, op->stats[i], op->kind == LS_OP_ATTENTION || op->kind == LS_OP_QK_NORM);
    }
    switch (op->kind) {
    case LS_OP_LINEAR:
        /* split by columns after the residual stream, by rows back to it */
        mark(d->cut, op->out[0], !d->cut[op->in[0]]);
        break;
    case LS_OP_QK_NORM:
    case LS_OP_ATTENTION:
    case LS_OP_GELU:
    case LS_OP_SWIGLU:
        mark(d->cut, op->out[0], true);
        mark(d->cheap, op->out[0], op->kind != LS_OP_ATTENTION);
        break;
    case LS_OP_NORM:
        mark(d->cheap, op->out[0], true);
        break;
    case LS_OP_ADD_NORM:
        mark(d->cheap, op->out[1], true);
        break;
    default:
        break;
    }
    if (op->kind == LS_OP_ATTENTION) {
        mark(d->attention, op->in[0], true);
        mark(d->attention, op->in[1], true);
        mark(d->attention, op->stats[0], true);
    }
}

/* "layer 0 qkv" -> "qkv"; the plan's names die with its arena, so they are copied. */
static const char *short_name(ls_arena *arena, const char *name)
{
    const char *rest = strncmp(name, "layer 0 ", 8) == 0 ? name + 8 : name;
    return ls_arena_strdup(arena, rest);
}

static void add_saved(ls_shape *shape, ls_shape_saved saved)
{
    LS_ASSERT(shape->saved_count < LS_SHAPE_SAVED_MAX);
    shape->saved[shape->saved_count++] = saved;
}

static void add_linear(ls_shape *shape, ls_shape_linear linear)
{
    LS_ASSERT(shape->linear_count < LS_SHAPE_LINEARS_MAX);
    shape->linears[shape->linear_count++] = linear;
}

/* Values of the layer that forward writes and backward reads. */
static void digest_saved(digest *d, ls_arena *arena, int32_t entry)
{
    const ls_plan *plan = d->plan;
    for (uint32_t i = 0; i < plan->value_count; i++) {
        const ls_value *value = &plan->values[i];
        const bool of_layer = strncmp(value->name, "layer 0 ", 8) == 0 || (int32_t)i == entry;
        if (!of_layer || value->scratch || value->first_step < 0 ||
            value->first_step >= (int32_t)plan->forward_steps ||
            value->last_step < (int32_t)plan->forward_steps) {
            continue;
        }
        add_saved(d->shape, (ls_shape_saved){
                                .name = (int32_t)i == entry ? "stream" : short_name(arena, value->name),
                                .cols = (double)value->cols,
                                .cut = d->cut[i],
                                .statistic = d->statistic[i],
                                .attention = d->attention[i],
                                .cheap = d->cheap[i],
                                .entry = (int32_t)i == entry,
                            });
    }
}

static void digest_plan(ls_arena *arena, const ls_plan *plan, ls_shape *shape)
{
    static const char *const linear_names[] = {"qkv", "output", "up", "down"};
    digest d = {.plan = plan, .shape = shape};
    LS_ASSERT(plan->value_count <= 128);
    int32_t entry = LS_NONE;
    for (uint32_t i = 0; i < plan->forward_steps; i++) {
        const ls_op *op = &plan->ops[plan->steps[i].op];
        if (op->layer != 0) {
            continue;
        }
        mark_op(&d, op);
        entry = entry == LS_NONE ? op->in[0] : entry; /* the first norm's input */
        if (op->kind == LS_OP_LINEAR) {
            add_linear(shape, (ls_shape_linear){.name = linear_names[shape->linear_count],
                                                .in = op->in_features,
                                                .out = op->out_features,
                                                .row_cut = d.cut[op->in[0]]});
        }
    }
    digest_saved(&d, arena, entry);
}

/* Parameters by place, from the layout of the same one-layer model. */
static void digest_layout(const ls_layout *layout, ls_shape *shape)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        const int64_t count = p->rows * p->cols;
        if (p->bucket == 0) {
            shape->embedding += count;
        } else if (p->bucket == 1) {
            *(p->shape_rank == 2 ? &shape->layer_matrices : &shape->layer_vectors) += count;
        } else {
            *(p->shape_rank == 2 ? &shape->head : &shape->final_norm) += count;
        }
    }
}

/* The one-layer model that stands for all layers. */
static ls_status digest_layer(ls_arena *arena, const ls_model_config *config, ls_shape *shape)
{
    ls_model_config one = *config;
    one.layers = 1;
    one.window = one.window_first_layer = 0; /* decides which pairs count, not which exist */
    ls_arena scratch = {0};
    ls_layout layout;
    ls_plan plan;
    const ls_plan_options options = {
        .sequences = 1, .length = 1, .training = true, .losses = true, .tensor_cut = 1};
    ls_status status = ls_model_config_check(&one);
    if (status == LS_OK) {
        ls_layout_build(&scratch, &one, &layout);
        status = ls_plan_build(&scratch, &one, &layout, &options, &plan);
    }
    if (status == LS_OK) {
        digest_layout(&layout, shape);
        digest_plan(arena, &plan, shape);
    }
    ls_arena_release(&scratch);
    return status;
}

/* ---- what the runtime does not have yet ---- */

static ls_shape_linear *linear_named(ls_shape *shape, const char *name)
{
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        if (strcmp(shape->linears[i].name, name) == 0) {
            return &shape->linears[i];
        }
    }
    return NULL;
}

static void drop_saved(ls_shape *shape, const char *name)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < shape->saved_count; i++) {
        if (strcmp(shape->saved[i].name, name) != 0) {
            shape->saved[count++] = shape->saved[i];
        }
    }
    shape->saved_count = count;
}

static void drop_linear(ls_shape *shape, const char *name)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        if (strcmp(shape->linears[i].name, name) != 0) {
            shape->linears[count++] = shape->linears[i];
        }
    }
    shape->linear_count = count;
}

/* For a llama-like layer with one matrix before the activation: removes the gate. */
static void take_gate_out(ls_shape *shape)
{
    const ls_model_config *c = &shape->config;
    ls_shape_linear *up = linear_named(shape, "up");
    up->out = c->ffn;
    shape->layer_matrices -= c->width * c->ffn;
    shape->layer_vectors -= c->mlp_bias ? c->ffn : 0;
    for (uint32_t i = 0; i < shape->saved_count; i++) {
        if (strcmp(shape->saved[i].name, "gate|up") == 0) {
            shape->saved[i].name = "up";
            shape->saved[i].cols = (double)c->ffn;
        }
    }
}

static int64_t linears_elements(const ls_shape *shape, bool experts)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < shape->linear_count; i++) {
        count += shape->linears[i].expert == experts ? shape->linears[i].in * shape->linears[i].out : 0;
    }
    return count;
}

/* Latent attention: down to the ranks, a norm there, up to the heads. */
static void make_latent(ls_shape *shape)
{
    const ls_model_config *c = &shape->config;
    const ls_shape_latent *l = &shape->latent;
    const int64_t query = c->heads * (l->nope_dim + l->rope_dim), value = c->heads * l->value_dim;
    const int64_t up = c->heads * (l->nope_dim + l->value_dim);
    drop_linear(shape, "qkv");
    drop_saved(shape, "qkv");
    linear_named(shape, "output")->in = value;
    if (l->query_rank) {
        add_linear(shape,
                   (ls_shape_linear){
                       .name = "query down", .in = c->width, .out = l->query_rank, .replicated = true});
        add_saved(shape, (ls_shape_saved){.name = "query down", .cols = (double)l->query_rank});
        add_saved(shape,
                  (ls_shape_saved){.name = "query normed", .cols = (double)l->query_rank, .cheap = true});
    }
    add_linear(shape, (ls_shape_linear){
                          .name = "query", .in = l->query_rank ? l->query_rank : c->width, .out = query});
    add_linear(shape, (ls_shape_linear){.name = "key-value down",
                                        .in = c->width,
                                        .out = l->kv_rank + l->rope_dim,
                                        .replicated = true});
    add_linear(shape, (ls_shape_linear){.name = "key-value", .in = l->kv_rank, .out = up});
    add_saved(shape, (ls_shape_saved){.name = "key-value down", .cols = (double)(l->kv_rank + l->rope_dim)});
    add_saved(shape, (ls_shape_saved){.name = "key-value normed", .cols = (double)l->kv_rank, .cheap = true});
    add_saved(shape,
              (ls_shape_saved){.name = "query", .cols = (double)query, .cut = true, .attention = true});
    /* Keys combine the heads' own part and the shared rotary part; the rest are values. */
    add_saved(shape,
              (ls_shape_saved){
                  .name = "keys, values", .cols = (double)(query + value), .cut = true, .attention = true});
    for (uint32_t i = 0; i < shape->saved_count; i++) {
        if (strcmp(shape->saved[i].name, "attention") == 0) {
            shape->saved[i].cols = (double)value;
        }
    }
    shape->layer_matrices = linears_elements(shape, false);
    shape->layer_vectors = 2 * c->width + l->query_rank + l->kv_rank;
    shape->attention_width = c->heads * (l->nope_dim + l->rope_dim + l->value_dim) / 2;
    shape->kv_width = c->heads * (l->nope_dim + l->rope_dim + l->value_dim);
}

/* The MLP becomes a router and experts. */
static void make_mixture(ls_shape *shape)
{
    const ls_shape_moe *m = &shape->moe;
    const int64_t width = shape->config.width, gates = shape->config.swiglu ? 2 : 1;
    const double active = (double)m->active, ffn = (double)m->ffn, shared = (double)(m->shared * m->ffn);
    shape->dense_layer_matrices = m->dense_layers ? shape->layer_matrices : 0;
    static const char *const gone[] = {"up", "gate|up", "activated", "down"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        drop_linear(shape, gone[i]);
        drop_saved(shape, gone[i]);
    }
    add_linear(shape,
               (ls_shape_linear){.name = "router", .in = width, .out = m->experts, .replicated = true});
    add_saved(shape, (ls_shape_saved){.name = "router", .cols = (double)m->experts, .statistic = true});
    if (m->shared) {
        add_linear(shape,
                   (ls_shape_linear){.name = "shared up", .in = width, .out = gates * m->shared * m->ffn});
        add_linear(shape,
                   (ls_shape_linear){
                       .name = "shared down", .in = m->shared * m->ffn, .out = width, .row_cut = true});
        add_saved(shape, (ls_shape_saved){.name = "shared up", .cols = (double)gates * shared, .cut = true});
        add_saved(shape,
                  (ls_shape_saved){.name = "shared activated", .cols = shared, .cut = true, .cheap = true});
    }
    add_linear(shape,
               (ls_shape_linear){.name = "expert up", .in = width, .out = gates * m->ffn, .expert = true});
    add_linear(shape,
               (ls_shape_linear){
                   .name = "expert down", .in = m->ffn, .out = width, .row_cut = true, .expert = true});
    /* Each token's row goes to k experts, and k rows come back to be weighted. */
    add_saved(shape, (ls_shape_saved){.name = "dispatched", .cols = active * (double)width, .expert = true});
    add_saved(shape,
              (ls_shape_saved){
                  .name = "expert up", .cols = active * (double)gates * ffn, .cut = true, .expert = true});
    add_saved(
        shape,
        (ls_shape_saved){
            .name = "expert activated", .cols = active * ffn, .cut = true, .cheap = true, .expert = true});
    add_saved(shape, (ls_shape_saved){.name = "returned", .cols = active * (double)width, .expert = true});
    shape->layer_matrices = linears_elements(shape, false);
    shape->layer_experts = m->experts * (linears_elements(shape, true) + m->expert_vectors);
}

/* The configuration of the same model with one MLP in each layer. */
static ls_model_config dense_of(const ls_model_config *config)
{
    ls_model_config dense = *config;
    if (config->experts > 0) {
        dense.family = config->family == LS_FAMILY_MIXTRAL ? LS_FAMILY_MISTRAL : LS_FAMILY_QWEN3;
        dense.experts = dense.experts_per_token = dense.expert_ffn = 0;
    }
    return dense;
}

/* If the runtime can train the mixture, the shape gets its configuration. */
static void adopt_mixture(ls_shape *shape, const ls_shape_sizes *sizes)
{
    const ls_shape_moe *m = &sizes->moe;
    ls_model_config config = sizes->config;
    const bool plain = m->shared == 0 && m->dense_layers == 0 && m->expert_vectors == 0 &&
                       sizes->more_layer_vectors == 0 && shape->latent.kv_rank == 0 && config.swiglu;
    const bool llama = config.family == LS_FAMILY_LLAMA && !config.qkv_bias && !config.mlp_bias;
    if (!plain || config.experts > 0) {
        return;
    }
    if (llama || config.family == LS_FAMILY_MISTRAL) {
        config.family = LS_FAMILY_MIXTRAL;
        config.ffn = m->ffn;
    } else if (config.family == LS_FAMILY_QWEN3) {
        config.family = LS_FAMILY_QWEN3_MOE;
        config.window_first_layer = 0;
    } else {
        return;
    }
    config.experts = m->experts;
    config.experts_per_token = m->active;
    config.expert_ffn = m->ffn;
    config.normalise_experts = true;
    shape->config = config;
}

/* ---- checks ---- */

static ls_status check_size(const char *field, int64_t value, int64_t min, int64_t max)
{
    if (value < min || value > max) {
        return ls_fail(LS_ERR_INVALID, "model: %s is %lld, allowed is %lld to %lld", field, (long long)value,
                       (long long)min, (long long)max);
    }
    return LS_OK;
}

static ls_status check_sizes(const ls_shape_sizes *sizes)
{
    const ls_shape_moe *m = &sizes->moe;
    LS_TRY(check_size("layers", sizes->config.layers, 1, 1024));
    if (!(sizes->dropout >= 0.0 && sizes->dropout < 1.0)) {
        return ls_fail(LS_ERR_INVALID, "model: dropout is %g, allowed is 0 to below 1", sizes->dropout);
    }
    if (m->experts == 0) {
        return m->active || m->shared || m->ffn || m->dense_layers
                   ? ls_fail(LS_ERR_INVALID, "model: the keys active, shared, expert_ffn and dense_layers "
                                             "are allowed only when experts is above 0")
                   : LS_OK;
    }
    LS_TRY(check_size("experts", m->experts, 2, 4096));
    LS_TRY(check_size("active", m->active, 1, m->experts));
    LS_TRY(check_size("shared", m->shared, 0, 64));
    LS_TRY(check_size("expert_ffn", m->ffn, 1, 1 << 20));
    return check_size("dense_layers", m->dense_layers, 0, sizes->config.layers - 1);
}

/* ---- the whole ---- */

static void add_up(ls_shape *shape)
{
    const ls_shape_moe *m = &shape->moe;
    const int64_t mixtures = m->experts ? shape->config.layers - m->dense_layers : 0;
    const int64_t dense = shape->config.layers - mixtures;
    const int64_t dense_matrices = mixtures ? shape->dense_layer_matrices : shape->layer_matrices;
    shape->parameters = shape->embedding + shape->head + shape->final_norm +
                        shape->config.layers * shape->layer_vectors + dense * dense_matrices +
                        mixtures * (shape->layer_matrices + shape->layer_experts);
    const int64_t idle = m->experts ? shape->layer_experts / m->experts * (m->experts - m->active) : 0;
    shape->active_parameters = shape->parameters - mixtures * idle;
}

ls_status ls_shape_build(ls_arena *arena, const char *name, const ls_shape_sizes *sizes, ls_shape *shape_out)
{
    LS_TRY(check_sizes(sizes));
    ls_shape shape = {
        .name = ls_arena_strdup(arena, name),
        .config = sizes->config,
        .moe = sizes->moe,
        .latent = sizes->latent,
        .dropout = sizes->dropout,
        .attention_width = sizes->config.heads * sizes->config.head_dim,
        .kv_width = 2 * sizes->config.kv_heads * sizes->config.head_dim,
    };
    ls_model_config known = dense_of(&sizes->config); /* within the limits of the runtime */
    const bool take_gate = !known.swiglu && known.family != LS_FAMILY_GPT2;
    known.swiglu = known.swiglu || take_gate;
    LS_TRY(digest_layer(arena, &known, &shape));
    if (take_gate) {
        take_gate_out(&shape);
    }
    if (shape.latent.kv_rank) {
        make_latent(&shape);
    }
    if (shape.moe.experts) {
        make_mixture(&shape);
        adopt_mixture(&shape, sizes);
    }
    shape.layer_vectors += sizes->more_layer_vectors;
    add_up(&shape);
    *shape_out = shape;
    return LS_OK;
}

ls_status ls_shape_from_config(ls_arena *arena, const char *name, const ls_model_config *config,
                               ls_shape *shape_out)
{
    const ls_shape_moe moe = {
        .experts = config->experts, .active = config->experts_per_token, .ffn = config->expert_ffn};
    return ls_shape_build(arena, name, &(ls_shape_sizes){.config = *config, .moe = moe}, shape_out);
}

/* ---- FLOPs ---- */

const char *ls_flop_convention_name(ls_flop_convention convention)
{
    static const char *const names[] = {"full-attention", "causal", "6n"};
    LS_ASSERT((unsigned)convention < 3);
    return names[convention];
}

/* Pairs of one sequence that attention's causal kernels compute: sum over i of min(i + 1,
 * window). */
static double causal_pairs(int64_t length, int64_t window)
{
    const int64_t full = window > 0 && window < length ? window : length;
    return (double)full * (double)(full + 1) / 2.0 + (double)(length - full) * (double)full;
}

double ls_shape_causal_pairs(const ls_shape *shape, int64_t length)
{
    const ls_model_config *c = &shape->config;
    const int64_t windowed = c->window == 0                      ? 0
                             : c->window_first_layer < c->layers ? c->layers - c->window_first_layer
                                                                 : 0;
    return (double)windowed * causal_pairs(length, c->window) +
           (double)(c->layers - windowed) * causal_pairs(length, 0);
}

static double attention_flops(const ls_shape *shape, int64_t length, ls_flop_convention convention)
{
    const double causal = ls_shape_causal_pairs(shape, length);
    /* counted once on either side */
    const double diagonal = (double)length * (double)shape->config.layers;
    return 4.0 * (convention == LS_FLOPS_CAUSAL ? causal : 2.0 * causal - diagonal) *
           (double)shape->attention_width;
}

double ls_shape_forward_flops(const ls_shape *shape, int64_t length, ls_flop_convention convention)
{
    const double s = (double)length;
    if (convention == LS_FLOPS_6N) {
        return 2.0 * (double)shape->active_parameters * s;
    }
    const ls_shape_moe *m = &shape->moe;
    const int64_t mixtures = m->experts ? shape->config.layers - m->dense_layers : 0;
    const int64_t dense = shape->config.layers - mixtures;
    const double visited = mixtures ? (double)shape->layer_matrices +
                                          (double)(shape->layer_experts / m->experts) * (double)m->active
                                    : 0.0;
    const double dense_matrices = (double)(mixtures ? shape->dense_layer_matrices : shape->layer_matrices);
    const double matrices = (double)mixtures * visited + (double)dense * dense_matrices;
    const double head = (double)shape->config.width * (double)shape->config.vocab;
    return 2.0 * s * (matrices + head) + attention_flops(shape, length, convention);
}
