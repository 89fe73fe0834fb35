// SPDX-License-Identifier: Apache-2.0
#include "env/http/http_framing.h"

#include "env/http/http_server.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* What the headers hold. */
typedef struct framing {
    unsigned hosts, lengths, encodings;
    bool has_bad_name, has_bad_length, has_bad_encoding, has_control, is_folded;
} framing;

static bool is_name(const char *text)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "!#$%&'*+-.^_`|~";
    return text[0] != '\0' && text[strspn(text, allowed)] == '\0';
}

static bool has_control(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if ((*at < 0x20 && *at != '\t') || *at == 0x7f) {
            return true;
        }
    }
    return false;
}

/*
 * A header that is continued on another line. Library 0.9.75 then appends that line to the header's
 * name, which it moves to the end of the buffer, after the value. Elsewhere a name lies before its
 * value, and nothing is seen here: newer libraries refuse such headers themselves.
 */
static bool is_moved(const char *key, const char *value)
{
    const uintptr_t name = (uintptr_t)key, at = (uintptr_t)value;
    return value && name > at && name - at < LS_HTTP_HEADER_BYTES_MAX;
}

static enum MHD_Result look(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
    (void)kind;
    framing *f = context;
    f->is_folded = f->is_folded || is_moved(key, value);
    value = value ? value : "";
    f->has_bad_name = f->has_bad_name || !is_name(key);
    f->has_control = f->has_control || has_control(value);
    f->hosts += strcasecmp(key, "Host") == 0;
    if (strcasecmp(key, "Content-Length") == 0) {
        f->lengths++;
        f->has_bad_length = f->has_bad_length || !value[0] || value[strspn(value, "0123456789")] != '\0';
    }
    if (strcasecmp(key, "Transfer-Encoding") == 0) {
        f->encodings++;
        f->has_bad_encoding = f->has_bad_encoding || strcasecmp(value, "chunked") != 0;
    }
    return MHD_YES;
}

ls_status ls_http_framing_check(const ls_microhttpd *mhd, struct MHD_Connection *library, unsigned *code_out)
{
    framing f = {0};
    mhd->get_connection_values(library, MHD_HEADER_KIND, look, &f);
    *code_out = 400;
    if (f.is_folded) {
        return ls_fail(LS_ERR_INVALID,
                       "the request has a header that continues on the next line, which is not supported");
    }
    if (f.has_bad_name) {
        return ls_fail(LS_ERR_INVALID, "the request has an invalid header: there must be no blank in the "
                                       "header's name or before the colon");
    }
    if (f.has_control) {
        return ls_fail(
            LS_ERR_INVALID,
            "the request has a header whose value contains a control character, which is not allowed");
    }
    if (f.hosts > 1 || f.lengths > 1 || f.encodings > 1) {
        return ls_fail(LS_ERR_INVALID, "the request has more than one header %s",
                       f.hosts > 1     ? "Host"
                       : f.lengths > 1 ? "Content-Length"
                                       : "Transfer-Encoding");
    }
    if (f.has_bad_length) {
        return ls_fail(LS_ERR_INVALID, "the request's header Content-Length must be a whole number");
    }
    if (f.lengths > 0 && f.encodings > 0) {
        return ls_fail(LS_ERR_INVALID,
                       "the request has both Content-Length and Transfer-Encoding: send one of them");
    }
    if (f.has_bad_encoding) {
        *code_out = 501;
        return ls_fail(LS_ERR_INVALID,
                       "the request's header Transfer-Encoding is not 'chunked', the only one supported");
    }
    return LS_OK;
}
