// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP: one request at a time, with deadlines. A thin layer over libcurl.
 *
 * The library is loaded with the first request: linked, it and what it needs would cost every process of the program 9 ms at its start.
 * No proxy, no redirect, no cookie: what is asked is asked of the address that was given. Blocking; thread-safe.
 */
#ifndef LS_BASE_HTTP_H
#define LS_BASE_HTTP_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_HTTP_BODY_BYTES_MAX = 64 * 1024 }; /* longer answers are an error */

typedef struct ls_http_request {
    const char *method;                  /* "GET", "PUT"; without a body */
    const char *url;                     /* http:// or https:// */
    const char *const *headers;          /* "Name: value", ends with NULL; NULL: none */
    double connect_timeout_s, timeout_s; /* > 0; timeout_s: for all of it */
    const _Atomic uint32_t *cancel;      /* not 0: give up, within a second; NULL: nobody does */
} ls_http_request;

typedef struct ls_http_answer {
    int code; /* 200, 404, ... */
    size_t bytes;
    char body[LS_HTTP_BODY_BYTES_MAX + 1]; /* zero-terminated */
} ls_http_answer;

/*
 * Whatever the server's code is, an answer is LS_OK. Errors: LS_ERR_IO (no connection, cut off, body too long, no libcurl), LS_ERR_TIMEOUT,
 * LS_STOPPED when cancelled, LS_ERR_INVALID for an address that can't be read.
 */
LS_MUST_CHECK ls_status ls_http_do(const ls_http_request *request, ls_http_answer *answer_out);

#endif
