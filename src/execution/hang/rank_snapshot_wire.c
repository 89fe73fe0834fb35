// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/rank_snapshot_wire.h"

#include "base/assert.h"

#include <string.h>

typedef struct wire_head {
    uint32_t version, count;
} wire_head;

typedef struct wire_snapshot {
    ls_flight_header header;
    ls_flight_now now;
    uint32_t process, comm_count, open_count, has_last, words_bytes, reserved;
} wire_snapshot;

/* An operation without the padding at its end. */
enum { OP_BYTES = offsetof(ls_rank_snapshot_op, site) + LS_FLIGHT_SITE_BYTES };

static bool is_sane(const ls_flight_comm *comm)
{
    return (comm->state == LS_FLIGHT_COMM_OPEN || comm->state == LS_FLIGHT_COMM_CLOSED) && comm->size >= 1 &&
           comm->size <= LS_COMM_SIZE_MAX && comm->rank < comm->size;
}

/* ---- out ---- */

static void encode(const ls_rank_snapshot *snapshot, ls_text *bytes)
{
    wire_snapshot wire = {.header = snapshot->header,
                          .now = snapshot->now,
                          .process = (uint32_t)snapshot->process,
                          .open_count = snapshot->open_count,
                          .has_last = snapshot->has_last,
                          .words_bytes = (uint32_t)strnlen(snapshot->words, sizeof snapshot->words - 1)};
    for (uint32_t i = 0; i < snapshot->comm_count; i++) {
        wire.comm_count += is_sane(&snapshot->comms[i]);
    }
    ls_text_append_bytes(bytes, &wire, sizeof wire);
    for (uint32_t i = 0; i < snapshot->comm_count; i++) {
        if (is_sane(&snapshot->comms[i])) { /* otherwise the rank was just filling it in */
            ls_text_append_bytes(bytes, &snapshot->comms[i], sizeof snapshot->comms[i]);
        }
    }
    for (uint32_t i = 0; i < snapshot->open_count; i++) {
        ls_text_append_bytes(bytes, &snapshot->open[i], OP_BYTES);
    }
    if (snapshot->has_last) {
        ls_text_append_bytes(bytes, &snapshot->last, OP_BYTES);
    }
    ls_text_append_bytes(bytes, snapshot->words, wire.words_bytes);
}

void ls_rank_snapshots_encode(const ls_rank_snapshot *snapshots, uint32_t count, ls_text *bytes)
{
    LS_ASSERT(count <= LS_RANK_SNAPSHOTS_MAX);
    const wire_head head = {.version = LS_RANK_SNAPSHOT_WIRE_VERSION, .count = count};
    ls_text_append_bytes(bytes, &head, sizeof head);
    for (uint32_t i = 0; i < count; i++) {
        encode(&snapshots[i], bytes);
    }
}

/* ---- in ---- */

typedef struct cursor {
    const char *at;
    size_t left;
} cursor;

static ls_status take(cursor *from, void *out, size_t bytes)
{
    if (from->left < bytes) {
        return ls_fail(
            LS_ERR_DATA,
            "a message with snapshots of ranks is cut off: %zu bytes are left where %zu are needed",
            from->left, bytes);
    }
    memcpy(out, from->at, bytes);
    from->at += bytes;
    from->left -= bytes;
    return LS_OK;
}

void ls_rank_snapshot_clean(char *text, size_t bytes, bool keep_lines)
{
    text[bytes - 1] = 0;
    for (char *at = text; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        if ((c < 0x20 && !(keep_lines && c == '\n')) || c >= 0x7f) {
            *at = '?';
        }
    }
}

static ls_status take_op(cursor *from, ls_rank_snapshot_op *op)
{
    LS_TRY(take(from, op, OP_BYTES));
    ls_rank_snapshot_clean(op->site, sizeof op->site, false);
    return LS_OK;
}

static ls_status check(const wire_snapshot *wire, uint32_t ranks)
{
    if (wire->header.rank >= ranks || wire->header.size > ranks) {
        return ls_fail(LS_ERR_DATA,
                       "a message with snapshots of ranks names rank %u of %u, but this run has %u ranks",
                       wire->header.rank, wire->header.size, ranks);
    }
    if (wire->process > LS_PROCESS_DEAD || wire->comm_count > LS_FLIGHT_COMMS ||
        wire->open_count > LS_RANK_SNAPSHOT_OPEN_MAX || wire->has_last > 1 ||
        wire->words_bytes >= LS_RANK_SNAPSHOT_WORDS_BYTES) {
        return ls_fail(
            LS_ERR_DATA,
            "a message with snapshots of ranks has a value out of range (process state %u, %u communicators, "
            "%u operations, %u bytes of last words): the hosts probably run different versions of lockstep; "
            "install the same version on all of them",
            wire->process, wire->comm_count, wire->open_count, wire->words_bytes);
    }
    return LS_OK;
}

static ls_status decode(cursor *from, uint32_t ranks, ls_rank_snapshot *snapshot)
{
    wire_snapshot wire;
    memset(snapshot, 0, sizeof *snapshot);
    LS_TRY(take(from, &wire, sizeof wire));
    LS_TRY(check(&wire, ranks));
    ls_rank_snapshot_clean(wire.header.host, sizeof wire.header.host, false);
    ls_rank_snapshot_clean(wire.header.boot_id, sizeof wire.header.boot_id, false);
    snapshot->rank = wire.header.rank;
    snapshot->has_file = true;
    snapshot->header = wire.header;
    snapshot->now = wire.now;
    snapshot->process = (ls_process_state)wire.process;
    snapshot->comm_count = wire.comm_count;
    snapshot->open_count = wire.open_count;
    snapshot->has_last = wire.has_last;
    for (uint32_t i = 0; i < wire.comm_count; i++) {
        LS_TRY(take(from, &snapshot->comms[i], sizeof snapshot->comms[i]));
        if (!is_sane(&snapshot->comms[i])) {
            return ls_fail(
                LS_ERR_DATA,
                "a message with snapshots of ranks is wrong: rank %u is number %u of %u in a communicator",
                snapshot->rank, snapshot->comms[i].rank, snapshot->comms[i].size);
        }
        ls_rank_snapshot_clean(snapshot->comms[i].name, sizeof snapshot->comms[i].name, false);
    }
    for (uint32_t i = 0; i < wire.open_count; i++) {
        LS_TRY(take_op(from, &snapshot->open[i]));
    }
    if (wire.has_last) {
        LS_TRY(take_op(from, &snapshot->last));
    }
    LS_TRY(take(from, snapshot->words, wire.words_bytes));
    ls_rank_snapshot_clean(snapshot->words, sizeof snapshot->words, true);
    return LS_OK;
}

ls_status ls_rank_snapshots_decode(const void *data, size_t bytes, uint32_t ranks, uint64_t taken_ns,
                                   ls_rank_snapshot *snapshots_out, uint32_t *count_out)
{
    cursor from = {.at = data, .left = bytes};
    wire_head head;
    LS_TRY(take(&from, &head, sizeof head));
    if (head.version != LS_RANK_SNAPSHOT_WIRE_VERSION || head.count > LS_RANK_SNAPSHOTS_MAX) {
        return ls_fail(LS_ERR_DATA,
                       "a message with snapshots of ranks has version %u and %u snapshots; expected are "
                       "version %d and at most %d snapshots: the hosts probably run different versions of "
                       "lockstep; install the same version on all of them",
                       head.version, head.count, LS_RANK_SNAPSHOT_WIRE_VERSION, LS_RANK_SNAPSHOTS_MAX);
    }
    for (uint32_t i = 0; i < head.count; i++) {
        LS_TRY(decode(&from, ranks, &snapshots_out[i]));
        snapshots_out[i].taken_ns = taken_ns;
    }
    if (from.left > 0) {
        return ls_fail(LS_ERR_DATA, "a message with snapshots of ranks has %zu bytes too many", from.left);
    }
    *count_out = head.count;
    return LS_OK;
}

/* ---- clocks ---- */

/* 0 means "not yet" and stays 0. */
static void shift(uint64_t *at_ns, int64_t ns)
{
    *at_ns = *at_ns ? *at_ns + (uint64_t)ns : 0;
}

static void shift_op(ls_rank_snapshot_op *op, int64_t ns)
{
    shift(&op->begin_ns, ns);
    shift(&op->end_ns, ns);
}

void ls_rank_snapshot_shift(ls_rank_snapshot *snapshot, int64_t ns)
{
    shift(&snapshot->taken_ns, ns);
    shift(&snapshot->now.since_ns, ns);
    shift(&snapshot->header.start_ns, ns);
    for (uint32_t i = 0; i < snapshot->open_count; i++) {
        shift_op(&snapshot->open[i], ns);
    }
    shift_op(&snapshot->last, ns);
    snapshot->header.clock_offset_ns = 0;
}
