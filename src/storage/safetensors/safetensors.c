// SPDX-License-Identifier: Apache-2.0
#include "storage/safetensors/safetensors.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/lfs.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data are little-endian; this code maps them as they are"
#endif

struct ls_safetensors {
    ls_arena arena;
    ls_safetensor *tensors; /* sorted by name */
    size_t count;
    ls_file_map *maps;
    size_t map_count;
};

static const struct {
    const char *name;
    size_t bytes;
} DTYPES[] = {
    [LS_ST_I64] = {"I64", 8},   [LS_ST_F64] = {"F64", 8},   [LS_ST_F32] = {"F32", 4},
    [LS_ST_I32] = {"I32", 4},   [LS_ST_BF16] = {"BF16", 2}, [LS_ST_F16] = {"F16", 2},
    [LS_ST_I16] = {"I16", 2},   [LS_ST_I8] = {"I8", 1},     [LS_ST_U8] = {"U8", 1},
    [LS_ST_BOOL] = {"BOOL", 1},
};
enum { DTYPE_COUNT = sizeof DTYPES / sizeof *DTYPES };

const char *ls_st_dtype_name(ls_st_dtype dtype)
{
    LS_ASSERT((unsigned)dtype < DTYPE_COUNT);
    return DTYPES[dtype].name;
}

size_t ls_st_dtype_bytes(ls_st_dtype dtype)
{
    LS_ASSERT((unsigned)dtype < DTYPE_COUNT);
    return DTYPES[dtype].bytes;
}

static bool dtype_parse(const char *name, ls_st_dtype *dtype_out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, DTYPES[i].name) == 0) {
            *dtype_out = (ls_st_dtype)i;
            return true;
        }
    }
    return false;
}

ls_status ls_shape_elements(const char *name, const uint64_t *shape, uint32_t rank, uint64_t *elements_out)
{
    if (rank > LS_TENSOR_RANK_MAX) {
        return ls_fail(LS_ERR_DATA, "%s has %u dimensions; at most %d are allowed", name, rank,
                       LS_TENSOR_RANK_MAX);
    }
    uint64_t elements = 1;
    bool empty = false;
    for (uint32_t i = 0; i < rank; i++) {
        empty |= shape[i] == 0;
        if (shape[i] && __builtin_mul_overflow(elements, shape[i], &elements)) {
            return ls_fail(LS_ERR_DATA,
                           "%s: its shape is too large: the number of elements does not fit in 64 bits",
                           name);
        }
    }
    *elements_out = empty ? 0 : elements;
    return LS_OK;
}

const char *ls_shape_text(ls_arena *arena, const uint64_t *shape, uint32_t rank)
{
    char *text = ls_arena_strdup(arena, "[");
    for (uint32_t i = 0; i < rank; i++) {
        text = ls_arena_printf(arena, "%s%s%llu", text, i ? ", " : "", (unsigned long long)shape[i]);
    }
    return ls_arena_printf(arena, "%s]", text);
}

/* ---- one header ---- */

typedef struct header_reader {
    ls_arena *arena;
    const char *path;
    const unsigned char *data; /* after the header */
    uint64_t data_bytes;
} header_reader;

static ls_status read_shape(const header_reader *reader, const char *name, const json_t *shape,
                            ls_safetensor *tensor)
{
    if (!json_is_array(shape) || json_array_size(shape) > LS_TENSOR_RANK_MAX) {
        return ls_fail(LS_ERR_DATA, "%s: tensor %s: shape must be a list of at most %d whole numbers",
                       reader->path, name, LS_TENSOR_RANK_MAX);
    }
    tensor->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return ls_fail(LS_ERR_DATA, "%s: tensor %s: shape[%u] must be a whole number, 0 or more",
                           reader->path, name, i);
        }
        tensor->shape[i] = (uint64_t)json_integer_value(size);
    }
    return LS_OK;
}

static ls_status read_offsets(const header_reader *reader, const char *name, const json_t *offsets,
                              uint64_t *begin_out, uint64_t *end_out)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin)) {
        return ls_fail(
            LS_ERR_DATA,
            "%s: tensor %s: data_offsets must be two whole numbers [begin, end], 0 <= begin <= end",
            reader->path, name);
    }
    if ((uint64_t)json_integer_value(end) > reader->data_bytes) {
        return ls_fail(
            LS_ERR_DATA, "%s: tensor %s ends at byte %lld of the data, the file has %llu: truncated?",
            reader->path, name, (long long)json_integer_value(end), (unsigned long long)reader->data_bytes);
    }
    *begin_out = (uint64_t)json_integer_value(begin);
    *end_out = (uint64_t)json_integer_value(end);
    return LS_OK;
}

static ls_status check_fields(const header_reader *reader, const char *name, const json_t *entry)
{
    if (!json_is_object(entry)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: tensor %s: its entry must be an object with dtype, shape and data_offsets",
                       reader->path, name);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)entry, key, value)
    {
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0) {
            return ls_fail(LS_ERR_DATA,
                           "%s: tensor %s: unknown field \"%s\", allowed are dtype, shape, data_offsets",
                           reader->path, name, key);
        }
    }
    return LS_OK;
}

static ls_status read_tensor(const header_reader *reader, const char *name, const json_t *entry,
                             ls_safetensor *tensor)
{
    LS_TRY(check_fields(reader, name, entry));
    if (name[0] == '\0') {
        return ls_fail(LS_ERR_DATA, "%s: a tensor has an empty name", reader->path);
    }
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype || !dtype_parse(dtype, &tensor->dtype)) {
        return ls_fail(
            LS_ERR_DATA,
            "%s: tensor %s: unknown dtype \"%s\", known are F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL",
            reader->path, name, dtype ? dtype : "(not a string)");
    }
    LS_TRY(read_shape(reader, name, json_object_get(entry, "shape"), tensor));
    uint64_t begin = 0, end = 0, bytes = 0;
    LS_TRY(read_offsets(reader, name, json_object_get(entry, "data_offsets"), &begin, &end));
    const ls_status status = ls_shape_elements(name, tensor->shape, tensor->rank, &bytes);
    if (status != LS_OK) {
        return ls_fail_within(status, "%s: tensor", reader->path);
    }
    const size_t element_bytes = ls_st_dtype_bytes(tensor->dtype);
    if (__builtin_mul_overflow(bytes, element_bytes, &bytes) || bytes != end - begin) {
        return ls_fail(
            LS_ERR_DATA,
            "%s: tensor %s: its shape %s and type %s do not match its data_offsets, which span %llu bytes",
            reader->path, name, ls_shape_text(reader->arena, tensor->shape, tensor->rank), dtype,
            (unsigned long long)(end - begin));
    }
    tensor->name = ls_arena_strdup(reader->arena, name);
    tensor->path = reader->path;
    tensor->bytes = bytes;
    tensor->data = bytes ? reader->data + begin : NULL;
    return LS_OK;
}

/* Where a tensor starts, kept apart because empty tensors have no data pointer. */
typedef struct extent {
    uint64_t begin, end;
    const char *name;
} extent;

static int compare_extents(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->end > y->end) - (x->end < y->end);
}

/* Data must be covered exactly: tensors side by side from 0 to the end of the file. */
static ls_status check_extents(const header_reader *reader, extent *extents, size_t count)
{
    qsort(extents, count, sizeof *extents, compare_extents);
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (extents[i].begin < at) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: tensor %s starts at byte %llu of the data and overlaps %s, which ends at %llu",
                reader->path, extents[i].name, (unsigned long long)extents[i].begin, extents[i - 1].name,
                (unsigned long long)at);
        }
        if (extents[i].begin > at) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: bytes %llu to %llu before tensor %s belong to no tensor; holes are not allowed",
                reader->path, (unsigned long long)at, (unsigned long long)extents[i].begin, extents[i].name);
        }
        at = extents[i].end;
    }
    if (at != reader->data_bytes) {
        return ls_fail(LS_ERR_DATA,
                       "%s: its tensors end at byte %llu of the data, but the file has %llu bytes of data",
                       reader->path, (unsigned long long)at, (unsigned long long)reader->data_bytes);
    }
    return LS_OK;
}

static ls_status check_metadata(const header_reader *reader, const json_t *metadata)
{
    if (!json_is_object(metadata)) {
        return ls_fail(LS_ERR_DATA, "%s: __metadata__ must be a JSON object whose values are strings",
                       reader->path);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (!json_is_string(value)) {
            return ls_fail(LS_ERR_DATA, "%s: __metadata__.%s must be a string", reader->path, key);
        }
    }
    return LS_OK;
}

static ls_status read_entries(const header_reader *reader, const json_t *root, ls_safetensor **tensors_out,
                              size_t *count_out)
{
    const size_t capacity = json_object_size(root);
    ls_safetensor *tensors = ls_arena_new(reader->arena, ls_safetensor, capacity);
    extent *extents = ls_arena_new(reader->arena, extent, capacity);
    size_t count = 0;
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            LS_TRY(check_metadata(reader, entry));
            continue;
        }
        LS_TRY(read_tensor(reader, name, entry, &tensors[count]));
        const json_t *offsets = json_object_get(entry, "data_offsets");
        extents[count] = (extent){.begin = (uint64_t)json_integer_value(json_array_get(offsets, 0)),
                                  .end = (uint64_t)json_integer_value(json_array_get(offsets, 1)),
                                  .name = tensors[count].name};
        count++;
    }
    LS_TRY(check_extents(reader, extents, count));
    *tensors_out = tensors;
    *count_out = count;
    return LS_OK;
}

static ls_status parse_header(const header_reader *reader, const char *text, size_t bytes, json_t **root_out)
{
    if (bytes == 0 || text[0] != '{') {
        return ls_fail(LS_ERR_DATA, "%s is not a safetensors file: its header does not begin with {",
                       reader->path);
    }
    json_t *root = NULL;
    LS_TRY(ls_json_parse(text, bytes, reader->path, &root));
    if (!json_is_object(root)) {
        json_decref(root);
        return ls_fail(LS_ERR_DATA, "%s: its header must be a JSON object", reader->path);
    }
    *root_out = root;
    return LS_OK;
}

static ls_status read_file(ls_arena *arena, const char *path, const unsigned char *bytes, size_t byte_count,
                           ls_safetensor **tensors_out, size_t *count_out)
{
    uint64_t header_bytes = 0;
    if (byte_count < sizeof header_bytes) {
        return ls_fail(LS_ERR_DATA,
                       "%s is not a safetensors file: it has %zu bytes, fewer than the required 8", path,
                       byte_count);
    }
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    LS_TRY(ls_lfs_refuse(path, bytes, byte_count));
    if (header_bytes > LS_SAFETENSORS_HEADER_MAX) {
        return ls_fail(
            LS_ERR_DATA,
            "%s states a header of %llu bytes, but at most %d are allowed; is it a safetensors file?", path,
            (unsigned long long)header_bytes, LS_SAFETENSORS_HEADER_MAX);
    }
    if (header_bytes > byte_count - sizeof header_bytes) {
        return ls_fail(LS_ERR_DATA,
                       "%s states a header of %llu bytes, but the whole file has only %zu; was it truncated?",
                       path, (unsigned long long)header_bytes, byte_count);
    }
    const header_reader reader = {.arena = arena,
                                  .path = path,
                                  .data = bytes + sizeof header_bytes + header_bytes,
                                  .data_bytes = byte_count - sizeof header_bytes - header_bytes};
    json_t *root = NULL;
    LS_TRY(parse_header(&reader, (const char *)bytes + sizeof header_bytes, (size_t)header_bytes, &root));
    const ls_status status = read_entries(&reader, root, tensors_out, count_out);
    json_decref(root);
    return status;
}

/* ---- files and shards ---- */

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const ls_safetensor *)a)->name, ((const ls_safetensor *)b)->name);
}

static ls_status open_one(ls_safetensors *file, const char *path, ls_safetensor **tensors_out,
                          size_t *count_out)
{
    ls_file_map *map = &file->maps[file->map_count];
    LS_TRY(ls_file_map_open(path, map));
    file->map_count++;
    return read_file(&file->arena, path, map->data, map->bytes, tensors_out, count_out);
}

static ls_status open_single(ls_safetensors *file, const char *path)
{
    file->maps = ls_arena_new(&file->arena, ls_file_map, 1);
    LS_TRY(open_one(file, ls_arena_strdup(&file->arena, path), &file->tensors, &file->count));
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_tensors);
    return LS_OK;
}

/* Opens shard `name` and takes the tensors that the index maps to it. */
static ls_status open_shard(ls_safetensors *file, const char *index_path, const char *name,
                            const json_t *weight_map)
{
    if (strchr(name, '/') || name[0] == '.' || name[0] == '\0') {
        return ls_fail(LS_ERR_DATA, "%s: \"%s\" is not the name of a file in the same folder", index_path,
                       name);
    }
    const char *path = ls_path_join(&file->arena, ls_path_dirname(&file->arena, index_path), name);
    ls_safetensor *tensors = NULL;
    size_t count = 0;
    const ls_status status = open_one(file, path, &tensors, &count);
    if (status != LS_OK) {
        return ls_fail_within(status == LS_ERR_NOT_FOUND ? LS_ERR_DATA : status, "%s", index_path);
    }
    for (size_t i = 0; i < count; i++) {
        const char *mapped = json_string_value(json_object_get(weight_map, tensors[i].name));
        if (mapped && strcmp(mapped, name) == 0) {
            file->tensors[file->count++] = tensors[i];
        }
    }
    return LS_OK;
}

static ls_status open_weight_map(ls_safetensors *file, const char *index_path, const json_t *weight_map)
{
    const size_t wanted = json_object_size(weight_map);
    json_t *shards = json_object(); /* the set of shard names, in the order of the index */
    const char *name;
    json_t *shard;
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, shard)
    {
        if (!json_is_string(shard)) {
            json_decref(shards);
            return ls_fail(LS_ERR_DATA, "%s: the value of %s in weight_map must be a file name", index_path,
                           name);
        }
        json_object_set_new(shards, json_string_value(shard), json_null());
    }
    file->tensors = ls_arena_new(&file->arena, ls_safetensor, wanted);
    file->maps = ls_arena_new(&file->arena, ls_file_map, json_object_size(shards));
    ls_status status = LS_OK;
    json_object_foreach(shards, name, shard)
    {
        status = open_shard(file, index_path, name, weight_map);
        if (status != LS_OK) {
            break;
        }
    }
    json_decref(shards);
    LS_TRY(status);
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_tensors);
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, shard)
    {
        if (!ls_safetensors_find(file, name)) {
            return ls_fail(LS_ERR_DATA,
                           "%s: the index lists tensor %s in the file %s, but that file does not have it",
                           index_path, name, json_string_value(shard));
        }
    }
    return LS_OK;
}

static ls_status open_index(ls_safetensors *file, const char *path)
{
    json_t *root = NULL;
    LS_TRY(ls_json_load(path, LS_SAFETENSORS_HEADER_MAX, &root));
    const json_t *weight_map = json_object_get(root, "weight_map");
    const ls_status status =
        json_is_object(weight_map)
            ? open_weight_map(file, path, weight_map)
            : ls_fail(LS_ERR_DATA, "%s is not an index of safetensors files: it has no object \"weight_map\"",
                      path);
    json_decref(root);
    return status;
}

static ls_status open_folder(ls_safetensors *file, const char *path)
{
    const char *single = ls_path_join(&file->arena, path, "model.safetensors");
    if (ls_path_exists(single)) {
        return open_single(file, single);
    }
    const char *index = ls_path_join(&file->arena, path, "model.safetensors.index.json");
    if (ls_path_exists(index)) {
        return open_index(file, index);
    }
    return ls_fail(LS_ERR_NOT_FOUND, "%s has neither model.safetensors nor model.safetensors.index.json",
                   path);
}

static ls_safetensors *create(void)
{
    ls_safetensors *file = calloc(1, sizeof *file);
    LS_ASSERT(file);
    return file;
}

ls_status ls_safetensors_open(const char *path, ls_safetensors **file_out)
{
    LS_ASSERT(path && file_out);
    ls_safetensors *file = create();
    ls_status status;
    if (ls_path_is_dir(path)) {
        status = open_folder(file, path);
    } else if (ls_path_has_suffix(path, ".json")) {
        status = open_index(file, path);
    } else {
        status = open_single(file, path);
    }
    if (status != LS_OK) {
        ls_safetensors_close(file);
        return status;
    }
    *file_out = file;
    return LS_OK;
}

ls_status ls_safetensors_open_memory(const void *data, size_t bytes, const char *name,
                                     ls_safetensors **file_out)
{
    LS_ASSERT((data || bytes == 0) && name && file_out);
    ls_safetensors *file = create();
    const char *path = ls_arena_strdup(&file->arena, name);
    const ls_status status = read_file(&file->arena, path, data, bytes, &file->tensors, &file->count);
    if (status != LS_OK) {
        ls_safetensors_close(file);
        return status;
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_tensors);
    *file_out = file;
    return LS_OK;
}

void ls_safetensors_close(ls_safetensors *file)
{
    if (!file) {
        return;
    }
    for (size_t i = 0; i < file->map_count; i++) {
        ls_file_map_close(&file->maps[i]);
    }
    ls_arena_release(&file->arena);
    free(file);
}

size_t ls_safetensors_count(const ls_safetensors *file)
{
    return file->count;
}

const ls_safetensor *ls_safetensors_at(const ls_safetensors *file, size_t index)
{
    LS_ASSERT(index < file->count);
    return &file->tensors[index];
}

const ls_safetensor *ls_safetensors_find(const ls_safetensors *file, const char *name)
{
    const ls_safetensor key = {.name = name};
    return file->count ? bsearch(&key, file->tensors, file->count, sizeof key, compare_tensors) : NULL;
}
