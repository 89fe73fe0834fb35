// SPDX-License-Identifier: Apache-2.0
/*
 * config.json of models that can be planned. Dense families are read by model/huggingface.h. A mixture's file is that of a dense family with some members more:
 * they are read here and taken out, and the rest is read as its dense relative.
 */
#include "base/json.h"
#include "model/huggingface.h"
#include "planning/shape_internal.h"

#include <stdlib.h>
#include <string.h>

enum { EXPERTS_MAX = 4096 };

typedef struct reader {
    json_t *root;
    const char *name;
} reader;

typedef struct relative {
    const char *type;  /* model_type of the file */
    const char *dense; /* the family its other members are those of */
    bool latent;
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
    LS_TRY(get(r, "num_experts", 2, 128, &sizes->moe.experts));
    LS_TRY(get(r, "num_experts_per_tok", 1, 8, &sizes->moe.active));
    LS_TRY(get(r, "moe_intermediate_size", 1, 768, &sizes->moe.ffn));
    LS_TRY(get(r, "shared_expert_intermediate_size", 0, 0, &shared));
    LS_TRY(get(r, "decoder_sparse_step", 1, 1, &step));
    const json_t *dense = json_object_get(r->root, "mlp_only_layers");
    if (step != 1 || json_array_size(dense) > 0) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "%s: some layers in between have no experts (decoder_sparse_step %lld, mlp_only_layers); "
            "supported is a mixture in every layer",
            r->name, (long long)step);
    }
    if (shared % sizes->moe.ffn != 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: shared_expert_intermediate_size is %lld; supported are multiples of "
                       "moe_intermediate_size %lld",
                       r->name, (long long)shared, (long long)sizes->moe.ffn);
    }
    sizes->moe.shared = shared / sizes->moe.ffn;
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

static const relative relatives[] = {
    {"mixtral", "mistral", false, read_mixtral},   {"qwen2_moe", "qwen2", false, read_qwen_moe},
    {"qwen3_moe", "qwen3", false, read_qwen_moe},  {"deepseek_v2", "llama", true, read_deepseek},
    {"deepseek_v3", "llama", true, read_deepseek},
};

/* The rest of the file as that of the dense relative. */
static ls_status read_dense(const reader *r, const relative *kind, ls_shape_sizes *sizes)
{
    json_object_set_new(r->root, "model_type", json_string(kind->dense));
    if (kind->latent) {
        json_object_del(r->root, "rope_scaling"); /* how far positions are stretched changes no size */
        json_object_set_new(r->root, "head_dim", json_integer(sizes->latent.value_dim));
        json_object_del(r->root, "quantization_config"); /* V3's weights are published in fp8 */
    }
    char *text = json_dumps(r->root, JSON_COMPACT);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "%s: no memory to read it", r->name);
    }
    const ls_status status = ls_hf_config_parse(text, strlen(text), r->name, &sizes->config);
    free(text);
    return status;
}

static ls_status read_root(const char *text, size_t bytes, const reader *r, ls_shape_sizes *sizes)
{
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    for (size_t i = 0; type && i < sizeof relatives / sizeof *relatives; i++) {
        if (strcmp(type, relatives[i].type) == 0) {
            LS_TRY(relatives[i].read(r, sizes));
            return read_dense(r, &relatives[i], sizes);
        }
    }
    return ls_hf_config_parse(text, bytes, r->name, &sizes->config);
}

ls_status ls_shape_read_config(const char *text, size_t bytes, const char *name, ls_shape_sizes *sizes_out)
{
    reader r = {.name = name};
    LS_TRY(ls_json_parse(text, bytes, name, &r.root));
    ls_shape_sizes sizes = {0};
    const ls_status status = json_is_object(r.root) ? read_root(text, bytes, &r, &sizes)
                                                    : ls_fail(LS_ERR_DATA, "%s: must be a JSON object", name);
    json_decref(r.root);
    if (status == LS_OK) {
        *sizes_out = sizes;
    }
    return status;
}
