// SPDX-License-Identifier: Apache-2.0
/*
 * Sums in the order of the tree, by direct exchange.
 *
 * The data is cut into one chunk per member, its owner. All members send the pieces of chunk j to
 * its owner. As soon as piece k of the chunk has arrived from all, the owner adds it up in the
 * order of the tree and (in an all-reduce) sends the sum to all members. Both phases overlap piece
 * by piece, so that links are always busy. Each rank sends 2 (N - 1) / N of the data: as much as
 * with a ring, but in two hops instead of 2 (N - 1).
 *
 *   member                                  owner
 *   contribution of piece k + 2   ──▶       adds up piece k + 1
 *                                 ◀──       sum of piece k
 *
 * Contributions are at most `window` pieces ahead of the sums, so the owner needs scratch for
 * (N - 1) * window pieces, whatever the size of the data. The sum of piece k is also the credit for
 * piece k + window. A reduce-scatter returns no sums and sends credits instead.
 *
 * A member may contribute several nodes of the tree (ls_tcp_nodes). Each piece of its contribution
 * is then one message per node.
 */
#include "comm/tcp/tcp_mesh.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 16,
    /* For more than eight inputs. */
    WINDOW_MANY = 6,
    /* With more, the last pieces to one member leave after those to the others: 95 % of the link's
     * speed was measured instead of 99 %. */
    SLACK = 2,
    PIECE_BYTES_MIN = 16 << 10,
    /* A piece stays in a core's cache until it is added. */
    PIECE_BYTES_MAX = 64 << 10,
    /* Pieces of a chunk, if the limits above allow. */
    PIECES_AIM = 16,
    ALIGN = 64,
};

enum { CONTRIBUTION, RESULT };

/* Chunks of an all-reduce begin at cache lines. */
uint64_t ls_tcp_chunk_begin(const ls_tcp_group *group, uint32_t member)
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
    return ls_tcp_chunk_begin(group, member + 1) - ls_tcp_chunk_begin(group, member);
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
    return (ls_tcp_span){.data = (uint8_t *)(uintptr_t)data + ls_tcp_chunk_begin(group, member) + at,
                         .bytes = left < group->call.piece_bytes ? left : group->call.piece_bytes};
}

/* Where the sum of a piece of this rank's chunk goes. The output of a reduce-scatter is one
 * chunk. */
static ls_tcp_span own_result(const ls_tcp_group *group, uint32_t piece)
{
    const ls_comm_op *op = group->call.op;
    ls_tcp_span span = chunk_piece(group, group->base.rank, piece, op->out);
    if (op->kind == LS_COMM_REDUCE_SCATTER) {
        span.data = (uint8_t *)op->out + piece * group->call.piece_bytes;
    }
    return span;
}

static uint32_t node_count(const ls_tcp_group *group, uint32_t member)
{
    return group->call.nodes ? group->call.nodes->counts[member] : 1;
}

/* This rank's input: its buffer, or one of its nodes. */
static const void *own_data(const ls_tcp_group *group, uint32_t node)
{
    return group->call.nodes ? group->call.nodes->own[node] : group->call.op->in;
}

static ls_tcp_span source(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t message)
{
    const uint32_t nodes = node_count(group, group->base.rank);
    return phase == RESULT ? own_result(group, message)
                           : chunk_piece(group, member, message / nodes, own_data(group, message % nodes));
}

/* The scratch for a piece of an input. */
static uint8_t *slot(const ls_tcp_group *group, uint32_t input, uint32_t piece)
{
    const ls_tcp_call *call = &group->call;
    return group->scratch + ((uint64_t)input * call->window + piece % call->window) * call->piece_bytes;
}

static uint32_t first_input(const ls_tcp_group *group, uint32_t member)
{
    return group->call.nodes ? group->call.nodes->firsts[member] : member;
}

static uint32_t input_count(const ls_tcp_group *group)
{
    return group->call.nodes ? group->call.nodes->count : group->base.size;
}

static ls_tcp_span target(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t message)
{
    if (phase == RESULT) {
        return chunk_piece(group, member, message, group->call.op->out);
    }
    const uint32_t nodes = node_count(group, member), piece = message / nodes;
    if (piece < group->call.reduced || piece >= group->call.reduced + group->call.window) {
        return (ls_tcp_span){.bytes = UINT64_MAX};
    }
    ls_tcp_span span = chunk_piece(group, group->base.rank, piece, group->call.op->out);
    span.data = slot(group, first_input(group, member) + message % nodes, piece);
    return span;
}

static void arrived(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t message)
{
    if (phase == CONTRIBUTION) {
        group->here[message / node_count(group, member) % group->call.window]++;
        return;
    }
    ls_tcp_stream *out = ls_tcp_outgoing(group, CONTRIBUTION, member);
    const uint64_t pieces = (uint64_t)ls_tcp_in(group, RESULT, member)->last + group->call.window;
    const uint64_t limit = pieces * node_count(group, group->base.rank);
    out->limit = limit < out->pieces ? (uint32_t)limit : out->pieces;
}

/* Adds up the inputs of a piece pair by pair, as the program of the nodes says, so that nodes of
 * any size are joined in the order of the tree. Intermediate sums use the scratch after the
 * slots. */
static void run_program(const ls_tcp_group *group, uint64_t count, void *out)
{
    const ls_tcp_call *call = &group->call;
    const ls_tcp_nodes *nodes = call->nodes;
    const void *stack[LS_TCP_DEPTH_MAX];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < nodes->program_length; i++) {
        if (nodes->program[i] != LS_TREE_ADD) {
            stack[depth++] = group->inputs[nodes->sorted[nodes->program[i]]];
            continue;
        }
        const void *pair[2] = {stack[depth - 2], stack[depth - 1]};
        uint8_t *room = group->scratch + ((uint64_t)nodes->count * call->window + depth) * call->piece_bytes;
        void *to = i + 1 == nodes->program_length ? out : room;
        ls_comm_reduce_tree(call->op->dtype, call->op->reduction, pair, 2, count, to);
        stack[--depth - 1] = to;
    }
}

/* Adds up a piece of this rank's chunk, which has arrived from all members. */
static void reduce_piece(ls_tcp_group *group, uint32_t piece)
{
    const ls_comm_op *op = group->call.op;
    const uint32_t rank = group->base.rank;
    const ls_tcp_span result = own_result(group, piece);
    const uint64_t count = result.bytes / group->call.element_bytes;
    for (uint32_t i = 0; i < input_count(group); i++) {
        group->inputs[i] = slot(group, i, piece);
    }
    for (uint32_t i = 0; i < node_count(group, rank); i++) {
        group->inputs[first_input(group, rank) + i] =
            chunk_piece(group, rank, piece, own_data(group, i)).data;
    }
    if (group->call.nodes) {
        run_program(group, count, result.data);
    } else {
        ls_comm_reduce_tree(op->dtype, op->reduction, group->inputs, group->base.size, count, result.data);
    }
}

/* Adds up one piece at a time, so that its sum is sent before the next is computed. */
static bool advance(ls_tcp_group *group)
{
    ls_tcp_call *call = &group->call;
    uint32_t *here = &group->here[call->reduced % call->window];
    if (call->reduced < call->pieces && *here == input_count(group) - node_count(group, group->base.rank)) {
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

/* Depends on nothing else, so that all members cut alike. */
uint64_t ls_tcp_piece_bytes(uint64_t chunk)
{
    uint64_t piece = (chunk / PIECES_AIM + ALIGN - 1) / ALIGN * ALIGN;
    piece = piece > PIECE_BYTES_MIN ? piece : PIECE_BYTES_MIN;
    return piece < PIECE_BYTES_MAX ? piece : PIECE_BYTES_MAX;
}

/* Makes room for pieces, for intermediate sums of nodes, and for pointers to them. */
static ls_status make_room(ls_tcp_group *group)
{
    const ls_tcp_call *call = &group->call;
    const uint32_t inputs = input_count(group);
    const uint32_t between = call->nodes ? call->nodes->depth + 1 : 0;
    if (inputs > group->input_room) {
        const void **more = realloc(group->inputs, inputs * sizeof *more);
        if (!more) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for %u inputs of a sum", inputs);
        }
        group->inputs = more;
        group->input_room = inputs;
    }
    return ls_tcp_scratch(group, ((uint64_t)inputs * call->window + between) * call->piece_bytes);
}

ls_status ls_tcp_reduce(ls_tcp_group *group, ls_comm_op *op, const ls_tcp_nodes *nodes)
{
    const uint32_t size = group->base.size, rank = group->base.rank;
    ls_tcp_call_begin(group, op, &reduce_plan, LS_TCP_GROUP);
    ls_tcp_call *call = &group->call;
    /* the largest one, to within a cache line */
    const uint64_t chunk = chunk_bytes(group, size - 1);
    call->nodes = nodes;
    call->seq = ++group->seq;
    call->piece_bytes = ls_tcp_piece_bytes(chunk);
    call->window = input_count(group) <= 8 ? WINDOW : WINDOW_MANY;
    call->pieces = chunk_pieces(group, rank);
    call->slack = SLACK * node_count(group, rank);
    call->gated = chunk * (nodes ? LS_TREE_NODES_MAX : 1) > LS_TCP_EAGER_BYTES / 2;
    LS_ASSERT((uint64_t)call->pieces * LS_TREE_NODES_MAX < LS_TCP_PIECES_MAX &&
              (!nodes || nodes->depth < LS_TCP_DEPTH_MAX));
    LS_TRY(make_room(group));
    memset(group->here, 0, call->window * sizeof *group->here);
    for (uint32_t i = 0; i < size; i++) {
        const uint32_t theirs = chunk_pieces(group, i), own_nodes = node_count(group, rank);
        if (i == rank) {
            continue;
        }
        /* Without results, credits tell how much room there is. */
        const bool has_results = op->kind == LS_COMM_ALL_REDUCE;
        ls_tcp_call_out(group, CONTRIBUTION, i, theirs * own_nodes,
                        has_results ? call->window * own_nodes : UINT32_MAX);
        if (!has_results) {
            ls_tcp_outgoing(group, CONTRIBUTION, i)->room = call->window;
        }
        ls_tcp_call_in(group, CONTRIBUTION, i, call->pieces * node_count(group, i));
        if (has_results) {
            ls_tcp_call_out(group, RESULT, i, call->pieces, 0);
            ls_tcp_call_in(group, RESULT, i, theirs);
        }
    }
    return ls_tcp_call_run(group);
}
