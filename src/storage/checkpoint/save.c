// SPDX-License-Identifier: Apache-2.0
/*
 * Saving: plan (pure: which bytes go where), fill (the block pool), describe (attachments,
 * manifest); storage/checkpoint/commit.h makes a checkpoint from the three.
 */
#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "storage/checkpoint/block_pool.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/commit.h"
#include "storage/checkpoint/files.h"
#include "storage/checkpoint/manifest.h"
#include "storage/checkpoint/state_hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SECTOR_BYTES = 4096, SHORT_WRITES_MAX = 8 };
static const uint64_t DEFAULT_FILE_BYTES = 2ull << 30;

/* A tensor's place in the data of a file. */
typedef struct save_piece {
    const float *data;
    uint64_t offset; /* from the start of the data */
    uint64_t bytes;
} save_piece;

typedef struct save_file {
    ls_manifest_file *entry; /* in the manifest */
    save_piece *pieces;
    size_t piece_count;
    uint64_t data_bytes;
    ls_st_dtype dtype; /* of all its tensors */
    bool frozen;       /* as are all its tensors */
    char *header;
    bool linked;    /* linked from an older checkpoint: nothing is written */
    int64_t number; /* file number of the env, while it is filled */
    const char *path;
    ls_sha256 sha256;
} save_file;

typedef struct checkpoint_saver {
    ls_arena *arena;
    ls_env *env;
    const ls_checkpoint_save_options *options;
    ls_manifest manifest;
    bool *frozen; /* per tensor of the manifest */
    uint32_t value_files;
    save_file *files;
    ls_commit_text *texts;
    size_t text_count;
    double start_s;
    ls_checkpoint_save_done done;
    void *context;
} checkpoint_saver;

/* ---- plan ---- */

static const float *member_of(const ls_checkpoint_tensor *tensor, ls_manifest_kind kind)
{
    const float *const members[LS_KIND_COUNT] = {tensor->value, tensor->m, tensor->v, tensor->state};
    return members[kind];
}

static ls_status check_tensors(const ls_checkpoint_save_options *options)
{
    if (options->tensor_count == 0) {
        return ls_fail(LS_ERR_INVALID, "a checkpoint needs at least one tensor");
    }
    for (size_t i = 0; i < options->tensor_count; i++) {
        const ls_checkpoint_tensor *tensor = &options->tensors[i];
        if (tensor->state && !tensor->value && !tensor->m && !tensor->v && !options->bf16_values) {
            continue;
        }
        if (!tensor->value || !tensor->m != !tensor->v || tensor->state) {
            return ls_fail(LS_ERR_INVALID,
                           "tensor %s: a checkpoint needs its value, and either both of the optimizer's "
                           "moments (m and v) or none, or further state and nothing else",
                           tensor->name);
        }
        if (tensor->frozen && tensor->m) {
            return ls_fail(LS_ERR_INVALID,
                           "tensor %s is frozen, so it must not have optimizer moments (m and v)",
                           tensor->name);
        }
        if (options->bf16_values && tensor->m) {
            return ls_fail(LS_ERR_INVALID,
                           "tensor %s has optimizer moments (m and v), but a checkpoint with bfloat16 values "
                           "is only for using the model, not for resuming, and must not have any",
                           tensor->name);
        }
    }
    return LS_OK;
}

static ls_status check_attachments(const ls_checkpoint_save_options *options)
{
    for (size_t i = 0; i < options->attachment_count; i++) {
        const char *name = options->attachments[i].name;
        if (!ls_manifest_name_is_plain(name) || strcmp(name, LS_MANIFEST_NAME) == 0 ||
            strcmp(name, LS_CHECKPOINT_PIN_NAME) == 0 || ls_path_has_suffix(name, ".safetensors") ||
            strcmp(name, LS_CHECKPOINT_INDEX_NAME) == 0) {
            return ls_fail(LS_ERR_INVALID,
                           "a file can't be attached to a checkpoint as \"%s\": that is not a plain file "
                           "name, or the checkpoint itself uses it",
                           name);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(name, options->attachments[j].name) == 0) {
                return ls_fail(LS_ERR_INVALID, "attachment %s is given twice", name);
            }
        }
    }
    return LS_OK;
}

/* The table of all tensors, sorted by kind and name; files and offsets come later. */
static ls_status plan_tensors(checkpoint_saver *saver, const float ***data_out)
{
    const size_t count = saver->options->tensor_count;
    const ls_checkpoint_tensor **sorted = NULL;
    LS_TRY(ls_checkpoint_sort(saver->arena, saver->options->tensors, count, &sorted));
    ls_manifest *manifest = &saver->manifest;
    manifest->tensors = ls_arena_new(saver->arena, ls_manifest_tensor, LS_KIND_COUNT * count);
    const float **data = ls_arena_new(saver->arena, const float *, LS_KIND_COUNT *count);
    saver->frozen = ls_arena_new(saver->arena, bool, LS_KIND_COUNT *count);
    for (int kind = LS_KIND_VALUE; kind < LS_KIND_COUNT; kind++) {
        for (size_t i = 0; i < count; i++) {
            const float *member = member_of(sorted[i], (ls_manifest_kind)kind);
            if (!member) {
                continue;
            }
            ls_manifest_tensor *tensor = &manifest->tensors[manifest->tensor_count];
            saver->frozen[manifest->tensor_count] = sorted[i]->frozen;
            data[manifest->tensor_count++] = member;
            tensor->name = sorted[i]->name;
            tensor->kind = (ls_manifest_kind)kind;
            tensor->rank = sorted[i]->rank;
            memcpy(tensor->shape, sorted[i]->shape, tensor->rank * sizeof *tensor->shape);
            tensor->dtype = saver->options->bf16_values ? LS_ST_BF16 : LS_ST_F32;
            const uint64_t elements = ls_checkpoint_tensor_bytes(sorted[i]) / sizeof(float);
            tensor->bytes = elements * ls_st_dtype_bytes(tensor->dtype);
            manifest->parameters += kind == LS_KIND_VALUE ? elements : 0;
        }
    }
    *data_out = data;
    return LS_OK;
}

/* How many tensors of the table are of a kind before `kind`. */
static size_t count_before(const ls_manifest *manifest, ls_manifest_kind kind)
{
    size_t count = 0;
    while (count < manifest->tensor_count && manifest->tensors[count].kind < kind) {
        count++;
    }
    return count;
}

/*
 * Assigns files to the tensors of [begin, end) that are frozen (or not frozen), filling each file
 * up to the limit; returns the number of files used. First and second moments never share a file:
 * so a checkpoint of any size has three sets of files of equal length, which are hashed side by
 * side.
 */
static uint32_t plan_cut(checkpoint_saver *saver, size_t begin, size_t end, bool frozen, uint32_t first_file)
{
    const uint64_t limit =
        saver->options->file_bytes_max ? saver->options->file_bytes_max : DEFAULT_FILE_BYTES;
    const ls_manifest_tensor *before = NULL;
    uint32_t used = 0;
    uint64_t filled = 0;
    for (size_t i = begin; i < end; i++) {
        ls_manifest_tensor *tensor = &saver->manifest.tensors[i];
        if (saver->frozen[i] != frozen) {
            continue;
        }
        const bool is_full = filled > 0 && tensor->bytes > limit - (filled < limit ? filled : limit);
        if (!before || is_full || tensor->kind != before->kind) {
            used++;
            filled = 0;
        }
        tensor->file = first_file + used - 1;
        filled += tensor->bytes;
        before = tensor;
    }
    return used;
}

/* members: its tensors in the table. */
static ls_status plan_header(checkpoint_saver *saver, save_file *file, const size_t *members)
{
    ls_safetensor *entries = ls_arena_new(saver->arena, ls_safetensor, file->piece_count);
    for (size_t i = 0; i < file->piece_count; i++) {
        const ls_manifest_tensor *tensor = &saver->manifest.tensors[members[i]];
        const char *prefix = ls_manifest_kind_prefix(tensor->kind);
        entries[i] = (ls_safetensor){.name = ls_arena_printf(saver->arena, "%s%s", prefix, tensor->name),
                                     .dtype = tensor->dtype,
                                     .rank = tensor->rank};
        memcpy(entries[i].shape, tensor->shape, sizeof entries[i].shape);
    }
    ls_st_header header;
    LS_TRY(ls_safetensors_header(saver->arena, entries, file->piece_count, SECTOR_BYTES, &header));
    for (size_t i = 0; i < file->piece_count; i++) {
        /* one dtype, sorted names: the order in the file is that of the table */
        LS_ASSERT(header.order[i] == i);
    }
    file->header = header.data;
    file->entry->header_bytes = header.bytes;
    file->entry->header_crc = ls_crc32c(0, header.data, header.bytes);
    return LS_OK;
}

/* Fills in one file: pieces, header, offsets. */
static ls_status plan_file(checkpoint_saver *saver, uint32_t index, const float *const *data)
{
    ls_manifest *manifest = &saver->manifest;
    save_file *file = &saver->files[index];
    size_t *members = ls_arena_new(saver->arena, size_t, manifest->tensor_count);
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        if (manifest->tensors[i].file == index) {
            members[file->piece_count++] = i;
        }
    }
    file->entry = &manifest->files[index];
    file->dtype = manifest->tensors[members[0]].dtype;
    file->frozen = saver->frozen[members[0]];
    file->pieces = ls_arena_new(saver->arena, save_piece, file->piece_count);
    LS_TRY(plan_header(saver, file, members));
    for (size_t i = 0; i < file->piece_count; i++) {
        ls_manifest_tensor *tensor = &manifest->tensors[members[i]];
        file->pieces[i] =
            (save_piece){.data = data[members[i]], .offset = file->data_bytes, .bytes = tensor->bytes};
        tensor->offset = file->entry->header_bytes + file->data_bytes;
        file->data_bytes += tensor->bytes;
    }
    ls_manifest_file *entry = file->entry;
    entry->bytes = entry->header_bytes + file->data_bytes;
    entry->block_count = (file->data_bytes + LS_CHECKPOINT_BLOCK_BYTES - 1) / LS_CHECKPOINT_BLOCK_BYTES;
    entry->block_crcs = ls_arena_new(saver->arena, uint32_t, entry->block_count);
    manifest->data_bytes += entry->bytes;
    return LS_OK;
}

static void name_files(checkpoint_saver *saver, const char *stem, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        saver->manifest.files[first + i].name =
            count == 1 ? ls_arena_printf(saver->arena, "%s.safetensors", stem)
                       : ls_arena_printf(saver->arena, "%s-%05u-of-%05u.safetensors", stem, i + 1, count);
    }
}

static ls_status plan(checkpoint_saver *saver)
{
    const ls_checkpoint_save_options *options = saver->options;
    LS_TRY(check_tensors(options));
    LS_TRY(check_attachments(options));
    const float **data = NULL;
    LS_TRY(plan_tensors(saver, &data));
    ls_manifest *manifest = &saver->manifest;
    manifest->meta = *options->meta;
    /* Frozen tensors follow in files of their own, which are the same in every checkpoint of the
     * run. */
    const size_t values = count_before(manifest, LS_KIND_M);
    const size_t states = count_before(manifest, LS_KIND_STATE);
    const uint32_t trained_files = plan_cut(saver, 0, values, false, 0);
    const uint32_t model_files = trained_files + plan_cut(saver, 0, values, true, trained_files);
    const uint32_t optimizer_files = plan_cut(saver, values, states, false, model_files);
    const uint32_t before_state = model_files + optimizer_files;
    const uint32_t state_files = plan_cut(saver, states, manifest->tensor_count, false, before_state);
    saver->value_files = model_files;
    manifest->file_count = before_state + state_files;
    manifest->files = ls_arena_new(saver->arena, ls_manifest_file, manifest->file_count);
    saver->files = ls_arena_new(saver->arena, save_file, manifest->file_count);
    name_files(saver, "model", 0, model_files);
    name_files(saver, "optimizer", model_files, optimizer_files);
    name_files(saver, "state", before_state, state_files);
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        LS_TRY(plan_file(saver, i, data));
    }
    return LS_OK;
}

/* ---- write ---- */

/* The last piece that starts at or before data byte `begin`. */
static size_t find_piece(const save_file *file, uint64_t begin)
{
    size_t low = 0, high = file->piece_count;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        *(file->pieces[middle].offset <= begin ? &low : &high) = middle;
    }
    return low;
}

/* ---- what goes into a file ---- */

/* Bytes [skip, skip + bytes) of a piece as the file has it. */
static void copy_out(const save_file *file, const save_piece *piece, uint64_t skip, size_t bytes,
                     unsigned char *to)
{
    if (file->dtype == LS_ST_F32) {
        memcpy(to, (const char *)piece->data + skip, bytes);
        return;
    }
    /* pieces are read in whole elements, so all offsets are even */
    const size_t each = ls_st_dtype_bytes(file->dtype);
    LS_ASSERT(ls_safetensor_from_f32(file->dtype, piece->data + skip / each, bytes / each, to) == LS_OK);
}

/* Copies data bytes [begin, begin + bytes) of a file out of the tensors. */
static void gather(const save_file *file, uint64_t begin, size_t bytes, unsigned char *buffer)
{
    size_t done = 0;
    for (size_t i = find_piece(file, begin); done < bytes; i++) {
        LS_ASSERT(i < file->piece_count);
        const save_piece *piece = &file->pieces[i];
        const uint64_t skip = begin + done - piece->offset;
        if (skip >= piece->bytes) {
            continue; /* empty, or the search stopped before a run of empty ones */
        }
        const uint64_t left = piece->bytes - skip;
        const size_t part = left < bytes - done ? (size_t)left : bytes - done;
        copy_out(file, piece, skip, part, buffer + done);
        done += part;
    }
}

enum {
    PIECE_BYTES = 8 * 3 * 4096 /* small enough that it is still in the cache when it is used */
};

/* Whether these bytes from `offset` of an older checkpoint's file are what would be written. */
static bool file_is_same(void *context, size_t index, uint64_t offset, const void *data, size_t bytes)
{
    const checkpoint_saver *saver = context;
    const save_file *file = &saver->files[index];
    const uint64_t header_bytes = file->entry->header_bytes;
    const unsigned char *at = data;
    if ((offset | bytes) % ls_st_dtype_bytes(file->dtype) != 0) {
        return false; /* cut off in the middle of an element */
    }
    while (bytes > 0) {
        unsigned char buffer[PIECE_BYTES];
        const uint64_t left = offset < header_bytes ? header_bytes - offset : bytes;
        const size_t most = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        const size_t part = left < most ? (size_t)left : most;
        if (offset < header_bytes) {
            memcpy(buffer, file->header + offset, part);
        } else {
            gather(file, offset - header_bytes, part, buffer);
        }
        if (memcmp(buffer, at, part) != 0) {
            ls_log_warn("%s of an older checkpoint is not what it should be near byte %llu, so it is written "
                        "again instead of linked; 'lockstep checkpoint verify' checks the older one",
                        file->entry->name, (unsigned long long)offset);
            return false;
        }
        at += part;
        offset += part;
        bytes -= part;
    }
    return true;
}

static ls_status block_prepare(void *context, const ls_block *block, unsigned char *buffer)
{
    checkpoint_saver *saver = context;
    save_file *file = &saver->files[block->file];
    const uint64_t begin = block->index * LS_CHECKPOINT_BLOCK_BYTES;
    uint32_t crc = 0;
    for (size_t at = 0; at < block->bytes; at += PIECE_BYTES) {
        const size_t part = block->bytes - at < PIECE_BYTES ? block->bytes - at : PIECE_BYTES;
        gather(file, begin + at, part, buffer + at);
        crc = ls_crc32c(crc, buffer + at, part);
    }
    file->entry->block_crcs[block->index] = crc;
    return LS_OK;
}

static void block_in_order(void *context, const ls_block *const blocks[2],
                           const unsigned char *const buffers[2], unsigned count)
{
    checkpoint_saver *saver = context;
    ls_sha256 *first = &saver->files[blocks[0]->file].sha256;
    if (count == 1) {
        ls_sha256_update(first, buffers[0], blocks[0]->bytes);
        return;
    }
    ls_sha256_update_two(first, buffers[0], blocks[0]->bytes, &saver->files[blocks[1]->file].sha256,
                         buffers[1], blocks[1]->bytes);
}

/* ---- writing it ---- */

/* Whole sectors at multiples of a sector, as O_DIRECT requires; a short write is continued where
 * its last whole sector ends. */
static ls_status write_sectors(checkpoint_saver *saver, const save_file *file, const unsigned char *data,
                               size_t bytes, uint64_t offset)
{
    unsigned stuck = 0;
    for (size_t done = 0; done < bytes;) {
        const int64_t wrote =
            ls_env_disk_write_now(saver->env, file->number, data + done, bytes - done, offset + done);
        const size_t next = wrote > 0 ? (size_t)wrote / SECTOR_BYTES * SECTOR_BYTES : 0;
        stuck = next > 0 ? 0 : stuck + 1;
        if (wrote < 0 || stuck == SHORT_WRITES_MAX) {
            return ls_fail_errno(wrote < 0 ? (int)-wrote : EIO, "can't write %s at byte %llu", file->path,
                                 (unsigned long long)(offset + done));
        }
        done += next;
    }
    return LS_OK;
}

/* The commit cuts off the excess at the end. */
static ls_status block_finish(void *context, const ls_block *block, unsigned char *buffer)
{
    checkpoint_saver *saver = context;
    if (saver->files[block->file].linked) {
        return LS_OK;
    }
    const size_t bytes = (block->bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
    memset(buffer + block->bytes, 0, bytes - block->bytes);
    return write_sectors(saver, &saver->files[block->file], buffer, bytes, block->offset);
}

static ls_status write_header(checkpoint_saver *saver, save_file *file)
{
    const size_t bytes = (size_t)file->entry->header_bytes;
    void *aligned = aligned_alloc(SECTOR_BYTES, bytes);
    if (!aligned) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a header of %zu bytes", bytes);
    }
    memcpy(aligned, file->header, bytes);
    ls_sha256_update(&file->sha256, file->header, bytes);
    const ls_status status = file->linked ? LS_OK : write_sectors(saver, file, aligned, bytes, 0);
    free(aligned);
    return status;
}

/* Relative position of a block's middle in its file, used to interleave the files evenly. */
typedef struct block_place {
    ls_block block;
    double progress;
} block_place;

static int compare_places(const void *a, const void *b)
{
    const block_place *x = a, *y = b;
    if (x->progress != y->progress) {
        return x->progress < y->progress ? -1 : 1;
    }
    return (x->block.file > y->block.file) - (x->block.file < y->block.file);
}

ls_block *ls_checkpoint_blocks(ls_arena *arena, const ls_manifest *manifest, size_t *count_out)
{
    size_t count = 0;
    for (size_t i = 0; i < manifest->file_count; i++) {
        count += (size_t)manifest->files[i].block_count;
    }
    block_place *places = ls_arena_new(arena, block_place, count);
    size_t at = 0;
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        const ls_manifest_file *file = &manifest->files[i];
        for (uint64_t k = 0; k < file->block_count; k++) {
            const uint64_t offset = file->header_bytes + k * LS_CHECKPOINT_BLOCK_BYTES,
                           left = file->bytes - offset;
            places[at].progress = ((double)k + 0.5) / (double)file->block_count;
            places[at++].block = (ls_block){
                .file = i,
                .lane = i,
                .index = k,
                .offset = offset,
                .bytes = left < LS_CHECKPOINT_BLOCK_BYTES ? (size_t)left : LS_CHECKPOINT_BLOCK_BYTES,
            };
        }
    }
    qsort(places, count, sizeof *places, compare_places);
    ls_block *blocks = ls_arena_new(arena, ls_block, count);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = places[i].block;
    }
    *count_out = count;
    return blocks;
}

static ls_status write_data(checkpoint_saver *saver)
{
    ls_manifest *manifest = &saver->manifest;
    for (size_t i = 0; i < manifest->file_count; i++) {
        LS_TRY(write_header(saver, &saver->files[i]));
    }
    ls_block_work work = {
        .lane_count = (uint32_t)manifest->file_count,
        .threads = saver->options->threads,
        .context = saver,
        .prepare = block_prepare,
        .in_order = block_in_order,
        .finish = block_finish,
    };
    work.blocks = ls_checkpoint_blocks(saver->arena, manifest, &work.block_count);
    return ls_block_pool_run(&work);
}

/* Blocks until the data files are written; callers that want to continue meanwhile save on a
 * separate thread. */
static void fill(void *context, ls_commit *commit)
{
    checkpoint_saver *saver = context;
    for (size_t i = 0; i < saver->manifest.file_count; i++) {
        saver->files[i].linked = ls_commit_is_linked(commit, i);
        saver->files[i].number = ls_commit_file_number(commit, i);
        saver->files[i].path = ls_commit_file_path(commit, i);
        ls_sha256_init(&saver->files[i].sha256);
    }
    const ls_status status = write_data(saver);
    for (size_t i = 0; i < saver->manifest.file_count; i++) {
        ls_sha256_finish(&saver->files[i].sha256, saver->files[i].entry->sha256);
    }
    ls_commit_filled(commit, status);
}

/* ---- attachments and manifest ---- */

static void add_text(checkpoint_saver *saver, const char *name, const void *data, size_t bytes)
{
    saver->texts[saver->text_count++] = (ls_commit_text){.name = name, .data = data, .bytes = bytes};
}

static void add_attachment(checkpoint_saver *saver, const char *name, const void *data, size_t bytes)
{
    ls_manifest_attachment *entry = &saver->manifest.attachments[saver->manifest.attachment_count++];
    entry->name = name;
    entry->bytes = bytes;
    ls_sha256_hex(data, bytes, entry->sha256);
    add_text(saver, name, data, bytes);
}

/* Hugging Face's index over the cut model files, so that any tool opens the folder. */
static ls_status add_index(checkpoint_saver *saver)
{
    const ls_manifest *manifest = &saver->manifest;
    json_t *weight_map = json_object();
    for (size_t i = 0; i < manifest->tensor_count && manifest->tensors[i].kind == LS_KIND_VALUE; i++) {
        json_object_set_new(weight_map, manifest->tensors[i].name,
                            json_string(manifest->files[manifest->tensors[i].file].name));
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                  (json_int_t)(manifest->parameters * ls_st_dtype_bytes(manifest->tensors[0].dtype)),
                  "weight_map", weight_map);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) {
        return ls_fail(LS_ERR_INVALID, "a tensor name is not UTF-8");
    }
    add_attachment(saver, LS_CHECKPOINT_INDEX_NAME, ls_arena_strdup(saver->arena, text), strlen(text));
    free(text);
    return LS_OK;
}

static ls_status add_attachments(checkpoint_saver *saver)
{
    const ls_checkpoint_save_options *options = saver->options;
    saver->manifest.attachments =
        ls_arena_new(saver->arena, ls_manifest_attachment, options->attachment_count + 1);
    saver->texts = ls_arena_new(saver->arena, ls_commit_text, options->attachment_count + 2);
    for (size_t i = 0; i < options->attachment_count; i++) {
        const ls_checkpoint_attachment *attachment = &options->attachments[i];
        add_attachment(saver, attachment->name, attachment->data, attachment->bytes);
    }
    return saver->value_files > 1 ? add_index(saver) : LS_OK;
}

static ls_status describe(void *context, const ls_commit_text **texts_out, size_t *count_out)
{
    checkpoint_saver *saver = context;
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(add_attachments(saver));
    LS_TRY(ls_manifest_encode(&saver->manifest, &text, &bytes));
    add_text(saver, LS_MANIFEST_NAME, ls_arena_strndup(saver->arena, text, bytes), bytes);
    free(text);
    *texts_out = saver->texts;
    *count_out = saver->text_count;
    return LS_OK;
}

/* ---- save ---- */

static void committed(void *context, ls_status status)
{
    checkpoint_saver *saver = context;
    uint64_t linked_bytes = 0;
    for (size_t i = 0; i < saver->manifest.file_count; i++) {
        linked_bytes += saver->files[i].linked ? saver->manifest.files[i].bytes : 0;
    }
    const ls_checkpoint_saved saved = {.bytes = saver->manifest.data_bytes,
                                       .linked_bytes = linked_bytes,
                                       .wall_s = 1e-9 * (double)ls_env_now_ns(saver->env) - saver->start_s};
    if (status != LS_OK) {
        status = ls_fail_within(status, "checkpoint of step %llu not saved",
                                (unsigned long long)saver->options->meta->step);
    }
    saver->done(saver->context, status, &saved);
}

ls_status ls_checkpoint_save_start(ls_env *env, ls_arena *arena, const ls_checkpoint_save_options *options,
                                   ls_checkpoint_save_done done, void *context)
{
    LS_ASSERT(options && options->root && options->meta && options->meta->identity &&
              options->meta->determinism);
    checkpoint_saver *saver = ls_arena_new(arena, checkpoint_saver, 1);
    *saver = (checkpoint_saver){.arena = arena,
                                .env = env,
                                .options = options,
                                .start_s = 1e-9 * (double)ls_env_now_ns(env),
                                .done = done,
                                .context = context};
    LS_TRY(plan(saver));
    ls_commit_file *files = ls_arena_new(arena, ls_commit_file, saver->manifest.file_count);
    for (size_t i = 0; i < saver->manifest.file_count; i++) {
        files[i] = (ls_commit_file){.name = saver->manifest.files[i].name,
                                    .bytes = saver->manifest.files[i].bytes,
                                    .shared = saver->files[i].frozen};
    }
    const ls_commit_options commit = {.env = env,
                                      .root = options->root,
                                      .step = options->meta->step,
                                      .files = files,
                                      .file_count = saver->manifest.file_count,
                                      .context = saver,
                                      .same = file_is_same,
                                      .fill = fill,
                                      .describe = describe,
                                      .done = committed};
    ls_commit_start(arena, &commit);
    return LS_OK;
}

/* State of a save that runs its own loop. */
typedef struct blocking_save {
    ls_env *env;
    ls_status status;
    ls_checkpoint_saved *saved_out;
} blocking_save;

static void save_ended(void *context, ls_status status, const ls_checkpoint_saved *saved)
{
    blocking_save *self = context;
    self->status = status;
    if (status == LS_OK && self->saved_out) {
        *self->saved_out = *saved;
    }
    ls_env_stop(self->env, 0);
}

ls_status ls_checkpoint_save(const ls_checkpoint_save_options *options, ls_checkpoint_saved *saved_out)
{
    LS_ASSERT(options && options->root);
    ls_arena arena = {0};
    blocking_save self = {.saved_out = saved_out};
    LS_TRY(ls_env_real_create(&self.env));
    ls_status status = ls_checkpoint_save_start(self.env, &arena, options, save_ended, &self);
    if (status == LS_OK) {
        ls_env_run(self.env);
        status = self.status;
    }
    ls_env_real_destroy(self.env);
    ls_arena_release(&arena);
    return status;
}
