// SPDX-License-Identifier: Apache-2.0
/* Opening, loading, verifying, and the state hash over a checkpoint on disk. */
#include "base/assert.h"
#include "base/file.h"
#include "storage/block_pool.h"
#include "storage/checkpoint.h"
#include "storage/checkpoint_files.h"
#include "storage/manifest.h"
#include "storage/state_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- open ---- */

/* ls_checkpoint with what it owns behind the public part. */
typedef struct checkpoint_owner {
    ls_checkpoint base;
    ls_manifest manifest;
} checkpoint_owner;

static ls_status check_size(const ls_checkpoint *checkpoint, ls_arena *arena, const char *name,
                            uint64_t bytes)
{
    const char *path = ls_path_join(arena, checkpoint->path, name);
    struct stat info;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? ls_fail(LS_ERR_DATA, "%s is missing, the manifest lists it", path)
                               : ls_fail_errno(errno, "can't look at %s", path);
    }
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != bytes) {
        return ls_fail(LS_ERR_DATA, "%s has %lld bytes, the manifest says %llu: truncated or replaced", path,
                       (long long)info.st_size, (unsigned long long)bytes);
    }
    return LS_OK;
}

static ls_status check_sizes(ls_checkpoint *checkpoint)
{
    const ls_manifest *manifest = checkpoint->manifest;
    for (size_t i = 0; i < manifest->file_count; i++) {
        LS_TRY(check_size(checkpoint, &checkpoint->arena, manifest->files[i].name, manifest->files[i].bytes));
    }
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        LS_TRY(check_size(checkpoint, &checkpoint->arena, manifest->attachments[i].name,
                          manifest->attachments[i].bytes));
    }
    return LS_OK;
}

static ls_status read_manifest(checkpoint_owner *owner)
{
    ls_arena *arena = &owner->base.arena;
    const char *path = ls_path_join(arena, owner->base.path, LS_MANIFEST_NAME);
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(arena, path, LS_MANIFEST_BYTES_MAX, &text, &bytes));
    LS_TRY(ls_manifest_decode(arena, text, bytes, path, &owner->manifest));
    owner->base.manifest = &owner->manifest;
    owner->base.meta = owner->manifest.meta;
    return LS_OK;
}

ls_status ls_checkpoint_open(const char *path, ls_checkpoint **checkpoint_out)
{
    LS_ASSERT(path && checkpoint_out);
    checkpoint_owner *owner = calloc(1, sizeof *owner);
    LS_ASSERT(owner);
    ls_checkpoint *checkpoint = &owner->base;
    checkpoint->path = ls_arena_strdup(&checkpoint->arena, path);
    ls_status status = read_manifest(owner);
    if (status == LS_OK) {
        status = check_sizes(checkpoint);
    }
    if (status != LS_OK) {
        ls_checkpoint_close(checkpoint);
        return status;
    }
    checkpoint->pinned = ls_path_exists(ls_path_join(&checkpoint->arena, path, LS_CHECKPOINT_PIN_NAME));
    *checkpoint_out = checkpoint;
    return LS_OK;
}

void ls_checkpoint_close(ls_checkpoint *checkpoint)
{
    if (!checkpoint) {
        return;
    }
    checkpoint_owner *owner = (checkpoint_owner *)checkpoint; /* base is its first member */
    ls_manifest_release(&owner->manifest);
    ls_arena_release(&checkpoint->arena);
    free(owner);
}

ls_status ls_checkpoint_check_identity(const ls_checkpoint *checkpoint, const char *identity)
{
    if (strcmp(checkpoint->meta.identity, identity) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%s belongs to another run: its identity is %.16s, this run's is %.16s (seed, data, "
                       "model, optimizer, "
                       "precision or leaves differ); use another run directory, or --fresh to start over",
                       checkpoint->path, checkpoint->meta.identity[0] ? checkpoint->meta.identity : "(none)",
                       identity);
    }
    return LS_OK;
}

uint64_t ls_checkpoint_parameters(const ls_checkpoint *checkpoint)
{
    return checkpoint->manifest->parameters;
}

bool ls_checkpoint_find(const ls_checkpoint *checkpoint, const char *name, uint32_t *rank_out,
                        uint64_t shape_out[LS_TENSOR_RANK_MAX])
{
    const ls_manifest_tensor *tensor = ls_manifest_find(checkpoint->manifest, LS_KIND_VALUE, name);
    if (!tensor) {
        return false;
    }
    *rank_out = tensor->rank;
    memcpy(shape_out, tensor->shape, sizeof tensor->shape);
    return true;
}

ls_status ls_checkpoint_attachment_read(const ls_checkpoint *checkpoint, ls_arena *arena, const char *name,
                                        char **data_out, size_t *bytes_out)
{
    const ls_manifest *manifest = checkpoint->manifest;
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        const ls_manifest_attachment *entry = &manifest->attachments[i];
        if (strcmp(entry->name, name) != 0) {
            continue;
        }
        char *data = NULL, hex[LS_SHA256_HEX_BYTES];
        size_t bytes = 0;
        const char *path = ls_path_join(arena, checkpoint->path, name);
        LS_TRY(ls_file_read(arena, path, (size_t)entry->bytes, &data, &bytes));
        ls_sha256_hex(data, bytes, hex);
        if (bytes != entry->bytes || strcmp(hex, entry->sha256) != 0) {
            return ls_fail(LS_ERR_DATA,
                           "%s: SHA-256 is %.12s..., the manifest says %.12s...: damaged or edited", path,
                           hex, entry->sha256);
        }
        *data_out = data;
        *bytes_out = bytes;
        return LS_OK;
    }
    return ls_fail(LS_ERR_NOT_FOUND, "%s has no attachment %s", checkpoint->path, name);
}

/* ---- reading blocks ---- */

/* Where the bytes of one tensor go; NULL: nowhere. */
typedef struct checkpoint_reader {
    const ls_checkpoint *checkpoint;
    const ls_manifest *manifest;
    ls_arena arena;
    int *fds;                /* per file, -1: not open */
    size_t *file_first;      /* per file: its first tensor in the table; files are runs of it. [file_count] =
                                tensor_count */
    unsigned char **targets; /* per tensor */
    ls_sha256 *sha256;       /* per file, verify only */
    ls_sha256 state;         /* state hash only */
    size_t parameter_count;  /* tensors of kind value: the first ones of the table */
    size_t state_parameter;  /* state hash: next parameter and kind to be hashed */
    ls_manifest_kind state_kind;
} checkpoint_reader;

static ls_status reader_open_file(checkpoint_reader *reader, size_t file)
{
    if (reader->fds[file] >= 0) {
        return LS_OK;
    }
    const ls_manifest_file *entry = &reader->manifest->files[file];
    const char *path = ls_path_join(&reader->arena, reader->checkpoint->path, entry->name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    reader->fds[file] = fd;
    char *header = malloc((size_t)entry->header_bytes);
    if (!header) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the header of %s", path);
    }
    ls_status status = ls_file_pread_all(fd, path, header, (size_t)entry->header_bytes, 0);
    const uint32_t crc = status == LS_OK ? ls_crc32c(0, header, (size_t)entry->header_bytes) : 0;
    if (status == LS_OK && crc != entry->header_crc) {
        status = ls_fail(LS_ERR_DATA,
                         "%s: its header (bytes 0 to %llu) has CRC32C %08x, the manifest says %08x: damaged",
                         path, (unsigned long long)entry->header_bytes, crc, entry->header_crc);
    }
    if (status == LS_OK && reader->sha256) {
        ls_sha256_update(&reader->sha256[file], header, (size_t)entry->header_bytes);
    }
    free(header);
    return status;
}

static void reader_init(checkpoint_reader *reader, const ls_checkpoint *checkpoint)
{
    const ls_manifest *manifest = checkpoint->manifest;
    *reader = (checkpoint_reader){.checkpoint = checkpoint, .manifest = manifest};
    reader->fds = ls_arena_new(&reader->arena, int, manifest->file_count);
    reader->file_first = ls_arena_new(&reader->arena, size_t, manifest->file_count + 1);
    reader->targets = ls_arena_new(&reader->arena, unsigned char *, manifest->tensor_count);
    for (size_t i = 0; i < manifest->file_count; i++) {
        reader->fds[i] = -1;
    }
}

static void reader_release(checkpoint_reader *reader)
{
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        if (reader->fds[i] >= 0) {
            close(reader->fds[i]);
        }
    }
    ls_arena_release(&reader->arena);
}

/* The part of a tensor that lies in a block. */
typedef struct block_slice {
    size_t tensor;
    uint64_t tensor_offset; /* bytes into the tensor */
    size_t block_offset;    /* bytes into the block */
    size_t bytes;
} block_slice;

/* The slice of tensor `index` in `block`, false when they don't meet. */
static bool slice_of(const ls_manifest_tensor *tensor, size_t index, const ls_block *block,
                     block_slice *slice_out)
{
    const uint64_t begin = tensor->offset > block->offset ? tensor->offset : block->offset;
    const uint64_t tensor_end = tensor->offset + tensor->bytes, block_end = block->offset + block->bytes;
    const uint64_t end = tensor_end < block_end ? tensor_end : block_end;
    if (tensor->file != block->file || begin >= end) {
        return false;
    }
    *slice_out = (block_slice){.tensor = index,
                               .tensor_offset = begin - tensor->offset,
                               .block_offset = (size_t)(begin - block->offset),
                               .bytes = (size_t)(end - begin)};
    return true;
}

/* The first tensor of the block's file that ends after the block starts; the following ones come in order. */
static size_t first_tensor(const checkpoint_reader *reader, const ls_block *block)
{
    size_t low = reader->file_first[block->file], high = reader->file_first[block->file + 1];
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const ls_manifest_tensor *tensor = &reader->manifest->tensors[middle];
        if (tensor->offset + tensor->bytes > block->offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* True while tensor `index` is in the block's file and starts before the block ends. */
static bool is_in_reach(const checkpoint_reader *reader, size_t index, const ls_block *block)
{
    return index < reader->file_first[block->file + 1] &&
           reader->manifest->tensors[index].offset < block->offset + block->bytes;
}

static ls_status block_read(void *context, const ls_block *block, unsigned char *buffer)
{
    checkpoint_reader *reader = context;
    const ls_manifest_file *file = &reader->manifest->files[block->file];
    LS_TRY(ls_file_pread_all(reader->fds[block->file], file->name, buffer, block->bytes, block->offset));
    const uint32_t crc = ls_crc32c(0, buffer, block->bytes);
    if (crc != file->block_crcs[block->index]) {
        const ls_manifest_tensor *tensor = &reader->manifest->tensors[first_tensor(reader, block)];
        return ls_fail(
            LS_ERR_DATA,
            "%s/%s: block %llu (bytes %llu to %llu, from tensor %s%s) has CRC32C %08x, the manifest says "
            "%08x: damaged on disk; use an older checkpoint",
            reader->checkpoint->path, file->name, (unsigned long long)block->index,
            (unsigned long long)block->offset, (unsigned long long)(block->offset + block->bytes),
            ls_manifest_kind_prefix(tensor->kind), tensor->name, crc, file->block_crcs[block->index]);
    }
    return LS_OK;
}

/* Where each file's run of tensors begins. Refuses a manifest whose files are not runs of the sorted table.
 */
static ls_status index_files(checkpoint_reader *reader)
{
    const ls_manifest *manifest = reader->manifest;
    while (reader->parameter_count < manifest->tensor_count &&
           manifest->tensors[reader->parameter_count].kind == LS_KIND_VALUE) {
        reader->parameter_count++;
    }
    size_t tensor = 0;
    for (size_t file = 0; file < manifest->file_count; file++) {
        reader->file_first[file] = tensor;
        while (tensor < manifest->tensor_count && manifest->tensors[tensor].file == file) {
            tensor++;
        }
    }
    reader->file_first[manifest->file_count] = tensor;
    if (tensor != manifest->tensor_count) {
        return ls_fail(LS_ERR_DATA, "%s/%s: tensor %s is not in the order of the files",
                       reader->checkpoint->path, LS_MANIFEST_NAME, manifest->tensors[tensor].name);
    }
    return LS_OK;
}

/* ---- load ---- */

static ls_status block_scatter(void *context, const ls_block *block, unsigned char *buffer)
{
    checkpoint_reader *reader = context;
    block_slice slice;
    for (size_t i = first_tensor(reader, block); is_in_reach(reader, i, block); i++) {
        if (reader->targets[i] && slice_of(&reader->manifest->tensors[i], i, block, &slice)) {
            memcpy(reader->targets[i] + slice.tensor_offset, buffer + slice.block_offset, slice.bytes);
        }
    }
    return LS_OK;
}

static bool is_wanted(const checkpoint_reader *reader, const ls_block *block)
{
    block_slice slice;
    for (size_t i = first_tensor(reader, block); is_in_reach(reader, i, block); i++) {
        if (reader->targets[i] && slice_of(&reader->manifest->tensors[i], i, block, &slice)) {
            return true;
        }
    }
    return false;
}

static ls_status aim_value(checkpoint_reader *reader, const ls_checkpoint_tensor *tensor)
{
    const ls_manifest *manifest = reader->manifest;
    const ls_manifest_tensor *entry = ls_manifest_find(manifest, LS_KIND_VALUE, tensor->name);
    if (!entry) {
        return ls_fail(LS_ERR_DATA, "%s has no tensor %s: another model?", reader->checkpoint->path,
                       tensor->name);
    }
    if (entry->rank != tensor->rank ||
        memcmp(entry->shape, tensor->shape, tensor->rank * sizeof *tensor->shape) != 0) {
        return ls_fail(LS_ERR_DATA, "%s: tensor %s has shape %s, the model needs %s",
                       reader->checkpoint->path, tensor->name,
                       ls_shape_text(&reader->arena, entry->shape, entry->rank),
                       ls_shape_text(&reader->arena, tensor->shape, tensor->rank));
    }
    unsigned char **target = &reader->targets[entry - manifest->tensors];
    if (*target) {
        return ls_fail(LS_ERR_INVALID, "tensor %s is asked for twice", tensor->name);
    }
    *target = (unsigned char *)tensor->value;
    return LS_OK;
}

static void aim_moment(checkpoint_reader *reader, const ls_checkpoint_tensor *tensor, ls_manifest_kind kind,
                       float *target)
{
    if (!target) {
        return;
    }
    const ls_manifest_tensor *entry = ls_manifest_find(reader->manifest, kind, tensor->name);
    if (entry) {
        reader->targets[entry - reader->manifest->tensors] = (unsigned char *)target;
    } else {
        memset(target, 0, (size_t)ls_manifest_find(reader->manifest, LS_KIND_VALUE, tensor->name)->bytes);
    }
}

static ls_status aim_all(checkpoint_reader *reader, const ls_checkpoint_tensor *tensors, size_t count,
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
            return ls_fail(LS_ERR_DATA, "%s has a tensor %s that the model does not: another model?",
                           reader->checkpoint->path, manifest->tensors[i].name);
        }
    }
    return LS_OK;
}

static ls_status load_aimed(checkpoint_reader *reader, unsigned threads)
{
    ls_block_work work = {.lane_count = (uint32_t)reader->manifest->file_count,
                          .threads = threads,
                          .context = reader,
                          .prepare = block_read,
                          .finish = block_scatter};
    size_t all = 0;
    work.blocks = ls_checkpoint_blocks(&reader->arena, reader->manifest, &all);
    for (size_t i = 0; i < all; i++) {
        if (is_wanted(reader, &work.blocks[i])) {
            LS_TRY(reader_open_file(reader, work.blocks[i].file));
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
    checkpoint_reader reader;
    reader_init(&reader, checkpoint);
    ls_status status = index_files(&reader);
    if (status == LS_OK) {
        status = aim_all(&reader, tensors, tensor_count, options->allow_partial);
    }
    if (status == LS_OK) {
        status = load_aimed(&reader, options->threads);
    }
    reader_release(&reader);
    return status;
}

/* ---- verify ---- */

static void block_sha256(void *context, const ls_block *block, const unsigned char *buffer)
{
    checkpoint_reader *reader = context;
    ls_sha256_update(&reader->sha256[block->file], buffer, block->bytes);
}

static ls_status verify_blocks(checkpoint_reader *reader, unsigned threads)
{
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        LS_TRY(reader_open_file(reader, i));
    }
    ls_block_work work = {.lane_count = (uint32_t)reader->manifest->file_count,
                          .threads = threads,
                          .context = reader,
                          .prepare = block_read,
                          .in_order = block_sha256};
    work.blocks = ls_checkpoint_blocks(&reader->arena, reader->manifest, &work.block_count);
    return ls_block_pool_run(&work);
}

static ls_status verify_sha256(checkpoint_reader *reader, ls_status status)
{
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        char hex[LS_SHA256_HEX_BYTES];
        ls_sha256_finish(&reader->sha256[i], hex);
        const ls_manifest_file *file = &reader->manifest->files[i];
        if (status == LS_OK && strcmp(hex, file->sha256) != 0) {
            status = ls_fail(LS_ERR_DATA, "%s/%s: SHA-256 is %.12s..., the manifest says %.12s...: damaged",
                             reader->checkpoint->path, file->name, hex, file->sha256);
        }
    }
    return status;
}

/* The data file, read as any other program would, says the same as the manifest. */
static ls_status verify_header(checkpoint_reader *reader, size_t index)
{
    const ls_manifest_file *file = &reader->manifest->files[index];
    const char *path = ls_path_join(&reader->arena, reader->checkpoint->path, file->name);
    ls_safetensors *tensors = NULL;
    LS_TRY(ls_safetensors_open(path, &tensors));
    const size_t first = reader->file_first[index], end = reader->file_first[index + 1];
    ls_status status = LS_OK;
    if (ls_safetensors_count(tensors) != end - first) {
        status = ls_fail(LS_ERR_DATA, "%s has %zu tensors, the manifest says %zu", path,
                         ls_safetensors_count(tensors), end - first);
    }
    for (size_t i = first; i < end && status == LS_OK; i++) {
        const ls_manifest_tensor *entry = &reader->manifest->tensors[i];
        const char *name =
            ls_arena_printf(&reader->arena, "%s%s", ls_manifest_kind_prefix(entry->kind), entry->name);
        const ls_safetensor *tensor = ls_safetensors_find(tensors, name);
        if (!tensor || tensor->dtype != LS_ST_F32 || tensor->bytes != entry->bytes ||
            tensor->rank != entry->rank || memcmp(tensor->shape, entry->shape, sizeof entry->shape) != 0) {
            status = ls_fail(LS_ERR_DATA, "%s: tensor %s is missing or not as the manifest says", path, name);
        }
    }
    ls_safetensors_close(tensors);
    return status;
}

static ls_status verify_rest(checkpoint_reader *reader)
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
    checkpoint_reader reader;
    reader_init(&reader, checkpoint);
    reader.sha256 = ls_arena_new(&reader.arena, ls_sha256, reader.manifest->file_count);
    for (size_t i = 0; i < reader.manifest->file_count; i++) {
        ls_sha256_init(&reader.sha256[i]);
    }
    ls_status status = index_files(&reader);
    if (status == LS_OK) {
        status = verify_blocks(&reader, threads);
    }
    status = verify_sha256(&reader, status);
    if (status == LS_OK) {
        status = verify_rest(&reader);
    }
    reader_release(&reader);
    return status;
}

/* ---- state hash ---- */

/*
 * The hash wants value, m, v of every parameter in order of names; the checkpoint may lack moments. The
 * cursor walks over (kind, parameter) and puts zeros where the table has nothing, up to but not including
 * tensor `until` (NULL: the end).
 */
static void state_advance(checkpoint_reader *reader, const ls_manifest_tensor *until)
{
    const ls_manifest *manifest = reader->manifest;
    while (reader->state_kind < LS_KIND_COUNT) {
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
            ls_state_hash_zeros(&reader->state, parameter->bytes);
        }
        reader->state_parameter++;
    }
}

static void block_state(void *context, const ls_block *block, const unsigned char *buffer)
{
    checkpoint_reader *reader = context;
    block_slice slice;
    for (size_t i = first_tensor(reader, block); is_in_reach(reader, i, block); i++) {
        const ls_manifest_tensor *tensor = &reader->manifest->tensors[i];
        if (!slice_of(tensor, i, block, &slice)) {
            continue;
        }
        if (slice.tensor_offset == 0) {
            state_advance(reader, tensor);
        }
        ls_sha256_update(&reader->state, buffer + slice.block_offset, slice.bytes);
    }
}

static int compare_blocks(const void *a, const void *b)
{
    const ls_block *x = a, *y = b;
    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

static ls_status state_blocks(checkpoint_reader *reader)
{
    LS_TRY(index_files(reader));
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        LS_TRY(reader_open_file(reader, i));
    }
    ls_block_work work = {.lane_count = 1, .context = reader, .prepare = block_read, .in_order = block_state};
    work.blocks = ls_checkpoint_blocks(&reader->arena, reader->manifest, &work.block_count);
    qsort(work.blocks, work.block_count, sizeof *work.blocks, compare_blocks);
    for (size_t i = 0; i < work.block_count; i++) {
        work.blocks[i].lane = 0; /* one hash over all files, in their order */
    }
    return ls_block_pool_run(&work);
}

ls_status ls_checkpoint_state_hash(const ls_checkpoint *checkpoint, char hex_out[LS_SHA256_HEX_BYTES])
{
    LS_ASSERT(checkpoint && hex_out);
    checkpoint_reader reader;
    reader_init(&reader, checkpoint);
    ls_sha256_init(&reader.state);
    const ls_status status = state_blocks(&reader);
    char hex[LS_SHA256_HEX_BYTES];
    if (status == LS_OK) {
        state_advance(&reader, NULL);
    }
    ls_sha256_update(&reader.state, &checkpoint->meta.step, sizeof checkpoint->meta.step);
    ls_sha256_finish(&reader.state, hex);
    if (status == LS_OK) {
        memcpy(hex_out, hex, sizeof hex);
    }
    reader_release(&reader);
    return status;
}
