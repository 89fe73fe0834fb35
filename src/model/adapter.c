// SPDX-License-Identifier: Apache-2.0
#include "model/adapter.h"

#include "base/file.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const ls_base_names[LS_BASE_NF4 + 2] = {"fp32", "bf16", "int8", "nf4", NULL};

enum { WEIGHT_BYTES = sizeof ".weight" - 1 };

float ls_adapter_scale(const ls_adapter *adapter)
{
    const double rank = (double)adapter->rank;
    return (float)(adapter->alpha / (adapter->rslora ? sqrt(rank) : rank));
}

/* ---- names ---- */

/* The name of the linear layer: its tensor's without ".weight". */
static const char *module_of(ls_arena *arena, const char *weight)
{
    return ls_arena_strndup(arena, weight, strlen(weight) - WEIGHT_BYTES);
}

const char *ls_adapter_name(ls_arena *arena, const char *weight, char part)
{
    return ls_arena_printf(arena, LS_ADAPTER_PREFIX "%s.lora_%c.weight", module_of(arena, weight), part);
}

/* Whether `part` is in `name` from one dot, or end, to another. */
static bool is_part(const char *name, const char *part)
{
    const size_t bytes = strlen(part);
    for (const char *at = strstr(name, part); at && bytes > 0; at = strstr(at + 1, part)) {
        if ((at == name || at[-1] == '.') && (at[bytes] == '.' || at[bytes] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool target_matches(const char *target, const char *module)
{
    enum { TEXT = 512 };
    static const char *const forms[] = {"%s", "*.%s", "%s.*", "*.%s.*"};
    if (!strpbrk(target, "*?[")) {
        return strcmp(target, "all-linear") == 0 || is_part(module, target);
    }
    bool matches = false;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !matches; i++) {
        char pattern[TEXT];
        snprintf(pattern, sizeof pattern, forms[i], target);
        matches = fnmatch(pattern, module, 0) == 0;
    }
    return matches;
}

bool ls_adapter_wants(const ls_adapter *adapter, const char *weight)
{
    ls_arena arena = {0};
    const char *module = module_of(&arena, weight);
    bool wanted = adapter->target_count == 0;
    for (size_t i = 0; i < adapter->target_count && !wanted; i++) {
        wanted = target_matches(adapter->targets[i], module);
    }
    ls_arena_release(&arena);
    return wanted;
}

/* ---- adapter_config.json ---- */

json_t *ls_adapter_config_json(const ls_adapter *adapter, const ls_model_config *config, const char *base,
                               const char *const *targets, size_t target_count)
{
    json_t *modules = json_array();
    for (size_t i = 0; i < target_count; i++) {
        json_array_append_new(modules, json_string(targets[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:b, s:b, s:s, s:i, s:f, s:f, s:b, s:b, s:o, s:n}", "peft_type", "LORA",
                     "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "inference_mode", 1,
                     "fan_in_fan_out", config->family == LS_FAMILY_GPT2, "bias", "none", "r",
                     (int)adapter->rank, "lora_alpha", adapter->alpha, "lora_dropout", adapter->dropout,
                     "use_rslora", adapter->rslora, "use_dora", 0, "target_modules", modules,
                     "modules_to_save");
}

/* Keys of PEFT that change what an adapter computes, and that are not supported unless they are
 * absent, null, false, empty or a word after them. */
static const struct {
    const char *key, *allowed[3];
} plain_only[] = {
    {"peft_type", {"LORA"}},
    {"bias", {"none"}},
    {"use_dora", {NULL}},
    {"use_qalora", {NULL}},
    {"rank_pattern", {NULL}},
    {"alpha_pattern", {NULL}},
    {"modules_to_save", {NULL}},
    {"layer_replication", {NULL}},
    {"megatron_config", {NULL}},
    {"trainable_token_indices", {NULL}},
    {"target_parameters", {NULL}},
    {"lora_bias", {NULL}},
    {"alora_invocation_tokens", {NULL}},
    /* With any other value (pissa, olora, corda, loftq, ...) PEFT changes the base's weights when
     * it begins or loads an adapter, so that the adapter belongs to weights that no file has. */
    {"init_lora_weights", {"gaussian", "eva", "orthogonal"}},
};

static bool is_plain(const json_t *value, size_t row)
{
    bool is_allowed = !value || json_is_null(value) || json_is_false(value) ||
                      (json_is_array(value) && json_array_size(value) == 0) ||
                      (json_is_object(value) && json_object_size(value) == 0);
    for (size_t i = 0; i < 3 && plain_only[row].allowed[i] && !is_allowed; i++) {
        is_allowed =
            json_is_string(value) && strcmp(json_string_value(value), plain_only[row].allowed[i]) == 0;
    }
    return is_allowed;
}

static ls_status check_plain(const json_t *root, const char *name)
{
    for (size_t i = 0; i < sizeof plain_only / sizeof *plain_only; i++) {
        const json_t *value = json_object_get(root, plain_only[i].key);
        const bool is_init = strcmp(plain_only[i].key, "init_lora_weights") == 0;
        if (is_plain(value, i) || (is_init && json_is_true(value))) {
            continue;
        }
        const char *const *allowed = plain_only[i].allowed;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        const ls_status status = ls_fail(
            LS_ERR_UNSUPPORTED,
            "%s: %s is %.100s%s, but lockstep can use only LoRA adapters in which it is %s; %smerge this one "
            "into its base model with the PEFT library (merge_and_unload)",
            name, plain_only[i].key, text ? text : "?",
            is_init ? ", with which PEFT changes the weights of the base model too" : "",
            is_init      ? "true, false, \"gaussian\", \"eva\", \"orthogonal\" or absent"
            : allowed[0] ? allowed[0]
                         : "empty, false or absent",
            is_init ? "save it with PEFT's path_initial_model_for_weight_conversion, or " : "");
        free(text);
        return status;
    }
    return LS_OK;
}

static ls_status read_numbers(const json_t *root, const char *name, ls_adapter *adapter)
{
    uint64_t rank = 0;
    LS_TRY(ls_json_get_u64(root, name, "r", 1, LS_ADAPTER_RANK_MAX, 8, &rank));
    adapter->rank = (uint32_t)rank;
    LS_TRY(ls_json_get_f64(root, name, "lora_alpha", 1e-6, 1e6, 8.0, &adapter->alpha));
    LS_TRY(ls_json_get_f64(root, name, "lora_dropout", 0.0, 1.0, 0.0, &adapter->dropout));
    return ls_json_get_bool(root, name, "use_rslora", false, &adapter->rslora);
}

static ls_status read_config(ls_arena *arena, const json_t *root, const char *name, ls_adapter *adapter,
                             const char **base_out)
{
    if (!json_is_object(root)) {
        return ls_fail(LS_ERR_DATA, "%s: must be a JSON object, as the library peft writes it", name);
    }
    LS_TRY(check_plain(root, name));
    LS_TRY(read_numbers(root, name, adapter));
    const char *base = "";
    if (!json_is_null(json_object_get(root, "base_model_name_or_path"))) {
        LS_TRY(ls_json_get_string(root, name, "base_model_name_or_path", "", &base));
    }
    *base_out = ls_arena_strdup(arena, base);
    return LS_OK;
}

ls_status ls_adapter_config_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                  ls_adapter *adapter_out, const char **base_out)
{
    json_t *root = NULL;
    ls_adapter adapter = {0};
    LS_TRY(ls_json_parse(text, bytes, name, &root));
    const ls_status status = read_config(arena, root, name, &adapter, base_out);
    json_decref(root);
    LS_TRY(status);
    *adapter_out = adapter;
    return LS_OK;
}
