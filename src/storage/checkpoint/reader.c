// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/reader.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    /* smaller files stay in the page cache: `sample` reads them again and again */
    SECTOR_BYTES = 4096,
    DIRECT_FROM_BYTES = 16 << 20,
    CACHE_PROBES = 16,
};

/* ---- files ---- */

/* Whether the page cache already has the file, judged by a few of its pages. */
static bool is_cached(int fd, uint64_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return false;
    }
    unsigned found = 0;
    for (uint64_t i = 0; i < CACHE_PROBES; i++) {
        unsigned char resident = 0;
        const uint64_t at = bytes / CACHE_PROBES * i / page * page;
        found += mincore(map + at, 1, &resident) == 0 && (resident & 1);
    }
    munmap(map, (size_t)bytes);
    return found >= CACHE_PROBES - 1;
}

static ls_status open_data(ls_checkpoint_reader *reader, const char *path, uint64_t bytes,
                           ls_reader_file *file)
{
    const ls_read_calls *calls = reader->calls;
    int fd = calls->open(calls->context, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    file->direct = false;
    if (fd >= 0 && bytes >= DIRECT_FROM_BYTES && !is_cached(fd, bytes)) {
        const int direct = calls->open(calls->context, path, O_RDONLY | O_NOFOLLOW | O_DIRECT);
        if (direct >= 0) {
            (void)calls->close(calls->context, fd);
            fd = direct;
            file->direct = true;
        }
    }
    if (fd < 0) {
        return ls_fail_errno(-fd, "can't open %s", path);
    }
    file->fd = fd;
    return LS_OK;
}

/* Reads `bytes` at `offset`. With O_DIRECT, file offset, buffer and length are multiples of a
 * sector, and only the end of the file cuts the last sector short. */
static ls_status read_all(const ls_checkpoint_reader *reader, const ls_reader_file *file, const char *path,
                          unsigned char *buffer, size_t bytes, uint64_t offset)
{
    const ls_read_calls *calls = reader->calls;
    const size_t room = file->direct ? (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES : bytes;
    size_t done = 0;
    while (done < bytes) {
        const int64_t got =
            calls->read_at(calls->context, file->fd, buffer + done, room - done, offset + done);
        if (got == -EINTR) {
            continue;
        }
        if (got < 0) {
            return ls_fail_errno((int)-got, "can't read %s at byte %llu", path,
                                 (unsigned long long)(offset + done));
        }
        const size_t next = done + (size_t)got;
        const size_t aligned = file->direct && next < bytes ? next / SECTOR_BYTES * SECTOR_BYTES : next;
        if (aligned == done) {
            return ls_fail(
                LS_ERR_DATA,
                "%s is incomplete: it ends at byte %llu, but the checkpoint's manifest lists more bytes",
                path, (unsigned long long)(offset + next));
        }
        done = aligned;
    }
    return LS_OK;
}

ls_status ls_reader_header(ls_checkpoint_reader *reader, size_t index, unsigned char *buffer)
{
    const ls_manifest_file *entry = &reader->manifest->files[index];
    const size_t bytes = (size_t)entry->header_bytes;
    LS_TRY(read_all(reader, &reader->files[index], entry->name, buffer, bytes, 0));
    const uint32_t crc = ls_crc32c(0, buffer, bytes);
    if (crc != entry->header_crc) {
        return ls_fail(LS_ERR_DATA,
                       "%s/%s is damaged: the CRC32C checksum of its header (its first %zu bytes) is %08x, "
                       "but the checkpoint's manifest lists %08x",
                       reader->checkpoint->path, entry->name, bytes, crc, entry->header_crc);
    }
    return LS_OK;
}

static ls_status check_header(ls_checkpoint_reader *reader, size_t index)
{
    unsigned char *header = ls_reader_header_buffer(reader, index);
    if (!header) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the header of %s",
                       reader->manifest->files[index].name);
    }
    const ls_status status = ls_reader_header(reader, index, header);
    if (status == LS_OK && reader->sha256) {
        ls_sha256_update(&reader->sha256[index], header, (size_t)reader->manifest->files[index].header_bytes);
    }
    free(header);
    return status;
}

unsigned char *ls_reader_header_buffer(const ls_checkpoint_reader *reader, size_t index)
{
    const size_t bytes = (size_t)reader->manifest->files[index].header_bytes;
    return aligned_alloc(SECTOR_BYTES, (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES);
}

ls_status ls_reader_open_file(ls_checkpoint_reader *reader, size_t index)
{
    if (reader->files[index].fd >= 0) {
        return LS_OK;
    }
    const ls_manifest_file *entry = &reader->manifest->files[index];
    const char *path = ls_path_join(&reader->arena, reader->checkpoint->path, entry->name);
    LS_TRY(open_data(reader, path, entry->bytes, &reader->files[index]));
    return check_header(reader, index);
}

/* The table is sorted by kind and name, and within a file by offset, so one pass fills in the
 * positions of all files. */
static void index_files(ls_checkpoint_reader *reader)
{
    const ls_manifest *manifest = reader->manifest;
    size_t *next = reader->file_first + 1; /* next position of each file */
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        reader->parameter_count += manifest->tensors[i].kind == LS_KIND_VALUE;
        next[manifest->tensors[i].file]++;
    }
    for (size_t file = 0, first = 0; file < manifest->file_count; file++) {
        const size_t count = next[file];
        next[file] = first;
        first += count;
    }
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        reader->members[next[manifest->tensors[i].file]++] = i;
    }
}

void ls_reader_init(ls_checkpoint_reader *reader, const ls_checkpoint *checkpoint, const ls_read_calls *calls)
{
    const ls_manifest *manifest = checkpoint->manifest;
    *reader = (ls_checkpoint_reader){
        .checkpoint = checkpoint, .manifest = manifest, .calls = calls ? calls : ls_read_calls_system()};
    reader->files = ls_arena_new(&reader->arena, ls_reader_file, manifest->file_count);
    reader->members = ls_arena_new(&reader->arena, size_t, manifest->tensor_count);
    reader->file_first = ls_arena_new(&reader->arena, size_t, manifest->file_count + 1);
    reader->targets = ls_arena_new(&reader->arena, unsigned char *, manifest->tensor_count);
    for (size_t i = 0; i < manifest->file_count; i++) {
        reader->files[i].fd = -1;
    }
    index_files(reader);
}

void ls_reader_release(ls_checkpoint_reader *reader)
{
    for (size_t i = 0; i < reader->manifest->file_count; i++) {
        if (reader->files[i].fd >= 0) {
            (void)reader->calls->close(reader->calls->context, reader->files[i].fd);
        }
    }
    ls_arena_release(&reader->arena);
}

/* ---- blocks ---- */

bool ls_reader_slice(const ls_checkpoint_reader *reader, size_t index, const ls_block *block,
                     ls_block_slice *slice_out)
{
    const ls_manifest_tensor *tensor = &reader->manifest->tensors[index];
    const uint64_t begin = tensor->offset > block->offset ? tensor->offset : block->offset;
    const uint64_t tensor_end = tensor->offset + tensor->bytes, block_end = block->offset + block->bytes;
    const uint64_t end = tensor_end < block_end ? tensor_end : block_end;
    if (tensor->file != block->file || begin >= end) {
        return false;
    }
    *slice_out = (ls_block_slice){.tensor = index,
                                  .tensor_offset = begin - tensor->offset,
                                  .block_offset = (size_t)(begin - block->offset),
                                  .bytes = (size_t)(end - begin)};
    return true;
}

static const ls_manifest_tensor *tensor_at(const ls_checkpoint_reader *reader, size_t position)
{
    return &reader->manifest->tensors[reader->members[position]];
}

size_t ls_reader_first_position(const ls_checkpoint_reader *reader, const ls_block *block)
{
    size_t low = reader->file_first[block->file], high = reader->file_first[block->file + 1];
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const ls_manifest_tensor *tensor = tensor_at(reader, middle);
        if (tensor->offset + tensor->bytes > block->offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

bool ls_reader_in_reach(const ls_checkpoint_reader *reader, size_t position, const ls_block *block)
{
    return position < reader->file_first[block->file + 1] &&
           tensor_at(reader, position)->offset < block->offset + block->bytes;
}

ls_status ls_reader_block(void *context, const ls_block *block, unsigned char *buffer)
{
    ls_checkpoint_reader *reader = context;
    const ls_manifest_file *file = &reader->manifest->files[block->file];
    LS_TRY(read_all(reader, &reader->files[block->file], ls_path_basename(file->name), buffer, block->bytes,
                    block->offset));
    const uint32_t crc = ls_crc32c(0, buffer, block->bytes);
    if (crc != file->block_crcs[block->index]) {
        const ls_manifest_tensor *tensor = tensor_at(reader, ls_reader_first_position(reader, block));
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
