// SPDX-License-Identifier: Apache-2.0
#include "execution/comm/tcp_mesh.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    BIN_BYTES = 64 << 10,
    SEND_VECTORS = 24,
    READ_TURN_BYTES = 2 << 20, /* of one lane before the others have their turn */
    LOOK_MS = 250,
    LINGER_MS = 1000,
    LINGER_FAILED_MS = 50,
};

/* ---- life ---- */

ls_status ls_tcp_mesh_create(const ls_transport_setup *setup, ls_tcp_mesh **mesh_out)
{
    ls_tcp_mesh *mesh = calloc(1, sizeof *mesh);
    if (!mesh) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the sockets of %u ranks", setup->size);
    }
    *mesh = (ls_tcp_mesh){.rank = setup->rank,
                          .size = setup->size,
                          .epoch = setup->options->epoch,
                          .epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                          .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                          .members = calloc(setup->size, sizeof *mesh->members),
                          .peers = calloc(setup->size, sizeof *mesh->peers),
                          .bin = malloc(BIN_BYTES)};
    pthread_mutex_init(&mesh->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&mesh->moved, &attributes);
    pthread_condattr_destroy(&attributes);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (mesh->epoll_fd < 0 || mesh->wake_fd < 0 ||
        epoll_ctl(mesh->epoll_fd, EPOLL_CTL_ADD, mesh->wake_fd, &event) != 0) {
        const ls_status status = ls_fail_errno(errno, "epoll for the sockets of rank %u", setup->rank);
        ls_tcp_mesh_destroy(mesh);
        return status;
    }
    if (!mesh->members || !mesh->peers || !mesh->bin) {
        ls_tcp_mesh_destroy(mesh);
        return ls_fail(LS_ERR_MEMORY, "no memory for the sockets of %u ranks", setup->size);
    }
    memcpy(mesh->members, setup->members, setup->size * sizeof *mesh->members);
    *mesh_out = mesh;
    return LS_OK;
}

ls_status ls_tcp_mesh_add_peer(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lanes, bool checksums)
{
    ls_tcp_peer *p = &mesh->peers[peer];
    p->lanes = calloc(lanes, sizeof *p->lanes);
    if (!p->lanes) {
        return ls_fail(LS_ERR_MEMORY, "no memory for %u sockets to rank %u", lanes, peer);
    }
    p->lane_count = lanes;
    p->checksums = checksums;
    for (uint32_t i = 0; i < lanes; i++) {
        ls_tcp_lane *lane = &p->lanes[i];
        *lane = (ls_tcp_lane){.fd = -1,
                              .peer = peer,
                              .index = i,
                              .capacity = 16,
                              .queue = calloc(16, sizeof(ls_tcp_out)),
                              .staged = malloc(LS_TCP_STAGE_BYTES)};
        if (!lane->queue || !lane->staged) {
            return ls_fail(LS_ERR_MEMORY, "no memory for %u sockets to rank %u", lanes, peer);
        }
    }
    return LS_OK;
}

ls_status ls_tcp_mesh_bind(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lane_index, int fd)
{
    ls_tcp_peer *p = &mesh->peers[peer];
    ls_tcp_lane *lane = &p->lanes[lane_index];
    LS_ASSERT(lane_index < p->lane_count && lane->fd < 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = lane};
    if (epoll_ctl(mesh->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return ls_fail_errno(errno, "epoll for a socket to rank %u", peer);
    }
    lane->fd = fd;
    lane->readable = lane->writable = true;
    p->open_count++;
    return LS_OK;
}

static void out_release(ls_tcp_out *out)
{
    free(out->owned);
    out->owned = NULL;
}

static void lane_release(ls_tcp_lane *lane)
{
    for (uint32_t i = 0; i < lane->count; i++) {
        out_release(&lane->queue[(lane->first + i) % lane->capacity]);
    }
    free(lane->queue);
    free(lane->staged);
    if (lane->fd >= 0) {
        close(lane->fd);
    }
}

static void strays_free(ls_tcp_stray *stray)
{
    while (stray) {
        ls_tcp_stray *next = stray->next;
        free(stray);
        stray = next;
    }
}

/* Bytes that the other end has not acknowledged; what it still sends is read and thrown away, for a socket closed with data unread
 * answers with a reset, which takes what is under way along. */
static bool lane_is_drained(ls_tcp_lane *lane, uint8_t *bin)
{
    if (lane->fd < 0) {
        return true;
    }
    ssize_t got;
    while ((got = recv(lane->fd, bin, BIN_BYTES, MSG_DONTWAIT)) > 0) {
    }
    int unsent = 0;
    const bool ended =
        got == 0 || (errno != EAGAIN && errno != EINTR); /* the other has closed: it wants no more */
    return ended || (lane->count == 0 && (ioctl(lane->fd, SIOCOUTQ, &unsent) != 0 || unsent <= 0));
}

static bool mesh_is_drained(ls_tcp_mesh *mesh)
{
    bool drained = true;
    for (uint32_t i = 0; i < mesh->size; i++) {
        for (uint32_t k = 0; k < mesh->peers[i].lane_count; k++) {
            ls_tcp_lane *lane = &mesh->peers[i].lanes[k];
            drained &= mesh->peers[i].gone || lane_is_drained(lane, mesh->bin);
        }
    }
    return drained;
}

static void mesh_say_goodbye(ls_tcp_mesh *mesh)
{
    const ls_tcp_header header = {.kind = LS_TCP_GOODBYE};
    for (uint32_t i = 0; i < mesh->size; i++) {
        if (mesh->peers[i].open_count > 0) {
            ls_tcp_post(mesh, i, 0, &header, NULL);
        }
    }
    ls_tcp_mesh_flush(mesh);
    const uint64_t until =
        ls_clock_monotonic_ns() + (mesh->failed ? LINGER_FAILED_MS : LINGER_MS) * 1000000ull;
    while (!mesh_is_drained(mesh) && ls_clock_monotonic_ns() < until) {
        ls_tcp_mesh_flush(mesh);
        poll(NULL, 0, 1);
    }
}

void ls_tcp_mesh_destroy(ls_tcp_mesh *mesh)
{
    if (!mesh) {
        return;
    }
    if (mesh->peers && mesh->bin) {
        mesh_say_goodbye(mesh);
    }
    for (uint32_t i = 0; mesh->peers && i < mesh->size; i++) {
        for (uint32_t k = 0; k < mesh->peers[i].lane_count; k++) {
            lane_release(&mesh->peers[i].lanes[k]);
        }
        free(mesh->peers[i].lanes);
    }
    strays_free(mesh->strays);
    strays_free(mesh->spare);
    free(mesh->peers);
    free(mesh->members);
    free(mesh->bin);
    if (mesh->epoll_fd >= 0) {
        close(mesh->epoll_fd);
    }
    if (mesh->wake_fd >= 0) {
        close(mesh->wake_fd);
    }
    pthread_cond_destroy(&mesh->moved);
    pthread_mutex_destroy(&mesh->lock);
    free(mesh);
}

/* A socket ended. A peer is gone when all of its sockets are, or at once when one ended with an error. */
static void lane_close(ls_tcp_mesh *mesh, ls_tcp_lane *lane, int error)
{
    if (lane->fd < 0) {
        return;
    }
    close(lane->fd);
    lane->fd = -1;
    lane->readable = lane->writable = false;
    for (; lane->count > 0; lane->count--) {
        out_release(&lane->queue[lane->first]);
        lane->first = (lane->first + 1) % lane->capacity;
    }
    ls_tcp_peer *peer = &mesh->peers[lane->peer];
    peer->open_count--;
    mesh->moves++;
    if (!peer->gone && (error != 0 || peer->open_count == 0)) {
        peer->gone = true;
        if (peer->left) {
            snprintf(peer->why, sizeof peer->why, "has left: it closed its communicator");
        } else if (error == EBADMSG) {
            snprintf(peer->why, sizeof peer->why,
                     "sent bytes that make no sense: a header or checksum is wrong");
        } else if (error != 0) {
            snprintf(peer->why, sizeof peer->why, "is lost: %s", strerror(error));
        } else {
            snprintf(peer->why, sizeof peer->why, "is lost: it ended without closing its communicator");
        }
    }
}

/* ---- sending ---- */

static bool lane_grow(ls_tcp_lane *lane)
{
    ls_tcp_out *queue = calloc(2ul * lane->capacity, sizeof *queue);
    if (!queue) {
        return false;
    }
    for (uint32_t i = 0; i < lane->count; i++) {
        queue[i] = lane->queue[(lane->first + i) % lane->capacity];
    }
    free(lane->queue);
    lane->queue = queue;
    lane->capacity *= 2;
    lane->first = 0;
    return true;
}

ls_tcp_out *ls_tcp_post(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lane_index, const ls_tcp_header *header,
                        const void *payload)
{
    static _Thread_local ls_tcp_out swallowed;
    ls_tcp_peer *p = &mesh->peers[peer];
    ls_tcp_lane *lane = lane_index < p->lane_count ? &p->lanes[lane_index] : NULL;
    if (!lane || lane->fd < 0 || (lane->count == lane->capacity && !lane_grow(lane))) {
        return &swallowed;
    }
    ls_tcp_out *out = &lane->queue[(lane->first + lane->count++) % lane->capacity];
    *out = (ls_tcp_out){.payload = payload, .payload_bytes = header->bytes};
    ls_tcp_header_write(header, mesh->epoch, out->header);
    if (p->checksums && header->kind == LS_TCP_DATA && header->bytes > 0) {
        const uint32_t crc = ls_crc32c(0, payload, header->bytes);
        memcpy(out->trailer, &crc, 4);
        out->trailer_bytes = 4;
    }
    return out;
}

void ls_tcp_post_copy(ls_tcp_mesh *mesh, uint32_t peer, const ls_tcp_header *header, const void *payload)
{
    void *copy = malloc(header->bytes > 0 ? header->bytes : 1);
    if (!copy) {
        return; /* the other learns by its deadline */
    }
    memcpy(copy, payload, header->bytes);
    ls_tcp_out *out = ls_tcp_post(mesh, peer, 0, header, copy);
    if (out->payload == copy) {
        out->owned = copy;
    } else {
        free(copy);
    }
}

/* The unsent rest of a message as vectors; returns how many. */
static int out_vectors(const ls_tcp_out *out, struct iovec *vectors)
{
    const void *parts[3] = {out->header, out->payload ? out->payload : out->small, out->trailer};
    const uint64_t sizes[3] = {LS_TCP_HEADER_BYTES, out->payload_bytes, out->trailer_bytes};
    uint64_t skip = out->sent;
    int count = 0;
    for (int i = 0; i < 3; i++) {
        const uint64_t part = skip < sizes[i] ? sizes[i] - skip : 0;
        if (part > 0) {
            vectors[count++] =
                (struct iovec){.iov_base = (void *)((uintptr_t)parts[i] + skip), .iov_len = part};
        }
        skip -= skip < sizes[i] ? skip : sizes[i];
    }
    return count;
}

/* `bytes` more of the queue are on their way. */
static void lane_advance(ls_tcp_mesh *mesh, ls_tcp_lane *lane, uint64_t bytes)
{
    mesh->sent_bytes += bytes;
    while (lane->count > 0) {
        ls_tcp_out *out = &lane->queue[lane->first];
        const uint64_t whole = LS_TCP_HEADER_BYTES + (uint64_t)out->payload_bytes + out->trailer_bytes;
        const uint64_t part = bytes < whole - out->sent ? bytes : whole - out->sent;
        out->sent += part;
        bytes -= part;
        if (out->sent < whole) {
            return;
        }
        if (out->stream) {
            ls_tcp_stream_count(out->stream, lane->index, mesh->peers[lane->peer].lane_count);
            out->group->call.out_left -= out->stream->done == out->stream->pieces;
        }
        out_release(out);
        lane->first = (lane->first + 1) % lane->capacity;
        lane->count--;
        mesh->moves++;
    }
}

static void lane_send(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
{
    while (lane->count > 0 && lane->writable) {
        struct iovec vectors[SEND_VECTORS];
        int count = 0;
        uint64_t want = 0;
        for (uint32_t i = 0; i < lane->count && count + 3 <= SEND_VECTORS; i++) {
            count += out_vectors(&lane->queue[(lane->first + i) % lane->capacity], vectors + count);
        }
        for (int i = 0; i < count; i++) {
            want += vectors[i].iov_len;
        }
        const struct msghdr message = {.msg_iov = vectors, .msg_iovlen = (size_t)count};
        const ssize_t sent = sendmsg(lane->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            lane->readable |=
                errno != EAGAIN; /* reading says what became of it, after what was sent before */
            lane->writable = false;
            return;
        }
        lane_advance(mesh, lane, (uint64_t)sent);
        lane->writable = (uint64_t)sent == want;
    }
}

void ls_tcp_mesh_flush(ls_tcp_mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->size; i++) {
        ls_tcp_peer *peer = &mesh->peers[(mesh->rank + i) % mesh->size];
        for (uint32_t k = 0; k < peer->lane_count; k++) {
            if (peer->lanes[k].count > 0) {
                lane_send(mesh, &peer->lanes[k]);
            }
        }
    }
}

/* ---- receiving ---- */

static void lane_finish(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
{
    mesh->moves++;
    lane->at = LS_TCP_AT_HEADER;
    ls_tcp_arrived(mesh, lane);
    lane->to = NULL;
    lane->group = NULL;
    lane->stray = NULL;
}

/* A header is there: find a place for what follows. False: the stream makes no sense. */
static bool lane_header(ls_tcp_mesh *mesh, ls_tcp_lane *lane, const uint8_t *bytes)
{
    if (!ls_tcp_header_read(bytes, mesh->epoch, &lane->header)) {
        return false;
    }
    lane->payload_done = 0;
    lane->trailer_done = 0;
    lane->to = NULL;
    lane->group = NULL;
    lane->stray = NULL;
    lane->at = LS_TCP_AT_PAYLOAD;
    if (lane->header.kind == LS_TCP_DATA) {
        ls_tcp_place(mesh, lane);
    } else if (lane->header.bytes > 0) {
        lane->to = lane->control;
    }
    return true;
}

/* Takes `bytes` that have just been read into their place. */
static void lane_payload(ls_tcp_lane *lane, const uint8_t *from, uint64_t bytes)
{
    if (lane->to) {
        memcpy(lane->to + lane->payload_done, from, bytes);
    }
    lane->payload_done += bytes;
}

/* Payload is complete: its checksum, or the end. False: a checksum does not agree. */
static bool lane_payload_end(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
{
    const bool checked =
        mesh->peers[lane->peer].checksums && lane->header.kind == LS_TCP_DATA && lane->header.bytes > 0;
    if (!checked) {
        lane_finish(mesh, lane);
        return true;
    }
    if (lane->trailer_done < 4) {
        lane->at = LS_TCP_AT_TRAILER;
        return true;
    }
    uint32_t crc;
    memcpy(&crc, lane->trailer, 4);
    if (lane->to && crc != ls_crc32c(0, lane->to, lane->header.bytes)) {
        return false;
    }
    lane_finish(mesh, lane);
    return true;
}

/* Works through what was read ahead. False: the stream makes no sense. */
static bool lane_parse(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
{
    while (true) {
        const uint32_t there = lane->staged_end - lane->staged_begin;
        const uint8_t *at = lane->staged + lane->staged_begin;
        if (lane->at == LS_TCP_AT_HEADER) {
            if (there < LS_TCP_HEADER_BYTES) {
                return true;
            }
            lane->staged_begin += LS_TCP_HEADER_BYTES;
            if (!lane_header(mesh, lane, at)) {
                return false;
            }
        } else if (lane->at == LS_TCP_AT_PAYLOAD) {
            const uint64_t left = lane->header.bytes - lane->payload_done;
            const uint32_t part = left < there ? (uint32_t)left : there;
            lane_payload(lane, at, part);
            lane->staged_begin += part;
            if (part < left) {
                return true;
            }
            if (!lane_payload_end(mesh, lane)) {
                return false;
            }
        } else {
            const uint32_t part = 4 - lane->trailer_done < there ? 4 - lane->trailer_done : there;
            memcpy(lane->trailer + lane->trailer_done, at, part);
            lane->trailer_done += part;
            lane->staged_begin += part;
            if (lane->trailer_done < 4) {
                return true;
            }
            if (!lane_payload_end(mesh, lane)) {
                return false;
            }
        }
    }
}

/* Reads once. Returns what recv returned. */
static ssize_t lane_receive(ls_tcp_mesh *mesh, ls_tcp_lane *lane, uint64_t *want_out)
{
    const uint64_t left = lane->header.bytes - lane->payload_done;
    const bool direct = lane->at == LS_TCP_AT_PAYLOAD && left > LS_TCP_STAGE_BYTES / 2;
    if (!direct) {
        const uint32_t rest = lane->staged_end - lane->staged_begin;
        memmove(lane->staged, lane->staged + lane->staged_begin, rest);
        lane->staged_begin = 0;
        lane->staged_end = rest;
        /* Only the beginning of a large piece is read ahead; its rest goes straight to its place. */
        *want_out = LS_TCP_STAGE_BYTES - rest;
        const ssize_t got = recv(lane->fd, lane->staged + rest, *want_out, MSG_DONTWAIT);
        lane->staged_end += got > 0 ? (uint32_t)got : 0;
        return got;
    }
    uint8_t *to = lane->to ? lane->to + lane->payload_done : mesh->bin;
    *want_out = lane->to ? left : (left < BIN_BYTES ? left : BIN_BYTES);
    const ssize_t got = recv(lane->fd, to, *want_out, MSG_DONTWAIT);
    lane->payload_done += got > 0 ? (uint64_t)got : 0;
    return got;
}

static void lane_read(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
{
    uint64_t turn = 0;
    while (lane->fd >= 0 && lane->readable && turn < READ_TURN_BYTES) {
        uint64_t want = 0;
        const ssize_t got = lane_receive(mesh, lane, &want);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && errno == EAGAIN) {
            lane->readable = false;
            return;
        }
        if (got <= 0) {
            lane_close(mesh, lane, got < 0 ? errno : 0);
            return;
        }
        mesh->received_bytes += (uint64_t)got;
        turn += (uint64_t)got;
        if (!lane_parse(mesh, lane) ||
            (lane->at == LS_TCP_AT_PAYLOAD && lane->payload_done == lane->header.bytes &&
             !lane_payload_end(mesh, lane))) {
            lane_close(mesh, lane, EBADMSG);
            return;
        }
    }
}

/* ---- waiting ---- */

static bool mesh_read(ls_tcp_mesh *mesh)
{
    bool more = false;
    for (uint32_t i = 0; i < mesh->size; i++) {
        for (uint32_t k = 0; k < mesh->peers[i].lane_count; k++) {
            ls_tcp_lane *lane = &mesh->peers[i].lanes[k];
            if (lane->readable) {
                lane_read(mesh, lane);
                more |= lane->readable;
            }
        }
    }
    return more;
}

static bool any_readable(const ls_tcp_mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->size; i++) {
        for (uint32_t k = 0; k < mesh->peers[i].lane_count; k++) {
            if (mesh->peers[i].lanes[k].readable) {
                return true;
            }
        }
    }
    return false;
}

static void take_event(ls_tcp_mesh *mesh, const struct epoll_event *event)
{
    ls_tcp_lane *lane = event->data.ptr;
    if (!lane) {
        uint64_t count;
        (void)!read(mesh->wake_fd, &count, sizeof count);
        return;
    }
    const uint32_t end = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    lane->readable |= lane->fd >= 0 && (event->events & (EPOLLIN | end)) != 0;
    lane->writable |= lane->fd >= 0 && (event->events & EPOLLOUT) != 0;
}

/* Waits in epoll, first looking for a moment. Between looks others may have the core: who is waited for may need it, and who can't know of
 * others (ranks in containers of one machine) doesn't take it from them. Lock not held. */
static int epoll_events(ls_tcp_mesh *mesh, struct epoll_event *events, int count, uint64_t now,
                        uint64_t until)
{
    const uint64_t spin_until = now + mesh->spin_ns < until ? now + mesh->spin_ns : until;
    while (ls_clock_monotonic_ns() < spin_until) {
        const int n = epoll_wait(mesh->epoll_fd, events, count, 0);
        if (n != 0) {
            return n;
        }
        sched_yield();
    }
    now = ls_clock_monotonic_ns();
    const uint64_t ms = now < until ? (until - now) / 1000000 + 1 : 0;
    return epoll_wait(mesh->epoll_fd, events, count, (int)(ms < 100 ? ms : 100));
}

static void sleep_beside(ls_tcp_mesh *mesh, uint64_t until_ns)
{
    const uint64_t soon = ls_clock_monotonic_ns() + 100000000;
    const uint64_t until = until_ns < soon ? until_ns : soon;
    const struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                                .tv_nsec = (long)(until % 1000000000)};
    mesh->sleepers++;
    pthread_cond_timedwait(&mesh->moved, &mesh->lock, &at);
    mesh->sleepers--;
}

uint64_t ls_tcp_mesh_wait(ls_tcp_mesh *mesh, uint64_t until_ns)
{
    enum { EVENTS = 64 };
    struct epoll_event events[EVENTS];
    const uint64_t begin = ls_clock_monotonic_ns();
    uint64_t end = begin;
    if (mesh->polling) {
        sleep_beside(mesh, until_ns);
        return ls_clock_monotonic_ns() - begin;
    }
    const bool waits = !any_readable(mesh);
    mesh->polling = true;
    pthread_mutex_unlock(&mesh->lock);
    const int count = waits ? epoll_events(mesh, events, EVENTS, begin, until_ns)
                            : epoll_wait(mesh->epoll_fd, events, EVENTS, 0);
    if (waits) {
        end = ls_clock_monotonic_ns();
    }
    pthread_mutex_lock(&mesh->lock);
    mesh->polling = false;
    for (int i = 0; i < count; i++) {
        take_event(mesh, &events[i]);
    }
    mesh_read(mesh);
    if (mesh->sleepers > 0) {
        pthread_cond_broadcast(&mesh->moved);
    }
    return end - begin;
}

void ls_tcp_mesh_wake(ls_tcp_mesh *mesh)
{
    const uint64_t one = 1;
    (void)!write(mesh->wake_fd, &one, sizeof one);
    pthread_cond_broadcast(&mesh->moved);
}

/*
 * Whether the other end's kernel still answers. TCP_USER_TIMEOUT would be simpler, but it also ends a connection whose receiver merely has
 * its buffer full for long (a rank that was stopped for a moment), and it replaces the count of keep-alive probes.
 */
void ls_tcp_mesh_check_links(ls_tcp_mesh *mesh)
{
    const uint64_t now = ls_clock_monotonic_ns();
    if (now - mesh->links_looked_ns < LOOK_MS * 1000000ull) {
        return;
    }
    mesh->links_looked_ns = now;
    for (uint32_t i = 0; i < mesh->size; i++) {
        for (uint32_t k = 0; k < mesh->peers[i].lane_count; k++) {
            ls_tcp_lane *lane = &mesh->peers[i].lanes[k];
            struct tcp_info info;
            socklen_t bytes = sizeof info;
            if (lane->fd >= 0 && getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                info.tcpi_unacked > 0 && info.tcpi_last_ack_recv > mesh->link_ms &&
                info.tcpi_last_data_sent > 0) {
                lane_close(mesh, lane, ETIMEDOUT);
            }
        }
    }
}

/* ---- the end of a call ---- */

/* Drops what was not begun, and copies the rest of what was: half a message can't be taken back. */
static void lane_forget_sends(ls_tcp_lane *lane, ls_tcp_group *group)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < lane->count; i++) {
        ls_tcp_out out = lane->queue[(lane->first + i) % lane->capacity];
        if (out.group == group) {
            out.stream = NULL;
            if (out.sent == 0) {
                continue;
            }
            void *copy = out.payload_bytes > 0 ? malloc(out.payload_bytes) : NULL;
            if (copy) {
                memcpy(copy, out.payload, out.payload_bytes);
            } else if (out.payload_bytes > 0) {
                shutdown(lane->fd, SHUT_RDWR);
                continue;
            }
            out.payload = out.owned = copy;
            out.group = NULL;
        }
        lane->queue[(lane->first + kept++) % lane->capacity] = out;
    }
    lane->count = kept;
}

void ls_tcp_mesh_forget(ls_tcp_mesh *mesh, ls_tcp_group *group)
{
    for (uint32_t i = 0; i < mesh->size; i++) {
        for (uint32_t k = 0; k < mesh->peers[i].lane_count; k++) {
            ls_tcp_lane *lane = &mesh->peers[i].lanes[k];
            lane_forget_sends(lane, group);
            if (lane->group == group) {
                lane->to = NULL;
                lane->group = NULL;
            }
        }
    }
}

void ls_tcp_mesh_free_stray(ls_tcp_mesh *mesh, ls_tcp_stray *stray)
{
    stray->next = mesh->spare;
    mesh->spare = stray;
}
