// SPDX-License-Identifier: Apache-2.0
/* Reads the tensors of Hugging Face folders. config.json is read and written in
 * huggingface_config.c, whole folders are written in huggingface_export.c. */
#include "model/huggingface.h"

#include "base/assert.h"
#include "base/file.h"
#include "model/huggingface_packed.h"
#include "storage/safetensors/safetensors.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- names ---- */

/* A name without the prefix that base models leave out: "transformer." or "model.". */
static const char *short_name(const char *name)
{
    static const char *const prefixes[] = {"transformer.", "model."};
    for (int i = 0; i < 2; i++) {
        const size_t bytes = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], bytes) == 0) {
            return name + bytes;
        }
    }
    return name;
}

static const ls_safetensor *find_tensor(const ls_safetensors *file, const char *name)
{
    const ls_safetensor *tensor = ls_safetensors_find(file, name);
    return tensor ? tensor : ls_safetensors_find(file, short_name(name));
}

/* Buffers that older versions of transformers saved beside the weights. */
static bool is_old_buffer(const char *name)
{
    static const char *const endings[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
    for (int i = 0; i < 3; i++) {
        if (ls_path_has_suffix(name, endings[i])) {
            return true;
        }
    }
    return false;
}

/* ---- loading ---- */

static bool shape_matches(const ls_parameter *p, const ls_safetensor *tensor)
{
    if (tensor->rank != (uint32_t)p->shape_rank) {
        return false;
    }
    return p->shape_rank == 1
               ? tensor->shape[0] == (uint64_t)p->cols
               : tensor->shape[0] == (uint64_t)p->rows && tensor->shape[1] == (uint64_t)p->cols;
}

static ls_status wrong_shape(const ls_parameter *p, const ls_safetensor *tensor)
{
    ls_arena arena = {0};
    const uint64_t matrix[2] = {(uint64_t)p->rows, (uint64_t)p->cols};
    const char *expected =
        ls_shape_text(&arena, p->shape_rank == 1 ? matrix + 1 : matrix, (uint32_t)p->shape_rank);
    const ls_status status =
        ls_fail(LS_ERR_DATA, "%s: tensor %s has shape %s, but by the model's config.json it must have %s",
                tensor->path, tensor->name, ls_shape_text(&arena, tensor->shape, tensor->rank), expected);
    ls_arena_release(&arena);
    return status;
}

/* Tensors are converted in parts, and the file's pages given back after each, so that a model is
 * not in memory twice. */
enum { PART_BYTES = 4 << 20 };

static void forget_pages(const void *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
    const uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    if (first < end) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
    }
}

ls_status ls_hf_packed_parameter(const ls_safetensors *file, const ls_parameter *p, ls_bnb_matrix *matrix_out)
{
    const ls_safetensor *tensor = find_tensor(file, p->name);
    ls_bnb_matrix matrix = {0};
    LS_TRY(ls_hf_packed_matrix(file, tensor, &matrix));
    if (matrix.codes && (matrix.rows != p->rows || matrix.cols != p->cols)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: packed tensor %s has shape [%lld, %lld], but by the model's config.json it must "
                       "have [%lld, %lld]",
                       tensor->path, tensor->name, (long long)matrix.rows, (long long)matrix.cols,
                       (long long)p->rows, (long long)p->cols);
    }
    *matrix_out = matrix;
    return LS_OK;
}

static ls_status check_parameter(const ls_safetensors *file, const char *path, const ls_parameter *p)
{
    const ls_safetensor *tensor = find_tensor(file, p->name);
    ls_bnb_matrix packed;
    if (!tensor) {
        return ls_fail(LS_ERR_DATA, "%s: tensor %s is missing; a model with this config.json must have it",
                       path, p->name);
    }
    LS_TRY(ls_hf_packed_parameter(file, p, &packed));
    return packed.codes || shape_matches(p, tensor) ? LS_OK : wrong_shape(p, tensor);
}

ls_status ls_hf_read_parameter(const ls_safetensors *file, const ls_parameter *p, float *values_out)
{
    const ls_safetensor *tensor = find_tensor(file, p->name);
    ls_bnb_matrix packed;
    LS_ASSERT(tensor);
    LS_TRY(ls_hf_packed_parameter(file, p, &packed));
    if (packed.codes) {
        ls_bnb_values(&packed, values_out);
        return LS_OK;
    }
    LS_ASSERT(shape_matches(p, tensor));
    const uint64_t each = ls_st_dtype_bytes(tensor->dtype);
    for (uint64_t at = 0; at < tensor->bytes; at += PART_BYTES) {
        ls_safetensor part = *tensor;
        part.data = (const unsigned char *)tensor->data + at;
        part.bytes = tensor->bytes - at < PART_BYTES ? tensor->bytes - at : PART_BYTES;
        LS_TRY(ls_safetensor_to_f32(&part, values_out + at / each));
        forget_pages(part.data, (size_t)part.bytes);
    }
    return LS_OK;
}

/* The file of a tied model may contain the head as well; transformers unties the two if they
 * differ, so such a file is not this model. */
static ls_status check_tied_head(const ls_safetensors *file, const ls_layout *layout,
                                 const ls_safetensor *head)
{
    const ls_safetensor *table = find_tensor(file, layout->parameters[layout->table].name);
    LS_ASSERT(table);
    if (head->dtype != table->dtype || head->bytes != table->bytes ||
        memcmp(head->data, table->data, table->bytes) != 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s: tensor %s differs from %s, but tie_word_embeddings in config.json is true, so "
                       "they must be equal; set it to false if the model has an output matrix of its own",
                       head->path, head->name, table->name);
    }
    return LS_OK;
}

static bool is_parameter(const ls_layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const char *wanted = layout->parameters[i].name;
        if (strcmp(name, wanted) == 0 || strcmp(name, short_name(wanted)) == 0) {
            return true;
        }
    }
    return false;
}

/* Checks that every tensor of the file has a place in the model. */
static ls_status check_extras(const ls_safetensors *file, const ls_model_config *config,
                              const ls_layout *layout)
{
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const ls_safetensor *tensor = ls_safetensors_at(file, i);
        if (is_parameter(layout, tensor->name) || is_old_buffer(tensor->name) ||
            ls_hf_is_packing(tensor->name)) {
            continue;
        }
        if (config->tied && strcmp(tensor->name, "lm_head.weight") == 0) {
            LS_TRY(check_tied_head(file, layout, tensor));
            continue;
        }
        return ls_fail(LS_ERR_DATA, "%s: tensor %s is not part of a %s model with this configuration",
                       tensor->path, tensor->name, ls_family_name(config->family));
    }
    return LS_OK;
}

/* A folder whose weights are pickles gets a better message than "not found". */
static ls_status refuse_pickles(const char *path)
{
    ls_arena arena = {0};
    ls_status status = LS_OK;
    if (ls_path_is_dir(path) && !ls_path_exists(ls_path_join(&arena, path, "model.safetensors")) &&
        !ls_path_exists(ls_path_join(&arena, path, "model.safetensors.index.json")) &&
        (ls_path_exists(ls_path_join(&arena, path, "pytorch_model.bin")) ||
         ls_path_exists(ls_path_join(&arena, path, "pytorch_model.bin.index.json")))) {
        status = ls_fail(
            LS_ERR_UNSUPPORTED,
            "%s: has only pickled weights (pytorch_model.bin), which are programs and are never run here; "
            "save the model again with safe_serialization=True",
            path);
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_hf_open_parameters(const char *path, const ls_model_config *config, const ls_layout *layout,
                                ls_safetensors **file_out)
{
    ls_safetensors *file = NULL;
    LS_TRY(refuse_pickles(path));
    LS_TRY(ls_safetensors_open(path, &file));
    ls_status status = LS_OK;
    for (uint32_t i = 0; i < layout->parameter_count && status == LS_OK; i++) {
        status = check_parameter(file, path, &layout->parameters[i]);
    }
    if (status == LS_OK) {
        status = check_extras(file, config, layout);
    }
    if (status != LS_OK) {
        ls_safetensors_close(file);
        return status;
    }
    *file_out = file;
    return LS_OK;
}

ls_status ls_hf_load_parameters(const char *path, const ls_model_config *config, const ls_layout *layout,
                                float *flat)
{
    ls_safetensors *file = NULL;
    LS_TRY(ls_hf_open_parameters(path, config, layout, &file));
    memset(flat, 0, (size_t)layout->parameter_floats * sizeof *flat);
    ls_status status = LS_OK;
    for (uint32_t i = 0; i < layout->parameter_count && status == LS_OK; i++) {
        status = ls_hf_read_parameter(file, &layout->parameters[i], flat + layout->parameters[i].offset);
    }
    ls_safetensors_close(file);
    return status;
}
