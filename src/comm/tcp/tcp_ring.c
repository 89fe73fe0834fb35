// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions in any order, round a ring.
 *
 * The data is cut into one chunk per member. In every step a member sends a chunk to its right
 * neighbour and receives from its left neighbour the chunk that it sends in the next step:
 *
 *   step             0     1   ...  N - 2   N - 1  ...  2N - 3
 *   rank r sends     r   r - 1 ...  r + 2 | r + 1  ...  r + 3        chunk (r - step) mod N
 *                  own   partial sums     | whole sums
 *                  SCATTER                | GATHER
 *
 * A piece of a step may be sent as soon as the same piece of the step before has arrived and been
 * added to, so steps overlap. A reduce-scatter is the first half, shifted by one chunk so that each
 * member ends with its own. The order in which a sum adds the ranks depends only on the chunk, so
 * all ranks, and all runs with the same number of ranks, get the same bits.
 *
 * Partial sums are kept in scratch, not in the output. A whole sum proves that all members agree
 * about the call, since each has compared its left neighbour's fingerprint; only then is the output
 * written. To limit the scratch, the ring is traversed once per block of WIDTH pieces of each
 * chunk. Messages of both phases are numbered in the order of sending: by block, step and piece.
 * Message m, after the addition, becomes message m + width of the next step.
 *
 * A slot of scratch is free again when its content has been sent on; credits tell the left
 * neighbour. Why this cannot deadlock: take a member that has sent least, say all messages before
 * m. Its left neighbour has sent those too, so the data from which m is made has arrived. Its right
 * neighbour has also sent those; so there the slots of all messages before m - WIDTH are free, and
 * credits for all but CREDIT of them have been sent: there is room for m.
 *
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", 2009.
 */
#include "comm/tcp/tcp_mesh.h"

#include "base/assert.h"

enum {
    /* Pieces of a chunk in a block. */
    WIDTH = 16,
    /* Twice as many, so that the next step or block can arrive while this one is being sent. */
    SLOTS = 2 * WIDTH,
    /* Slots for which one credit is sent. */
    CREDIT = WIDTH / 2,
};
_Static_assert(SLOTS > WIDTH + CREDIT, "the ring would deadlock");

enum { SCATTER, GATHER };

typedef struct place {
    /* Step of the phase: 0 to N - 2. */
    uint32_t step;
    /* Piece of the chunk. */
    uint32_t piece;
    /* Pieces of the block. */
    uint32_t width;
} place;

/* Which piece message `number` is. The last block may be narrower. */
static place place_of(const ls_tcp_group *group, uint32_t number)
{
    const uint32_t whole = (group->base.size - 1) * WIDTH, rest = number % whole;
    const uint32_t first = number / whole * WIDTH, left = group->call.pieces - first;
    const uint32_t width = left < WIDTH ? left : WIDTH;
    return (place){.step = rest / width, .piece = first + rest % width, .width = width};
}

static uint32_t left_of(const ls_tcp_group *group)
{
    return (group->base.rank + group->base.size - 1) % group->base.size;
}

static uint32_t right_of(const ls_tcp_group *group)
{
    return (group->base.rank + 1) % group->base.size;
}

/* The chunk that this rank sends in step 0 to 2N - 3 of both phases, and has received in the step
 * before. */
static uint32_t chunk_at(const ls_tcp_group *group, uint32_t step)
{
    const uint32_t size = group->base.size, lead = group->call.op->kind == LS_COMM_REDUCE_SCATTER;
    return (group->base.rank + 2 * size - step - lead) % size;
}

/* Where a piece of a chunk is in the data. Pieces after the end of a chunk are empty. */
static ls_tcp_span piece_of(const ls_tcp_group *group, uint32_t chunk, uint32_t piece, const void *data)
{
    const uint64_t bytes = group->call.piece_bytes, end = ls_tcp_chunk_begin(group, chunk + 1);
    const uint64_t from = ls_tcp_chunk_begin(group, chunk) + piece * bytes;
    const uint64_t at = from < end ? from : end, left = end - at;
    return (ls_tcp_span){.data = (uint8_t *)(uintptr_t)data + at, .bytes = left < bytes ? left : bytes};
}

static uint8_t *slot(const ls_tcp_group *group, uint32_t number)
{
    return group->scratch + number % SLOTS * group->call.piece_bytes;
}

static ls_tcp_span source(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t number)
{
    (void)member;
    const place p = place_of(group, number);
    if (phase == GATHER) {
        return piece_of(group, chunk_at(group, group->base.size - 1 + p.step), p.piece, group->call.op->out);
    }
    ls_tcp_span span = piece_of(group, chunk_at(group, p.step), p.piece, group->call.op->in);
    if (p.step > 0) {
        span.data = slot(group, number - p.width);
    }
    return span;
}

static ls_tcp_span target(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t number)
{
    (void)member;
    const place p = place_of(group, number);
    if (phase == GATHER) {
        return piece_of(group, chunk_at(group, group->base.size + p.step), p.piece, group->call.op->out);
    }
    if (number < group->call.reduced || number >= group->call.freed + SLOTS) {
        return (ls_tcp_span){.bytes = UINT64_MAX};
    }
    ls_tcp_span span = piece_of(group, chunk_at(group, p.step + 1), p.piece, group->call.op->in);
    span.data = slot(group, number);
    return span;
}

/* Adds this rank's data to what has arrived: in its slot, and in the last step into the output. */
static void add_piece(ls_tcp_group *group, uint32_t number)
{
    const ls_comm_op *op = group->call.op;
    const place p = place_of(group, number);
    const uint32_t chunk = chunk_at(group, p.step + 1);
    const ls_tcp_span own = piece_of(group, chunk, p.piece, op->in);
    const void *pair[2] = {slot(group, number), own.data};
    void *to = slot(group, number);
    if (own.bytes == 0) {
        return;
    }
    if (p.step == group->base.size - 2) {
        to = op->kind == LS_COMM_REDUCE_SCATTER ? (uint8_t *)op->out + p.piece * group->call.piece_bytes
                                                : piece_of(group, chunk, p.piece, op->out).data;
    }
    ls_comm_reduce_tree(op->dtype, op->reduction, pair, 2, own.bytes / group->call.element_bytes, to);
}

/* Whether message `number` is ready to be sent. This rank's own data always is; other messages are
 * made from the message `width` before, and the first step of GATHER from the last of SCATTER. */
static bool is_made(const ls_tcp_group *group, uint32_t phase, uint32_t number)
{
    const place p = place_of(group, number);
    if (p.step > 0) {
        const uint32_t here =
            phase == SCATTER ? group->call.reduced : ls_tcp_in(group, GATHER, left_of(group))->done;
        return number - p.width < here;
    }
    return phase == SCATTER || number + (group->base.size - 2) * p.width < group->call.reduced;
}

static void raise_limit(ls_tcp_group *group, uint32_t phase)
{
    ls_tcp_stream *out = ls_tcp_outgoing(group, phase, right_of(group));
    while (out->limit < out->pieces && is_made(group, phase, out->limit)) {
        out->limit++;
    }
}

/* Slots whose sums have been sent, or written to the output, may be filled again. */
static void free_slots(ls_tcp_group *group)
{
    ls_tcp_call *call = &group->call;
    const uint32_t sent = ls_tcp_outgoing(group, SCATTER, right_of(group))->done;
    while (call->freed < call->reduced) {
        const place p = place_of(group, call->freed);
        if (p.step < group->base.size - 2 && call->freed + p.width >= sent) {
            break;
        }
        call->freed++;
    }
    const uint32_t pieces = ls_tcp_in(group, SCATTER, left_of(group))->pieces;
    if (call->freed >= call->credited + CREDIT && call->credited + SLOTS < pieces) {
        call->credited = call->freed;
        ls_tcp_call_credit(group, left_of(group), call->credited);
    }
}

/* Adds one piece at a time, so that its sum is sent before the next is computed. */
static bool advance(ls_tcp_group *group)
{
    ls_tcp_call *call = &group->call;
    const ls_tcp_stream *in = ls_tcp_in(group, SCATTER, left_of(group));
    if (call->reduced < in->done) {
        add_piece(group, call->reduced++);
        group->mesh->moves++;
    }
    raise_limit(group, SCATTER);
    raise_limit(group, GATHER); /* a reduce-scatter has no pieces there */
    free_slots(group);
    return call->reduced == in->pieces;
}

static const ls_tcp_plan ring_plan = {.source = source, .target = target, .advance = advance};

static uint64_t largest_chunk(const ls_tcp_group *group)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < group->base.size; i++) {
        const uint64_t bytes = ls_tcp_chunk_begin(group, i + 1) - ls_tcp_chunk_begin(group, i);
        most = bytes > most ? bytes : most;
    }
    return most;
}

ls_status ls_tcp_ring(ls_tcp_group *group, ls_comm_op *op)
{
    ls_tcp_call_begin(group, op, &ring_plan, LS_TCP_GROUP);
    ls_tcp_call *call = &group->call;
    const uint32_t left = left_of(group), right = right_of(group);
    const uint64_t chunk = largest_chunk(group);
    call->seq = ++group->seq;
    call->gated = true;
    call->all_meet = true;
    call->window = SLOTS;
    call->piece_bytes = ls_tcp_piece_bytes(chunk);
    const uint64_t pieces = (chunk + call->piece_bytes - 1) / call->piece_bytes;
    const uint64_t messages = pieces * (group->base.size - 1);
    LS_ASSERT(pieces > 0 && messages < LS_TCP_PIECES_MAX);
    call->pieces = (uint32_t)pieces;
    LS_TRY(ls_tcp_scratch(group, SLOTS * call->piece_bytes));
    ls_tcp_call_out(group, SCATTER, right, (uint32_t)messages, 0);
    ls_tcp_outgoing(group, SCATTER, right)->room = SLOTS;
    ls_tcp_call_in(group, SCATTER, left, (uint32_t)messages);
    if (op->kind == LS_COMM_ALL_REDUCE) {
        ls_tcp_call_out(group, GATHER, right, (uint32_t)messages, 0);
        ls_tcp_call_in(group, GATHER, left, (uint32_t)messages);
    }
    return ls_tcp_call_run(group);
}
