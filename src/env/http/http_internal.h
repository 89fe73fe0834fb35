// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the HTTP server: what its two parts share.
 *
 *   http_server.c    listeners, connections, the library's loop inside ours
 *   http_exchange.c  one request, its reply, and streams
 */
#ifndef LS_ENV_HTTP_HTTP_INTERNAL_H
#define LS_ENV_HTTP_HTTP_INTERNAL_H

#include "base/text.h"
#include "env/http/http_server.h"
#include "env/http/microhttpd.h"

#define LS_HTTP_NS_PER_S UINT64_C(1000000000)

enum {
    LS_HTTP_HOSTS_MAX = 6, /* names of the server on loopback */
    /* Connections of a user beyond the limit that are told so; further ones are closed unheard. */
    LS_HTTP_CONNECTIONS_TOLD = 32,
    LS_HTTP_LISTENERS = 3, /* Unix, the shared Unix socket, TCP */
};

/* A listening socket, with the library's server behind it. */
typedef struct ls_http_listener {
    ls_http_server *server;
    bool is_unix;
    struct MHD_Daemon *daemon; /* NULL: this one is not used */
    ls_env_id watch, timer;    /* timer 0: none is set */
} ls_http_listener;

typedef struct ls_http_connection {
    struct ls_http_connection *next, **here; /* in the server's list */
    ls_http_listener *listener;
    int fd;
    bool is_peer_known;
    bool is_beyond_limit; /* its user has too many: each request is answered with 429 */
    uint32_t uid, gid;
    uint64_t deadline_ns;      /* 0: none */
    ls_http_exchange *request; /* the current request; NULL: none */
} ls_http_connection;

struct ls_http_exchange {
    ls_http_server *server;
    ls_http_connection *connection;
    struct MHD_Connection *library;
    char *target;
    uintptr_t target_at; /* where the library has it: address and length */
    size_t target_bytes;
    char token[2 * LS_HTTP_TOKEN_BYTES]; /* of the query */
    bool has_token;
    ls_text body;
    bool is_too_long;
    bool has_begun;   /* begin() was called, and `state` is the handler's */
    bool is_complete; /* handle() was called */
    bool is_asleep;   /* suspended in the library until it is answered */
    void *state;
    struct MHD_Response *response;
    unsigned code;
    ls_http_stream *stream; /* NULL: the answer is not a stream */
};

struct ls_http_stream {
    ls_http_server *server;
    ls_http_listener *listener;
    struct MHD_Connection *library;
    ls_text queue;
    size_t sent; /* bytes of `queue` that the library has taken */
    bool is_asleep, is_ending;
    ls_http_stream_calls calls;
};

struct ls_http_server {
    const ls_microhttpd *mhd;
    ls_env *env;
    ls_http_handler handler;
    ls_http_guard guard;
    char *host_texts[LS_HTTP_HOSTS_MAX];
    const char *hosts[LS_HTTP_HOSTS_MAX + 1];
    char *address;
    ls_http_listener listeners[LS_HTTP_LISTENERS];
    ls_http_connection *connections;
    size_t body_bytes_max;
    size_t body_bytes; /* of all requests that are being read */
    size_t open_requests;
    uint64_t request_ns;
    ls_env_id beat;
};

/*
 * Resumes a suspended connection. The library looks at it again in its next run: from the loop,
 * never from here, because the caller may be inside one of the library's own calls.
 */
void ls_http_listener_resume(ls_http_listener *listener, struct MHD_Connection *library);

/* Callbacks of the library: a request line was read; headers, body, end of a request; it is
 * over. */
void *ls_http_exchange_began(void *listener, const char *uri, struct MHD_Connection *library);
enum MHD_Result ls_http_exchange_continues(void *listener, struct MHD_Connection *library, const char *url,
                                           const char *method, const char *version, const char *data,
                                           size_t *bytes, void **exchange);
void ls_http_exchange_ended(void *listener, struct MHD_Connection *library, void **exchange,
                            enum MHD_RequestTerminationCode how);

#endif
