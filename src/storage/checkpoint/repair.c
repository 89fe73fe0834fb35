// SPDX-License-Identifier: Apache-2.0
/* Repair: rebuilds damaged files from parts that are still good, here or elsewhere. */
#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/files.h"
#include "storage/checkpoint/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MENDS_MAX = 4096, SIBLINGS_MAX = 4096 };

/* Another checkpoint, whose files may have the same bytes. */
typedef struct sibling {
    ls_checkpoint *checkpoint;
    ls_checkpoint_reader reader;
} sibling;

typedef struct repair {
    ls_arena *arena; /* the caller's */
    ls_arena scratch;
    const ls_checkpoint_repair_options *options;
    ls_checkpoint *checkpoint;
    ls_checkpoint_reader own;
    sibling *siblings;
    size_t sibling_count;
    bool has_siblings; /* siblings were looked for */
    unsigned char *buffer;
    ls_checkpoint_mend *mends; /* the first MENDS_MAX of them are listed */
    size_t mend_count;
    bool is_bad; /* a part of the current file was found elsewhere */
} repair;

/* ---- where good bytes may be ---- */

static void add_sibling(repair *self, const char *path)
{
    ls_checkpoint *checkpoint = NULL;
    if (self->sibling_count == SIBLINGS_MAX || strcmp(path, self->checkpoint->path) == 0 ||
        ls_checkpoint_open_manifest(path, &checkpoint) != LS_OK) {
        return;
    }
    sibling *one = &self->siblings[self->sibling_count++];
    one->checkpoint = checkpoint;
    ls_reader_init(&one->reader, checkpoint, self->options->calls);
}

static void add_siblings_in(repair *self, const char *root)
{
    char **names = NULL;
    size_t count = 0;
    uint64_t step = 0;
    if (!ls_path_is_dir(root) || ls_dir_list(&self->scratch, root, &names, &count) != LS_OK) {
        return;
    }
    for (size_t i = count; i-- > 0;) {
        if (ls_checkpoint_name_step(names[i], &step)) {
            add_sibling(self, ls_path_join(&self->scratch, root, names[i]));
        }
    }
}

/* Done only when damage is found, because most checkpoints never need it. */
static void find_siblings(repair *self)
{
    if (self->has_siblings) {
        return;
    }
    self->has_siblings = true;
    self->siblings = ls_arena_new(&self->scratch, sibling, SIBLINGS_MAX);
    const char *root = ls_path_dirname(&self->scratch, self->checkpoint->path);
    add_siblings_in(self, root);
    add_siblings_in(self, ls_path_join(&self->scratch, root, "weights"));
    if (strcmp(ls_path_basename(root), "weights") == 0) {
        add_siblings_in(self, ls_path_dirname(&self->scratch, root));
    }
}

/* The file of a sibling with the same content as file `index`, or SIZE_MAX. */
static size_t same_file(const repair *self, const sibling *other, size_t index)
{
    const ls_manifest_file *file = &self->checkpoint->manifest->files[index];
    for (size_t i = 0; i < other->checkpoint->manifest->file_count; i++) {
        const ls_manifest_file *candidate = &other->checkpoint->manifest->files[i];
        if (candidate->bytes == file->bytes && strcmp(candidate->sha256, file->sha256) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* ---- memory as a source ---- */

static const ls_checkpoint_tensor *find_in_memory(const repair *self, const char *name)
{
    for (size_t i = 0; i < self->options->memory_count; i++) {
        if (strcmp(self->options->memory[i].name, name) == 0) {
            return &self->options->memory[i];
        }
    }
    return NULL;
}

/* Assembles the block from tensors; false if they do not cover all of it. The CRC decides
 * whether it is right. */
static bool gather_from_memory(const repair *self, const ls_block *block, unsigned char *buffer)
{
    const ls_checkpoint_reader *own = &self->own;
    size_t done = 0;
    for (size_t at = ls_reader_first_position(own, block); ls_reader_in_reach(own, at, block); at++) {
        const size_t i = own->members[at];
        const ls_manifest_tensor *entry = &own->manifest->tensors[i];
        const ls_checkpoint_tensor *tensor = find_in_memory(self, entry->name);
        const float *member = !tensor                        ? NULL
                              : entry->kind == LS_KIND_VALUE ? tensor->value
                              : entry->kind == LS_KIND_M     ? tensor->m
                              : entry->kind == LS_KIND_V     ? tensor->v
                                                             : tensor->state;
        ls_block_slice slice;
        if (!ls_reader_slice(own, i, block, &slice)) {
            continue;
        }
        if (!member || tensor->rank != entry->rank ||
            memcmp(tensor->shape, entry->shape, tensor->rank * sizeof *tensor->shape) != 0) {
            return false;
        }
        memcpy(buffer + slice.block_offset, (const char *)member + slice.tensor_offset, slice.bytes);
        done += slice.bytes;
    }
    return done == block->bytes;
}

/* ---- one part of a file: its header, or a block ---- */

typedef struct file_part {
    size_t file;
    bool is_header;
    ls_block block; /* of a block; index is LS_CHECKPOINT_HEADER for the header */
} file_part;

static ls_status read_part(ls_checkpoint_reader *reader, size_t file, const file_part *part,
                           unsigned char *buffer)
{
    if (reader->files[file].fd < 0) {
        const ls_status status = ls_reader_open_file(reader, file);
        if (status != LS_OK && reader->files[file].fd < 0) {
            return status;
        }
    }
    if (part->is_header) {
        return ls_reader_header(reader, file, buffer);
    }
    ls_block block = part->block;
    block.file = (uint32_t)file;
    return ls_reader_block(reader, &block, buffer);
}

static void note_mend(repair *self, const file_part *part, const char *problem, const char *source)
{
    const char *name = self->checkpoint->manifest->files[part->file].name;
    self->is_bad = true;
    if (self->mend_count < MENDS_MAX) {
        self->mends[self->mend_count++] =
            (ls_checkpoint_mend){.file = ls_arena_strdup(self->arena, name),
                                 .block = part->is_header ? LS_CHECKPOINT_HEADER : part->block.index,
                                 .problem = problem,
                                 .source = ls_arena_strdup(self->arena, source)};
    }
}

/* The part's good bytes, from any source. Errors: that of the checkpoint's own file. */
static ls_status find_part(repair *self, const file_part *part, unsigned char *buffer)
{
    const ls_status status = read_part(&self->own, part->file, part, buffer);
    if (status == LS_OK) {
        return LS_OK;
    }
    const char *problem = ls_arena_strdup(self->arena, ls_error_text());
    find_siblings(self);
    for (size_t i = 0; i < self->sibling_count; i++) {
        sibling *other = &self->siblings[i];
        const size_t file = same_file(self, other, part->file);
        if (file != SIZE_MAX && read_part(&other->reader, file, part, buffer) == LS_OK) {
            note_mend(self, part, problem,
                      ls_path_join(&self->scratch, other->checkpoint->path,
                                   other->checkpoint->manifest->files[file].name));
            return LS_OK;
        }
    }
    const uint32_t crc =
        part->is_header ? 0 : self->checkpoint->manifest->files[part->file].block_crcs[part->block.index];
    if (!part->is_header && gather_from_memory(self, &part->block, buffer) &&
        ls_crc32c(0, buffer, part->block.bytes) == crc) {
        note_mend(self, part, problem, "memory");
        return LS_OK;
    }
    return ls_fail(status == LS_ERR_NOT_FOUND ? LS_ERR_DATA : status, "%s; no good copy of it was found",
                   problem);
}

/* ---- a file ---- */

static file_part block_part(const ls_manifest_file *file, size_t index, uint64_t k)
{
    const uint64_t offset = file->header_bytes + k * LS_CHECKPOINT_BLOCK_BYTES, left = file->bytes - offset;
    return (file_part){
        .file = index,
        .block = {.file = (uint32_t)index,
                  .index = k,
                  .offset = offset,
                  .bytes = left < LS_CHECKPOINT_BLOCK_BYTES ? (size_t)left : LS_CHECKPOINT_BLOCK_BYTES}};
}

/* Goes over all parts of a file; fd >= 0: writes them there. sha256_out: of the whole file. */
static ls_status walk_parts(repair *self, size_t index, int fd, const char *path,
                            char sha256_out[LS_SHA256_HEX_BYTES])
{
    const ls_manifest_file *file = &self->checkpoint->manifest->files[index];
    const file_part header = {.file = index, .is_header = true};
    unsigned char *header_buffer = ls_reader_header_buffer(&self->own, index);
    if (!header_buffer) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the header of %s", file->name);
    }
    ls_sha256 sha256;
    ls_sha256_init(&sha256);
    ls_status status = find_part(self, &header, header_buffer);
    if (status == LS_OK) {
        ls_sha256_update(&sha256, header_buffer, (size_t)file->header_bytes);
        status = fd >= 0 ? ls_file_pwrite_all(fd, path, header_buffer, (size_t)file->header_bytes, 0) : LS_OK;
    }
    free(header_buffer);
    for (uint64_t k = 0; k < file->block_count && status == LS_OK; k++) {
        const file_part part = block_part(file, index, k);
        status = find_part(self, &part, self->buffer);
        if (status == LS_OK) {
            ls_sha256_update(&sha256, self->buffer, part.block.bytes);
            status = fd >= 0 ? ls_file_pwrite_all(fd, path, self->buffer, part.block.bytes, part.block.offset)
                             : LS_OK;
        }
    }
    ls_sha256_finish(&sha256, sha256_out);
    return status;
}

/* Gives a rebuilt file its final name: syncs the file, renames it, then syncs the folder. */
static ls_status put_in_place(repair *self, int fd, const char *temporary, const char *path)
{
    if (fsync(fd) != 0) {
        return ls_fail_errno(errno, "can't flush %s to disk", temporary);
    }
    if (rename(temporary, path) != 0) {
        return ls_fail_errno(errno, "can't rename %s to %s", temporary, path);
    }
    return ls_dir_sync(self->checkpoint->path);
}

static ls_status write_anew(repair *self, size_t index)
{
    const ls_manifest_file *file = &self->checkpoint->manifest->files[index];
    const char *path = ls_path_join(&self->scratch, self->checkpoint->path, file->name);
    const char *temporary = ls_arena_printf(&self->scratch, "%s.mend-%d", path, (int)getpid());
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't create %s", temporary);
    }
    char sha256[LS_SHA256_HEX_BYTES];
    ls_status status = walk_parts(self, index, fd, temporary, sha256);
    if (status == LS_OK && strcmp(sha256, file->sha256) != 0) {
        status = ls_fail(LS_ERR_DATA,
                         "%s can't be repaired: each of its blocks matches its checksum, but the SHA-256 of "
                         "the whole file is %.12s... and the checkpoint's manifest lists %.12s...",
                         path, sha256, file->sha256);
    }
    if (status == LS_OK) {
        status = put_in_place(self, fd, temporary, path);
    }
    close(fd);
    if (status != LS_OK) {
        unlink(temporary);
    }
    return status;
}

static bool has_size(repair *self, const char *name, uint64_t bytes)
{
    struct stat info;
    return stat(ls_path_join(&self->scratch, self->checkpoint->path, name), &info) == 0 &&
           (uint64_t)info.st_size == bytes;
}

/* First pass: only looks, which also finds the good bytes. Repairs are recorded only after they
 * are written. */
static ls_status repair_file(repair *self, size_t index)
{
    const ls_manifest_file *file = &self->checkpoint->manifest->files[index];
    char sha256[LS_SHA256_HEX_BYTES];
    const size_t before = self->mend_count;
    self->is_bad = false;
    LS_TRY(walk_parts(self, index, -1, NULL, sha256));
    if (!self->is_bad && has_size(self, file->name, file->bytes)) {
        return strcmp(sha256, file->sha256) == 0
                   ? LS_OK
                   : ls_fail(LS_ERR_DATA,
                             "%s/%s is damaged: its SHA-256 is %.12s..., but the checkpoint's manifest lists "
                             "%.12s...",
                             self->checkpoint->path, file->name, sha256, file->sha256);
    }
    self->mend_count = before;
    return write_anew(self, index);
}

/* ---- attachments ---- */

static ls_status repair_attachment(repair *self, const ls_manifest_attachment *entry)
{
    char *data = NULL;
    size_t bytes = 0;
    const ls_status status =
        ls_checkpoint_attachment_read(self->checkpoint, &self->scratch, entry->name, &data, &bytes);
    if (status == LS_OK) {
        return LS_OK;
    }
    const char *problem = ls_arena_strdup(self->arena, ls_error_text());
    find_siblings(self);
    for (size_t i = 0; i < self->sibling_count; i++) {
        const ls_checkpoint *other = self->siblings[i].checkpoint;
        for (size_t k = 0; k < other->manifest->attachment_count; k++) {
            const ls_manifest_attachment *candidate = &other->manifest->attachments[k];
            if (strcmp(candidate->sha256, entry->sha256) == 0 &&
                ls_checkpoint_attachment_read(other, &self->scratch, candidate->name, &data, &bytes) ==
                    LS_OK) {
                const char *source = ls_path_join(self->arena, other->path, candidate->name);
                LS_TRY(ls_file_write_atomic(ls_path_join(&self->scratch, self->checkpoint->path, entry->name),
                                            data, bytes));
                self->mends[self->mend_count++] =
                    (ls_checkpoint_mend){.file = ls_arena_strdup(self->arena, entry->name),
                                         .block = LS_CHECKPOINT_HEADER,
                                         .problem = problem,
                                         .source = source};
                return LS_OK;
            }
        }
    }
    return ls_fail(status == LS_ERR_NOT_FOUND ? LS_ERR_DATA : status, "%s; no good copy of it was found",
                   problem);
}

/* ---- all of it ---- */

static ls_status repair_all(repair *self)
{
    const ls_manifest *manifest = self->checkpoint->manifest;
    for (size_t i = 0; i < manifest->file_count; i++) {
        LS_TRY(repair_file(self, i));
    }
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        LS_TRY(repair_attachment(self, &manifest->attachments[i]));
    }
    return LS_OK;
}

static void repair_release(repair *self)
{
    ls_reader_release(&self->own);
    for (size_t i = 0; i < self->sibling_count; i++) {
        ls_reader_release(&self->siblings[i].reader);
        ls_checkpoint_close(self->siblings[i].checkpoint);
    }
    ls_checkpoint_close(self->checkpoint);
    free(self->buffer);
    ls_arena_release(&self->scratch);
}

ls_status ls_checkpoint_repair(ls_arena *arena, const char *path, const ls_checkpoint_repair_options *options,
                               ls_checkpoint_mend **mends_out, size_t *count_out)
{
    LS_ASSERT(arena && path && mends_out && count_out);
    const ls_checkpoint_repair_options defaults = {0};
    repair self = {.arena = arena, .options = options ? options : &defaults};
    LS_TRY(ls_checkpoint_open_manifest(path, &self.checkpoint));
    ls_reader_init(&self.own, self.checkpoint, self.options->calls);
    self.mends =
        ls_arena_new(arena, ls_checkpoint_mend, MENDS_MAX + self.checkpoint->manifest->attachment_count);
    self.buffer = aligned_alloc(4096, LS_CHECKPOINT_BLOCK_BYTES);
    const ls_status status = self.buffer
                                 ? repair_all(&self)
                                 : ls_fail(LS_ERR_MEMORY, "not enough memory for a block of the checkpoint");
    for (size_t i = 0; i < self.mend_count; i++) {
        ls_log_warn("checkpoint %s: repaired: %s; good bytes came from %s", path, self.mends[i].problem,
                    self.mends[i].source);
    }
    *mends_out = self.mends;
    *count_out = self.mend_count;
    repair_release(&self);
    return status;
}
