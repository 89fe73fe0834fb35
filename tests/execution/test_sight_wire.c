// SPDX-License-Identifier: Apache-2.0
/* What agents say of their ranks: it comes out as it went in, and bytes that are cut short, too many or wrong are refused. */
#include "test.h"

#include "execution/diagnose/sight_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

static ls_sight_op op_of(uint64_t seq)
{
    ls_sight_op op = {.seq = seq,
                      .fingerprint = 77,
                      .count = 1000,
                      .begin_ns = 5000 + seq,
                      .comm_id = 9,
                      .peer = UINT32_MAX,
                      .kind = LS_COMM_ALL_REDUCE};
    snprintf(op.site, sizeof op.site, "src/model.c:%d", (int)seq);
    return op;
}

static void fill(ls_sight *sight, uint32_t rank)
{
    memset(sight, 0, sizeof *sight);
    sight->rank = rank;
    sight->has_file = true;
    sight->header = (ls_flight_header){.rank = rank, .size = RANKS, .pid = 4711, .start_ns = 100};
    snprintf(sight->header.host, sizeof sight->header.host, "node%u", rank);
    sight->now = (ls_flight_now){.since_ns = 4000, .step = 12, .activity = LS_ACTIVITY_BACKWARD, .number = 3};
    sight->process = LS_PROCESS_STOPPED;
    sight->taken_ns = 6000;
    for (uint32_t i = 0; i < 2; i++) {
        sight->comms[i] = (ls_flight_comm){
            .state = LS_FLIGHT_COMM_OPEN, .id = 9 + i, .rank = rank, .size = RANKS, .entered = 3, .left = 2};
        snprintf(sight->comms[i].name, sizeof sight->comms[i].name, "group %u", i);
    }
    sight->comm_count = 2;
    sight->open[0] = op_of(3);
    sight->open_count = 1;
    sight->has_last = true;
    sight->last = op_of(3);
    snprintf(sight->words, sizeof sight->words, "first line\nsecond");
}

static void make(ls_text *bytes)
{
    ls_sight sights[2];
    fill(&sights[0], 1);
    fill(&sights[1], 3);
    ls_sights_encode(sights, 2, bytes);
}

/* From memory that ends where the bytes end, so that a look past it is seen. */
static ls_status decode(const void *data, size_t bytes, uint32_t ranks, ls_sight *sights, uint32_t *count)
{
    void *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    const ls_status status = ls_sights_decode(copy, bytes, ranks, 6000, sights, count);
    free(copy);
    return status;
}

static void sights_come_out_as_they_went_in(void **state)
{
    (void)state;
    static ls_sight got[LS_SIGHTS_MAX], wanted;
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

    /* None, too. */
    ls_sights_encode(NULL, 0, &bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_text_release(&bytes);
}

static void sights_that_are_cut_short_or_too_long_are_refused(void **state)
{
    (void)state;
    static ls_sight got[LS_SIGHTS_MAX];
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

static void sights_out_of_range_are_refused(void **state)
{
    (void)state;
    static ls_sight got[LS_SIGHTS_MAX], sight;
    ls_text bytes = {0};
    uint32_t count = 0;
    make(&bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, 1, got, &count), LS_ERR_DATA);
    bytes.data[0]++; /* version */
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    bytes.data[0]--;
    bytes.data[4] = LS_SIGHTS_MAX + 1;
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_release(&bytes);

    fill(&sight, 1);
    sight.process = (ls_process_state)(LS_PROCESS_DEAD + 1);
    ls_sights_encode(&sight, 1, &bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_release(&bytes);
    fill(&sight, 1);
    sight.header.rank = RANKS;
    ls_sights_encode(&sight, 1, &bytes);
    assert_int_equal(decode(bytes.data, bytes.bytes, RANKS, got, &count), LS_ERR_DATA);
    ls_text_release(&bytes);

    /* A communicator that was being filled in when it was looked at stays behind. */
    fill(&sight, 1);
    sight.comms[0].size = 0;
    ls_sights_encode(&sight, 1, &bytes);
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

/* Whatever a byte becomes: refused, or within bounds. */
static void sights_with_a_wrong_byte_stay_within_bounds(void **state)
{
    (void)state;
    static const unsigned char values[] = {0x00, 0x01, 0x05, 0x7f, 0x80, 0xff};
    static ls_sight got[LS_SIGHTS_MAX];
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
                assert_true(got[i].comm_count <= LS_FLIGHT_COMMS && got[i].open_count <= LS_SIGHT_OPEN_MAX);
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

static void shifted_sights_keep_what_has_not_happened(void **state)
{
    (void)state;
    static ls_sight sight;
    fill(&sight, 0);
    sight.header.clock_offset_ns = 5;
    ls_sight_shift(&sight, -3000);
    assert_int_equal(sight.taken_ns, 3000);
    assert_int_equal(sight.now.since_ns, 1000);
    assert_int_equal(sight.open[0].begin_ns, 2003);
    assert_int_equal(sight.open[0].end_ns, 0);
    assert_int_equal(sight.last.begin_ns, 2003);
    assert_int_equal(sight.header.clock_offset_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sights_come_out_as_they_went_in),
        cmocka_unit_test(sights_that_are_cut_short_or_too_long_are_refused),
        cmocka_unit_test(sights_out_of_range_are_refused),
        cmocka_unit_test(sights_with_a_wrong_byte_stay_within_bounds),
        cmocka_unit_test(shifted_sights_keep_what_has_not_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
