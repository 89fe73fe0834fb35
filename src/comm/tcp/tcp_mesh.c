// SPDX-License-Identifier: Apache-2.0
/* The mesh: opening, closing, waiting, and the end of a call. See comm/tcp/tcp_mesh.h. */
#include "comm/tcp/tcp_mesh.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    /* Between two checks of the links. */
    LOOK_MS = 250,
    /* How long closing may wait for acknowledgements; less if a group has failed. */
    LINGER_MS = 1000,
    LINGER_FAILED_MS = 50,
};

/* ---- life ---- */

ls_status ls_tcp_mesh_create(const ls_transport_setup *setup, ls_tcp_mesh **mesh_out)
{
    ls_tcp_mesh *mesh = calloc(1, sizeof *mesh);
    if (!mesh) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the sockets of %u ranks", setup->size);
    }
    *mesh = (ls_tcp_mesh){.rank = setup->rank,
                          .size = setup->size,
                          .epoch = setup->options->epoch,
                          .epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                          .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                          .members = calloc(setup->size, sizeof *mesh->members),
                          .peers = calloc(setup->size, sizeof *mesh->peers),
                          .bin = malloc(LS_TCP_BIN_BYTES)};
    pthread_mutex_init(&mesh->lock, NULL);
    pthread_cond_init(&mesh->moved, NULL);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (mesh->epoll_fd < 0 || mesh->wake_fd < 0 ||
        epoll_ctl(mesh->epoll_fd, EPOLL_CTL_ADD, mesh->wake_fd, &event) != 0) {
        const ls_status status =
            ls_fail_errno(errno, "can't watch the sockets of rank %u (epoll)", setup->rank);
        ls_tcp_mesh_destroy(mesh);
        return status;
    }
    if (!mesh->members || !mesh->peers || !mesh->bin) {
        ls_tcp_mesh_destroy(mesh);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the sockets of %u ranks", setup->size);
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
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %u sockets to rank %u", lanes, peer);
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
            return ls_fail(LS_ERR_MEMORY, "not enough memory for %u sockets to rank %u", lanes, peer);
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
        return ls_fail_errno(errno, "can't watch a socket to rank %u (epoll)", peer);
    }
    lane->fd = fd;
    lane->readable = lane->writable = true;
    p->open_count++;
    return LS_OK;
}

static void strays_free(ls_tcp_stray *stray)
{
    while (stray) {
        ls_tcp_stray *next = stray->next;
        free(stray);
        stray = next;
    }
}

/* Whether the other end has acknowledged everything. Data that it still sends is read and
 * discarded, because closing a socket with unread data sends a reset, which destroys the data under
 * way. */
static bool lane_is_drained(ls_tcp_lane *lane, uint8_t *bin)
{
    if (lane->fd < 0) {
        return true;
    }
    ssize_t got;
    while ((got = recv(lane->fd, bin, LS_TCP_BIN_BYTES, MSG_DONTWAIT)) > 0) {
    }
    int unsent = 0;
    /* If the other end has closed, it wants no more. */
    const bool ended = got == 0 || (errno != EAGAIN && errno != EINTR);
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
            ls_tcp_lane_release(&mesh->peers[i].lanes[k]);
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

void ls_tcp_mesh_flush(ls_tcp_mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->size; i++) {
        ls_tcp_peer *peer = &mesh->peers[(mesh->rank + i) % mesh->size];
        for (uint32_t k = 0; k < peer->lane_count; k++) {
            if (peer->lanes[k].count > 0) {
                ls_tcp_lane_send(mesh, &peer->lanes[k]);
            }
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
                ls_tcp_lane_read(mesh, lane);
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

/* Polls epoll for a moment and then waits in it. Between two polls the core is offered to others:
 * the rank that is waited for may need it, and ranks in containers of one machine cannot know of
 * each other. The caller does not hold the lock. */
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
    pthread_cond_clockwait(&mesh->moved, &mesh->lock, CLOCK_MONOTONIC, &at);
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
 * Closes links whose other end no longer answers: data has been sent, and for link_ms no
 * acknowledgement has arrived. TCP_USER_TIMEOUT would be simpler, but it also ends a connection
 * whose receiver only has a full buffer for long (a rank that was stopped for a moment), and it
 * overrides the number of keep-alive probes.
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
                ls_tcp_lane_close(mesh, lane, ETIMEDOUT);
            }
        }
    }
}

/* ---- the end of a call ---- */

void ls_tcp_mesh_forget(ls_tcp_mesh *mesh, ls_tcp_group *group)
{
    for (uint32_t i = 0; i < mesh->size; i++) {
        for (uint32_t k = 0; k < mesh->peers[i].lane_count; k++) {
            ls_tcp_lane *lane = &mesh->peers[i].lanes[k];
            ls_tcp_lane_forget(lane, group);
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
