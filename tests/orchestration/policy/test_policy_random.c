// SPDX-License-Identifier: Apache-2.0
/* Streams of random events: nothing is given twice, gangs are whole, counters are sums, and the
 * same events make the same actions. */
#include "test.h"

#include "base/random.h"
#include "orchestration/policy/policy_stream.h"

enum { STREAMS = 400, STREAM_BYTES = 4000 };

static void fill(uint8_t *bytes, uint64_t seed)
{
    const ls_random_key key = ls_random_stream(seed, LS_RANDOM_TEST);
    for (uint64_t i = 0; i < STREAM_BYTES; i++) {
        bytes[i] = (uint8_t)ls_random_u64(key, i, 0);
    }
}

static void stream_of_events_keeps_all_invariants(void **state)
{
    (void)state;
    static stream s;
    static uint8_t bytes[STREAM_BYTES];
    uint64_t starts = 0, stops = 0, resizes = 0;
    for (uint64_t seed = 1; seed <= STREAMS; seed++) {
        fill(bytes, seed);
        stream_run(&s, bytes, STREAM_BYTES, true);
        starts += s.starts;
        stops += s.stops;
        resizes += s.resizes;
    }
    print_message("%" PRIu64 " starts, %" PRIu64 " stops, %" PRIu64 " resizes\n", starts, stops, resizes);
    /* the streams do reach these */
    assert_true(starts > STREAMS && stops > STREAMS && resizes > STREAMS);
}

static void stream_replayed_gives_the_same_actions(void **state)
{
    (void)state;
    static stream s;
    static uint8_t bytes[STREAM_BYTES];
    for (uint64_t seed = 1; seed <= STREAMS / 8; seed++) {
        fill(bytes, seed);
        const uint64_t asked = stream_run(&s, bytes, STREAM_BYTES, true);
        assert_int_equal(stream_run(&s, bytes, STREAM_BYTES, true), asked);
        /* why changes nothing */
        assert_int_equal(stream_run(&s, bytes, STREAM_BYTES, false), asked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_of_events_keeps_all_invariants),
        cmocka_unit_test(stream_replayed_gives_the_same_actions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
