// SPDX-License-Identifier: Apache-2.0
/* config.json of Hugging Face models. Parameters are read and written in huggingface.c. */
#include "base/file.h"
#include "model/huggingface.h"
#include "model/huggingface_packed.h"
#include "model/rope.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* larger numbers are refused here; the actual limits are in config.c */
static const int64_t COUNT_MAX = 1 << 30;

typedef struct reader {
    const json_t *root;
    const char *name; /* of the file, for messages */
} reader;

/* Defaults of the classes of transformers for a missing key. */
typedef struct family_defaults {
    uint64_t vocab, width, layers, heads, kv_heads, ffn, context;
    uint64_t head_dim; /* 0: width / heads */
    double norm_eps;
    int64_t bos_id, eos_id;
} family_defaults;

static const family_defaults defaults_of[LS_FAMILY_COUNT] = {
    [LS_FAMILY_GPT2] = {50257, 768, 12, 12, 0, 0, 1024, 0, 1e-5, 50256, 50256},
    [LS_FAMILY_LLAMA] = {32000, 4096, 32, 32, 0, 11008, 2048, 0, 1e-6, 1, 2},
    [LS_FAMILY_MISTRAL] = {32000, 4096, 32, 32, 8, 14336, 131072, 0, 1e-6, 1, 2},
    [LS_FAMILY_QWEN2] = {151936, 4096, 32, 32, 32, 22016, 32768, 0, 1e-6, -1, -1},
    [LS_FAMILY_QWEN3] = {151936, 4096, 32, 32, 32, 22016, 32768, 128, 1e-6, -1, -1},
    [LS_FAMILY_MIXTRAL] = {32000, 4096, 32, 32, 8, 14336, 131072, 0, 1e-5, 1, 2},
    [LS_FAMILY_QWEN3_MOE] = {151936, 2048, 24, 32, 4, 6144, 32768, 0, 1e-6, -1, -1},
};

/* ---- members ---- */

static ls_status get_count(const reader *r, const char *key, uint64_t default_value, int64_t *value_out)
{
    uint64_t value = 0;
    LS_TRY(ls_json_get_u64(r->root, r->name, key, 1, (uint64_t)COUNT_MAX, default_value, &value));
    *value_out = (int64_t)value;
    return LS_OK;
}

static ls_status get_real(const reader *r, const char *key, double default_value, double *value_out)
{
    return ls_json_get_f64(r->root, r->name, key, -DBL_MAX, DBL_MAX, default_value, value_out);
}

/* A switch that must have one value, because the other changes the computation. */
static ls_status require_bool(const reader *r, const char *key, bool required)
{
    bool value = required;
    LS_TRY(ls_json_get_bool(r->root, r->name, key, required, &value));
    if (value != required) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: %s is %s, only %s is supported", r->name, key,
                       value ? "true" : "false", required ? "true" : "false");
    }
    return LS_OK;
}

/* A text that must be one of two equivalent ones. */
static ls_status require_text(const reader *r, const char *key, const char *accepted, const char *synonym)
{
    const char *value = NULL;
    LS_TRY(ls_json_get_string(r->root, r->name, key, accepted, &value));
    if (strcmp(value, accepted) != 0 && strcmp(value, synonym) != 0) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: %s is \"%s\", only \"%s\" is supported", r->name, key, value,
                       accepted);
    }
    return LS_OK;
}

/* null means none; an id that no text can contain also means none. */
static ls_status read_token_id(const reader *r, const char *key, const json_t *value, int64_t vocab,
                               int64_t *id_out)
{
    const bool huge = json_is_real(value) && fabs(json_real_value(value)) >= 0x1p63;
    if (value && !json_is_integer(value) && !json_is_null(value) && !huge) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be a token id, a list of token ids or null", r->name, key);
    }
    const int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    *id_out = id >= 0 && id < vocab ? id : -1;
    return LS_OK;
}

/* Of a list the first. */
static ls_status get_token_id(const reader *r, const char *key, int64_t default_value, int64_t vocab,
                              int64_t *id_out)
{
    const json_t *member = json_object_get(r->root, key);
    if (!member) {
        *id_out = default_value < vocab ? default_value : -1;
        return LS_OK;
    }
    return read_token_id(r, key, json_is_array(member) ? json_array_get(member, 0) : member, vocab, id_out);
}

/* eos_token_id: an id or a list of them, each of which ends a text. */
static ls_status add_eos_ids(const reader *r, ls_model_config *config)
{
    const json_t *member = json_object_get(r->root, "eos_token_id");
    const size_t count = json_is_array(member) ? json_array_size(member) : 1;
    for (size_t i = 0; i < count; i++) {
        int64_t id = -1;
        LS_TRY(read_token_id(r, "eos_token_id", json_is_array(member) ? json_array_get(member, i) : member,
                             config->vocab, &id));
        if (id >= 0 && ls_model_config_add_eos(config, id) != LS_OK) {
            return ls_fail_within(LS_ERR_UNSUPPORTED, "%s", r->name);
        }
    }
    return LS_OK;
}

static ls_status get_special_ids(const reader *r, const family_defaults *d, ls_model_config *config)
{
    LS_TRY(get_token_id(r, "bos_token_id", d->bos_id, config->vocab, &config->bos_id));
    LS_TRY(get_token_id(r, "pad_token_id", -1, config->vocab, &config->pad_id));
    if (!json_object_get(r->root, "eos_token_id")) {
        config->eos_id = d->eos_id < config->vocab ? d->eos_id : -1;
        return LS_OK;
    }
    return add_eos_ids(r, config);
}

/* ---- rotary ---- */

static bool is_number(const reader *rope, const char *key)
{
    return json_is_number(json_object_get(rope->root, key));
}

static ls_status need_number(const reader *rope, const char *type, const char *key)
{
    return is_number(rope, key)
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "%s: rope_type is %s, so the number %s is needed too, but it is missing", rope->name,
                         type, key);
}

static ls_status read_llama3(const reader *rope, ls_rope_scaling *scaling)
{
    LS_TRY(need_number(rope, "llama3", "low_freq_factor"));
    LS_TRY(need_number(rope, "llama3", "high_freq_factor"));
    LS_TRY(get_real(rope, "low_freq_factor", 0.0, &scaling->low_freq_factor));
    return get_real(rope, "high_freq_factor", 0.0, &scaling->high_freq_factor);
}

/* As in transformers, 0 counts as missing for the two betas and the two mscales. */
static ls_status read_yarn(const reader *rope, ls_rope_scaling *scaling)
{
    double mscale = 0.0, mscale_all = 0.0, fast = 0.0, slow = 0.0;
    bool truncate = true;
    LS_TRY(get_real(rope, "beta_fast", 0.0, &fast));
    LS_TRY(get_real(rope, "beta_slow", 0.0, &slow));
    LS_TRY(get_real(rope, "mscale", 0.0, &mscale));
    LS_TRY(get_real(rope, "mscale_all_dim", 0.0, &mscale_all));
    LS_TRY(ls_json_get_bool(rope->root, rope->name, "truncate", true, &truncate));
    scaling->beta_fast = fast != 0.0 ? fast : scaling->beta_fast;
    scaling->beta_slow = slow != 0.0 ? slow : scaling->beta_slow;
    scaling->fractional_bounds = !truncate;
    if (mscale != 0.0 && mscale_all != 0.0) {
        scaling->attention_factor = ls_rope_attention_factor(scaling->factor, mscale) /
                                    ls_rope_attention_factor(scaling->factor, mscale_all);
    }
    return get_real(rope, "attention_factor", scaling->attention_factor, &scaling->attention_factor);
}

static ls_status find_rope_type(const reader *rope, ls_rope_scaling_kind *kind_out)
{
    const char *type = NULL;
    LS_TRY(ls_json_get_string(rope->root, rope->name, "type", "default", &type));
    LS_TRY(ls_json_get_string(rope->root, rope->name, "rope_type", type, &type));
    for (ls_rope_scaling_kind kind = LS_ROPE_NONE; kind < LS_ROPE_COUNT; kind++) {
        if (strcmp(type, ls_rope_scaling_name(kind)) == 0) {
            *kind_out = kind;
            return LS_OK;
        }
    }
    return ls_fail(
        LS_ERR_UNSUPPORTED,
        "%s: rope_type is \"%s\"; supported are \"default\", \"linear\", \"dynamic\", \"yarn\" and "
        "\"llama3\"",
        rope->name, type);
}

/* The context before it was lengthened. As in transformers, dynamic scaling knows only
 * max_position_embeddings; for the others a value outside the object comes before one inside, and
 * without either nothing was lengthened. */
static ls_status read_original_context(const reader *rope, const reader *r, int64_t context,
                                       ls_rope_scaling *scaling)
{
    static const char key[] = "original_max_position_embeddings";
    scaling->original_context = context;
    if (scaling->kind == LS_ROPE_LINEAR || scaling->kind == LS_ROPE_DYNAMIC) {
        return LS_OK;
    }
    return get_count(json_object_get(r->root, key) ? r : rope, key, (uint64_t)context,
                     &scaling->original_context);
}

static ls_status read_scaling(const reader *rope, const reader *r, ls_model_config *config)
{
    ls_rope_scaling *scaling = &config->rope_scaling;
    ls_rope_scaling found = {0};
    LS_TRY(find_rope_type(rope, &found.kind));
    if (found.kind == LS_ROPE_NONE) {
        return LS_OK;
    }
    LS_TRY(read_original_context(rope, r, config->context, &found));
    found.factor = (double)config->context / (double)found.original_context;
    if (found.kind != LS_ROPE_YARN || is_number(rope, "factor")) {
        LS_TRY(need_number(rope, ls_rope_scaling_name(found.kind), "factor"));
        LS_TRY(get_real(rope, "factor", 1.0, &found.factor));
    }
    *scaling = ls_rope_scaling_of(found.kind, found.factor, found.original_context);
    if (found.kind == LS_ROPE_DYNAMIC) {
        config->context = ls_rope_reach(config);
    }
    return found.kind == LS_ROPE_LLAMA3 ? read_llama3(rope, scaling)
           : found.kind == LS_ROPE_YARN ? read_yarn(rope, scaling)
                                        : LS_OK;
}

static ls_status require_whole_heads(const reader *r)
{
    double part = 1.0;
    LS_TRY(get_real(r, "partial_rotary_factor", 1.0, &part));
    if (part != 1.0) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: partial_rotary_factor is %g, only 1 is supported", r->name,
                       part);
    }
    return LS_OK;
}

static ls_status read_rope(const reader *r, ls_model_config *config)
{
    const char *key = "rope_scaling"; /* if both exist transformers uses this one */
    const json_t *object = json_object_get(r->root, key);
    if (!object || json_is_null(object)) {
        key = "rope_parameters";
        object = json_object_get(r->root, key);
    }
    LS_TRY(get_real(r, "rope_theta", config->family == LS_FAMILY_MIXTRAL ? 1e6 : 1e4, &config->rope_theta));
    LS_TRY(require_whole_heads(r));
    if (!object || json_is_null(object)) {
        return LS_OK;
    }
    if (!json_is_object(object)) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be an object or null", r->name, key);
    }
    const char *member;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, member, value)
    {
        if (json_is_object(value)) {
            return ls_fail(
                LS_ERR_UNSUPPORTED,
                "%s: %s has separate numbers for \"%s\", but only one set for all layers is supported",
                r->name, key, member);
        }
    }
    const reader rope = {object, r->name};
    LS_TRY(get_real(&rope, "rope_theta", config->rope_theta, &config->rope_theta));
    LS_TRY(require_whole_heads(&rope));
    return read_scaling(&rope, r, config);
}

/* ---- sliding windows ---- */

/* layer_types: full attention below some layer, sliding from it on. */
static ls_status read_layer_types(const reader *r, const json_t *types, ls_model_config *config)
{
    if (!json_is_array(types) || (int64_t)json_array_size(types) != config->layers) {
        return ls_fail(LS_ERR_DATA, "%s: layer_types must be a list of %lld strings, one for each layer",
                       r->name, (long long)config->layers);
    }
    int64_t first = config->layers;
    for (int64_t i = 0; i < config->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (!sliding && (!type || strcmp(type, "full_attention") != 0)) {
            return ls_fail(
                LS_ERR_UNSUPPORTED,
                "%s: layer_types[%lld] is %s; supported are \"full_attention\" and \"sliding_attention\"",
                r->name, (long long)i, type ? type : "not a text");
        }
        if (sliding && first == config->layers) {
            first = i;
        }
        if (!sliding && first < config->layers) {
            return ls_fail(
                LS_ERR_UNSUPPORTED,
                "%s: layer_types[%lld] is full_attention after sliding_attention at %lld; supported is full "
                "attention in the first layers and sliding in all later ones",
                r->name, (long long)i, (long long)first);
        }
    }
    if (first < config->layers && config->window == 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: layer_types[%lld] is sliding_attention, but sliding_window, the size of the "
                       "window, is not given",
                       r->name, (long long)first);
    }
    config->window_first_layer = first;
    return LS_OK;
}

/* Families whose first layers may be without the window that the later ones have. */
static bool has_first_layers(ls_family family)
{
    return family == LS_FAMILY_QWEN2 || family == LS_FAMILY_QWEN3;
}

/* As in transformers, a missing sliding_window means none for mixtral, the default for others. */
static ls_status read_window_size(const reader *r, ls_model_config *config)
{
    const json_t *member = json_object_get(r->root, "sliding_window");
    const bool has_switch = has_first_layers(config->family) || config->family == LS_FAMILY_QWEN3_MOE;
    bool uses = config->family == LS_FAMILY_MISTRAL || member;
    if (has_switch) {
        LS_TRY(ls_json_get_bool(r->root, r->name, "use_sliding_window", false, &uses));
    }
    return uses && !json_is_null(member) ? get_count(r, "sliding_window", 4096, &config->window) : LS_OK;
}

static ls_status read_window(const reader *r, ls_model_config *config)
{
    if (!ls_family_has_window(config->family)) {
        return LS_OK;
    }
    LS_TRY(read_window_size(r, config));
    uint64_t first = 0;
    if (has_first_layers(config->family)) {
        LS_TRY(ls_json_get_u64(r->root, r->name, "max_window_layers", 0, (uint64_t)COUNT_MAX, 28, &first));
    }
    config->window_first_layer = (int64_t)first;
    const json_t *types = json_object_get(r->root, "layer_types");
    if (types && !json_is_null(types)) {
        LS_TRY(read_layer_types(r, types, config));
    }
    if (config->window_first_layer >= config->layers || config->window == 0) {
        config->window = config->window_first_layer = 0; /* no layer has one */
    }
    if (!has_first_layers(config->family) && config->window_first_layer != 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: layer_types mixes full and sliding attention, which is not supported for %s",
                       r->name, ls_family_name(config->family));
    }
    return LS_OK;
}

/* ---- families ---- */

static ls_status read_gpt2(const reader *r, const family_defaults *d, ls_model_config *config)
{
    LS_TRY(get_count(r, "n_embd", d->width, &config->width));
    LS_TRY(get_count(r, "n_layer", d->layers, &config->layers));
    LS_TRY(get_count(r, "n_head", d->heads, &config->heads));
    LS_TRY(get_count(r, "n_positions", d->context, &config->context));
    LS_TRY(get_count(r, "n_inner", 4 * (uint64_t)config->width, &config->ffn));
    LS_TRY(get_real(r, "layer_norm_epsilon", d->norm_eps, &config->norm_eps));
    LS_TRY(require_text(r, "activation_function", "gelu_new", "gelu_pytorch_tanh"));
    LS_TRY(require_bool(r, "scale_attn_weights", true));
    LS_TRY(require_bool(r, "scale_attn_by_inverse_layer_idx", false));
    LS_TRY(require_bool(r, "add_cross_attention", false));
    if (config->width % config->heads != 0) {
        return ls_fail(LS_ERR_DATA, "%s: n_head is %lld, but n_embd, %lld, must be a multiple of it", r->name,
                       (long long)config->heads, (long long)config->width);
    }
    config->kv_heads = config->heads;
    config->head_dim = config->width / config->heads;
    return LS_OK;
}

/* Families with one switch for the biases of all four projections of attention. */
static bool has_attention_bias(ls_family family)
{
    return family == LS_FAMILY_LLAMA || family == LS_FAMILY_QWEN3 || family == LS_FAMILY_QWEN3_MOE;
}

static ls_status read_biases(const reader *r, ls_model_config *config)
{
    const ls_family family = config->family;
    if (has_attention_bias(family)) {
        LS_TRY(ls_json_get_bool(r->root, r->name, "attention_bias", false, &config->qkv_bias));
        config->output_bias = config->qkv_bias;
    } else if (family != LS_FAMILY_QWEN2) {
        LS_TRY(require_bool(r, "attention_bias", false));
    }
    if (family == LS_FAMILY_LLAMA) {
        return ls_json_get_bool(r->root, r->name, "mlp_bias", false, &config->mlp_bias);
    }
    return require_bool(r, "mlp_bias", false);
}

static ls_status read_mixtral(const reader *r, ls_model_config *config)
{
    double jitter = 0.0;
    LS_TRY(get_count(r, "num_local_experts", 8, &config->experts));
    LS_TRY(get_count(r, "num_experts_per_tok", 2, &config->experts_per_token));
    LS_TRY(get_real(r, "router_jitter_noise", 0.0, &jitter));
    config->expert_ffn = config->ffn;
    if (jitter != 0.0) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: router_jitter_noise is %g, only 0 is supported", r->name,
                       jitter);
    }
    return LS_OK;
}

static ls_status read_qwen3_moe(const reader *r, ls_model_config *config)
{
    /* transformers 5 writes the number of experts under mixtral's name. */
    const char *key = json_object_get(r->root, "num_experts") ? "num_experts" : "num_local_experts";
    const json_t *dense = json_object_get(r->root, "mlp_only_layers");
    int64_t step = 1;
    LS_TRY(get_count(r, key, 128, &config->experts));
    LS_TRY(get_count(r, "num_experts_per_tok", 8, &config->experts_per_token));
    LS_TRY(get_count(r, "moe_intermediate_size", 768, &config->expert_ffn));
    LS_TRY(ls_json_get_bool(r->root, r->name, "norm_topk_prob", false, &config->normalise_experts));
    LS_TRY(get_count(r, "decoder_sparse_step", 1, &step));
    if (step != 1) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: decoder_sparse_step is %lld, only 1 (experts in every layer) is supported",
                       r->name, (long long)step);
    }
    if (dense && !json_is_null(dense) && (!json_is_array(dense) || json_array_size(dense) > 0)) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: mlp_only_layers names layers without experts; supported is only an empty list",
                       r->name);
    }
    return LS_OK;
}

static ls_status read_llama_like(const reader *r, const family_defaults *d, ls_model_config *config)
{
    LS_TRY(get_count(r, "hidden_size", d->width, &config->width));
    LS_TRY(get_count(r, "num_hidden_layers", d->layers, &config->layers));
    LS_TRY(get_count(r, "num_attention_heads", d->heads, &config->heads));
    const uint64_t kv_heads = d->kv_heads && !json_is_null(json_object_get(r->root, "num_key_value_heads"))
                                  ? d->kv_heads
                                  : (uint64_t)config->heads;
    LS_TRY(get_count(r, "num_key_value_heads", kv_heads, &config->kv_heads));
    const uint64_t head_dim = d->head_dim ? d->head_dim : (uint64_t)(config->width / config->heads);
    LS_TRY(get_count(r, "head_dim", head_dim, &config->head_dim));
    LS_TRY(get_count(r, "intermediate_size", d->ffn, &config->ffn));
    LS_TRY(get_count(r, "max_position_embeddings", d->context, &config->context));
    LS_TRY(get_real(r, "rms_norm_eps", d->norm_eps, &config->norm_eps));
    LS_TRY(require_text(r, "hidden_act", "silu", "swish"));
    LS_TRY(read_biases(r, config));
    LS_TRY(config->family == LS_FAMILY_MIXTRAL     ? read_mixtral(r, config)
           : config->family == LS_FAMILY_QWEN3_MOE ? read_qwen3_moe(r, config)
                                                   : LS_OK);
    LS_TRY(read_rope(r, config));
    return read_window(r, config);
}

static ls_status read_family(const reader *r, ls_family *family_out)
{
    const char *type = NULL;
    LS_TRY(ls_json_get_string(r->root, r->name, "model_type", NULL, &type));
    if (!type) {
        return ls_fail(LS_ERR_DATA,
                       "%s: model_type is missing; it must be gpt2, llama, mistral, qwen2, qwen3, mixtral or "
                       "qwen3_moe",
                       r->name);
    }
    return ls_family_of_model_type(type, family_out) == LS_OK
               ? LS_OK
               : ls_fail_within(LS_ERR_UNSUPPORTED, "%s", r->name);
}

static ls_status read_config(const reader *r, ls_model_config *config)
{
    ls_family family;
    LS_TRY(read_family(r, &family));
    const json_t *quantization = json_object_get(r->root, "quantization_config");
    if (quantization && !json_is_null(quantization)) {
        LS_TRY(ls_hf_check_quantization(quantization, family, r->name));
    }
    const family_defaults *d = &defaults_of[family];
    ls_model_config_defaults(family, config);
    config->quantised = quantization && !json_is_null(quantization);
    LS_TRY(get_count(r, "vocab_size", d->vocab, &config->vocab));
    LS_TRY(get_real(r, "initializer_range", 0.02, &config->init_std));
    LS_TRY(
        ls_json_get_bool(r->root, r->name, "tie_word_embeddings", family == LS_FAMILY_GPT2, &config->tied));
    LS_TRY(get_special_ids(r, d, config));
    LS_TRY(family == LS_FAMILY_GPT2 ? read_gpt2(r, d, config) : read_llama_like(r, d, config));
    if (ls_model_config_check(config) != LS_OK) {
        return ls_fail_within(LS_ERR_DATA, "%s", r->name);
    }
    return LS_OK;
}

ls_status ls_hf_config_parse(const char *text, size_t bytes, const char *name, ls_model_config *config_out)
{
    json_t *root = NULL;
    LS_TRY(ls_json_parse(text, bytes, name, &root));
    if (!json_is_object(root)) {
        json_decref(root);
        return ls_fail(LS_ERR_DATA, "%s: must be a JSON object", name);
    }
    ls_model_config config;
    const reader r = {root, name};
    const ls_status status = read_config(&r, &config);
    json_decref(root);
    if (status == LS_OK) {
        *config_out = config;
    }
    return status;
}

static ls_status parse_file(ls_arena *arena, const char *file, ls_model_config *config_out)
{
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(arena, file, CONFIG_BYTES_MAX, &text, &bytes));
    return ls_hf_config_parse(text, bytes, file, config_out);
}

ls_status ls_hf_config_load(const char *path, ls_model_config *config_out)
{
    ls_arena arena = {0};
    const char *file = ls_path_is_dir(path) ? ls_path_join(&arena, path, "config.json") : path;
    const ls_status status = parse_file(&arena, file, config_out);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_hf_generation_config_load(const char *path, ls_model_config *config)
{
    json_t *root = NULL;
    LS_TRY(ls_json_load(path, CONFIG_BYTES_MAX, &root));
    const reader r = {root, path};
    const ls_status status = add_eos_ids(&r, config);
    json_decref(root);
    return status;
}

/* ---- writing ---- */

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *token_id(int64_t id)
{
    return id >= 0 ? json_integer(id) : json_null();
}

static json_t *eos_ids(const ls_model_config *c)
{
    if (c->more_eos_count == 0) {
        return token_id(c->eos_id);
    }
    json_t *list = json_array();
    json_array_append_new(list, json_integer(c->eos_id));
    for (int64_t i = 0; i < c->more_eos_count; i++) {
        json_array_append_new(list, json_integer(c->more_eos[i]));
    }
    return list;
}

static void write_gpt2(const ls_model_config *c, json_t *object)
{
    set(object, "n_embd", json_integer(c->width));
    set(object, "n_layer", json_integer(c->layers));
    set(object, "n_head", json_integer(c->heads));
    set(object, "n_inner", json_integer(c->ffn));
    set(object, "n_positions", json_integer(c->context));
    set(object, "n_ctx", json_integer(c->context));
    set(object, "activation_function", json_string("gelu_new"));
    set(object, "layer_norm_epsilon", json_real(c->norm_eps));
    /* transformers would train with dropout otherwise, which is not how this model was trained. */
    set(object, "attn_pdrop", json_real(0.0));
    set(object, "embd_pdrop", json_real(0.0));
    set(object, "resid_pdrop", json_real(0.0));
}

/* Numbers that equal the defaults of transformers are left out. */
static void write_yarn(const ls_rope_scaling *scaling, json_t *object)
{
    const ls_rope_scaling plain = ls_rope_scaling_of(LS_ROPE_YARN, scaling->factor, 1);
    if (scaling->beta_fast != plain.beta_fast) {
        set(object, "beta_fast", json_real(scaling->beta_fast));
    }
    if (scaling->beta_slow != plain.beta_slow) {
        set(object, "beta_slow", json_real(scaling->beta_slow));
    }
    if (scaling->attention_factor != plain.attention_factor) {
        set(object, "attention_factor", json_real(scaling->attention_factor));
    }
    if (scaling->fractional_bounds) {
        set(object, "truncate", json_false());
    }
}

static json_t *rope_scaling_json(const ls_rope_scaling *scaling)
{
    if (scaling->kind == LS_ROPE_NONE) {
        return json_null();
    }
    json_t *object = json_object();
    set(object, "rope_type", json_string(ls_rope_scaling_name(scaling->kind)));
    set(object, "factor", json_real(scaling->factor));
    if (scaling->kind == LS_ROPE_LLAMA3) {
        set(object, "low_freq_factor", json_real(scaling->low_freq_factor));
        set(object, "high_freq_factor", json_real(scaling->high_freq_factor));
    }
    if (scaling->kind == LS_ROPE_YARN) {
        write_yarn(scaling, object);
    }
    if (scaling->kind == LS_ROPE_LLAMA3 || scaling->kind == LS_ROPE_YARN) {
        set(object, "original_max_position_embeddings", json_integer(scaling->original_context));
    }
    return object;
}

static void write_window(const ls_model_config *c, json_t *object)
{
    if (!ls_family_has_window(c->family)) {
        return;
    }
    if (c->family != LS_FAMILY_MISTRAL && c->family != LS_FAMILY_MIXTRAL) {
        set(object, "use_sliding_window", json_boolean(c->window > 0));
    }
    if (has_first_layers(c->family)) {
        set(object, "max_window_layers", json_integer(c->window > 0 ? c->window_first_layer : c->layers));
    }
    set(object, "sliding_window", c->window > 0 ? json_integer(c->window) : json_null());
}

static void write_experts(const ls_model_config *c, json_t *object)
{
    const bool mixtral = c->family == LS_FAMILY_MIXTRAL;
    set(object, mixtral ? "num_local_experts" : "num_experts", json_integer(c->experts));
    set(object, "num_experts_per_tok", json_integer(c->experts_per_token));
    if (!mixtral) {
        set(object, "moe_intermediate_size", json_integer(c->expert_ffn));
        set(object, "norm_topk_prob", json_boolean(c->normalise_experts));
        set(object, "decoder_sparse_step", json_integer(1));
        set(object, "mlp_only_layers", json_array());
    }
}

static void write_llama_like(const ls_model_config *c, json_t *object)
{
    set(object, "hidden_size", json_integer(c->width));
    set(object, "intermediate_size", json_integer(c->ffn));
    set(object, "num_hidden_layers", json_integer(c->layers));
    set(object, "num_attention_heads", json_integer(c->heads));
    set(object, "num_key_value_heads", json_integer(c->kv_heads));
    set(object, "head_dim", json_integer(c->head_dim));
    /* Under this name dynamic scaling has the context before it was lengthened. */
    set(object, "max_position_embeddings",
        json_integer(c->rope_scaling.kind == LS_ROPE_DYNAMIC ? c->rope_scaling.original_context
                                                             : c->context));
    set(object, "hidden_act", json_string("silu"));
    set(object, "rms_norm_eps", json_real(c->norm_eps));
    if (has_attention_bias(c->family)) {
        set(object, "attention_bias", json_boolean(c->qkv_bias));
    }
    if (c->family == LS_FAMILY_LLAMA) {
        set(object, "mlp_bias", json_boolean(c->mlp_bias));
    }
    set(object, "attention_dropout", json_real(0.0));
    set(object, "rope_theta", json_real(c->rope_theta));
    set(object, "rope_scaling", rope_scaling_json(&c->rope_scaling));
    write_window(c, object);
    if (c->experts > 0) {
        write_experts(c, object);
    }
}

json_t *ls_hf_config_json(const ls_model_config *config)
{
    static const char *const architectures[LS_FAMILY_COUNT] = {
        "GPT2LMHeadModel",  "LlamaForCausalLM",   "MistralForCausalLM", "Qwen2ForCausalLM",
        "Qwen3ForCausalLM", "MixtralForCausalLM", "Qwen3MoeForCausalLM"};
    json_t *object = json_object();
    json_t *architecture = json_array();
    json_array_append_new(architecture, json_string(architectures[config->family]));
    set(object, "architectures", architecture);
    set(object, "model_type", json_string(ls_family_model_type(config->family)));
    set(object, "torch_dtype", json_string("float32"));
    set(object, "vocab_size", json_integer(config->vocab));
    if (config->family == LS_FAMILY_GPT2) {
        write_gpt2(config, object);
    } else {
        write_llama_like(config, object);
    }
    set(object, "initializer_range", json_real(config->init_std));
    set(object, "tie_word_embeddings", json_boolean(config->tied));
    set(object, "bos_token_id", token_id(config->bos_id));
    set(object, "eos_token_id", eos_ids(config));
    if (config->pad_id >= 0) {
        set(object, "pad_token_id", json_integer(config->pad_id));
    }
    return object;
}
