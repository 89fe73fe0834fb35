// SPDX-License-Identifier: Apache-2.0
/*
 * The messages of the TCP transport, converted between bytes and structs. Pure functions, fuzzed
 * (tests/fuzz/fuzz_comm_wire.c).
 *
 * A connection begins with a hello, in which both sides prove that they know the token without
 * sending it:
 *
 *   calling side                                   called side
 *   ls_tcp_hello  {rank, lane, epoch, nonce}  ──▶
 *                                             ◀──  ls_tcp_answer {verdict, nonce, proof over both}
 *   ls_tcp_proof  {proof over both}           ──▶
 *                                             ◀──  ls_tcp_answer {verdict}
 *
 * Messages follow: a header of 32 bytes, `bytes` bytes of payload, and a CRC32C of the payload if
 * the two sides have agreed on checksums.
 *
 *   0      2      3       4       8             16    20    24      28       32
 *   | "LS" | kind | dtype | group | fingerprint | seq | tag | bytes | CRC32C |
 *
 * The CRC32C in the header covers the 28 bytes before it and starts with the epoch. All numbers are
 * little-endian.
 */
#ifndef LS_COMM_TCP_TCP_WIRE_H
#define LS_COMM_TCP_TCP_WIRE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LS_TCP_VERSION = 1,
    LS_TCP_HEADER_BYTES = 32,
    LS_TCP_HELLO_BYTES = 80,
    LS_TCP_ANSWER_BYTES = 64,
    LS_TCP_PROOF_BYTES = 48,
    LS_TCP_NONCE_BYTES = 16,
    LS_TCP_MAC_BYTES = 32,
    /* Payload of all messages but data. */
    LS_TCP_CONTROL_BYTES_MAX = 1024,
    LS_TCP_DATA_BYTES_MAX = 1 << 26,
    LS_TCP_ADDRESSES_MAX = 16,
    LS_TCP_BOOK_BYTES_MAX = 4 + LS_TCP_ADDRESSES_MAX * 20,
};

/* Sent on the wire: append only. */
typedef enum ls_tcp_kind {
    /* The sender has begun this call, and large data may be sent to it. Payload: ls_tcp_ready. */
    LS_TCP_READY = 1,
    /* A piece. */
    LS_TCP_DATA,
    /* tag: number of pieces consumed so far. No payload. */
    LS_TCP_CREDIT,
    /* The members disagree about the call. Payload: ls_comm_claim. */
    LS_TCP_CLAIM,
    /* Payload: u32 status, text. */
    LS_TCP_ABORT,
    /* The sender closes its communicator; nothing follows. */
    LS_TCP_GOODBYE,
    /* While connecting: payload for a measurement, answered by an empty PROBE. */
    LS_TCP_PROBE,
    /* While connecting: this connection will be used. */
    LS_TCP_CHOSEN,
    LS_TCP_KIND_END
} ls_tcp_kind;

typedef struct ls_tcp_header {
    uint8_t kind, dtype;
    uint32_t group;
    /* Of the call (ls_comm_fingerprint). */
    uint64_t fingerprint;
    /* Number of the call in its group and space. */
    uint32_t seq;
    /* See ls_tcp_tag. */
    uint32_t tag;
    /* Size of the payload. */
    uint32_t bytes;
} ls_tcp_header;

/* Calls of the whole group and calls of each pair of ranks are numbered separately. */
typedef enum ls_tcp_space { LS_TCP_GROUP, LS_TCP_PAIR } ls_tcp_space;

enum { LS_TCP_PIECES_MAX = 1 << 24 };
static inline uint32_t ls_tcp_tag(ls_tcp_space space, uint32_t phase, uint32_t piece)
{
    return (uint32_t)space << 31 | phase << 24 | piece;
}
static inline ls_tcp_space ls_tcp_tag_space(uint32_t tag)
{
    return (ls_tcp_space)(tag >> 31);
}
static inline uint32_t ls_tcp_tag_phase(uint32_t tag)
{
    return (tag >> 24) & 0x7f;
}
static inline uint32_t ls_tcp_tag_piece(uint32_t tag)
{
    return tag & 0xffffff;
}

/* Payload of READY: the bytes that its sender will send to its receiver and wants from it, where
 * the fingerprint does not say so. The receiver compares them with its own. */
typedef struct ls_tcp_ready {
    uint64_t will_send_bytes, wants_bytes;
} ls_tcp_ready;
_Static_assert(sizeof(ls_tcp_ready) == 16, "on the wire");

void ls_tcp_header_write(const ls_tcp_header *header, uint64_t epoch, uint8_t bytes_out[LS_TCP_HEADER_BYTES]);
/* Returns false if the bytes are not a header of this epoch: wrong magic, checksum, kind or
 * size. */
bool ls_tcp_header_read(const uint8_t bytes[LS_TCP_HEADER_BYTES], uint64_t epoch, ls_tcp_header *header_out);

/* ---- hello ---- */

typedef enum ls_tcp_verdict {
    LS_TCP_WELCOME,
    /* The peer speaks another protocol. Never sent. */
    LS_TCP_NOT_LOCKSTEP,
    LS_TCP_WRONG_VERSION,
    LS_TCP_WRONG_TOKEN,
    LS_TCP_WRONG_EPOCH,
    /* Another name or size. */
    LS_TCP_WRONG_GROUP,
    /* Not the rank that was called. */
    LS_TCP_WRONG_RANK,
    LS_TCP_VERDICT_END
} ls_tcp_verdict;

const char *ls_tcp_verdict_text(ls_tcp_verdict verdict);

typedef struct ls_tcp_hello {
    uint32_t version;
    /* World ranks. */
    uint32_t from, to, size;
    uint64_t epoch;
    /* Hash of the group's name and id. */
    uint64_t name_hash;
    /* This connection is lane number `lane` of the `lanes` that `from` wants. */
    uint32_t lane;
    uint32_t lanes;
    /* LS_TCP_CHECKSUMS. */
    uint32_t flags;
    uint8_t nonce[LS_TCP_NONCE_BYTES];
} ls_tcp_hello;
enum { LS_TCP_CHECKSUMS = 1 };

typedef struct ls_tcp_answer {
    uint32_t verdict;
    uint32_t flags;
    uint8_t nonce[LS_TCP_NONCE_BYTES];
    uint8_t mac[LS_TCP_MAC_BYTES];
} ls_tcp_answer;

void ls_tcp_hello_write(const ls_tcp_hello *hello, uint8_t bytes_out[LS_TCP_HELLO_BYTES]);
/* Returns LS_TCP_WELCOME, LS_TCP_NOT_LOCKSTEP or LS_TCP_WRONG_VERSION; *hello_out is written in the
 * first case only. */
ls_tcp_verdict ls_tcp_hello_read(const uint8_t bytes[LS_TCP_HELLO_BYTES], ls_tcp_hello *hello_out);
void ls_tcp_answer_write(const ls_tcp_answer *answer, uint8_t bytes_out[LS_TCP_ANSWER_BYTES]);
bool ls_tcp_answer_read(const uint8_t bytes[LS_TCP_ANSWER_BYTES], ls_tcp_answer *answer_out);
void ls_tcp_proof_write(const uint8_t mac[LS_TCP_MAC_BYTES], uint8_t bytes_out[LS_TCP_PROOF_BYTES]);
bool ls_tcp_proof_read(const uint8_t bytes[LS_TCP_PROOF_BYTES], uint8_t mac_out[LS_TCP_MAC_BYTES]);

/* HMAC-SHA-256, with the token as key, of a role ("called" or "calls"), the hello as it was sent,
 * and the nonce of the answer. */
void ls_tcp_prove(const char *token, const char *role, const uint8_t hello[LS_TCP_HELLO_BYTES],
                  const uint8_t nonce[LS_TCP_NONCE_BYTES], uint8_t mac_out[LS_TCP_MAC_BYTES]);

/* ---- address book: the addresses of a rank, as published in the store ---- */

typedef struct ls_tcp_address {
    /* 4 or 6. */
    uint8_t family;
    /* Bits of the network. */
    uint8_t prefix;
    bool loopback;
    /* IPv4 uses the first 4. */
    uint8_t bytes[16];
} ls_tcp_address;

typedef struct ls_tcp_book {
    uint16_t port;
    uint32_t count;
    ls_tcp_address addresses[LS_TCP_ADDRESSES_MAX];
} ls_tcp_book;

/* Returns the number of bytes. */
uint32_t ls_tcp_book_write(const ls_tcp_book *book, uint8_t bytes_out[LS_TCP_BOOK_BYTES_MAX]);
bool ls_tcp_book_read(const uint8_t *bytes, uint64_t count, ls_tcp_book *book_out);

/* Whether `b` lies in the network of `a`. */
bool ls_tcp_same_network(const ls_tcp_address *a, const ls_tcp_address *b);

#endif
