// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/sigv4.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void ls_sigv4_time(double seconds, char time_out[LS_SIGV4_TIME_BYTES])
{
    const time_t whole = seconds >= 0.0 && seconds < 253402300800.0 ? (time_t)seconds : 0;
    struct tm parts;
    gmtime_r(&whole, &parts);
    LS_ASSERT(strftime(time_out, LS_SIGV4_TIME_BYTES, "%Y%m%dT%H%M%SZ", &parts) > 0);
}

static void mac(unsigned char key[LS_SHA256_BYTES], const char *text)
{
    unsigned char next[LS_SHA256_BYTES];
    ls_hmac_sha256(key, LS_SHA256_BYTES, text, strlen(text), next);
    memcpy(key, next, sizeof next);
}

void ls_sigv4_derive(const char *secret, const char *time, const char *region, const char *service,
                     ls_sigv4_key *key_out)
{
    ls_text begin = {0};
    ls_text_append(&begin, "AWS4");
    ls_text_append(&begin, secret);
    ls_hmac_sha256(begin.data, begin.bytes, time, 8, key_out->bytes);
    explicit_bzero(begin.data, begin.bytes);
    ls_text_release(&begin);
    mac(key_out->bytes, region);
    mac(key_out->bytes, service);
    mac(key_out->bytes, "aws4_request");
}

/* ---- encoding ---- */

void ls_sigv4_append_encoded(ls_text *text, const char *string, bool keep_slash)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (const char *at = string; *at; at++) {
        if (strchr(plain, *at) || (keep_slash && *at == '/')) {
            ls_text_append_bytes(text, at, 1);
        } else {
            ls_text_printf(text, "%%%02X", (unsigned)(unsigned char)*at);
        }
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const ls_sigv4_header *)a)->name, ((const ls_sigv4_header *)b)->name);
}

void ls_sigv4_append_query(ls_text *text, ls_sigv4_header *pairs, size_t count)
{
    /* All names in use are plain, so that encoding does not change their order. */
    if (count > 1) {
        qsort(pairs, count, sizeof *pairs, compare_names);
    }
    for (size_t i = 0; i < count; i++) {
        ls_text_append(text, i > 0 ? "&" : "");
        ls_sigv4_append_encoded(text, pairs[i].name, false);
        ls_text_append(text, "=");
        ls_sigv4_append_encoded(text, pairs[i].value, false);
    }
}

/* ---- signing ---- */

/* Appends the canonical request, and the names of the signed headers, "host;x-amz-date". */
static void append_canonical(const ls_sigv4_request *request, ls_text *text, ls_text *names)
{
    ls_sigv4_header sorted[LS_SIGV4_HEADERS_MAX];
    LS_ASSERT(request->header_count <= LS_SIGV4_HEADERS_MAX);
    memcpy(sorted, request->headers, request->header_count * sizeof *sorted);
    qsort(sorted, request->header_count, sizeof *sorted, compare_names);
    ls_text_printf(text, "%s\n%s\n%s\n", request->method, request->path, request->query);
    for (size_t i = 0; i < request->header_count; i++) {
        ls_text_printf(text, "%s:%s\n", sorted[i].name, sorted[i].value);
        ls_text_printf(names, "%s%s", i > 0 ? ";" : "", sorted[i].name);
    }
    ls_text_printf(text, "\n%s\n%s", ls_text_string(names), request->payload_sha256);
}

void ls_sigv4_append_authorization(const ls_sigv4_request *request, const char *key_id,
                                   const ls_sigv4_key *key, ls_text *text)
{
    ls_text canonical = {0}, names = {0}, scope = {0}, to_sign = {0};
    char hex[LS_SHA256_HEX_BYTES];
    unsigned char signature[LS_SHA256_BYTES];
    append_canonical(request, &canonical, &names);
    ls_sha256_hex(canonical.data, canonical.bytes, hex);
    ls_text_printf(&scope, "%.8s/%s/%s/aws4_request", request->time, request->region, request->service);
    ls_text_printf(&to_sign, "AWS4-HMAC-SHA256\n%s\n%s\n%s", request->time, ls_text_string(&scope), hex);
    ls_hmac_sha256(key->bytes, sizeof key->bytes, to_sign.data, to_sign.bytes, signature);
    ls_text_printf(text, "AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=", key_id,
                   ls_text_string(&scope), ls_text_string(&names));
    for (size_t i = 0; i < sizeof signature; i++) {
        ls_text_printf(text, "%02x", signature[i]);
    }
    ls_text_release(&canonical);
    ls_text_release(&names);
    ls_text_release(&scope);
    ls_text_release(&to_sign);
}
