// SPDX-License-Identifier: Apache-2.0
/* config.json of Hugging Face models. Parameters are read and written in huggingface.c. */
#include "base/file.h"
#include "model/huggingface.h"

#include <float.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

static const int64_t COUNT_MAX =
    1 << 30; /* anything larger is refused here, the real limits are in config.c */

typedef struct reader {
    const json_t *root;
    const char *name; /* of the file, for messages */
} reader;

/* What the classes of transformers take for a missing key. */
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

/* null is none, a list stands for its first; an id that no text can contain is none too. */
static ls_status get_token_id(const reader *r, const char *key, int64_t default_value, int64_t vocab,
                              int64_t *id_out)
{
    const json_t *member = json_object_get(r->root, key);
    int64_t id = member ? -1 : default_value;
    if (json_is_array(member)) {
        member = json_array_get(member, 0);
    }
    if (json_is_integer(member)) {
        id = json_integer_value(member);
    } else if (member && !json_is_null(member)) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be a token id, a list of them or null", r->name, key);
    }
    *id_out = id >= 0 && id < vocab ? id : -1;
    return LS_OK;
}

/* ---- rotary ---- */

static ls_status read_llama3(const reader *rope, const reader *r, int64_t context, ls_rope_scaling *scaling)
{
    static const char *const needed[] = {"low_freq_factor", "high_freq_factor"};
    for (int i = 0; i < 2; i++) {
        if (!json_is_number(json_object_get(rope->root, needed[i]))) {
            return ls_fail(LS_ERR_DATA, "%s: rope_type llama3 needs the number %s", rope->name, needed[i]);
        }
    }
    LS_TRY(get_real(rope, needed[0], 0.0, &scaling->low_freq_factor));
    LS_TRY(get_real(rope, needed[1], 0.0, &scaling->high_freq_factor));
    /* As in transformers: outside the object it wins, inside comes next, else nothing was extended. */
    const reader *at = json_object_get(r->root, "original_max_position_embeddings") ? r : rope;
    return get_count(at, "original_max_position_embeddings", (uint64_t)context, &scaling->original_context);
}

static ls_status read_scaling(const reader *rope, const reader *r, int64_t context, ls_rope_scaling *scaling)
{
    const char *type = NULL;
    LS_TRY(ls_json_get_string(rope->root, rope->name, "type", "default", &type));
    LS_TRY(ls_json_get_string(rope->root, rope->name, "rope_type", type, &type));
    scaling->kind = LS_ROPE_NONE;
    scaling->factor = 1.0;
    if (strcmp(type, "default") == 0) {
        return LS_OK;
    }
    if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: rope_type is \"%s\"; supported are \"default\", \"linear\" and \"llama3\"",
                       rope->name, type);
    }
    if (!json_is_number(json_object_get(rope->root, "factor"))) {
        return ls_fail(LS_ERR_DATA, "%s: rope_type %s needs the number factor", rope->name, type);
    }
    LS_TRY(get_real(rope, "factor", 1.0, &scaling->factor));
    if (strcmp(type, "linear") == 0) {
        scaling->kind = LS_ROPE_LINEAR;
        return LS_OK;
    }
    scaling->kind = LS_ROPE_LLAMA3;
    return read_llama3(rope, r, context, scaling);
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
    const char *key = "rope_scaling"; /* where both exist transformers takes this one */
    const json_t *object = json_object_get(r->root, key);
    if (!object || json_is_null(object)) {
        key = "rope_parameters";
        object = json_object_get(r->root, key);
    }
    LS_TRY(get_real(r, "rope_theta", 10000.0, &config->rope_theta));
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
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "%s: %s has its own numbers for \"%s\"; one set for all layers is supported",
                           r->name, key, member);
        }
    }
    const reader rope = {object, r->name};
    LS_TRY(get_real(&rope, "rope_theta", config->rope_theta, &config->rope_theta));
    LS_TRY(require_whole_heads(&rope));
    return read_scaling(&rope, r, config->context, &config->rope_scaling);
}

/* ---- sliding windows ---- */

/* layer_types: full attention below some layer, sliding from it on. */
static ls_status read_layer_types(const reader *r, const json_t *types, ls_model_config *config)
{
    if (!json_is_array(types) || (int64_t)json_array_size(types) != config->layers) {
        return ls_fail(LS_ERR_DATA, "%s: layer_types must be a list with one text per layer (%lld)", r->name,
                       (long long)config->layers);
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
                       "%s: layer_types[%lld] is sliding_attention, but there is no sliding_window", r->name,
                       (long long)first);
    }
    config->window_first_layer = first;
    return LS_OK;
}

static ls_status read_window(const reader *r, ls_model_config *config)
{
    if (config->family == LS_FAMILY_GPT2 || config->family == LS_FAMILY_LLAMA) {
        return LS_OK; /* their classes know no window */
    }
    const bool mistral = config->family == LS_FAMILY_MISTRAL;
    const json_t *member = json_object_get(r->root, "sliding_window");
    bool uses = mistral;
    if (!mistral) {
        LS_TRY(ls_json_get_bool(r->root, r->name, "use_sliding_window", false, &uses));
    }
    if (uses && !(member && json_is_null(member))) {
        LS_TRY(get_count(r, "sliding_window", 4096, &config->window));
    }
    uint64_t first = 0;
    if (!mistral) {
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
    if (mistral && config->window_first_layer != 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: layer_types mixes full and sliding attention, which mistral does not do",
                       r->name);
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
        return ls_fail(LS_ERR_DATA, "%s: n_head %lld does not divide n_embd %lld", r->name,
                       (long long)config->heads, (long long)config->width);
    }
    config->kv_heads = config->heads;
    config->head_dim = config->width / config->heads;
    return LS_OK;
}

static ls_status read_biases(const reader *r, ls_model_config *config)
{
    const ls_family family = config->family;
    if (family == LS_FAMILY_LLAMA || family == LS_FAMILY_QWEN3) {
        LS_TRY(ls_json_get_bool(r->root, r->name, "attention_bias", false, &config->qkv_bias));
        config->output_bias = config->qkv_bias;
    } else if (family == LS_FAMILY_MISTRAL) {
        LS_TRY(require_bool(r, "attention_bias", false));
    }
    if (family == LS_FAMILY_LLAMA) {
        return ls_json_get_bool(r->root, r->name, "mlp_bias", false, &config->mlp_bias);
    }
    return require_bool(r, "mlp_bias", false);
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
    LS_TRY(read_rope(r, config));
    return read_window(r, config);
}

static ls_status read_family(const reader *r, ls_family *family_out)
{
    const char *type = NULL;
    LS_TRY(ls_json_get_string(r->root, r->name, "model_type", NULL, &type));
    if (!type) {
        return ls_fail(LS_ERR_DATA, "%s: model_type is missing; it says what kind of model this is", r->name);
    }
    if (ls_family_parse(type, family_out) != LS_OK) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: model_type is \"%s\"; supported are gpt2, llama, mistral, qwen2 and qwen3",
                       r->name, type);
    }
    return LS_OK;
}

static ls_status read_config(const reader *r, ls_model_config *config)
{
    ls_family family;
    LS_TRY(read_family(r, &family));
    const json_t *quantization = json_object_get(r->root, "quantization_config");
    if (quantization && !json_is_null(quantization)) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: quantization_config is set; only float weights are supported",
                       r->name);
    }
    const family_defaults *d = &defaults_of[family];
    ls_model_config_defaults(family, config);
    LS_TRY(get_count(r, "vocab_size", d->vocab, &config->vocab));
    LS_TRY(get_real(r, "initializer_range", 0.02, &config->init_std));
    LS_TRY(
        ls_json_get_bool(r->root, r->name, "tie_word_embeddings", family == LS_FAMILY_GPT2, &config->tied));
    LS_TRY(get_token_id(r, "bos_token_id", d->bos_id, config->vocab, &config->bos_id));
    LS_TRY(get_token_id(r, "eos_token_id", d->eos_id, config->vocab, &config->eos_id));
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

ls_status ls_hf_config_load(const char *path, ls_model_config *config_out)
{
    ls_arena arena = {0};
    char *text = NULL;
    size_t bytes = 0;
    const char *file = ls_path_is_dir(path) ? ls_path_join(&arena, path, "config.json") : path;
    ls_status status = ls_file_read(&arena, file, CONFIG_BYTES_MAX, &text, &bytes);
    if (status == LS_OK) {
        status = ls_hf_config_parse(text, bytes, file, config_out);
    }
    ls_arena_release(&arena);
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

static json_t *rope_scaling_json(const ls_rope_scaling *scaling)
{
    if (scaling->kind == LS_ROPE_NONE) {
        return json_null();
    }
    json_t *object = json_object();
    set(object, "rope_type", json_string(scaling->kind == LS_ROPE_LINEAR ? "linear" : "llama3"));
    set(object, "factor", json_real(scaling->factor));
    if (scaling->kind == LS_ROPE_LLAMA3) {
        set(object, "low_freq_factor", json_real(scaling->low_freq_factor));
        set(object, "high_freq_factor", json_real(scaling->high_freq_factor));
        set(object, "original_max_position_embeddings", json_integer(scaling->original_context));
    }
    return object;
}

static void write_window(const ls_model_config *c, json_t *object)
{
    if (c->family == LS_FAMILY_LLAMA) {
        return;
    }
    if (c->family != LS_FAMILY_MISTRAL) {
        set(object, "use_sliding_window", json_boolean(c->window > 0));
        set(object, "max_window_layers", json_integer(c->window > 0 ? c->window_first_layer : c->layers));
    }
    set(object, "sliding_window", c->window > 0 ? json_integer(c->window) : json_null());
}

static void write_llama_like(const ls_model_config *c, json_t *object)
{
    set(object, "hidden_size", json_integer(c->width));
    set(object, "intermediate_size", json_integer(c->ffn));
    set(object, "num_hidden_layers", json_integer(c->layers));
    set(object, "num_attention_heads", json_integer(c->heads));
    set(object, "num_key_value_heads", json_integer(c->kv_heads));
    set(object, "head_dim", json_integer(c->head_dim));
    set(object, "max_position_embeddings", json_integer(c->context));
    set(object, "hidden_act", json_string("silu"));
    set(object, "rms_norm_eps", json_real(c->norm_eps));
    if (c->family == LS_FAMILY_LLAMA || c->family == LS_FAMILY_QWEN3) {
        set(object, "attention_bias", json_boolean(c->qkv_bias));
    }
    if (c->family == LS_FAMILY_LLAMA) {
        set(object, "mlp_bias", json_boolean(c->mlp_bias));
    }
    set(object, "attention_dropout", json_real(0.0));
    set(object, "rope_theta", json_real(c->rope_theta));
    set(object, "rope_scaling", rope_scaling_json(&c->rope_scaling));
    write_window(c, object);
}

json_t *ls_hf_config_json(const ls_model_config *config)
{
    static const char *const architectures[LS_FAMILY_COUNT] = {
        "GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"};
    json_t *object = json_object();
    json_t *architecture = json_array();
    json_array_append_new(architecture, json_string(architectures[config->family]));
    set(object, "architectures", architecture);
    set(object, "model_type", json_string(ls_family_name(config->family)));
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
    set(object, "eos_token_id", token_id(config->eos_id));
    return object;
}
