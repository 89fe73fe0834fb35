// SPDX-License-Identifier: Apache-2.0
/* The config.json of models that can be planned. The runtime's own families are read by
 * model/huggingface.h. Every other file resembles one of them with some members added or changed:
 * those are read here and removed, and the rest is read as that family. */
#include "base/json.h"
#include "model/huggingface.h"
#include "planning/model/shape_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    json_t *root;
    const char *name;
} reader;

/* A model type that the runtime does not have: the family whose members its file has, and what it
 * adds. */
typedef struct relative {
    const char *type;  /* model_type of the file */
    const char *dense; /* the family that its other members are those of */
    bool plain;        /* two matrices in the MLP, not three */
    ls_status (*read)(const reader *r, ls_shape_sizes *sizes);
} relative;

static ls_status get(const reader *r, const char *key, int64_t min, int64_t default_value, int64_t *value_out)
{
    uint64_t value = 0;
    if (json_is_null(json_object_get(r->root, key))) {
        *value_out = default_value;
        return LS_OK;
    }
    LS_TRY(ls_json_get_u64(r->root, r->name, key, (uint64_t)min, 1 << 20, (uint64_t)default_value, &value));
    *value_out = (int64_t)value;
    return LS_OK;
}

static ls_status read_mixtral(const reader *r, ls_shape_sizes *sizes)
{
    LS_TRY(get(r, "num_local_experts", 2, 8, &sizes->moe.experts));
    LS_TRY(get(r, "num_experts_per_tok", 1, 2, &sizes->moe.active));
    return get(r, "intermediate_size", 1, 14336, &sizes->moe.ffn);
}

static ls_status read_qwen_moe(const reader *r, ls_shape_sizes *sizes)
{
    int64_t step = 1, shared = 0;
    /* transformers 5 writes the number of experts under mixtral's name. */
    LS_TRY(get(r, "num_local_experts", 2, 128, &sizes->moe.experts));
    LS_TRY(get(r, "num_experts", 2, sizes->moe.experts, &sizes->moe.experts));
    LS_TRY(get(r, "num_experts_per_tok", 1, 8, &sizes->moe.active));
    LS_TRY(get(r, "moe_intermediate_size", 1, 768, &sizes->moe.ffn));
    LS_TRY(get(r, "shared_expert_intermediate_size", 0, 0, &shared));
    LS_TRY(get(r, "decoder_sparse_step", 1, 1, &step));
    const json_t *dense = json_object_get(r->root, "mlp_only_layers");
    if (step != 1 || json_array_size(dense) > 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: only some of the layers have experts (decoder_sparse_step is %lld, or "
                       "mlp_only_layers names layers); supported are models with experts in every layer",
                       r->name, (long long)step);
    }
    if (shared % sizes->moe.ffn != 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: shared_expert_intermediate_size is %lld; supported are multiples of "
                       "moe_intermediate_size %lld",
                       r->name, (long long)shared, (long long)sizes->moe.ffn);
    }
    sizes->moe.shared = shared / sizes->moe.ffn;
    int64_t width = 0, heads = 0;
    LS_TRY(get(r, "hidden_size", 1, 2048, &width));
    LS_TRY(get(r, "num_attention_heads", 1, 32, &heads));
    sizes->more_layer_vectors = shared > 0 ? width : 0; /* the gate of the shared expert */
    if (json_is_null(json_object_get(r->root, "head_dim")) || !json_object_get(r->root, "head_dim")) {
        json_object_set_new(r->root, "head_dim", json_integer(width / heads));
    }
    return LS_OK;
}

static ls_status read_deepseek(const reader *r, ls_shape_sizes *sizes)
{
    LS_TRY(get(r, "n_routed_experts", 2, 256, &sizes->moe.experts));
    LS_TRY(get(r, "num_experts_per_tok", 1, 8, &sizes->moe.active));
    LS_TRY(get(r, "moe_intermediate_size", 1, 2048, &sizes->moe.ffn));
    LS_TRY(get(r, "n_shared_experts", 0, 1, &sizes->moe.shared));
    LS_TRY(get(r, "first_k_dense_replace", 0, 3, &sizes->moe.dense_layers));
    LS_TRY(get(r, "q_lora_rank", 0, 0, &sizes->latent.query_rank));
    LS_TRY(get(r, "kv_lora_rank", 1, 512, &sizes->latent.kv_rank));
    LS_TRY(get(r, "qk_nope_head_dim", 1, 128, &sizes->latent.nope_dim));
    LS_TRY(get(r, "qk_rope_head_dim", 1, 64, &sizes->latent.rope_dim));
    return get(r, "v_head_dim", 1, 128, &sizes->latent.value_dim);
}

static ls_status read_glm(const reader *r, ls_shape_sizes *sizes)
{
    bool qk_norm = false, bias = false;
    int64_t head_dim = 0, heads = 0, kv_heads = 0, width = 0;
    LS_TRY(get(r, "n_routed_experts", 2, 128, &sizes->moe.experts));
    LS_TRY(get(r, "num_experts_per_tok", 1, 8, &sizes->moe.active));
    LS_TRY(get(r, "moe_intermediate_size", 1, 1408, &sizes->moe.ffn));
    LS_TRY(get(r, "n_shared_experts", 0, 1, &sizes->moe.shared));
    LS_TRY(get(r, "first_k_dense_replace", 0, 1, &sizes->moe.dense_layers));
    LS_TRY(ls_json_get_bool(r->root, r->name, "use_qk_norm", false, &qk_norm));
    LS_TRY(ls_json_get_bool(r->root, r->name, "attention_bias", false, &bias));
    LS_TRY(get(r, "num_attention_heads", 1, 96, &heads));
    LS_TRY(get(r, "num_key_value_heads", 1, 8, &kv_heads));
    LS_TRY(get(r, "hidden_size", 1, 4096, &width));
    LS_TRY(get(r, "head_dim", 1, width / heads, &head_dim));
    sizes->more_layer_vectors = (qk_norm ? 2 * head_dim : 0) + (bias ? (heads + 2 * kv_heads) * head_dim : 0);
    return LS_OK;
}

/* GPT-NeoX and StarCoder2: biases, and norms with them. */
static ls_status read_biased(const reader *r, ls_shape_sizes *sizes)
{
    int64_t width = 0, heads = 0, kv_heads = 0, ffn = 0;
    LS_TRY(get(r, "hidden_size", 1, 0, &width));
    LS_TRY(get(r, "intermediate_size", 1, 0, &ffn));
    LS_TRY(get(r, "num_attention_heads", 1, 1, &heads));
    LS_TRY(get(r, "num_key_value_heads", 1, heads, &kv_heads));
    json_object_set_new(r->root, "num_key_value_heads", json_integer(kv_heads));
    sizes->more_layer_vectors = 2 * width + width / heads * (heads + 2 * kv_heads) + width + ffn + width;
    return LS_OK;
}

/* Biases everywhere, and one sink per head. */
static ls_status read_gpt_oss(const reader *r, ls_shape_sizes *sizes)
{
    int64_t width = 0, heads = 0;
    LS_TRY(get(r, "num_local_experts", 2, 128, &sizes->moe.experts));
    LS_TRY(get(r, "num_experts_per_tok", 1, 4, &sizes->moe.active));
    LS_TRY(get(r, "intermediate_size", 1, 2880, &sizes->moe.ffn));
    LS_TRY(get(r, "hidden_size", 1, 2880, &width));
    LS_TRY(get(r, "num_attention_heads", 1, 64, &heads));
    sizes->moe.expert_vectors = 2 * sizes->moe.ffn + width;
    sizes->more_layer_vectors = heads + sizes->moe.experts;
    json_object_set_new(r->root, "attention_bias", json_true());
    return LS_OK;
}

static ls_status read_gemma(const reader *r, ls_shape_sizes *sizes)
{
    (void)sizes;
    if (!json_object_get(r->root, "tie_word_embeddings")) {
        json_object_set_new(r->root, "tie_word_embeddings", json_true());
    }
    return LS_OK;
}

static ls_status read_nothing(const reader *r, ls_shape_sizes *sizes)
{
    (void)r, (void)sizes;
    return LS_OK;
}

static const relative relatives[] = {
    {"mixtral", "mistral", false, read_mixtral},    {"qwen2_moe", "qwen2", false, read_qwen_moe},
    {"qwen3_moe", "qwen3", false, read_qwen_moe},   {"deepseek_v2", "llama", false, read_deepseek},
    {"deepseek_v3", "llama", false, read_deepseek}, {"kimi_k2", "llama", false, read_deepseek},
    {"glm4_moe", "mistral", false, read_glm},       {"gpt_oss", "llama", false, read_gpt_oss},
    {"gemma", "llama", false, read_gemma},          {"phi3", "llama", false, read_nothing},
    {"granite", "llama", false, read_nothing},      {"smollm3", "llama", false, read_nothing},
    {"gpt_neox", "llama", true, read_biased},       {"starcoder2", "llama", true, read_biased},
};

/* Every dense family has these; without them the model cannot be read. */
static const char *const needed[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                     "intermediate_size", "vocab_size"};

static ls_status find_relative(const reader *r, const char *type, const relative **kind_out)
{
    static const relative unknown = {NULL, "llama", false, read_nothing};
    ls_family family;
    *kind_out = NULL;
    for (size_t i = 0; i < sizeof relatives / sizeof *relatives; i++) {
        if (strcmp(type, relatives[i].type) == 0) {
            *kind_out = &relatives[i];
            return LS_OK;
        }
    }
    if (ls_family_of_model_type(type, &family) == LS_OK) {
        return LS_OK;
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!json_is_integer(json_object_get(r->root, needed[i]))) {
            return ls_fail(
                LS_ERR_UNSUPPORTED,
                "%s: model_type \"%s\" is unknown, and the model cannot be planned as a Llama of the same "
                "sizes, because %s is missing; give the sizes instead: layers=32,hidden=4096,heads=32",
                r->name, type, needed[i]);
        }
    }
    *kind_out = &unknown;
    return LS_OK;
}

/* Members that do not affect sizes, and may be of a kind that the runtime does not compute. */
static void drop_what_does_not_matter(const reader *r, const relative *kind, const ls_shape_sizes *sizes)
{
    static const char *const always[] = {"rope_scaling", "rope_parameters", "partial_rotary_factor",
                                         "quantization_config"};
    static const char *const of_relatives[] = {"hidden_act", "hidden_activation", "layer_types",
                                               "sliding_window", "mlp_bias"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) {
        json_object_del(r->root, always[i]);
    }
    for (size_t i = 0; kind && i < sizeof of_relatives / sizeof *of_relatives; i++) {
        json_object_del(r->root, of_relatives[i]);
    }
    if (kind && strcmp(kind->dense, "llama") != 0) {
        json_object_del(r->root, "attention_bias"); /* given by the family */
    }
    if (kind) {
        json_object_set_new(r->root, "model_type", json_string(kind->dense));
        json_object_set_new(r->root, "sliding_window", json_null());
    }
    if (sizes->latent.kv_rank) {
        json_object_set_new(r->root, "head_dim", json_integer(sizes->latent.value_dim));
    }
}

static ls_status read_root(const reader *r, ls_shape_sizes *sizes, bool *unknown_out)
{
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    const relative *kind = NULL;
    if (type) {
        LS_TRY(find_relative(r, type, &kind));
    }
    *unknown_out = kind && !kind->type;
    if (kind) {
        LS_TRY(kind->read(r, sizes));
    }
    drop_what_does_not_matter(r, kind, sizes);
    char *text = json_dumps(r->root, JSON_COMPACT);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "%s: not enough memory to read it", r->name);
    }
    const ls_status status = ls_hf_config_parse(text, strlen(text), r->name, &sizes->config);
    free(text);
    sizes->config.swiglu = sizes->config.swiglu && !(kind && kind->plain);
    return status;
}

/* Models of several parts have their language part in text_config. */
static ls_status read_parts(ls_arena *arena, json_t *root, const char *name, ls_shape_sizes *sizes,
                            const char **unknown_out)
{
    json_t *part = json_object_get(root, "text_config");
    const reader r = {.root = json_is_object(part) && !json_object_get(root, "hidden_size") ? part : root,
                      .name = name};
    if (!json_is_object(r.root)) {
        return ls_fail(LS_ERR_DATA, "%s: the file must hold a JSON object", name);
    }
    bool unknown = false;
    const char *type = json_string_value(json_object_get(r.root, "model_type"));
    /* read_root puts another one there */
    const char *copy = type ? ls_arena_strdup(arena, type) : NULL;
    LS_TRY(read_root(&r, sizes, &unknown));
    *unknown_out = unknown ? copy : NULL;
    return LS_OK;
}

ls_status ls_shape_read_config(ls_arena *arena, const char *text, size_t bytes, const char *name,
                               ls_shape_sizes *sizes_out, const char **unknown_out)
{
    json_t *root = NULL;
    LS_TRY(ls_json_parse(text, bytes, name, &root));
    ls_shape_sizes sizes = {0};
    const char *unknown = NULL;
    const ls_status status = read_parts(arena, root, name, &sizes, &unknown);
    json_decref(root);
    if (status == LS_OK) {
        *sizes_out = sizes;
        *unknown_out = unknown;
    }
    return status;
}
