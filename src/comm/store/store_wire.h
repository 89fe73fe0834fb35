// SPDX-License-Identifier: Apache-2.0
/*
 * The protocol of the rendezvous store. Each message of env/env.h is:
 *
 *   header (48 bytes, little-endian)  key  value
 *
 *   client                                          server
 *     HELLO      identity, session and nonce    ──▶
 *                                               ◀──   CHALLENGE  nonce
 *     PROOF      HMAC(token, both nonces, ...)  ──▶
 *                                               ◀──   WELCOME    HMAC of the server; number: last seq
 *                                                                of this session
 *     PUT GET ADD, seq 1, 2, ...                ──▶
 *                                               ◀──   REPLY      same seq, status, number or value
 *     OTHER      between agent and coordinator, in both directions
 *
 * At any time the server may send REFUSED with a text and close the link.
 *
 * A client has one pending request at a time. On a new link it sends it again (same session, same
 * seq). The server answers a seq that it has already applied from memory, so nothing is applied
 * twice.
 *
 * Magic, version and kind keep their places in all versions, so that a server can tell an older
 * client which version it needs.
 */
#ifndef LS_COMM_STORE_STORE_WIRE_H
#define LS_COMM_STORE_STORE_WIRE_H

#include "base/hash.h"
#include "comm/store/store.h"

enum {
    LS_STORE_MAGIC = 0x3153534c, /* "LSS1" */
    LS_STORE_VERSION = 1,
    LS_STORE_NONCE_BYTES = 32,
    LS_STORE_SESSION_BYTES = 16,
    LS_STORE_MESSAGE_BYTES_MAX = 48 + LS_STORE_KEY_BYTES_MAX + LS_STORE_VALUE_BYTES_MAX,
};

typedef enum ls_store_kind {
    /* key: identity; value: session and the client's nonce. */
    LS_STORE_HELLO = 1,
    /* value: the server's nonce. */
    LS_STORE_CHALLENGE = 2,
    /* value: HMAC. */
    LS_STORE_PROOF = 3,
    /* value: HMAC; number: the last seq of this session that was applied, 0 for a new session. */
    LS_STORE_WELCOME = 4,
    /* status; value: text. */
    LS_STORE_REFUSED = 5,
    /* key, value. */
    LS_STORE_PUT = 6,
    /* key; number: milliseconds to wait. */
    LS_STORE_GET = 7,
    /* key; number: delta. */
    LS_STORE_ADD = 8,
    /* status; number: the counter; value: the result of GET, or an error text. */
    LS_STORE_REPLY = 11,
    /* value. */
    LS_STORE_OTHER = 13,
    LS_STORE_KIND_END
} ls_store_kind;

typedef struct ls_store_header {
    uint32_t magic;
    uint8_t version, kind, status, flags;
    uint16_t key_bytes, reserved;
    uint32_t value_bytes;
    uint32_t reserved_too[2];
    uint64_t epoch, seq;
    int64_t number;
} ls_store_header;
_Static_assert(sizeof(ls_store_header) == 48, "on the wire");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

/* A parsed message; the pointers refer to the bytes that were parsed. `key` has no terminating
 * zero. */
typedef struct ls_store_message {
    ls_store_header header;
    const char *key;
    const unsigned char *value;
} ls_store_message;

/* Checks lengths, limits, reserved fields and that the key is printable. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_store_message_parse(const void *data, size_t bytes, ls_store_message *message_out);

/* The bytes of a message, to be freed by the caller; NULL: no memory. The lengths are those in
 * message->header. */
unsigned char *ls_store_message_write(const ls_store_message *message, size_t *bytes_out);

/* What a proof covers: both nonces, the session, the epoch and the client's identity. */
typedef struct ls_store_exchange {
    unsigned char session[LS_STORE_SESSION_BYTES];
    unsigned char client_nonce[LS_STORE_NONCE_BYTES], server_nonce[LS_STORE_NONCE_BYTES];
    uint64_t epoch;
    char identity[LS_STORE_KEY_BYTES_MAX + 1];
} ls_store_exchange;
_Static_assert(sizeof(ls_store_exchange) == 344, "no padding: the HMAC is taken over its bytes");

/* who: "client" or "server", the side that proves that it knows the token. */
void ls_store_proof(const ls_store_exchange *exchange, const char *token, const char *who,
                    unsigned char out[LS_SHA256_BYTES]);

/* Replaces everything but printable ASCII by '?', so that a peer's text can be shown. */
void ls_store_text_clean(char *text);

#endif
