// SPDX-License-Identifier: Apache-2.0
#include "execution/model_file.h"

#include "base/file.h"
#include "base/json.h"
#include "storage/manifest.h"

#include <stdlib.h>
#include <string.h>

/* ---- a Hugging Face directory ---- */

static bool has_tokenizer(ls_arena *arena, const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "encoder.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (ls_path_exists(ls_path_join(arena, folder, names[i]))) {
            return true;
        }
    }
    return false;
}

static ls_status open_huggingface(ls_model_file *file)
{
    LS_TRY(ls_hf_config_load(file->path, &file->config));
    return has_tokenizer(&file->arena, file->path) ? ls_tokenizer_load(file->path, &file->tokenizer) : LS_OK;
}

/* ---- a checkpoint ---- */

static bool has_attachment(const ls_checkpoint *checkpoint, const char *name)
{
    for (size_t i = 0; i < checkpoint->manifest->attachment_count; i++) {
        if (strcmp(checkpoint->manifest->attachments[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static ls_status open_attached_tokenizer(ls_model_file *file)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
    const char *kind = json_string_value(json_object_get(file->checkpoint->meta.extra, "tokenizer"));
    if (kind && strcmp(kind, "bytes") == 0) {
        return ls_tokenizer_create_bytes(&file->tokenizer);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (has_attachment(file->checkpoint, names[i])) {
            char *data = NULL;
            size_t bytes = 0;
            LS_TRY(ls_checkpoint_attachment_read(file->checkpoint, &file->arena, names[i], &data, &bytes));
            /* Loaded from the folder, so that tokenizer_config.json or merges.txt beside it is seen. */
            return ls_tokenizer_load(file->path, &file->tokenizer);
        }
    }
    return LS_OK;
}

static ls_status open_checkpoint(ls_model_file *file)
{
    LS_TRY(ls_checkpoint_open(file->path, &file->checkpoint));
    file->step = file->checkpoint->meta.step;
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_checkpoint_attachment_read(file->checkpoint, &file->arena, "config.json", &text, &bytes));
    LS_TRY(ls_hf_config_parse(text, bytes, ls_path_join(&file->arena, file->path, "config.json"),
                              &file->config));
    return open_attached_tokenizer(file);
}

/* ---- either ---- */

static ls_status open_any(ls_model_file *file, const char *path)
{
    if (!ls_path_exists(path)) {
        return ls_fail(
            LS_ERR_NOT_FOUND,
            "%s does not exist; a checkpoint, a run directory or a Hugging Face directory is needed", path);
    }
    const bool checkpoint = ls_path_exists(ls_path_join(&file->arena, path, LS_MANIFEST_NAME));
    if (!checkpoint && ls_path_exists(ls_path_join(&file->arena, path, "config.json"))) {
        file->path = ls_arena_strdup(&file->arena, path);
        return open_huggingface(file);
    }
    LS_TRY(ls_checkpoint_resolve(&file->arena, path, &file->path));
    return open_checkpoint(file);
}

ls_status ls_model_file_open(const char *path, ls_model_file **file_out)
{
    ls_model_file *file = calloc(1, sizeof *file);
    if (!file) {
        return ls_fail(LS_ERR_MEMORY, "no memory to open %s", path);
    }
    const ls_status status = open_any(file, path);
    if (status != LS_OK) {
        ls_model_file_close(file);
        return status;
    }
    ls_layout_build(&file->arena, &file->config, &file->layout);
    *file_out = file;
    return LS_OK;
}

void ls_model_file_close(ls_model_file *file)
{
    if (!file) {
        return;
    }
    ls_checkpoint_close(file->checkpoint);
    ls_tokenizer_destroy(file->tokenizer);
    ls_arena_release(&file->arena);
    free(file);
}

ls_status ls_model_file_load(const ls_model_file *file, const ls_layout *layout, float *parameters)
{
    if (!file->checkpoint) {
        return ls_hf_load_parameters(file->path, &file->config, layout, parameters);
    }
    ls_arena arena = {0};
    const ls_state state = {
        .layout = layout, .parameters = parameters, .frozen = parameters + layout->float_count};
    const ls_checkpoint_tensor *tensors = ls_state_tensors(&arena, &state);
    const ls_status status = ls_checkpoint_load(file->checkpoint, tensors, layout->parameter_count, NULL);
    ls_arena_release(&arena);
    return status;
}

/* ---- what travels along ---- */

enum { CARRIED_BYTES_MAX = 64 << 20 };

static const char *const carried_names[] = {
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
};
enum { CARRIED_COUNT = sizeof carried_names / sizeof carried_names[0] };

/* Is one of the files what ls_tokenizer_load finds the tokenizer by? */
static bool holds_tokenizer(const ls_hf_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(files[i].name, "tokenizer.", 10) == 0 || strcmp(files[i].name, "vocab.json") == 0) {
            return true;
        }
    }
    return false;
}

ls_status ls_model_file_carried(const ls_model_file *file, ls_arena *arena, ls_hf_file **files_out,
                                size_t *count_out)
{
    ls_hf_file *files = ls_arena_new(arena, ls_hf_file, CARRIED_COUNT + 1);
    size_t count = 0;
    for (size_t i = 0; i < CARRIED_COUNT; i++) {
        const char *path = ls_path_join(arena, file->path, carried_names[i]);
        char *data = NULL;
        size_t bytes = 0;
        if (ls_path_exists(path)) {
            LS_TRY(ls_file_read(arena, path, CARRIED_BYTES_MAX, &data, &bytes));
            files[count++] = (ls_hf_file){carried_names[i], data, bytes};
        }
    }
    if (file->tokenizer && !holds_tokenizer(files, count)) {
        const char *name = NULL;
        const void *data = NULL;
        size_t bytes = 0;
        ls_tokenizer_source(file->tokenizer, &name, &data, &bytes);
        void *copy = ls_arena_alloc(arena, bytes);
        memcpy(copy, data, bytes);
        files[count++] = (ls_hf_file){ls_arena_strdup(arena, name), copy, bytes};
    }
    *files_out = files;
    *count_out = count;
    return LS_OK;
}

ls_status ls_model_file_config_text(const ls_model_config *config, char **text_out)
{
    json_t *object = ls_hf_config_json(config);
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "no memory for config.json");
    }
    *text_out = text;
    return LS_OK;
}
