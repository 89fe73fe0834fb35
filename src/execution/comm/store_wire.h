// SPDX-License-Identifier: Apache-2.0
/*
 * What the rendezvous store says on the wire. Each base/env message is one of ours:
 *
 *   header (48 bytes, little-endian)  key  value  expected
 *
 *   client                                          server
 *     HELLO      identity, session and nonce    ──▶
 *                                               ◀──   CHALLENGE  nonce
 *     PROOF      HMAC(token, both nonces, ...)  ──▶
 *                                               ◀──   WELCOME    HMAC the other way round; number: last seq of this session
 *     PUT GET ADD SET WATCH, seq 1, 2, ...      ──▶                (or REFUSED with a text, at any time; then the link is closed)
 *                                               ◀──   REPLY      same seq, status, number or value
 *                                               ◀──   CHANGED    to who watches
 *     OTHER      the coordinator's and agent's own, both ways
 *
 * A client has one request under way at a time. It says it again after a new link (same session, same seq); the server answers a seq it
 * has already applied from memory, so nothing is applied twice.
 *
 * Magic, version and kind keep their places in all versions, so that a server can tell an older client what it speaks.
 */
#ifndef LS_EXECUTION_COMM_STORE_WIRE_H
#define LS_EXECUTION_COMM_STORE_WIRE_H

#include "base/hash.h"
#include "execution/comm/store.h"

enum {
    LS_STORE_MAGIC = 0x3153534c, /* "LSS1" */
    LS_STORE_VERSION = 1,
    LS_STORE_NONCE_BYTES = 32,
    LS_STORE_SESSION_BYTES = 16,
    LS_STORE_MESSAGE_BYTES_MAX = 48 + LS_STORE_KEY_BYTES_MAX + 2 * LS_STORE_VALUE_BYTES_MAX,
};

typedef enum ls_store_kind {
    LS_STORE_HELLO = 1, /* key: identity; value: session, client's nonce */
    LS_STORE_CHALLENGE, /* value: server's nonce */
    LS_STORE_PROOF,     /* value: HMAC */
    LS_STORE_WELCOME,   /* value: HMAC; number: the last seq applied of this session, 0: a new one */
    LS_STORE_REFUSED,   /* status; value: text */
    LS_STORE_PUT,       /* key, value */
    LS_STORE_GET,       /* key; number: milliseconds to wait */
    LS_STORE_ADD,       /* key; number: delta */
    LS_STORE_SET,       /* key, value, expected when LS_STORE_HAS_EXPECTED, else the key must not exist */
    LS_STORE_WATCH,     /* key: prefix; with LS_STORE_TELL_PRESENT, what is there is told as changed */
    LS_STORE_REPLY,     /* status; number: counter, or whether it was set; value: of GET, or an error text */
    LS_STORE_CHANGED,   /* key, value */
    LS_STORE_OTHER,     /* value */
    LS_STORE_KIND_COUNT
} ls_store_kind;

enum { LS_STORE_HAS_EXPECTED = 1, LS_STORE_TELL_PRESENT = 2 };

typedef struct ls_store_header {
    uint32_t magic;
    uint8_t version, kind, status, flags;
    uint16_t key_bytes, reserved;
    uint32_t value_bytes, expected_bytes;
    uint32_t reserved_too;
    uint64_t epoch, seq;
    int64_t number;
} ls_store_header;
_Static_assert(sizeof(ls_store_header) == 48, "on the wire");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

/* A message taken apart; pointers into the bytes it came from. key is not closed by a 0. */
typedef struct ls_store_message {
    ls_store_header header;
    const char *key;
    const unsigned char *value, *expected;
} ls_store_message;

/* Checks lengths, limits, reserved fields and that the key is printable. Errors: LS_ERR_INVALID saying what it is not. */
LS_MUST_CHECK ls_status ls_store_message_parse(const void *data, size_t bytes, ls_store_message *message_out);

/* The bytes of a message, from malloc; lengths are taken from message->header. NULL when there is no memory. */
unsigned char *ls_store_message_write(const ls_store_message *message, size_t *bytes_out);

/* Who proves ("client" or "server") that it knows the token, to this peer, in this exchange. */
typedef struct ls_store_exchange {
    unsigned char session[LS_STORE_SESSION_BYTES];
    unsigned char client_nonce[LS_STORE_NONCE_BYTES], server_nonce[LS_STORE_NONCE_BYTES];
    uint64_t epoch;
    char identity[LS_STORE_KEY_BYTES_MAX + 1];
} ls_store_exchange;
_Static_assert(sizeof(ls_store_exchange) == 344, "no padding: its bytes are what is proved");

void ls_store_proof(const ls_store_exchange *exchange, const char *token, const char *who,
                    unsigned char out[LS_SHA256_BYTES]);

/* Replaces what is not printable ASCII, so that a peer's text can be shown. */
void ls_store_text_clean(char *text);

#endif
