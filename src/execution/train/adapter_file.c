// SPDX-License-Identifier: Apache-2.0
#include "execution/train/adapter_file.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "compute/kernels/packed.h"
#include "storage/checkpoint/manifest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_NAME "adapter_model.safetensors"
#define OWN_NAME     "lockstep.json"
static const char A_SUFFIX[] = ".lora_A.weight";

enum { CONFIG_BYTES_MAX = 1 << 20 };

struct ls_adapter_file {
    ls_arena arena;
    const char *path, *base;
    ls_adapter settings;
    ls_base_kind base_kind;
    const char *base_digest;   /* NULL: not known */
    ls_checkpoint *checkpoint; /* one of the two */
    ls_safetensors *tensors;
    ls_layout layout; /* with its base, once it has been given to a model file */
};

/* ---- opening ---- */

/* The linear layers that have an adapter, by the names of their matrices A. */
static void add_target(ls_adapter_file *file, const char **targets, const char *tensor)
{
    const size_t prefix = strlen(LS_ADAPTER_PREFIX), bytes = strlen(tensor);
    if (strncmp(tensor, LS_ADAPTER_PREFIX, prefix) == 0 && ls_path_has_suffix(tensor, A_SUFFIX)) {
        targets[file->settings.target_count++] =
            ls_arena_strndup(&file->arena, tensor + prefix, bytes - prefix - (sizeof A_SUFFIX - 1));
    }
}

static ls_status find_targets(ls_adapter_file *file)
{
    const ls_manifest *manifest = file->checkpoint ? file->checkpoint->manifest : NULL;
    const size_t count = manifest ? manifest->tensor_count : ls_safetensors_count(file->tensors);
    const char **targets = ls_arena_new(&file->arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        if (!manifest) {
            add_target(file, targets, ls_safetensors_at(file->tensors, i)->name);
        } else if (manifest->tensors[i].kind == LS_KIND_VALUE) {
            add_target(file, targets, manifest->tensors[i].name);
        }
    }
    file->settings.targets = targets;
    return file->settings.target_count > 0 ? LS_OK
                                           : ls_fail(LS_ERR_DATA,
                                                     "%s: no tensor has a name of the form " LS_ADAPTER_PREFIX
                                                     "NAME%s; only LoRA adapters can be read",
                                                     file->path, A_SUFFIX);
}

static ls_status read_base_kind(ls_adapter_file *file, const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "base"));
    const char *digest = json_string_value(json_object_get(object, "base_digest"));
    file->base_digest = digest ? ls_arena_strdup(&file->arena, digest) : NULL;
    for (int i = 0; name && i <= LS_BASE_NF4; i++) {
        if (strcmp(name, ls_base_names[i]) == 0) {
            file->base_kind = (ls_base_kind)i;
            return LS_OK;
        }
    }
    return name ? ls_fail(LS_ERR_UNSUPPORTED, "%s: the base of the adapter has the unknown format '%.40s'",
                          file->path, name)
                : LS_OK;
}

static ls_status open_checkpoint(ls_adapter_file *file, char **text_out, size_t *bytes_out)
{
    LS_TRY(ls_checkpoint_open(file->path, &file->checkpoint));
    LS_TRY(ls_checkpoint_attachment_read(file->checkpoint, &file->arena, LS_ADAPTER_CONFIG_NAME, text_out,
                                         bytes_out));
    return read_base_kind(file, file->checkpoint->meta.extra);
}

static ls_status open_directory(ls_adapter_file *file, char **text_out, size_t *bytes_out)
{
    const char *tensors = ls_path_join(&file->arena, file->path, TENSORS_NAME);
    const char *own = ls_path_join(&file->arena, file->path, OWN_NAME);
    if (!ls_path_exists(tensors)) {
        return ls_fail(LS_ERR_NOT_FOUND,
                       "%s has no " TENSORS_NAME ", the weights of an adapter; save it with "
                       "safe_serialization=True, and give the folder that has both files",
                       file->path);
    }
    LS_TRY(ls_safetensors_open(tensors, &file->tensors));
    if (ls_path_exists(own)) {
        json_t *object = NULL;
        LS_TRY(ls_json_load(own, CONFIG_BYTES_MAX, &object));
        const ls_status status = read_base_kind(file, object);
        json_decref(object);
        LS_TRY(status);
    }
    return ls_file_read(&file->arena, ls_path_join(&file->arena, file->path, LS_ADAPTER_CONFIG_NAME),
                        CONFIG_BYTES_MAX, text_out, bytes_out);
}

static ls_status open_into(ls_adapter_file *file, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    file->path = ls_arena_strdup(&file->arena, path);
    const bool is_peft = ls_path_exists(ls_path_join(&file->arena, path, LS_ADAPTER_CONFIG_NAME)) &&
                         !ls_path_exists(ls_path_join(&file->arena, path, LS_MANIFEST_NAME));
    if (is_peft) {
        LS_TRY(open_directory(file, &text, &bytes));
    } else {
        LS_TRY(ls_checkpoint_resolve(&file->arena, path, &file->path));
        const ls_status status = open_checkpoint(file, &text, &bytes);
        if (status == LS_ERR_NOT_FOUND) {
            return ls_fail(LS_ERR_DATA,
                           "%s is not an adapter: neither a directory of PEFT (" LS_ADAPTER_CONFIG_NAME
                           ") nor a checkpoint of a run with adapter.kind: lora",
                           path);
        }
        LS_TRY(status);
    }
    const char *name = ls_path_join(&file->arena, file->path, LS_ADAPTER_CONFIG_NAME);
    LS_TRY(ls_adapter_config_parse(&file->arena, text, bytes, name, &file->settings, &file->base));
    return find_targets(file);
}

ls_status ls_adapter_file_open(const char *path, ls_adapter_file **file_out)
{
    ls_adapter_file *file = calloc(1, sizeof *file);
    if (!file) {
        return ls_fail(LS_ERR_MEMORY, "no memory to open %s", path);
    }
    const ls_status status = open_into(file, path);
    if (status != LS_OK) {
        ls_adapter_file_close(file);
        return status;
    }
    *file_out = file;
    return LS_OK;
}

void ls_adapter_file_close(ls_adapter_file *file)
{
    if (file) {
        ls_checkpoint_close(file->checkpoint);
        ls_safetensors_close(file->tensors);
        ls_arena_release(&file->arena);
        free(file);
    }
}

const char *ls_adapter_file_base(const ls_adapter_file *file)
{
    return file->base;
}

const char *ls_adapter_file_path(const ls_adapter_file *file)
{
    return file->path;
}

const char *ls_adapter_file_digest(const ls_adapter_file *file)
{
    return file->base_digest;
}

const ls_adapter *ls_adapter_file_settings(const ls_adapter_file *file)
{
    return &file->settings;
}

const ls_layout *ls_adapter_file_layout(const ls_adapter_file *file)
{
    return &file->layout;
}

static int64_t packed_bytes(ls_base_kind kind, int64_t out, int64_t in)
{
    static_assert((int)LS_BASE_BF16 == (int)LS_PACKED_BF16 && (int)LS_BASE_NF4 == (int)LS_PACKED_NF4,
                  "the two name the same formats");
    return ls_packed_bytes((ls_packed_kind)kind, out, in);
}

ls_base ls_base_of_kind(ls_base_kind kind)
{
    return (ls_base){.kind = kind, .packed_bytes = packed_bytes};
}

static ls_status give(ls_model_file *file, ls_adapter_file *adapter)
{
    if (file->adapter) {
        return ls_fail(LS_ERR_INVALID,
                       "%s already has an adapter; to use another one, give the model that it is based on",
                       file->path);
    }
    const ls_base base = ls_base_of_kind(adapter->base_kind);
    const ls_status status =
        ls_layout_build_adapter(&file->arena, &file->config, &adapter->settings, &base, &adapter->layout);
    file->layout = adapter->layout;
    return status == LS_OK ? LS_OK
                           : ls_fail(LS_ERR_DATA, "the adapter %s does not fit the base %s: %s",
                                     adapter->path, file->path, ls_error_text());
}

void ls_model_file_merge(ls_model_file *file, bool into_original)
{
    ls_layout_build(&file->arena, &file->config, &file->layout);
    file->merges_original = into_original;
}

ls_status ls_model_file_take_adapter(ls_model_file *file, ls_adapter_file *adapter)
{
    const ls_status status = give(file, adapter);
    if (status != LS_OK) {
        ls_adapter_file_close(adapter);
        return status;
    }
    file->adapter = adapter;
    return LS_OK;
}

/* ---- reading A and B ---- */

static ls_status read_tensor(const ls_adapter_file *file, const ls_parameter *p, float *out)
{
    const ls_safetensor *tensor = ls_safetensors_find(file->tensors, p->name);
    if (!tensor) {
        return ls_fail(LS_ERR_DATA, "%s: tensor %s is missing", file->path, p->name);
    }
    if (tensor->rank != 2 || tensor->shape[0] != (uint64_t)p->rows || tensor->shape[1] != (uint64_t)p->cols) {
        ls_arena arena = {0};
        const ls_status status =
            ls_fail(LS_ERR_DATA,
                    "%s is an adapter of another base: tensor %s has shape %s, and this base needs [%lld, "
                    "%lld]",
                    file->path, p->name, ls_shape_text(&arena, tensor->shape, tensor->rank),
                    (long long)p->rows, (long long)p->cols);
        ls_arena_release(&arena);
        return status;
    }
    return ls_safetensor_to_f32(tensor, out);
}

ls_status ls_adapter_file_read(const ls_adapter_file *file, const ls_layout *layout, float *parameters)
{
    LS_ASSERT(layout->adapter);
    if (file->checkpoint) {
        ls_arena arena = {0};
        const ls_state state = {.layout = layout, .parameters = parameters};
        const ls_checkpoint_tensor *tensors = ls_state_tensors(&arena, &state, NULL);
        const ls_status status =
            ls_checkpoint_load(file->checkpoint, tensors, ls_state_tensor_count(layout), NULL);
        ls_arena_release(&arena);
        return status;
    }
    for (uint32_t i = 0; i < layout->trained_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        LS_TRY(read_tensor(file, p, parameters + p->offset));
    }
    for (size_t i = 0; i < ls_safetensors_count(file->tensors); i++) {
        const char *name = ls_safetensors_at(file->tensors, i)->name;
        if (!ls_layout_find(layout, name)) {
            return ls_fail(LS_ERR_UNSUPPORTED, "%s: tensor %s is not A or B of a linear layer", file->path,
                           name);
        }
    }
    return LS_OK;
}

/* ---- writing ---- */

/* Names of the layers that have the adapter of `layout`, in its order; in `arena`. */
static const char **modules_of(ls_arena *arena, const ls_layout *layout, size_t *count_out)
{
    const size_t prefix = strlen(LS_ADAPTER_PREFIX);
    const char **names = ls_arena_new(arena, const char *, layout->trained_count);
    *count_out = 0;
    for (uint32_t i = 0; i < layout->trained_count; i++) {
        const char *name = layout->parameters[i].name;
        if (ls_path_has_suffix(name, A_SUFFIX)) {
            names[(*count_out)++] =
                ls_arena_strndup(arena, name + prefix, strlen(name) - prefix - (sizeof A_SUFFIX - 1));
        }
    }
    return names;
}

/* The same layers by the last parts of their names ("q_proj"), if those mean no others. */
static const char **short_modules(ls_arena *arena, const ls_layout *layout, const char **modules,
                                  size_t *count)
{
    ls_adapter shorts = *layout->adapter;
    const char **names = ls_arena_new(arena, const char *, *count);
    shorts.targets = names;
    shorts.target_count = 0;
    for (size_t i = 0; i < *count; i++) {
        const char *weight = ls_arena_printf(arena, "%s.weight", modules[i]);
        if (shorts.target_count == 0 || !ls_adapter_wants(&shorts, weight)) {
            names[shorts.target_count++] = strrchr(modules[i], '.') + 1;
        }
    }
    size_t meant = 0;
    for (uint32_t i = layout->trained_count; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        const bool in_layer = p->section > 0 && p->section + 1 < layout->section_count;
        meant += in_layer && p->shape_rank == 2 && ls_adapter_wants(&shorts, p->name);
    }
    if (meant != *count) {
        return modules;
    }
    *count = shorts.target_count;
    return names;
}

ls_status ls_adapter_config_text(ls_arena *arena, const ls_layout *layout, const ls_model_config *config,
                                 const char *base, const char **text_out)
{
    size_t count = 0;
    const char **all = modules_of(arena, layout, &count);
    const char **modules = short_modules(arena, layout, all, &count);
    json_t *object = ls_adapter_config_json(layout->adapter, config, base, modules, count);
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "no memory for " LS_ADAPTER_CONFIG_NAME);
    }
    *text_out = ls_arena_strdup(arena, text);
    free(text);
    return LS_OK;
}

static ls_status write_tensors(ls_arena *arena, const ls_layout *layout, const float *parameters,
                               const char *path)
{
    ls_safetensor *tensors = ls_arena_new(arena, ls_safetensor, layout->trained_count);
    for (uint32_t i = 0; i < layout->trained_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        tensors[i] = (ls_safetensor){.name = p->name,
                                     .dtype = LS_ST_F32,
                                     .rank = 2,
                                     .shape = {(uint64_t)p->rows, (uint64_t)p->cols},
                                     .data = parameters + p->offset};
    }
    return ls_safetensors_write(path, tensors, layout->trained_count);
}

static ls_status write_directory(ls_arena *arena, const ls_model_file *file, const float *parameters,
                                 const char *folder)
{
    const ls_adapter_file *adapter = file->adapter;
    const char *text = NULL;
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_create(folder));
    LS_TRY(ls_dir_list(arena, folder, &names, &count));
    if (count > 0) {
        return ls_fail(LS_ERR_INVALID, "%s is not empty (it has %s); give a new folder", folder, names[0]);
    }
    LS_TRY(ls_adapter_config_text(arena, &file->layout, &file->config, adapter->base, &text));
    LS_TRY(write_tensors(arena, &file->layout, parameters, ls_path_join(arena, folder, TENSORS_NAME)));
    json_t *own = json_pack("{s:s, s:s*}", "base", ls_base_names[adapter->base_kind], "base_digest",
                            adapter->base_digest);
    const ls_status status = ls_json_save(ls_path_join(arena, folder, OWN_NAME), own);
    json_decref(own);
    LS_TRY(status);
    return ls_file_write_atomic(ls_path_join(arena, folder, LS_ADAPTER_CONFIG_NAME), text, strlen(text));
}

ls_status ls_adapter_export(const ls_model_file *file, const float *parameters, const char *folder)
{
    ls_arena arena = {0};
    LS_ASSERT(file->adapter);
    const ls_status status = write_directory(&arena, file, parameters, folder);
    ls_arena_release(&arena);
    return status;
}
