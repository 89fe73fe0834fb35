// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/sight_wire.h"

#include "base/assert.h"

#include <string.h>

typedef struct wire_head {
    uint32_t version, count;
} wire_head;

typedef struct wire_sight {
    ls_flight_header header;
    ls_flight_now now;
    uint32_t process, comm_count, open_count, has_last, words_bytes, reserved;
} wire_sight;

/* An operation without the padding behind it. */
enum { OP_BYTES = offsetof(ls_sight_op, site) + LS_FLIGHT_SITE_BYTES };

static bool is_sane(const ls_flight_comm *comm)
{
    return (comm->state == LS_FLIGHT_COMM_OPEN || comm->state == LS_FLIGHT_COMM_CLOSED) && comm->size >= 1 &&
           comm->size <= LS_COMM_SIZE_MAX && comm->rank < comm->size;
}

/* ---- out ---- */

static void encode(const ls_sight *sight, ls_text *bytes)
{
    wire_sight wire = {.header = sight->header,
                       .now = sight->now,
                       .process = (uint32_t)sight->process,
                       .open_count = sight->open_count,
                       .has_last = sight->has_last,
                       .words_bytes = (uint32_t)strnlen(sight->words, sizeof sight->words - 1)};
    for (uint32_t i = 0; i < sight->comm_count; i++) {
        wire.comm_count += is_sane(&sight->comms[i]);
    }
    ls_text_append_bytes(bytes, &wire, sizeof wire);
    for (uint32_t i = 0; i < sight->comm_count; i++) {
        if (is_sane(&sight->comms[i])) { /* else it was being filled in */
            ls_text_append_bytes(bytes, &sight->comms[i], sizeof sight->comms[i]);
        }
    }
    for (uint32_t i = 0; i < sight->open_count; i++) {
        ls_text_append_bytes(bytes, &sight->open[i], OP_BYTES);
    }
    if (sight->has_last) {
        ls_text_append_bytes(bytes, &sight->last, OP_BYTES);
    }
    ls_text_append_bytes(bytes, sight->words, wire.words_bytes);
}

void ls_sights_encode(const ls_sight *sights, uint32_t count, ls_text *bytes)
{
    LS_ASSERT(count <= LS_SIGHTS_MAX);
    const wire_head head = {.version = LS_SIGHT_WIRE_VERSION, .count = count};
    ls_text_append_bytes(bytes, &head, sizeof head);
    for (uint32_t i = 0; i < count; i++) {
        encode(&sights[i], bytes);
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
        return ls_fail(LS_ERR_DATA, "sights: %zu bytes are left where %zu belong", from->left, bytes);
    }
    memcpy(out, from->at, bytes);
    from->at += bytes;
    from->left -= bytes;
    return LS_OK;
}

void ls_sight_clean(char *text, size_t bytes, bool keep_lines)
{
    text[bytes - 1] = 0;
    for (char *at = text; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        if ((c < 0x20 && !(keep_lines && c == '\n')) || c >= 0x7f) {
            *at = '?';
        }
    }
}

static ls_status take_op(cursor *from, ls_sight_op *op)
{
    LS_TRY(take(from, op, OP_BYTES));
    ls_sight_clean(op->site, sizeof op->site, false);
    return LS_OK;
}

static ls_status check(const wire_sight *wire, uint32_t ranks)
{
    if (wire->header.rank >= ranks || wire->header.size > ranks) {
        return ls_fail(LS_ERR_DATA, "sights: of rank %u of %u in a run of %u", wire->header.rank,
                       wire->header.size, ranks);
    }
    if (wire->process > LS_PROCESS_DEAD || wire->comm_count > LS_FLIGHT_COMMS ||
        wire->open_count > LS_SIGHT_OPEN_MAX || wire->has_last > 1 ||
        wire->words_bytes >= LS_SIGHT_WORDS_BYTES) {
        return ls_fail(LS_ERR_DATA,
                       "sights: process state %u, %u communicators, %u operations, %u bytes of words: out of "
                       "range",
                       wire->process, wire->comm_count, wire->open_count, wire->words_bytes);
    }
    return LS_OK;
}

static ls_status decode(cursor *from, uint32_t ranks, ls_sight *sight)
{
    wire_sight wire;
    memset(sight, 0, sizeof *sight);
    LS_TRY(take(from, &wire, sizeof wire));
    LS_TRY(check(&wire, ranks));
    ls_sight_clean(wire.header.host, sizeof wire.header.host, false);
    ls_sight_clean(wire.header.boot_id, sizeof wire.header.boot_id, false);
    sight->rank = wire.header.rank;
    sight->has_file = true;
    sight->header = wire.header;
    sight->now = wire.now;
    sight->process = (ls_process_state)wire.process;
    sight->comm_count = wire.comm_count;
    sight->open_count = wire.open_count;
    sight->has_last = wire.has_last;
    for (uint32_t i = 0; i < wire.comm_count; i++) {
        LS_TRY(take(from, &sight->comms[i], sizeof sight->comms[i]));
        if (!is_sane(&sight->comms[i])) {
            return ls_fail(LS_ERR_DATA, "sights: rank %u in a communicator as number %u of %u", sight->rank,
                           sight->comms[i].rank, sight->comms[i].size);
        }
        ls_sight_clean(sight->comms[i].name, sizeof sight->comms[i].name, false);
    }
    for (uint32_t i = 0; i < wire.open_count; i++) {
        LS_TRY(take_op(from, &sight->open[i]));
    }
    if (wire.has_last) {
        LS_TRY(take_op(from, &sight->last));
    }
    LS_TRY(take(from, sight->words, wire.words_bytes));
    ls_sight_clean(sight->words, sizeof sight->words, true);
    return LS_OK;
}

ls_status ls_sights_decode(const void *data, size_t bytes, uint32_t ranks, uint64_t taken_ns,
                           ls_sight *sights_out, uint32_t *count_out)
{
    cursor from = {.at = data, .left = bytes};
    wire_head head;
    LS_TRY(take(&from, &head, sizeof head));
    if (head.version != LS_SIGHT_WIRE_VERSION || head.count > LS_SIGHTS_MAX) {
        return ls_fail(LS_ERR_DATA, "sights: version %u, %u of them; known is version %d with at most %d",
                       head.version, head.count, LS_SIGHT_WIRE_VERSION, LS_SIGHTS_MAX);
    }
    for (uint32_t i = 0; i < head.count; i++) {
        LS_TRY(decode(&from, ranks, &sights_out[i]));
        sights_out[i].taken_ns = taken_ns;
    }
    if (from.left > 0) {
        return ls_fail(LS_ERR_DATA, "sights: %zu bytes are left over", from.left);
    }
    *count_out = head.count;
    return LS_OK;
}

/* ---- clocks ---- */

/* 0: not yet. */
static void shift(uint64_t *at_ns, int64_t ns)
{
    *at_ns = *at_ns ? *at_ns + (uint64_t)ns : 0;
}

static void shift_op(ls_sight_op *op, int64_t ns)
{
    shift(&op->begin_ns, ns);
    shift(&op->end_ns, ns);
}

void ls_sight_shift(ls_sight *sight, int64_t ns)
{
    shift(&sight->taken_ns, ns);
    shift(&sight->now.since_ns, ns);
    shift(&sight->header.start_ns, ns);
    for (uint32_t i = 0; i < sight->open_count; i++) {
        shift_op(&sight->open[i], ns);
    }
    shift_op(&sight->last, ns);
    sight->header.clock_offset_ns = 0;
}
