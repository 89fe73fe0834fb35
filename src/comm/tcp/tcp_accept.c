// SPDX-License-Identifier: Apache-2.0
/*
 * The called side of a connection: accepting it, checking the hello and the proof of the token, and
 * waiting for the caller to choose it.
 */
#include "comm/tcp/tcp_link.h"

#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void ls_tcp_accept_refused(ls_tcp_connector *c, ls_tcp_connection *l, const char *why)
{
    c->refused_count++;
    snprintf(c->refusal, sizeof c->refusal, "%s %s", l->address, why);
    ls_log_info("comm: refused a connection from %s: it %s", l->address, why);
    ls_tcp_connection_close(l);
}

void ls_tcp_accept_all(ls_tcp_connector *c)
{
    while (true) {
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        const int fd = accept4(c->listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        ls_tcp_connection *l = ls_tcp_connection_open(c, fd, LS_TCP_WANT_HELLO);
        if (!l) {
            close(fd);
            return;
        }
        l->need = LS_TCP_HELLO_BYTES;
        ls_tcp_address address = {.family = from.ss_family == AF_INET6 ? 6 : 4};
        uint16_t port = 0;
        if (from.ss_family == AF_INET6) {
            const struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&from;
            port = ntohs(in6->sin6_port);
            if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
                address.family = 4;
                memcpy(address.bytes, in6->sin6_addr.s6_addr + 12, 4);
            } else {
                memcpy(address.bytes, &in6->sin6_addr, 16);
            }
        } else {
            port = ntohs(((struct sockaddr_in *)&from)->sin_port);
            memcpy(address.bytes, &((struct sockaddr_in *)&from)->sin_addr, 4);
        }
        ls_tcp_address_text(&address, port, l->address);
    }
}

static ls_tcp_verdict check_hello(const ls_tcp_connector *c, const ls_tcp_hello *hello)
{
    if (hello->epoch != c->mesh->epoch) {
        return LS_TCP_WRONG_EPOCH;
    }
    if (hello->size != c->mesh->size || hello->name_hash != c->name_hash) {
        return LS_TCP_WRONG_GROUP;
    }
    if (hello->to != c->mesh->rank || hello->from <= c->mesh->rank || hello->from >= c->mesh->size ||
        hello->lanes < 1 || hello->lanes > LS_TCP_LANES_MAX || hello->lane >= hello->lanes) {
        return LS_TCP_WRONG_RANK;
    }
    return LS_TCP_WELCOME;
}

static void receive_hello(ls_tcp_connector *c, ls_tcp_connection *l)
{
    uint8_t bytes[LS_TCP_ANSWER_BYTES];
    ls_tcp_verdict verdict = ls_tcp_hello_read(l->in, &l->hello);
    if (verdict == LS_TCP_WELCOME) {
        verdict = check_hello(c, &l->hello);
    }
    memcpy(l->hello_bytes, l->in, sizeof l->hello_bytes);
    l->answer = (ls_tcp_answer){.verdict = verdict, .flags = c->flags};
    if (verdict == LS_TCP_WELCOME &&
        getrandom(l->answer.nonce, sizeof l->answer.nonce, 0) == sizeof l->answer.nonce) {
        ls_tcp_prove(c->setup->options->token, "called", l->hello_bytes, l->answer.nonce, l->answer.mac);
    }
    ls_tcp_answer_write(&l->answer, bytes);
    const bool hello_bytes = verdict == LS_TCP_NOT_LOCKSTEP || ls_tcp_send_now(l, bytes, sizeof bytes);
    if (verdict != LS_TCP_WELCOME || !hello_bytes) {
        ls_tcp_connection_failed(c, l, errno, verdict);
        return;
    }
    l->state = LS_TCP_WANT_PROOF;
    l->need = LS_TCP_PROOF_BYTES;
}

static void receive_proof(ls_tcp_connector *c, ls_tcp_connection *l)
{
    uint8_t mac[LS_TCP_MAC_BYTES], hello_bytes[LS_TCP_MAC_BYTES], bytes[LS_TCP_ANSWER_BYTES];
    ls_tcp_prove(c->setup->options->token, "calls", l->hello_bytes, l->answer.nonce, mac);
    const bool proven =
        ls_tcp_proof_read(l->in, hello_bytes) && CRYPTO_memcmp(mac, hello_bytes, sizeof mac) == 0;
    const ls_tcp_answer answer = {.verdict = proven ? LS_TCP_WELCOME : LS_TCP_WRONG_TOKEN, .flags = c->flags};
    ls_tcp_answer_write(&answer, bytes);
    if (!ls_tcp_send_now(l, bytes, sizeof bytes) || !proven) {
        ls_tcp_connection_failed(c, l, errno, proven ? LS_TCP_WELCOME : LS_TCP_WRONG_TOKEN);
        return;
    }
    l->state = LS_TCP_WANT_CHOICE;
    l->need = LS_TCP_HEADER_BYTES;
}

static ls_status receive_choice(ls_tcp_connector *c, ls_tcp_connection *l)
{
    ls_tcp_header header;
    if (!ls_tcp_header_read(l->in, c->mesh->epoch, &header)) {
        ls_tcp_connection_close(l);
    } else if (header.kind == LS_TCP_PROBE) {
        l->bulk = header.bytes;
        l->have = 0;
    } else if (header.kind == LS_TCP_CHOSEN) {
        l->peer = l->hello.from;
        l->lane = l->hello.lane;
        return ls_tcp_connection_bind(c, l, l->hello.lanes,
                                      ((c->flags | l->hello.flags) & LS_TCP_CHECKSUMS) != 0);
    }
    return LS_OK;
}

void ls_tcp_accept_probe(ls_tcp_connector *c, ls_tcp_connection *l)
{
    uint8_t bin[16 << 10];
    while (l->bulk > 0) {
        const ssize_t got = recv(l->fd, bin, l->bulk < sizeof bin ? l->bulk : sizeof bin, MSG_DONTWAIT);
        if (got <= 0) {
            if (got == 0 || errno != EAGAIN) {
                ls_tcp_connection_close(l);
            }
            return;
        }
        l->bulk -= (uint64_t)got;
    }
    const ls_tcp_header header = {.kind = LS_TCP_PROBE};
    uint8_t bytes[LS_TCP_HEADER_BYTES];
    ls_tcp_header_write(&header, c->mesh->epoch, bytes);
    if (!ls_tcp_send_now(l, bytes, sizeof bytes)) {
        ls_tcp_connection_close(l);
    }
}

ls_status ls_tcp_accept_received(ls_tcp_connector *c, ls_tcp_connection *l)
{
    switch (l->state) {
    case LS_TCP_WANT_HELLO:
        receive_hello(c, l);
        return LS_OK;
    case LS_TCP_WANT_PROOF:
        receive_proof(c, l);
        return LS_OK;
    default:
        return receive_choice(c, l);
    }
}
