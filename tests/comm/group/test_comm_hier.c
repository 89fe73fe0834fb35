// SPDX-License-Identifier: Apache-2.0
/*
 * Several hosts with several ranks: shared memory inside, TCP between. Hosts are made of
 * LOCKSTEP_HOST; whatever ranks they hold, the bits are those of the tree over ranks, and what goes
 * wrong on one host is named on all.
 */
#include "test.h"

#include "comm/group/comm_checks.h"

#include "comm/group/comm_internal.h"

#include <stdlib.h>

enum { SHORT_MS = 800 };

static const char *hosts = ""; /* one letter per rank */

static ls_status open_hosts(const ls_comm_options *options, ls_comm **comm_out)
{
    const char host[2] = {hosts[options->rank], 0};
    ls_comm_options filled = *options;
    filled.interface = "lo";
    snprintf(filled.token, sizeof filled.token, "00ff");
    setenv("LOCKSTEP_HOST", host, 1);
    return ls_comm_open(&filled, comm_out);
}

static void run_hosts(const char *letters, rank_main run)
{
    hosts = letters;
    run_ranks((uint32_t)strlen(letters), run);
}

static int kinds_main(const ls_comm_options *options)
{
    ls_comm *comm;
    EXPECT_OK(open_hosts(options, &comm));
    EXPECT(strcmp(comm->transport->calls->name, "hier") == 0);
    EXPECT(check_kinds(comm->transport) == 0);
    ls_comm_close(comm);
    return 0;
}

static void two_hosts_with_two_ranks(void **state)
{
    (void)state;
    run_hosts("aabb", kinds_main);
}

static void hosts_of_different_sizes(void **state)
{
    (void)state;
    run_hosts("aaabb", kinds_main);
    run_hosts("abbb", kinds_main);
}

static void hosts_that_hold_ranks_here_and_there(void **state)
{
    (void)state;
    run_hosts("abacb", kinds_main);
}

/* ---- in memory that the ranks of a host share, and in groups ---- */

static int shared_main(const ls_comm_options *options)
{
    ls_comm *comm, *group;
    EXPECT_OK(open_hosts(options, &comm));
    const uint32_t size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    const uint64_t count = 3000001;
    float *data = ls_comm_alloc(comm, count * 4);
    EXPECT(data != NULL);
    for (uint64_t part = 100; part <= count; part *= 31) {
        expect_fill(data, LS_F32, part, rank);
        EXPECT_OK(ls_comm_all_reduce(comm, data, data, part, LS_F32, LS_COMM_SUM, NULL));
        EXPECT(expect_reduced(data, LS_F32, LS_COMM_SUM, 0, part, size, false));
    }
    /* all the other way round; pairs of neighbours; by parity */
    for (int color = 0; color < 3; color++) {
        const int32_t mine = color == 0 ? 0 : color == 1 ? (int32_t)rank / 2 : (int32_t)rank % 2;
        EXPECT_OK(ls_comm_split(comm, mine, color == 0 ? -(int32_t)rank : (int32_t)rank, &group));
        int32_t ranks[RANKS_MAX], own = (int32_t)rank;
        EXPECT_OK(ls_comm_all_gather(group, &own, ranks, 1, LS_I32, NULL));
        EXPECT(ranks[ls_comm_rank(group)] == own);
        int32_t sum = own + 1, all = 0;
        EXPECT_OK(ls_comm_all_reduce(group, &sum, &all, 1, LS_I32, LS_COMM_SUM, NULL));
        for (uint32_t i = 0; i < ls_comm_size(group); i++) {
            all -= ranks[i] + 1;
        }
        EXPECT(all == 0);
        ls_comm_close(group);
    }
    ls_comm_free(comm, data);
    ls_comm_close(comm);
    return 0;
}

static void shared_memory_and_groups(void **state)
{
    (void)state;
    run_hosts("aabb", shared_main);
    run_hosts("aabab", shared_main);
}

/* ---- what goes wrong ---- */

static int absent_main(const ls_comm_options *options)
{
    ls_comm *comm;
    ls_comm_options quick = *options;
    float x[10] = {0};
    EXPECT_OK(open_hosts(&quick, &comm));
    comm->timeout_ns = SHORT_MS * 1000000ull;
    if (options->rank == 3) {
        EXPECT(wait_until_done(3));
        EXPECT(ls_comm_barrier(comm, NULL) != LS_OK);
    } else {
        const ls_status status = ls_comm_all_reduce(comm, x, x, 10, LS_F32, LS_COMM_SUM, NULL);
        EXPECT(status == LS_ERR_TIMEOUT && says("rank 3"));
    }
    ls_comm_close(comm);
    EXPECT(say_done(options->rank));
    return 0;
}

static void rank_that_does_not_come_is_named_on_both_hosts(void **state)
{
    (void)state;
    run_hosts("aabb", absent_main);
}

static int death_main(const ls_comm_options *options)
{
    ls_comm *comm;
    static float x[100000];
    EXPECT_OK(open_hosts(options, &comm));
    EXPECT_OK(ls_comm_barrier(comm, NULL));
    if (options->rank == 3) {
        kill(getpid(), SIGKILL);
    }
    const uint64_t begin = ls_clock_monotonic_ns();
    EXPECT(ls_comm_all_reduce(comm, x, x, 100000, LS_F32, LS_COMM_SUM, NULL) == LS_ERR_RANKS_LOST &&
           says("rank 3"));
    EXPECT(ls_clock_monotonic_ns() - begin < 5000000000ull);
    ls_comm_close(comm);
    return 0;
}

static void rank_that_dies_is_named_on_both_hosts(void **state)
{
    (void)state;
    pid_t pids[4];
    hosts = "aabb";
    meeting_open();
    for (uint32_t rank = 0; rank < 4; rank++) {
        const ls_comm_options options = rank_options(rank, 4);
        pids[rank] = start_rank(death_main, &options);
    }
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(end_rank(pids[rank]), rank == 3 ? 128 + SIGKILL : 0);
    }
    meeting_close();
}

static int mismatch_main(const ls_comm_options *options)
{
    ls_comm *comm;
    static float x[1000];
    EXPECT_OK(open_hosts(options, &comm));
    const uint64_t begin = ls_clock_monotonic_ns();
    const bool second_host = hosts[options->rank] == 'b';
    const ls_status status = second_host ? ls_comm_barrier(comm, NULL)
                                         : ls_comm_all_reduce(comm, x, x, 1000, LS_F32, LS_COMM_SUM, NULL);
    EXPECT(status == LS_ERR_MISMATCH && says("barrier") && says("all_reduce sum of 1000 f32"));
    EXPECT(ls_clock_monotonic_ns() - begin < 4000000000ull);
    ls_comm_close(comm);
    return 0;
}

static void hosts_that_call_different_things_are_named(void **state)
{
    (void)state;
    run_hosts("aabb", mismatch_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hosts_with_two_ranks),
        cmocka_unit_test(hosts_of_different_sizes),
        cmocka_unit_test(hosts_that_hold_ranks_here_and_there),
        cmocka_unit_test(shared_memory_and_groups),
        cmocka_unit_test(rank_that_does_not_come_is_named_on_both_hosts),
        cmocka_unit_test(rank_that_dies_is_named_on_both_hosts),
        cmocka_unit_test(hosts_that_call_different_things_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
