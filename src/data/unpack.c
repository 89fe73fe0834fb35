// SPDX-License-Identifier: Apache-2.0
#include "data/unpack.h"

#include "base/assert.h"
#include "data/parquet/parquet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

typedef unsigned long long ull;

enum { BLOCK_BYTES = 1 << 18 };
static const uint64_t LIMIT_TIMES = 200, LIMIT_BYTES_MIN = UINT64_C(256) << 20;

typedef struct unpacker {
    const char *path;
    ls_file_map packed;
    const ls_unpack_options *options;
    uint64_t limit_bytes, written_bytes;
    int fd;
    unsigned char *block;
} unpacker;

ls_packing ls_packing_of(const void *data, size_t bytes)
{
    if (bytes >= 2 && memcmp(data, "\x1f\x8b", 2) == 0) {
        return LS_PACKING_GZIP;
    }
    if (bytes >= 4 && memcmp(data, "\x28\xb5\x2f\xfd", 4) == 0) {
        return LS_PACKING_ZSTD;
    }
    return ls_parquet_has_magic(data, bytes) ? LS_PACKING_PARQUET : LS_PACKING_NONE;
}

const char *ls_packing_name(ls_packing packing)
{
    static const char *const names[] = {"", "gzip", "zstd", "Parquet"};
    return names[packing];
}

ls_packing ls_packing_suffix(const char *path, size_t *stem_bytes_out)
{
    static const struct {
        const char *suffix;
        ls_packing packing;
    } known[] = {{".gz", LS_PACKING_GZIP},
                 {".zst", LS_PACKING_ZSTD},
                 {".zstd", LS_PACKING_ZSTD},
                 {".parquet", LS_PACKING_PARQUET}};
    *stem_bytes_out = strlen(path);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (ls_path_has_suffix(path, known[i].suffix)) {
            *stem_bytes_out -= strlen(known[i].suffix);
            return known[i].packing;
        }
    }
    return LS_PACKING_NONE;
}

uint64_t ls_unpack_limit(uint64_t packed_bytes)
{
    return packed_bytes > LIMIT_BYTES_MIN / LIMIT_TIMES ? packed_bytes * LIMIT_TIMES : LIMIT_BYTES_MIN;
}

/* ---- the content on its way out ---- */

static ls_status fail_truncated(const unpacker *u)
{
    return ls_fail(LS_ERR_DATA, "%s is truncated: its %s data end too early, after %llu bytes of content",
                   u->path, ls_packing_name(ls_packing_of(u->packed.data, u->packed.bytes)),
                   (ull)u->written_bytes);
}

static ls_status fail_damaged(const unpacker *u, const char *why)
{
    return ls_fail(LS_ERR_DATA, "%s is damaged: %s, after %llu bytes of content", u->path, why,
                   (ull)u->written_bytes);
}

static ls_status put(unpacker *u, const void *data, size_t bytes)
{
    LS_TRY(u->options->stop ? u->options->stop(u->options->context) : LS_OK);
    u->written_bytes += bytes;
    if (u->written_bytes > u->limit_bytes) {
        return ls_fail(
            LS_ERR_DATA,
            "%s has %zu bytes and unpacks to more than %llu, the most that is allowed for its size; "
            "if that is intended, unpack it and use the result",
            u->path, u->packed.bytes, (ull)u->limit_bytes);
    }
    return ls_file_write_all(u->fd, "a temporary file", data, bytes);
}

static ls_status put_block(unpacker *u, size_t bytes)
{
    return put(u, u->block, bytes);
}

static bool has_head(const unpacker *u)
{
    return u->options->head_bytes > 0 && u->written_bytes >= u->options->head_bytes;
}

/* ---- gzip ---- */

/* After a member: another one, or zeros that fill a block of a tape. True at the end of the
 * file. */
static bool is_end_of_members(const unpacker *u, const z_stream *z)
{
    const unsigned char *end = u->packed.data + u->packed.bytes, *at = z->next_in;
    while (at < end && *at == 0) {
        at++;
    }
    return at == end;
}

/* Unpacks until the output block is full or the input at hand is used up. */
static ls_status inflate_block(unpacker *u, z_stream *z, bool *done_out)
{
    const size_t left = u->packed.bytes - (size_t)(z->next_in - u->packed.data);
    z->avail_in = (uInt)(left < (1u << 30) ? left : 1u << 30);
    z->next_out = u->block;
    z->avail_out = BLOCK_BYTES;
    const int result = inflate(z, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return result == Z_MEM_ERROR ? ls_fail(LS_ERR_MEMORY, "not enough memory to unpack %s", u->path)
                                     : fail_damaged(u, z->msg ? z->msg : "it is not gzip data");
    }
    const size_t bytes = BLOCK_BYTES - z->avail_out;
    if (result != Z_STREAM_END && bytes == 0 && z->avail_in == 0) {
        return fail_truncated(u);
    }
    LS_TRY(put_block(u, bytes));
    *done_out = result == Z_STREAM_END && is_end_of_members(u, z);
    if (result == Z_STREAM_END && !*done_out) {
        inflateReset(z);
    }
    return LS_OK;
}

static ls_status unpack_gzip(unpacker *u)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)u->packed.data};
    if (inflateInit2(&z, MAX_WBITS + 16) != Z_OK) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to unpack %s", u->path);
    }
    ls_status status = LS_OK;
    for (bool done = false; status == LS_OK && !done && !has_head(u);) {
        status = inflate_block(u, &z, &done);
    }
    inflateEnd(&z);
    return status;
}

/* ---- zstd ---- */

static ls_status unpack_frames(unpacker *u, ZSTD_DStream *stream)
{
    ZSTD_inBuffer in = {.src = u->packed.data, .size = u->packed.bytes};
    for (;;) {
        ZSTD_outBuffer out = {.dst = u->block, .size = BLOCK_BYTES};
        const size_t left = ZSTD_decompressStream(stream, &out, &in);
        if (ZSTD_isError(left)) {
            return fail_damaged(u, ZSTD_getErrorName(left));
        }
        LS_TRY(put_block(u, out.pos));
        if (has_head(u)) {
            return LS_OK;
        }
        /* 0: the frame has ended, and all of it is out. */
        if (in.pos == in.size && (left == 0 || out.pos < out.size)) {
            return left == 0 ? LS_OK : fail_truncated(u);
        }
    }
}

static ls_status unpack_zstd(unpacker *u)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    if (!stream) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to unpack %s", u->path);
    }
    const ls_status status = unpack_frames(u, stream);
    ZSTD_freeDStream(stream);
    return status;
}

/* ---- Parquet ---- */

static ls_status unpack_rows(unpacker *u, ls_parquet *parquet, ls_text *lines)
{
    for (bool done = false; !done && !has_head(u);) {
        ls_text_clear(lines);
        LS_TRY(ls_parquet_read(parquet, BLOCK_BYTES, lines, &done));
        LS_TRY(put(u, lines->data, lines->bytes));
    }
    if (u->options->head_bytes == 0) {
        ls_parquet_tell(parquet);
    }
    return LS_OK;
}

static ls_status unpack_parquet(unpacker *u)
{
    ls_parquet *parquet = NULL;
    ls_text lines = {0};
    LS_TRY(ls_parquet_open(u->path, u->packed, &parquet));
    const ls_status status = unpack_rows(u, parquet, &lines);
    ls_text_release(&lines);
    ls_parquet_close(parquet);
    return status;
}

/* ---- the temporary file ---------------------------------------------------------------------- */

static ls_status map_temporary(const unpacker *u, ls_file_map *map_out)
{
    void *data = NULL;
    if (u->written_bytes > 0) {
        data = mmap(NULL, u->written_bytes, PROT_READ, MAP_PRIVATE, u->fd, 0);
        if (data == MAP_FAILED) {
            return ls_fail_errno(errno, "can't map the decompressed content of %s (%llu bytes) into memory",
                                 u->path, (ull)u->written_bytes);
        }
    }
    *map_out = (ls_file_map){.data = data, .bytes = u->written_bytes};
    return LS_OK;
}

ls_status ls_unpack(const char *path, ls_file_map packed, const ls_unpack_options *options,
                    ls_file_map *map_out)
{
    const ls_packing packing = ls_packing_of(packed.data, packed.bytes);
    LS_ASSERT(packing != LS_PACKING_NONE);
    unpacker u = {.path = path,
                  .packed = packed,
                  .options = options,
                  .limit_bytes = options->limit_bytes ? options->limit_bytes : ls_unpack_limit(packed.bytes)};
    LS_TRY(ls_file_open_temporary(options->folder, &u.fd));
    u.block = malloc(BLOCK_BYTES);
    ls_status status = !u.block ? ls_fail(LS_ERR_MEMORY, "not enough memory to unpack %s", path)
                       : packing == LS_PACKING_GZIP ? unpack_gzip(&u)
                       : packing == LS_PACKING_ZSTD ? unpack_zstd(&u)
                                                    : unpack_parquet(&u);
    if (status == LS_OK) {
        status = map_temporary(&u, map_out);
    }
    free(u.block);
    close(u.fd);
    return status;
}
