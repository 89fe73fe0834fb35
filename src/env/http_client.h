// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP: one request at a time, with deadlines. A thin layer over libcurl.
 *
 * The library is loaded with the first request: linking it would cost every process of the program
 * 9 ms at its start. No redirects or cookies: a request goes only to the given address, and a
 * caller that follows `location` decides what it sends there. No proxies unless asked for.
 * Blocking; thread-safe.
 */
#ifndef LS_ENV_HTTP_CLIENT_H
#define LS_ENV_HTTP_CLIENT_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_HTTP_BODY_BYTES_MAX = 64 * 1024, /* limit of an answer; longer ones are an error */
    LS_HTTP_WANTED_MAX = 5,
};

struct ls_http_answer;

/* A connection that is kept for the next request, which saves the handshakes. Used by one request
 * at a time. */
typedef struct ls_http_session ls_http_session;
/* NULL without memory or libcurl; requests then work without. */
ls_http_session *ls_http_session_create(void);
void ls_http_session_destroy(ls_http_session *session); /* NULL is allowed */

typedef struct ls_http_request {
    const char *method;         /* "GET", "PUT", "POST"; an answer to "HEAD" has no body */
    const char *url;            /* http:// or https:// */
    const char *const *headers; /* "Name: value", ends with NULL; NULL: none */
    const void *body;           /* borrowed, sent without a Content-Type of its own; NULL: none */
    size_t body_bytes;
    /* In place of `body`: gives bytes [offset, offset + bytes) of body_bytes. A status other than
     * LS_OK ends the request with it. NULL: none. */
    ls_status (*give)(void *context, uint64_t offset, void *data, size_t bytes);
    double connect_timeout_s, timeout_s; /* > 0; timeout_s is for the whole request */
    /* when it is not 0 the request is given up within a second; NULL: never */
    const _Atomic uint32_t *cancel;
    /* Given up when nothing arrives for so long; timeout_s may then be 0: no limit. 0: no such
     * limit. */
    double stall_s;
    /* Takes the body of an answer of 200 or 206 as it comes, of any length, in place of
     * answer->body; a status other than LS_OK ends the request with it. NULL: none. */
    ls_status (*take)(void *context, const struct ls_http_answer *head, const void *data, size_t bytes);
    void *context;
    bool uses_proxies; /* those of the environment: https_proxy, no_proxy */
    /* Further headers of the answer to keep, with their colon: "etag:". At most LS_HTTP_WANTED_MAX,
     * ends with NULL; NULL: none. */
    const char *const *wanted;
    ls_http_session *session; /* NULL: a connection of its own */
} ls_http_request;

typedef struct ls_http_answer {
    int code; /* 200, 404, ... */
    /* Headers; "" if the answer lacks them or they are longer. */
    char location[2048], content_range[128], retry_after[64], error_message[512];
    char wanted[LS_HTTP_WANTED_MAX][256]; /* in the order of the request's */
    size_t bytes;
    char body[LS_HTTP_BODY_BYTES_MAX + 1]; /* zero-terminated */
} ls_http_answer;

/*
 * An answer is LS_OK, whatever its HTTP code is. Errors: LS_ERR_IO (no connection, cut off, body
 * too long, no libcurl), LS_ERR_TIMEOUT, LS_STOPPED when cancelled, LS_ERR_INVALID for an address
 * that can't be read.
 */
LS_MUST_CHECK ls_status ls_http_do(const ls_http_request *request, ls_http_answer *answer_out);

#endif
