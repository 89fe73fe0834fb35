// SPDX-License-Identifier: Apache-2.0
/* What people write for a model: a preset, a config.json, a run file, or sizes. */
#include "base/file.h"
#include "base/text.h"
#include "config/names.h"
#include "config/run_file.h"
#include "model/huggingface.h"
#include "planning/model/shape_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20, WORD_MAX = 64 };

/* ---- sizes: "layers=96,hidden=12288,..." ---- */

/* Every number is one of these; -1: not given. */
typedef struct given {
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq, tied, gelu;
    int64_t experts, active, expert_ffn, shared, dense_layers;
    double dropout;
} given;

typedef struct size_key {
    const char *key, *synonym;
    size_t offset;
    int64_t min, max;
} size_key;

static const size_key size_keys[] = {
    {"layers", "num_layers", offsetof(given, layers), 1, 1024},
    {"hidden", "width", offsetof(given, hidden), 1, 1 << 18},
    {"heads", "attention_heads", offsetof(given, heads), 1, 1024},
    {"kv_heads", "kv", offsetof(given, kv_heads), 1, 1024},
    {"head_dim", "head", offsetof(given, head_dim), 1, 1024},
    {"ffn", "intermediate", offsetof(given, ffn), 1, 1 << 20},
    {"vocab", "vocabulary", offsetof(given, vocab), 1, 1 << 24},
    {"seq", "context", offsetof(given, seq), 1, 1 << 24},
    {"tied", "tie_embeddings", offsetof(given, tied), 0, 1},
    {"experts", "num_experts", offsetof(given, experts), 0, 4096},
    {"experts", "num_local_experts", offsetof(given, experts), 0, 4096},
    {"experts", "n_routed_experts", offsetof(given, experts), 0, 4096},
    {"active", "top_k", offsetof(given, active), 1, 4096},
    {"active", "topk", offsetof(given, active), 1, 4096},
    {"active", "active_experts", offsetof(given, active), 1, 4096},
    {"active", "experts_per_token", offsetof(given, active), 1, 4096},
    {"active", "num_experts_per_tok", offsetof(given, active), 1, 4096},
    {"expert_ffn", "moe_ffn", offsetof(given, expert_ffn), 1, 1 << 20},
    {"expert_ffn", "moe_intermediate_size", offsetof(given, expert_ffn), 1, 1 << 20},
    {"shared", "shared_experts", offsetof(given, shared), 0, 64},
    {"shared", "n_shared_experts", offsetof(given, shared), 0, 64},
    {"dense_layers", "first_dense", offsetof(given, dense_layers), 0, 1023},
};

enum { SIZE_KEY_COUNT = sizeof size_keys / sizeof *size_keys };

static ls_status refuse_key(const char *key)
{
    ls_names near;
    ls_names_begin(&near, key);
    for (size_t i = 0; i < SIZE_KEY_COUNT; i++) {
        ls_names_offer(&near, size_keys[i].key, size_keys[i].key);
        ls_names_offer(&near, size_keys[i].key, size_keys[i].synonym);
    }
    ls_names_offer(&near, "mlp", "mlp");
    ls_names_offer(&near, "dropout", "dropout");
    return ls_fail(LS_ERR_INVALID, "model: unknown size \"%s\"; nearest: %s", key, ls_names_list(&near));
}

static ls_status take_number(const size_key *key, const char *value, given *g)
{
    char *end;
    const double number = strtod(value, &end);
    if (!value[0] || *end || number != floor(number) || number < (double)key->min ||
        number > (double)key->max) {
        return ls_fail(LS_ERR_INVALID, "model: %s is \"%s\", a whole number from %lld to %lld is needed",
                       key->key, value, (long long)key->min, (long long)key->max);
    }
    *(int64_t *)((char *)g + key->offset) = (int64_t)number;
    return LS_OK;
}

static ls_status take_word(const char *key, const char *value, given *g)
{
    if (strcmp(key, "mlp") == 0) {
        const bool gelu =
            strcmp(value, "gelu") == 0 || strcmp(value, "relu") == 0 || strcmp(value, "relu2") == 0;
        if (!gelu && strcmp(value, "swiglu") != 0 && strcmp(value, "geglu") != 0) {
            return ls_fail(LS_ERR_INVALID,
                           "model: mlp is \"%s\"; allowed are gelu (two matrices; relu and relu2 count the "
                           "same) and swiglu (three; also geglu)",
                           value);
        }
        g->gelu = gelu;
        return LS_OK;
    }
    if (strcmp(key, "dropout") == 0) {
        char *end;
        g->dropout = strtod(value, &end);
        if (!value[0] || *end || !(g->dropout >= 0.0 && g->dropout < 1.0)) {
            return ls_fail(LS_ERR_INVALID, "model: dropout is \"%s\", a number from 0 to below 1 is needed",
                           value);
        }
        return LS_OK;
    }
    for (size_t i = 0; i < SIZE_KEY_COUNT; i++) {
        if (strcmp(key, size_keys[i].key) == 0 || strcmp(key, size_keys[i].synonym) == 0) {
            return take_number(&size_keys[i], value, g);
        }
    }
    return refuse_key(key);
}

static ls_status read_words(const char *text, given *g)
{
    *g = (given){0};
    for (size_t i = 0; i < SIZE_KEY_COUNT; i++) {
        *(int64_t *)((char *)g + size_keys[i].offset) = -1;
    }
    g->gelu = -1;
    g->dropout = -1.0;
    while (*text) {
        const size_t bytes = strcspn(text, ",");
        char word[WORD_MAX];
        if (bytes >= sizeof word) {
            return ls_fail(LS_ERR_INVALID, "model: \"%.40s...\" is too long for key=value", text);
        }
        memcpy(word, text, bytes);
        word[bytes] = 0;
        char *equals = strchr(word, '=');
        if (!equals) {
            return ls_fail(
                LS_ERR_INVALID,
                "model: \"%s\" is not of the form key=value; example: layers=32,hidden=4096,heads=32", word);
        }
        *equals = 0;
        LS_TRY(take_word(ls_text_trim(word), ls_text_trim(equals + 1), g));
        text += bytes + (text[bytes] == ',');
    }
    return LS_OK;
}

static int64_t or_else(int64_t value, int64_t otherwise)
{
    return value >= 0 ? value : otherwise;
}

static ls_status need(const char *key, int64_t value)
{
    if (value < 0) {
        return ls_fail(LS_ERR_INVALID,
                       "model: %s is missing; layers, hidden and heads are required, for example "
                       "layers=32,hidden=4096,heads=32",
                       key);
    }
    return LS_OK;
}

static ls_status fill_in(given *g)
{
    LS_TRY(need("layers", g->layers));
    LS_TRY(need("hidden", g->hidden));
    LS_TRY(need("heads", g->heads));
    g->kv_heads = or_else(g->kv_heads, g->heads);
    if (g->head_dim < 0 && g->hidden % g->heads != 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "model: heads %lld does not divide hidden %lld; give head_dim, or heads that divide it",
            (long long)g->heads, (long long)g->hidden);
    }
    g->head_dim = or_else(g->head_dim, g->hidden / g->heads);
    if (g->gelu < 0) {
        g->gelu = g->kv_heads == g->heads && g->ffn == 4 * g->hidden;
    }
    if (g->ffn < 0 && g->experts > 0) {
        g->ffn = g->expert_ffn;
    }
    g->ffn = or_else(g->ffn, g->gelu ? 4 * g->hidden : (8 * g->hidden / 3 + 63) / 64 * 64);
    g->vocab = or_else(g->vocab, g->gelu ? 50257 : 32000);
    g->seq = or_else(g->seq, 2048);
    g->tied = or_else(g->tied, g->gelu);
    if (g->dropout < 0.0) {
        g->dropout = g->gelu && g->kv_heads == g->heads ? 0.1 : 0.0; /* as GPTs were trained */
    }
    if (g->experts > 0) {
        g->active = or_else(g->active, g->experts < 2 ? 1 : 2);
        g->expert_ffn = or_else(g->expert_ffn, g->ffn);
    }
    return LS_OK;
}

static ls_shape_sizes sizes_of(const given *g)
{
    /* GPT-2's family when it is one: learned positions, biases, norms with bias. */
    const bool gpt = g->gelu == 1 && g->kv_heads == g->heads && g->heads * g->head_dim == g->hidden;
    ls_shape_sizes sizes = {.dropout = g->dropout};
    ls_model_config *c = &sizes.config;
    ls_model_config_defaults(gpt ? LS_FAMILY_GPT2 : LS_FAMILY_LLAMA, c);
    if (!gpt && g->hidden % g->heads != 0) {
        ls_model_config_defaults(LS_FAMILY_MISTRAL, c); /* llama's heads divide its width */
    }
    c->swiglu = g->gelu != 1;
    c->layers = g->layers;
    c->width = g->hidden;
    c->heads = g->heads;
    c->kv_heads = g->kv_heads;
    c->head_dim = g->head_dim;
    c->ffn = g->ffn;
    c->vocab = g->vocab;
    c->context = g->seq;
    c->tied = g->tied == 1;
    sizes.moe = (ls_shape_moe){
        .experts = or_else(g->experts, 0),
        .active = or_else(g->active, 0),
        .shared = or_else(g->shared, 0),
        .ffn = or_else(g->expert_ffn, 0),
        .dense_layers = or_else(g->dense_layers, 0),
    };
    return sizes;
}

/* Every default is filled in, so that readers of the plan see them. */
static const char *name_of(ls_arena *arena, const given *g)
{
    const char *dense = ls_arena_printf(arena,
                                        "layers=%lld,hidden=%lld,heads=%lld,kv_heads=%lld,head_dim=%lld,ffn=%"
                                        "lld,vocab=%lld,mlp=%s,seq=%lld,tied=%lld",
                                        (long long)g->layers, (long long)g->hidden, (long long)g->heads,
                                        (long long)g->kv_heads, (long long)g->head_dim, (long long)g->ffn,
                                        (long long)g->vocab, g->gelu ? "gelu" : "swiglu", (long long)g->seq,
                                        (long long)g->tied);
    if (g->dropout > 0.0) {
        dense = ls_arena_printf(arena, "%s,dropout=%g", dense, g->dropout);
    }
    if (g->experts <= 0) {
        return dense;
    }
    return ls_arena_printf(arena, "%s,experts=%lld,active=%lld,expert_ffn=%lld,shared=%lld,dense_layers=%lld",
                           dense, (long long)g->experts, (long long)g->active, (long long)g->expert_ffn,
                           (long long)or_else(g->shared, 0), (long long)or_else(g->dense_layers, 0));
}

static ls_status parse_sizes(ls_arena *arena, const char *text, ls_shape *shape_out)
{
    given g;
    LS_TRY(read_words(text, &g));
    LS_TRY(fill_in(&g));
    const ls_shape_sizes sizes = sizes_of(&g);
    return ls_shape_build(arena, name_of(arena, &g), &sizes, shape_out);
}

/* ---- files ---- */

static ls_status parse_config(ls_arena *arena, const char *path, ls_shape *shape_out)
{
    const char *file = ls_path_is_dir(path) ? ls_path_join(arena, path, "config.json") : path;
    char *text;
    size_t bytes;
    LS_TRY(ls_file_read(arena, file, CONFIG_BYTES_MAX, &text, &bytes));
    ls_shape_sizes sizes;
    const char *unknown;
    LS_TRY(ls_shape_read_config(arena, text, bytes, file, &sizes, &unknown));
    const char *name =
        unknown ? ls_arena_printf(arena, "%s (%s, read as a Llama of its sizes)", path, unknown) : path;
    return ls_shape_build(arena, name, &sizes, shape_out);
}

/* The model of model.from, as the run changes it. One that lockstep cannot train is planned as it
 * is. */
static ls_status parse_imported(ls_arena *arena, const char *path, ls_run_file *run, ls_shape *shape_out)
{
    ls_model_config config;
    ls_shape shape;
    if (parse_config(arena, run->model.from, &shape) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s: model.from", path);
    }
    if (ls_hf_config_load(run->model.from, &config) != LS_OK) {
        ls_error_clear();
        *shape_out = shape;
        return LS_OK;
    }
    ls_status status = ls_run_file_adopt_model(run, &config);
    status = status != LS_OK ? status : ls_run_file_adopt_vocab(run, (uint64_t)config.vocab);
    status = status != LS_OK ? status : ls_run_file_change_model(run, &config);
    if (status != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s", path);
    }
    return ls_shape_from_config(arena, run->model.from, &config, shape_out);
}

static ls_status parse_run_file(ls_arena *arena, const char *path, ls_shape *shape_out)
{
    ls_run_file run;
    LS_TRY(ls_run_file_load(path, NULL, 0, arena, &run));
    if (ls_run_file_check_effect(&run) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s", path);
    }
    if (run.model.from[0]) {
        return parse_imported(arena, path, &run, shape_out);
    }
    if (!ls_run_file_adopt_own_vocab(&run)) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s: the vocabulary is defined by the tokenizer %s, which a plan does not open; set model.vocab",
            path, run.tokenizer.file);
    }
    ls_model_config config;
    LS_TRY(ls_run_file_model_config(&run, &config));
    return ls_shape_from_config(arena, path, &config, shape_out);
}

/* ---- all of them ---- */

ls_status ls_shape_parse(ls_arena *arena, const char *text, ls_shape *shape_out)
{
    ls_shape_sizes sizes;
    const char *name;
    if (ls_shape_preset(text, &sizes, &name)) {
        return ls_shape_build(arena, name, &sizes, shape_out);
    }
    if (ls_path_has_suffix(text, ".yaml") || ls_path_has_suffix(text, ".yml")) {
        return parse_run_file(arena, text, shape_out);
    }
    if (ls_path_exists(text) || ls_path_has_suffix(text, ".json")) {
        return parse_config(arena, text, shape_out);
    }
    if (strchr(text, '=')) {
        return parse_sizes(arena, text, shape_out);
    }
    ls_names near;
    ls_names_begin(&near, text);
    for (const char *const *preset = ls_shape_presets(); *preset; preset++) {
        ls_names_offer(&near, *preset, *preset);
    }
    return ls_fail(LS_ERR_NOT_FOUND,
                   "model \"%s\" is unknown; nearest: %s. Or give a config.json, a run file (.yaml), or "
                   "sizes: layers=32,hidden=4096,heads=32",
                   text, ls_names_list(&near));
}
