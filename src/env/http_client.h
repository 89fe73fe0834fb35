// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP: one request at a time, with deadlines. A thin layer over libcurl.
 *
 * The library is loaded with the first request: linking it would cost every process of the program
 * 9 ms at its start. No proxies, redirects or cookies: a request goes only to the given address.
 * Blocking; thread-safe.
 */
#ifndef LS_ENV_HTTP_CLIENT_H
#define LS_ENV_HTTP_CLIENT_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_HTTP_BODY_BYTES_MAX = 64 * 1024 }; /* limit of an answer; longer ones are an error */

typedef struct ls_http_request {
    const char *method;                  /* "GET", "PUT"; without a body */
    const char *url;                     /* http:// or https:// */
    const char *const *headers;          /* "Name: value", ends with NULL; NULL: none */
    double connect_timeout_s, timeout_s; /* > 0; timeout_s is for the whole request */
    /* when it is not 0 the request is given up within a second; NULL: never */
    const _Atomic uint32_t *cancel;
} ls_http_request;

typedef struct ls_http_answer {
    int code; /* 200, 404, ... */
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
