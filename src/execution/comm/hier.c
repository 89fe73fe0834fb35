// SPDX-License-Identifier: Apache-2.0
/*
 * Several hosts, several members on some: shared memory inside a host, TCP between hosts.
 *
 *   host 0: ranks 0 1 2      host 1: ranks 3 4        two rails, as many as the smallest host has ranks
 *           │ │                      │ │
 *   rail 0  0─┼──────────────────────3 │              rail l: local rank l of every host, a group of the TCP mesh
 *   rail 1    1────────────────────────4
 *
 * All-reduce. Local rank l takes slice l of the data. It adds its host's ranks up in memory as far as the tree over all ranks allows, to the
 * canonical nodes of the host's ranks (parallel/tree.h; runs of ranks are covered one by one, so hosts may hold any ranks), the rail joins
 * all hosts' nodes in tree order, and the result is written into all local buffers. The bits are those of the flat tree; each host sends
 * 2 (H - 1) / H of the data per node, whatever its number of ranks. bf16 and f16 travel as float32, for sums of a host are not rounded.
 * Memory of ls_comm_alloc is read and written in place; other memory goes through a stage in shared memory, block by block.
 *
 * Barrier, broadcast, all-gather: inside the host over the stage, between hosts on rail 0. Send and receive: shared memory for two ranks of
 * one host, else TCP. Reduce-scatter and the all-to-alls: plain TCP between all ranks, after the hosts have compared what is called.
 *
 * Every call begins in its host and goes on on rail 0, so a disagreement is found wherever it lies.
 */
#include "execution/comm/shm.h"
#include "execution/comm/tcp_mesh.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/half.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAGE_BYTES = 8 << 20, /* per rank; two halves */
    BLOCK_BYTES =
        STAGE_BYTES / 2,       /* of data per turn of the rails: the same on every host, in place or staged */
    ONE_RAIL_BYTES = 64 << 10, /* up to here one rail is enough */
    RAIL_GRACE_NS = 200000000, /* a host that lacks a rank says so before others miss the host */
    WIDE = 2048,               /* halves that are widened at a time */
    LINE = 64,
};

typedef struct hier {
    ls_transport base;
    ls_transport *world; /* TCP, all members */
    ls_shm *local;       /* members of this host; NULL: none but this rank */
    ls_transport *rail;  /* TCP, this local rank of every host; NULL: this rank has none */
    ls_comm_member *members, *local_members;
    uint32_t host_count, rail_count, self_host;
    uint32_t local_rank, local_size;
    uint32_t turn; /* half of the stage in use */
    bool has_met;  /* the members of this host, in the call that runs */
    uint32_t *host_of,
        *local_of;        /* by member: which host (0.. in order of its lowest member), and its place there */
    uint32_t *sorted;     /* members by host, then rank */
    uint32_t *host_first; /* where a host's begin in `sorted`; host_count + 1 */
    /* The tree. */
    ls_leaf_range *nodes; /* by host */
    uint32_t *node_counts, *node_firsts, *node_order;
    uint16_t *program;
    ls_tcp_nodes tree;
    uint8_t *stage;
    const void **inputs; /* local_size */
    void **outs;         /* local_size */
    const void **own;    /* own nodes */
    uint8_t *scratch;
    uint64_t scratch_bytes;
} hier;

static const ls_transport_calls hier_calls;

/* ---- members and hosts ---- */

static void sort_hosts(hier *h)
{
    const uint32_t size = h->base.size;
    uint32_t at = 0;
    for (uint32_t i = 0; i < size; i++) {
        h->host_of[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < size; i++) {
        if (h->host_of[i] != UINT32_MAX) {
            continue;
        }
        const uint32_t first = at;
        h->host_first[h->host_count] = first;
        for (uint32_t k = i; k < size; k++) {
            if (h->members[k].host == h->members[i].host) {
                h->host_of[k] = h->host_count;
                h->local_of[k] = at - first;
                h->sorted[at++] = k;
            }
        }
        h->rail_count = h->host_count == 0 || at - first < h->rail_count ? at - first : h->rail_count;
        h->host_first[++h->host_count] = at;
    }
    h->self_host = h->host_of[h->base.rank];
    h->local_rank = h->local_of[h->base.rank];
    h->local_size = h->host_first[h->self_host + 1] - h->host_first[h->self_host];
}

/* The canonical nodes of a host's members: those of each run of numbers without a gap. Returns how many. */
static uint32_t cover_host(const hier *h, uint32_t host, ls_leaf_range *nodes)
{
    uint32_t count = 0;
    const uint32_t end = h->host_first[host + 1];
    for (uint32_t at = h->host_first[host]; at < end;) {
        ls_leaf_range run = {.first = h->sorted[at], .count = 0};
        while (at < end && h->sorted[at] == run.first + run.count) {
            run.count++, at++;
        }
        ls_leaf_range cover[LS_TREE_NODES_MAX];
        const uint32_t covered = ls_tree_cover(h->base.size, run, cover);
        memcpy(nodes + count, cover, covered * sizeof *cover);
        count += covered;
    }
    return count;
}

/* Lists all hosts' nodes, and how they are added up. */
static void plan_tree(hier *h)
{
    uint32_t count = 0;
    for (uint32_t host = 0; host < h->host_count; host++) {
        h->node_firsts[host] = count;
        h->node_counts[host] = cover_host(h, host, h->nodes + count);
        count += h->node_counts[host];
    }
    ls_leaf_range in_order[LS_TREE_INPUTS_MAX];
    uint32_t at[LS_TREE_INPUTS_MAX] = {0}; /* by first leaf */
    for (uint32_t i = 0; i < count; i++) {
        at[h->nodes[i].first] = i + 1;
    }
    for (uint32_t leaf = 0, n = 0; leaf < h->base.size; leaf++) {
        if (at[leaf] > 0) {
            h->node_order[n] = at[leaf] - 1;
            in_order[n++] = h->nodes[at[leaf] - 1];
        }
    }
    uint32_t depth = 0;
    const uint32_t length = ls_tree_program(h->base.size, in_order, count, h->program, &depth);
    h->tree = (ls_tcp_nodes){.leaves = h->base.size,
                             .count = count,
                             .counts = h->node_counts,
                             .firsts = h->node_firsts,
                             .sorted = h->node_order,
                             .program = h->program,
                             .program_length = length,
                             .depth = depth,
                             .own = h->own};
}

/* ---- inside the host ---- */

/*
 * The members of this host meet. The first time in a call at its deadline; later their deadline is behind the rail's, since who does not
 * come then is waiting for another host and will say so.
 */
static ls_status arrive(hier *h, ls_comm_op *op, shm_ref in, shm_ref out)
{
    if (!h->local) {
        return LS_OK;
    }
    const uint64_t deadline_ns = op->deadline_ns;
    op->deadline_ns += h->has_met ? 2 * RAIL_GRACE_NS : 0;
    h->has_met = true;
    const ls_status status = shm_arrive(h->local, op, in, out);
    op->deadline_ns = deadline_ns;
    LS_TRY(status);
    if (op->last_rank < h->local_size) {
        op->last_rank = h->sorted[h->host_first[h->self_host] + op->last_rank];
    }
    return LS_OK;
}

/* The half of a local rank's stage that is in turn, as this rank sees it. */
static uint8_t *stage_of(const hier *h, uint32_t local)
{
    uint8_t *stage =
        h->local ? shm_address(h->local, shm_ref_of(h->local, h->stage, STAGE_BYTES), local) : h->stage;
    return stage + h->turn * BLOCK_BYTES;
}

/* A block goes through the other half than the one before: who still reads that has not arrived at this block, so its half is free again
 * when the block after this one begins, without another meeting. */
static void begin_block(hier *h)
{
    h->turn ^= 1;
}

/* ---- between hosts ---- */

/* A part of `op` on this rank's rail, with the fingerprint of the whole. */
static ls_status run_rail(hier *h, ls_comm_op *part, ls_comm_op *op, const ls_tcp_nodes *nodes)
{
    part->seq = op->seq;
    part->fingerprint = op->fingerprint;
    part->site = op->site;
    part->deadline_ns = op->deadline_ns + RAIL_GRACE_NS;
    part->flags = 0;
    const ls_status status = ls_tcp_run_part(h->rail, part, op, nodes);
    op->wait_ns += part->wait_ns;
    if (part->last_rank < h->host_count) {
        op->last_rank = h->sorted[h->host_first[part->last_rank] + h->local_rank];
    }
    return status;
}

static ls_status rail_barrier(hier *h, ls_comm_op *op)
{
    ls_comm_op part = {.kind = LS_COMM_BARRIER, .dtype = LS_U8, .peer = UINT32_MAX, .last_rank = UINT32_MAX};
    return h->local_rank == 0 ? run_rail(h, &part, op, NULL) : LS_OK;
}

static ls_status run_barrier(hier *h, ls_comm_op *op)
{
    LS_TRY(arrive(h, op, 0, 0));
    LS_TRY(rail_barrier(h, op));
    return arrive(h, op, 0, 0);
}

/* ---- all-reduce ---- */

static bool is_half(ls_dtype dtype)
{
    return dtype == LS_BF16 || dtype == LS_F16;
}

static void widen(ls_dtype dtype, const uint16_t *in, uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i++) {
        out[i] = dtype == LS_BF16 ? ls_f32_from_bf16(in[i]) : ls_f32_from_f16(in[i]);
    }
}

static void narrow(ls_dtype dtype, const float *in, uint64_t count, uint16_t *out)
{
    for (uint64_t i = 0; i < count; i++) {
        out[i] = dtype == LS_BF16 ? ls_bf16_from_f32(in[i]) : ls_f16_from_f32(in[i]);
    }
}

static ls_status scratch(hier *h, uint64_t bytes)
{
    if (bytes <= h->scratch_bytes) {
        return LS_OK;
    }
    free(h->scratch);
    h->scratch_bytes = 0;
    h->scratch = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!h->scratch) {
        return ls_fail(LS_ERR_MEMORY, "no memory: %llu bytes for sums of a host", (unsigned long long)bytes);
    }
    h->scratch_bytes = bytes;
    return LS_OK;
}

/* Elements [first, first + count) of the ranks of a node, halves widened, into `out`. */
static void sum_halves(hier *h, const ls_comm_op *op, uint32_t local, uint32_t ranks, uint64_t first,
                       uint64_t count, float *out)
{
    float *wide = (float *)(void *)h->scratch; /* ranks * WIDE */
    const void *rows[LS_COMM_SIZE_MAX];
    for (uint64_t at = 0; at < count; at += WIDE) {
        const uint64_t part = count - at < WIDE ? count - at : WIDE;
        for (uint32_t i = 0; i < ranks; i++) {
            rows[i] = wide + (uint64_t)i * WIDE;
            widen(op->dtype, (const uint16_t *)h->inputs[local + i] + first + at, part,
                  wide + (uint64_t)i * WIDE);
        }
        ls_comm_reduce_tree(LS_F32, op->reduction, rows, ranks, part, out + at);
    }
}

/* The own nodes of elements [first, first + count): where they lie already, or added up in scratch. */
static void sum_nodes(hier *h, const ls_comm_op *op, uint64_t first, uint64_t count)
{
    const uint64_t element = ls_dtype_bytes(op->dtype), wide = is_half(op->dtype) ? 4 : element;
    const uint64_t stride = (count * wide + LINE - 1) / LINE * LINE;
    uint8_t *sums = h->scratch + (is_half(op->dtype) ? (uint64_t)h->local_size * WIDE * 4 : 0);
    for (uint32_t i = 0; i < h->node_counts[h->self_host]; i++) {
        const ls_leaf_range *node = &h->nodes[h->node_firsts[h->self_host] + i];
        const uint32_t local = h->local_of[node->first];
        uint8_t *sum = sums + i * stride;
        h->own[i] = sum;
        if (is_half(op->dtype)) {
            sum_halves(h, op, local, node->count, first, count, (float *)(void *)sum);
            continue;
        }
        const void *rows[LS_COMM_SIZE_MAX];
        for (uint32_t k = 0; k < node->count; k++) {
            rows[k] = (const uint8_t *)h->inputs[local + k] + first * element;
        }
        if (node->count == 1) {
            h->own[i] = rows[0];
        } else {
            ls_comm_reduce_tree(op->dtype, op->reduction, rows, node->count, count, sum);
        }
    }
}

/* The sum over all hosts of elements [first, first + count), into every local buffer. */
static ls_status reduce_slice(hier *h, ls_comm_op *op, uint64_t first, uint64_t count)
{
    const uint64_t element = ls_dtype_bytes(op->dtype);
    const bool half = is_half(op->dtype);
    const uint64_t stride = (count * (half ? 4 : element) + LINE - 1) / LINE * LINE;
    const uint64_t nodes = h->node_counts[h->self_host];
    LS_TRY(scratch(h, (half ? (uint64_t)h->local_size * WIDE * 4 : 0) + (nodes + 1) * stride));
    sum_nodes(h, op, first, count);
    uint8_t *own = (uint8_t *)h->outs[h->local_rank] + first * element;
    uint8_t *result = half ? h->scratch + (uint64_t)h->local_size * WIDE * 4 + nodes * stride : own;
    ls_comm_op part = {.kind = LS_COMM_ALL_REDUCE,
                       .dtype = half ? LS_F32 : op->dtype,
                       .reduction = op->reduction,
                       .peer = UINT32_MAX,
                       .out = result,
                       .count = count,
                       .last_rank = UINT32_MAX};
    LS_TRY(run_rail(h, &part, op, &h->tree));
    if (half) {
        narrow(op->dtype, (const float *)(const void *)result, count, (uint16_t *)(void *)own);
    }
    for (uint32_t i = 0; i < h->local_size; i++) {
        if (i != h->local_rank) {
            memcpy((uint8_t *)h->outs[i] + first * element, own, count * element);
        }
    }
    return LS_OK;
}

/* This rank's slice of elements [first, first + count). */
static ls_status reduce_block(hier *h, ls_comm_op *op, uint64_t first, uint64_t count)
{
    const uint64_t element = ls_dtype_bytes(op->dtype), per_line = LINE / element;
    const uint32_t rails = count * element <= ONE_RAIL_BYTES ? 1 : h->rail_count;
    const uint64_t lines = (count + per_line - 1) / per_line;
    if (h->local_rank >= rails) {
        return LS_OK;
    }
    const uint64_t begin = lines * h->local_rank / rails * per_line;
    const uint64_t end = lines * (h->local_rank + 1) / rails * per_line;
    return reduce_slice(h, op, first + begin, (end < count ? end : count) - begin);
}

static ls_status reduce_in_place(hier *h, ls_comm_op *op)
{
    const uint64_t block = BLOCK_BYTES / ls_dtype_bytes(op->dtype);
    for (uint64_t at = 0; at < op->count; at += block) {
        LS_TRY(reduce_block(h, op, at, op->count - at < block ? op->count - at : block));
    }
    return arrive(h, op, 0, 0);
}

static ls_status reduce_staged(hier *h, ls_comm_op *op)
{
    const uint64_t element = ls_dtype_bytes(op->dtype), block = BLOCK_BYTES / element;
    for (uint64_t at = 0; at < op->count; at += block) {
        const uint64_t count = op->count - at < block ? op->count - at : block;
        begin_block(h);
        for (uint32_t i = 0; i < h->local_size; i++) {
            h->inputs[i] = h->outs[i] = stage_of(h, i);
        }
        uint8_t *own = stage_of(h, h->local_rank);
        memcpy(own, (const uint8_t *)op->in + at * element, count * element);
        LS_TRY(arrive(h, op, 0, 0));
        LS_TRY(reduce_block(h, op, 0, count));
        LS_TRY(arrive(h, op, 0, 0));
        memcpy((uint8_t *)op->out + at * element, own, count * element);
    }
    return LS_OK;
}

/* Finds the buffers of all local ranks. False: one lies where the others can't see it. */
static bool find_buffers(hier *h, const ls_comm_op *op)
{
    if (!h->local) {
        h->inputs[0] = op->in;
        h->outs[0] = op->out;
        return true;
    }
    for (uint32_t i = 0; i < h->local_size; i++) {
        const shm_offer *offer = shm_offer_of(h->local, i);
        if (offer->in == 0 || offer->out == 0) {
            return false;
        }
        h->inputs[i] = shm_address(h->local, offer->in, i);
        h->outs[i] = shm_address(h->local, offer->out, i);
    }
    return true;
}

static ls_status run_all_reduce(hier *h, ls_comm_op *op)
{
    const uint64_t bytes = op->count * ls_dtype_bytes(op->dtype);
    if (op->count == 0) {
        return run_barrier(h, op);
    }
    LS_TRY(arrive(h, op, h->local ? shm_ref_of(h->local, op->in, bytes) : 0,
                  h->local ? shm_ref_of(h->local, op->out, bytes) : 0));
    return find_buffers(h, op) ? reduce_in_place(h, op) : reduce_staged(h, op);
}

/* ---- broadcast and all-gather: through the stage, its halves in turn ---- */

static ls_status run_broadcast(hier *h, ls_comm_op *op)
{
    const uint64_t bytes = op->count * ls_dtype_bytes(op->dtype);
    const uint32_t root_host = h->host_of[op->peer];
    const uint32_t source = h->self_host == root_host ? h->local_of[op->peer] : 0; /* whose stage has it */
    if (bytes == 0) {
        return run_barrier(h, op);
    }
    for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES) {
        const uint64_t part_bytes = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
        begin_block(h);
        if (h->base.rank == op->peer) {
            memcpy(stage_of(h, h->local_rank), (const uint8_t *)op->out + at, part_bytes);
        }
        uint8_t *from = stage_of(h, source);
        ls_comm_op part = {.kind = LS_COMM_BROADCAST,
                           .dtype = LS_U8,
                           .peer = root_host,
                           .out = from,
                           .count = part_bytes,
                           .last_rank = UINT32_MAX};
        LS_TRY(arrive(h, op, 0, 0));
        if (h->local_rank == 0) {
            LS_TRY(run_rail(h, &part, op, NULL));
        }
        LS_TRY(arrive(h, op, 0, 0));
        if (h->base.rank != op->peer) {
            memcpy((uint8_t *)op->out + at, from, part_bytes);
        }
    }
    return LS_OK;
}

/* Rail 0: every host's run of blocks to all others; blocks stand by host, then rank. */
static ls_status gather_hosts(hier *h, ls_comm_op *op, uint8_t *blocks, uint64_t block)
{
    uint64_t send_counts[LS_COMM_SIZE_MAX], send_at[LS_COMM_SIZE_MAX], counts[LS_COMM_SIZE_MAX],
        at[LS_COMM_SIZE_MAX];
    for (uint32_t i = 0; i < h->host_count; i++) {
        counts[i] = (h->host_first[i + 1] - h->host_first[i]) * block;
        at[i] = h->host_first[i] * block;
        send_counts[i] = h->local_size * block;
        send_at[i] = h->host_first[h->self_host] * block;
    }
    const ls_comm_blocks lists = {send_counts, send_at, counts, at};
    ls_comm_op part = {.kind = LS_COMM_ALL_TO_ALL_BLOCKS,
                       .dtype = LS_U8,
                       .peer = UINT32_MAX,
                       .in = blocks,
                       .out = blocks,
                       .blocks = &lists,
                       .last_rank = UINT32_MAX};
    return run_rail(h, &part, op, NULL);
}

static ls_status run_all_gather(hier *h, ls_comm_op *op)
{
    const uint64_t bytes = op->count * ls_dtype_bytes(op->dtype);
    const uint64_t room = BLOCK_BYTES / h->base.size / LINE * LINE;
    const uint32_t own = h->host_first[h->self_host] + h->local_rank;
    if (bytes == 0) {
        return run_barrier(h, op);
    }
    for (uint64_t at = 0; at < bytes; at += room) {
        const uint64_t block = bytes - at < room ? bytes - at : room;
        begin_block(h);
        uint8_t *blocks = stage_of(h, 0);
        memcpy(blocks + own * block, (const uint8_t *)op->in + at, block);
        LS_TRY(arrive(h, op, 0, 0));
        if (h->local_rank == 0) {
            LS_TRY(gather_hosts(h, op, blocks, block));
        }
        LS_TRY(arrive(h, op, 0, 0));
        for (uint32_t i = 0; i < h->base.size; i++) {
            memcpy((uint8_t *)op->out + h->sorted[i] * bytes + at, blocks + i * block, block);
        }
    }
    return LS_OK;
}

/* ---- the rest ---- */

static ls_status run_flat(hier *h, ls_comm_op *op)
{
    LS_TRY(run_barrier(h, op));
    return h->world->calls->run(h->world, op);
}

static ls_status run_pair(hier *h, ls_comm_op *op)
{
    if (h->host_of[op->peer] != h->self_host) {
        return h->world->calls->run(h->world, op);
    }
    ls_comm_op local = *op;
    local.peer = h->local_of[op->peer];
    const ls_status status = h->local->transport.calls->run(&h->local->transport, &local);
    op->wait_ns = local.wait_ns;
    return status;
}

static ls_status run_collective(hier *h, ls_comm_op *op)
{
    switch (op->kind) {
    case LS_COMM_ALL_REDUCE:
        return run_all_reduce(h, op);
    case LS_COMM_BARRIER:
    case LS_COMM_ALLOC:
        return run_barrier(h, op);
    case LS_COMM_BROADCAST:
        return run_broadcast(h, op);
    case LS_COMM_ALL_GATHER:
    case LS_COMM_SPLIT:
        return run_all_gather(h, op);
    default:
        return run_flat(h, op);
    }
}

/* Tells this host and all others. The first reason stays: what this rank then says is what shared memory or the mesh has kept. */
static void hier_abort(ls_transport *transport, ls_status status, const char *reason)
{
    hier *h = (hier *)transport;
    h->world->calls->abort(h->world, status, reason);
    if (h->local) {
        h->local->transport.calls->abort(&h->local->transport, status, reason);
    }
}

static ls_status hier_run(ls_transport *transport, ls_comm_op *op)
{
    hier *h = (hier *)transport;
    ls_status status;
    op->wait_ns = 0;
    op->last_rank = UINT32_MAX;
    h->has_met = false;
    if (op->kind == LS_COMM_SEND || op->kind == LS_COMM_RECEIVE) {
        status = run_pair(h, op);
    } else {
        if (h->local) {
            shm_claim(h->local, op);
        }
        status = run_collective(h, op);
        if (h->local && status == LS_OK) {
            atomic_store_explicit(&h->local->places[h->local_rank].is_inside, 0, memory_order_release);
        }
    }
    if (status != LS_OK) {
        char reason[SHM_TEXT_BYTES];
        snprintf(reason, sizeof reason, "%s", ls_error_text());
        hier_abort(transport, status, reason);
        return ls_fail(status, "%s", reason);
    }
    return LS_OK;
}

static ls_status hier_alloc(ls_transport *transport, ls_comm_op *op)
{
    hier *h = (hier *)transport;
    if (h->local) {
        return h->local->transport.calls->alloc(&h->local->transport, op);
    }
    const uint64_t bytes = (op->count + LINE - 1) / LINE * LINE;
    op->out = aligned_alloc(LINE, bytes > 0 ? bytes : LINE);
    if (!op->out) {
        return ls_fail(LS_ERR_MEMORY, "no memory for %llu bytes", (unsigned long long)op->count);
    }
    memset(op->out, 0, bytes);
    return LS_OK;
}

static ls_status hier_release(ls_transport *transport, ls_comm_op *op)
{
    hier *h = (hier *)transport;
    if (h->local) {
        return h->local->transport.calls->release(&h->local->transport, op);
    }
    free((void *)(uintptr_t)op->in);
    return LS_OK;
}

static void hier_stats(const ls_transport *transport, ls_comm_stats *stats)
{
    const hier *h = (const hier *)transport;
    h->world->calls->stats(h->world, stats);
    if (h->local) {
        h->local->transport.calls->stats(&h->local->transport, stats);
    }
}

static void hier_destroy(ls_transport *transport)
{
    hier *h = (hier *)transport;
    if (h->rail) {
        h->rail->calls->destroy(h->rail);
    }
    if (h->local) {
        h->local->transport.calls->destroy(&h->local->transport); /* the stage goes along */
    } else {
        free(h->stage);
    }
    if (h->world) {
        h->world->calls->destroy(h->world);
    }
    free(h->members);
    free(h->local_members);
    free(h->host_of);
    free(h->local_of);
    free(h->sorted);
    free(h->host_first);
    free(h->nodes);
    free(h->node_counts);
    free(h->node_firsts);
    free(h->node_order);
    free(h->program);
    free(h->inputs);
    free(h->outs);
    free(h->own);
    free(h->scratch);
    free(h);
}

/* ---- opening and splitting ---- */

/* A transport without its parts, its tables filled in. NULL: no memory. */
static hier *hier_create(const ls_comm_member *members, uint32_t rank, uint32_t size)
{
    hier *h = calloc(1, sizeof *h);
    if (!h) {
        return NULL;
    }
    const uint32_t pointers = size > LS_TREE_NODES_MAX ? size : LS_TREE_NODES_MAX;
    *h = (hier){.base = {.calls = &hier_calls, .members = members, .rank = rank, .size = size},
                .members = calloc(size, sizeof *h->members),
                .local_members = calloc(size, sizeof *h->local_members),
                .host_of = calloc(size, sizeof *h->host_of),
                .local_of = calloc(size, sizeof *h->local_of),
                .sorted = calloc(size, sizeof *h->sorted),
                .host_first = calloc(size + 1, sizeof *h->host_first),
                .nodes = calloc(size + LS_TREE_NODES_MAX, sizeof *h->nodes),
                .node_counts = calloc(size, sizeof *h->node_counts),
                .node_firsts = calloc(size, sizeof *h->node_firsts),
                .node_order = calloc(size, sizeof *h->node_order),
                .program = calloc(LS_TREE_PROGRAM_MAX, sizeof *h->program),
                .inputs = calloc(pointers, sizeof *h->inputs),
                .outs = calloc(pointers, sizeof *h->outs),
                .own = calloc(pointers, sizeof *h->own)};
    if (!h->members || !h->local_members || !h->host_of || !h->local_of || !h->sorted || !h->host_first ||
        !h->nodes || !h->node_counts || !h->node_firsts || !h->node_order || !h->program || !h->inputs ||
        !h->outs || !h->own) {
        hier_destroy(&h->base);
        return NULL;
    }
    memcpy(h->members, members, size * sizeof *members);
    sort_hosts(h);
    plan_tree(h);
    for (uint32_t i = 0; i < h->local_size; i++) {
        h->local_members[i] = h->members[h->sorted[h->host_first[h->self_host] + i]];
    }
    return h;
}

static ls_status no_memory(uint32_t size)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for a group of %u ranks on several hosts", size);
}

/* The rail of this rank, and the stage, when world and local are there. */
static ls_status finish_opening(hier *h, uint32_t group_id, uint64_t deadline_ns)
{
    uint32_t members[LS_COMM_SIZE_MAX];
    if (h->local_rank < h->rail_count) {
        const uint32_t names[2] = {group_id, h->local_rank};
        for (uint32_t i = 0; i < h->host_count; i++) {
            members[i] = h->sorted[h->host_first[i] + h->local_rank];
        }
        LS_TRY(h->world->calls->split(h->world, members, h->host_count, h->self_host,
                                      (uint32_t)ls_xxh3(names, sizeof names, 1), deadline_ns, &h->rail));
    }
    if (!h->local) {
        h->stage = aligned_alloc(4096, STAGE_BYTES);
        return h->stage ? LS_OK : no_memory(h->base.size);
    }
    ls_comm_op op = {.kind = LS_COMM_ALLOC,
                     .dtype = LS_U8,
                     .peer = UINT32_MAX,
                     .count = STAGE_BYTES,
                     .site = {.file = "ls_comm_open"},
                     .deadline_ns = deadline_ns};
    op.fingerprint = ls_comm_fingerprint(&op);
    LS_TRY(h->local->transport.calls->alloc(&h->local->transport, &op));
    h->stage = op.out;
    return LS_OK;
}

static ls_status open_local(hier *h, const ls_transport_setup *setup)
{
    ls_transport *local = NULL;
    ls_transport_setup inside = *setup;
    if (h->local_size == 1) {
        return LS_OK;
    }
    inside.members = h->local_members;
    inside.rank = h->local_rank;
    inside.size = h->local_size;
    LS_TRY(ls_transport_open_shm(&inside, &local));
    h->local = (ls_shm *)local;
    return LS_OK;
}

ls_status ls_transport_open_hier(const ls_transport_setup *setup, ls_transport **transport_out)
{
    const uint64_t deadline_ns = ls_clock_monotonic_ns() + (uint64_t)(1e9 * ls_tcp_timeout_s(setup));
    hier *h = hier_create(setup->members, setup->rank, setup->size);
    if (!h) {
        return no_memory(setup->size);
    }
    ls_status status = LS_OK;
    LS_TRY_GOTO(status, ls_transport_open_tcp(setup, &h->world), fail);
    LS_TRY_GOTO(status, open_local(h, setup), fail);
    LS_TRY_GOTO(status, finish_opening(h, setup->group_id, deadline_ns), fail);
    *transport_out = &h->base;
    return LS_OK;
fail:
    hier_destroy(&h->base);
    return status;
}

/* Members of the new group that are on this host, as ranks of the parent's local transport. */
static ls_status split_local(hier *parent, hier *group, const uint32_t *members, uint32_t group_id,
                             uint64_t deadline_ns)
{
    uint32_t locals[LS_COMM_SIZE_MAX];
    ls_transport *local = NULL;
    if (group->local_size == 1) {
        return LS_OK;
    }
    for (uint32_t i = 0; i < group->local_size; i++) {
        locals[i] = parent->local_of[members[group->sorted[group->host_first[group->self_host] + i]]];
    }
    LS_TRY(parent->local->transport.calls->split(&parent->local->transport, locals, group->local_size,
                                                 group->local_rank, group_id, deadline_ns, &local));
    local->members = group->local_members;
    group->local = (ls_shm *)local;
    return LS_OK;
}

static ls_status hier_split(ls_transport *transport, const uint32_t *members, uint32_t count, uint32_t self,
                            uint32_t group_id, uint64_t deadline_ns, ls_transport **group_out)
{
    hier *parent = (hier *)transport;
    ls_comm_member of_group[LS_COMM_SIZE_MAX];
    for (uint32_t i = 0; i < count; i++) {
        of_group[i] = parent->members[members[i]];
    }
    hier *group = hier_create(of_group, self, count);
    if (!group) {
        return no_memory(count);
    }
    group->base.members = group->members;
    ls_status status = LS_OK;
    if (group->host_count == 1) {
        uint32_t locals[LS_COMM_SIZE_MAX];
        for (uint32_t i = 0; i < count; i++) {
            locals[i] = parent->local_of[members[i]];
        }
        hier_destroy(&group->base);
        return parent->local ? parent->local->transport.calls->split(&parent->local->transport, locals, count,
                                                                     self, group_id, deadline_ns, group_out)
                             : parent->world->calls->split(parent->world, members, count, self, group_id,
                                                           deadline_ns, group_out);
    }
    if (group->host_count == count) {
        hier_destroy(&group->base);
        return parent->world->calls->split(parent->world, members, count, self, group_id, deadline_ns,
                                           group_out);
    }
    LS_TRY_GOTO(status,
                parent->world->calls->split(parent->world, members, count, self, group_id, deadline_ns,
                                            &group->world),
                fail);
    LS_TRY_GOTO(status, split_local(parent, group, members, group_id, deadline_ns), fail);
    LS_TRY_GOTO(status, finish_opening(group, group_id, deadline_ns), fail);
    *group_out = &group->base;
    return LS_OK;
fail:
    hier_destroy(&group->base);
    return status;
}

static const ls_transport_calls hier_calls = {.name = "hier",
                                              .run = hier_run,
                                              .alloc = hier_alloc,
                                              .release = hier_release,
                                              .split = hier_split,
                                              .abort = hier_abort,
                                              .stats = hier_stats,
                                              .destroy = hier_destroy};
