// SPDX-License-Identifier: Apache-2.0
/*
 * A client of the store without its socket: what it says and understands, over any link, across links.
 *
 * store_client.c drives one over a blocking socket; tests drive one over the simulated network. The driver opens links and moves messages:
 *
 *   ls_store_session_opened     a link stands: says hello
 *   ls_store_session_received   a message came
 *   ls_store_session_lost       the link ended; the request under way is said again on the next one
 *   ls_store_session_again      nothing came for a while: repeats what was said last (a network that loses messages)
 *
 * One thread. A session never waits and never reads a clock.
 */
#ifndef LS_EXECUTION_COMM_STORE_SESSION_H
#define LS_EXECUTION_COMM_STORE_SESSION_H

#include "execution/comm/store_wire.h"

typedef struct ls_store_session {
    /* Set by the driver; `send` returns 0 or minus an errno value, `notice` takes CHANGED and OTHER. */
    int (*send)(void *context, const void *data, size_t bytes);
    void (*notice)(void *context, const ls_store_message *message);
    void *context;

    char token[256];
    ls_store_exchange exchange;
    enum {
        LS_STORE_SESSION_AWAY,   /* no link */
        LS_STORE_SESSION_ASKED,  /* said hello */
        LS_STORE_SESSION_PROVED, /* sent the proof */
        LS_STORE_SESSION_READY,
    } state;
    bool challenged;            /* a peer of this link spoke our protocol */
    uint64_t seq, answered_seq; /* of the newest request, and of the newest that was answered */
    unsigned char *request;     /* bytes of the one under way, NULL: none */
    size_t request_bytes;
    /* The answer to the newest request, valid until the next one. */
    ls_status status;
    int64_t number;
    unsigned char *value;
    size_t value_bytes;
    uint32_t watch_count;
    char watches[LS_STORE_WATCHES_MAX][LS_STORE_KEY_BYTES_MAX + 1];
} ls_store_session;

/* id: LS_STORE_SESSION_BYTES random bytes. Errors: LS_ERR_INVALID for a token or an identity that is too long or not printable. */
LS_MUST_CHECK ls_status ls_store_session_init(ls_store_session *session, const char *token, uint64_t epoch,
                                              const char *identity, const unsigned char *id);
void ls_store_session_release(ls_store_session *session);

/* nonce: LS_STORE_NONCE_BYTES random bytes, new ones for each link. */
void ls_store_session_opened(ls_store_session *session, const unsigned char *nonce);
void ls_store_session_lost(ls_store_session *session);
void ls_store_session_again(ls_store_session *session);

/* Errors end the session for good: refused, the wrong peer, a server that has forgotten this session. */
LS_MUST_CHECK ls_status ls_store_session_received(ls_store_session *session, const void *data, size_t bytes);

/* Begins a request; header.kind, lengths, flags and number and the pointers of `message` are the caller's. It is sent as soon as the
 * session is ready. One that was not answered is given up. Errors: LS_ERR_INVALID (lengths), LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_store_session_request(ls_store_session *session, ls_store_message message);
static inline bool ls_store_session_is_ready(const ls_store_session *session)
{
    return session->state == LS_STORE_SESSION_READY;
}
static inline bool ls_store_session_is_answered(const ls_store_session *session)
{
    return session->answered_seq == session->seq;
}
/* A message without answer. -ENOTCONN while not ready. */
int ls_store_session_send_other(ls_store_session *session, const void *data, size_t bytes);

#endif
