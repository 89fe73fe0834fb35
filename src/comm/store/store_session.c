// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ls_status ls_store_session_init(ls_store_session *session, const char *token, uint64_t epoch,
                                const char *identity, const unsigned char *id)
{
    *session = (ls_store_session){.exchange.epoch = epoch};
    token = token ? token : "";
    if (strlen(token) >= sizeof session->token) {
        return ls_fail(LS_ERR_INVALID,
                       "a token (the secret that the hosts of a run share) may have at most %zu characters; "
                       "this one has %zu",
                       sizeof session->token - 1, strlen(token));
    }
    if (strlen(identity) > LS_STORE_KEY_BYTES_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "the name of a client of the coordinator may have at most %d characters; this one has %zu",
            LS_STORE_KEY_BYTES_MAX, strlen(identity));
    }
    snprintf(session->token, sizeof session->token, "%s", token);
    memcpy(session->exchange.identity, identity, strlen(identity));
    ls_store_text_clean(session->exchange.identity);
    memcpy(session->exchange.session, id, LS_STORE_SESSION_BYTES);
    return LS_OK;
}

void ls_store_session_release(ls_store_session *session)
{
    free(session->request);
    free(session->value);
    session->request = NULL;
    session->value = NULL;
}

/* Errors are ignored: what could not be sent is sent again on the next link, or by `again`. */
static void send_message(ls_store_session *session, ls_store_message message)
{
    size_t bytes = 0;
    message.header.epoch = session->exchange.epoch;
    unsigned char *data = ls_store_message_write(&message, &bytes);
    if (data) {
        session->send(session->context, data, bytes);
    }
    free(data);
}

static void send_hello(ls_store_session *session)
{
    unsigned char value[LS_STORE_SESSION_BYTES + LS_STORE_NONCE_BYTES];
    memcpy(value, session->exchange.session, LS_STORE_SESSION_BYTES);
    memcpy(value + LS_STORE_SESSION_BYTES, session->exchange.client_nonce, LS_STORE_NONCE_BYTES);
    send_message(session,
                 (ls_store_message){.header = {.kind = LS_STORE_HELLO,
                                               .key_bytes = (uint16_t)strlen(session->exchange.identity),
                                               .value_bytes = sizeof value},
                                    .key = session->exchange.identity,
                                    .value = value});
}

static void send_proof(ls_store_session *session)
{
    unsigned char proof[LS_SHA256_BYTES];
    ls_store_proof(&session->exchange, session->token, "client", proof);
    send_message(session, (ls_store_message){.header = {.kind = LS_STORE_PROOF, .value_bytes = sizeof proof},
                                             .value = proof});
}

static void send_request(ls_store_session *session)
{
    if (session->request) {
        session->send(session->context, session->request, session->request_bytes);
    }
}

void ls_store_session_opened(ls_store_session *session, const unsigned char *nonce)
{
    memcpy(session->exchange.client_nonce, nonce, LS_STORE_NONCE_BYTES);
    memset(session->exchange.server_nonce, 0, LS_STORE_NONCE_BYTES);
    session->state = LS_STORE_SESSION_ASKED;
    send_hello(session);
}

void ls_store_session_lost(ls_store_session *session)
{
    session->state = LS_STORE_SESSION_AWAY;
}

static ls_status receive_welcome(ls_store_session *session, const ls_store_message *message)
{
    unsigned char proof[LS_SHA256_BYTES];
    ls_store_proof(&session->exchange, session->token, "server", proof);
    if (message->header.value_bytes != sizeof proof ||
        !ls_secret_equal(message->value, proof, sizeof proof)) {
        return ls_fail(
            LS_ERR_INVALID,
            "the program at this address does not know the job's token: it is not this job's coordinator");
    }
    /* The server remembers fewer requests than it has answered: it is another server process. */
    if ((uint64_t)message->header.number < session->answered_seq) {
        return ls_fail(LS_ERR_RANKS_LOST,
                       "the coordinator was restarted, so what this process had stored there is lost");
    }
    session->state = LS_STORE_SESSION_READY;
    send_request(session);
    return LS_OK;
}

static ls_status receive_refused(const ls_store_message *message)
{
    char text[400];
    const size_t bytes =
        message->header.value_bytes < sizeof text - 1 ? message->header.value_bytes : sizeof text - 1;
    memcpy(text, message->value, bytes);
    text[bytes] = '\0';
    ls_store_text_clean(text);
    return ls_fail(message->header.status == LS_ERR_TIMEOUT ? LS_ERR_TIMEOUT : LS_ERR_INVALID, "refused: %s",
                   text);
}

static ls_status receive_reply(ls_store_session *session, const ls_store_message *message)
{
    const ls_store_header *header = &message->header;
    if (header->seq != session->seq || ls_store_session_is_answered(session)) {
        return LS_OK; /* the request was given up, or this is a second answer */
    }
    unsigned char *value = malloc(header->value_bytes + 1);
    if (!value) {
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory for a value of %u bytes from the coordinator's store",
                       header->value_bytes);
    }
    memcpy(value, message->value, header->value_bytes);
    value[header->value_bytes] = '\0';
    free(session->value);
    free(session->request);
    session->request = NULL;
    session->value = value;
    session->value_bytes = header->value_bytes;
    session->status = header->status;
    session->number = header->number;
    session->answered_seq = header->seq;
    return LS_OK;
}

static ls_status receive_challenge(ls_store_session *session, const ls_store_message *message)
{
    static const unsigned char none[LS_STORE_NONCE_BYTES];
    unsigned char *nonce = session->exchange.server_nonce;
    if (message->header.value_bytes != LS_STORE_NONCE_BYTES) {
        return ls_fail(
            LS_ERR_INVALID,
            "the coordinator sent an authentication challenge of %u bytes instead of %d: the hosts "
            "probably run different versions of lockstep; install the same version on all of them",
            message->header.value_bytes, LS_STORE_NONCE_BYTES);
    }
    if (session->state == LS_STORE_SESSION_READY ||
        (memcmp(nonce, none, sizeof none) != 0 && memcmp(nonce, message->value, sizeof none) != 0)) {
        return LS_OK; /* a duplicate, or from an earlier link */
    }
    memcpy(nonce, message->value, LS_STORE_NONCE_BYTES);
    session->state = LS_STORE_SESSION_PROVED;
    send_proof(session);
    return LS_OK;
}

ls_status ls_store_session_received(ls_store_session *session, const void *data, size_t bytes)
{
    ls_store_message message;
    LS_TRY(ls_store_message_parse(data, bytes, &message));
    switch (message.header.kind) {
    case LS_STORE_CHALLENGE:
        return receive_challenge(session, &message);
    case LS_STORE_WELCOME:
        return session->state == LS_STORE_SESSION_PROVED ? receive_welcome(session, &message) : LS_OK;
    case LS_STORE_REFUSED:
        return receive_refused(&message);
    default:
        break;
    }
    if (session->state != LS_STORE_SESSION_READY) {
        return LS_OK; /* from an earlier link */
    }
    switch (message.header.kind) {
    case LS_STORE_REPLY:
        return receive_reply(session, &message);
    case LS_STORE_OTHER:
        if (session->other) {
            session->other(session->context, message.value, message.header.value_bytes);
        }
        return LS_OK;
    default:
        return ls_fail(LS_ERR_INVALID,
                       "the coordinator sent a message of unknown kind %u: the hosts probably run different "
                       "versions of lockstep; install the same version on all of them",
                       message.header.kind);
    }
}

ls_status ls_store_session_request(ls_store_session *session, ls_store_message message)
{
    ls_store_message checked;
    size_t bytes = 0;
    message.header.seq = session->seq + 1;
    message.header.epoch = session->exchange.epoch;
    unsigned char *request = ls_store_message_write(&message, &bytes);
    if (!request) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a request to the coordinator");
    }
    const ls_status status = ls_store_message_parse(request, bytes, &checked);
    if (status != LS_OK) {
        free(request);
        return status;
    }
    free(session->request);
    session->request = request;
    session->request_bytes = bytes;
    session->seq++;
    if (session->state == LS_STORE_SESSION_READY) {
        send_request(session);
    }
    return LS_OK;
}

int ls_store_session_send_other(ls_store_session *session, const void *data, size_t bytes)
{
    size_t message_bytes = 0;
    if (session->state != LS_STORE_SESSION_READY) {
        return -ENOTCONN;
    }
    if (bytes > LS_STORE_VALUE_BYTES_MAX) {
        return -EMSGSIZE;
    }
    unsigned char *message =
        ls_store_message_write(&(ls_store_message){.header = {.kind = LS_STORE_OTHER,
                                                              .epoch = session->exchange.epoch,
                                                              .value_bytes = (uint32_t)bytes},
                                                   .value = data},
                               &message_bytes);
    const int error = message ? session->send(session->context, message, message_bytes) : -ENOMEM;
    free(message);
    return error;
}
