// SPDX-License-Identifier: Apache-2.0
#include "model/layout.h"

#include "base/assert.h"
#include "base/math.h"
#include "base/random.h"
#include "model/freeze.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUP_ALIGN = 16,          /* floats; a cache line */
    LAYER_PARAMETERS_MAX = 16, /* tensors of one layer, any family, without the experts' */
    EXPERT_PARAMETERS = 3,
    OUTER_PARAMETERS_MAX = 5, /* two embeddings, final norm with bias, head */
    LINEARS_MAX = 3           /* that one product reads together */
};

static const char TABLE[] = "model.embed_tokens.weight", GPT2_TABLE[] = "transformer.wte.weight";

typedef struct builder {
    ls_arena *arena;
    const ls_model_config *config;
    ls_layout *layout;
    uint32_t capacity;
    int64_t offset;
    const char *prefix; /* of the names that follow: "model.layers.3." */
    uint32_t section, group;
    const ls_freeze *freeze;
    bool frozen;     /* the parameters to lay out in this pass; the others are skipped */
    bool in_experts; /* laying out a router or experts, which have no adapters */
    /* The pass of an adapter: in place of the parameters, A and B of the wanted linear layers,
     * which are collected until their group ends. */
    const ls_adapter *adapter;
    ls_parameter wanted[LINEARS_MAX];
    uint32_t wanted_count;
    const ls_base *base; /* of an adapter; else NULL */
} builder;

/* ---- pieces ---- */

static void add_adapters(builder *b);

static void bucket_begin(builder *b)
{
    LS_ASSERT(b->offset % LS_BUCKET_PAD == 0);
    b->layout->buckets[b->layout->bucket_count] = (ls_bucket){.offset = b->offset, .section = b->section};
    b->group++;
}

/* Removes the bucket again if nothing was added to it. */
static void bucket_end(builder *b)
{
    add_adapters(b);
    ls_bucket *bucket = &b->layout->buckets[b->layout->bucket_count];
    b->offset = ls_round_up_i64(b->offset, LS_BUCKET_PAD);
    bucket->count = b->offset - bucket->offset;
    b->layout->bucket_count += bucket->count > 0;
    b->section++;
}

/* Tensors between two calls of this are adjacent. */
static void group_begin(builder *b)
{
    add_adapters(b);
    b->offset = ls_round_up_i64(b->offset, GROUP_ALIGN);
    b->group++;
}

/* A linear layer's matrix: those of the layers of the model, except routers and experts. */
static bool is_linear(const builder *b, int shape_rank)
{
    return shape_rank == 2 && !b->in_experts && b->section > 0 && b->section + 1 < b->layout->section_count;
}

static int64_t packed_floats(const builder *b, int64_t rows, int64_t cols)
{
    const bool in_out = b->config->family == LS_FAMILY_GPT2;
    const int64_t bytes = b->base->packed_bytes(b->base->kind, in_out ? cols : rows, in_out ? rows : cols);
    return bytes / (int64_t)sizeof(float);
}

static void place(builder *b, const char *name, int shape_rank, int64_t rows, int64_t cols, ls_init_kind init)
{
    ls_layout *layout = b->layout;
    const bool packed = b->frozen && b->base && b->base->kind != LS_BASE_FP32 && is_linear(b, shape_rank);
    const int64_t room = packed ? packed_floats(b, rows, cols) : rows * cols;
    LS_ASSERT(layout->parameter_count < b->capacity);
    layout->parameters[layout->parameter_count++] = (ls_parameter){
        .name = name,
        .rows = rows,
        .cols = cols,
        .shape_rank = shape_rank,
        .offset = b->offset,
        .bucket = layout->bucket_count,
        .section = b->section,
        .group = b->group,
        .decay = shape_rank == 2, /* matrices only, not biases and norms */
        .frozen = b->frozen,
        .init = init,
        .room = room,
        .packed = packed,
    };
    b->offset += room;
    layout->element_count += rows * cols;
    layout->frozen_elements += b->frozen ? rows * cols : 0;
}

/* Places A and B of the linear layers that were collected. */
static void add_adapters(builder *b)
{
    const uint32_t count = b->wanted_count;
    const bool in_out = b->config->family == LS_FAMILY_GPT2;
    if (count == 0) {
        return;
    }
    b->wanted_count = 0;
    group_begin(b);
    for (uint32_t i = 0; i < count; i++) {
        const ls_parameter *p = &b->wanted[i];
        place(b, ls_adapter_name(b->arena, p->name, 'A'), 2, b->adapter->rank, in_out ? p->rows : p->cols,
              LS_INIT_UNIFORM);
    }
    for (uint32_t i = 0; i < count; i++) {
        const ls_parameter *p = &b->wanted[i];
        group_begin(b);
        place(b, ls_adapter_name(b->arena, p->name, 'B'), 2, in_out ? p->cols : p->rows, b->adapter->rank,
              LS_INIT_ZERO);
    }
}

static void collect(builder *b, const ls_parameter *linear)
{
    if (is_linear(b, linear->shape_rank) && ls_adapter_wants(b->adapter, linear->name)) {
        LS_ASSERT(b->wanted_count < LINEARS_MAX);
        b->wanted[b->wanted_count++] = *linear;
    }
}

static void add(builder *b, const char *name, int shape_rank, int64_t rows, int64_t cols, ls_init_kind init)
{
    const char *full = ls_arena_printf(b->arena, "%s%s", b->prefix, name);
    if (b->adapter) {
        collect(b, &(ls_parameter){.name = full, .shape_rank = shape_rank, .rows = rows, .cols = cols});
    } else if (ls_freeze_matches(b->freeze, full) == b->frozen) {
        place(b, full, shape_rank, rows, cols, init);
    }
}

static void add_matrix(builder *b, const char *name, int64_t rows, int64_t cols, ls_init_kind init)
{
    add(b, name, 2, rows, cols, init);
}

static void add_bias(builder *b, const char *name, int64_t count)
{
    add(b, name, 1, 1, count, LS_INIT_ZERO);
}

static void add_gain(builder *b, const char *name, int64_t count)
{
    add(b, name, 1, 1, count, LS_INIT_ONE);
}

/* ---- gpt2 ---- */

static void gpt2_norm(builder *b, const char *weight, const char *bias)
{
    group_begin(b);
    add_gain(b, weight, b->config->width);
    group_begin(b);
    add_bias(b, bias, b->config->width);
}

/* A Conv1D: weight (in, out). */
static void gpt2_linear(builder *b, const char *weight, const char *bias, int64_t in, int64_t out,
                        ls_init_kind init)
{
    group_begin(b);
    add_matrix(b, weight, in, out, init);
    group_begin(b);
    add_bias(b, bias, out);
}

static void gpt2_layer(builder *b)
{
    const int64_t width = b->config->width, ffn = b->config->ffn;
    gpt2_norm(b, "ln_1.weight", "ln_1.bias");
    gpt2_linear(b, "attn.c_attn.weight", "attn.c_attn.bias", width, 3 * width, LS_INIT_NORMAL);
    gpt2_linear(b, "attn.c_proj.weight", "attn.c_proj.bias", width, width, LS_INIT_NORMAL_SCALED);
    gpt2_norm(b, "ln_2.weight", "ln_2.bias");
    gpt2_linear(b, "mlp.c_fc.weight", "mlp.c_fc.bias", width, ffn, LS_INIT_NORMAL);
    gpt2_linear(b, "mlp.c_proj.weight", "mlp.c_proj.bias", ffn, width, LS_INIT_NORMAL_SCALED);
}

/* ---- the llama-like families ---- */

static void llama_attention(builder *b)
{
    const ls_model_config *c = b->config;
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    group_begin(b);
    add_matrix(b, "self_attn.q_proj.weight", q, c->width, LS_INIT_NORMAL);
    add_matrix(b, "self_attn.k_proj.weight", kv, c->width, LS_INIT_NORMAL);
    add_matrix(b, "self_attn.v_proj.weight", kv, c->width, LS_INIT_NORMAL);
    group_begin(b);
    if (c->qkv_bias) {
        add_bias(b, "self_attn.q_proj.bias", q);
        add_bias(b, "self_attn.k_proj.bias", kv);
        add_bias(b, "self_attn.v_proj.bias", kv);
    }
    if (c->qk_norm) {
        group_begin(b);
        add_gain(b, "self_attn.q_norm.weight", c->head_dim);
        group_begin(b);
        add_gain(b, "self_attn.k_norm.weight", c->head_dim);
    }
    group_begin(b);
    add_matrix(b, "self_attn.o_proj.weight", c->width, q, LS_INIT_NORMAL_SCALED);
    group_begin(b);
    if (c->output_bias) {
        add_bias(b, "self_attn.o_proj.bias", c->width);
    }
}

static void llama_mlp(builder *b)
{
    const ls_model_config *c = b->config;
    group_begin(b);
    add_matrix(b, "mlp.gate_proj.weight", c->ffn, c->width, LS_INIT_NORMAL);
    add_matrix(b, "mlp.up_proj.weight", c->ffn, c->width, LS_INIT_NORMAL);
    group_begin(b);
    if (c->mlp_bias) {
        add_bias(b, "mlp.gate_proj.bias", c->ffn);
        add_bias(b, "mlp.up_proj.bias", c->ffn);
    }
    group_begin(b);
    add_matrix(b, "mlp.down_proj.weight", c->width, c->ffn, LS_INIT_NORMAL_SCALED);
    group_begin(b);
    if (c->mlp_bias) {
        add_bias(b, "mlp.down_proj.bias", c->width);
    }
}

static void add_expert_matrix(builder *b, int64_t expert, const char *name, int64_t rows, int64_t cols,
                              ls_init_kind init)
{
    const char *module = b->config->family == LS_FAMILY_MIXTRAL ? "block_sparse_moe" : "mlp";
    add_matrix(b, ls_arena_printf(b->arena, "%s.experts.%lld.%s.weight", module, (long long)expert, name),
               rows, cols, init);
}

/* The matrices of all experts that one grouped product reads are adjacent, in their order. */
static void experts_mlp(builder *b)
{
    const ls_model_config *c = b->config;
    const bool mixtral = c->family == LS_FAMILY_MIXTRAL;
    b->in_experts = true;
    group_begin(b);
    add_matrix(b, mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight", c->experts, c->width,
               LS_INIT_NORMAL);
    group_begin(b);
    for (int64_t e = 0; e < c->experts; e++) {
        add_expert_matrix(b, e, mixtral ? "w1" : "gate_proj", c->expert_ffn, c->width, LS_INIT_NORMAL);
        add_expert_matrix(b, e, mixtral ? "w3" : "up_proj", c->expert_ffn, c->width, LS_INIT_NORMAL);
    }
    group_begin(b);
    for (int64_t e = 0; e < c->experts; e++) {
        add_expert_matrix(b, e, mixtral ? "w2" : "down_proj", c->width, c->expert_ffn, LS_INIT_NORMAL_SCALED);
    }
    b->in_experts = false;
}

static void llama_layer(builder *b)
{
    group_begin(b);
    add_gain(b, "input_layernorm.weight", b->config->width);
    llama_attention(b);
    group_begin(b);
    add_gain(b, "post_attention_layernorm.weight", b->config->width);
    if (b->config->experts > 0) {
        experts_mlp(b);
    } else {
        llama_mlp(b);
    }
}

/* ---- the whole ---- */

static void add_embeddings(builder *b, bool gpt2)
{
    const ls_model_config *c = b->config;
    bucket_begin(b);
    b->prefix = "";
    add_matrix(b, gpt2 ? GPT2_TABLE : TABLE, c->vocab, c->width, LS_INIT_NORMAL);
    if (gpt2) {
        group_begin(b);
        add_matrix(b, "transformer.wpe.weight", c->context, c->width, LS_INIT_NORMAL);
    }
    bucket_end(b);
}

static void add_layers(builder *b, bool gpt2)
{
    for (int64_t layer = 0; layer < b->config->layers; layer++) {
        bucket_begin(b);
        b->prefix =
            ls_arena_printf(b->arena, gpt2 ? "transformer.h.%lld." : "model.layers.%lld.", (long long)layer);
        if (gpt2) {
            gpt2_layer(b);
        } else {
            llama_layer(b);
        }
        bucket_end(b);
    }
}

static void add_final(builder *b, bool gpt2)
{
    bucket_begin(b);
    b->prefix = "";
    if (gpt2) {
        gpt2_norm(b, "transformer.ln_f.weight", "transformer.ln_f.bias");
    } else {
        add_gain(b, "model.norm.weight", b->config->width);
    }
    if (!b->config->tied) {
        group_begin(b);
        add_matrix(b, "lm_head.weight", b->config->vocab, b->config->width, LS_INIT_NORMAL);
    }
    bucket_end(b);
}

/* Lays out the frozen parameters, or the trained ones (the adapter, if there is one), after what is
 * already laid out. */
static void add_all(builder *b, const ls_adapter *adapter, bool frozen)
{
    const bool gpt2 = b->config->family == LS_FAMILY_GPT2;
    b->section = b->group = 0;
    b->frozen = frozen;
    b->adapter = adapter;
    add_embeddings(b, gpt2);
    add_layers(b, gpt2);
    add_final(b, gpt2);
}

static void build(ls_arena *arena, const ls_model_config *config, const ls_freeze *freeze,
                  const ls_adapter *adapter, const ls_base *base, ls_layout *layout_out)
{
    const uint32_t sections = (uint32_t)config->layers + 2;
    const uint32_t each =
        (adapter ? 2 : 1) * LAYER_PARAMETERS_MAX + EXPERT_PARAMETERS * (uint32_t)config->experts;
    const uint32_t capacity = OUTER_PARAMETERS_MAX + each * (uint32_t)config->layers;
    ls_layout layout = {
        .parameters = ls_arena_new(arena, ls_parameter, capacity),
        .buckets = ls_arena_new(arena, ls_bucket, (freeze->count > 0 ? 2 : 1) * (size_t)sections + 1),
        .section_count = sections,
        .adapter = adapter,
        .base = base ? base->kind : LS_BASE_FP32,
    };
    builder b = {.arena = arena,
                 .config = config,
                 .layout = &layout,
                 .capacity = capacity,
                 .prefix = "",
                 .freeze = freeze,
                 .base = base};
    add_all(&b, adapter, false);
    const uint32_t trained_buckets = layout.bucket_count;
    layout.trained_count = layout.parameter_count;
    layout.float_count = b.offset;
    if (freeze->count > 0) {
        add_all(&b, NULL, true);
    }
    layout.frozen_buckets = layout.bucket_count - trained_buckets;
    layout.bucket_count = trained_buckets;
    layout.parameter_floats = b.offset;
    const bool gpt2 = config->family == LS_FAMILY_GPT2;
    layout.table = (uint32_t)(ls_layout_find(&layout, gpt2 ? GPT2_TABLE : TABLE) - layout.parameters);
    *layout_out = layout;
}

void ls_layout_build(ls_arena *arena, const ls_model_config *config, ls_layout *layout_out)
{
    const ls_freeze nothing = {0};
    build(arena, config, &nothing, NULL, NULL, layout_out);
    LS_ASSERT(layout_out->bucket_count == layout_out->section_count);
}

ls_status ls_layout_build_frozen(ls_arena *arena, const ls_model_config *config, const char *const *patterns,
                                 size_t pattern_count, ls_layout *layout_out)
{
    const ls_freeze freeze = {patterns, pattern_count};
    ls_layout layout;
    build(arena, config, &freeze, NULL, NULL, &layout);
    LS_TRY(ls_freeze_check(&freeze, &layout));
    *layout_out = layout;
    return LS_OK;
}

/* ---- adapters ---- */

/* The linear layers of one layer of the model by their own names: "q_proj, k_proj, ...". */
static const char *linear_names(const ls_model_config *config)
{
    return config->family == LS_FAMILY_GPT2 ? "c_attn, c_proj, c_fc"
           : config->experts > 0 ? "q_proj, k_proj, v_proj, o_proj (experts and routers get no adapter)"
                                 : "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj";
}

/* Each target alone must match something: the layout of an adapter with that target only has
 * trained parameters. */
static ls_status check_targets(const ls_model_config *config, const ls_adapter *adapter)
{
    static const char *const everything[] = {"*"};
    const ls_freeze all = {everything, 1};
    for (size_t i = 0; i < adapter->target_count; i++) {
        ls_arena arena = {0};
        ls_adapter one = *adapter;
        ls_layout layout;
        one.targets = &adapter->targets[i];
        one.target_count = 1;
        build(&arena, config, &all, &one, NULL, &layout);
        const bool is_good = layout.trained_count > 0;
        ls_arena_release(&arena);
        if (!is_good) {
            return ls_fail(LS_ERR_INVALID,
                           "adapter.targets: \"%s\" matches no linear layer of this model; each of its %lld "
                           "layers has %s. Name some of them, a pattern such as layers.0.*, or all-linear",
                           adapter->targets[i], (long long)config->layers, linear_names(config));
        }
    }
    return LS_OK;
}

ls_status ls_layout_build_adapter(ls_arena *arena, const ls_model_config *config, const ls_adapter *adapter,
                                  const ls_base *base, ls_layout *layout_out)
{
    static const char *const everything[] = {"*"};
    const ls_freeze all = {everything, 1};
    LS_ASSERT(adapter->rank >= 1 && adapter->rank <= LS_ADAPTER_RANK_MAX);
    LS_TRY(check_targets(config, adapter));
    if (config->experts > 0 && base && base->kind != LS_BASE_FP32) {
        return ls_fail(LS_ERR_INVALID,
                       "adapter.base is %s, but the weights of a model with experts can only be kept as fp32",
                       ls_base_names[base->kind]);
    }
    ls_adapter *own = ls_arena_new(arena, ls_adapter, 1);
    *own = *adapter;
    build(arena, config, &all, own, base, layout_out);
    return LS_OK;
}

/* ---- looking up ---- */

/* The first bucket of a run. A bucket is before the border if more than half of it is. */
static uint32_t run_begin(const ls_layout *layout, uint32_t runs, uint32_t index)
{
    uint32_t bucket = 0;
    for (uint32_t i = 1; i <= index; i++) {
        /* leaves a bucket for each run after it */
        const uint32_t last = layout->bucket_count - (runs - i);
        const int64_t border = layout->float_count * i / runs;
        bucket++;
        while (bucket < last && layout->buckets[bucket].offset + layout->buckets[bucket].count / 2 < border) {
            bucket++;
        }
    }
    return bucket;
}

int64_t ls_layout_run(const ls_layout *layout, uint32_t runs, uint32_t index, int64_t *count_out)
{
    LS_ASSERT(runs >= 1 && runs <= layout->bucket_count && index < runs);
    const int64_t begin = layout->buckets[run_begin(layout, runs, index)].offset;
    const uint32_t next = index + 1 < runs ? run_begin(layout, runs, index + 1) : 0;
    *count_out = (next > 0 ? layout->buckets[next].offset : layout->float_count) - begin;
    return begin;
}

int64_t ls_layout_largest_run(const ls_layout *layout, uint32_t runs)
{
    int64_t most = 0, count;
    for (uint32_t i = 0; i < runs; i++) {
        (void)ls_layout_run(layout, runs, i, &count);
        most = count > most ? count : most;
    }
    return most;
}

const ls_parameter *ls_layout_find(const ls_layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        if (strcmp(layout->parameters[i].name, name) == 0) {
            return &layout->parameters[i];
        }
    }
    return NULL;
}

static int compare_names(const void *a, const void *b, void *layout_argument)
{
    const ls_layout *layout = layout_argument;
    return strcmp(layout->parameters[*(const uint32_t *)a].name,
                  layout->parameters[*(const uint32_t *)b].name);
}

uint32_t *ls_layout_by_name(ls_arena *arena, const ls_layout *layout)
{
    uint32_t *order = ls_arena_new(arena, uint32_t, layout->parameter_count);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        order[i] = i;
    }
    qsort_r(order, layout->parameter_count, sizeof *order, compare_names, (void *)(uintptr_t)layout);
    return order;
}

/* ---- fresh weights ---- */

/* How many names sort before this one: the number of the tensor in its random stream. */
static uint64_t name_rank(const ls_layout *layout, uint32_t index)
{
    uint64_t rank = 0;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        rank += strcmp(layout->parameters[i].name, layout->parameters[index].name) < 0;
    }
    return rank;
}

void ls_parameter_init(const ls_layout *layout, uint32_t index, const ls_init_rule *rule, int64_t first,
                       int64_t count, float *flat_parameters)
{
    LS_ASSERT(index < layout->parameter_count && rule->layers >= 1);
    const ls_parameter *p = &layout->parameters[index];
    LS_ASSERT(first >= 0 && count >= 0 && first + count <= p->rows * p->cols);
    float *out = flat_parameters + p->offset + first;
    if (p->init == LS_INIT_ZERO || p->init == LS_INIT_ONE) {
        for (int64_t i = 0; i < count; i++) {
            out[i] = p->init == LS_INIT_ONE ? 1.0f : 0.0f;
        }
        return;
    }
    const double scale =
        p->init == LS_INIT_NORMAL_SCALED ? rule->std / sqrt(2.0 * (double)rule->layers) : rule->std;
    const ls_random_key key = ls_random_stream(rule->seed, LS_RANDOM_INIT);
    if (p->init == LS_INIT_UNIFORM) {
        const uint64_t sub = name_rank(layout, index);
        const double bound = 1.0 / sqrt((double)p->cols);
        for (int64_t i = 0; i < count; i++) {
            const double uniform = ls_random_uniform64(key, (uint64_t)(first + i), sub);
            out[i] = (float)(bound * (2.0 * uniform - 1.0));
        }
        return;
    }
    ls_random_normals(key, (uint64_t)first, name_rank(layout, index), (size_t)count, out);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)(scale * (double)out[i]);
    }
}
