// SPDX-License-Identifier: Apache-2.0
/* The calls of include/lockstep/comm.h: each is checked, numbered, recorded, and passed to the
 * group's transport. */
#include "comm/group/comm_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "compute/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t ls_comm_rank(const ls_comm *comm)
{
    return comm->rank;
}

void ls_comm_in_background(ls_comm *comm)
{
    const uint64_t years_ns = UINT64_C(1) << 60;
    comm->in_background = true;
    comm->timeout_ns = years_ns;
}

uint32_t ls_comm_size(const ls_comm *comm)
{
    return comm->size;
}

uint32_t ls_comm_local_rank(const ls_comm *comm)
{
    return comm->local_rank;
}

uint32_t ls_comm_local_size(const ls_comm *comm)
{
    return comm->local_size;
}

uint32_t ls_comm_host(const ls_comm *comm, uint32_t rank)
{
    LS_ASSERT(rank < comm->size);
    return comm->members[rank].host;
}

uint32_t ls_comm_host_count(const ls_comm *comm)
{
    return comm->host_count;
}

/* ---- failure: the first reason is kept ---- */

ls_status ls_comm_keep_reason(ls_comm *comm, ls_status status)
{
    if (comm->failed == LS_OK) {
        snprintf(comm->reason, sizeof comm->reason, "%s", ls_error_text());
        comm->failed = status;
        if (!comm->in_background) {
            ls_flight_last_words(comm->reason);
        }
    }
    return status;
}

static ls_status check_alive(const ls_comm *comm)
{
    for (const ls_comm *at = comm; at; at = at->parent) {
        if (at->failed != LS_OK) {
            return ls_fail(at->failed, "%s", at->reason);
        }
    }
    return LS_OK;
}

/* ---- checks: an invalid call is refused before other ranks see it ---- */

static ls_status fail_call(const ls_comm_op *op, const char *what)
{
    return ls_fail(LS_ERR_INVALID, "%s at %s:%" PRIu32 ": %s", ls_comm_kind_name(op->kind), op->site.file,
                   op->site.line, what);
}

static ls_status check_aligned(const ls_comm_op *op, const void *buffer, const char *name, bool is_used)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype);
    if (is_used && !buffer) {
        return ls_fail(LS_ERR_INVALID, "%s at %s:%" PRIu32 ": `%s` is NULL, but there is data to move",
                       ls_comm_kind_name(op->kind), op->site.file, op->site.line, name);
    }
    if (is_used && (uintptr_t)buffer % unit != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%s at %s:%" PRIu32 ": the address of `%s` is %p; it must be a multiple of %" PRIu64
                       ", the size of an element of type %s",
                       ls_comm_kind_name(op->kind), op->site.file, op->site.line, name, buffer, unit,
                       ls_dtype_name(op->dtype));
    }
    return LS_OK;
}

static ls_status check_buffer(const ls_comm_op *op, const void *buffer, const char *name)
{
    return check_aligned(op, buffer, name, op->count > 0);
}

static bool reduces(ls_comm_kind kind)
{
    return kind == LS_COMM_ALL_REDUCE || kind == LS_COMM_REDUCE_SCATTER;
}

static ls_status check_types(const ls_comm_op *op)
{
    if ((unsigned)op->dtype >= LS_DTYPE_COUNT) {
        return fail_call(op, "unknown element type; allowed are f32, bf16, f16, i32, i64, u8");
    }
    if (reduces(op->kind) && op->dtype == LS_U8) {
        return fail_call(op, "u8 can be moved but not reduced; use i32");
    }
    if (reduces(op->kind) && (unsigned)op->reduction > LS_COMM_MIN) {
        return fail_call(op, "unknown reduction; allowed are sum, max, min");
    }
    return LS_OK;
}

static ls_status check_op(const ls_comm *comm, const ls_comm_op *op, const ls_queue *queue)
{
    const uint64_t count_max = (uint64_t)1 << 60;
    LS_ASSERT(comm->size > 0);
    LS_TRY(check_types(op));
    if (op->count > count_max / comm->size / ls_dtype_bytes(op->dtype)) {
        return fail_call(op, "count is more than memory can hold");
    }
    if (op->peer != UINT32_MAX && op->peer >= comm->size) {
        return ls_fail(LS_ERR_INVALID, "%s at %s:%" PRIu32 ": rank %" PRIu32 " is outside 0..%" PRIu32,
                       ls_comm_kind_name(op->kind), op->site.file, op->site.line, op->peer, comm->size - 1);
    }
    if ((op->kind == LS_COMM_SEND || op->kind == LS_COMM_RECEIVE) && op->peer == comm->rank) {
        return fail_call(op, "a rank can't send to itself");
    }
    if (queue && ls_queue_device(queue) != LS_DEVICE_CPU) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s at %s:%" PRIu32 ": only CPU queues are supported so far",
                       ls_comm_kind_name(op->kind), op->site.file, op->site.line);
    }
    return LS_OK;
}

/* ---- one member: everything is a copy ---- */

static void copy_if_apart(void *out, const void *in, uint64_t bytes)
{
    if (bytes && out != in) {
        LS_ASSERT(in && out);
        memmove(out, in, bytes);
    }
}

static ls_status run_alone(ls_comm_op *op)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype);
    if (op->kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        const ls_comm_blocks *blocks = op->blocks;
        if (blocks->send_counts[0] != blocks->receive_counts[0]) {
            return ls_fail(LS_ERR_MISMATCH,
                           "all_to_all_blocks at %s:%" PRIu32 ": the rank sends itself %" PRIu64
                           " elements but expects %" PRIu64 ": the two numbers must be equal",
                           op->site.file, op->site.line, blocks->send_counts[0], blocks->receive_counts[0]);
        }
        copy_if_apart((char *)op->out + blocks->receive_offsets[0] * unit,
                      (const char *)op->in + blocks->send_offsets[0] * unit, blocks->send_counts[0] * unit);
    } else if (op->kind != LS_COMM_BROADCAST && op->kind != LS_COMM_BARRIER) {
        copy_if_apart(op->out, op->in, op->count * unit);
    }
    return LS_OK;
}

/* ---- the path of every call ---- */

/* Sends and receives are numbered per pair, so that ranks outside the pair stay in step. */
static uint64_t next_seq(ls_comm *comm, const ls_comm_op *op)
{
    switch (op->kind) {
    case LS_COMM_SEND:
        return ++comm->sent_count[op->peer];
    case LS_COMM_RECEIVE:
        return ++comm->received_count[op->peer];
    default:
        return ++comm->seq;
    }
}

static ls_status run_recorded(ls_comm *comm, ls_comm_op *op, ls_status (*run)(ls_transport *, ls_comm_op *))
{
    op->seq = next_seq(comm, op);
    op->fingerprint = ls_comm_fingerprint(op);
    op->last_rank = UINT32_MAX;
    const uint64_t now_ns = ls_clock_monotonic_ns();
    op->deadline_ns = now_ns + comm->timeout_ns;
    const ls_flight_call call = {
        .seq = op->seq,
        .fingerprint = op->fingerprint,
        .count = op->count,
        .begin_ns = now_ns,
        .comm_id = comm->id,
        .peer = op->peer,
        .site = ls_flight_site(op->site.file, op->site.line),
        .kind = (uint8_t)(op->flags & LS_COMM_FLAG_SPLIT ? LS_COMM_SPLIT : op->kind),
        .dtype = (uint8_t)op->dtype,
        .reduction = (uint8_t)op->reduction,
        .slot = comm->flight_slot,
    };
    ls_flight_record *record = comm->in_background ? NULL : ls_flight_begin(&call);
    const ls_status status = run(comm->transport, op);
    ls_flight_end(record, 0, op->last_rank, op->wait_ns, status);
    comm->stats.calls++;
    /* A failed allocation does not make the group fail: all members got the same answer. */
    return status == LS_OK || status == LS_ERR_MEMORY ? status : ls_comm_keep_reason(comm, status);
}

static ls_status run_op(ls_comm *comm, ls_comm_op *op, const ls_queue *queue)
{
    LS_TRY(check_alive(comm));
    LS_TRY(check_op(comm, op, queue));
    op->flags |= comm->flags & LS_COMM_ANY_ORDER;
    comm->stats.payload_bytes += op->count * ls_dtype_bytes(op->dtype);
    if (!comm->transport) {
        comm->stats.calls++;
        return run_alone(op);
    }
    return run_recorded(comm, op, comm->transport->calls->run);
}

/* Checks the buffers of a call in which each rank has `count` elements, and runs it. */
static ls_status run_even(ls_comm *comm, ls_comm_op op, const ls_queue *queue)
{
    LS_TRY(check_types(&op));
    LS_TRY(op.kind == LS_COMM_RECEIVE ? LS_OK : check_buffer(&op, op.in, "in"));
    LS_TRY(op.kind == LS_COMM_SEND ? LS_OK : check_buffer(&op, op.out, "out"));
    return run_op(comm, &op, queue);
}

/* UINT32_MAX stands for "no peer" inside; as an argument it is just another invalid rank. */
static uint32_t peer_given(const ls_comm *comm, uint32_t peer)
{
    return peer == UINT32_MAX ? comm->size : peer;
}

ls_status ls_comm_all_reduce_at(ls_comm *comm, const void *in, void *out, uint64_t count, ls_dtype dtype,
                                ls_comm_reduction reduction, ls_queue *queue, ls_comm_site site)
{
    const ls_comm_op op = {.kind = LS_COMM_ALL_REDUCE,
                           .dtype = dtype,
                           .reduction = reduction,
                           .peer = UINT32_MAX,
                           .in = in,
                           .out = out,
                           .count = count,
                           .site = site};
    return run_even(comm, op, queue);
}

ls_status ls_comm_reduce_scatter_at(ls_comm *comm, const void *in, void *out, uint64_t count, ls_dtype dtype,
                                    ls_comm_reduction reduction, ls_queue *queue, ls_comm_site site)
{
    const ls_comm_op op = {.kind = LS_COMM_REDUCE_SCATTER,
                           .dtype = dtype,
                           .reduction = reduction,
                           .peer = UINT32_MAX,
                           .in = in,
                           .out = out,
                           .count = count,
                           .site = site};
    return run_even(comm, op, queue);
}

ls_status ls_comm_all_gather_at(ls_comm *comm, const void *in, void *out, uint64_t count, ls_dtype dtype,
                                ls_queue *queue, ls_comm_site site)
{
    const ls_comm_op op = {.kind = LS_COMM_ALL_GATHER,
                           .dtype = dtype,
                           .peer = UINT32_MAX,
                           .in = in,
                           .out = out,
                           .count = count,
                           .site = site};
    return run_even(comm, op, queue);
}

ls_status ls_comm_broadcast_at(ls_comm *comm, void *data, uint64_t count, ls_dtype dtype, uint32_t root,
                               ls_queue *queue, ls_comm_site site)
{
    const ls_comm_op op = {.kind = LS_COMM_BROADCAST,
                           .dtype = dtype,
                           .peer = peer_given(comm, root),
                           .in = data,
                           .out = data,
                           .count = count,
                           .site = site};
    return run_even(comm, op, queue);
}

ls_status ls_comm_all_to_all_at(ls_comm *comm, const void *in, void *out, uint64_t count, ls_dtype dtype,
                                ls_queue *queue, ls_comm_site site)
{
    const ls_comm_op op = {.kind = LS_COMM_ALL_TO_ALL,
                           .dtype = dtype,
                           .peer = UINT32_MAX,
                           .in = in,
                           .out = out,
                           .count = count,
                           .site = site};
    if (in == out && count > 0) {
        return fail_call(&op, "`in` and `out` must not overlap");
    }
    return run_even(comm, op, queue);
}

ls_status ls_comm_all_to_all_blocks_at(ls_comm *comm, const void *in, void *out, const ls_comm_blocks *blocks,
                                       ls_dtype dtype, ls_queue *queue, ls_comm_site site)
{
    LS_ASSERT(blocks && blocks->send_counts && blocks->send_offsets && blocks->receive_counts &&
              blocks->receive_offsets);
    bool sends = false, receives = false;
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        sends |= blocks->send_counts[rank] > 0;
        receives |= blocks->receive_counts[rank] > 0;
    }
    /* `count` stays 0: the counts differ between members, and transports compare them pair by
     * pair. */
    ls_comm_op op = {.kind = LS_COMM_ALL_TO_ALL_BLOCKS,
                     .dtype = dtype,
                     .peer = UINT32_MAX,
                     .in = in,
                     .out = out,
                     .blocks = blocks,
                     .site = site};
    LS_TRY(check_types(&op));
    LS_TRY(check_aligned(&op, in, "in", sends));
    LS_TRY(check_aligned(&op, out, "out", receives));
    return run_op(comm, &op, queue);
}

ls_status ls_comm_send_at(ls_comm *comm, const void *data, uint64_t count, ls_dtype dtype, uint32_t to,
                          ls_queue *queue, ls_comm_site site)
{
    const ls_comm_op op = {.kind = LS_COMM_SEND,
                           .dtype = dtype,
                           .peer = peer_given(comm, to),
                           .in = data,
                           .count = count,
                           .site = site};
    return run_even(comm, op, queue);
}

ls_status ls_comm_receive_at(ls_comm *comm, void *data, uint64_t count, ls_dtype dtype, uint32_t from,
                             ls_queue *queue, ls_comm_site site)
{
    const ls_comm_op op = {.kind = LS_COMM_RECEIVE,
                           .dtype = dtype,
                           .peer = peer_given(comm, from),
                           .out = data,
                           .count = count,
                           .site = site};
    return run_even(comm, op, queue);
}

ls_status ls_comm_barrier_at(ls_comm *comm, ls_queue *queue, ls_comm_site site)
{
    ls_comm_op op = {.kind = LS_COMM_BARRIER, .dtype = LS_U8, .peer = UINT32_MAX, .site = site};
    return run_op(comm, &op, queue);
}

ls_status ls_comm_gather_for_split(ls_comm *comm, const void *in, void *out, uint64_t bytes)
{
    ls_comm_op op = {.kind = LS_COMM_ALL_GATHER,
                     .dtype = LS_U8,
                     .flags = LS_COMM_FLAG_SPLIT,
                     .peer = UINT32_MAX,
                     .in = in,
                     .out = out,
                     .count = bytes,
                     .site = {.file = "ls_comm_split"}};
    return run_op(comm, &op, NULL);
}

/* ---- memory ---- */

static void *alloc_alone(ls_comm *comm, uint64_t bytes)
{
    void **blocks = realloc(comm->blocks, (comm->block_count + 1) * sizeof *blocks);
    if (!blocks) {
        (void)ls_fail(LS_ERR_MEMORY,
                      "not enough memory to keep account of an allocation of %" PRIu64 " bytes", bytes);
        return NULL;
    }
    comm->blocks = blocks;
    const uint64_t rounded = (bytes + 63) / 64 * 64;
    void *memory = bytes <= SIZE_MAX / 2 ? aligned_alloc(64, rounded ? rounded : 64) : NULL;
    if (!memory) {
        (void)ls_fail(LS_ERR_MEMORY, "can't allocate %" PRIu64 " bytes: not enough memory", bytes);
        return NULL;
    }
    memset(memory, 0, rounded);
    comm->blocks[comm->block_count++] = memory;
    return memory;
}

void *ls_comm_alloc(ls_comm *comm, uint64_t bytes)
{
    if (check_alive(comm) != LS_OK) {
        return NULL;
    }
    if (!comm->transport || !comm->transport->calls->alloc) {
        return alloc_alone(comm, bytes);
    }
    ls_comm_op op = {.kind = LS_COMM_ALLOC,
                     .dtype = LS_U8,
                     .peer = UINT32_MAX,
                     .count = bytes,
                     .site = {.file = "ls_comm_alloc"}};
    return run_recorded(comm, &op, comm->transport->calls->alloc) == LS_OK ? op.out : NULL;
}

void ls_comm_free(ls_comm *comm, void *memory)
{
    if (!memory || check_alive(comm) != LS_OK) {
        return; /* ls_comm_close frees it */
    }
    for (uint32_t i = 0; i < comm->block_count; i++) {
        if (comm->blocks[i] == memory) {
            free(memory);
            comm->blocks[i] = comm->blocks[--comm->block_count];
            return;
        }
    }
    LS_ASSERT(comm->transport && comm->transport->calls->release);
    ls_comm_op op = {.kind = LS_COMM_ALLOC,
                     .dtype = LS_U8,
                     .peer = UINT32_MAX,
                     .in = memory,
                     .site = {.file = "ls_comm_free"}};
    /* A failure is kept as the communicator's reason. */
    (void)run_recorded(comm, &op, comm->transport->calls->release);
}

/* ---- the rest ---- */

void ls_comm_abort(ls_comm *comm, const char *reason)
{
    if (comm->transport) {
        /* The next call of this rank gets the reason from the transport. */
        comm->transport->calls->abort(comm->transport, LS_ERR_FAILED, reason);
    } else {
        (void)ls_comm_keep_reason(comm, ls_fail(LS_ERR_FAILED, "%s", reason));
    }
}

void ls_comm_get_stats(const ls_comm *comm, ls_comm_stats *stats_out)
{
    *stats_out = comm->stats;
    if (comm->transport && comm->transport->calls->stats) {
        comm->transport->calls->stats(comm->transport, stats_out);
    }
}
