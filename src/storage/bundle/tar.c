// SPDX-License-Identifier: Apache-2.0
#include "storage/bundle/tar.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum { BLOCK_BYTES = 512, IO_BYTES = 1 << 18, LEVEL = 3, WINDOW_LOG_MAX = 27, EXTRA_BYTES_MAX = 1 << 20 };

/* POSIX.1-1988 ustar. */
typedef struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6];
    char version[2], user[32], group[32], major[8], minor[8], prefix[155], padding[12];
} header;
static_assert(sizeof(header) == BLOCK_BYTES, "a header of tar has 512 bytes");

static unsigned checksum_of(const header *h)
{
    const unsigned char *bytes = (const unsigned char *)h;
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof *h; i++) {
        const bool is_sum = i >= offsetof(header, checksum) && i < offsetof(header, type);
        sum += is_sum ? ' ' : bytes[i];
    }
    return sum;
}

static size_t padding_of(uint64_t bytes)
{
    return (size_t)((BLOCK_BYTES - bytes % BLOCK_BYTES) % BLOCK_BYTES);
}

/* ---- writing ---- */

struct ls_tar_writer {
    int fd;
    const char *path;
    ZSTD_CCtx *packer;    /* NULL: not packed */
    uint64_t bytes, left; /* of the file that is being written */
    unsigned char room[IO_BYTES];
};

ls_status ls_tar_create(int fd, const char *path, bool is_packed, ls_tar_writer **writer_out)
{
    ls_tar_writer *w = calloc(1, sizeof *w);
    ZSTD_CCtx *packer = is_packed ? ZSTD_createCCtx() : NULL;
    if (!w || (is_packed && !packer)) {
        free(w);
        ZSTD_freeCCtx(packer);
        return ls_fail(LS_ERR_MEMORY, "not enough memory to write %s", path);
    }
    if (packer) {
        ZSTD_CCtx_setParameter(packer, ZSTD_c_compressionLevel, LEVEL);
        ZSTD_CCtx_setParameter(packer, ZSTD_c_checksumFlag, 1);
    }
    w->fd = fd;
    w->path = path;
    w->packer = packer;
    *writer_out = w;
    return LS_OK;
}

static ls_status put(ls_tar_writer *w, const void *data, size_t bytes, bool is_end)
{
    if (!w->packer) {
        return ls_file_write_all(w->fd, w->path, data, bytes);
    }
    ZSTD_inBuffer in = {.src = data, .size = bytes};
    size_t left = 1;
    while (in.pos < in.size || (is_end && left > 0)) {
        ZSTD_outBuffer out = {.dst = w->room, .size = sizeof w->room};
        left = ZSTD_compressStream2(w->packer, &out, &in, is_end ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left)) {
            return ls_fail(LS_ERR_FAILED, "can't pack %s: %s", w->path, ZSTD_getErrorName(left));
        }
        LS_TRY(ls_file_write_all(w->fd, w->path, w->room, out.pos));
    }
    return LS_OK;
}

static const unsigned char zeros[2 * BLOCK_BYTES];

ls_status ls_tar_begin(ls_tar_writer *w, const char *name, uint64_t bytes)
{
    header h = {.mode = "0000644", .uid = "0000000", .gid = "0000000", .mtime = "00000000000", .type = '0'};
    LS_ASSERT(w->left == 0 && *name && strlen(name) <= LS_TAR_NAME_BYTES_MAX);
    LS_TRY(put(w, zeros, padding_of(w->bytes), false)); /* of the file before */
    memcpy(h.name, name, strlen(name));
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    if (bytes < UINT64_C(1) << 33) {
        snprintf(h.size, sizeof h.size, "%011" PRIo64, bytes);
    } else {
        h.size[0] = (char)0x80;
        for (size_t i = 0; i < 8; i++) {
            h.size[11 - i] = (char)(bytes >> (8 * i));
        }
    }
    snprintf(h.checksum, sizeof h.checksum, "%06o", checksum_of(&h));
    h.checksum[7] = ' ';
    w->bytes = w->left = bytes;
    return put(w, &h, sizeof h, false);
}

ls_status ls_tar_write(ls_tar_writer *w, const void *data, size_t bytes)
{
    LS_ASSERT(bytes <= w->left);
    w->left -= bytes;
    return put(w, data, bytes, false);
}

ls_status ls_tar_finish(ls_tar_writer *w)
{
    LS_ASSERT(w->left == 0);
    LS_TRY(put(w, zeros, padding_of(w->bytes), false));
    return put(w, zeros, sizeof zeros, true);
}

void ls_tar_destroy(ls_tar_writer *w)
{
    if (w) {
        ZSTD_freeCCtx(w->packer);
        free(w);
    }
}

/* ---- reading ---- */

struct ls_tar_reader {
    int fd;
    const char *path;
    ZSTD_DStream *unpacker; /* NULL: not packed */
    bool has_begun;
    size_t filled, at; /* of room */
    uint64_t left;     /* bytes of the file that were not read yet */
    size_t padding;    /* after it */
    char name[LS_TAR_NAME_BYTES_MAX + 1];
    unsigned char room[IO_BYTES]; /* as it is on the disk */
};

ls_status ls_tar_open(int fd, const char *path, ls_tar_reader **reader_out)
{
    ls_tar_reader *r = calloc(1, sizeof *r);
    if (!r) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to read %s", path);
    }
    r->fd = fd;
    r->path = path;
    *reader_out = r;
    return LS_OK;
}

void ls_tar_close(ls_tar_reader *r)
{
    if (r) {
        ZSTD_freeDStream(r->unpacker);
        free(r);
    }
}

/* Reads on; at the end of the file `filled` is 0. */
static ls_status fill(ls_tar_reader *r)
{
    ssize_t got = 0;
    do {
        got = read(r->fd, r->room, sizeof r->room);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return ls_fail_errno(errno, "can't read %s", r->path);
    }
    r->filled = (size_t)got;
    r->at = 0;
    return LS_OK;
}

static ls_status begin(ls_tar_reader *r)
{
    LS_TRY(fill(r));
    r->has_begun = true;
    if (r->filled < 4 || memcmp(r->room, "\x28\xb5\x2f\xfd", 4) != 0) {
        return LS_OK;
    }
    r->unpacker = ZSTD_createDStream();
    if (!r->unpacker) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to read %s", r->path);
    }
    ZSTD_DCtx_setParameter(r->unpacker, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    return LS_OK;
}

static ls_status unpack(ls_tar_reader *r, ZSTD_outBuffer *out)
{
    ZSTD_inBuffer in = {.src = r->room, .size = r->filled, .pos = r->at};
    const size_t result = ZSTD_decompressStream(r->unpacker, out, &in);
    r->at = in.pos;
    return ZSTD_isError(result)
               ? ls_fail(LS_ERR_DATA, "%s is damaged: %s", r->path, ZSTD_getErrorName(result))
               : LS_OK;
}

/* Reads `bytes` bytes of the archive. */
static ls_status take(ls_tar_reader *r, void *data, size_t bytes)
{
    if (!r->has_begun) {
        LS_TRY(begin(r));
    }
    ZSTD_outBuffer out = {.dst = data, .size = bytes};
    while (out.pos < out.size) {
        const size_t before = out.pos;
        if (r->unpacker) {
            LS_TRY(unpack(r, &out)); /* it may hold something back, also without new input */
        } else {
            const size_t now = r->filled - r->at < bytes - out.pos ? r->filled - r->at : bytes - out.pos;
            memcpy((char *)data + out.pos, r->room + r->at, now);
            r->at += now;
            out.pos += now;
        }
        if (out.pos < out.size && r->at == r->filled && out.pos == before) {
            LS_TRY(fill(r));
            if (r->filled == 0) {
                return ls_fail(LS_ERR_DATA, "%s is truncated, or is not an archive", r->path);
            }
        }
    }
    return LS_OK;
}

static ls_status skip(ls_tar_reader *r, uint64_t bytes)
{
    unsigned char nowhere[4096];
    while (bytes > 0) {
        const size_t now = bytes < sizeof nowhere ? (size_t)bytes : sizeof nowhere;
        LS_TRY(take(r, nowhere, now));
        bytes -= now;
    }
    return LS_OK;
}

static bool parse_size(const header *h, uint64_t *bytes_out)
{
    uint64_t bytes = 0;
    if ((unsigned char)h->size[0] == 0x80) {
        for (size_t i = 1; i < sizeof h->size; i++) {
            if (bytes >> 55) {
                return false;
            }
            bytes = bytes << 8 | (unsigned char)h->size[i];
        }
    } else {
        for (size_t i = 0; i < sizeof h->size && h->size[i] && h->size[i] != ' '; i++) {
            if (h->size[i] < '0' || h->size[i] > '7') {
                return false;
            }
            bytes = bytes << 3 | (uint64_t)(h->size[i] - '0');
        }
    }
    *bytes_out = bytes;
    return bytes <= INT64_MAX;
}

static ls_status check_header(const ls_tar_reader *r, const header *h, uint64_t *bytes_out)
{
    unsigned sum = 0;
    for (size_t i = 0; i < 6 && h->checksum[i] >= '0' && h->checksum[i] <= '7'; i++) {
        sum = sum << 3 | (unsigned)(h->checksum[i] - '0');
    }
    if (memcmp(h->magic, "ustar", 5) != 0 || sum != checksum_of(h) || !parse_size(h, bytes_out)) {
        return ls_fail(LS_ERR_DATA, "%s is not a tar archive, or is damaged", r->path);
    }
    return LS_OK;
}

ls_status ls_tar_next(ls_tar_reader *r, const char **name_out, uint64_t *bytes_out)
{
    for (;;) {
        header h;
        uint64_t bytes = 0;
        LS_TRY(skip(r, r->left));
        LS_TRY(skip(r, r->padding));
        r->left = r->padding = 0;
        LS_TRY(take(r, &h, sizeof h));
        if (memcmp(&h, zeros, sizeof h) == 0) {
            *name_out = NULL;
            return LS_OK;
        }
        LS_TRY(check_header(r, &h, &bytes));
        memcpy(r->name, h.name, sizeof h.name);
        const bool is_file = h.type == '0' || h.type == '\0';
        const bool is_skipped =
            (h.type == '5' && bytes == 0) || ((h.type == 'x' || h.type == 'g') && bytes <= EXTRA_BYTES_MAX);
        if (!is_file && !is_skipped) {
            ls_text shown = {0};
            ls_text_append_printable(&shown, r->name, strlen(r->name), "");
            const ls_status status = ls_fail(
                LS_ERR_DATA,
                "%s holds '%s', which is not a regular file (a link or a device): the archive is refused",
                r->path, ls_text_string(&shown));
            ls_text_release(&shown);
            return status;
        }
        r->left = bytes;
        r->padding = padding_of(bytes);
        if (is_file) {
            *name_out = r->name;
            *bytes_out = bytes;
            return LS_OK;
        }
    }
}

ls_status ls_tar_read(ls_tar_reader *r, void *data, size_t bytes)
{
    LS_ASSERT(bytes <= r->left);
    LS_TRY(take(r, data, bytes));
    r->left -= bytes;
    return LS_OK;
}
