// SPDX-License-Identifier: Apache-2.0
#include "data/token_format.h"

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "data/conversation/samples.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ull;

static const char MAGIC[8] = {'L', 'S', 'T', 'O', 'K', 'E', 'N', 'S'};
enum { HEADER_CRC_BYTES = LS_TOKEN_HEADER_BYTES - 4 };

static uint64_t block_count_of(uint64_t token_count, uint64_t id_bytes)
{
    return (token_count * id_bytes + LS_TOKENS_BLOCK_BYTES - 1) / LS_TOKENS_BLOCK_BYTES;
}

/* How many numbers the file has for each document. */
static uint64_t tables_of(const ls_token_header *header)
{
    return header->flags & LS_TOKEN_FILE_RECORDS ? 3 : 1;
}

/* ---- writing --------------------------------------------------------------------------------- */

ls_status ls_token_writer_init(ls_token_writer *writer, int fd, const char *path, uint32_t id_bytes)
{
    LS_ASSERT(id_bytes == 2 || id_bytes == 4);
    *writer = (ls_token_writer){.fd = fd, .path = path, .id_bytes = id_bytes};
    if (lseek(fd, LS_TOKEN_HEADER_BYTES, SEEK_SET) < 0) {
        return ls_fail_errno(errno, "can't write %s", path);
    }
    const char *slash = strrchr(path, '/');
    writer->folder = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    writer->block = malloc(LS_TOKENS_BLOCK_BYTES);
    if (!writer->block || !writer->folder) {
        ls_token_writer_release(writer);
        return ls_fail(LS_ERR_MEMORY, "can't write %s: not enough memory for a block of tokens", path);
    }
    return LS_OK;
}

void ls_token_writer_release(ls_token_writer *writer)
{
    free(writer->block);
    ls_spill_release(&writer->start_table);
    ls_spill_release(&writer->origin_table);
    free(writer->folder);
    free(writer->crcs);
    *writer = (ls_token_writer){.fd = -1};
}

static ls_status flush_block(ls_token_writer *writer)
{
    if (writer->block_bytes == 0) {
        return LS_OK;
    }
    LS_TRY(ls_list_grow(&writer->crcs, writer->crc_count, &writer->crc_capacity, sizeof *writer->crcs));
    writer->crcs[writer->crc_count++] = ls_crc32c(0, writer->block, writer->block_bytes);
    LS_TRY(ls_file_write_all(writer->fd, writer->path, writer->block, writer->block_bytes));
    writer->block_bytes = 0;
    return LS_OK;
}

/* Copies as many ids as the block has room for. Returns how many. */
static uint64_t fill_block(ls_token_writer *writer, const int32_t *ids, uint64_t count)
{
    const uint64_t room = (LS_TOKENS_BLOCK_BYTES - writer->block_bytes) / writer->id_bytes;
    const uint64_t take = count < room ? count : room;
    unsigned char *to = writer->block + writer->block_bytes;
    for (uint64_t i = 0; i < take; i++) {
        const uint32_t id = (uint32_t)ids[i];
        const uint32_t plain = writer->origins ? (uint32_t)ls_token_id(ids[i]) : id;
        writer->id_max = plain > writer->id_max ? plain : writer->id_max;
        if (writer->id_bytes == 2) {
            ((uint16_t *)(void *)to)[i] = (uint16_t)id;
        } else {
            ((uint32_t *)(void *)to)[i] = id;
        }
    }
    writer->block_bytes += take * writer->id_bytes;
    return take;
}

ls_status ls_token_writer_continue(ls_token_writer *writer, const int32_t *ids, uint64_t count,
                                   uint64_t text_bytes)
{
    if (count > 0 && writer->start_count == 0) {
        return ls_token_writer_add(writer, ids, count, text_bytes);
    }
    while (count > 0) {
        const uint64_t took = fill_block(writer, ids, count);
        ids += took;
        count -= took;
        writer->token_count += took;
        if (writer->block_bytes == LS_TOKENS_BLOCK_BYTES) {
            LS_TRY(flush_block(writer));
        }
    }
    LS_ASSERT(writer->id_bytes == 4 || writer->id_max < 65536);
    writer->text_bytes += text_bytes;
    return LS_OK;
}

ls_status ls_token_writer_add(ls_token_writer *writer, const int32_t *ids, uint64_t count,
                              uint64_t text_bytes)
{
    if (count > 0) {
        LS_TRY(ls_spill_reserve(&writer->start_table, writer->folder,
                                (writer->start_count + 1) * sizeof *writer->starts));
        writer->starts = writer->start_table.data;
        writer->starts[writer->start_count++] = writer->token_count;
    }
    return ls_token_writer_continue(writer, ids, count, text_bytes);
}

ls_status ls_token_writer_add_sample(ls_token_writer *writer, const int32_t *ids, uint64_t count,
                                     uint64_t text_bytes, ls_token_origin origin)
{
    LS_ASSERT(writer->id_bytes == 4 && count > 0);
    LS_TRY(ls_spill_reserve(&writer->origin_table, writer->folder,
                            (writer->start_count + 1) * sizeof *writer->origins));
    writer->origins = writer->origin_table.data;
    writer->origins[writer->start_count] = origin;
    return ls_token_writer_add(writer, ids, count, text_bytes);
}

static ls_status write_tail(ls_token_writer *writer, const ls_token_header *header)
{
    static const unsigned char zeros[8] = {0};
    const uint64_t ids_end = LS_TOKEN_HEADER_BYTES + writer->token_count * writer->id_bytes;
    LS_TRY(ls_file_write_all(writer->fd, writer->path, zeros, header->starts_offset - ids_end));
    LS_TRY(ls_file_write_all(writer->fd, writer->path, writer->starts,
                             writer->start_count * sizeof *writer->starts));
    if (writer->origins) {
        LS_TRY(ls_file_write_all(writer->fd, writer->path, writer->origins,
                                 writer->start_count * sizeof *writer->origins));
    }
    return ls_file_write_all(writer->fd, writer->path, writer->crcs,
                             writer->crc_count * sizeof *writer->crcs);
}

ls_status ls_token_writer_finish(ls_token_writer *writer, const char *key, const char *content_hash)
{
    LS_ASSERT(strlen(key) == LS_TOKEN_KEY_BYTES && strlen(content_hash) == LS_TOKEN_KEY_BYTES);
    LS_TRY(flush_block(writer));
    ls_token_header header = {.version = LS_TOKEN_FORMAT_VERSION,
                              .id_bytes = writer->id_bytes,
                              .token_count = writer->token_count,
                              .document_count = writer->start_count,
                              .text_bytes = writer->text_bytes,
                              .id_max = writer->id_max,
                              .left_count = writer->left_count,
                              .flags = (writer->origins ? LS_TOKEN_FILE_RECORDS : 0U) |
                                       (writer->is_loose ? LS_TOKEN_FILE_LOOSE : 0U)};
    const uint64_t starts_bytes = writer->start_count * sizeof *writer->starts;
    const uint64_t crcs_bytes = writer->crc_count * sizeof *writer->crcs;
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    header.starts_offset = ls_round_up_u64(LS_TOKEN_HEADER_BYTES + writer->token_count * writer->id_bytes, 8);
    header.crcs_offset = header.starts_offset + tables_of(&header) * starts_bytes;
    header.file_bytes = header.crcs_offset + crcs_bytes;
    header.tail_crc = ls_crc32c(0, writer->starts, starts_bytes);
    if (writer->origins) {
        header.tail_crc =
            ls_crc32c(header.tail_crc, writer->origins, writer->start_count * sizeof *writer->origins);
    }
    header.tail_crc = ls_crc32c(header.tail_crc, writer->crcs, crcs_bytes);
    memcpy(header.key, key, LS_TOKEN_KEY_BYTES);
    memcpy(header.content_hash, content_hash, LS_TOKEN_KEY_BYTES);
    header.header_crc = ls_crc32c(0, &header, HEADER_CRC_BYTES);
    LS_TRY(write_tail(writer, &header));
    return ls_file_pwrite_all(writer->fd, writer->path, &header, sizeof header, 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ls_status check_header(ls_file_map map, const char *path, const char *key, ls_token_header *header_out)
{
    ls_token_header header = {0};
    if (map.bytes < sizeof header) {
        return ls_fail(LS_ERR_DATA, "%s is truncated: it has %zu bytes, but the header alone has %zu", path,
                       map.bytes, sizeof header);
    }
    memcpy(&header, map.data, sizeof header);
    if (memcmp(header.magic, MAGIC, sizeof MAGIC) != 0 || header.version != LS_TOKEN_FORMAT_VERSION) {
        return ls_fail(LS_ERR_DATA, "%s is not a token cache file of version %d", path,
                       LS_TOKEN_FORMAT_VERSION);
    }
    if (header.header_crc != ls_crc32c(0, &header, HEADER_CRC_BYTES)) {
        return ls_fail(LS_ERR_DATA, "%s: the header does not match its checksum; the file is damaged", path);
    }
    if (header.file_bytes != map.bytes) {
        return ls_fail(LS_ERR_DATA, "%s has %zu bytes, but %llu were written; the file is damaged", path,
                       map.bytes, (ull)header.file_bytes);
    }
    if (key && memcmp(header.key, key, LS_TOKEN_KEY_BYTES) != 0) {
        return ls_fail(LS_ERR_DATA, "%s was made from other content than its name says", path);
    }
    *header_out = header;
    return LS_OK;
}

/* The header's CRC is right, so these checks fail only if the writer was wrong or the file was
 * forged. They keep every read inside the map even then. */
static ls_status check_layout(ls_file_map map, const char *path, const ls_token_header *h)
{
    const uint64_t limit = map.bytes;
    const bool sane =
        (h->id_bytes == 2 || h->id_bytes == 4) && h->token_count <= limit / h->id_bytes &&
        h->document_count <= limit / 8 / tables_of(h) &&
        h->starts_offset == ls_round_up_u64(LS_TOKEN_HEADER_BYTES + h->token_count * h->id_bytes, 8) &&
        h->crcs_offset == h->starts_offset + tables_of(h) * h->document_count * 8 &&
        (tables_of(h) == 1 || h->id_bytes == 4) &&
        h->file_bytes == h->crcs_offset + 4 * block_count_of(h->token_count, h->id_bytes);
    if (!sane) {
        return ls_fail(LS_ERR_DATA, "%s: the sizes in its header contradict each other; the file is damaged",
                       path);
    }
    if (h->tail_crc != ls_crc32c(0, map.data + h->starts_offset, h->file_bytes - h->starts_offset)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: the table of documents does not match its checksum; the file is damaged", path);
    }
    return LS_OK;
}

static ls_status check_starts(const char *path, const ls_token_header *h, const uint64_t *starts)
{
    bool sane =
        (h->document_count == 0) == (h->token_count == 0) && (h->document_count == 0 || starts[0] == 0);
    for (uint64_t i = 0; sane && i < h->document_count; i++) {
        sane = starts[i] < h->token_count && (i == 0 || starts[i - 1] < starts[i]);
    }
    return sane ? LS_OK
                : ls_fail(LS_ERR_DATA, "%s: the table of documents is out of order; the file is damaged",
                          path);
}

ls_status ls_token_format_open(ls_file_map map, const char *path, const char *key, uint32_t vocab_size,
                               ls_tokens *tokens_out)
{
    ls_token_header header = {0};
    LS_TRY(check_header(map, path, key, &header));
    LS_TRY(check_layout(map, path, &header));
    const uint64_t *starts = (const uint64_t *)(const void *)(map.data + header.starts_offset);
    LS_TRY(check_starts(path, &header, starts));
    if (header.token_count > 0 && header.id_max >= vocab_size) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: the tokenizer gives id %u, beyond the model's vocabulary of %u ids", path,
                       header.id_max, vocab_size);
    }
    ls_tokens tokens = {
        .path = strdup(path),
        .ids = map.data + LS_TOKEN_HEADER_BYTES,
        .id_bytes = header.id_bytes,
        .vocab_size = vocab_size,
        .count = header.token_count,
        .document_starts = starts,
        .document_count = header.document_count,
        .text_bytes = header.text_bytes,
        .origins = tables_of(&header) == 1
                       ? NULL
                       : (const ls_token_origin *)(const void *)(starts + header.document_count),
        .left_count = header.left_count,
        .is_loose = (header.flags & LS_TOKEN_FILE_LOOSE) != 0,
        .map = map,
        .block_crcs = (const uint32_t *)(const void *)(map.data + header.crcs_offset),
        .block_checked =
            calloc(block_count_of(header.token_count, header.id_bytes) + 1, sizeof(atomic_uchar)),
    };
    if (!tokens.path || !tokens.block_checked) {
        tokens.map = (ls_file_map){0};
        ls_tokens_close(&tokens);
        return ls_fail(LS_ERR_MEMORY, "%s: not enough memory to read it", path);
    }
    memcpy(tokens.content_hash, header.content_hash, LS_TOKEN_KEY_BYTES);
    *tokens_out = tokens;
    return LS_OK;
}
