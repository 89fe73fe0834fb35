// SPDX-License-Identifier: Apache-2.0
/* Every kind of call on a transport, each compared with the fixed tree. All ranks of the group call
 * check_kinds. */
#ifndef LS_TESTS_COMM_CHECKS_H
#define LS_TESTS_COMM_CHECKS_H

#include "comm/group/comm_expect.h"
#include "comm/group/comm_ranks.h"

#include "comm/transport/transport.h"

#include <stdlib.h>

enum { DEADLINE_MS = 10000 };
static uint32_t deadline_ms = DEADLINE_MS;

static bool says(const char *text)
{
    const bool found = strstr(ls_error_text(), text) != NULL;
    if (!found) {
        fprintf(stderr, "no \"%s\" in: %s\n", text, ls_error_text());
    }
    return found;
}

static ls_status run_op(ls_transport *t, ls_comm_op op)
{
    static _Thread_local uint64_t seq;
    op.seq = ++seq;
    op.fingerprint = ls_comm_fingerprint(&op);
    op.site = op.site.file ? op.site : LS_COMM_HERE;
    op.deadline_ns = ls_clock_monotonic_ns() + deadline_ms * 1000000ull;
    return t->calls->run(t, &op);
}

static ls_comm_op reduce_op(const void *in, void *out, uint64_t count)
{
    return (ls_comm_op){.kind = LS_COMM_ALL_REDUCE,
                        .dtype = LS_F32,
                        .peer = UINT32_MAX,
                        .in = in,
                        .out = out,
                        .count = count};
}

static ls_status barrier(ls_transport *t)
{
    return run_op(t, (ls_comm_op){.kind = LS_COMM_BARRIER, .peer = UINT32_MAX});
}

/* ---- bits ---- */

static const uint64_t counts[] = {1, 3, 1000, 2048, 5000, 30011, 400009};
enum { COUNTS = sizeof counts / sizeof counts[0], COUNT_MAX = 400009 };

static int check_all_reduce(ls_transport *t, uint8_t *in, uint8_t *out, ls_dtype dtype, uint64_t count,
                            uint32_t flags)
{
    for (int reduction = LS_COMM_SUM; reduction <= (count < 3000 ? LS_COMM_MIN : LS_COMM_SUM); reduction++) {
        ls_comm_op op = reduce_op(in, out, count);
        op.dtype = dtype;
        op.reduction = (ls_comm_reduction)reduction;
        op.flags = flags;
        expect_fill(in, dtype, count, t->rank);
        EXPECT_OK(run_op(t, op));
        EXPECT(expect_reduced(out, dtype, op.reduction, 0, count, t->size, flags & LS_COMM_ANY_ORDER));
    }
    expect_fill(out, dtype, count, t->rank); /* in place */
    ls_comm_op op = reduce_op(out, out, count);
    op.dtype = dtype;
    op.flags = flags;
    EXPECT_OK(run_op(t, op));
    EXPECT(expect_reduced(out, dtype, LS_COMM_SUM, 0, count, t->size, flags & LS_COMM_ANY_ORDER));
    return 0;
}

static int check_reduce_scatter(ls_transport *t, uint8_t *in, uint8_t *out, ls_dtype dtype, uint64_t count)
{
    const uint64_t part = count / t->size;
    ls_comm_op op = reduce_op(in, out, part);
    op.kind = LS_COMM_REDUCE_SCATTER;
    op.dtype = dtype;
    expect_fill(in, dtype, part * t->size, t->rank);
    EXPECT_OK(run_op(t, op));
    EXPECT(expect_reduced(out, dtype, LS_COMM_SUM, t->rank * part, part, t->size, false));
    op.out = in + t->rank * part * ls_dtype_bytes(dtype);
    EXPECT_OK(run_op(t, op));
    EXPECT(expect_reduced(op.out, dtype, LS_COMM_SUM, t->rank * part, part, t->size, false));
    return 0;
}

static int check_moves(ls_transport *t, uint8_t *in, uint8_t *out, ls_dtype dtype, uint64_t count)
{
    const uint64_t part = count / t->size, bytes = part * ls_dtype_bytes(dtype);
    ls_comm_op op = {
        .kind = LS_COMM_ALL_GATHER, .dtype = dtype, .peer = UINT32_MAX, .in = in, .out = out, .count = part};
    expect_fill(in, dtype, part, t->rank);
    EXPECT_OK(run_op(t, op));
    for (uint32_t i = 0; i < t->size; i++) {
        EXPECT(expect_filled(out + i * bytes, dtype, 0, part, i));
    }
    op.kind = LS_COMM_ALL_TO_ALL;
    expect_fill(in, dtype, part * t->size, t->rank);
    EXPECT_OK(run_op(t, op));
    for (uint32_t i = 0; i < t->size; i++) {
        EXPECT(expect_filled(out + i * bytes, dtype, t->rank * part, part, i));
    }
    const uint32_t root = (uint32_t)count % t->size;
    expect_fill(out, dtype, count, t->rank);
    EXPECT_OK(run_op(
        t,
        (ls_comm_op){.kind = LS_COMM_BROADCAST, .dtype = dtype, .peer = root, .out = out, .count = count}));
    EXPECT(expect_filled(out, dtype, 0, count, root));
    return 0;
}

/* Everybody sends to the next and receives from the one before; large ones first by even ranks. */
static int check_pairs(ls_transport *t, uint8_t *in, uint8_t *out, uint64_t count)
{
    const uint32_t to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size;
    expect_fill(in, LS_F32, count, t->rank);
    for (int turn = 0; turn < 2; turn++) {
        const bool first = count * 4 <= 65536 || (t->rank % 2 == 0 && t->rank + 1 < t->size);
        const bool sends = (turn == 0) == first;
        const ls_comm_op send = {.kind = LS_COMM_SEND, .dtype = LS_F32, .peer = to, .in = in, .count = count};
        const ls_comm_op receive = {
            .kind = LS_COMM_RECEIVE, .dtype = LS_F32, .peer = from, .out = out, .count = count};
        EXPECT_OK(run_op(t, sends ? send : receive));
    }
    EXPECT(expect_filled(out, LS_F32, 0, count, from));
    return 0;
}

/* Rank r sends r * 1000 + s elements to rank s. */
static int check_blocks(ls_transport *t, uint8_t *in, uint8_t *out, uint64_t scale)
{
    uint64_t send[RANKS_MAX], send_at[RANKS_MAX], receive[RANKS_MAX], receive_at[RANKS_MAX], sent = 0,
                                                                                             received = 0;
    for (uint32_t i = 0; i < t->size; i++) {
        send[i] = t->rank * scale + i, receive[i] = i * scale + t->rank;
        send_at[i] = sent, receive_at[i] = received;
        sent += send[i], received += receive[i];
    }
    const ls_comm_blocks blocks = {send, send_at, receive, receive_at};
    expect_fill(in, LS_F32, sent, t->rank);
    EXPECT_OK(run_op(t, (ls_comm_op){.kind = LS_COMM_ALL_TO_ALL_BLOCKS,
                                     .dtype = LS_F32,
                                     .peer = UINT32_MAX,
                                     .in = in,
                                     .out = out,
                                     .blocks = &blocks}));
    for (uint32_t i = 0; i < t->size; i++) {
        const uint64_t at = (uint64_t)i * scale * t->rank + t->rank * (t->rank - 1) / 2;
        EXPECT(expect_filled(out + receive_at[i] * 4, LS_F32, at, receive[i], i));
    }
    return 0;
}

static int check_kinds(ls_transport *t)
{
    uint8_t *in = malloc(COUNT_MAX * 8ul), *out = malloc(COUNT_MAX * 8ul);
    for (int dtype = LS_F32; dtype <= LS_I64; dtype++) {
        for (int i = 0; i < COUNTS; i++) {
            if (counts[i] > 3000 && dtype != LS_F32 && counts[i] % 3 != (uint64_t)dtype % 3) {
                continue; /* large ones of some types: all go the same way */
            }
            EXPECT(check_all_reduce(t, in, out, (ls_dtype)dtype, counts[i], 0) == 0);
            EXPECT(check_all_reduce(t, in, out, (ls_dtype)dtype, counts[i], LS_COMM_ANY_ORDER) == 0);
            EXPECT(check_reduce_scatter(t, in, out, (ls_dtype)dtype, counts[i]) == 0);
            EXPECT(check_moves(t, in, out, (ls_dtype)dtype, counts[i]) == 0);
        }
        EXPECT_OK(barrier(t));
    }
    for (int i = 0; i < COUNTS; i++) {
        EXPECT(check_pairs(t, in, out, counts[i]) == 0);
    }
    EXPECT(check_blocks(t, in, out, 1) == 0);
    EXPECT(check_blocks(t, in, out, 20000) == 0);
    free(in);
    free(out);
    return 0;
}

#endif
