// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes as what the TCP transport reads: headers, hellos, answers, proofs and address books.
 * Refused, or in range; and what was read is written back as it was.
 */
#include "base/assert.h"
#include "comm/tcp/tcp_address.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_header(const uint8_t *data)
{
    uint8_t again[LS_TCP_HEADER_BYTES];
    ls_tcp_header header;
    if (ls_tcp_header_read(data, 0, &header)) {
        LS_ASSERT(header.kind > 0 && header.kind < LS_TCP_KIND_END && header.bytes <= LS_TCP_DATA_BYTES_MAX);
        ls_tcp_header_write(&header, 0, again);
        LS_ASSERT(memcmp(data, again, sizeof again) == 0);
    }
    /* Any fields, written and read again: the checksum would stop nearly all of the above. */
    const uint8_t kind = (uint8_t)(1 + data[2] % (LS_TCP_KIND_END - 1));
    memcpy(&header, data, sizeof header);
    header.kind = kind;
    header.bytes %= LS_TCP_CONTROL_BYTES_MAX + 1;
    ls_tcp_header_write(&header, 7, again);
    ls_tcp_header read = {0};
    LS_ASSERT(ls_tcp_header_read(again, 7, &read) && !ls_tcp_header_read(again, 8, &read));
    LS_ASSERT(read.kind == header.kind && read.dtype == header.dtype && read.group == header.group &&
              read.fingerprint == header.fingerprint && read.seq == header.seq && read.tag == header.tag &&
              read.bytes == header.bytes);
}

static void check_hello(const uint8_t *data, size_t bytes)
{
    uint8_t again[LS_TCP_HELLO_BYTES];
    ls_tcp_hello hello;
    ls_tcp_answer answer;
    uint8_t mac[LS_TCP_MAC_BYTES];
    if (bytes < LS_TCP_HELLO_BYTES) {
        return;
    }
    if (ls_tcp_hello_read(data, &hello) == LS_TCP_WELCOME) {
        ls_tcp_hello_write(&hello, again);
        LS_ASSERT(memcmp(data, again, sizeof again) == 0);
    }
    if (ls_tcp_answer_read(data, &answer)) {
        LS_ASSERT(ls_tcp_verdict_text(answer.verdict) != NULL);
        ls_tcp_answer_write(&answer, again);
        LS_ASSERT(memcmp(data, again, LS_TCP_ANSWER_BYTES) == 0);
    }
    (void)ls_tcp_proof_read(data, mac);
    memcpy(&hello, data, sizeof hello < bytes ? sizeof hello : bytes);
    hello.version = LS_TCP_VERSION;
    ls_tcp_hello_write(&hello, again);
    ls_tcp_hello read;
    LS_ASSERT(ls_tcp_hello_read(again, &read) == LS_TCP_WELCOME && read.from == hello.from &&
              read.lane == hello.lane);
}

static void check_book(const uint8_t *data, size_t bytes)
{
    uint8_t again[LS_TCP_BOOK_BYTES_MAX];
    uint32_t order[LS_TCP_ADDRESSES_MAX];
    char text[64];
    ls_tcp_book book, read;
    if (!ls_tcp_book_read(data, bytes, &book)) {
        return;
    }
    LS_ASSERT(book.count <= LS_TCP_ADDRESSES_MAX);
    const uint32_t written = ls_tcp_book_write(&book, again);
    LS_ASSERT(written == bytes && ls_tcp_book_read(again, written, &read) && read.count == book.count);
    LS_ASSERT(ls_tcp_candidates(&book, &book, false, order) <= book.count);
    for (uint32_t i = 0; i < book.count; i++) {
        struct sockaddr_storage address;
        LS_ASSERT(ls_tcp_sockaddr(&book.addresses[i], book.port, &address) <= sizeof address);
        LS_ASSERT(ls_tcp_same_network(&book.addresses[i], &book.addresses[i]));
        ls_tcp_address_text(&book.addresses[i], book.port, text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes >= LS_TCP_HEADER_BYTES + 8) {
        check_header(data);
    }
    check_hello(data, bytes);
    check_book(data, bytes);
    return 0;
}
