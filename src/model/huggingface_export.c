// SPDX-License-Identifier: Apache-2.0
#include "model/huggingface_export.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/half.h"
#include "storage/checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *torch_name(ls_st_dtype dtype)
{
    return dtype == LS_ST_BF16 ? "bfloat16" : dtype == LS_ST_F16 ? "float16" : "float32";
}

void ls_hf_config_set_dtype(json_t *config, ls_st_dtype dtype)
{
    json_object_set_new(config, "torch_dtype", json_string(torch_name(dtype)));
}

/* ---- weights --------------------------------------------------------------------------------- */

static ls_safetensor *tensors_of(ls_arena *arena, const ls_hf_export_options *o)
{
    ls_safetensor *tensors = ls_arena_new(arena, ls_safetensor, o->layout->parameter_count);
    for (uint32_t i = 0; i < o->layout->parameter_count; i++) {
        const ls_parameter *p = &o->layout->parameters[i];
        tensors[i] = (ls_safetensor){
            .name = p->name,
            .dtype = o->dtype,
            .rank = (uint32_t)p->shape_rank,
            .data = o->flat + p->offset,
            .bytes = (uint64_t)(p->rows * p->cols) * ls_st_dtype_bytes(o->dtype),
        };
        tensors[i].shape[0] = (uint64_t)(p->shape_rank == 1 ? p->cols : p->rows);
        tensors[i].shape[1] = p->shape_rank == 1 ? 0 : (uint64_t)p->cols;
    }
    return tensors;
}

static float rounded(float value, ls_st_dtype dtype)
{
    return dtype == LS_ST_F16 ? ls_f32_from_f16(ls_f16_from_f32(value))
                              : ls_f32_from_bf16(ls_bf16_from_f32(value));
}

/* A finite weight must not become infinite. */
static ls_status check_range(const ls_hf_export_options *o)
{
    for (uint32_t i = 0; o->dtype != LS_ST_F32 && i < o->layout->parameter_count; i++) {
        const ls_parameter *p = &o->layout->parameters[i];
        for (int64_t k = 0; k < p->rows * p->cols; k++) {
            const float value = o->flat[p->offset + k];
            if (isfinite(value) && !isfinite(rounded(value, o->dtype))) {
                return ls_fail(LS_ERR_INVALID,
                               "tensor %s holds %g, which is too large for %s (at most %s): export as fp32%s",
                               p->name, (double)value, torch_name(o->dtype),
                               o->dtype == LS_ST_F16 ? "65504" : "3.39e38",
                               o->dtype == LS_ST_F16 ? " or bf16" : "");
            }
        }
    }
    return LS_OK;
}

/* How many tensors from `first` on go into one file. */
static size_t shard_count(const ls_hf_export_options *o, const ls_safetensor *tensors, size_t first)
{
    const size_t total = o->layout->parameter_count;
    uint64_t bytes = tensors[first].bytes;
    size_t end = first + 1;
    while (end < total && (o->shard_bytes == 0 || bytes + tensors[end].bytes <= o->shard_bytes)) {
        bytes += tensors[end++].bytes;
    }
    return end - first;
}

static ls_status write_shards(ls_arena *arena, const char *folder, const ls_hf_export_options *o, json_t *map)
{
    const ls_safetensor *tensors = tensors_of(arena, o);
    const size_t total = o->layout->parameter_count;
    size_t shards = 0, index = 0;
    for (size_t at = 0; at < total; at += shard_count(o, tensors, at)) {
        shards++;
    }
    for (size_t at = 0, count = 0; at < total; at += count) {
        count = shard_count(o, tensors, at);
        const char *name = shards == 1
                               ? "model.safetensors"
                               : ls_arena_printf(arena, "model-%05zu-of-%05zu.safetensors", ++index, shards);
        LS_TRY(ls_safetensors_write_floats(ls_path_join(arena, folder, name), tensors + at, count));
        for (size_t i = at; i < at + count; i++) {
            json_object_set_new(map, tensors[i].name, json_string(name));
        }
    }
    return LS_OK;
}

static ls_status write_index(ls_arena *arena, const char *folder, const ls_hf_export_options *o, json_t *map)
{
    const uint64_t bytes = (uint64_t)o->layout->element_count * ls_st_dtype_bytes(o->dtype);
    json_t *root =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    const ls_status status = ls_json_save(ls_path_join(arena, folder, "model.safetensors.index.json"), root);
    json_decref(root);
    return status;
}

static ls_status write_weights(ls_arena *arena, const char *folder, const ls_hf_export_options *o)
{
    json_t *map = json_object();
    ls_status status = write_shards(arena, folder, o, map);
    if (status == LS_OK && !ls_path_exists(ls_path_join(arena, folder, "model.safetensors"))) {
        status = write_index(arena, folder, o, map);
    }
    json_decref(map);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static ls_status write_folder(ls_arena *arena, const char *folder, const ls_hf_export_options *o)
{
    LS_TRY(ls_dir_create(folder));
    LS_TRY(write_weights(arena, folder, o));
    for (size_t i = 0; i < o->file_count; i++) {
        const ls_hf_file *file = &o->files[i];
        LS_ASSERT(!strchr(file->name, '/'));
        LS_TRY(ls_file_write_atomic(ls_path_join(arena, folder, file->name), file->data, file->bytes));
    }
    json_t *json = ls_hf_config_json(o->config);
    ls_hf_config_set_dtype(json, o->dtype);
    const ls_status status = ls_json_save(ls_path_join(arena, folder, "config.json"), json);
    json_decref(json);
    return status;
}

/* Whether an export, by this version or another, writes a file of this name. */
static bool is_exported_name(const char *name)
{
    static const char *const names[] = {
        "config.json",     "generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
        "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt",      "chat_template.jinja",     "model.safetensors", "model.safetensors.index.json",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return fnmatch("model-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors", name, 0) == 0;
}

/* Replacing removes all that is in the folder, so it must be a model and nothing else. */
static ls_status check_is_model(ls_arena *arena, const char *folder, char *const *names, size_t count)
{
    bool has_config = false;
    const char *other = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], LS_MANIFEST_NAME) == 0 ||
            ls_path_is_dir(ls_path_join(arena, folder, names[i]))) {
            return ls_fail(
                LS_ERR_INVALID,
                "%s holds %s, which would be lost: --replace replaces a folder that holds an exported "
                "model and nothing else",
                folder, names[i]);
        }
        has_config = has_config || strcmp(names[i], "config.json") == 0;
        if (!other && !is_exported_name(names[i])) {
            other = names[i];
        }
    }
    if (!has_config) {
        return ls_fail(LS_ERR_INVALID,
                       "%s holds files but no config.json: --replace replaces only a folder that holds a "
                       "model; choose another folder",
                       folder);
    }
    if (other) {
        return ls_fail(LS_ERR_INVALID,
                       "%s holds %s, which is not part of an exported model and would be lost: move it away "
                       "or export to another folder",
                       folder, other);
    }
    return LS_OK;
}

static ls_status check_target(ls_arena *arena, const char *folder, bool replace)
{
    char **names = NULL;
    size_t count = 0;
    if (!ls_path_exists(folder)) {
        return LS_OK;
    }
    if (!ls_path_is_dir(folder)) {
        return ls_fail(LS_ERR_INVALID, "%s exists and is not a folder", folder);
    }
    LS_TRY(ls_dir_list(arena, folder, &names, &count));
    if (count == 0) {
        return LS_OK;
    }
    if (replace) {
        return check_is_model(arena, folder, names, count);
    }
    return ls_fail(LS_ERR_INVALID,
                   "%s is not empty (it holds %s), and a model must not mix with other files: choose another "
                   "folder, or replace the model in it with --replace",
                   folder, names[0]);
}

/* For file systems that can't exchange two names: the older folder is moved aside first. */
static ls_status replace_in_two_steps(ls_arena *arena, const char *made, const char *folder)
{
    const char *aside = ls_arena_printf(arena, "%s.old", made);
    if (rename(folder, aside) != 0) {
        return ls_fail_errno(errno, "can't rename %s to make room for the new model", folder);
    }
    if (rename(made, folder) != 0) {
        const int error = errno;
        if (rename(aside, folder) != 0) {
            return ls_fail_errno(error, "can't rename %s to %s; the model to be replaced is now in %s", made,
                                 folder, aside);
        }
        return ls_fail_errno(error, "can't rename %s to %s", made, folder);
    }
    return ls_dir_remove(aside);
}

static ls_status put_in_place(ls_arena *arena, const char *made, const char *folder)
{
    /* An empty folder is replaced by a plain rename. */
    if (rename(made, folder) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST) {
            return ls_fail_errno(errno, "can't rename %s to %s", made, folder);
        }
        if (renameat2(AT_FDCWD, made, AT_FDCWD, folder, RENAME_EXCHANGE) != 0) {
            LS_TRY(replace_in_two_steps(arena, made, folder));
        } else {
            LS_TRY(ls_dir_remove(made));
        }
    }
    return ls_dir_sync(ls_path_dirname(arena, folder));
}

static ls_status export_to(ls_arena *arena, const char *folder, const ls_hf_export_options *o)
{
    LS_TRY(check_target(arena, folder, o->replace));
    LS_TRY(check_range(o));
    const char *made = ls_arena_printf(arena, "%s.tmp.%d", folder, (int)getpid());
    LS_TRY(ls_dir_remove(made));
    ls_status status = write_folder(arena, made, o);
    if (status == LS_OK) {
        /* Again, because writing takes long. */
        status = check_target(arena, folder, o->replace);
    }
    if (status == LS_OK) {
        return put_in_place(arena, made, folder);
    }
    if (ls_dir_remove(made) != LS_OK) {
        return ls_fail_within(status, "%s is left behind", made);
    }
    return status;
}

/* The path without slashes at its end, and with symbolic links resolved if it exists. */
static const char *plain_path(ls_arena *arena, const char *path)
{
    char *real = realpath(path, NULL);
    const char *plain = ls_path_trim(arena, real ? real : path);
    free(real);
    return plain;
}

ls_status ls_hf_export(const ls_hf_export_options *options)
{
    LS_ASSERT(options->dtype == LS_ST_F32 || options->dtype == LS_ST_BF16 || options->dtype == LS_ST_F16);
    ls_arena arena = {0};
    const ls_status status = export_to(&arena, plain_path(&arena, options->folder), options);
    ls_arena_release(&arena);
    return status;
}
