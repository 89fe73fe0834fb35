// SPDX-License-Identifier: Apache-2.0
/*
 * Response: parses the answer of an HTTP/1.1 server as it arrives, for one request per connection
 * over the daemon's Unix socket: a status line, headers, and a body with a Content-Length, in
 * chunks, or up to the end of the connection.
 *
 * libcurl (env/http_client.h) is not used here because it takes 9 ms to load, longer than a command
 * that asks a daemon should take. Pure; one owner; fuzzed (tests/fuzz/fuzz_response.c).
 */
#ifndef LS_ORCHESTRATION_CLIENT_RESPONSE_H
#define LS_ORCHESTRATION_CLIENT_RESPONSE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_RESPONSE_HEAD_BYTES_MAX = 16 * 1024 };

/* Gets a part of the body. False: no more is wanted. */
typedef bool (*ls_response_take)(void *context, const char *data, size_t bytes);

typedef enum ls_response_state {
    LS_RESPONSE_HEAD,
    LS_RESPONSE_BODY,       /* left_bytes are to come; UINT64_MAX: until the connection ends */
    LS_RESPONSE_CHUNK_SIZE, /* a line with the size of the next chunk */
    LS_RESPONSE_CHUNK,      /* left_bytes of a chunk are to come */
    LS_RESPONSE_CHUNK_END,  /* the line feed after a chunk */
    LS_RESPONSE_TRAILER,    /* lines after the last chunk */
    LS_RESPONSE_DONE,
    LS_RESPONSE_UNWANTED, /* `take` returned false */
} ls_response_state;

/* Set take and context, all else zero. */
typedef struct ls_response {
    ls_response_take take;
    void *context;
    ls_response_state state;
    int code; /* 200, 404, ...; 0 until the head is read */
    bool is_chunked;
    uint64_t left_bytes;
    uint64_t next; /* value of the header X-Next; 0 if absent */
    /* The head, or a line between chunks, as far as it has arrived. */
    char line[LS_RESPONSE_HEAD_BYTES_MAX];
    size_t line_bytes;
} ls_response;

/* Takes more bytes. Errors: LS_ERR_DATA (not an HTTP response). */
LS_MUST_CHECK ls_status ls_response_feed(ls_response *response, const char *data, size_t bytes);
/* The connection has ended. Errors: LS_ERR_IO (the response was not complete). */
LS_MUST_CHECK ls_status ls_response_end(const ls_response *response);

#endif
