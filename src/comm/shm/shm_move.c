// SPDX-License-Identifier: Apache-2.0
/*
 * The collectives over shared memory. There are three methods:
 *
 *   small    every rank copies its part into its slot, arrives, and takes what it needs from all
 *            slots: one synchronisation
 *   direct   buffers are in symmetric memory: ranks read each other's buffers (and write them in an
 *            all-reduce) between two arrivals
 *   staged   buffers are in ordinary memory: chunks go through the slots, one synchronisation each
 *
 * The size decides about small, the offers of all members about direct or staged. So all members
 * choose the same method.
 */
#include "comm/shm/shm.h"
#include "comm/transport/reduce.h"

#include "base/assert.h"
#include "compute/cpu/isa/reduce.h"

#include <inttypes.h>
#include <string.h>

enum {
    /* Elements; so slices of different ranks share no cache line. */
    SLICE_UNIT = 64,
    /* Block of a sum that is copied to several outputs. */
    BLOCK_BYTES = 16 << 10,
    /* If all ranks together write at least this much, stores bypass the caches. */
    STREAM_BYTES_MIN = 16 << 20,
};

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void *at(const void *base, uint64_t bytes)
{
    return (char *)(uintptr_t)base + bytes;
}

static void copy(const ls_shm *shm, void *to, const void *from, uint64_t bytes)
{
    if (bytes == 0 || to == from) {
        return;
    }
    LS_ASSERT(to && from);
    if (bytes * shm->transport.size >= STREAM_BYTES_MIN) {
        ls_comm_kernels()->copy(from, to, (int64_t)bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

/* Whether the input of a rank has a separate part for every rank. */
static bool is_per_peer(ls_comm_kind kind)
{
    return kind == LS_COMM_REDUCE_SCATTER || kind == LS_COMM_ALL_TO_ALL;
}

/* ---- through slots: small operations, and the chunks of staged ones ---- */

/* Copies elements [from, from + count) of each of this rank's parts into its slot, side by side. */
static void fill_slot(const ls_shm *shm, const ls_comm_op *op, void *slot, uint64_t from, uint64_t count)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype), bytes = count * unit;
    const uint32_t parts = is_per_peer(op->kind) ? shm->transport.size : 1;
    if (bytes == 0 || (op->kind == LS_COMM_BROADCAST && op->peer != shm->transport.rank)) {
        return;
    }
    for (uint32_t part = 0; part < parts; part++) {
        memcpy(at(slot, part * bytes), at(op->in, (part * op->count + from) * unit), bytes);
    }
}

static void reduce_slots(const ls_shm *shm, const ls_comm_op *op, uint32_t tick, uint64_t offset,
                         uint64_t count, void *out)
{
    const void *inputs[LS_COMM_SIZE_MAX];
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        inputs[rank] = shm_slot(shm, tick, rank) + offset;
    }
    ls_comm_reduce_tree(op->dtype, op->reduction, inputs, shm->transport.size, count, out);
}

/* Takes elements [from, from + count) of this rank's output from the slots of `tick`. */
static void empty_slots(const ls_shm *shm, const ls_comm_op *op, uint32_t tick, uint64_t from, uint64_t count)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype), bytes = count * unit;
    const uint32_t size = shm->transport.size, me = shm->transport.rank;
    if (bytes == 0) {
        return;
    }
    switch (op->kind) {
    case LS_COMM_ALL_REDUCE:
        reduce_slots(shm, op, tick, 0, count, at(op->out, from * unit));
        break;
    case LS_COMM_REDUCE_SCATTER:
        reduce_slots(shm, op, tick, me * bytes, count, at(op->out, from * unit));
        break;
    case LS_COMM_BROADCAST:
        if (op->peer != me) {
            memcpy(at(op->out, from * unit), shm_slot(shm, tick, op->peer), bytes);
        }
        break;
    default: /* all-gather, all-to-all */
        for (uint32_t rank = 0; rank < size; rank++) {
            const uint64_t part = is_per_peer(op->kind) ? me * bytes : 0;
            memcpy(at(op->out, (rank * op->count + from) * unit), shm_slot(shm, tick, rank) + part, bytes);
        }
        break;
    }
}

static uint64_t slot_bytes_of(const ls_shm *shm, const ls_comm_op *op)
{
    const uint64_t parts = is_per_peer(op->kind) ? shm->transport.size : 1;
    return op->count * ls_dtype_bytes(op->dtype) * parts;
}

static ls_status run_small(ls_shm *shm, ls_comm_op *op)
{
    const uint32_t tick = shm->tick + 1;
    fill_slot(shm, op, shm_slot(shm, tick, shm->transport.rank), 0, op->count);
    LS_TRY(shm_arrive(shm, op, 0, 0));
    empty_slots(shm, op, tick, 0, op->count);
    return LS_OK;
}

/* ---- staged ---- */

static ls_status run_staged(ls_shm *shm, ls_comm_op *op)
{
    const uint64_t parts = is_per_peer(op->kind) ? shm->transport.size : 1;
    const uint64_t chunk = shm->slot_bytes / parts / ls_dtype_bytes(op->dtype);
    for (uint64_t from = 0; from < op->count; from += chunk) {
        const uint64_t count = min_u64(chunk, op->count - from);
        const uint32_t tick = shm->tick + 1;
        fill_slot(shm, op, shm_slot(shm, tick, shm->transport.rank), from, count);
        LS_TRY(shm_arrive(shm, op, 0, 0));
        empty_slots(shm, op, tick, from, count);
    }
    return LS_OK;
}

/* This rank's share of `total` elements: [*from_out, *from_out + *count_out). */
static void slice_of(const ls_shm *shm, uint64_t total, uint64_t *from_out, uint64_t *count_out)
{
    const uint64_t size = shm->transport.size;
    const uint64_t share = ((total + size - 1) / size + SLICE_UNIT - 1) / SLICE_UNIT * SLICE_UNIT;
    *from_out = min_u64(total, shm->transport.rank * share);
    *count_out = min_u64(share, total - *from_out);
}

/*
 * A pipeline of three stages. In step k a rank copies chunk k into its slot, reduces its slice of
 * chunk k - 1 from the slots into the shared result, and copies chunk k - 2 out of the result; then
 * all arrive. Within a step no rank reads what another writes: slots and results exist once for
 * even and once for odd ticks.
 *
 *   step      0        1        2        3
 *   slots     write 0  write 1  write 2  ...
 *   result             sum 0    sum 1    sum 2
 *   output                      copy 0   copy 1
 */
static ls_status run_staged_all_reduce(ls_shm *shm, ls_comm_op *op)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype), chunk = shm->slot_bytes / unit;
    const uint64_t chunks = (op->count + chunk - 1) / chunk;
    for (uint64_t k = 0; k < chunks + 2; k++) {
        const uint32_t tick = shm->tick + 1; /* the arrival that ends this step */
        if (k < chunks) {
            fill_slot(shm, op, shm_slot(shm, tick, shm->transport.rank), k * chunk,
                      min_u64(chunk, op->count - k * chunk));
        }
        if (k >= 1 && k - 1 < chunks) {
            uint64_t from = 0, count = 0;
            slice_of(shm, min_u64(chunk, op->count - (k - 1) * chunk), &from, &count);
            reduce_slots(shm, op, tick - 1, from * unit, count, shm_result(shm, tick) + from * unit);
        }
        if (k >= 2) {
            const uint64_t from = (k - 2) * chunk;
            memcpy(at(op->out, from * unit), shm_result(shm, tick - 1),
                   min_u64(chunk, op->count - from) * unit);
        }
        if (k < chunks + 1) {
            LS_TRY(shm_arrive(shm, op, 0, 0));
        }
    }
    return LS_OK;
}

/* ---- direct ---- */

static void direct_all_reduce(const ls_shm *shm, const ls_comm_op *op, const void **in, void **out)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype);
    const uint32_t size = shm->transport.size;
    bool is_in_place = true;
    uint64_t from = 0, count = 0;
    slice_of(shm, op->count, &from, &count);
    for (uint32_t rank = 0; rank < size; rank++) {
        is_in_place &= in[rank] == out[rank];
        in[rank] = at(in[rank], from * unit);
        out[rank] = at(out[rank], from * unit);
    }
    if (op->dtype == LS_F32 && op->reduction == LS_COMM_SUM && size <= LS_REDUCE_INPUTS_MAX) {
        const bool stream = !is_in_place && op->count * unit * size >= STREAM_BYTES_MIN;
        ls_comm_kernels()->sum((const float *const *)in, size, (float *const *)out, size, (int64_t)count,
                               stream);
        return;
    }
    _Alignas(64) char block[BLOCK_BYTES];
    for (uint64_t done = 0; done < count; done += BLOCK_BYTES / unit) {
        const uint64_t part = min_u64(BLOCK_BYTES / unit, count - done);
        ls_comm_reduce_tree(op->dtype, op->reduction, in, size, part, block);
        for (uint32_t rank = 0; rank < size; rank++) {
            memcpy(out[rank], block, part * unit);
            in[rank] = at(in[rank], part * unit);
            out[rank] = at(out[rank], part * unit);
        }
    }
}

static void direct_work(const ls_shm *shm, const ls_comm_op *op, const void **in, void **out)
{
    const uint64_t bytes = op->count * ls_dtype_bytes(op->dtype);
    const uint32_t size = shm->transport.size, me = shm->transport.rank;
    switch (op->kind) {
    case LS_COMM_ALL_REDUCE:
        direct_all_reduce(shm, op, in, out);
        break;
    case LS_COMM_REDUCE_SCATTER:
        for (uint32_t rank = 0; rank < size; rank++) {
            in[rank] = at(in[rank], me * bytes);
        }
        ls_comm_reduce_tree(op->dtype, op->reduction, in, size, op->count, op->out);
        break;
    case LS_COMM_BROADCAST:
        if (op->peer != me) {
            copy(shm, op->out, in[op->peer], bytes);
        }
        break;
    default: /* all-gather, all-to-all: start with the next rank, so that not all read from one */
        for (uint32_t step = 1; step <= size; step++) {
            const uint32_t rank = (me + step) % size;
            const uint64_t part = is_per_peer(op->kind) ? me * bytes : 0;
            copy(shm, at(op->out, rank * bytes), at(in[rank], part), bytes);
        }
        break;
    }
}

/* Finds the buffers of all members in this process; returns false if some are in ordinary
 * memory. */
static bool resolve(const ls_shm *shm, const ls_comm_op *op, const void **in, void **out)
{
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        const shm_offer *offer = shm_offer_of(shm, rank);
        const bool is_read = op->kind != LS_COMM_BROADCAST || rank == op->peer;
        const bool is_written = op->kind == LS_COMM_ALL_REDUCE;
        if ((is_read && !offer->in) || (is_written && !offer->out)) {
            return false;
        }
        in[rank] = is_read && offer->in != SHM_NOTHING ? shm_address(shm, offer->in, rank) : NULL;
        out[rank] = is_written ? shm_address(shm, offer->out, rank) : NULL;
    }
    return true;
}

static ls_status run_large(ls_shm *shm, ls_comm_op *op)
{
    const void *in[LS_COMM_SIZE_MAX];
    void *out[LS_COMM_SIZE_MAX];
    const shm_ref in_ref = shm_ref_of(shm, op->in, slot_bytes_of(shm, op));
    const shm_ref out_ref =
        op->out == op->in ? in_ref : shm_ref_of(shm, op->out, op->count * ls_dtype_bytes(op->dtype));
    LS_TRY(shm_arrive(shm, op, in_ref, out_ref));
    if (resolve(shm, op, in, out)) {
        direct_work(shm, op, in, out);
        return shm_arrive(shm, op, 0, 0);
    }
    return op->kind == LS_COMM_ALL_REDUCE ? run_staged_all_reduce(shm, op) : run_staged(shm, op);
}

/* ---- uneven blocks ---- */

/* The table's row of `rank`: what it sends to each rank, and where that is in its input. */
static const uint64_t *counts_of(const ls_shm *shm, uint32_t tick, uint32_t rank)
{
    return shm_table(shm, tick, rank);
}

static const uint64_t *offsets_of(const ls_shm *shm, uint32_t tick, uint32_t rank)
{
    return shm_table(shm, tick, rank) + shm->transport.size;
}

static uint64_t blocks_bytes(const ls_shm *shm, const ls_comm_op *op)
{
    uint64_t end = 0;
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        const uint64_t behind = op->blocks->send_offsets[rank] + op->blocks->send_counts[rank];
        end = op->blocks->send_counts[rank] && behind > end ? behind : end;
    }
    return end * ls_dtype_bytes(op->dtype);
}

static ls_status check_blocks(ls_shm *shm, const ls_comm_op *op, uint32_t tick)
{
    const uint32_t me = shm->transport.rank;
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        const uint64_t sent = counts_of(shm, tick, rank)[me], expected = op->blocks->receive_counts[rank];
        if (sent == expected) {
            continue;
        }
        char sender[LS_COMM_WHO_BYTES], receiver[LS_COMM_WHO_BYTES];
        ls_comm_claim claim;
        memcpy(&claim, &shm->places[rank].claim, sizeof claim);
        ls_comm_member_words(&shm->transport, rank, sender);
        ls_comm_member_words(&shm->transport, me, receiver);
        return shm_judge(shm, ls_fail(LS_ERR_MISMATCH,
                                      "all_to_all_blocks (call %" PRIu64 "): %s sends %" PRIu64
                                      " elements (%.*s:%" PRIu32 "), but %s expects %" PRIu64 " (%s:%" PRIu32
                                      "); the two counts must be equal",
                                      op->seq, sender, sent, (int)sizeof claim.file - 1, claim.file,
                                      claim.line, receiver, expected, op->site.file, op->site.line));
    }
    return LS_OK;
}

static uint64_t largest_block(const ls_shm *shm, uint32_t tick)
{
    uint64_t most = 0;
    for (uint32_t from = 0; from < shm->transport.size; from++) {
        const uint64_t *counts = counts_of(shm, tick, from);
        for (uint32_t to = 0; to < shm->transport.size; to++) {
            most = counts[to] > most ? counts[to] : most;
        }
    }
    return most;
}

static ls_status run_blocks_staged(ls_shm *shm, ls_comm_op *op, uint32_t table_tick)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype), most = largest_block(shm, table_tick);
    const uint32_t size = shm->transport.size, me = shm->transport.rank;
    const uint64_t chunk = shm->slot_bytes / size / unit;
    const ls_comm_blocks *blocks = op->blocks;
    for (uint64_t from = 0; from < most; from += chunk) {
        const uint32_t tick = shm->tick + 1;
        for (uint32_t rank = 0; rank < size; rank++) {
            if (blocks->send_counts[rank] > from) {
                memcpy(shm_slot(shm, tick, me) + rank * chunk * unit,
                       at(op->in, (blocks->send_offsets[rank] + from) * unit),
                       min_u64(chunk, blocks->send_counts[rank] - from) * unit);
            }
        }
        LS_TRY(shm_arrive(shm, op, 0, 0));
        for (uint32_t rank = 0; rank < size; rank++) {
            if (blocks->receive_counts[rank] > from) {
                memcpy(at(op->out, (blocks->receive_offsets[rank] + from) * unit),
                       shm_slot(shm, tick, rank) + me * chunk * unit,
                       min_u64(chunk, blocks->receive_counts[rank] - from) * unit);
            }
        }
    }
    return LS_OK;
}

static ls_status run_blocks(ls_shm *shm, ls_comm_op *op)
{
    const uint64_t unit = ls_dtype_bytes(op->dtype);
    const uint32_t size = shm->transport.size, me = shm->transport.rank, tick = shm->tick + 1;
    const void *in[LS_COMM_SIZE_MAX];
    void *out[LS_COMM_SIZE_MAX];
    uint64_t *row = shm_table(shm, tick, me);
    memcpy(row, op->blocks->send_counts, size * sizeof *row);
    memcpy(row + size, op->blocks->send_offsets, size * sizeof *row);
    const uint64_t bytes = blocks_bytes(shm, op);
    LS_TRY(shm_arrive(shm, op, bytes ? shm_ref_of(shm, op->in, bytes) : SHM_NOTHING, 0));
    const bool is_direct = resolve(shm, op, in, out);
    LS_TRY(check_blocks(shm, op, tick));
    if (is_direct) {
        for (uint32_t step = 1; step <= size; step++) {
            const uint32_t rank = (me + step) % size;
            if (op->blocks->receive_counts[rank]) {
                copy(shm, at(op->out, op->blocks->receive_offsets[rank] * unit),
                     at(in[rank], offsets_of(shm, tick, rank)[me] * unit),
                     op->blocks->receive_counts[rank] * unit);
            }
        }
    } else {
        LS_TRY(run_blocks_staged(shm, op, tick));
    }
    return shm_arrive(shm, op, 0, 0); /* after this no rank reads the table or the inputs */
}

ls_status shm_run_collective(ls_shm *shm, ls_comm_op *op)
{
    if (op->kind == LS_COMM_BARRIER) {
        return shm_arrive(shm, op, 0, 0);
    }
    if (op->kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        return run_blocks(shm, op);
    }
    return slot_bytes_of(shm, op) <= shm->small_bytes ? run_small(shm, op) : run_large(shm, op);
}
