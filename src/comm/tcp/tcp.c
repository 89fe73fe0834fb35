// SPDX-License-Identifier: Apache-2.0
/*
 * The TCP transport: groups, and the choice of an algorithm for each call.
 *
 * A reduction in the order of the tree uses direct exchange (tcp_reduce.c). With LS_COMM_ANY_ORDER
 * a large one goes round a ring (tcp_ring.c): the same number of bytes in 2 (N - 1) hops instead of
 * two, but between neighbours only. bf16 and f16 sums never use the ring, which would round them at
 * every hop.
 */
#include "comm/tcp/tcp_mesh.h"

#include "base/assert.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Largest block that is sent whole to every member, and largest sum of all blocks. */
    SMALL_BYTES = 8 << 10,
    SMALL_GATHER_BYTES = 64 << 10,
    /* From this size on, the hops of a ring matter little. */
    RING_CHUNK_BYTES = 16 << 10,
    /* A link counts as cut after this time without an answer from the network. */
    LINK_MS_MIN = 1000,
    LINK_MS_MAX = 5000,
    SPIN_NS = 30000,
};

static ls_tcp_group *group_of(ls_transport *transport)
{
    return (ls_tcp_group *)transport;
}

/* ---- run ---- */

static void copy_alone(const ls_comm_op *op)
{
    const uint64_t element = ls_dtype_bytes(op->dtype);
    const uint8_t *in = op->in;
    uint8_t *out = op->out;
    uint64_t bytes = op->count * element;
    if (op->kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        in += op->blocks->send_offsets[0] * element;
        out += op->blocks->receive_offsets[0] * element;
        bytes = op->blocks->send_counts[0] * element;
    }
    if (op->kind != LS_COMM_BARRIER && op->kind != LS_COMM_ALLOC && op->kind != LS_COMM_BROADCAST &&
        bytes > 0 && in != out) {
        memmove(out, in, bytes);
    }
}

static bool is_small(const ls_tcp_group *group, const ls_comm_op *op)
{
    const uint64_t bytes = op->count * ls_dtype_bytes(op->dtype);
    return bytes <= SMALL_BYTES && bytes * group->base.size <= SMALL_GATHER_BYTES;
}

static bool goes_round(const ls_tcp_group *group, const ls_comm_op *op)
{
    const bool is_rounded = op->reduction == LS_COMM_SUM && (op->dtype == LS_BF16 || op->dtype == LS_F16);
    const uint64_t bytes = op->count * ls_dtype_bytes(op->dtype);
    const uint64_t chunk = op->kind == LS_COMM_REDUCE_SCATTER ? bytes : bytes / group->base.size;
    return (op->flags & LS_COMM_ANY_ORDER) && !is_rounded && chunk >= RING_CHUNK_BYTES;
}

static ls_status run_reduce(ls_tcp_group *group, ls_comm_op *op)
{
    if (goes_round(group, op)) {
        return ls_tcp_ring(group, op);
    }
    if (op->kind == LS_COMM_REDUCE_SCATTER) {
        return ls_tcp_reduce(group, op, NULL);
    }
    return is_small(group, op) ? ls_tcp_small(group, op) : ls_tcp_reduce(group, op, NULL);
}

static ls_status run_locked(ls_tcp_group *group, ls_comm_op *op)
{
    switch (op->kind) {
    case LS_COMM_ALL_REDUCE:
    case LS_COMM_REDUCE_SCATTER:
        return run_reduce(group, op);
    case LS_COMM_ALL_GATHER:
    case LS_COMM_SPLIT:
        return is_small(group, op) ? ls_tcp_small(group, op) : ls_tcp_exchange(group, op);
    case LS_COMM_BARRIER:
    case LS_COMM_ALLOC: {
        ls_comm_op barrier = *op; /* nothing moves */
        barrier.count = 0;
        const ls_status status = ls_tcp_small(group, &barrier);
        op->wait_ns = barrier.wait_ns;
        op->last_rank = barrier.last_rank;
        return status;
    }
    case LS_COMM_BROADCAST:
        return ls_tcp_broadcast(group, op);
    case LS_COMM_ALL_TO_ALL:
    case LS_COMM_ALL_TO_ALL_BLOCKS:
        return ls_tcp_exchange(group, op);
    case LS_COMM_SEND:
    case LS_COMM_RECEIVE:
        return ls_tcp_send_receive(group, op);
    default:
        return ls_fail(LS_ERR_UNSUPPORTED, "%s is not supported over TCP", ls_comm_kind_name(op->kind));
    }
}

ls_status ls_tcp_run_part(ls_transport *transport, ls_comm_op *op, const ls_comm_op *whole_op,
                          const ls_tcp_nodes *nodes)
{
    ls_tcp_group *group = group_of(transport);
    pthread_mutex_lock(&group->mesh->lock);
    ls_status status = group->status;
    group->whole_op = whole_op;
    if (status != LS_OK) {
        ls_fail(status, "%s", group->text);
    } else {
        status = nodes ? ls_tcp_reduce(group, op, nodes) : run_locked(group, op);
    }
    group->whole_op = NULL;
    pthread_mutex_unlock(&group->mesh->lock);
    return status;
}

static ls_status tcp_run(ls_transport *transport, ls_comm_op *op)
{
    if (transport->size == 1) {
        copy_alone(op);
        return LS_OK;
    }
    return ls_tcp_run_part(transport, op, NULL, NULL);
}

/* ---- life ---- */

static void group_free(ls_tcp_group *group)
{
    free(group->members);
    free(group->peer_of);
    free(group->member_of);
    free(group->sent);
    free(group->received);
    free(group->pair_ready);
    free(group->text);
    free(group->claims);
    free(group->claimed);
    free(group->ready);
    free(group->is_heard);
    free(group->in);
    free(group->out);
    free(group->scratch);
    free(group->inputs);
    free(group->here);
    free(group);
}

static const ls_transport_calls tcp_calls;

/* A group of the ranks peers[0..size) of the mesh; this rank is member number `self`. */
static ls_status group_create(ls_tcp_mesh *mesh, const uint32_t *peers, uint32_t size, uint32_t self,
                              uint32_t id, ls_tcp_group **group_out)
{
    ls_tcp_group *g = calloc(1, sizeof *g);
    if (!g) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a group of %u ranks", size);
    }
    *g = (ls_tcp_group){.base = {.calls = &tcp_calls, .rank = self, .size = size},
                        .mesh = mesh,
                        .id = id,
                        .members = calloc(size, sizeof *g->members),
                        .peer_of = calloc(size, sizeof *g->peer_of),
                        .member_of = calloc(mesh->size, sizeof *g->member_of),
                        .sent = calloc(size, sizeof *g->sent),
                        .received = calloc(size, sizeof *g->received),
                        .pair_ready = calloc(size, sizeof *g->pair_ready),
                        .text = calloc(1, LS_TCP_TEXT_BYTES),
                        .claims = calloc(size, sizeof *g->claims),
                        .claimed = calloc(size, sizeof *g->claimed),
                        .ready = calloc(size, sizeof *g->ready),
                        .is_heard = calloc(size, sizeof *g->is_heard),
                        .in = calloc((size_t)size * LS_TCP_PHASES, sizeof *g->in),
                        .out = calloc((size_t)size * LS_TCP_PHASES, sizeof *g->out),
                        .inputs = calloc(size, sizeof *g->inputs),
                        .input_room = size,
                        .here = calloc(LS_TCP_WINDOW_MAX, sizeof *g->here)};
    if (!g->members || !g->peer_of || !g->member_of || !g->sent || !g->received || !g->pair_ready ||
        !g->text || !g->claims || !g->claimed || !g->ready || !g->is_heard || !g->in || !g->out ||
        !g->inputs || !g->here) {
        group_free(g);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a group of %u ranks", size);
    }
    memset(g->member_of, 0xff, mesh->size * sizeof *g->member_of);
    for (uint32_t i = 0; i < size; i++) {
        g->peer_of[i] = peers[i];
        g->member_of[peers[i]] = i;
        g->members[i] = mesh->members[peers[i]];
    }
    g->base.members = g->members;
    *group_out = g;
    return LS_OK;
}

static void group_link(ls_tcp_group *group, ls_tcp_group *parent)
{
    ls_tcp_mesh *mesh = group->mesh;
    pthread_mutex_lock(&mesh->lock);
    group->parent = parent;
    if (parent && parent->status != LS_OK) {
        group->status = parent->status;
        snprintf(group->text, LS_TCP_TEXT_BYTES, "%s", parent->text);
    }
    group->next = mesh->groups;
    mesh->groups = group;
    mesh->references++;
    pthread_mutex_unlock(&mesh->lock);
}

/* Needs no message: the members have agreed on the group already, and its id names it. */
static ls_status tcp_split(ls_transport *transport, const ls_comm_subgroup *wanted, ls_transport **group_out)
{
    ls_tcp_group *parent = group_of(transport), *group = NULL;
    uint32_t *peers = calloc(wanted->count, sizeof *peers);
    if (!peers) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a group of %u ranks", wanted->count);
    }
    for (uint32_t i = 0; i < wanted->count; i++) {
        LS_ASSERT(wanted->members[i] < parent->base.size);
        peers[i] = parent->peer_of[wanted->members[i]];
    }
    const ls_status status =
        group_create(parent->mesh, peers, wanted->count, wanted->self, wanted->id, &group);
    free(peers);
    LS_TRY(status);
    group_link(group, parent);
    *group_out = &group->base;
    return LS_OK;
}

static void tcp_abort(ls_transport *transport, ls_status status, const char *reason)
{
    ls_tcp_group *group = group_of(transport);
    pthread_mutex_lock(&group->mesh->lock);
    ls_tcp_fail(group, status, true, "%s", reason);
    ls_tcp_mesh_flush(group->mesh);
    ls_tcp_mesh_wake(group->mesh);
    pthread_mutex_unlock(&group->mesh->lock);
}

static void tcp_stats(const ls_transport *transport, ls_comm_stats *stats)
{
    ls_tcp_mesh *mesh = ((const ls_tcp_group *)transport)->mesh;
    pthread_mutex_lock(&mesh->lock);
    stats->sent_bytes += mesh->sent_bytes;
    stats->received_bytes += mesh->received_bytes;
    pthread_mutex_unlock(&mesh->lock);
}

static void tcp_destroy(ls_transport *transport)
{
    ls_tcp_group *group = group_of(transport);
    ls_tcp_mesh *mesh = group->mesh;
    pthread_mutex_lock(&mesh->lock);
    for (ls_tcp_group **at = &mesh->groups; *at; at = &(*at)->next) {
        if (*at == group) {
            *at = group->next;
            break;
        }
    }
    for (ls_tcp_group *child = mesh->groups; child; child = child->next) {
        child->parent = child->parent == group ? group->parent : child->parent;
    }
    const bool last = --mesh->references == 0;
    pthread_mutex_unlock(&mesh->lock);
    group_free(group);
    if (last) {
        ls_tcp_mesh_destroy(mesh);
    }
}

static const ls_transport_calls tcp_calls = {.name = "tcp",
                                             .run = tcp_run,
                                             .split = tcp_split,
                                             .abort = tcp_abort,
                                             .stats = tcp_stats,
                                             .destroy = tcp_destroy};

ls_status ls_transport_open_tcp(const ls_transport_setup *setup, ls_transport **transport_out)
{
    ls_tcp_mesh *mesh = NULL;
    ls_tcp_group *group = NULL;
    LS_TRY(ls_tcp_mesh_create(setup, &mesh));
    mesh->spin_ns = SPIN_NS;
    const double half_ms = 500.0 * ls_tcp_timeout_s(setup);
    mesh->link_ms = half_ms < LINK_MS_MIN   ? LINK_MS_MIN
                    : half_ms > LINK_MS_MAX ? LINK_MS_MAX
                                            : (uint32_t)half_ms;
    uint32_t *peers = calloc(setup->size, sizeof *peers);
    ls_status status = peers ? LS_OK : ls_fail(LS_ERR_MEMORY, "not enough memory for %u ranks", setup->size);
    for (uint32_t i = 0; peers && i < setup->size; i++) {
        peers[i] = i;
    }
    if (status == LS_OK) {
        status = ls_tcp_connect(mesh, setup);
    }
    if (status == LS_OK) {
        status = group_create(mesh, peers, setup->size, setup->rank, setup->group_id, &group);
    }
    free(peers);
    if (status != LS_OK) {
        mesh->failed = true;
        ls_tcp_mesh_destroy(mesh);
        return status;
    }
    group_link(group, NULL);
    *transport_out = &group->base;
    return LS_OK;
}
