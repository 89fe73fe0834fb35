// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/tcp_wire.h"

#include "base/hash.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

static const uint8_t HEADER_MAGIC[2] = {'L', 'S'};
static const uint8_t HELLO_MAGIC[8] = "LSTCPhi";
static const uint8_t ANSWER_MAGIC[8] = "LSTCPan";
static const uint8_t PROOF_MAGIC[8] = "LSTCPpr";

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

static void put64(uint8_t *at, uint64_t value)
{
    put32(at, (uint32_t)value);
    put32(at + 4, (uint32_t)(value >> 32));
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get64(const uint8_t *at)
{
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

/* ---- messages ---- */

void ls_tcp_header_write(const ls_tcp_header *header, uint64_t epoch, uint8_t out[LS_TCP_HEADER_BYTES])
{
    memcpy(out, HEADER_MAGIC, 2);
    out[2] = header->kind;
    out[3] = header->dtype;
    put32(out + 4, header->group);
    put64(out + 8, header->fingerprint);
    put32(out + 16, header->seq);
    put32(out + 20, header->tag);
    put32(out + 24, header->bytes);
    put32(out + 28, ls_crc32c((uint32_t)epoch, out, 28));
}

bool ls_tcp_header_read(const uint8_t bytes[LS_TCP_HEADER_BYTES], uint64_t epoch, ls_tcp_header *header_out)
{
    if (memcmp(bytes, HEADER_MAGIC, 2) != 0 || get32(bytes + 28) != ls_crc32c((uint32_t)epoch, bytes, 28)) {
        return false;
    }
    const ls_tcp_header header = {.kind = bytes[2],
                                  .dtype = bytes[3],
                                  .group = get32(bytes + 4),
                                  .fingerprint = get64(bytes + 8),
                                  .seq = get32(bytes + 16),
                                  .tag = get32(bytes + 20),
                                  .bytes = get32(bytes + 24)};
    const bool bulk = header.kind == LS_TCP_DATA || header.kind == LS_TCP_PROBE;
    if (header.kind == 0 || header.kind >= LS_TCP_KIND_END ||
        header.bytes > (uint32_t)(bulk ? LS_TCP_DATA_BYTES_MAX : LS_TCP_CONTROL_BYTES_MAX)) {
        return false;
    }
    *header_out = header;
    return true;
}

/* ---- hello ---- */

const char *ls_tcp_verdict_text(ls_tcp_verdict verdict)
{
    static const char *const texts[LS_TCP_VERDICT_END] = {
        [LS_TCP_WELCOME] = "welcome",
        [LS_TCP_NOT_LOCKSTEP] = "does not speak Lockstep",
        [LS_TCP_WRONG_VERSION] = "uses another version of Lockstep's protocol: use one binary everywhere",
        [LS_TCP_WRONG_TOKEN] = "has another token: give all ranks the same LOCKSTEP_TOKEN",
        [LS_TCP_WRONG_EPOCH] = "belongs to another membership epoch",
        [LS_TCP_WRONG_GROUP] = "is in a group with another name or size",
        [LS_TCP_WRONG_RANK] = "is not the rank that was called",
    };
    return (unsigned)verdict < LS_TCP_VERDICT_END ? texts[verdict] : "refused for an unknown reason";
}

void ls_tcp_hello_write(const ls_tcp_hello *hello, uint8_t out[LS_TCP_HELLO_BYTES])
{
    memset(out, 0, LS_TCP_HELLO_BYTES);
    memcpy(out, HELLO_MAGIC, 8);
    put32(out + 8, hello->version);
    put32(out + 12, hello->from);
    put32(out + 16, hello->to);
    put32(out + 20, hello->size);
    put64(out + 24, hello->epoch);
    put64(out + 32, hello->name_hash);
    put32(out + 40, hello->lane);
    put32(out + 44, hello->lanes);
    put32(out + 48, hello->flags);
    memcpy(out + 52, hello->nonce, LS_TCP_NONCE_BYTES);
    put32(out + 76, ls_crc32c(0, out, 76));
}

ls_tcp_verdict ls_tcp_hello_read(const uint8_t bytes[LS_TCP_HELLO_BYTES], ls_tcp_hello *hello_out)
{
    if (memcmp(bytes, HELLO_MAGIC, 8) != 0) {
        return LS_TCP_NOT_LOCKSTEP;
    }
    if (get32(bytes + 8) != LS_TCP_VERSION) {
        return LS_TCP_WRONG_VERSION;
    }
    /* Bytes 68 to 75 are reserved and zero: what a later version puts there is not ignored. */
    if (get32(bytes + 76) != ls_crc32c(0, bytes, 76) || get64(bytes + 68) != 0) {
        return LS_TCP_NOT_LOCKSTEP;
    }
    *hello_out = (ls_tcp_hello){.version = get32(bytes + 8),
                                .from = get32(bytes + 12),
                                .to = get32(bytes + 16),
                                .size = get32(bytes + 20),
                                .epoch = get64(bytes + 24),
                                .name_hash = get64(bytes + 32),
                                .lane = get32(bytes + 40),
                                .lanes = get32(bytes + 44),
                                .flags = get32(bytes + 48)};
    memcpy(hello_out->nonce, bytes + 52, LS_TCP_NONCE_BYTES);
    return LS_TCP_WELCOME;
}

void ls_tcp_answer_write(const ls_tcp_answer *answer, uint8_t out[LS_TCP_ANSWER_BYTES])
{
    memcpy(out, ANSWER_MAGIC, 8);
    put32(out + 8, answer->verdict);
    put32(out + 12, answer->flags);
    memcpy(out + 16, answer->nonce, LS_TCP_NONCE_BYTES);
    memcpy(out + 32, answer->mac, LS_TCP_MAC_BYTES);
}

bool ls_tcp_answer_read(const uint8_t bytes[LS_TCP_ANSWER_BYTES], ls_tcp_answer *answer_out)
{
    if (memcmp(bytes, ANSWER_MAGIC, 8) != 0) {
        return false;
    }
    answer_out->verdict = get32(bytes + 8);
    answer_out->flags = get32(bytes + 12);
    memcpy(answer_out->nonce, bytes + 16, LS_TCP_NONCE_BYTES);
    memcpy(answer_out->mac, bytes + 32, LS_TCP_MAC_BYTES);
    return true;
}

void ls_tcp_proof_write(const uint8_t mac[LS_TCP_MAC_BYTES], uint8_t out[LS_TCP_PROOF_BYTES])
{
    memset(out, 0, LS_TCP_PROOF_BYTES);
    memcpy(out, PROOF_MAGIC, 8);
    memcpy(out + 16, mac, LS_TCP_MAC_BYTES);
}

bool ls_tcp_proof_read(const uint8_t bytes[LS_TCP_PROOF_BYTES], uint8_t mac_out[LS_TCP_MAC_BYTES])
{
    if (memcmp(bytes, PROOF_MAGIC, 8) != 0) {
        return false;
    }
    memcpy(mac_out, bytes + 16, LS_TCP_MAC_BYTES);
    return true;
}

void ls_tcp_prove(const char *token, const char *role, const uint8_t hello[LS_TCP_HELLO_BYTES],
                  const uint8_t nonce[LS_TCP_NONCE_BYTES], uint8_t mac_out[LS_TCP_MAC_BYTES])
{
    uint8_t message[8 + LS_TCP_HELLO_BYTES + LS_TCP_NONCE_BYTES] = {0};
    memcpy(message, role, strnlen(role, 8));
    memcpy(message + 8, hello, LS_TCP_HELLO_BYTES);
    memcpy(message + 8 + LS_TCP_HELLO_BYTES, nonce, LS_TCP_NONCE_BYTES);
    unsigned bytes = LS_TCP_MAC_BYTES;
    HMAC(EVP_sha256(), token, (int)strlen(token), message, sizeof message, mac_out, &bytes);
}

/* ---- address book ---- */

uint32_t ls_tcp_book_write(const ls_tcp_book *book, uint8_t out[LS_TCP_BOOK_BYTES_MAX])
{
    memset(out, 0, LS_TCP_BOOK_BYTES_MAX);
    out[0] = LS_TCP_VERSION;
    out[1] = (uint8_t)book->count;
    out[2] = (uint8_t)book->port;
    out[3] = (uint8_t)(book->port >> 8);
    for (uint32_t i = 0; i < book->count; i++) {
        uint8_t *at = out + 4 + 20 * i;
        at[0] = book->addresses[i].family;
        at[1] = book->addresses[i].prefix;
        at[2] = book->addresses[i].loopback;
        memcpy(at + 4, book->addresses[i].bytes, 16);
    }
    return 4 + 20 * book->count;
}

bool ls_tcp_book_read(const uint8_t *bytes, uint64_t count, ls_tcp_book *book_out)
{
    if (count < 4 || bytes[0] != LS_TCP_VERSION || bytes[1] > LS_TCP_ADDRESSES_MAX ||
        count != 4 + 20u * bytes[1]) {
        return false;
    }
    ls_tcp_book book = {.port = (uint16_t)(bytes[2] | bytes[3] << 8), .count = bytes[1]};
    for (uint32_t i = 0; i < book.count; i++) {
        const uint8_t *at = bytes + 4 + 20 * i;
        if ((at[0] != 4 && at[0] != 6) || at[1] > (at[0] == 4 ? 32 : 128)) {
            return false;
        }
        book.addresses[i] = (ls_tcp_address){.family = at[0], .prefix = at[1], .loopback = at[2] != 0};
        memcpy(book.addresses[i].bytes, at + 4, 16);
    }
    *book_out = book;
    return true;
}

bool ls_tcp_same_network(const ls_tcp_address *a, const ls_tcp_address *b)
{
    if (a->family != b->family) {
        return false;
    }
    for (uint32_t bit = 0; bit < a->prefix; bit++) {
        const uint8_t mask = (uint8_t)(0x80 >> bit % 8);
        if ((a->bytes[bit / 8] ^ b->bytes[bit / 8]) & mask) {
            return false;
        }
    }
    return true;
}
