// SPDX-License-Identifier: Apache-2.0
/*
 * Small calls: everybody's block goes to everybody, and each adds up for itself.
 *
 * With few members in one hop (N - 1 messages each), with many by Bruck's doubling (log2 N messages: in round k the 2^k blocks gathered so
 * far go to the member 2^k below). Blocks are kept in order (own, own + 1, ...) mod N. Sums see all inputs, so they are the tree's.
 *
 * Source of the doubling: Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.
 */
#include "execution/comm/tcp_mesh.h"

#include <string.h>

enum { ONE_HOP_RANKS = 8 }; /* up to here N - 1 messages at once beat log2 N in turn */

static uint8_t *block(const ls_tcp_group *group, uint32_t position)
{
    return group->scratch + (uint64_t)position * group->call.piece_bytes;
}

/* Position of a member's block: its distance above the own rank. */
static uint32_t position_of(const ls_tcp_group *group, uint32_t member)
{
    return (member + group->base.size - group->base.rank) % group->base.size;
}

/* ---- one hop ---- */

static ls_tcp_span hop_source(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase, (void)member, (void)piece;
    return (ls_tcp_span){.data = block(group, 0), .bytes = group->call.block_bytes};
}

static ls_tcp_span hop_target(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase, (void)piece;
    return (ls_tcp_span){.data = block(group, position_of(group, member)), .bytes = group->call.block_bytes};
}

static bool hop_advance(ls_tcp_group *group)
{
    (void)group;
    return true;
}

static const ls_tcp_plan hop_plan = {.source = hop_source, .target = hop_target, .advance = hop_advance};

/* ---- doubling ---- */

/* Blocks that travel in the round in which `distance` lies between sender and receiver. */
static uint64_t round_bytes(const ls_tcp_group *group, uint32_t distance)
{
    const uint32_t rest = group->base.size - distance;
    return (distance < rest ? distance : rest) * group->call.piece_bytes;
}

static ls_tcp_span bruck_source(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase, (void)piece;
    const uint32_t distance = group->base.size - position_of(group, member);
    return (ls_tcp_span){.data = block(group, 0), .bytes = round_bytes(group, distance)};
}

static ls_tcp_span bruck_target(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase, (void)piece;
    const uint32_t distance = position_of(group, member);
    return (ls_tcp_span){.data = block(group, distance), .bytes = round_bytes(group, distance)};
}

/* Round k may be sent when all rounds before it are here. */
static bool bruck_advance(ls_tcp_group *group)
{
    const uint32_t size = group->base.size, rank = group->base.rank;
    uint32_t distance = 1;
    while (distance < size) {
        ls_tcp_outgoing(group, 0, (rank + size - distance) % size)->limit = 1;
        const uint32_t from = (rank + distance) % size;
        if (ls_tcp_in(group, 0, from)->done == 0) {
            return false;
        }
        distance *= 2;
    }
    return true;
}

static const ls_tcp_plan bruck_plan = {
    .source = bruck_source, .target = bruck_target, .advance = bruck_advance};

static void lay_out(ls_tcp_group *group)
{
    const uint32_t size = group->base.size, rank = group->base.rank;
    for (uint32_t distance = 1; distance < size;) {
        ls_tcp_call_in(group, 0, (rank + distance) % size, 1);
        ls_tcp_call_out(group, 0, (rank + size - distance) % size, 1, group->call.plan == &hop_plan);
        distance += group->call.plan == &hop_plan ? 1 : distance;
    }
}

/* All blocks are here: the sum, or each to its place. */
static void finish(ls_tcp_group *group)
{
    const ls_comm_op *op = group->call.op;
    const uint64_t bytes = group->call.block_bytes;
    if (bytes == 0) {
        return;
    }
    for (uint32_t i = 0; i < group->base.size; i++) {
        group->inputs[i] = block(group, position_of(group, i));
    }
    if (op->kind == LS_COMM_ALL_REDUCE) {
        ls_comm_reduce_tree(op->dtype, op->reduction, group->inputs, group->base.size, op->count, op->out);
        return;
    }
    for (uint32_t i = 0; i < group->base.size; i++) {
        memcpy((uint8_t *)op->out + i * bytes, group->inputs[i], bytes);
    }
}

ls_status ls_tcp_small(ls_tcp_group *group, ls_comm_op *op)
{
    const bool hop = group->base.size <= ONE_HOP_RANKS;
    ls_tcp_call_begin(group, op, hop ? &hop_plan : &bruck_plan, LS_TCP_GROUP);
    ls_tcp_call *call = &group->call;
    call->seq = ++group->seq;
    call->block_bytes = op->kind == LS_COMM_BARRIER ? 0 : op->count * call->element_bytes;
    /* Doubling moves runs of blocks, so they touch; a hop's may be aligned for the sum. */
    call->piece_bytes = hop ? (call->block_bytes + 63) / 64 * 64 : call->block_bytes;
    LS_TRY(ls_tcp_scratch(group, group->base.size * call->piece_bytes + 64));
    if (call->block_bytes > 0) {
        memcpy(block(group, 0), op->in, call->block_bytes);
    }
    lay_out(group);
    LS_TRY(ls_tcp_call_run(group));
    finish(group);
    return LS_OK;
}
