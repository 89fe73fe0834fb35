// SPDX-License-Identifier: Apache-2.0
/*
 * Response: what an HTTP/1.1 server sends back, read as it comes. For one question per connection over the daemon's Unix socket: a status
 * line, headers, and a body that is as long as Content-Length says, chunked, or ends with the connection.
 *
 * Own, and this small, because libcurl (base/http.h) takes 9 ms to load, and a command that asks a daemon is to be done in less. Pure; one
 * owner; fuzzed (tests/fuzz/fuzz_response.c).
 */
#ifndef LS_ORCHESTRATION_CLIENT_RESPONSE_H
#define LS_ORCHESTRATION_CLIENT_RESPONSE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_RESPONSE_HEAD_BYTES_MAX = 16 * 1024 };

/* A part of the body. False: no more is wanted. */
typedef bool (*ls_response_take)(void *context, const char *data, size_t bytes);

typedef enum ls_response_state {
    LS_RESPONSE_HEAD,
    LS_RESPONSE_BODY,       /* left_bytes of it are to come; UINT64_MAX: until the connection ends */
    LS_RESPONSE_CHUNK_SIZE, /* a line with the size of the next chunk */
    LS_RESPONSE_CHUNK,      /* left_bytes of it */
    LS_RESPONSE_CHUNK_END,  /* the line feed behind it */
    LS_RESPONSE_TRAILER,    /* lines behind the last chunk */
    LS_RESPONSE_DONE,
    LS_RESPONSE_UNWANTED, /* `take` said so */
} ls_response_state;

/* Set take and context, all else zero. */
typedef struct ls_response {
    ls_response_take take;
    void *context;
    ls_response_state state;
    int code; /* 200, 404, ...; 0 before the head is there */
    bool is_chunked;
    uint64_t left_bytes;
    uint64_t next;                         /* of the header X-Next, 0 without */
    char line[LS_RESPONSE_HEAD_BYTES_MAX]; /* the head, or a line about chunks, as far as it has come */
    size_t line_bytes;
} ls_response;

/* Reads on. Errors: LS_ERR_DATA for what is no such response. */
LS_MUST_CHECK ls_status ls_response_feed(ls_response *response, const char *data, size_t bytes);
/* The connection has ended: was that all? Errors: LS_ERR_IO when it was cut off. */
LS_MUST_CHECK ls_status ls_response_end(const ls_response *response);

#endif
