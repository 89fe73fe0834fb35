// SPDX-License-Identifier: Apache-2.0
/* Loading, verifying, and the state hash over a checkpoint on disk. */
#include "base/assert.h"
#include "base/file.h"
#include "storage/checkpoint/block_pool.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/files.h"
#include "storage/checkpoint/manifest.h"
#include "storage/checkpoint/reader.h"
#include "storage/checkpoint/state_hash.h"

#include <string.h>

/* ---- load ---- */

/* Bytes of a tensor, of whole elements, as float32. */
static void floats_of(const ls_manifest_tensor *tensor, const unsigned char *from, size_t bytes,
                      unsigned char *to)
{
    const ls_safetensor part = {.name = tensor->name, .dtype = tensor->dtype, .bytes = bytes, .data = from};
    LS_ASSERT(ls_safetensor_to_f32(&part, (float *)(void *)to) == LS_OK);
}

/* The size as float32 of so many bytes in the file. */
static uint64_t widened(const ls_manifest_tensor *tensor, uint64_t bytes)
{
    return bytes / ls_st_dtype_bytes(tensor->dtype) * sizeof(float);
}

static ls_status block_scatter(void *context, const ls_block *block, unsigned char *buffer)
{
    ls_checkpoint_reader *reader = context;
    ls_block_slice slice;
    for (size_t at = ls_reader_first_position(reader, block); ls_reader_in_reach(reader, at, block); at++) {
        const size_t i = reader->members[at];
        if (reader->targets[i] && ls_reader_slice(reader, i, block, &slice)) {
            const ls_manifest_tensor *tensor = &reader->manifest->tensors[i];
            floats_of(tensor, buffer + slice.block_offset, slice.bytes,
                      reader->targets[i] + widened(tensor, slice.tensor_offset));
        }
    }
    return LS_OK;
}

static bool is_wanted(const ls_checkpoint_reader *reader, const ls_block *block)
{
    ls_block_slice slice;
    for (size_t at = ls_reader_first_position(reader, block); ls_reader_in_reach(reader, at, block); at++) {
        const size_t i = reader->members[at];
        if (reader->targets[i] && ls_reader_slice(reader, i, block, &slice)) {
            return true;
        }
    }
    return false;
}

/* A value, or further state. */
static ls_status aim_value(ls_checkpoint_reader *reader, const ls_checkpoint_tensor *tensor)
{
    const ls_manifest *manifest = reader->manifest;
    const ls_manifest_kind kind = tensor->state ? LS_KIND_STATE : LS_KIND_VALUE;
    const ls_manifest_tensor *entry = ls_manifest_find(manifest, kind, tensor->name);
    if (!entry) {
        return ls_fail(
            LS_ERR_DATA,
            "checkpoint %s has no tensor %s, which the %s needs: is it a checkpoint of another %s?",
            reader->checkpoint->path, tensor->name, tensor->state ? "run" : "model",
            tensor->state ? "run" : "model");
    }
    if (entry->rank != tensor->rank ||
        memcmp(entry->shape, tensor->shape, tensor->rank * sizeof *tensor->shape) != 0) {
        return ls_fail(LS_ERR_DATA, "checkpoint %s: tensor %s has shape %s, but the model needs %s",
                       reader->checkpoint->path, tensor->name,
                       ls_shape_text(&reader->arena, entry->shape, entry->rank),
                       ls_shape_text(&reader->arena, tensor->shape, tensor->rank));
    }
    unsigned char **target = &reader->targets[entry - manifest->tensors];
    if (*target) {
        return ls_fail(LS_ERR_INVALID, "tensor %s is requested twice", tensor->name);
    }
    *target = (unsigned char *)(tensor->state ? tensor->state : tensor->value);
    return LS_OK;
}

static void aim_moment(ls_checkpoint_reader *reader, const ls_checkpoint_tensor *tensor,
                       ls_manifest_kind kind, float *target)
{
    if (!target) {
        return;
    }
    const ls_manifest_tensor *entry = ls_manifest_find(reader->manifest, kind, tensor->name);
    if (entry) {
        reader->targets[entry - reader->manifest->tensors] = (unsigned char *)target;
    } else {
        const ls_manifest_tensor *value = ls_manifest_find(reader->manifest, LS_KIND_VALUE, tensor->name);
        memset(target, 0, (size_t)widened(value, value->bytes));
    }
}

static ls_status aim_all(ls_checkpoint_reader *reader, const ls_checkpoint_tensor *tensors, size_t count,
                         bool allow_partial)
{
    for (size_t i = 0; i < count; i++) {
        LS_TRY(aim_value(reader, &tensors[i]));
        aim_moment(reader, &tensors[i], LS_KIND_M, tensors[i].m);
        aim_moment(reader, &tensors[i], LS_KIND_V, tensors[i].v);
    }
    const ls_manifest *manifest = reader->manifest;
    for (size_t i = 0; i < manifest->tensor_count && !allow_partial; i++) {
        if (manifest->tensors[i].kind == LS_KIND_VALUE && !reader->targets[i]) {
            return ls_fail(LS_ERR_DATA,
                           "checkpoint %s has a tensor %s, which the model does not have: is it a checkpoint "
                           "of another model?",
                           reader->checkpoint->path, manifest->tensors[i].name);
        }
    }
    return LS_OK;
}

static ls_status load_aimed(ls_checkpoint_reader *reader, unsigned threads)
{
    ls_block_work work = {.lane_count = (uint32_t)reader->manifest->file_count,
                          .threads = threads,
                          .context = reader,
                          .prepare = ls_reader_block,
                          .finish = block_scatter};
    size_t all = 0;
    work.blocks = ls_checkpoint_blocks(&reader->arena, reader->manifest, &all);
    for (size_t i = 0; i < all; i++) {
        if (is_wanted(reader, &work.blocks[i])) {
            LS_TRY(ls_reader_open_file(reader, work.blocks[i].file));
            work.blocks[work.block_count++] = work.blocks[i];
        }
    }
    return ls_block_pool_run(&work);
}

ls_status ls_checkpoint_load(const ls_checkpoint *checkpoint, const ls_checkpoint_tensor *tensors,
                             size_t tensor_count, const ls_checkpoint_load_options *options)
{
    LS_ASSERT(checkpoint && (tensors || tensor_count == 0));
    const ls_checkpoint_load_options defaults = {0};
    options = options ? options : &defaults;
    ls_checkpoint_reader reader;
    ls_reader_init(&reader, checkpoint, options->calls);
    ls_status status = aim_all(&reader, tensors, tensor_count, options->allow_partial);
    if (status == LS_OK) {
        status = load_aimed(&reader, options->threads);
    }
    ls_reader_release(&reader);
    return status;
}

/* ---- verify ---- */

static void block_sha256(void *context, const ls_block *const blocks[2],
                         const unsigned char *const buffers[2], unsigned count)
{
    ls_sha256 *hashes = ((ls_checkpoint_reader *)context)->sha256;
    if (count == 1) {
        ls_sha256_update(&hashes[blocks[0]->file], buffers[0], blocks[0]->bytes);
        return;
    }
    ls_sha256_update_two(&hashes[blocks[0]->file], buffers[0], blocks[0]->bytes, &hashes[blocks[1]->file],
                         buffers[1], blocks[1]->bytes);
}

static ls_status verify_blocks(ls_checkpoint_reader *reader, unsigned threads)
{
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        LS_TRY(ls_reader_open_file(reader, i));
    }
    ls_block_work work = {.lane_count = (uint32_t)reader->manifest->file_count,
                          .threads = threads,
                          .context = reader,
                          .prepare = ls_reader_block,
                          .in_order = block_sha256};
    work.blocks = ls_checkpoint_blocks(&reader->arena, reader->manifest, &work.block_count);
    return ls_block_pool_run(&work);
}

static ls_status verify_sha256(ls_checkpoint_reader *reader, ls_status status)
{
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        char hex[LS_SHA256_HEX_BYTES];
        ls_sha256_finish(&reader->sha256[i], hex);
        const ls_manifest_file *file = &reader->manifest->files[i];
        if (status == LS_OK && strcmp(hex, file->sha256) != 0) {
            status = ls_fail(
                LS_ERR_DATA,
                "%s/%s is damaged: its SHA-256 is %.12s..., but the checkpoint's manifest lists %.12s...",
                reader->checkpoint->path, file->name, hex, file->sha256);
        }
    }
    return status;
}

/* Checks that the data file, read as any other program would, agrees with the manifest. */
static ls_status verify_header(ls_checkpoint_reader *reader, size_t index)
{
    const ls_manifest_file *file = &reader->manifest->files[index];
    const char *path = ls_path_join(&reader->arena, reader->checkpoint->path, file->name);
    ls_safetensors *tensors = NULL;
    LS_TRY(ls_safetensors_open(path, &tensors));
    const size_t first = reader->file_first[index], end = reader->file_first[index + 1];
    ls_status status = LS_OK;
    if (ls_safetensors_count(tensors) != end - first) {
        status = ls_fail(LS_ERR_DATA, "%s has %zu tensors, but the checkpoint's manifest lists %zu", path,
                         ls_safetensors_count(tensors), end - first);
    }
    for (size_t at = first; at < end && status == LS_OK; at++) {
        const ls_manifest_tensor *entry = &reader->manifest->tensors[reader->members[at]];
        const char *name =
            ls_arena_printf(&reader->arena, "%s%s", ls_manifest_kind_prefix(entry->kind), entry->name);
        const ls_safetensor *tensor = ls_safetensors_find(tensors, name);
        if (!tensor || tensor->dtype != entry->dtype || tensor->bytes != entry->bytes ||
            tensor->rank != entry->rank || memcmp(tensor->shape, entry->shape, sizeof entry->shape) != 0) {
            status = ls_fail(
                LS_ERR_DATA,
                "%s: tensor %s is missing, or its type or shape differs from the checkpoint's manifest", path,
                name);
        }
    }
    ls_safetensors_close(tensors);
    return status;
}

static ls_status verify_rest(ls_checkpoint_reader *reader)
{
    const ls_manifest *manifest = reader->manifest;
    for (size_t i = 0; i < manifest->file_count; i++) {
        LS_TRY(verify_header(reader, i));
    }
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        char *data = NULL;
        size_t bytes = 0;
        LS_TRY(ls_checkpoint_attachment_read(reader->checkpoint, &reader->arena,
                                             manifest->attachments[i].name, &data, &bytes));
    }
    return LS_OK;
}

ls_status ls_checkpoint_verify(const ls_checkpoint *checkpoint, unsigned threads)
{
    LS_ASSERT(checkpoint);
    ls_checkpoint_reader reader;
    ls_reader_init(&reader, checkpoint, NULL);
    reader.sha256 = ls_arena_new(&reader.arena, ls_sha256, reader.manifest->file_count);
    for (size_t i = 0; i < reader.manifest->file_count; i++) {
        ls_sha256_init(&reader.sha256[i]);
    }
    ls_status status = verify_blocks(&reader, threads);
    status = verify_sha256(&reader, status);
    if (status == LS_OK) {
        status = verify_rest(&reader);
    }
    ls_reader_release(&reader);
    return status;
}

/* ---- state hash ---- */

/*
 * The hash wants value, m, v of every parameter in order of names; the checkpoint may lack moments.
 * The cursor moves over (kind, parameter) and hashes zeros where the table has no tensor, up to but
 * not including tensor `until` (NULL: the end).
 */
static void state_advance(ls_checkpoint_reader *reader, const ls_manifest_tensor *until)
{
    const ls_manifest *manifest = reader->manifest;
    while (reader->state_kind < LS_KIND_STATE) {
        if (reader->state_parameter == reader->parameter_count) {
            reader->state_parameter = 0;
            reader->state_kind++;
            continue;
        }
        const ls_manifest_tensor *parameter = &manifest->tensors[reader->state_parameter];
        if (until && until->kind == reader->state_kind && strcmp(until->name, parameter->name) == 0) {
            break;
        }
        if (!ls_manifest_find(manifest, reader->state_kind, parameter->name)) {
            ls_state_hash_zeros(&reader->state, widened(parameter, parameter->bytes));
        }
        reader->state_parameter++;
    }
}

/* Parameters and moments are hashed: adds the step, and the digest of the base of an adapter. */
static void state_close(ls_checkpoint_reader *reader)
{
    const ls_checkpoint *checkpoint = reader->checkpoint;
    const char *base = ls_checkpoint_base_digest(checkpoint);
    if (reader->state_is_closed) {
        return;
    }
    state_advance(reader, NULL);
    reader->state_is_closed = true;
    ls_sha256_update(&reader->state, &checkpoint->meta.step, sizeof checkpoint->meta.step);
    if (base) {
        ls_sha256_update(&reader->state, base, strlen(base));
    }
}

static void hash_floats(ls_sha256 *hash, const ls_manifest_tensor *tensor, const unsigned char *from,
                        size_t bytes)
{
    enum { PART_BYTES = 8192 };
    _Alignas(16) unsigned char floats[2 * PART_BYTES];
    if (tensor->dtype == LS_ST_F32) {
        ls_sha256_update(hash, from, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += PART_BYTES) {
        const size_t part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        floats_of(tensor, from + at, part, floats);
        ls_sha256_update(hash, floats, (size_t)widened(tensor, part));
    }
}

/* A visit to a block: the tensors [first, past) of the table, which lie in its file. */
typedef struct state_visit {
    size_t first, past;
} state_visit;

/* There is one lane, so blocks are hashed one at a time. */
static void block_state(void *context, const ls_block *const blocks[2], const unsigned char *const buffers[2],
                        unsigned count)
{
    ls_checkpoint_reader *reader = context;
    const ls_block *block = blocks[0];
    const state_visit *visit = &reader->state_visits[block->turn];
    ls_block_slice slice;
    LS_ASSERT(count == 1);
    for (size_t i = visit->first; i < visit->past; i++) {
        const ls_manifest_tensor *tensor = &reader->manifest->tensors[i];
        if (!ls_reader_slice(reader, i, block, &slice)) {
            continue;
        }
        if (tensor->kind == LS_KIND_STATE) {
            state_close(reader);
        } else if (slice.tensor_offset == 0) {
            state_advance(reader, tensor);
        }
        hash_floats(&reader->state, tensor, buffers[0] + slice.block_offset, slice.bytes);
    }
}

/* The blocks in which a tensor begins and ends. */
static uint64_t block_of(const ls_manifest_file *file, uint64_t offset)
{
    return (offset - file->header_bytes) / LS_CHECKPOINT_BLOCK_BYTES;
}

/*
 * The visits in the order of the table: tensor after tensor, block after block. Neighbours in a
 * block are hashed in one visit; a block is visited again where tensors of other files come between
 * its own, as frozen ones do. Returns how many; blocks NULL: only counts.
 */
static size_t plan_visits(ls_checkpoint_reader *reader, ls_block *blocks)
{
    const ls_manifest *manifest = reader->manifest;
    size_t count = 0, file_before = SIZE_MAX;
    uint64_t index_before = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const ls_manifest_tensor *tensor = &manifest->tensors[i];
        const ls_manifest_file *file = &manifest->files[tensor->file];
        if (tensor->bytes == 0) {
            continue;
        }
        const uint64_t last = block_of(file, tensor->offset + tensor->bytes - 1);
        for (uint64_t k = block_of(file, tensor->offset); k <= last; k++) {
            const bool is_new = tensor->file != file_before || k != index_before;
            file_before = tensor->file;
            index_before = k;
            count += is_new;
            if (blocks && is_new) {
                const uint64_t offset = file->header_bytes + k * LS_CHECKPOINT_BLOCK_BYTES;
                const uint64_t left = file->bytes - offset;
                blocks[count - 1] = (ls_block){
                    .file = tensor->file,
                    .index = k,
                    .offset = offset,
                    .bytes = left < LS_CHECKPOINT_BLOCK_BYTES ? (size_t)left : LS_CHECKPOINT_BLOCK_BYTES};
                reader->state_visits[count - 1].first = i;
            }
            if (blocks) {
                reader->state_visits[count - 1].past = i + 1;
            }
        }
    }
    return count;
}

static ls_status state_blocks(ls_checkpoint_reader *reader)
{
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        LS_TRY(ls_reader_open_file(reader, i));
    }
    ls_block_work work = {.lane_count = 1, /* one hash over all files */
                          .block_count = plan_visits(reader, NULL),
                          .context = reader,
                          .prepare = ls_reader_block,
                          .in_order = block_state};
    work.blocks = ls_arena_new(&reader->arena, ls_block, work.block_count);
    reader->state_visits = ls_arena_new(&reader->arena, state_visit, work.block_count);
    (void)plan_visits(reader, work.blocks);
    return ls_block_pool_run(&work);
}

ls_status ls_checkpoint_state_hash(const ls_checkpoint *checkpoint, char hex_out[LS_SHA256_HEX_BYTES])
{
    LS_ASSERT(checkpoint && hex_out);
    ls_checkpoint_reader reader;
    ls_reader_init(&reader, checkpoint, NULL);
    ls_sha256_init(&reader.state);
    const ls_status status = state_blocks(&reader);
    char hex[LS_SHA256_HEX_BYTES];
    if (status == LS_OK) {
        state_close(&reader);
    }
    ls_sha256_finish(&reader.state, hex);
    if (status == LS_OK) {
        memcpy(hex_out, hex, sizeof hex);
    }
    ls_reader_release(&reader);
    return status;
}
