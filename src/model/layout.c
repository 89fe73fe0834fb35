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
    LAYER_PARAMETERS_MAX = 16, /* tensors of one layer, any family */
    OUTER_PARAMETERS_MAX = 5   /* two embeddings, final norm with bias, head */
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
    bool frozen; /* the parameters to lay out in this pass; the others are skipped */
} builder;

/* ---- pieces ---- */

static void bucket_begin(builder *b)
{
    LS_ASSERT(b->offset % LS_BUCKET_PAD == 0);
    b->layout->buckets[b->layout->bucket_count] = (ls_bucket){.offset = b->offset, .section = b->section};
    b->group++;
}

/* Removes the bucket again if nothing was added to it. */
static void bucket_end(builder *b)
{
    ls_bucket *bucket = &b->layout->buckets[b->layout->bucket_count];
    b->offset = ls_round_up_i64(b->offset, LS_BUCKET_PAD);
    bucket->count = b->offset - bucket->offset;
    b->layout->bucket_count += bucket->count > 0;
    b->section++;
}

/* Tensors between two calls of this are adjacent. */
static void group_begin(builder *b)
{
    b->offset = ls_round_up_i64(b->offset, GROUP_ALIGN);
    b->group++;
}

static void add(builder *b, const char *name, int shape_rank, int64_t rows, int64_t cols, ls_init_kind init)
{
    ls_layout *layout = b->layout;
    const char *full = ls_arena_printf(b->arena, "%s%s", b->prefix, name);
    LS_ASSERT(layout->parameter_count < b->capacity);
    if (ls_freeze_matches(b->freeze, full) != b->frozen) {
        return;
    }
    layout->parameters[layout->parameter_count++] = (ls_parameter){
        .name = full,
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
    };
    b->offset += rows * cols;
    layout->element_count += rows * cols;
    layout->frozen_elements += b->frozen ? rows * cols : 0;
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

static void llama_layer(builder *b)
{
    group_begin(b);
    add_gain(b, "input_layernorm.weight", b->config->width);
    llama_attention(b);
    group_begin(b);
    add_gain(b, "post_attention_layernorm.weight", b->config->width);
    llama_mlp(b);
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

/* Lays out the frozen parameters, or the trained ones, after what is already laid out. */
static void add_all(builder *b, bool frozen)
{
    const bool gpt2 = b->config->family == LS_FAMILY_GPT2;
    b->section = b->group = 0;
    b->frozen = frozen;
    add_embeddings(b, gpt2);
    add_layers(b, gpt2);
    add_final(b, gpt2);
}

static void build(ls_arena *arena, const ls_model_config *config, const ls_freeze *freeze,
                  ls_layout *layout_out)
{
    const uint32_t sections = (uint32_t)config->layers + 2;
    const uint32_t capacity = OUTER_PARAMETERS_MAX + LAYER_PARAMETERS_MAX * (uint32_t)config->layers;
    ls_layout layout = {
        .parameters = ls_arena_new(arena, ls_parameter, capacity),
        .buckets = ls_arena_new(arena, ls_bucket, (freeze->count > 0 ? 2 : 1) * (size_t)sections + 1),
        .section_count = sections,
    };
    builder b = {.arena = arena,
                 .config = config,
                 .layout = &layout,
                 .capacity = capacity,
                 .prefix = "",
                 .freeze = freeze};
    add_all(&b, false);
    const uint32_t trained_buckets = layout.bucket_count;
    layout.trained_count = layout.parameter_count;
    layout.float_count = b.offset;
    if (freeze->count > 0) {
        add_all(&b, true);
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
    build(arena, config, &nothing, layout_out);
    LS_ASSERT(layout_out->bucket_count == layout_out->section_count);
}

ls_status ls_layout_build_frozen(ls_arena *arena, const ls_model_config *config, const char *const *patterns,
                                 size_t pattern_count, ls_layout *layout_out)
{
    const ls_freeze freeze = {patterns, pattern_count};
    ls_layout layout;
    build(arena, config, &freeze, &layout);
    LS_TRY(ls_freeze_check(&freeze, &layout));
    *layout_out = layout;
    return LS_OK;
}

/* ---- looking up ---- */

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
    ls_random_normals(key, (uint64_t)first, name_rank(layout, index), (size_t)count, out);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)(scale * (double)out[i]);
    }
}
