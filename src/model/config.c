// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include "base/assert.h"

#include <math.h>
#include <string.h>

static const char *const family_names[LS_FAMILY_COUNT] = {
    [LS_FAMILY_GPT2] = "gpt2",           [LS_FAMILY_LLAMA] = "llama", [LS_FAMILY_MISTRAL] = "mistral",
    [LS_FAMILY_QWEN2] = "qwen2",         [LS_FAMILY_QWEN3] = "qwen3", [LS_FAMILY_MIXTRAL] = "mixtral",
    [LS_FAMILY_QWEN3_MOE] = "qwen3-moe",
};

const char *ls_family_name(ls_family family)
{
    LS_ASSERT(family < LS_FAMILY_COUNT);
    return family_names[family];
}

const char *ls_family_model_type(ls_family family)
{
    return family == LS_FAMILY_QWEN3_MOE ? "qwen3_moe" : ls_family_name(family);
}

ls_status ls_family_of_model_type(const char *type, ls_family *family_out)
{
    for (int i = 0; i < LS_FAMILY_COUNT; i++) {
        if (strcmp(type, ls_family_model_type((ls_family)i)) == 0) {
            *family_out = (ls_family)i;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_INVALID,
                   "model_type is \"%s\"; supported are gpt2, llama, mistral, qwen2, qwen3, mixtral and "
                   "qwen3_moe",
                   type);
}

bool ls_family_has_window(ls_family family)
{
    return family != LS_FAMILY_GPT2 && family != LS_FAMILY_LLAMA;
}

bool ls_family_has_experts(ls_family family)
{
    return family == LS_FAMILY_MIXTRAL || family == LS_FAMILY_QWEN3_MOE;
}

static bool has_qk_norm(ls_family family)
{
    return family == LS_FAMILY_QWEN3 || family == LS_FAMILY_QWEN3_MOE;
}

const char *ls_rope_scaling_name(ls_rope_scaling_kind kind)
{
    static const char *const names[LS_ROPE_COUNT] = {
        [LS_ROPE_NONE] = "default",    [LS_ROPE_LINEAR] = "linear", [LS_ROPE_LLAMA3] = "llama3",
        [LS_ROPE_DYNAMIC] = "dynamic", [LS_ROPE_YARN] = "yarn",
    };
    LS_ASSERT(kind < LS_ROPE_COUNT);
    return names[kind];
}

void ls_model_config_defaults(ls_family family, ls_model_config *config_out)
{
    LS_ASSERT(family < LS_FAMILY_COUNT);
    const bool gpt2 = family == LS_FAMILY_GPT2;
    const bool qwen = family == LS_FAMILY_QWEN2 || has_qk_norm(family);
    *config_out = (ls_model_config){
        .family = family,
        .rms_norm = !gpt2,
        .norm_eps = qwen ? 1e-6 : 1e-5,
        .swiglu = !gpt2,
        .rotary = !gpt2,
        .rope_theta = qwen || family == LS_FAMILY_MIXTRAL ? 1e6 : 1e4,
        .rope_scaling = {.kind = LS_ROPE_NONE, .factor = 1.0},
        .qkv_bias = gpt2 || family == LS_FAMILY_QWEN2,
        .output_bias = gpt2,
        .mlp_bias = gpt2,
        .qk_norm = has_qk_norm(family),
        .normalise_experts = ls_family_has_experts(family),
        .tied = gpt2,
        .init_std = 0.02,
        .bos_id = -1,
        .eos_id = -1,
        .pad_id = -1,
    };
}

ls_status ls_model_config_add_eos(ls_model_config *config, int64_t id)
{
    if (config->eos_id < 0 || config->eos_id == id) {
        config->eos_id = id;
        return LS_OK;
    }
    for (int64_t i = 0; i < config->more_eos_count; i++) {
        if (config->more_eos[i] == id) {
            return LS_OK;
        }
    }
    if (config->more_eos_count == LS_MORE_EOS_MAX) {
        return ls_fail(LS_ERR_UNSUPPORTED, "eos_token_id lists too many ids; at most %d are supported",
                       LS_MORE_EOS_MAX + 1);
    }
    config->more_eos[config->more_eos_count++] = id;
    return LS_OK;
}

size_t ls_model_config_eos(const ls_model_config *config, int32_t ids_out[LS_MORE_EOS_MAX + 1])
{
    size_t count = 0;
    if (config->eos_id >= 0) {
        ids_out[count++] = (int32_t)config->eos_id;
    }
    for (int64_t i = 0; i < config->more_eos_count; i++) {
        ids_out[count++] = (int32_t)config->more_eos[i];
    }
    return count;
}

/* ---- checks ---- */

static ls_status check_range(const char *field, int64_t value, int64_t min, int64_t max)
{
    if (value < min || value > max) {
        return ls_fail(LS_ERR_INVALID, "model: %s is %lld, allowed is %lld to %lld", field, (long long)value,
                       (long long)min, (long long)max);
    }
    return LS_OK;
}

static ls_status check_real(const char *field, double value, double min, double max)
{
    if (!isfinite(value) || value < min || value > max) {
        return ls_fail(LS_ERR_INVALID, "model: %s is %g, allowed is %g to %g", field, value, min, max);
    }
    return LS_OK;
}

/* A switch that the family fixes, because its files have no tensor (or no room) for the other
 * setting. */
static ls_status check_fixed(const ls_model_config *config, const char *field, bool value, bool required)
{
    if (value != required) {
        return ls_fail(LS_ERR_INVALID, "model: %s is %s, but for the family %s it must be %s", field,
                       value ? "true" : "false", ls_family_name(config->family), required ? "true" : "false");
    }
    return LS_OK;
}

static ls_status check_sizes(const ls_model_config *config)
{
    LS_TRY(check_range("layers", config->layers, 1, 1024));
    LS_TRY(check_range("heads", config->heads, 1, 1024));
    LS_TRY(check_range("kv_heads", config->kv_heads, 1, config->heads));
    LS_TRY(check_range("head_dim", config->head_dim, 1, 1024));
    LS_TRY(check_range("width", config->width, 1, 1 << 18));
    LS_TRY(check_range("ffn", config->ffn, 1, 1 << 20));
    LS_TRY(check_range("context", config->context, 1, 1 << 24));
    LS_TRY(check_range("vocab", config->vocab, 1, 1 << 24));
    if (config->heads % config->kv_heads != 0) {
        return ls_fail(LS_ERR_INVALID, "model: kv_heads is %lld, but heads, %lld, must be a multiple of it",
                       (long long)config->kv_heads, (long long)config->heads);
    }
    if (config->rotary && config->head_dim % 2 != 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "model: head_dim is %lld; it must be even, because rotary positions rotate pairs of values",
            (long long)config->head_dim);
    }
    LS_TRY(check_real("norm_eps", config->norm_eps, 1e-12, 1.0));
    return check_real("init_std", config->init_std, 0.0, 10.0);
}

static ls_status check_ids(const ls_model_config *config)
{
    LS_TRY(check_range("bos_id", config->bos_id, -1, config->vocab - 1));
    LS_TRY(check_range("eos_id", config->eos_id, -1, config->vocab - 1));
    LS_TRY(check_range("pad_id", config->pad_id, -1, config->vocab - 1));
    LS_TRY(check_range("number of further eos ids", config->more_eos_count, 0,
                       config->eos_id >= 0 ? LS_MORE_EOS_MAX : 0));
    for (int64_t i = 0; i < config->more_eos_count; i++) {
        LS_TRY(check_range("eos_id", config->more_eos[i], 0, config->vocab - 1));
    }
    return LS_OK;
}

/* The numbers of one kind of rotary scaling. */
static ls_status check_llama3(const ls_rope_scaling *scaling)
{
    LS_TRY(check_real("rope_scaling.low_freq_factor", scaling->low_freq_factor, 1e-3, 1e6));
    LS_TRY(check_real("rope_scaling.high_freq_factor", scaling->high_freq_factor, 1e-3, 1e6));
    if (scaling->high_freq_factor <= scaling->low_freq_factor) {
        return ls_fail(
            LS_ERR_INVALID,
            "model: rope_scaling.high_freq_factor is %g, it must be larger than low_freq_factor %g",
            scaling->high_freq_factor, scaling->low_freq_factor);
    }
    return LS_OK;
}

static ls_status check_yarn(const ls_model_config *config)
{
    const ls_rope_scaling *scaling = &config->rope_scaling;
    LS_TRY(check_real("rope_theta (with yarn)", config->rope_theta, 1.001, 1e12));
    LS_TRY(check_real("rope_scaling.beta_fast", scaling->beta_fast, 1e-3, 1e6));
    LS_TRY(check_real("rope_scaling.beta_slow", scaling->beta_slow, 1e-3, 1e6));
    return check_real("rope_scaling.attention_factor", scaling->attention_factor, 1e-3, 1e3);
}

static ls_status check_rope(const ls_model_config *config)
{
    const ls_rope_scaling *scaling = &config->rope_scaling;
    if (!config->rotary) {
        return LS_OK;
    }
    LS_TRY(check_real("rope_theta", config->rope_theta, 1.0, 1e12));
    if (scaling->kind == LS_ROPE_NONE) {
        return LS_OK;
    }
    LS_TRY(check_real("rope_scaling.factor", scaling->factor, 1e-3, 1e6));
    if (scaling->kind == LS_ROPE_LINEAR) {
        return LS_OK;
    }
    LS_TRY(
        check_range("rope_scaling.original_max_position_embeddings", scaling->original_context, 1, 1 << 24));
    switch (scaling->kind) {
    case LS_ROPE_LLAMA3:
        return check_llama3(scaling);
    case LS_ROPE_YARN:
        return check_yarn(config);
    case LS_ROPE_DYNAMIC:
        LS_TRY(check_range("head_dim (with dynamic rotary scaling)", config->head_dim, 4, 1024));
        return check_real("rope_scaling.factor (dynamic)", scaling->factor, 1.0, 1e6);
    case LS_ROPE_NONE:
    case LS_ROPE_LINEAR:
    case LS_ROPE_COUNT:
        break;
    }
    return LS_OK;
}

static ls_status check_window(const ls_model_config *config)
{
    const bool some_layers = config->family == LS_FAMILY_QWEN2 || config->family == LS_FAMILY_QWEN3;
    LS_TRY(check_range("window", config->window, 0, ls_family_has_window(config->family) ? 1 << 24 : 0));
    return check_range("window_first_layer", config->window_first_layer, 0,
                       some_layers && config->window > 0 ? config->layers : 0);
}

static ls_status check_experts(const ls_model_config *config)
{
    const bool mixtral = config->family == LS_FAMILY_MIXTRAL;
    if (!ls_family_has_experts(config->family)) {
        LS_TRY(check_range("experts (only mixtral and qwen3-moe have some)", config->experts, 0, 0));
        LS_TRY(check_range("experts_per_token (without experts)", config->experts_per_token, 0, 0));
        return check_range("expert_ffn (without experts)", config->expert_ffn, 0, 0);
    }
    LS_TRY(check_range("experts", config->experts, 1, 4096));
    LS_TRY(check_range("experts_per_token", config->experts_per_token, 1, config->experts));
    LS_TRY(check_range("expert_ffn", config->expert_ffn, 1, 1 << 20));
    if (mixtral) {
        LS_TRY(check_range("expert_ffn (of mixtral: ffn)", config->expert_ffn, config->ffn, config->ffn));
        return check_fixed(config, "normalise_experts", config->normalise_experts, true);
    }
    return LS_OK;
}

static ls_status check_gpt2(const ls_model_config *config)
{
    LS_TRY(check_fixed(config, "qkv_bias", config->qkv_bias, true));
    LS_TRY(check_fixed(config, "output_bias", config->output_bias, true));
    LS_TRY(check_fixed(config, "mlp_bias", config->mlp_bias, true));
    if (config->kv_heads != config->heads) {
        return ls_fail(LS_ERR_INVALID,
                       "model: kv_heads is %lld, but for the family gpt2 it must be equal to heads, %lld",
                       (long long)config->kv_heads, (long long)config->heads);
    }
    if (config->head_dim * config->heads != config->width) {
        return ls_fail(
            LS_ERR_INVALID,
            "model: heads %lld x head_dim %lld is %lld, but the family gpt2 needs it equal to width %lld",
            (long long)config->heads, (long long)config->head_dim,
            (long long)(config->heads * config->head_dim), (long long)config->width);
    }
    return LS_OK;
}

static ls_status check_family(const ls_model_config *config)
{
    const bool gpt2 = config->family == LS_FAMILY_GPT2;
    LS_TRY(check_fixed(config, "rms_norm", config->rms_norm, !gpt2));
    LS_TRY(check_fixed(config, "swiglu", config->swiglu, !gpt2));
    LS_TRY(check_fixed(config, "rotary", config->rotary, !gpt2));
    LS_TRY(check_fixed(config, "qk_norm", config->qk_norm, has_qk_norm(config->family)));
    if (gpt2) {
        return check_gpt2(config);
    }
    if (config->family != LS_FAMILY_LLAMA) {
        LS_TRY(check_fixed(config, "mlp_bias", config->mlp_bias, false));
    }
    if (config->family == LS_FAMILY_MISTRAL || config->family == LS_FAMILY_MIXTRAL ||
        config->family == LS_FAMILY_QWEN2) {
        LS_TRY(check_fixed(config, "qkv_bias", config->qkv_bias, config->family == LS_FAMILY_QWEN2));
        return check_fixed(config, "output_bias", config->output_bias, false);
    }
    if (config->family == LS_FAMILY_LLAMA && config->width % config->heads != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "model: heads is %lld, but for the family llama width, %lld, must be a multiple of it",
                       (long long)config->heads, (long long)config->width);
    }
    /* The others have one key, attention_bias, for all four projections. */
    return check_fixed(config, "output_bias", config->output_bias, config->qkv_bias);
}

ls_status ls_model_config_check(const ls_model_config *config)
{
    if ((unsigned)config->family >= LS_FAMILY_COUNT) {
        return ls_fail(LS_ERR_INVALID, "model: family number %d is not known", (int)config->family);
    }
    LS_TRY(check_sizes(config));
    LS_TRY(check_ids(config));
    LS_TRY(check_family(config));
    LS_TRY(check_experts(config));
    LS_TRY(check_rope(config));
    return check_window(config);
}

int64_t ls_model_config_mlp_rows(const ls_model_config *config)
{
    return config->experts > 0 ? config->experts_per_token : 1;
}

int64_t ls_model_config_mlp_ffn(const ls_model_config *config)
{
    return config->experts > 0 ? config->expert_ffn : config->ffn;
}

int64_t ls_model_config_window(const ls_model_config *config, int64_t layer)
{
    return layer >= config->window_first_layer ? config->window : 0;
}

/* ---- equality ---- */

static bool scaling_equal(const ls_rope_scaling *a, const ls_rope_scaling *b)
{
    if (a->kind != b->kind) {
        return false;
    }
    /* Numbers that the kind does not use have no meaning. */
    if (a->kind == LS_ROPE_NONE) {
        return true;
    }
    if (a->factor != b->factor || (a->kind != LS_ROPE_LINEAR && a->original_context != b->original_context)) {
        return false;
    }
    if (a->kind == LS_ROPE_LLAMA3) {
        return a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor;
    }
    return a->kind != LS_ROPE_YARN ||
           (a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow &&
            a->attention_factor == b->attention_factor && a->fractional_bounds == b->fractional_bounds);
}

static bool ids_equal(const ls_model_config *a, const ls_model_config *b)
{
    return a->bos_id == b->bos_id && a->eos_id == b->eos_id && a->pad_id == b->pad_id &&
           a->more_eos_count == b->more_eos_count &&
           memcmp(a->more_eos, b->more_eos, (size_t)a->more_eos_count * sizeof *a->more_eos) == 0;
}

static bool experts_equal(const ls_model_config *a, const ls_model_config *b)
{
    return a->experts == b->experts && a->experts_per_token == b->experts_per_token &&
           a->expert_ffn == b->expert_ffn;
}

static bool switches_equal(const ls_model_config *a, const ls_model_config *b)
{
    return a->rms_norm == b->rms_norm && a->swiglu == b->swiglu && a->rotary == b->rotary &&
           a->qkv_bias == b->qkv_bias && a->output_bias == b->output_bias && a->mlp_bias == b->mlp_bias &&
           a->qk_norm == b->qk_norm && a->tied == b->tied && a->normalise_experts == b->normalise_experts;
}

bool ls_model_config_equal(const ls_model_config *a, const ls_model_config *b)
{
    return a->family == b->family && a->layers == b->layers && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->width == b->width &&
           a->ffn == b->ffn && a->context == b->context && a->vocab == b->vocab && experts_equal(a, b) &&
           a->norm_eps == b->norm_eps && a->window == b->window &&
           a->window_first_layer == b->window_first_layer && a->init_std == b->init_std && ids_equal(a, b) &&
           switches_equal(a, b) &&
           (!a->rotary ||
            (a->rope_theta == b->rope_theta && scaling_equal(&a->rope_scaling, &b->rope_scaling)));
}
