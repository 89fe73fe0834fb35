// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting: every rank publishes where it can be called, the higher rank of a pair calls the lower one.
 *
 *   caller   CALLING ─▶ WANT_ANSWER ─▶ WANT_VERDICT ─▶ WORKS ─▶ (PROBING ─▶) chosen: bound to the mesh
 *   called   WANT_HELLO ─▶ WANT_PROOF ─▶ WANT_CHOICE ─▶ bound to the mesh
 *
 * All addresses of a rank are called at once. The first that works is taken; where several do, and the rank is on another host, a few
 * hundred kilobytes over each decide. The other lanes then go to the same address. Everything happens in one poll loop with one deadline.
 */
#include "execution/comm/tcp_address.h"
#include "execution/comm/tcp_mesh.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    DIALS_MAX = 128,   /* calls under way at once */
    GUESTS_MAX = 4096, /* connections that have not said who they are, and more */
    HELLO_MS = 10000,  /* a connection that says nothing for so long is closed */
    RETRY_MS = 50,     /* after a call that was not answered, doubled up to */
    RETRY_MS_MAX = 1000,
    OTHERS_MS = 30, /* how long other addresses may take after the first has worked */
    PROBE_BYTES = 256 << 10,
    NOT_SENT_BYTES = 128 << 10, /* that the kernel holds beyond what is on the wire */
};

typedef enum link_state {
    CLOSED,
    CALLING,
    WANT_ANSWER,
    WANT_VERDICT,
    WORKS,
    PROBING,
    WANT_HELLO,
    WANT_PROOF,
    WANT_CHOICE,
} link_state;

/* One connection that is being made. */
typedef struct connection {
    int fd;
    link_state state;
    uint32_t peer, lane, candidate;
    uint64_t since_ns;
    ls_tcp_hello hello;
    uint8_t said[LS_TCP_HELLO_BYTES]; /* the hello as sent */
    ls_tcp_answer answer;
    uint8_t in[LS_TCP_HELLO_BYTES];
    uint32_t have, need;
    uint64_t bulk; /* payload of a probe, yet to send or to read */
    uint64_t probe_ns;
    char address[64];
} connection;

typedef struct candidate {
    bool under_way, works, dead; /* dead: it answered, and it is not who we look for */
    uint64_t retry_ns, wait_ms;
    uint64_t probe_ns; /* that the probe took; 0: not probed */
    ls_tcp_verdict verdict;
    int error;
} candidate;

/* A lower rank, which this one calls. */
typedef struct callee {
    ls_tcp_book book;
    uint32_t order[LS_TCP_ADDRESSES_MAX], count;
    candidate tries[LS_TCP_ADDRESSES_MAX];
    uint32_t chosen;   /* UINT32_MAX: not yet */
    uint64_t first_ns; /* when the first address worked */
    bool probed;
} callee;

typedef struct connector {
    ls_tcp_mesh *mesh;
    const ls_transport_setup *setup;
    uint64_t name_hash;
    uint32_t lanes, flags;
    int listener;
    ls_tcp_book own;
    callee *callees; /* by rank, below the own */
    connection *links;
    uint32_t link_count, dials;
    struct pollfd *polls;
    uint64_t deadline_ns;
    uint32_t refused;  /* guests */
    char refusal[192]; /* the last one */
} connector;

static ls_status verdict_status(ls_tcp_verdict verdict)
{
    return verdict == LS_TCP_WRONG_VERSION || verdict == LS_TCP_WRONG_EPOCH || verdict == LS_TCP_WRONG_GROUP
               ? LS_ERR_MISMATCH
               : LS_ERR_INVALID;
}

/* ---- sockets ---- */

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value); /* none is needed for results to be right */
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

static ls_status open_listener(connector *c)
{
    const ls_comm_options *options = c->setup->options;
    const char *wanted = options->interface ? options->interface : getenv("LS_COMM_INTERFACE");
    const bool loopback_only = options->token[0] == 0;
    LS_TRY(ls_tcp_own_addresses(wanted, loopback_only, &c->own));
    c->listener = listen_any(loopback_only);
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    if (c->listener < 0 || getsockname(c->listener, (struct sockaddr *)&bound, &bytes) != 0) {
        return ls_fail_errno(errno, "a socket to listen on for the other ranks");
    }
    c->own.port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                    : ((struct sockaddr_in *)&bound)->sin_port);
    return LS_OK;
}

/* ---- links ---- */

static connection *link_new(connector *c, int fd, link_state state)
{
    connection *l = NULL;
    for (uint32_t i = 0; i < c->link_count && !l; i++) {
        l = c->links[i].state == CLOSED ? &c->links[i] : NULL;
    }
    if (!l && c->link_count < DIALS_MAX + GUESTS_MAX) {
        l = &c->links[c->link_count++];
    }
    if (l) {
        *l = (connection){.fd = fd, .state = state, .since_ns = ls_clock_monotonic_ns()};
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        tune(fd, c->mesh->link_ms);
    }
    return l;
}

static void link_close(connection *l)
{
    if (l->state != CLOSED) {
        close(l->fd);
        l->state = CLOSED;
    }
}

static bool is_call(const connection *l)
{
    return l->state >= CALLING && l->state <= PROBING;
}

/* A call came to nothing. dead: for good. */
static void call_failed(connector *c, connection *l, int error, ls_tcp_verdict verdict)
{
    candidate *try = &c->callees[l->peer].tries[l->candidate];
    try->under_way = false;
    try->error = error;
    try->verdict = verdict;
    try->dead = verdict != LS_TCP_WELCOME;
    try->wait_ms = try->wait_ms ? (try->wait_ms < RETRY_MS_MAX ? 2 * try->wait_ms : RETRY_MS_MAX) : RETRY_MS;
    try->retry_ns = ls_clock_monotonic_ns() + try->wait_ms * 1000000;
    c->dials--;
    link_close(l);
}

static void guest_refused(connector *c, connection *l, const char *why)
{
    c->refused++;
    snprintf(c->refusal, sizeof c->refusal, "%s %s", l->address, why);
    ls_log_info("comm: refused a connection, from %s: it %s", l->address, why);
    link_close(l);
}

static void link_failed(connector *c, connection *l, int error, ls_tcp_verdict verdict)
{
    if (is_call(l)) {
        call_failed(c, l, error, verdict);
    } else if (verdict != LS_TCP_WELCOME) {
        guest_refused(c, l, ls_tcp_verdict_text(verdict));
    } else if (l->state == WANT_PROOF) {
        guest_refused(c, l, "hung up when it had seen the proof of the token: does it have another one?");
    } else {
        link_close(l);
    }
}

/* These few bytes always fit an empty socket. */
static bool say(const connection *l, const void *bytes, size_t count)
{
    return send(l->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
}

static void dial(connector *c, uint32_t peer, uint32_t lane, uint32_t index)
{
    callee *to = &c->callees[peer];
    candidate *try = &to->tries[index];
    const ls_tcp_address *address = &to->book.addresses[to->order[index]];
    struct sockaddr_storage at;
    const socklen_t bytes = ls_tcp_sockaddr(address, to->book.port, &at);
    const int fd = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    connection *l = fd >= 0 ? link_new(c, fd, CALLING) : NULL;
    if (!l) {
        try->error = errno;
        try->retry_ns = ls_clock_monotonic_ns() + RETRY_MS * 1000000ull;
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    l->peer = peer;
    l->lane = lane;
    l->candidate = index;
    ls_tcp_address_text(address, to->book.port, l->address);
    c->dials++;
    try->under_way = true;
    if (connect(fd, (struct sockaddr *)&at, bytes) != 0 && errno != EINPROGRESS) {
        call_failed(c, l, errno, LS_TCP_WELCOME);
    }
}

/* ---- the caller's side ---- */

static void say_hello(connector *c, connection *l)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    l->hello = (ls_tcp_hello){.version = LS_TCP_VERSION,
                              .from = c->mesh->rank,
                              .to = l->peer,
                              .size = c->mesh->size,
                              .epoch = c->mesh->epoch,
                              .name_hash = c->name_hash,
                              .lane = l->lane,
                              .lanes = c->lanes,
                              .flags = c->flags};
    if (error == 0 && getrandom(l->hello.nonce, sizeof l->hello.nonce, 0) != sizeof l->hello.nonce) {
        error = errno;
    }
    ls_tcp_hello_write(&l->hello, l->said);
    if (error != 0 || !say(l, l->said, sizeof l->said)) {
        call_failed(c, l, error ? error : errno, LS_TCP_WELCOME);
        return;
    }
    l->state = WANT_ANSWER;
    l->need = LS_TCP_ANSWER_BYTES;
}

static void hear_answer(connector *c, connection *l)
{
    uint8_t mac[LS_TCP_MAC_BYTES], proof[LS_TCP_PROOF_BYTES];
    if (!ls_tcp_answer_read(l->in, &l->answer)) {
        call_failed(c, l, 0, LS_TCP_NOT_LOCKSTEP);
        return;
    }
    if (l->answer.verdict != LS_TCP_WELCOME) {
        call_failed(c, l, 0, l->answer.verdict);
        return;
    }
    ls_tcp_prove(c->setup->options->token, "called", l->said, l->answer.nonce, mac);
    if (CRYPTO_memcmp(mac, l->answer.mac, sizeof mac) != 0) {
        call_failed(c, l, 0, LS_TCP_WRONG_TOKEN);
        return;
    }
    ls_tcp_prove(c->setup->options->token, "calls", l->said, l->answer.nonce, mac);
    ls_tcp_proof_write(mac, proof);
    if (!say(l, proof, sizeof proof)) {
        call_failed(c, l, errno, LS_TCP_WELCOME);
        return;
    }
    l->state = WANT_VERDICT;
    l->need = LS_TCP_ANSWER_BYTES;
}

static void probe_begin(connector *c, connection *l)
{
    const ls_tcp_header header = {.kind = LS_TCP_PROBE, .bytes = PROBE_BYTES};
    uint8_t bytes[LS_TCP_HEADER_BYTES];
    ls_tcp_header_write(&header, c->mesh->epoch, bytes);
    l->probe_ns = ls_clock_monotonic_ns();
    l->bulk = PROBE_BYTES;
    l->state = PROBING;
    l->need = LS_TCP_HEADER_BYTES;
    if (!say(l, bytes, sizeof bytes)) {
        call_failed(c, l, errno, LS_TCP_WELCOME);
    }
}

static void probe_send(connector *c, connection *l)
{
    static const uint8_t zeros[16 << 10];
    while (l->bulk > 0) {
        const ssize_t sent =
            send(l->fd, zeros, l->bulk < sizeof zeros ? l->bulk : sizeof zeros, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) {
                call_failed(c, l, errno, LS_TCP_WELCOME);
            }
            return;
        }
        l->bulk -= (uint64_t)sent;
    }
}

static void probe_end(connector *c, connection *l)
{
    candidate *try = &c->callees[l->peer].tries[l->candidate];
    const uint64_t took = ls_clock_monotonic_ns() - l->probe_ns;
    try->probe_ns = took > 0 ? took : 1;
    l->state = WORKS;
}

static ls_status bind_lane(connector *c, connection *l, uint32_t lanes, bool checksums)
{
    ls_tcp_peer *peer = &c->mesh->peers[l->peer];
    if (peer->lane_count == 0) {
        LS_TRY(ls_tcp_mesh_add_peer(c->mesh, l->peer, lanes, checksums));
        memcpy(peer->address, l->address, sizeof peer->address);
    }
    if (l->lane >= peer->lane_count || peer->lanes[l->lane].fd >= 0) {
        link_close(l);
        return LS_OK;
    }
    LS_TRY(ls_tcp_mesh_bind(c->mesh, l->peer, l->lane, l->fd));
    l->state = CLOSED; /* the mesh's now */
    return LS_OK;
}

static ls_status choose(connector *c, connection *l)
{
    const ls_tcp_header header = {.kind = LS_TCP_CHOSEN};
    uint8_t bytes[LS_TCP_HEADER_BYTES];
    ls_tcp_header_write(&header, c->mesh->epoch, bytes);
    if (!say(l, bytes, sizeof bytes)) {
        call_failed(c, l, errno, LS_TCP_WELCOME);
        return LS_OK;
    }
    c->dials--;
    c->callees[l->peer].tries[l->candidate].under_way = false;
    return bind_lane(c, l, c->lanes, ((c->flags | l->answer.flags) & LS_TCP_CHECKSUMS) != 0);
}

static ls_status hear_verdict(connector *c, connection *l)
{
    ls_tcp_answer answer;
    if (!ls_tcp_answer_read(l->in, &answer) || answer.verdict != LS_TCP_WELCOME) {
        call_failed(c, l, 0, LS_TCP_WRONG_TOKEN);
        return LS_OK;
    }
    if (l->lane > 0) { /* on the address that lane 0 has chosen */
        return choose(c, l);
    }
    callee *to = &c->callees[l->peer];
    l->state = WORKS;
    to->tries[l->candidate].works = true;
    to->first_ns = to->first_ns ? to->first_ns : ls_clock_monotonic_ns();
    return LS_OK;
}

static connection *find_call(connector *c, uint32_t peer, uint32_t lane, uint32_t index)
{
    for (uint32_t i = 0; i < c->link_count; i++) {
        connection *l = &c->links[i];
        if (is_call(l) && l->peer == peer && l->lane == lane && l->candidate == index) {
            return l;
        }
    }
    return NULL;
}

/* Several addresses work: measures them one after the other. True when there is nothing left to measure. */
static bool probe_all(connector *c, uint32_t peer)
{
    callee *to = &c->callees[peer];
    for (uint32_t i = 0; i < to->count; i++) {
        connection *l = to->tries[i].works && to->tries[i].probe_ns == 0 ? find_call(c, peer, 0, i) : NULL;
        if (l && l->state == PROBING) {
            return false;
        }
        if (l && l->state == WORKS) {
            probe_begin(c, l);
            return false;
        }
    }
    return true;
}

/* The preferred address, unless another one was measured to be a quarter faster. */
static uint32_t best_candidate(const callee *to)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < to->count; i++) {
        const candidate *try = &to->tries[i];
        if (try->works && try->under_way &&
            (best == UINT32_MAX || (try->probe_ns > 0 && to->tries[best].probe_ns > 0 &&
                                    try->probe_ns * 5 < to->tries[best].probe_ns * 4))) {
            best = i;
        }
    }
    return best;
}

static void drop_others(connector *c, uint32_t peer)
{
    for (uint32_t i = 0; i < c->link_count; i++) {
        connection *l = &c->links[i];
        if (is_call(l) && l->peer == peer && l->candidate != c->callees[peer].chosen) {
            c->callees[peer].tries[l->candidate].under_way = false;
            c->dials--;
            link_close(l);
        }
    }
}

static ls_status settle(connector *c, uint32_t peer)
{
    callee *to = &c->callees[peer];
    uint32_t works = 0, open = 0;
    for (uint32_t i = 0; i < to->count; i++) {
        works += to->tries[i].works && to->tries[i].under_way;
        open += to->tries[i].under_way && !to->tries[i].works;
    }
    if (works == 0) {
        return LS_OK;
    }
    const bool same_host = c->mesh->members[peer].host == c->mesh->members[c->mesh->rank].host;
    const bool late = ls_clock_monotonic_ns() - to->first_ns > OTHERS_MS * 1000000ull;
    if (!same_host && to->count > 1 && ((open > 0 && !late) || (works > 1 && !probe_all(c, peer)))) {
        return LS_OK;
    }
    const uint32_t best = best_candidate(to);
    connection *l = best != UINT32_MAX ? find_call(c, peer, 0, best) : NULL;
    if (!l || l->state != WORKS) {
        return LS_OK;
    }
    to->chosen = best;
    drop_others(c, peer);
    return choose(c, l);
}

/* All addresses of a rank answered, and none is that rank. */
static ls_status fail_dead(const connector *c, uint32_t peer)
{
    const callee *to = &c->callees[peer];
    const candidate *try = &to->tries[0];
    char text[64];
    for (uint32_t i = 1; i < to->count; i++) { /* the most telling verdict */
        try = try->verdict == LS_TCP_WRONG_RANK || try->verdict == LS_TCP_NOT_LOCKSTEP ? &to->tries[i] : try;
    }
    ls_tcp_address_text(&to->book.addresses[to->order[try - to->tries]], to->book.port, text);
    return ls_fail(verdict_status(try->verdict), "rank %u (%s) called rank %u (%s) at %s, and that %s",
                   c->mesh->members[c->mesh->rank].world_rank, c->mesh->members[c->mesh->rank].host_name,
                   c->mesh->members[peer].world_rank, c->mesh->members[peer].host_name, text,
                   ls_tcp_verdict_text(try->verdict));
}

/* Calls that are due. */
static ls_status call_others(connector *c)
{
    const uint64_t now = ls_clock_monotonic_ns();
    for (uint32_t peer = 0; peer < c->mesh->rank; peer++) {
        callee *to = &c->callees[peer];
        const ls_tcp_peer *p = &c->mesh->peers[peer];
        uint32_t dead = 0;
        if (to->chosen == UINT32_MAX || p->lane_count == 0) {
            to->chosen = UINT32_MAX; /* what was chosen broke while it was told so */
            for (uint32_t i = 0; i < to->count; i++) {
                candidate *try = &to->tries[i];
                if (!try->dead && !try->under_way && now >= try->retry_ns && c->dials < DIALS_MAX) {
                    try->works = false;
                    dial(c, peer, 0, i);
                }
                dead += try->dead;
            }
            if (dead == to->count) {
                return fail_dead(c, peer);
            }
            LS_TRY(settle(c, peer));
            continue;
        }
        for (uint32_t lane = 1; lane < p->lane_count; lane++) {
            if (p->lanes[lane].fd < 0 && now >= to->tries[to->chosen].retry_ns && c->dials < DIALS_MAX &&
                !find_call(c, peer, lane, to->chosen)) {
                dial(c, peer, lane, to->chosen);
            }
        }
    }
    return LS_OK;
}

/* ---- the called side ---- */

static void accept_guests(connector *c)
{
    while (true) {
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        const int fd = accept4(c->listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        connection *l = link_new(c, fd, WANT_HELLO);
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

static ls_tcp_verdict judge_hello(const connector *c, const ls_tcp_hello *hello)
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

static void hear_hello(connector *c, connection *l)
{
    uint8_t bytes[LS_TCP_ANSWER_BYTES];
    ls_tcp_verdict verdict = ls_tcp_hello_read(l->in, &l->hello);
    if (verdict == LS_TCP_WELCOME) {
        verdict = judge_hello(c, &l->hello);
    }
    memcpy(l->said, l->in, sizeof l->said);
    l->answer = (ls_tcp_answer){.verdict = verdict, .flags = c->flags};
    if (verdict == LS_TCP_WELCOME &&
        getrandom(l->answer.nonce, sizeof l->answer.nonce, 0) == sizeof l->answer.nonce) {
        ls_tcp_prove(c->setup->options->token, "called", l->said, l->answer.nonce, l->answer.mac);
    }
    ls_tcp_answer_write(&l->answer, bytes);
    const bool said = verdict == LS_TCP_NOT_LOCKSTEP || say(l, bytes, sizeof bytes);
    if (verdict != LS_TCP_WELCOME || !said) {
        link_failed(c, l, errno, verdict);
        return;
    }
    l->state = WANT_PROOF;
    l->need = LS_TCP_PROOF_BYTES;
}

static void hear_proof(connector *c, connection *l)
{
    uint8_t mac[LS_TCP_MAC_BYTES], said[LS_TCP_MAC_BYTES], bytes[LS_TCP_ANSWER_BYTES];
    ls_tcp_prove(c->setup->options->token, "calls", l->said, l->answer.nonce, mac);
    const bool proven = ls_tcp_proof_read(l->in, said) && CRYPTO_memcmp(mac, said, sizeof mac) == 0;
    const ls_tcp_answer answer = {.verdict = proven ? LS_TCP_WELCOME : LS_TCP_WRONG_TOKEN, .flags = c->flags};
    ls_tcp_answer_write(&answer, bytes);
    if (!say(l, bytes, sizeof bytes) || !proven) {
        link_failed(c, l, errno, proven ? LS_TCP_WELCOME : LS_TCP_WRONG_TOKEN);
        return;
    }
    l->state = WANT_CHOICE;
    l->need = LS_TCP_HEADER_BYTES;
}

static ls_status hear_choice(connector *c, connection *l)
{
    ls_tcp_header header;
    if (!ls_tcp_header_read(l->in, c->mesh->epoch, &header)) {
        link_close(l);
    } else if (header.kind == LS_TCP_PROBE) {
        l->bulk = header.bytes;
        l->have = 0;
    } else if (header.kind == LS_TCP_CHOSEN) {
        l->peer = l->hello.from;
        l->lane = l->hello.lane;
        return bind_lane(c, l, l->hello.lanes, ((c->flags | l->hello.flags) & LS_TCP_CHECKSUMS) != 0);
    }
    return LS_OK;
}

static void probe_read(connector *c, connection *l)
{
    uint8_t bin[16 << 10];
    while (l->bulk > 0) {
        const ssize_t got = recv(l->fd, bin, l->bulk < sizeof bin ? l->bulk : sizeof bin, MSG_DONTWAIT);
        if (got <= 0) {
            if (got == 0 || errno != EAGAIN) {
                link_close(l);
            }
            return;
        }
        l->bulk -= (uint64_t)got;
    }
    const ls_tcp_header header = {.kind = LS_TCP_PROBE};
    uint8_t bytes[LS_TCP_HEADER_BYTES];
    ls_tcp_header_write(&header, c->mesh->epoch, bytes);
    if (!say(l, bytes, sizeof bytes)) {
        link_close(l);
    }
}

/* ---- the loop ---- */

static ls_status link_heard(connector *c, connection *l)
{
    l->have = 0;
    switch (l->state) {
    case WANT_ANSWER:
        hear_answer(c, l);
        return LS_OK;
    case WANT_VERDICT:
        return hear_verdict(c, l);
    case PROBING:
        probe_end(c, l);
        return LS_OK;
    case WANT_HELLO:
        hear_hello(c, l);
        return LS_OK;
    case WANT_PROOF:
        hear_proof(c, l);
        return LS_OK;
    case WANT_CHOICE:
        return hear_choice(c, l);
    default:
        return LS_OK;
    }
}

/* The first bytes tell a stranger apart, so that one that waits for us to speak first does not hold us up. */
static bool is_stranger(const connection *l)
{
    static const char magic[] = "LSTCP";
    return (l->state == WANT_HELLO || l->state == WANT_ANSWER) &&
           memcmp(l->in, magic, l->have < 5 ? l->have : 5) != 0;
}

static ls_status link_read(connector *c, connection *l)
{
    if (l->state == WANT_CHOICE && l->bulk > 0) {
        probe_read(c, l);
        return LS_OK;
    }
    const ssize_t got = recv(l->fd, l->in + l->have, l->need - l->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return LS_OK;
    }
    if (got <= 0) {
        link_failed(c, l, got < 0 ? errno : ECONNRESET, LS_TCP_WELCOME);
        return LS_OK;
    }
    l->have += (uint32_t)got;
    if (is_stranger(l)) {
        link_failed(c, l, 0, LS_TCP_NOT_LOCKSTEP);
        return LS_OK;
    }
    return l->have == l->need ? link_heard(c, l) : LS_OK;
}

static ls_status link_event(connector *c, connection *l, short events)
{
    if (l->state == CALLING) {
        say_hello(c, l);
    } else if (l->state == PROBING && (events & POLLOUT) && l->bulk > 0) {
        probe_send(c, l);
    } else if (l->state == WORKS) {
        if (events & (POLLHUP | POLLERR)) {
            link_failed(c, l, ECONNRESET, LS_TCP_WELCOME);
        }
    } else if (l->state != CLOSED) {
        return link_read(c, l);
    }
    return LS_OK;
}

static short wanted_events(const connection *l)
{
    return l->state == CALLING                  ? POLLOUT
           : l->state == PROBING && l->bulk > 0 ? POLLIN | POLLOUT
           : l->state == WORKS                  ? 0
                                                : POLLIN;
}

static ls_status poll_once(connector *c)
{
    c->polls[0] = (struct pollfd){.fd = c->listener, .events = POLLIN};
    const uint32_t count = c->link_count;
    for (uint32_t i = 0; i < count; i++) {
        const connection *l = &c->links[i];
        c->polls[1 + i] = (struct pollfd){.fd = l->state == CLOSED ? -1 : l->fd, .events = wanted_events(l)};
    }
    if (poll(c->polls, 1 + count, 10) < 0 && errno != EINTR) {
        return ls_fail_errno(errno, "poll while connecting ranks");
    }
    const uint64_t now = ls_clock_monotonic_ns();
    for (uint32_t i = 0; i < count; i++) {
        connection *l = &c->links[i];
        if (l->state != CLOSED && c->polls[1 + i].revents) {
            LS_TRY(link_event(c, l, c->polls[1 + i].revents));
        } else if (l->state != CLOSED && l->state != WORKS && l->state != WANT_CHOICE &&
                   now - l->since_ns > HELLO_MS * 1000000ull) {
            link_failed(c, l, ETIMEDOUT, LS_TCP_WELCOME);
        }
    }
    if (c->polls[0].revents) {
        accept_guests(c);
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

static ls_status fail_late(const connector *c)
{
    char text[512];
    size_t used = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->mesh->size; i++) {
        const ls_comm_member *m = &c->mesh->members[i];
        if (is_connected(c->mesh, i) || ++count > 4 || used >= sizeof text) {
            continue;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%srank %u (%.40s, pid %d)",
                                 count > 1 ? ", " : "", m->world_rank, m->host_name, m->pid);
        for (uint32_t k = 0; i < c->mesh->rank && k < c->callees[i].count && k < 3 && used < sizeof text;
             k++) {
            const callee *to = &c->callees[i];
            char address[64];
            ls_tcp_address_text(&to->book.addresses[to->order[k]], to->book.port, address);
            used += (size_t)snprintf(text + used, sizeof text - used, " %s: %s", address,
                                     to->tries[k].dead    ? ls_tcp_verdict_text(to->tries[k].verdict)
                                     : to->tries[k].error ? strerror(to->tries[k].error)
                                                          : "no answer");
        }
    }
    return ls_fail(LS_ERR_TIMEOUT, "rank %u could not be connected in %.1f s with %u ranks: %s%s%s",
                   c->mesh->members[c->mesh->rank].world_rank, ls_tcp_timeout_s(c->setup), count, text,
                   c->refused ? "; refused: " : "", c->refused ? c->refusal : "");
}

static ls_status meet(connector *c)
{
    const ls_comm_options *options = c->setup->options;
    while (!all_connected(c->mesh)) {
        if (options->is_over && options->is_over(options->context)) {
            return ls_fail(LS_FENCED, "the ranks change");
        }
        LS_TRY(call_others(c));
        LS_TRY(poll_once(c));
        if (ls_clock_monotonic_ns() > c->deadline_ns) {
            return fail_late(c);
        }
    }
    return LS_OK;
}

/* ---- where the others are ---- */

static void book_key(const connector *c, uint32_t rank, char key[LS_STORE_KEY_BYTES_MAX + 1])
{
    snprintf(key, LS_STORE_KEY_BYTES_MAX + 1, "%stcp/%u", c->setup->key_prefix, rank);
}

static ls_status publish(connector *c)
{
    uint8_t bytes[LS_TCP_BOOK_BYTES_MAX];
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    book_key(c, c->mesh->rank, key);
    return ls_store_put(c->setup->store, key, bytes, ls_tcp_book_write(&c->own, bytes));
}

static ls_status look_up(connector *c, uint32_t rank)
{
    uint8_t bytes[LS_TCP_BOOK_BYTES_MAX];
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    size_t count = 0;
    callee *to = &c->callees[rank];
    const ls_comm_member *m = &c->mesh->members[rank];
    const uint64_t now = ls_clock_monotonic_ns();
    const double left_s = now < c->deadline_ns ? 1e-9 * (double)(c->deadline_ns - now) : 0.0;
    book_key(c, rank, key);
    const ls_status status = ls_store_get(c->setup->store, key, left_s, bytes, sizeof bytes, &count);
    if (status != LS_OK) {
        return ls_fail_within(status, "where rank %u (%s, pid %d) can be called", m->world_rank, m->host_name,
                              m->pid);
    }
    if (!ls_tcp_book_read(bytes, count, &to->book)) {
        return ls_fail(LS_ERR_MISMATCH,
                       "rank %u (%s) published addresses of another version: use one binary everywhere",
                       m->world_rank, m->host_name);
    }
    const bool same_host = m->host == c->mesh->members[c->mesh->rank].host;
    to->chosen = UINT32_MAX;
    to->count = ls_tcp_candidates(&c->own, &to->book, same_host, to->order);
    if (to->count == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "rank %u (%s) has no address that rank %u (%s) could call: give all hosts addresses "
                       "of one family, or "
                       "name the interface with LS_COMM_INTERFACE",
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
                           "ranks on several hosts (%s, %s) need a token: set LOCKSTEP_TOKEN to the same hex "
                           "digits everywhere",
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
    connector c = {.mesh = mesh,
                   .setup = setup,
                   .name_hash = ls_xxh3(setup->key_prefix, strlen(setup->key_prefix), setup->group_id),
                   .lanes = lanes_wanted(setup),
                   .flags = checksums && checksums[0] == '1' ? LS_TCP_CHECKSUMS : 0,
                   .listener = -1,
                   .callees = calloc(setup->size, sizeof(callee)),
                   .links = calloc(DIALS_MAX + GUESTS_MAX, sizeof(connection)),
                   .polls = calloc(1 + DIALS_MAX + GUESTS_MAX, sizeof(struct pollfd)),
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
    status = meet(&c);
release:
    for (uint32_t i = 0; c.links && i < c.link_count; i++) {
        link_close(&c.links[i]);
    }
    if (c.listener >= 0) {
        close(c.listener);
    }
    free(c.callees);
    free(c.links);
    free(c.polls);
    return status;
}
