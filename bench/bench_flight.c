// SPDX-License-Identifier: Apache-2.0
/*
 * What the flight recorder costs a rank: nanoseconds per operation (begin and end together), per
 * activity, per call site looked up.
 *
 *   bench_flight [FOLDER]
 *
 * Rounds of 200,000; the best and the median round are printed, because noise on a shared machine
 * only ever slows. "times given" is what comm.c does: it has read the clock for its deadline
 * already.
 */
#include "comm/flight/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 15, CALLS = 200000 };

typedef void (*measured)(uint64_t i);

static uint8_t slot;

static void operation(uint64_t i)
{
    const ls_flight_call call = {.seq = i + 1,
                                 .fingerprint = i * 3,
                                 .count = 1000,
                                 .comm_id = 1,
                                 .peer = UINT32_MAX,
                                 .site = ls_flight_site(__FILE__, __LINE__),
                                 .kind = LS_COMM_ALL_REDUCE,
                                 .slot = slot};
    ls_flight_end(ls_flight_begin(&call), 0, 1, 1000, LS_OK);
}

static void operation_times_given(uint64_t i)
{
    const ls_flight_call call = {.seq = i + 1,
                                 .fingerprint = i * 3,
                                 .count = 1000,
                                 .begin_ns = i + 1,
                                 .comm_id = 1,
                                 .peer = UINT32_MAX,
                                 .site = ls_flight_site(__FILE__, __LINE__),
                                 .kind = LS_COMM_ALL_REDUCE,
                                 .slot = slot};
    ls_flight_end(ls_flight_begin(&call), i + 2, 1, 1000, LS_OK);
}

static void site(uint64_t i)
{
    (void)i;
    (void)ls_flight_site(__FILE__, __LINE__);
}

static void activity(uint64_t i)
{
    ls_flight_activity(i & 1 ? LS_ACTIVITY_FORWARD : LS_ACTIVITY_BACKWARD, (uint32_t)i);
}

static void read_clock(uint64_t i)
{
    (void)i;
    const uint64_t now_ns = ls_clock_monotonic_ns();
    __asm__ volatile("" : : "r"(now_ns));
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, measured run)
{
    double ns[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t from_ns = ls_clock_monotonic_ns();
        for (uint64_t i = 0; i < CALLS; i++) {
            run(i);
        }
        ns[round] = (double)(ls_clock_monotonic_ns() - from_ns) / CALLS;
    }
    qsort(ns, ROUNDS, sizeof ns[0], by_value);
    printf("%-44s best %6.1f ns   median %6.1f ns\n", name, ns[0], ns[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
    char path[256];
    snprintf(path, sizeof path, "%s/bench-flight-%d", argc > 1 ? argv[1] : "/tmp", (int)getpid());
    ls_flight *flight = NULL;
    report("operation, no recorder", operation);
    if (ls_flight_create(path, 0, 2, 1, &flight) != LS_OK) {
        fprintf(stderr, "bench_flight: %s\n", ls_error_text());
        return 1;
    }
    ls_flight_install(flight);
    slot = ls_flight_join(1, 0, 2, "world");
    report("operation (begin, end, site), times given", operation_times_given);
    report("operation (begin, end, site), reads the clock", operation);
    report("call site", site);
    report("activity", activity);
    report("clock alone", read_clock);
    ls_flight_close(flight);
    unlink(path);
    return 0;
}
