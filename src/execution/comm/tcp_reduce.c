// SPDX-License-Identifier: Apache-2.0
/*
 * Sums in the order of the tree, by direct exchange.
 *
 * The data is cut into one chunk per member, who owns it. Everybody sends the pieces of chunk j to its owner; as soon as piece k of a chunk
 * is there from all, the owner adds it up in tree order and (all-reduce) sends the sum to everybody. Both phases overlap piece by piece,
 * so a link always has something to carry, and each rank sends 2 (N - 1) / N of the data: as much as a ring, in two hops instead of
 * 2 (N - 1).
 *
 *   contributions of piece k+2  ──▶ owner            at most `window` pieces ahead of the sums, so the owner needs
 *   sums of piece k             ◀── owner            (N - 1) * window * piece bytes of scratch whatever the size
 *
 * A sum of piece k that comes back is the credit for piece k + window. A reduce-scatter has no such answer and sends credits.
 */
#include "execution/comm/tcp_mesh.h"

#include "base/assert.h"

enum {
    WINDOW = 16,
    SLACK =
        2, /* more leaves the last pieces of one member behind the others': measured 95 % of the link instead of 99 */
    PIECE_BYTES_MIN = 16 << 10,
    PIECE_BYTES_MAX = 64 << 10, /* stays in a core's cache until it is added */
    PIECES_AIM = 16,            /* of a chunk */
    ALIGN = 64,
};

enum { CONTRIBUTION, RESULT };

/* First byte of chunk `member`; chunks of an all-reduce are cut at cache lines. */
static uint64_t chunk_begin(const ls_tcp_group *group, uint32_t member)
{
    const ls_comm_op *op = group->call.op;
    const uint64_t bytes = op->count * group->call.element_bytes;
    if (op->kind == LS_COMM_REDUCE_SCATTER) {
        return bytes * member;
    }
    const uint64_t lines = (bytes + ALIGN - 1) / ALIGN;
    const uint64_t begin = lines * member / group->base.size * ALIGN;
    return begin < bytes ? begin : bytes;
}

static uint64_t chunk_bytes(const ls_tcp_group *group, uint32_t member)
{
    return chunk_begin(group, member + 1) - chunk_begin(group, member);
}

static uint32_t chunk_pieces(const ls_tcp_group *group, uint32_t member)
{
    const uint64_t piece = group->call.piece_bytes, bytes = chunk_bytes(group, member);
    return bytes > piece ? (uint32_t)((bytes + piece - 1) / piece) : 1;
}

/* Where piece `piece` of chunk `member` lies inside the data. */
static ls_tcp_span chunk_piece(const ls_tcp_group *group, uint32_t member, uint32_t piece, const void *data)
{
    const uint64_t at = piece * group->call.piece_bytes, bytes = chunk_bytes(group, member);
    const uint64_t left = bytes - at;
    return (ls_tcp_span){.data = (uint8_t *)(uintptr_t)data + chunk_begin(group, member) + at,
                         .bytes = left < group->call.piece_bytes ? left : group->call.piece_bytes};
}

/* Where the sum of an own piece goes: reduce-scatter has one chunk of output. */
static ls_tcp_span own_result(const ls_tcp_group *group, uint32_t piece)
{
    const ls_comm_op *op = group->call.op;
    ls_tcp_span span = chunk_piece(group, group->base.rank, piece, op->out);
    if (op->kind == LS_COMM_REDUCE_SCATTER) {
        span.data = (uint8_t *)op->out + piece * group->call.piece_bytes;
    }
    return span;
}

static ls_tcp_span source(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    return phase == RESULT ? own_result(group, piece) : chunk_piece(group, member, piece, group->call.op->in);
}

static uint8_t *slot(const ls_tcp_group *group, uint32_t member, uint32_t piece)
{
    const ls_tcp_call *call = &group->call;
    return group->scratch + ((uint64_t)member * call->window + piece % call->window) * call->piece_bytes;
}

static ls_tcp_span target(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    if (phase == RESULT) {
        return chunk_piece(group, member, piece, group->call.op->out);
    }
    if (piece < group->call.reduced || piece >= group->call.reduced + group->call.window) {
        return (ls_tcp_span){.bytes = UINT64_MAX};
    }
    ls_tcp_span span = chunk_piece(group, group->base.rank, piece, group->call.op->out);
    span.data = slot(group, member, piece);
    return span;
}

static void arrived(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece)
{
    if (phase == CONTRIBUTION) {
        group->here[piece % group->call.window]++;
        return;
    }
    ls_tcp_stream *out = ls_tcp_outgoing(group, CONTRIBUTION, member);
    const uint32_t limit = ls_tcp_in(group, RESULT, member)->last + group->call.window;
    out->limit = limit < out->pieces ? limit : out->pieces;
}

/* The sum of piece `piece` of the own chunk, now that it is there from everybody. */
static void reduce_piece(ls_tcp_group *group, uint32_t piece)
{
    const ls_comm_op *op = group->call.op;
    const ls_tcp_span result = own_result(group, piece);
    for (uint32_t i = 0; i < group->base.size; i++) {
        group->inputs[i] = slot(group, i, piece);
    }
    group->inputs[group->base.rank] = chunk_piece(group, group->base.rank, piece, op->in).data;
    ls_comm_reduce_tree(op->dtype, op->reduction, group->inputs, group->base.size,
                        result.bytes / group->call.element_bytes, result.data);
}

/* One piece at a time, so that its sum leaves before the next is added. */
static bool advance(ls_tcp_group *group)
{
    ls_tcp_call *call = &group->call;
    uint32_t *here = &group->here[call->reduced % call->window];
    if (call->reduced < call->pieces && *here == group->base.size - 1) {
        reduce_piece(group, call->reduced++);
        *here = 0;
        group->mesh->moves++;
        for (uint32_t i = 0; i < group->base.size; i++) {
            if (i == group->base.rank) {
                continue;
            }
            if (call->op->kind == LS_COMM_ALL_REDUCE) {
                ls_tcp_outgoing(group, RESULT, i)->limit = call->reduced;
            } else if (call->reduced + call->window <= call->pieces) {
                ls_tcp_call_credit(group, i, call->reduced);
            }
        }
    }
    return call->reduced == call->pieces;
}

static const ls_tcp_plan reduce_plan = {
    .source = source, .target = target, .arrived = arrived, .advance = advance};

/* A function of size and bytes alone: all members cut alike. */
static uint64_t piece_bytes(uint64_t chunk)
{
    uint64_t piece = (chunk / PIECES_AIM + ALIGN - 1) / ALIGN * ALIGN;
    piece = piece > PIECE_BYTES_MIN ? piece : PIECE_BYTES_MIN;
    return piece < PIECE_BYTES_MAX ? piece : PIECE_BYTES_MAX;
}

ls_status ls_tcp_reduce(ls_tcp_group *group, ls_comm_op *op)
{
    const uint32_t size = group->base.size, rank = group->base.rank;
    ls_tcp_call_begin(group, op, &reduce_plan, LS_TCP_GROUP);
    ls_tcp_call *call = &group->call;
    const uint64_t chunk = chunk_bytes(group, size - 1); /* the largest, up to a line */
    call->seq = ++group->seq;
    call->piece_bytes = piece_bytes(chunk);
    call->window = WINDOW;
    call->slack = SLACK;
    call->pieces = chunk_pieces(group, rank);
    call->gated = chunk > LS_TCP_EAGER_BYTES / 2;
    LS_ASSERT(call->pieces < LS_TCP_PIECES_MAX);
    LS_TRY(ls_tcp_scratch(group, (uint64_t)size * call->window * call->piece_bytes));
    for (uint32_t i = 0; i < call->window; i++) {
        group->here[i] = 0;
    }
    for (uint32_t i = 0; i < size; i++) {
        if (i == rank) {
            continue;
        }
        ls_tcp_call_out(group, CONTRIBUTION, i, chunk_pieces(group, i), call->window);
        ls_tcp_call_in(group, CONTRIBUTION, i, call->pieces);
        if (op->kind == LS_COMM_ALL_REDUCE) {
            ls_tcp_call_out(group, RESULT, i, call->pieces, 0);
            ls_tcp_call_in(group, RESULT, i, chunk_pieces(group, i));
        }
    }
    return ls_tcp_call_run(group);
}
