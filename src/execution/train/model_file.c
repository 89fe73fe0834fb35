// SPDX-License-Identifier: Apache-2.0
#include "execution/train/adapter_file.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "storage/checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

/* ---- a Hugging Face directory ---- */

/* Adds the ids that end a text, from generation_config.json. */
static ls_status add_generation_config(ls_model_file *file)
{
    const char *path = ls_path_join(&file->arena, file->path, "generation_config.json");
    return ls_path_exists(path) ? ls_hf_generation_config_load(path, &file->config) : LS_OK;
}

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
    LS_TRY(add_generation_config(file));
    return !file->is_bare && has_tokenizer(&file->arena, file->path)
               ? ls_tokenizer_load(file->path, &file->tokenizer)
               : LS_OK;
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
            /* Loaded through the directory, so that tokenizer_config.json and merges.txt are
             * found. */
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
    LS_TRY(add_generation_config(file));
    return file->is_bare ? LS_OK : open_attached_tokenizer(file);
}

/* ---- either ---- */

/* Whether a path could be the name of a model on a hub, OWNER/NAME, and OWNER is no folder here. */
static bool is_hub_name(const char *path)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char owner[64];
    const size_t bytes = strspn(path, allowed);
    if (bytes == 0 || bytes >= sizeof owner || path[bytes] != '/' || path[0] == '.') {
        return false;
    }
    const char *name = path + bytes + 1;
    memcpy(owner, path, bytes);
    owner[bytes] = '\0';
    return *name && name[strspn(name, allowed)] == '\0' && strcmp(owner, "runs") != 0 &&
           !ls_path_exists(owner);
}

static ls_status fail_missing(const char *path)
{
    if (is_hub_name(path)) {
        return ls_fail(
            LS_ERR_NOT_FOUND,
            "there is no folder %s here; if it is a model on a hub, fetch it with 'lockstep pull %s "
            "-o DIR' and give DIR",
            path, path);
    }
    return ls_fail(LS_ERR_NOT_FOUND,
                   "%s does not exist; a checkpoint, a run directory or a Hugging Face directory is needed%s",
                   path,
                   strchr(path, '/') ? ""
                                     : ". For a model on a hub, find its name there, fetch it with 'lockstep "
                                       "pull ORG/NAME -o DIR' and give DIR");
}

/* Folders that hold part of a model get a better message than "no checkpoint". */
static ls_status refuse_parts(ls_arena *arena, const char *path)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json",
                                          "pytorch_model.bin"};
    if (ls_path_has_suffix(path, ".gguf")) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s is a GGUF file, which lockstep cannot read; give the folder with the model's "
                       "config.json and safetensors files instead",
                       path);
    }
    if (ls_path_is_dir(ls_path_join(arena, path, "snapshots"))) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is a folder of the Hugging Face cache; give one of the folders (revisions) inside "
                       "its folder 'snapshots' instead",
                       path);
    }
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        if (ls_path_exists(ls_path_join(arena, path, weights[i]))) {
            return ls_fail(LS_ERR_DATA, "%s has %s but no config.json, which describes the model: add it",
                           path, weights[i]);
        }
    }
    return LS_OK;
}

static ls_status open_any(ls_model_file *file, const char *path);

/* A directory of PEFT: the model is its base, with it. */
static ls_status open_adapter_directory(ls_model_file *file, const char *path)
{
    ls_adapter_file *adapter = NULL;
    LS_TRY(ls_adapter_file_open(path, &adapter));
    const char *base = ls_adapter_file_base(adapter);
    ls_status status = LS_OK;
    if (!base[0] || !ls_path_exists(base)) {
        status = ls_fail(LS_ERR_NOT_FOUND,
                         "%s is an adapter (LoRA) for the model '%s', which is not a folder here; give the "
                         "folder of that model, and the adapter with --adapter %s",
                         path, base, path);
    } else {
        status = open_any(file, base);
    }
    if (status == LS_OK) {
        return ls_model_file_take_adapter(file, adapter);
    }
    ls_adapter_file_close(adapter);
    return status;
}

/* A checkpoint of an adapter holds everything but the weights of the base. */
static ls_status open_base_of_checkpoint(ls_model_file *file)
{
    ls_adapter_file *adapter = NULL;
    if (!has_attachment(file->checkpoint, LS_ADAPTER_CONFIG_NAME)) {
        return LS_OK;
    }
    LS_TRY(ls_adapter_file_open(file->path, &adapter));
    ls_status status = ls_model_file_open_bare(ls_adapter_file_base(adapter), &file->base);
    if (status == LS_OK) {
        return ls_model_file_take_adapter(file, adapter);
    }
    status = ls_fail_within(status,
                            "%s is an adapter, and its base cannot be opened; if it has moved, give it and "
                            "--adapter %s",
                            file->path, file->path);
    ls_adapter_file_close(adapter);
    return status;
}

static ls_status open_any(ls_model_file *file, const char *path)
{
    if (!ls_path_exists(path)) {
        return fail_missing(path);
    }
    const bool checkpoint = ls_path_exists(ls_path_join(&file->arena, path, LS_MANIFEST_NAME));
    if (!checkpoint && ls_path_exists(ls_path_join(&file->arena, path, "config.json"))) {
        file->path = ls_arena_strdup(&file->arena, path);
        return open_huggingface(file);
    }
    if (!checkpoint && ls_path_exists(ls_path_join(&file->arena, path, LS_ADAPTER_CONFIG_NAME))) {
        return open_adapter_directory(file, path);
    }
    if (!checkpoint) {
        LS_TRY(refuse_parts(&file->arena, path));
    }
    LS_TRY(ls_checkpoint_resolve(&file->arena, path, &file->path));
    LS_TRY(open_checkpoint(file));
    return open_base_of_checkpoint(file);
}

static ls_status open_file(const char *path, bool is_bare, ls_model_file **file_out)
{
    ls_model_file *file = calloc(1, sizeof *file);
    if (!file) {
        return ls_fail(LS_ERR_MEMORY, "no memory to open %s", path);
    }
    file->is_bare = is_bare;
    const ls_status status = open_any(file, path);
    if (status != LS_OK) {
        ls_model_file_close(file);
        return status;
    }
    if (!file->adapter) {
        ls_layout_build(&file->arena, &file->config, &file->layout);
    }
    *file_out = file;
    return LS_OK;
}

ls_status ls_model_file_open(const char *path, ls_model_file **file_out)
{
    return open_file(path, false, file_out);
}

ls_status ls_model_file_open_bare(const char *path, ls_model_file **file_out)
{
    return open_file(path, true, file_out);
}

void ls_model_file_close(ls_model_file *file)
{
    if (!file) {
        return;
    }
    ls_adapter_file_close(file->adapter);
    ls_model_file_close(file->base);
    ls_checkpoint_close(file->checkpoint);
    ls_tokenizer_destroy(file->tokenizer);
    ls_arena_release(&file->arena);
    free(file);
}

static bool has_vocab_rows(const ls_parameter *p, const ls_layout *layout)
{
    const char *table = layout->parameters[layout->table].name;
    return strcmp(p->name, table) == 0 || strcmp(p->name, "lm_head.weight") == 0;
}

/* Rows from `first` on become the mean of the rows before, added up in float64 in their order. */
static void fill_with_mean(const ls_parameter *p, int64_t first, float *parameters)
{
    float *rows = parameters + p->offset;
    for (int64_t col = 0; col < p->cols; col++) {
        double sum = 0.0;
        for (int64_t row = 0; row < first; row++) {
            sum += (double)rows[row * p->cols + col];
        }
        for (int64_t row = first; row < p->rows; row++) {
            rows[row * p->cols + col] = (float)(sum / (double)first);
        }
    }
}

static ls_status load_exactly(const ls_model_file *file, const ls_layout *layout, float *parameters)
{
    if (!file->checkpoint) {
        return ls_hf_load_parameters(file->path, &file->config, layout, parameters);
    }
    ls_arena arena = {0};
    const ls_state state = {
        .layout = layout, .parameters = parameters, .frozen = parameters + layout->float_count};
    const ls_checkpoint_tensor *tensors = ls_state_tensors(&arena, &state, NULL);
    const ls_status status =
        ls_checkpoint_load(file->checkpoint, tensors, ls_state_tensor_count(layout), NULL);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_model_file_load(const ls_model_file *file, const ls_layout *layout, float *parameters)
{
    if (file->adapter || layout->adapter) {
        return ls_adapter_load(file, layout, parameters);
    }
    ls_arena arena = {0};
    ls_layout stored = *layout; /* with as many rows as the file has */
    stored.parameters = ls_arena_new(&arena, ls_parameter, layout->parameter_count);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        stored.parameters[i] = layout->parameters[i];
        if (has_vocab_rows(&layout->parameters[i], layout)) {
            LS_ASSERT(layout->parameters[i].rows >= file->config.vocab);
            stored.parameters[i].rows = file->config.vocab;
        }
    }
    const ls_status status = load_exactly(file, &stored, parameters);
    for (uint32_t i = 0; status == LS_OK && i < layout->parameter_count; i++) {
        if (layout->parameters[i].rows > stored.parameters[i].rows) {
            fill_with_mean(&layout->parameters[i], stored.parameters[i].rows, parameters);
        }
    }
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
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
};
enum { CARRIED_COUNT = sizeof carried_names / sizeof carried_names[0] };

/* Whether one of the files is a tokenizer that ls_tokenizer_load would find. */
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

ls_status ls_model_template(ls_arena *arena, const char *where, const ls_hf_file *files, size_t count,
                            ls_template_source *source_out)
{
    ls_template_files found = {.where = where};
    for (size_t i = 0; i < count; i++) {
        if (strcmp(files[i].name, "chat_template.jinja") == 0) {
            found.jinja = files[i].data;
            found.jinja_bytes = files[i].bytes;
        } else if (strcmp(files[i].name, "tokenizer_config.json") == 0) {
            found.config = files[i].data;
            found.config_bytes = files[i].bytes;
        }
    }
    return ls_template_source_pick(arena, &found, NULL, source_out);
}

size_t ls_model_stops(const ls_model_config *config, const ls_tokenizer *tokenizer,
                      int32_t ids_out[LS_MODEL_STOPS_MAX])
{
    size_t count = 0, all = ls_model_config_eos(config, ids_out);
    if (ls_tokenizer_eos(tokenizer) >= 0) {
        ids_out[all++] = ls_tokenizer_eos(tokenizer);
    }
    for (size_t i = 0; i < all; i++) {
        size_t same = 0;
        while (same < count && ids_out[same] != ids_out[i]) {
            same++;
        }
        ids_out[same] = ids_out[i];
        count += same == count;
    }
    return count;
}

ls_status ls_model_file_config_text(const ls_model_config *config, ls_st_dtype dtype, char **text_out)
{
    json_t *object = ls_hf_config_json(config);
    ls_hf_config_set_dtype(object, dtype);
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "no memory for config.json");
    }
    *text_out = text;
    return LS_OK;
}
