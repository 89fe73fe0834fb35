// SPDX-License-Identifier: Apache-2.0
/* Rank snapshots as bytes: decoding gives what was encoded, and messages that are truncated, too
 * long or wrong are refused. */
#include "test.h"

#include "execution/hang/rank_snapshot_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

static ls_rank_snapshot_op op_of(uint64_t seq)
{
    ls_rank_snapshot_op op = {.seq = seq,
                              .fingerprint = 77,
                              .count = 1000,
                              .begin_ns = 5000 + seq,
                              .comm_id = 9,
                              .peer = UINT32_MAX,
                              .kind = LS_COMM_ALL_REDUCE};
    snprintf(op.site, sizeof op.site, "src/model.c:%d", (int)seq);
    return op;
}

static void fill(ls_rank_snapshot *snapshot, uint32_t rank)
{
    memset(snapshot, 0, sizeof *snapshot);
    snapshot->rank = rank;
    snapshot->has_file = true;
    snapshot->header = (ls_flight_header){.rank = rank, .size = RANKS, .pid = 4711, .start_ns = 100};
    snprintf(snapshot->header.host, sizeof snapshot->header.host, "node%u", rank);
    snapshot->now =
        (ls_flight_now){.since_ns = 4000, .step = 12, .activity = LS_ACTIVITY_BACKWARD, .number = 3};
    snapshot->process = LS_PROCESS_STOPPED;
    snapshot->taken_ns = 6000;
    for (uint32_t i = 0; i < 2; i++) {
        snapshot->comms[i] = (ls_flight_comm){
            .state = LS_FLIGHT_COMM_OPEN, .id = 9 + i, .rank = rank, .size = RANKS, .entered = 3, .left = 2};
        snprintf(snapshot->comms[i].name, sizeof snapshot->comms[i].name, "group %u", i);
    }
    snapshot->comm_count = 2;
    snapshot->open[0] = op_of(3);
    snapshot->open_count = 1;
    snapshot->has_last = true;
    snapshot->last = op_of(3);
    snprintf(snapshot->words, sizeof snapshot->words, "first line\nsecond");
}

static void make(ls_text *bytes)
{
    ls_rank_snapshot snapshots[2];
    fill(&snapshots[0], 1);
    fill(&snapshots[1], 3);
    ls_rank_snapshots_encode(snapshots, 2, bytes);
}

/* Decodes from memory that ends where the bytes end, so that a sanitizer sees a read past them. */
static ls_status decode(const void *data, size_t bytes, uint32_t ranks, ls_rank_snapshot *snapshots,
                        uint32_t *count)
{
    void *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    const ls_status status = ls_rank_snapshots_decode(copy, bytes, ranks, 6000, snapshots, count);
    free(copy);
    return status;
}

static void snapshots_come_out_as_they_went_in(void **state)
{
    (void)state;
    static ls_rank_snapshot got[LS_RANK_SNAPSHOTS_MAX], wanted;
    ls_text bytes = {0};
    uint32_t count = 0;
    make(&bytes);
    assert_true(bytes.bytes < 2048);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_OK);
    assert_int_equal(count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        fill(&wanted, i == 0 ? 1 : 3);
        assert_int_equal(got[i].rank, wanted.rank);
        assert_int_equal(got[i].process, LS_PROCESS_STOPPED);
        assert_int_equal(got[i].taken_ns, 6000);
        assert_int_equal(got[i].header.pid, 4711);
        assert_string_equal(got[i].header.host, wanted.header.host);
        assert_memory_equal(&got[i].now, &wanted.now, sizeof wanted.now);
        assert_int_equal(got[i].comm_count, 2);
        assert_memory_equal(got[i].comms, wanted.comms, 2 * sizeof wanted.comms[0]);
        assert_int_equal(got[i].open_count, 1);
        assert_int_equal(got[i].open[0].begin_ns, 5003);
        assert_string_equal(got[i].open[0].site, "src/model.c:3");
        assert_true(got[i].has_last);
        assert_int_equal(got[i].last.seq, 3);
        assert_string_equal(got[i].words, "first line\nsecond");
    }
    ls_text_release(&bytes);

    /* No snapshots at all. */
    ls_rank_snapshots_encode(NULL, 0, &bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_text_release(&bytes);
}

static void snapshots_that_are_cut_short_or_too_long_are_refused(void **state)
{
    (void)state;
    static ls_rank_snapshot got[LS_RANK_SNAPSHOTS_MAX];
    ls_text bytes = {0};
    uint32_t count = 0;
    make(&bytes);
    for (size_t length = 0; length < bytes.bytes; length++) {
        assert_int_equal(decode(bytes.data, length, RANKS, got, &count), LS_ERR_DATA);
    }
    ls_text_append_bytes(&bytes, "x", 1);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_repeat(&bytes, 'x', 100000);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_release(&bytes);
}

static void snapshots_out_of_range_are_refused(void **state)
{
    (void)state;
    static ls_rank_snapshot got[LS_RANK_SNAPSHOTS_MAX], snapshot;
    ls_text bytes = {0};
    uint32_t count = 0;
    make(&bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, 1, got, &count), LS_ERR_DATA);
    bytes.data[0]++; /* version */
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    bytes.data[0]--;
    bytes.data[4] = LS_RANK_SNAPSHOTS_MAX + 1;
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_release(&bytes);

    fill(&snapshot, 1);
    snapshot.process = (ls_process_state)(LS_PROCESS_DEAD + 1);
    ls_rank_snapshots_encode(&snapshot, 1, &bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_release(&bytes);
    fill(&snapshot, 1);
    snapshot.header.rank = RANKS;
    ls_rank_snapshots_encode(&snapshot, 1, &bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_release(&bytes);

    /* A communicator that the rank was still filling in is left out. */
    fill(&snapshot, 1);
    snapshot.comms[0].size = 0;
    ls_rank_snapshots_encode(&snapshot, 1, &bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_OK);
    assert_int_equal(got[0].comm_count, 1);
    assert_int_equal(got[0].comms[0].id, 10);
    ls_text_release(&bytes);
}

static void assert_is_text(const char *text, size_t bytes)
{
    assert_true(strnlen(text, bytes) < bytes);
    for (; *text; text++) {
        assert_true((*text >= 0x20 && *text < 0x7f) || *text == '\n');
    }
}

/* Any byte may change: the message is refused or stays within bounds. */
static void snapshots_with_a_wrong_byte_stay_within_bounds(void **state)
{
    (void)state;
    static const unsigned char values[] = {0x00, 0x01, 0x05, 0x7f, 0x80, 0xff};
    static ls_rank_snapshot got[LS_RANK_SNAPSHOTS_MAX];
    ls_text bytes = {0};
    uint32_t refused = 0, taken = 0;
    make(&bytes);
    for (size_t at = 0; at < bytes.bytes; at++) {
        for (size_t v = 0; v < sizeof values; v++) {
            const char before = bytes.data[at];
            uint32_t count = 0;
            bytes.data[at] = (char)values[v];
            if (decode(bytes.data, bytes.bytes, RANKS, got, &count) != LS_OK) {
                refused++;
                count = 0;
            }
            taken += count;
            for (uint32_t i = 0; i < count; i++) {
                assert_true(got[i].rank < RANKS && got[i].process <= LS_PROCESS_DEAD);
                assert_true(got[i].comm_count <= LS_FLIGHT_COMMS &&
                            got[i].open_count <= LS_RANK_SNAPSHOT_OPEN_MAX);
                assert_is_text(got[i].header.host, sizeof got[i].header.host);
                assert_is_text(got[i].words, sizeof got[i].words);
                assert_is_text(got[i].open[0].site, sizeof got[i].open[0].site);
                assert_is_text(got[i].comms[0].name, sizeof got[i].comms[0].name);
            }
            bytes.data[at] = before;
        }
    }
    assert_true(refused > 100 && taken > 100);
    ls_text_release(&bytes);
}

static void shifted_snapshots_keep_what_has_not_happened(void **state)
{
    (void)state;
    static ls_rank_snapshot snapshot;
    fill(&snapshot, 0);
    snapshot.header.clock_offset_ns = 5;
    ls_rank_snapshot_shift(&snapshot, -3000);
    assert_int_equal(snapshot.taken_ns, 3000);
    assert_int_equal(snapshot.now.since_ns, 1000);
    assert_int_equal(snapshot.open[0].begin_ns, 2003);
    assert_int_equal(snapshot.open[0].end_ns, 0);
    assert_int_equal(snapshot.last.begin_ns, 2003);
    assert_int_equal(snapshot.header.clock_offset_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_come_out_as_they_went_in),
        cmocka_unit_test(snapshots_that_are_cut_short_or_too_long_are_refused),
        cmocka_unit_test(snapshots_out_of_range_are_refused),
        cmocka_unit_test(snapshots_with_a_wrong_byte_stay_within_bounds),
        cmocka_unit_test(shifted_snapshots_keep_what_has_not_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
