// SPDX-License-Identifier: Apache-2.0
/*
 * The pages of a column: a header in Thrift, then bytes that may be compressed.
 *
 *   version 1   (levels of repetition, levels of definition, values), compressed together
 *   version 2   levels of repetition, levels of definition, (values): only the values are compressed
 *   dictionary  values, which the indices of the pages after it mean
 */
#include "data/parquet/parquet_internal.h"
#include "data/parquet/snappy.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static const int64_t PAGE_BYTES_MAX = INT64_C(1) << 30;
enum { DICTIONARY_MAX = 1 << 22 };

enum { PAGE_DATA = 0, PAGE_DICTIONARY = 2, PAGE_DATA_2 = 3 };
enum { CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_ZSTD = 6 };

typedef struct page {
    int64_t kind, bytes, packed_bytes, crc;
    bool has_crc, is_packed;
    /* Of its own header, whichever it is. */
    int64_t entries, encoding;
    int64_t defined_encoding, repeated_encoding;  /* version 1 */
    int64_t nulls, defined_bytes, repeated_bytes; /* version 2 */
    ls_thrift stored;
} page;

ls_status ls_parquet_fail(const ls_parquet *parquet, const ls_parquet_column *column, ls_status status,
                          const char *format, ...)
{
    va_list args;
    ls_text text = {0};
    va_start(args, format);
    ls_text_vprintf(&text, format, args);
    va_end(args);
    (void)ls_fail(status, "%s: column `%s`, row group %u: %s", parquet->path, column->path, parquet->group,
                  ls_text_string(&text));
    ls_text_release(&text);
    return status;
}

static ls_status fail_damaged(const ls_parquet *p, const ls_parquet_column *c, const char *what)
{
    return ls_parquet_fail(p, c, LS_ERR_DATA, "%s: the file is damaged; fetch or write it again", what);
}

/* ---- headers --------------------------------------------------------------------------------- */

static void read_header(ls_thrift *t, page *h)
{
    int64_t is_packed = 1;
    int64_t *const own[] = {NULL, &h->kind, &h->bytes, &h->packed_bytes, &h->crc};
    int64_t *const data[] = {NULL, &h->entries, &h->encoding, &h->defined_encoding, &h->repeated_encoding};
    int64_t *const dictionary[] = {NULL, &h->entries, &h->encoding};
    int64_t *const data_2[] = {NULL,         &h->entries,       &h->nulls,          NULL,
                               &h->encoding, &h->defined_bytes, &h->repeated_bytes, &is_packed};
    ls_thrift_field field = {0};
    while (ls_thrift_next(t, &field)) {
        if (field.id == 5) {
            ls_thrift_numbers(t, &field, data, 5);
        } else if (field.id == 7) {
            ls_thrift_numbers(t, &field, dictionary, 3);
        } else if (field.id == 8) {
            ls_thrift_numbers(t, &field, data_2, 8);
        } else if (ls_thrift_number(t, &field, own, 5)) {
            h->has_crc = h->has_crc || field.id == 4;
        } else {
            ls_thrift_skip(t, &field);
        }
    }
    h->is_packed = is_packed;
}

/* Reads the header of the next page, and finds its bytes. */
static ls_status next_header(const ls_parquet *p, ls_parquet_column *c, page *h)
{
    ls_thrift t = {.at = p->map.data + c->at, .end = p->map.data + c->end};
    *h = (page){.kind = -1, .defined_encoding = LS_PARQUET_RLE, .repeated_encoding = LS_PARQUET_RLE};
    if (t.at == t.end) {
        return fail_damaged(p, c, "its pages hold fewer values than the footer says");
    }
    read_header(&t, h);
    if (t.bad || h->kind < 0 || h->bytes < 0 || h->packed_bytes < 0 || h->packed_bytes > t.end - t.at ||
        h->entries < 0 || h->entries > INT32_MAX) {
        return fail_damaged(p, c, "the header of a page cannot be read");
    }
    if (h->bytes > PAGE_BYTES_MAX) {
        return ls_parquet_fail(
            p, c, LS_ERR_UNSUPPORTED,
            "a page of %lld bytes; at most %lld are read: write the file with smaller pages",
            (long long)h->bytes, (long long)PAGE_BYTES_MAX);
    }
    h->stored = (ls_thrift){.at = t.at, .end = t.at + h->packed_bytes};
    c->at = (uint64_t)(h->stored.end - p->map.data);
    const uLong crc = h->has_crc ? crc32_z(0, h->stored.at, (z_size_t)h->packed_bytes) : 0;
    return h->has_crc && (uint32_t)crc != (uint32_t)h->crc
               ? fail_damaged(p, c, "the checksum of a page is wrong")
               : LS_OK;
}

/* ---- compression ----------------------------------------------------------------------------- */

/* The bytes that came out; -1: it is damaged. */
static int64_t inflate_page(const ls_thrift *from, unsigned char *to, size_t bytes)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)from->at,
                  .avail_in = (uInt)(from->end - from->at),
                  .next_out = to,
                  .avail_out = (uInt)bytes};
    if (inflateInit2(&z, MAX_WBITS + 32) != Z_OK) {
        return -1;
    }
    const int result = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return result == Z_STREAM_END ? (int64_t)(bytes - z.avail_out) : -1;
}

static int64_t unzstd_page(ls_parquet *p, const ls_thrift *from, unsigned char *to, size_t bytes)
{
    p->zstd = p->zstd ? p->zstd : ZSTD_createDCtx();
    const size_t result =
        p->zstd ? ZSTD_decompressDCtx(p->zstd, to, bytes, from->at, (size_t)(from->end - from->at))
                : (size_t)-1;
    return ZSTD_isError(result) ? -1 : (int64_t)result;
}

static ls_status fail_codec(const ls_parquet *p, const ls_parquet_column *c)
{
    static const char *const names[] = {[3] = "LZO", [4] = "BROTLI", [5] = "LZ4", [7] = "LZ4_RAW"};
    const char *name = c->codec < 8 && names[c->codec] ? names[c->codec] : "unknown";
    return ls_parquet_fail(p, c, LS_ERR_UNSUPPORTED,
                           "its compression is %s (%u): write the file again with snappy, zstd, gzip or none",
                           name, c->codec);
}

/* Makes room for `bytes` in a buffer of the column. */
static ls_status make_room(const ls_parquet *p, const ls_parquet_column *c, unsigned char **buffer,
                           size_t *capacity, size_t bytes)
{
    if (bytes > *capacity) {
        free(*buffer);
        *buffer = malloc(bytes);
        *capacity = *buffer ? bytes : 0;
    }
    return *buffer ? LS_OK
                   : ls_parquet_fail(p, c, LS_ERR_MEMORY, "not enough memory for a page of %zu bytes", bytes);
}

/* The content of `stored`, which is `bytes` long; in a buffer of the column if it is compressed. */
static ls_status unpack(ls_parquet *p, ls_parquet_column *c, ls_thrift stored, size_t bytes,
                        bool is_dictionary, ls_thrift *content_out)
{
    unsigned char **buffer = is_dictionary ? &c->dictionary_page : &c->page;
    int64_t out = -1;
    if (c->codec == CODEC_NONE) {
        *content_out = stored;
        return (size_t)(stored.end - stored.at) == bytes ? LS_OK
                                                         : fail_damaged(p, c, "a page has a wrong length");
    }
    if (bytes == 0) { /* some writers compress nothing to nothing */
        *content_out = (ls_thrift){.at = stored.at, .end = stored.at};
        return LS_OK;
    }
    LS_TRY(make_room(p, c, buffer, is_dictionary ? &c->dictionary_capacity : &c->page_capacity, bytes));
    switch (c->codec) {
    case CODEC_SNAPPY:
        out = ls_snappy_unpack(stored.at, (size_t)(stored.end - stored.at), *buffer, bytes) ? (int64_t)bytes
                                                                                            : -1;
        break;
    case CODEC_GZIP:
        out = inflate_page(&stored, *buffer, bytes);
        break;
    case CODEC_ZSTD:
        out = unzstd_page(p, &stored, *buffer, bytes);
        break;
    default:
        return fail_codec(p, c);
    }
    *content_out = (ls_thrift){.at = *buffer, .end = *buffer + bytes};
    return out == (int64_t)bytes ? LS_OK : fail_damaged(p, c, "a page cannot be decompressed");
}

/* ---- pages ----------------------------------------------------------------------------------- */

static unsigned bits_of_type(ls_parquet_type type)
{
    static const unsigned bits[] = {
        [LS_PARQUET_BOOLEAN] = 1, [LS_PARQUET_INT32] = 32,  [LS_PARQUET_INT64] = 64,
        [LS_PARQUET_FLOAT] = 32,  [LS_PARQUET_DOUBLE] = 64, [LS_PARQUET_BYTES] = 0};
    return bits[type];
}

static unsigned bits_for(unsigned max)
{
    return max == 0 ? 0 : 32 - (unsigned)__builtin_clz(max);
}

static ls_status read_dictionary(ls_parquet *p, ls_parquet_column *c, const page *h)
{
    ls_thrift content;
    ls_parquet_values values = {0};
    if (c->dictionary.count > 0 || c->entries_left != c->entry_count) {
        return fail_damaged(p, c, "it has two dictionaries");
    }
    if (h->entries > DICTIONARY_MAX) {
        return ls_parquet_fail(p, c, LS_ERR_UNSUPPORTED, "a dictionary of %lld values; at most %d are read",
                               (long long)h->entries, DICTIONARY_MAX);
    }
    LS_TRY(unpack(p, c, h->stored, (size_t)h->bytes, true, &content));
    free(c->dictionary.values);
    c->dictionary.values = malloc(sizeof *c->dictionary.values * ((size_t)h->entries + 1));
    if (!c->dictionary.values) {
        return ls_parquet_fail(p, c, LS_ERR_MEMORY, "not enough memory for a dictionary");
    }
    const bool begun =
        (h->encoding == LS_PARQUET_PLAIN || h->encoding == LS_PARQUET_PLAIN_DICTIONARY) &&
        ls_parquet_values_begin(&values, LS_PARQUET_PLAIN, bits_of_type(c->node->type), NULL, content);
    for (; begun && c->dictionary.count < h->entries; c->dictionary.count++) {
        if (!ls_parquet_values_next(&values, &c->dictionary.values[c->dictionary.count])) {
            return fail_damaged(p, c, "its dictionary ends too early");
        }
    }
    return begun ? LS_OK : fail_damaged(p, c, "its dictionary has another encoding than PLAIN");
}

/* Levels of a page of version 1: their length, then runs. Moves `content` past them. */
static ls_status begin_levels(const ls_parquet *p, const ls_parquet_column *c, int64_t encoding, unsigned max,
                              ls_thrift *content, ls_parquet_runs *runs_out)
{
    uint32_t bytes = 0;
    *runs_out = (ls_parquet_runs){.width = bits_for(max)};
    if (max == 0) {
        return LS_OK;
    }
    if (encoding != LS_PARQUET_RLE) {
        return ls_parquet_fail(p, c, LS_ERR_UNSUPPORTED,
                               "its levels have the encoding %lld; RLE is read: write the file again with a "
                               "newer program",
                               (long long)encoding);
    }
    if (content->end - content->at >= (ptrdiff_t)sizeof bytes) {
        memcpy(&bytes, content->at, sizeof bytes);
        content->at += sizeof bytes;
    }
    if (bytes > (size_t)(content->end - content->at)) {
        return fail_damaged(p, c, "the levels of a page are longer than it");
    }
    runs_out->bytes = (ls_thrift){.at = content->at, .end = content->at + bytes};
    content->at += bytes;
    return LS_OK;
}

static ls_status begin_page_1(ls_parquet *p, ls_parquet_column *c, const page *h, ls_thrift *content_out)
{
    LS_TRY(unpack(p, c, h->stored, (size_t)h->bytes, false, content_out));
    LS_TRY(begin_levels(p, c, h->repeated_encoding, c->node->repeated, content_out, &c->repeated));
    return begin_levels(p, c, h->defined_encoding, c->node->defined, content_out, &c->defined);
}

static ls_status begin_page_2(ls_parquet *p, ls_parquet_column *c, const page *h, ls_thrift *content_out)
{
    const int64_t stored = h->stored.end - h->stored.at;
    if (h->repeated_bytes < 0 || h->defined_bytes < 0 || h->repeated_bytes > stored ||
        h->defined_bytes > stored - h->repeated_bytes || h->bytes < h->repeated_bytes + h->defined_bytes) {
        return fail_damaged(p, c, "the levels of a page are longer than it");
    }
    const unsigned char *at = h->stored.at;
    c->repeated = (ls_parquet_runs){.bytes = {.at = at, .end = at + h->repeated_bytes},
                                    .width = bits_for(c->node->repeated)};
    at += h->repeated_bytes;
    c->defined = (ls_parquet_runs){.bytes = {.at = at, .end = at + h->defined_bytes},
                                   .width = bits_for(c->node->defined)};
    at += h->defined_bytes;
    *content_out = (ls_thrift){.at = at, .end = h->stored.end};
    const size_t bytes = (size_t)(h->bytes - h->repeated_bytes - h->defined_bytes);
    /* A page whose values are all null has none to unpack. */
    return !h->is_packed || (at == h->stored.end && bytes == 0)
               ? LS_OK
               : unpack(p, c, *content_out, bytes, false, content_out);
}

static bool is_known(const ls_parquet_column *c, int64_t encoding)
{
    const bool is_real = c->node->type == LS_PARQUET_FLOAT || c->node->type == LS_PARQUET_DOUBLE;
    return encoding == LS_PARQUET_PLAIN ||
           (encoding >= LS_PARQUET_PLAIN_DICTIONARY && encoding <= LS_PARQUET_BYTE_STREAM_SPLIT &&
            encoding != LS_PARQUET_BIT_PACKED && !(encoding == LS_PARQUET_DELTA_BINARY_PACKED && is_real));
}

static ls_status begin_page(ls_parquet *p, ls_parquet_column *c, const page *h)
{
    ls_thrift content = {0};
    if (h->entries > c->entries_left) {
        return fail_damaged(p, c, "its pages hold more values than the footer says");
    }
    LS_TRY(h->kind == PAGE_DATA ? begin_page_1(p, c, h, &content) : begin_page_2(p, c, h, &content));
    c->page_left = h->entries;
    c->has_page = true;
    c->entries_left -= h->entries;
    if (!is_known(c, h->encoding)) {
        return ls_parquet_fail(p, c, LS_ERR_UNSUPPORTED,
                               "the encoding %lld of its values is not read: write the file again with "
                               "PLAIN, dictionary or DELTA encodings",
                               (long long)h->encoding);
    }
    /* A page without values may be without what begins them. */
    const bool is_empty = content.at == content.end;
    const ls_parquet_encoding encoding = is_empty ? LS_PARQUET_PLAIN : (ls_parquet_encoding)h->encoding;
    return ls_parquet_values_begin(&c->values, encoding, bits_of_type(c->node->type), &c->dictionary, content)
               ? LS_OK
               : fail_damaged(p, c, "the values of a page do not begin as their encoding says");
}

static ls_status next_page(ls_parquet *p, ls_parquet_column *c)
{
    page h;
    LS_TRY(next_header(p, c, &h));
    return h.kind == PAGE_DICTIONARY                      ? read_dictionary(p, c, &h)
           : h.kind == PAGE_DATA || h.kind == PAGE_DATA_2 ? begin_page(p, c, &h)
                                                          : LS_OK;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* After the last entry of a page. A header that is damaged may still make sense of its values. */
static ls_status end_page(const ls_parquet *p, ls_parquet_column *c)
{
    const bool is_done = ls_parquet_runs_are_done(&c->repeated) && ls_parquet_runs_are_done(&c->defined) &&
                         ls_parquet_values_are_done(&c->values);
    c->has_page = false;
    return is_done ? LS_OK : fail_damaged(p, c, "a page has more bytes than its values");
}

ls_status ls_parquet_peek(ls_parquet *parquet, ls_parquet_column *column)
{
    if (!column->has_entry && column->page_left == 0 && column->has_page) {
        LS_TRY(end_page(parquet, column));
    }
    while (!column->has_entry && column->page_left == 0 && column->entries_left > 0) {
        LS_TRY(next_page(parquet, column));
    }
    if (column->has_entry || column->page_left == 0) {
        return LS_OK;
    }
    if (!ls_parquet_runs_next(&column->repeated, &column->entry_repeated) ||
        !ls_parquet_runs_next(&column->defined, &column->entry_defined) ||
        column->entry_repeated > column->node->repeated || column->entry_defined > column->node->defined) {
        return fail_damaged(parquet, column, "the levels of a page end too early, or are too high");
    }
    column->page_left--;
    column->has_entry = true;
    return LS_OK;
}

ls_status ls_parquet_take(ls_parquet *parquet, ls_parquet_column *column, ls_parquet_value *value_out)
{
    column->has_entry = false;
    if (column->entry_defined < column->node->defined) {
        column->nulls++;
        return LS_OK;
    }
    return ls_parquet_values_next(&column->values, value_out)
               ? LS_OK
               : fail_damaged(parquet, column, "the values of a page end too early, or cannot be");
}

ls_status ls_parquet_end_column(ls_parquet *parquet, ls_parquet_column *column)
{
    LS_TRY(ls_parquet_peek(parquet, column));
    if (column->has_entry) {
        return fail_damaged(parquet, column, "it has more values than the row group has rows");
    }
    /* In lists, programs count nulls in different ways. */
    if (column->null_count >= 0 && column->node->repeated == 0 && column->null_count != column->nulls) {
        return ls_parquet_fail(
            parquet, column, LS_ERR_DATA,
            "it has %lld nulls, but its statistics say %lld: the file is damaged; fetch or "
            "write it again",
            (long long)column->nulls, (long long)column->null_count);
    }
    return LS_OK;
}
