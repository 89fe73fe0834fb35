// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP server: listens on a Unix socket and on TCP (with TLS), inside the event loop of env/env.h.
 *
 * What is general about serving HTTP lives here: connections and their deadlines, bodies, admission
 * (env/http/http_guard.h), answers that come later, and answers without an end. What a request
 * means, who may ask it and what it answers is its handler's business.
 *
 *      client ──▶ listener ──▶ begin() ──▶ body ──▶ handle() ─ ─ ─ ▶ ls_http_exchange_reply ──▶ client
 *                                │                     │                                 end()
 *                                └─ may refuse         └─ may answer at once, or later: the request
 *                                                         sleeps, and holds up no other
 *
 * Limits on what clients can take: connections (and those of one user other than the owner), bytes
 * of headers, of a body and of all bodies together, seconds from the first byte of a request to the
 * last, seconds to read an answer.
 *
 * One owner: everything is called from the loop's thread, and so are the handler's functions.
 */
#ifndef LS_ENV_HTTP_HTTP_SERVER_H
#define LS_ENV_HTTP_HTTP_SERVER_H

#include "base/status.h"
#include "env/env.h"
#include "env/http/http_guard.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_http_server ls_http_server;
typedef struct ls_http_exchange ls_http_exchange;
typedef struct ls_http_stream ls_http_stream;

enum {
    LS_HTTP_CONNECTIONS_MAX = 512,
    LS_HTTP_CONNECTIONS_OF_USER_MAX = 64, /* of a known user who is not the owner; beyond: 429 */
    LS_HTTP_HEADER_BYTES_MAX = 32 * 1024,
    LS_HTTP_BODIES_BYTES_MAX = 32 * 1024 * 1024, /* of all requests that are being read */
    LS_HTTP_REQUEST_S = 10, /* for one whole request, and between two on one connection */
    LS_HTTP_ANSWER_S = 60,  /* for the client to read an answer; streams have no such limit */
};

typedef struct ls_http_handler {
    void *context;
    /*
     * Request line and headers are there; the body is not. It may answer, to refuse the request.
     * Returns what the functions below get as `state`.
     */
    void *(*begin)(void *context, ls_http_exchange *request, const char *method);
    /* The whole request is there. It answers now or later. */
    void (*handle)(void *state);
    /* The client of a request that sleeps has closed the connection: it may be answered. */
    void (*hung_up)(void *state);
    /* The server stops while this request sleeps: it must be answered now. */
    void (*stop)(void *state);
    /* The last call for a request, answered or not: nothing of it may be used afterwards. */
    void (*end)(void *state);
    /* Once a second. */
    void (*beat)(void *context);
} ls_http_handler;

typedef struct ls_http_settings {
    ls_env *env;        /* a real one, which outlives the server */
    const char *folder; /* gets the Unix socket `socket` */
    bool all_users;     /* the socket is open to every user of the machine, else to the owner */
    const char *listen; /* "127.0.0.1:0" (port 0: any free one); "": no TCP */
    /* A second folder for a Unix socket, such as /run/lockstep; NULL: none. */
    const char *shared_folder;
    /* Who comes in over TCP: see ls_http_guard. */
    bool (*find_token)(void *tokens, const char *token, ls_http_identity *identity_out);
    void *tokens;
    bool admits_owner, admits_users;
    size_t body_bytes_max; /* of one request */
    double request_s;      /* instead of LS_HTTP_REQUEST_S, for tests; 0: that */
    /* PEM files, both or neither; required unless `listen` is on loopback. */
    const char *certificate, *key;
    const char *tls_settings; /* for an error: where these two are set */
    ls_http_handler handler;
} ls_http_settings;

/*
 * Opens the listeners. Strings are copied.
 * Errors: LS_ERR_UNSUPPORTED (libmicrohttpd is missing), LS_ERR_INVALID (address; TLS missing or
 * broken), LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_http_server_create(const ls_http_settings *settings, ls_http_server **server_out);

/*
 * Whether a server with these settings could be created: address, certificate and key. Opens
 * nothing that stays open and replaces no socket; a port that is in use is accepted. Uses only
 * `listen`, `certificate`, `key` and `tls_settings`. Errors: as for ls_http_server_create.
 */
LS_MUST_CHECK ls_status ls_http_server_check(const ls_http_settings *settings);

/*
 * Sends what has been answered (for one second at most), stops the rest, closes. Streams are to be
 * ended before. The handler's functions are called from in here. NULL: nothing.
 */
void ls_http_server_destroy(ls_http_server *server);

/* "http://127.0.0.1:8421"; "" without TCP. */
const char *ls_http_server_address(const ls_http_server *server);

/* ---- one exchange: a request and its reply, from begin() to end() ---- */

/* Path and query, as they came, without the token. */
const char *ls_http_exchange_target(const ls_http_exchange *request);
/* NULL: absent. */
const char *ls_http_exchange_header(const ls_http_exchange *request, const char *name);
/* Valid until handle() returns. */
const char *ls_http_exchange_body(ls_http_exchange *request, size_t *bytes_out);
/* The body was longer than its limit, or all bodies together were: it was thrown away. */
bool ls_http_exchange_is_too_long(const ls_http_exchange *request);
bool ls_http_exchange_is_answered(const ls_http_exchange *request);

/*
 * Asks the guard whether the request may enter; see ls_http_guard_admit. is_page: its answer is a
 * page for a browser.
 */
LS_MUST_CHECK ls_status ls_http_exchange_admit(const ls_http_exchange *request, const char *method,
                                               bool is_page, ls_http_identity *identity_out, int *code_out);

/*
 * For a page that was opened with ?token=: answers with a redirect that stores the token in a
 * cookie and takes it out of the address, which browsers keep. False: there was no token.
 */
bool ls_http_exchange_move_token(ls_http_exchange *request);

typedef struct ls_http_reply {
    unsigned code;
    const char *type; /* of the content; NULL: none */
    const char *data;
    size_t bytes;
    const char *header, *value; /* one more header; NULL: none */
} ls_http_reply;

/* Once for each request; everything is copied. Sets the security headers of every answer. */
void ls_http_exchange_reply(ls_http_exchange *request, const ls_http_reply *reply);

/* ---- answers without an end: events, logs that are followed ---- */

typedef struct ls_http_stream_calls {
    void *context;
    /* All bytes have been taken, and the stream is about to sleep: more may be put, now or later.
     * NULL: not called. */
    void (*drained)(void *context);
    /* The last call for a stream, however it ended. */
    void (*closed)(void *context);
} ls_http_stream_calls;

/* Answers the request with code 200 and a stream, which lives until `closed` is called. */
ls_http_stream *ls_http_exchange_stream(ls_http_exchange *request, const char *type,
                                        const ls_http_stream_calls *calls);
void ls_http_stream_put(ls_http_stream *stream, const void *data, size_t bytes);
/* Bytes that were put and not yet taken. */
size_t ls_http_stream_waiting(const ls_http_stream *stream);
/* What was put is still sent, then the stream ends. */
void ls_http_stream_end(ls_http_stream *stream);
bool ls_http_stream_is_ending(const ls_http_stream *stream);

#endif
