// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that move data without adding: the blocks of every member go directly to their places, in
 * pieces.
 *
 *   all-gather, all-to-all   each pair of members exchanges one block in both directions
 *   broadcast                small: a binomial tree; large: a chain in which each member passes on
 *                            pieces as they arrive
 *   send and receive         one stream; small data does not wait for the receiver
 */
#include "comm/tcp/tcp_mesh.h"

#include "base/assert.h"

#include <string.h>

enum { PIECE_BYTES = 256 << 10 };

static uint32_t pieces_of(uint64_t bytes)
{
    const uint64_t pieces = bytes > PIECE_BYTES ? (bytes + PIECE_BYTES - 1) / PIECE_BYTES : 1;
    LS_ASSERT(pieces < LS_TCP_PIECES_MAX);
    return (uint32_t)pieces; /* an empty block is one empty piece, so that the other side knows */
}

/* Piece `piece` of a block. */
static ls_tcp_span piece_of(const void *data, uint64_t bytes, uint32_t piece)
{
    const uint64_t at = (uint64_t)piece * PIECE_BYTES, left = bytes - at;
    return (ls_tcp_span){.data = data ? (uint8_t *)(uintptr_t)data + at : NULL,
                         .bytes = left < PIECE_BYTES ? left : PIECE_BYTES};
}

static bool nothing_to_add(ls_tcp_group *group)
{
    (void)group;
    return true;
}

/* ---- all to all: the block from and to a member ---- */

static ls_tcp_span block_to(const ls_tcp_group *group, uint32_t member)
{
    const ls_comm_op *op = group->call.op;
    const uint64_t element = group->call.element_bytes, bytes = op->count * element;
    const uint8_t *in = op->in;
    if (op->kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        return (ls_tcp_span){.data = (void *)(uintptr_t)(in + op->blocks->send_offsets[member] * element),
                             .bytes = op->blocks->send_counts[member] * element};
    }
    return (ls_tcp_span){.data =
                             (void *)(uintptr_t)(op->kind == LS_COMM_ALL_TO_ALL ? in + member * bytes : in),
                         .bytes = bytes};
}

static ls_tcp_span block_from(const ls_tcp_group *group, uint32_t member)
{
    const ls_comm_op *op = group->call.op;
    const uint64_t element = group->call.element_bytes, bytes = op->count * element;
    if (op->kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        return (ls_tcp_span){.data = (uint8_t *)op->out + op->blocks->receive_offsets[member] * element,
                             .bytes = op->blocks->receive_counts[member] * element};
    }
    return (ls_tcp_span){.data = (uint8_t *)op->out + member * bytes, .bytes = bytes};
}

static ls_tcp_span exchange_source(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase;
    const ls_tcp_span block = block_to(group, member);
    return piece_of(block.data, block.bytes, piece);
}

static ls_tcp_span exchange_target(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase;
    const ls_tcp_span block = block_from(group, member);
    return piece_of(block.data, block.bytes, piece);
}

static const ls_tcp_plan exchange_plan = {
    .source = exchange_source, .target = exchange_target, .advance = nothing_to_add};

ls_status ls_tcp_exchange(ls_tcp_group *group, ls_comm_op *op)
{
    const uint32_t size = group->base.size, rank = group->base.rank;
    ls_tcp_call_begin(group, op, &exchange_plan, LS_TCP_GROUP);
    group->call.seq = ++group->seq;
    for (uint32_t i = 0; i < size; i++) {
        const uint64_t to = block_to(group, i).bytes, from = block_from(group, i).bytes;
        if (i == rank) {
            if (to != from) {
                return ls_fail(
                    LS_ERR_INVALID,
                    "rank %u sends itself %llu bytes but expects %llu: the two numbers must be equal", rank,
                    (unsigned long long)to, (unsigned long long)from);
            }
            continue;
        }
        ls_tcp_call_out(group, 0, i, pieces_of(to), UINT32_MAX);
        ls_tcp_call_in(group, 0, i, pieces_of(from));
        group->call.gated |= to > LS_TCP_EAGER_BYTES || from > LS_TCP_EAGER_BYTES;
    }
    const ls_tcp_span own = block_from(group, rank);
    if (own.bytes > 0 && own.data != block_to(group, rank).data) {
        memmove(own.data, block_to(group, rank).data, own.bytes);
    }
    return ls_tcp_call_run(group);
}

/* ---- one block: broadcast, send, receive ---- */

static ls_tcp_span whole_source(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase, (void)member;
    const ls_comm_op *op = group->call.op;
    return piece_of(op->kind == LS_COMM_SEND ? op->in : op->out, op->count * group->call.element_bytes,
                    piece);
}

static ls_tcp_span whole_target(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    (void)phase, (void)member;
    const ls_comm_op *op = group->call.op;
    return piece_of(op->out, op->count * group->call.element_bytes, piece);
}

/* What has arrived from the parent may be sent to the children. */
static bool pass_on(ls_tcp_group *group)
{
    const uint32_t parent = group->call.parent;
    if (parent != UINT32_MAX) {
        const uint32_t here = ls_tcp_in(group, 0, parent)->done;
        for (uint32_t i = 0; i < group->base.size; i++) {
            ls_tcp_stream *out = ls_tcp_outgoing(group, 0, i);
            out->limit = here < out->pieces ? here : out->pieces;
        }
    }
    return true;
}

static const ls_tcp_plan broadcast_plan = {
    .source = whole_source, .target = whole_target, .advance = pass_on};
static const ls_tcp_plan pair_plan = {
    .source = whole_source, .target = whole_target, .advance = nothing_to_add};

/* With ranks counted from the root: the chain 0 1 2 ..., or the binomial tree in which clearing the
 * lowest set bit gives the parent. */
static void broadcast_tree(ls_tcp_group *group, bool chain, uint32_t pieces)
{
    const uint32_t size = group->base.size, root = group->call.op->peer;
    const uint32_t self = (group->base.rank + size - root) % size;
    if (self > 0) {
        group->call.parent = ((chain ? self - 1 : self & (self - 1)) + root) % size;
        ls_tcp_call_in(group, 0, group->call.parent, pieces);
    }
    const uint32_t limit = self == 0 ? UINT32_MAX : 0;
    if (chain) {
        if (self + 1 < size) {
            ls_tcp_call_out(group, 0, (self + 1 + root) % size, pieces, limit);
        }
        return;
    }
    for (uint32_t bit = 1; self + bit < size && (self & bit) == 0; bit *= 2) {
        ls_tcp_call_out(group, 0, (self + bit + root) % size, pieces, limit);
    }
}

ls_status ls_tcp_broadcast(ls_tcp_group *group, ls_comm_op *op)
{
    ls_tcp_call_begin(group, op, &broadcast_plan, LS_TCP_GROUP);
    group->call.seq = ++group->seq;
    group->call.gated = true; /* otherwise a root could run far ahead */
    const uint64_t bytes = op->count * group->call.element_bytes;
    broadcast_tree(group, bytes > LS_TCP_EAGER_BYTES, pieces_of(bytes));
    return ls_tcp_call_run(group);
}

ls_status ls_tcp_send_receive(ls_tcp_group *group, ls_comm_op *op)
{
    ls_tcp_call_begin(group, op, &pair_plan, LS_TCP_PAIR);
    ls_tcp_call *call = &group->call;
    const uint64_t bytes = op->count * call->element_bytes;
    ls_comm_op shape = *op; /* both sides of a pair have the same fingerprint */
    shape.kind = LS_COMM_SEND;
    shape.peer = UINT32_MAX;
    call->fingerprint = ls_comm_fingerprint(&shape);
    call->receives = op->kind == LS_COMM_RECEIVE;
    if (call->receives) {
        call->seq = ++group->received[op->peer];
        ls_tcp_call_in(group, 0, op->peer, pieces_of(bytes));
    } else {
        call->seq = ++group->sent[op->peer];
        ls_tcp_call_out(group, 0, op->peer, pieces_of(bytes), UINT32_MAX);
        call->gated =
            bytes > LS_TCP_EAGER_BYTES || call->seq - group->pair_ready[op->peer] > LS_TCP_PAIR_AHEAD;
    }
    return ls_tcp_call_run(group);
}
