// SPDX-License-Identifier: Apache-2.0
#include "orchestration/client/response.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the head ---- */

/* The value of a header line, without the blanks around it; NULL: another header. */
static const char *value_of(const char *line, const char *name)
{
    const size_t bytes = strlen(name);
    if (strncasecmp(line, name, bytes) != 0 || line[bytes] != ':') {
        return NULL;
    }
    return line + bytes + 1 + strspn(line + bytes + 1, " \t");
}

static bool read_number(const char *text, int base, uint64_t *number_out)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    char allowed[sizeof digits];
    memcpy(allowed, digits, sizeof digits);
    allowed[base == 10 ? 10 : 22] = '\0';
    const size_t count = strspn(text, allowed);
    if (count == 0 || count > 15) {
        return false;
    }
    *number_out = strtoull(text, NULL, base);
    return true;
}

static ls_status read_header(ls_response *r, const char *line)
{
    const char *value = value_of(line, "Content-Length");
    if (value && !read_number(value, 10, &r->left_bytes)) {
        return ls_fail(LS_ERR_DATA, "the daemon's answer has an invalid Content-Length: '%.40s'", value);
    }
    value = value_of(line, "Transfer-Encoding");
    r->is_chunked = r->is_chunked || (value && strncasecmp(value, "chunked", 7) == 0);
    value = value_of(line, "X-Next");
    if (value && !read_number(value, 10, &r->next)) {
        return ls_fail(LS_ERR_DATA, "the daemon's answer has an invalid header X-Next: '%.40s'", value);
    }
    return LS_OK;
}

static ls_status read_head(ls_response *r)
{
    uint64_t code = 0;
    char *line = r->line;
    if (strncmp(line, "HTTP/1.", 7) != 0 || strlen(line) < 12 || !read_number(line + 9, 10, &code) ||
        code < 100 || code > 599) {
        return ls_fail(LS_ERR_DATA, "the daemon's answer is not valid HTTP: '%.60s'", line);
    }
    r->left_bytes = UINT64_MAX;
    for (char *end = strstr(line, "\r\n"); end && end[2] != '\r'; end = strstr(end + 2, "\r\n")) {
        char *next = strstr(end + 2, "\r\n");
        if (!next) {
            break;
        }
        *next = '\0';
        const ls_status status = read_header(r, end + 2);
        *next = '\r';
        LS_TRY(status);
    }
    r->line_bytes = 0;
    if (code < 200) { /* "100 Continue": the answer follows */
        return LS_OK;
    }
    r->code = (int)code;
    r->state = r->is_chunked                                      ? LS_RESPONSE_CHUNK_SIZE
               : r->left_bytes == 0 || code == 204 || code == 304 ? LS_RESPONSE_DONE
                                                                  : LS_RESPONSE_BODY;
    return LS_OK;
}

/* ---- byte by byte, and block by block ---- */

/* Appends a byte to the line. True: the line now ends with `end`. */
static ls_status take_line(ls_response *r, char c, const char *end, bool *is_whole_out)
{
    if (r->line_bytes + 2 > sizeof r->line) {
        return ls_fail(LS_ERR_DATA, "the header of the daemon's answer has a line longer than %zu bytes",
                       sizeof r->line);
    }
    if (c == '\0') {
        return ls_fail(LS_ERR_DATA, "the header of the daemon's answer contains a zero byte");
    }
    r->line[r->line_bytes++] = c;
    r->line[r->line_bytes] = '\0';
    const size_t bytes = strlen(end);
    *is_whole_out = r->line_bytes >= bytes && memcmp(r->line + r->line_bytes - bytes, end, bytes) == 0;
    return LS_OK;
}

static ls_status read_chunk_size(ls_response *r)
{
    if (!read_number(r->line, 16, &r->left_bytes)) {
        return ls_fail(
            LS_ERR_DATA,
            "the daemon's answer is not valid HTTP: a chunk begins with '%.40s' instead of its size",
            r->line);
    }
    r->state = r->left_bytes > 0 ? LS_RESPONSE_CHUNK : LS_RESPONSE_TRAILER;
    r->line_bytes = 0;
    return LS_OK;
}

static ls_status take_byte(ls_response *r, char c)
{
    bool is_whole = false;
    LS_TRY(take_line(r, c, r->state == LS_RESPONSE_HEAD ? "\r\n\r\n" : "\r\n", &is_whole));
    if (!is_whole) {
        return LS_OK;
    }
    switch (r->state) {
    case LS_RESPONSE_HEAD:
        return read_head(r);
    case LS_RESPONSE_CHUNK_SIZE:
        return read_chunk_size(r);
    case LS_RESPONSE_CHUNK_END:
        r->state = r->line_bytes == 2 ? LS_RESPONSE_CHUNK_SIZE : LS_RESPONSE_DONE;
        if (r->line_bytes != 2) {
            return ls_fail(LS_ERR_DATA,
                           "the daemon's answer is not valid HTTP: a chunk is longer than its stated size");
        }
        break;
    default:
        r->state = r->line_bytes == 2 ? LS_RESPONSE_DONE : LS_RESPONSE_TRAILER;
        break;
    }
    r->line_bytes = 0;
    return LS_OK;
}

static size_t take_block(ls_response *r, const char *data, size_t bytes)
{
    const size_t size = bytes < r->left_bytes ? bytes : (size_t)r->left_bytes;
    r->left_bytes -= r->left_bytes == UINT64_MAX ? 0 : size;
    if (!r->take(r->context, data, size)) {
        r->state = LS_RESPONSE_UNWANTED;
    } else if (r->left_bytes == 0) {
        r->state = r->state == LS_RESPONSE_CHUNK ? LS_RESPONSE_CHUNK_END : LS_RESPONSE_DONE;
    }
    return size;
}

ls_status ls_response_feed(ls_response *r, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes && r->state != LS_RESPONSE_DONE && r->state != LS_RESPONSE_UNWANTED;) {
        if (r->state == LS_RESPONSE_BODY || r->state == LS_RESPONSE_CHUNK) {
            i += take_block(r, data + i, bytes - i);
        } else {
            LS_TRY(take_byte(r, data[i++]));
        }
    }
    return LS_OK;
}

ls_status ls_response_end(const ls_response *r)
{
    if (r->state == LS_RESPONSE_DONE || r->state == LS_RESPONSE_UNWANTED ||
        (r->state == LS_RESPONSE_BODY && r->left_bytes == UINT64_MAX)) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_IO, r->code == 0 ? "the daemon closed the connection without an answer"
                                           : "the daemon's answer was cut off");
}
