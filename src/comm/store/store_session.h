// SPDX-License-Identifier: Apache-2.0
/*
 * The protocol of a client of the store, without its socket. A session survives its links.
 *
 * store_client.c drives a session over a blocking socket, store_link.c over an env, and the
 * simulations over a simulated network. The driver opens links, moves messages, and reports:
 *
 *   ls_store_session_opened     a link is open: the session sends its hello
 *   ls_store_session_received   a message has arrived
 *   ls_store_session_lost       the link is lost: the pending request is sent again on the next one
 *
 *   AWAY ──opened──▶ ASKED ──challenge──▶ PROVED ──welcome──▶ READY ──▶ requests and replies
 *     ◀───────────────────────── lost, from every state ──────────────────┘
 *
 * For one thread. A session never waits and never reads a clock.
 */
#ifndef LS_COMM_STORE_STORE_SESSION_H
#define LS_COMM_STORE_STORE_SESSION_H

#include "comm/store/store_wire.h"

typedef struct ls_store_session {
    /* Set by the driver. `send` returns 0 or a negative errno value; `other` gets the coordinator's
     * messages (NULL: they are ignored). */
    int (*send)(void *context, const void *data, size_t bytes);
    void (*other)(void *context, const void *data, size_t bytes);
    void *context;

    char token[256];
    ls_store_exchange exchange;
    enum {
        LS_STORE_SESSION_AWAY,
        LS_STORE_SESSION_ASKED,
        LS_STORE_SESSION_PROVED,
        LS_STORE_SESSION_READY,
    } state;
    /* Numbers of the newest request, and of the newest one that has been answered. */
    uint64_t seq, answered_seq;
    /* The pending request as it is sent; NULL: none. */
    unsigned char *request;
    size_t request_bytes;
    /* The answer to the newest request, valid until the next one. */
    ls_status status;
    int64_t number;
    unsigned char *value;
    size_t value_bytes;
} ls_store_session;

/* id: LS_STORE_SESSION_BYTES random bytes. Errors: LS_ERR_INVALID if the token or the identity is
 * too long. Unprintable characters of the identity are replaced. */
LS_MUST_CHECK ls_status ls_store_session_init(ls_store_session *session, const char *token, uint64_t epoch,
                                              const char *identity, const unsigned char *id);
void ls_store_session_release(ls_store_session *session);

/* nonce: LS_STORE_NONCE_BYTES random bytes, different for each link. */
void ls_store_session_opened(ls_store_session *session, const unsigned char *nonce);
void ls_store_session_lost(ls_store_session *session);

/* An error ends the session for good: the server refused it or has lost its state, or the peer is
 * not the right server. */
LS_MUST_CHECK ls_status ls_store_session_received(ls_store_session *session, const void *data, size_t bytes);

/* Begins a request, which is sent as soon as the session is ready; an earlier one without an answer
 * is given up. The caller sets kind, lengths and number in message.header, and the pointers.
 * Errors: LS_ERR_INVALID (lengths), LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_store_session_request(ls_store_session *session, ls_store_message message);
static inline bool ls_store_session_is_ready(const ls_store_session *session)
{
    return session->state == LS_STORE_SESSION_READY;
}
static inline bool ls_store_session_is_answered(const ls_store_session *session)
{
    return session->answered_seq == session->seq;
}
/* Sends a message to the coordinator. Returns 0 or a negative errno value; -ENOTCONN while the
 * session is not ready. */
int ls_store_session_send_other(ls_store_session *session, const void *data, size_t bytes);

#endif
