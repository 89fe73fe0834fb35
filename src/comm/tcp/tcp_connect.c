// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting the mesh: every rank publishes its addresses in the store and looks up those of the
 * lower ranks, which it calls. All connections are made in one poll loop with one deadline;
 * tcp_link.h shows their states.
 */
#include "comm/tcp/tcp_link.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* A connection without progress is closed after this time. */
    HELLO_MS = 10000,
    /* Data that the kernel holds back beyond what is on the wire. */
    NOT_SENT_BYTES = 128 << 10,
};
/* When the log says what is missing. */
static const uint64_t WARN_NS = UINT64_C(5000000000);

/* ---- sockets ---- */

static void set_option(int fd, int level, int name, int value)
{
    /* Errors do not matter: results are right without any of these options. */
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

static void tune(int fd, uint32_t link_ms)
{
    const int idle_s = (int)(link_ms / 2000) > 0 ? (int)(link_ms / 2000) : 1;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, idle_s);
}

static int listen_any(bool loopback_only)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    if (loopback_only) {
        any4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0) {
            set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
            if (bind(fd, (struct sockaddr *)&any6, sizeof any6) == 0 && listen(fd, 1024) == 0) {
                return fd;
            }
            close(fd);
        }
    }
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4) == 0 && listen(fd, 1024) == 0) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

static ls_status open_listener(ls_tcp_connector *c)
{
    const ls_comm_options *options = c->setup->options;
    const char *wanted = options->interface ? options->interface : getenv("LS_COMM_INTERFACE");
    const bool loopback_only = options->token[0] == 0;
    LS_TRY(ls_tcp_own_addresses(wanted, loopback_only, &c->own));
    c->listener = listen_any(loopback_only);
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    if (c->listener < 0 || getsockname(c->listener, (struct sockaddr *)&bound, &bytes) != 0) {
        return ls_fail_errno(errno, "can't listen for the other ranks");
    }
    c->own.port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                    : ((struct sockaddr_in *)&bound)->sin_port);
    return LS_OK;
}

/* ---- connections ---- */

ls_tcp_connection *ls_tcp_connection_open(ls_tcp_connector *c, int fd, ls_tcp_connection_state state)
{
    ls_tcp_connection *l = NULL;
    for (uint32_t i = 0; i < c->link_count && !l; i++) {
        l = c->links[i].state == LS_TCP_CLOSED ? &c->links[i] : NULL;
    }
    if (!l && c->link_count < LS_TCP_DIALS_MAX + LS_TCP_INBOUND_MAX) {
        l = &c->links[c->link_count++];
    }
    if (l) {
        *l = (ls_tcp_connection){.fd = fd, .state = state, .since_ns = ls_clock_monotonic_ns()};
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        tune(fd, c->mesh->link_ms);
    }
    return l;
}

void ls_tcp_connection_close(ls_tcp_connection *l)
{
    if (l->state != LS_TCP_CLOSED) {
        close(l->fd);
        l->state = LS_TCP_CLOSED;
    }
}

void ls_tcp_connection_failed(ls_tcp_connector *c, ls_tcp_connection *l, int error, ls_tcp_verdict verdict)
{
    if (ls_tcp_is_dialled(l)) {
        ls_tcp_dial_failed(c, l, error, verdict);
    } else if (verdict != LS_TCP_WELCOME) {
        ls_tcp_accept_refused(c, l, ls_tcp_verdict_text(verdict));
    } else if (l->state == LS_TCP_WANT_PROOF) {
        ls_tcp_accept_refused(c, l,
                              "hung up after seeing the proof of the token: does it have another token?");
    } else {
        ls_tcp_connection_close(l);
    }
}

ls_status ls_tcp_connection_bind(ls_tcp_connector *c, ls_tcp_connection *l, uint32_t lanes, bool checksums)
{
    ls_tcp_peer *peer = &c->mesh->peers[l->peer];
    if (peer->lane_count == 0) {
        LS_TRY(ls_tcp_mesh_add_peer(c->mesh, l->peer, lanes, checksums));
        memcpy(peer->address, l->address, sizeof peer->address);
    }
    if (l->lane >= peer->lane_count || peer->lanes[l->lane].fd >= 0) {
        ls_tcp_connection_close(l);
        return LS_OK;
    }
    LS_TRY(ls_tcp_mesh_bind(c->mesh, l->peer, l->lane, l->fd));
    l->state = LS_TCP_CLOSED; /* the mesh's now */
    return LS_OK;
}

/* These few bytes always fit into the buffer of an empty socket. */
bool ls_tcp_send_now(const ls_tcp_connection *l, const void *bytes, size_t count)
{
    return send(l->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
}

/* ---- the loop ---- */

/* Recognises a peer with another protocol by its first bytes: it may send less than a whole hello
 * and then wait for an answer. */
static bool is_stranger(const ls_tcp_connection *l)
{
    static const char magic[] = "LSTCP";
    return (l->state == LS_TCP_WANT_HELLO || l->state == LS_TCP_WANT_ANSWER) &&
           memcmp(l->in, magic, l->have < 5 ? l->have : 5) != 0;
}

static ls_status read_connection(ls_tcp_connector *c, ls_tcp_connection *l)
{
    if (l->state == LS_TCP_WANT_CHOICE && l->bulk > 0) {
        ls_tcp_accept_probe(c, l);
        return LS_OK;
    }
    const ssize_t got = recv(l->fd, l->in + l->have, l->need - l->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return LS_OK;
    }
    if (got <= 0) {
        ls_tcp_connection_failed(c, l, got < 0 ? errno : ECONNRESET, LS_TCP_WELCOME);
        return LS_OK;
    }
    l->have += (uint32_t)got;
    if (is_stranger(l)) {
        ls_tcp_connection_failed(c, l, 0, LS_TCP_NOT_LOCKSTEP);
        return LS_OK;
    }
    if (l->have < l->need) {
        return LS_OK;
    }
    l->have = 0;
    return ls_tcp_is_dialled(l) ? ls_tcp_dial_received(c, l) : ls_tcp_accept_received(c, l);
}

static ls_status handle_event(ls_tcp_connector *c, ls_tcp_connection *l, short events)
{
    if (l->state == LS_TCP_DIALLING || (l->state == LS_TCP_PROBING && (events & POLLOUT) && l->bulk > 0)) {
        ls_tcp_dial_writable(c, l);
    } else if (l->state == LS_TCP_WORKS) {
        if (events & (POLLHUP | POLLERR)) {
            ls_tcp_connection_failed(c, l, ECONNRESET, LS_TCP_WELCOME);
        }
    } else if (l->state != LS_TCP_CLOSED) {
        return read_connection(c, l);
    }
    return LS_OK;
}

static short wanted_events(const ls_tcp_connection *l)
{
    return l->state == LS_TCP_DIALLING                 ? POLLOUT
           : l->state == LS_TCP_PROBING && l->bulk > 0 ? POLLIN | POLLOUT
           : l->state == LS_TCP_WORKS                  ? 0
                                                       : POLLIN;
}

static ls_status poll_once(ls_tcp_connector *c)
{
    c->polls[0] = (struct pollfd){.fd = c->listener, .events = POLLIN};
    const uint32_t count = c->link_count;
    for (uint32_t i = 0; i < count; i++) {
        const ls_tcp_connection *l = &c->links[i];
        c->polls[1 + i] =
            (struct pollfd){.fd = l->state == LS_TCP_CLOSED ? -1 : l->fd, .events = wanted_events(l)};
    }
    if (poll(c->polls, 1 + count, 10) < 0 && errno != EINTR) {
        return ls_fail_errno(errno, "can't wait for connections (poll)");
    }
    const uint64_t now = ls_clock_monotonic_ns();
    for (uint32_t i = 0; i < count; i++) {
        ls_tcp_connection *l = &c->links[i];
        if (l->state != LS_TCP_CLOSED && c->polls[1 + i].revents) {
            LS_TRY(handle_event(c, l, c->polls[1 + i].revents));
        } else if (l->state != LS_TCP_CLOSED && l->state != LS_TCP_WORKS && l->state != LS_TCP_WANT_CHOICE &&
                   now - l->since_ns > HELLO_MS * 1000000ull) {
            ls_tcp_connection_failed(c, l, ETIMEDOUT, LS_TCP_WELCOME);
        }
    }
    if (c->polls[0].revents) {
        ls_tcp_accept_all(c);
    }
    return LS_OK;
}

static bool is_connected(const ls_tcp_mesh *mesh, uint32_t peer)
{
    const ls_tcp_peer *p = &mesh->peers[peer];
    return peer == mesh->rank || (p->lane_count > 0 && p->open_count == p->lane_count);
}

static bool all_connected(const ls_tcp_mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->size; i++) {
        if (!is_connected(mesh, i)) {
            return false;
        }
    }
    return true;
}

/* Which ranks are not connected, and what became of the calls to them. Returns their number. */
static uint32_t append_missing(const ls_tcp_connector *c, ls_text *text)
{
    enum { NAMED = 4, ADDRESSES = 3 };
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->mesh->size; i++) {
        const ls_comm_member *m = &c->mesh->members[i];
        const ls_tcp_callee *to = &c->callees[i];
        if (is_connected(c->mesh, i) || ++count > NAMED) {
            continue;
        }
        ls_text_printf(text, "%srank %u (%.40s, pid %d)", count > 1 ? ", " : "", m->world_rank, m->host_name,
                       m->pid);
        for (uint32_t k = 0; i < c->mesh->rank && k < to->count && k < ADDRESSES; k++) {
            char address[64];
            ls_tcp_address_text(&to->book.addresses[to->order[k]], to->book.port, address);
            ls_text_printf(text, " %s: %s", address,
                           to->tries[k].dead    ? ls_tcp_verdict_text(to->tries[k].verdict)
                           : to->tries[k].error ? strerror(to->tries[k].error)
                                                : "no answer");
        }
    }
    ls_text_append(text, ". They need all TCP ports of each other: is there a firewall between them?");
    return count;
}

static ls_status fail_late(const ls_tcp_connector *c)
{
    ls_text text = {0};
    const uint32_t count = append_missing(c, &text);
    const ls_status status = ls_fail(
        LS_ERR_TIMEOUT, "rank %u could not connect to %u rank%s within %.1f s: %s%s%s",
        c->mesh->members[c->mesh->rank].world_rank, count, count == 1 ? "" : "s", ls_tcp_timeout_s(c->setup),
        ls_text_string(&text), c->refused_count ? " Refused: " : "", c->refused_count ? c->refusal : "");
    ls_text_release(&text);
    return status;
}

static void warn_late(const ls_tcp_connector *c)
{
    ls_text text = {0};
    (void)append_missing(c, &text);
    ls_log_warn("rank %u is not connected yet to %s", c->mesh->members[c->mesh->rank].world_rank,
                ls_text_string(&text));
    ls_text_release(&text);
}

static ls_status connect_all(ls_tcp_connector *c)
{
    const ls_comm_options *options = c->setup->options;
    uint64_t warn_ns = ls_clock_monotonic_ns() + WARN_NS;
    while (!all_connected(c->mesh)) {
        const uint64_t now_ns = ls_clock_monotonic_ns();
        if (options->is_over && options->is_over(options->context)) {
            return ls_fail(LS_FENCED, "the call was interrupted, because the ranks of the run are changing");
        }
        LS_TRY(ls_tcp_dial_due(c));
        LS_TRY(poll_once(c));
        if (now_ns > c->deadline_ns) {
            return fail_late(c);
        }
        if (now_ns > warn_ns) {
            warn_late(c);
            warn_ns = UINT64_MAX;
        }
    }
    return LS_OK;
}

/* ---- addresses in the store ---- */

static void book_key(const ls_tcp_connector *c, uint32_t rank, char key[LS_STORE_KEY_BYTES_MAX + 1])
{
    snprintf(key, LS_STORE_KEY_BYTES_MAX + 1, "%stcp/%u", c->setup->key_prefix, rank);
}

static ls_status publish(ls_tcp_connector *c)
{
    uint8_t bytes[LS_TCP_BOOK_BYTES_MAX];
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    book_key(c, c->mesh->rank, key);
    return ls_store_put(c->setup->store, key, bytes, ls_tcp_book_write(&c->own, bytes));
}

static ls_status look_up(ls_tcp_connector *c, uint32_t rank)
{
    uint8_t bytes[LS_TCP_BOOK_BYTES_MAX];
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    size_t count = 0;
    ls_tcp_callee *to = &c->callees[rank];
    const ls_comm_member *m = &c->mesh->members[rank];
    const uint64_t now = ls_clock_monotonic_ns();
    const double left_s = now < c->deadline_ns ? 1e-9 * (double)(c->deadline_ns - now) : 0.0;
    book_key(c, rank, key);
    const ls_status status = ls_store_get(c->setup->store, key, left_s, bytes, sizeof bytes, &count);
    if (status != LS_OK) {
        return ls_fail_within(status, "the addresses of rank %u (%s, pid %d)", m->world_rank, m->host_name,
                              m->pid);
    }
    if (!ls_tcp_book_read(bytes, count, &to->book)) {
        return ls_fail(LS_ERR_MISMATCH,
                       "rank %u (%s) runs another version of lockstep: use one binary everywhere",
                       m->world_rank, m->host_name);
    }
    const bool same_host = m->host == c->mesh->members[c->mesh->rank].host;
    to->chosen = UINT32_MAX;
    to->count = ls_tcp_candidates(&c->own, &to->book, same_host, to->order);
    if (to->count == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "rank %u (%s) has no address that rank %u (%s) can call: give all hosts addresses of "
                       "one family (IPv4 or IPv6), or name the interface with LS_COMM_INTERFACE",
                       m->world_rank, m->host_name, c->mesh->members[c->mesh->rank].world_rank,
                       c->mesh->members[c->mesh->rank].host_name);
    }
    return LS_OK;
}

static ls_status check_token(const ls_transport_setup *setup)
{
    for (uint32_t i = 0; i < setup->size && setup->options->token[0] == 0; i++) {
        if (setup->members[i].host != setup->members[0].host) {
            return ls_fail(LS_ERR_INVALID,
                           "ranks on several hosts (%s, %s) need a token, a shared secret: set "
                           "LOCKSTEP_TOKEN to the same hexadecimal digits on all of them",
                           setup->members[0].host_name, setup->members[i].host_name);
        }
    }
    return LS_OK;
}

double ls_tcp_timeout_s(const ls_transport_setup *setup)
{
    return setup->options->timeout_s > 0.0 ? setup->options->timeout_s : 60.0;
}

static uint32_t lanes_wanted(const ls_transport_setup *setup)
{
    const uint32_t asked = setup->options->sockets_per_peer;
    return asked == 0 ? 1 : asked < LS_TCP_LANES_MAX ? asked : LS_TCP_LANES_MAX;
}

ls_status ls_tcp_connect(ls_tcp_mesh *mesh, const ls_transport_setup *setup)
{
    const char *checksums = getenv("LS_COMM_CHECKSUM");
    ls_tcp_connector c = {.mesh = mesh,
                          .setup = setup,
                          .name_hash = ls_xxh3(setup->key_prefix, strlen(setup->key_prefix), setup->group_id),
                          .lanes = lanes_wanted(setup),
                          .flags = checksums && checksums[0] == '1' ? LS_TCP_CHECKSUMS : 0,
                          .listener = -1,
                          .callees = calloc(setup->size, sizeof(ls_tcp_callee)),
                          .links = calloc(LS_TCP_DIALS_MAX + LS_TCP_INBOUND_MAX, sizeof(ls_tcp_connection)),
                          .polls = calloc(1 + LS_TCP_DIALS_MAX + LS_TCP_INBOUND_MAX, sizeof(struct pollfd)),
                          .deadline_ns = ls_clock_monotonic_ns() + (uint64_t)(1e9 * ls_tcp_timeout_s(setup))};
    ls_status status = LS_OK;
    if (!c.callees || !c.links || !c.polls) {
        status = ls_fail(LS_ERR_MEMORY, "no memory to connect %u ranks", setup->size);
        goto release;
    }
    LS_TRY_GOTO(status, check_token(setup), release);
    LS_TRY_GOTO(status, open_listener(&c), release);
    LS_TRY_GOTO(status, publish(&c), release);
    for (uint32_t i = 0; i < mesh->rank; i++) {
        LS_TRY_GOTO(status, look_up(&c, i), release);
    }
    status = connect_all(&c);
release:
    for (uint32_t i = 0; c.links && i < c.link_count; i++) {
        ls_tcp_connection_close(&c.links[i]);
    }
    if (c.listener >= 0) {
        close(c.listener);
    }
    free(c.callees);
    free(c.links);
    free(c.polls);
    return status;
}
