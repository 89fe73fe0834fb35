// SPDX-License-Identifier: Apache-2.0
/*
 * The calling side of a connection: dialling, the hello, and the choice of an address.
 *
 * All addresses of a callee are dialled at once for lane 0. If several work and the callee is on
 * another host, a probe measures each in turn. The chosen address then gets the other lanes too.
 * Attempts that fail are repeated with growing pauses until the deadline of the connector.
 */
#include "comm/tcp/tcp_link.h"

#include "base/clock.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    /* Pause after a failed attempt; each pause is twice the one before, up to the maximum. */
    RETRY_MS = 50,
    RETRY_MS_MAX = 1000,
    /* How long other addresses may take after the first one works. */
    OTHERS_MS = 30,
    PROBE_BYTES = 256 << 10,
};

static ls_status verdict_status(ls_tcp_verdict verdict)
{
    return verdict == LS_TCP_WRONG_VERSION || verdict == LS_TCP_WRONG_EPOCH || verdict == LS_TCP_WRONG_GROUP
               ? LS_ERR_MISMATCH
               : LS_ERR_INVALID;
}

void ls_tcp_dial_failed(ls_tcp_connector *c, ls_tcp_connection *l, int error, ls_tcp_verdict verdict)
{
    ls_tcp_candidate *try = &c->callees[l->peer].tries[l->candidate];
    try->under_way = false;
    try->error = error;
    try->verdict = verdict;
    try->dead = verdict != LS_TCP_WELCOME;
    try->wait_ms = try->wait_ms ? (try->wait_ms < RETRY_MS_MAX ? 2 * try->wait_ms : RETRY_MS_MAX) : RETRY_MS;
    try->retry_ns = ls_clock_monotonic_ns() + try->wait_ms * 1000000;
    c->dials--;
    ls_tcp_connection_close(l);
}

static void dial(ls_tcp_connector *c, uint32_t peer, uint32_t lane, uint32_t index)
{
    ls_tcp_callee *to = &c->callees[peer];
    ls_tcp_candidate *try = &to->tries[index];
    const ls_tcp_address *address = &to->book.addresses[to->order[index]];
    struct sockaddr_storage at;
    const socklen_t bytes = ls_tcp_sockaddr(address, to->book.port, &at);
    const int fd = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ls_tcp_connection *l = fd >= 0 ? ls_tcp_connection_open(c, fd, LS_TCP_DIALLING) : NULL;
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
        ls_tcp_dial_failed(c, l, errno, LS_TCP_WELCOME);
    }
}

/* ---- the hello ---- */

static void send_hello(ls_tcp_connector *c, ls_tcp_connection *l)
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
    ls_tcp_hello_write(&l->hello, l->hello_bytes);
    if (error != 0 || !ls_tcp_send_now(l, l->hello_bytes, sizeof l->hello_bytes)) {
        ls_tcp_dial_failed(c, l, error ? error : errno, LS_TCP_WELCOME);
        return;
    }
    l->state = LS_TCP_WANT_ANSWER;
    l->need = LS_TCP_ANSWER_BYTES;
}

static void receive_answer(ls_tcp_connector *c, ls_tcp_connection *l)
{
    uint8_t mac[LS_TCP_MAC_BYTES], proof[LS_TCP_PROOF_BYTES];
    if (!ls_tcp_answer_read(l->in, &l->answer)) {
        ls_tcp_dial_failed(c, l, 0, LS_TCP_NOT_LOCKSTEP);
        return;
    }
    if (l->answer.verdict != LS_TCP_WELCOME) {
        ls_tcp_dial_failed(c, l, 0, l->answer.verdict);
        return;
    }
    ls_tcp_prove(c->setup->options->token, "called", l->hello_bytes, l->answer.nonce, mac);
    if (CRYPTO_memcmp(mac, l->answer.mac, sizeof mac) != 0) {
        ls_tcp_dial_failed(c, l, 0, LS_TCP_WRONG_TOKEN);
        return;
    }
    ls_tcp_prove(c->setup->options->token, "calls", l->hello_bytes, l->answer.nonce, mac);
    ls_tcp_proof_write(mac, proof);
    if (!ls_tcp_send_now(l, proof, sizeof proof)) {
        ls_tcp_dial_failed(c, l, errno, LS_TCP_WELCOME);
        return;
    }
    l->state = LS_TCP_WANT_VERDICT;
    l->need = LS_TCP_ANSWER_BYTES;
}

static void probe_begin(ls_tcp_connector *c, ls_tcp_connection *l)
{
    const ls_tcp_header header = {.kind = LS_TCP_PROBE, .bytes = PROBE_BYTES};
    uint8_t bytes[LS_TCP_HEADER_BYTES];
    ls_tcp_header_write(&header, c->mesh->epoch, bytes);
    l->probe_ns = ls_clock_monotonic_ns();
    l->bulk = PROBE_BYTES;
    l->state = LS_TCP_PROBING;
    l->need = LS_TCP_HEADER_BYTES;
    if (!ls_tcp_send_now(l, bytes, sizeof bytes)) {
        ls_tcp_dial_failed(c, l, errno, LS_TCP_WELCOME);
    }
}

/* Sends as much of the probe as the socket accepts. */
static void probe_send(ls_tcp_connector *c, ls_tcp_connection *l)
{
    static const uint8_t zeros[16 << 10];
    while (l->bulk > 0) {
        const ssize_t sent =
            send(l->fd, zeros, l->bulk < sizeof zeros ? l->bulk : sizeof zeros, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) {
                ls_tcp_dial_failed(c, l, errno, LS_TCP_WELCOME);
            }
            return;
        }
        l->bulk -= (uint64_t)sent;
    }
}

static void probe_end(ls_tcp_connector *c, ls_tcp_connection *l)
{
    ls_tcp_candidate *try = &c->callees[l->peer].tries[l->candidate];
    const uint64_t took = ls_clock_monotonic_ns() - l->probe_ns;
    try->probe_ns = took > 0 ? took : 1;
    l->state = LS_TCP_WORKS;
}

static ls_status use_connection(ls_tcp_connector *c, ls_tcp_connection *l)
{
    const ls_tcp_header header = {.kind = LS_TCP_CHOSEN};
    uint8_t bytes[LS_TCP_HEADER_BYTES];
    ls_tcp_header_write(&header, c->mesh->epoch, bytes);
    if (!ls_tcp_send_now(l, bytes, sizeof bytes)) {
        ls_tcp_dial_failed(c, l, errno, LS_TCP_WELCOME);
        return LS_OK;
    }
    c->dials--;
    c->callees[l->peer].tries[l->candidate].under_way = false;
    return ls_tcp_connection_bind(c, l, c->lanes, ((c->flags | l->answer.flags) & LS_TCP_CHECKSUMS) != 0);
}

static ls_status receive_verdict(ls_tcp_connector *c, ls_tcp_connection *l)
{
    ls_tcp_answer answer;
    if (!ls_tcp_answer_read(l->in, &answer) || answer.verdict != LS_TCP_WELCOME) {
        ls_tcp_dial_failed(c, l, 0, LS_TCP_WRONG_TOKEN);
        return LS_OK;
    }
    if (l->lane > 0) { /* lane 0 has chosen this address already */
        return use_connection(c, l);
    }
    ls_tcp_callee *to = &c->callees[l->peer];
    l->state = LS_TCP_WORKS;
    to->tries[l->candidate].works = true;
    to->first_ns = to->first_ns ? to->first_ns : ls_clock_monotonic_ns();
    return LS_OK;
}

static ls_tcp_connection *find_dialled(ls_tcp_connector *c, uint32_t peer, uint32_t lane, uint32_t index)
{
    for (uint32_t i = 0; i < c->link_count; i++) {
        ls_tcp_connection *l = &c->links[i];
        if (ls_tcp_is_dialled(l) && l->peer == peer && l->lane == lane && l->candidate == index) {
            return l;
        }
    }
    return NULL;
}

/* Several addresses work: measures one after the other. Returns true when all have been
 * measured. */
static bool probe_all(ls_tcp_connector *c, uint32_t peer)
{
    ls_tcp_callee *to = &c->callees[peer];
    for (uint32_t i = 0; i < to->count; i++) {
        ls_tcp_connection *l =
            to->tries[i].works && to->tries[i].probe_ns == 0 ? find_dialled(c, peer, 0, i) : NULL;
        if (l && l->state == LS_TCP_PROBING) {
            return false;
        }
        if (l && l->state == LS_TCP_WORKS) {
            probe_begin(c, l);
            return false;
        }
    }
    return true;
}

/* The preferred address, unless another one needed less than 4/5 of its time. */
static uint32_t best_candidate(const ls_tcp_callee *to)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < to->count; i++) {
        const ls_tcp_candidate *try = &to->tries[i];
        if (try->works && try->under_way &&
            (best == UINT32_MAX || (try->probe_ns > 0 && to->tries[best].probe_ns > 0 &&
                                    try->probe_ns * 5 < to->tries[best].probe_ns * 4))) {
            best = i;
        }
    }
    return best;
}

static void drop_others(ls_tcp_connector *c, uint32_t peer)
{
    for (uint32_t i = 0; i < c->link_count; i++) {
        ls_tcp_connection *l = &c->links[i];
        if (ls_tcp_is_dialled(l) && l->peer == peer && l->candidate != c->callees[peer].chosen) {
            c->callees[peer].tries[l->candidate].under_way = false;
            c->dials--;
            ls_tcp_connection_close(l);
        }
    }
}

/* Decides which address of a callee is used, once enough is known: on the same host the first that
 * works; otherwise all that work within OTHERS_MS of the first are probed. */
static ls_status choose_address(ls_tcp_connector *c, uint32_t peer)
{
    ls_tcp_callee *to = &c->callees[peer];
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
    ls_tcp_connection *l = best != UINT32_MAX ? find_dialled(c, peer, 0, best) : NULL;
    if (!l || l->state != LS_TCP_WORKS) {
        return LS_OK;
    }
    to->chosen = best;
    drop_others(c, peer);
    return use_connection(c, l);
}

/* All addresses of a rank have answered, but that rank is at none of them. */
static ls_status fail_dead(const ls_tcp_connector *c, uint32_t peer)
{
    const ls_tcp_callee *to = &c->callees[peer];
    const ls_tcp_candidate *try = &to->tries[0];
    char text[64];
    for (uint32_t i = 1; i < to->count; i++) { /* prefers the verdicts that explain most */
        try = try->verdict == LS_TCP_WRONG_RANK || try->verdict == LS_TCP_NOT_LOCKSTEP ? &to->tries[i] : try;
    }
    ls_tcp_address_text(&to->book.addresses[to->order[try - to->tries]], to->book.port, text);
    return ls_fail(verdict_status(try->verdict), "rank %u (%s) called rank %u (%s) at %s, but that peer %s",
                   c->mesh->members[c->mesh->rank].world_rank, c->mesh->members[c->mesh->rank].host_name,
                   c->mesh->members[peer].world_rank, c->mesh->members[peer].host_name, text,
                   ls_tcp_verdict_text(try->verdict));
}

ls_status ls_tcp_dial_due(ls_tcp_connector *c)
{
    const uint64_t now = ls_clock_monotonic_ns();
    for (uint32_t peer = 0; peer < c->mesh->rank; peer++) {
        ls_tcp_callee *to = &c->callees[peer];
        const ls_tcp_peer *p = &c->mesh->peers[peer];
        uint32_t dead = 0;
        if (to->chosen == UINT32_MAX || p->lane_count == 0) {
            to->chosen = UINT32_MAX; /* the chosen connection broke before the callee knew */
            for (uint32_t i = 0; i < to->count; i++) {
                ls_tcp_candidate *try = &to->tries[i];
                if (!try->dead && !try->under_way && now >= try->retry_ns && c->dials < LS_TCP_DIALS_MAX) {
                    try->works = false;
                    dial(c, peer, 0, i);
                }
                dead += try->dead;
            }
            if (dead == to->count) {
                return fail_dead(c, peer);
            }
            LS_TRY(choose_address(c, peer));
            continue;
        }
        for (uint32_t lane = 1; lane < p->lane_count; lane++) {
            if (p->lanes[lane].fd < 0 && now >= to->tries[to->chosen].retry_ns &&
                c->dials < LS_TCP_DIALS_MAX && !find_dialled(c, peer, lane, to->chosen)) {
                dial(c, peer, lane, to->chosen);
            }
        }
    }
    return LS_OK;
}

/* ---- events ---- */

void ls_tcp_dial_writable(ls_tcp_connector *c, ls_tcp_connection *l)
{
    if (l->state == LS_TCP_DIALLING) {
        send_hello(c, l);
    } else {
        probe_send(c, l);
    }
}

ls_status ls_tcp_dial_received(ls_tcp_connector *c, ls_tcp_connection *l)
{
    switch (l->state) {
    case LS_TCP_WANT_ANSWER:
        receive_answer(c, l);
        return LS_OK;
    case LS_TCP_WANT_VERDICT:
        return receive_verdict(c, l);
    default:
        probe_end(c, l);
        return LS_OK;
    }
}
