// SPDX-License-Identifier: Apache-2.0
/*
 * Small calls: every member gets the blocks of all and adds them up itself.
 *
 * With few members this takes one hop (N - 1 messages each). With many it uses Bruck's doubling
 * (log2 N messages): in round k a member sends the 2^k blocks gathered so far to the member 2^k
 * below. Blocks are kept in the order (own, own + 1, ...) mod N. Since every member has all inputs,
 * sums follow the tree.
 *
 * Source of the doubling: Bruck et al., "Efficient algorithms for all-to-all communications in
 * multiport message-passing systems", 1997.
 */
#include "comm/tcp/tcp_mesh.h"

#include <string.h>

/* Up to here, N - 1 messages at once are faster than log2 N in turn. */
enum { ONE_HOP_RANKS = 8 };

static uint8_t *block(const ls_tcp_group *group, uint32_t position)
{
    return group->scratch + (uint64_t)position * group->call.piece_bytes;
}

/* Position of a member's block: its distance above this rank. */
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

/* Bytes sent in the round in which sender and receiver are `distance` apart. */
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

/* Round k may be sent when all rounds before it have arrived. */
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

/* All blocks have arrived: adds them up, or copies each to its place. */
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
    /* Doubling sends runs of blocks, so they must be adjacent; with one hop they can be aligned for
     * the sum. */
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
