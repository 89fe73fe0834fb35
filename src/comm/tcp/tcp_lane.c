// SPDX-License-Identifier: Apache-2.0
/*
 * A lane: the messages of one socket, in both directions.
 *
 * Sending. Messages wait in a queue; each is up to three parts (header, payload, checksum) that go
 * out with those of the next messages in one sendmsg, as far as the socket accepts them.
 *
 * Receiving. Headers and small payloads are read ahead into `staged`; a large payload is read
 * directly to its place, which ls_tcp_place names when the header is complete.
 */
#include "comm/tcp/tcp_mesh.h"

#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SEND_VECTORS = 24,
    /* Read from one lane before the others have their turn. */
    READ_TURN_BYTES = 2 << 20,
};

/* ---- closing ---- */

static void out_release(ls_tcp_out *out)
{
    free(out->owned);
    out->owned = NULL;
}

void ls_tcp_lane_release(ls_tcp_lane *lane)
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

/* A peer is gone when all of its sockets have been closed, or at once when one has failed. */
void ls_tcp_lane_close(ls_tcp_mesh *mesh, ls_tcp_lane *lane, int error)
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
            snprintf(peer->why, sizeof peer->why, "sent invalid data: a header or checksum is wrong");
        } else if (error != 0) {
            snprintf(peer->why, sizeof peer->why, "is lost: %s", strerror(error));
        } else {
            snprintf(peer->why, sizeof peer->why, "is lost: it ended without closing its communicator");
        }
    }
}

/* ---- sending ---- */

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
        return; /* the other side notices at its deadline */
    }
    memcpy(copy, payload, header->bytes);
    ls_tcp_out *out = ls_tcp_post(mesh, peer, 0, header, copy);
    if (out->payload == copy) {
        out->owned = copy;
    } else {
        free(copy);
    }
}

/* Writes the unsent rest of a message as vectors; returns their number. */
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

/* `bytes` more of the queue have been sent. */
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

void ls_tcp_lane_send(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
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
            /* After an error, reading first gets the data that had arrived and then the reason. */
            lane->readable |= errno != EAGAIN;
            lane->writable = false;
            return;
        }
        lane_advance(mesh, lane, (uint64_t)sent);
        lane->writable = (uint64_t)sent == want;
    }
}

/* ---- receiving ---- */

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

/* A header is complete: finds the place of its payload. Returns false if the header is invalid. */
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

/* Copies bytes of the payload that were read ahead to their place. */
static void lane_payload(ls_tcp_lane *lane, const uint8_t *from, uint64_t bytes)
{
    if (lane->to) {
        memcpy(lane->to + lane->payload_done, from, bytes);
    }
    lane->payload_done += bytes;
}

/* The payload is complete: reads or compares its checksum, or ends the message. Returns false if
 * the checksum is wrong. */
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

/* Parses what was read ahead. Returns false if the data is invalid. */
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

/* Reads once, directly to the place of a large payload, otherwise into `staged`. Returns the result
 * of recv. */
static ssize_t lane_receive(ls_tcp_mesh *mesh, ls_tcp_lane *lane, uint64_t *want_out)
{
    const uint64_t left = lane->header.bytes - lane->payload_done;
    const bool direct = lane->at == LS_TCP_AT_PAYLOAD && left > LS_TCP_STAGE_BYTES / 2;
    if (!direct) {
        const uint32_t rest = lane->staged_end - lane->staged_begin;
        memmove(lane->staged, lane->staged + lane->staged_begin, rest);
        lane->staged_begin = 0;
        lane->staged_end = rest;
        /* Of a large piece only the beginning is read ahead; the rest goes directly to its
         * place. */
        *want_out = LS_TCP_STAGE_BYTES - rest;
        const ssize_t got = recv(lane->fd, lane->staged + rest, *want_out, MSG_DONTWAIT);
        lane->staged_end += got > 0 ? (uint32_t)got : 0;
        return got;
    }
    uint8_t *to = lane->to ? lane->to + lane->payload_done : mesh->bin;
    *want_out = lane->to ? left : (left < LS_TCP_BIN_BYTES ? left : LS_TCP_BIN_BYTES);
    const ssize_t got = recv(lane->fd, to, *want_out, MSG_DONTWAIT);
    lane->payload_done += got > 0 ? (uint64_t)got : 0;
    return got;
}

void ls_tcp_lane_read(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
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
            ls_tcp_lane_close(mesh, lane, got < 0 ? errno : 0);
            return;
        }
        mesh->received_bytes += (uint64_t)got;
        turn += (uint64_t)got;
        if (!lane_parse(mesh, lane) ||
            (lane->at == LS_TCP_AT_PAYLOAD && lane->payload_done == lane->header.bytes &&
             !lane_payload_end(mesh, lane))) {
            ls_tcp_lane_close(mesh, lane, EBADMSG);
            return;
        }
    }
}

/* ---- the end of a call ---- */

/* Drops messages of which nothing has been sent. A message that was partly sent must be completed,
 * so its payload is copied: the caller may reuse its buffer. */
void ls_tcp_lane_forget(ls_tcp_lane *lane, ls_tcp_group *group)
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
