// SPDX-License-Identifier: Apache-2.0
/* The collectives over several hosts. See comm/hier/hier.h. */
#include "comm/hier/hier.h"

#include "base/half.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Up to this size one rail is enough. */
    ONE_RAIL_BYTES = 64 << 10,
    /* Extra time on the rails: a host that misses a rank reports it before other hosts miss the
     * host. */
    RAIL_GRACE_NS = 200000000,
    /* Halves that are widened to float32 at a time. */
    WIDE = 2048,
};

/* ---- inside the host ---- */

/*
 * The members of this host meet. At the first meeting of a call the deadline is that of the call.
 * Later ones have a deadline after that of the rail, because a member that is late then is waiting
 * for another host and will report that host.
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

/* The half in use of a local rank's stage, as this rank sees it. */
static uint8_t *stage_of(const hier *h, uint32_t local)
{
    uint8_t *stage =
        h->local ? shm_address(h->local, shm_ref_of(h->local, h->stage, HIER_STAGE_BYTES), local) : h->stage;
    return stage + h->turn * HIER_BLOCK_BYTES;
}

/* Each block uses the other half of the stage than the block before. A member that still reads a
 * half has not yet arrived at the next block; so when that block ends, the half is free again,
 * without another meeting. */
static void begin_block(hier *h)
{
    h->turn ^= 1;
}

/* ---- between hosts ---- */

/* Runs a part of `op` on this rank's rail, with the fingerprint of the whole. */
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
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory: %llu bytes are needed for the sums of this host's ranks",
                       (unsigned long long)bytes);
    }
    h->scratch_bytes = bytes;
    return LS_OK;
}

/* Elements [first, first + count) of a call. */
typedef struct extent {
    uint64_t first, count;
} extent;

/* Sums a part of the ranks of a node into `out`; the halves are first widened to float32. `local`
 * is the local rank of the node's first rank. */
static void sum_halves(hier *h, const ls_comm_op *op, uint32_t local, uint32_t ranks, extent of, float *out)
{
    float *wide = (float *)(void *)h->scratch; /* ranks * WIDE */
    const void *rows[LS_COMM_SIZE_MAX];
    for (uint64_t at = 0; at < of.count; at += WIDE) {
        const uint64_t count = of.count - at < WIDE ? of.count - at : WIDE;
        for (uint32_t i = 0; i < ranks; i++) {
            rows[i] = wide + (uint64_t)i * WIDE;
            widen(op->dtype, (const uint16_t *)h->inputs[local + i] + of.first + at, count,
                  wide + (uint64_t)i * WIDE);
        }
        ls_comm_reduce_tree(LS_F32, op->reduction, rows, ranks, count, out + at);
    }
}

/* Finds or computes this host's nodes of elements [first, first + count): a node of one rank is
 * that rank's buffer, all others are added up in scratch. */
static void sum_nodes(hier *h, const ls_comm_op *op, uint64_t first, uint64_t count)
{
    const uint64_t element = ls_dtype_bytes(op->dtype), wide = is_half(op->dtype) ? 4 : element;
    const uint64_t stride = (count * wide + HIER_LINE - 1) / HIER_LINE * HIER_LINE;
    uint8_t *sums = h->scratch + (is_half(op->dtype) ? (uint64_t)h->local_size * WIDE * 4 : 0);
    for (uint32_t i = 0; i < h->node_counts[h->self_host]; i++) {
        const ls_leaf_range *node = &h->nodes[h->node_firsts[h->self_host] + i];
        const uint32_t local = h->local_of[node->first];
        uint8_t *sum = sums + i * stride;
        h->own[i] = sum;
        if (is_half(op->dtype)) {
            sum_halves(h, op, local, node->count, (extent){first, count}, (float *)(void *)sum);
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

/* Writes the sum over all hosts of elements [first, first + count) into every local buffer. */
static ls_status reduce_slice(hier *h, ls_comm_op *op, uint64_t first, uint64_t count)
{
    const uint64_t element = ls_dtype_bytes(op->dtype);
    const bool half = is_half(op->dtype);
    const uint64_t stride = (count * (half ? 4 : element) + HIER_LINE - 1) / HIER_LINE * HIER_LINE;
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

/* Reduces this rank's slice of elements [first, first + count). */
static ls_status reduce_block(hier *h, ls_comm_op *op, uint64_t first, uint64_t count)
{
    const uint64_t element = ls_dtype_bytes(op->dtype), per_line = HIER_LINE / element;
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
    const uint64_t block = HIER_BLOCK_BYTES / ls_dtype_bytes(op->dtype);
    for (uint64_t at = 0; at < op->count; at += block) {
        LS_TRY(reduce_block(h, op, at, op->count - at < block ? op->count - at : block));
    }
    return arrive(h, op, 0, 0);
}

static ls_status reduce_staged(hier *h, ls_comm_op *op)
{
    const uint64_t element = ls_dtype_bytes(op->dtype), block = HIER_BLOCK_BYTES / element;
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

/* Finds the buffers of all local ranks. Returns false if at least one is not in shared memory. */
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

/* ---- broadcast and all-gather: through the two halves of the stage in turn ---- */

static ls_status run_broadcast(hier *h, ls_comm_op *op)
{
    const uint64_t bytes = op->count * ls_dtype_bytes(op->dtype);
    const uint32_t root_host = h->host_of[op->peer];
    /* The local rank whose stage holds the data. */
    const uint32_t source = h->self_host == root_host ? h->local_of[op->peer] : 0;
    if (bytes == 0) {
        return run_barrier(h, op);
    }
    for (uint64_t at = 0; at < bytes; at += HIER_BLOCK_BYTES) {
        const uint64_t part_bytes = bytes - at < HIER_BLOCK_BYTES ? bytes - at : HIER_BLOCK_BYTES;
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

/* On rail 0: sends the blocks of this host to all others. Blocks are ordered by host, then rank. */
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
    const uint64_t room = HIER_BLOCK_BYTES / h->base.size / HIER_LINE * HIER_LINE;
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

ls_status hier_run_collective(hier *h, ls_comm_op *op)
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
