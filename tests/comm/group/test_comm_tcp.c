// SPDX-License-Identifier: Apache-2.0
/*
 * The TCP transport: every kind of call, type and size among real processes gives the bits of the
 * fixed tree; and what is wrong with a call or a rank is named, in bounded time.
 */
#include "test.h"

#include "comm/store/comm_store.h"

#include "comm/group/comm_ranks.h"

#include "comm/store/comm_store.h"

#include "comm/group/comm_checks.h"
#include "comm/tcp/tcp_wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { SHORT_MS = 700 };

static uint32_t lanes = 1; /* of what the tests open */

typedef struct rank_setup {
    ls_transport_setup setup;
    ls_comm_options options;
    ls_comm_member members[RANKS_MAX];
} rank_setup;

/* Every rank on a host of its own, all called over loopback because that is named. */
static void fill_setup(rank_setup *s, const ls_comm_options *options)
{
    *s = (rank_setup){.options = *options};
    s->options.interface = "lo";
    s->options.sockets_per_peer = lanes;
    if (s->options.token[0] == 0) {
        snprintf(s->options.token, sizeof s->options.token, "00ff");
    }
    for (uint32_t i = 0; i < options->size; i++) {
        s->members[i] = (ls_comm_member){.world_rank = i, .host = i, .pid = (int32_t)getpid()};
        snprintf(s->members[i].host_name, sizeof s->members[i].host_name, "host%u", i);
    }
    s->setup = (ls_transport_setup){.options = &s->options,
                                    .members = s->members,
                                    .rank = options->rank,
                                    .size = options->size,
                                    .group_id = 7,
                                    .store = (ls_store *)test_store,
                                    .key_prefix = "5/test/1/"};
}

static ls_status open_tcp(rank_setup *s, const ls_comm_options *options, ls_transport **transport_out)
{
    fill_setup(s, options);
    return ls_transport_open_tcp(&s->setup, transport_out);
}

static int kinds_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    EXPECT_OK(open_tcp(&s, options, &t));
    EXPECT(check_kinds(t) == 0);
    t->calls->destroy(t);
    return 0;
}

static void kinds_give_the_bits_of_the_tree(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 5; size++) {
        lanes = size == 3 ? 4 : size == 5 ? 2 : 1;
        run_ranks(size, kinds_main);
    }
    lanes = 1;
}

/* Seven ranks: many enough for doubling when the limit is lowered by the size of the group. */
static int many_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    float in[300], out[300 * RANKS_MAX];
    EXPECT_OK(open_tcp(&s, options, &t));
    expect_fill(in, LS_F32, 300, t->rank);
    for (int i = 0; i < 20; i++) {
        EXPECT_OK(barrier(t));
        EXPECT_OK(run_op(t, reduce_op(in, out, 300)));
        EXPECT(expect_reduced(out, LS_F32, LS_COMM_SUM, 0, 300, t->size, false));
    }
    t->calls->destroy(t);
    return 0;
}

static void small_calls_of_many_ranks_give_the_bits_of_the_tree(void **state)
{
    (void)state;
    lanes = 1;
    run_ranks(7, many_main);
    run_ranks(8, many_main);
}

/* ---- the ring ---- */

enum {
    RING_FLOATS = 1500001, /* several blocks of the ring, the last of them narrower */
    RING_PART = 400009,
    /* smaller chunks go straight, in the tree's order */
    RING_CHUNK_BYTES = 16384,
};

static ls_comm_op ring_op(ls_comm_kind kind, const void *in, void *out, uint64_t count)
{
    ls_comm_op op = reduce_op(in, out, count);
    op.kind = kind;
    op.flags = LS_COMM_ANY_ORDER;
    return op;
}

/* What a ring of `size` ranks makes of an element whose sum begins at rank `first`. */
static float sum_from(uint64_t index, uint32_t first, uint32_t size)
{
    float sum = expect_float(LS_F32, index, first);
    for (uint32_t i = 1; i < size; i++) {
        sum += expect_float(LS_F32, index, (first + i) % size);
    }
    return sum;
}

/* Every element is a sum round the ring, to the bit: begun at rank `begin`, or UINT32_MAX: at
 * several, so that with three ranks or more some are not what the tree makes of them. */
static int check_ring_sums(const float *got, uint64_t first, uint64_t count, uint32_t size, uint32_t begin)
{
    const uint32_t turns_max = begin == UINT32_MAX ? size : 1;
    uint64_t others = 0;
    begin = begin == UINT32_MAX ? 0 : begin;
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t turns = 0;
        float want = sum_from(i, begin, size);
        while (memcmp(&got[i - first], &want, 4) != 0 && ++turns < turns_max) {
            begin = (begin + 1) % size;
            want = sum_from(i, begin, size);
        }
        EXPECT(turns < turns_max);
        want = expect_tree(LS_F32, LS_COMM_SUM, i, 0, size);
        others += memcmp(&got[i - first], &want, 4) != 0;
    }
    EXPECT(size == 2 || turns_max == 1 || others > 0);
    return 0;
}

/* All ranks have rank 0's bits. */
static int check_same(ls_transport *t, const float *got, uint64_t count)
{
    float *of_rank_0 = malloc(count * 4 + 1);
    memcpy(of_rank_0, got, count * 4);
    ls_comm_op op = {.kind = LS_COMM_BROADCAST, .dtype = LS_F32, .peer = 0, .out = of_rank_0, .count = count};
    EXPECT_OK(run_op(t, op));
    EXPECT(memcmp(of_rank_0, got, count * 4) == 0);
    free(of_rank_0);
    return 0;
}

static int check_ring_floats(ls_transport *t, float *in, float *out, uint64_t count)
{
    float *again = malloc(count * 4 + 1);
    expect_fill(in, LS_F32, count, t->rank);
    memcpy(again, in, count * 4);
    EXPECT_OK(run_op(t, ring_op(LS_COMM_ALL_REDUCE, in, out, count)));
    EXPECT(expect_filled(in, LS_F32, 0, count, t->rank));
    if (count * 4 / t->size < RING_CHUNK_BYTES) {
        EXPECT(expect_reduced(out, LS_F32, LS_COMM_SUM, 0, count, t->size, false));
    } else {
        EXPECT(check_ring_sums(out, 0, count, t->size, UINT32_MAX) == 0);
    }
    EXPECT(check_same(t, out, count) == 0);
    EXPECT_OK(run_op(t, ring_op(LS_COMM_ALL_REDUCE, again, again, count)));
    EXPECT(memcmp(again, out, count * 4) == 0);
    free(again);
    return 0;
}

static int check_ring_scatter(ls_transport *t, float *in, float *out, uint64_t count)
{
    const uint64_t part = count / t->size, first = t->rank * part;
    expect_fill(in, LS_F32, part * t->size, t->rank);
    EXPECT_OK(run_op(t, ring_op(LS_COMM_REDUCE_SCATTER, in, out, part)));
    EXPECT(expect_filled(in, LS_F32, 0, part * t->size, t->rank));
    if (part * 4 < RING_CHUNK_BYTES) {
        EXPECT(expect_reduced(out, LS_F32, LS_COMM_SUM, first, part, t->size, false));
    } else {
        EXPECT(check_ring_sums(out, first, part, t->size, (t->rank + 1) % t->size) == 0);
    }
    float *own = in + first;
    EXPECT_OK(run_op(t, ring_op(LS_COMM_REDUCE_SCATTER, in, own, part)));
    EXPECT(memcmp(own, out, part * 4) == 0);
    return 0;
}

/* Exact, whatever the order; integers, and the largest and smallest of all types. */
static int check_ring_exact(ls_transport *t, uint8_t *in, uint8_t *out, uint64_t count)
{
    for (int dtype = LS_F32; dtype <= LS_I64; dtype++) {
        const bool whole = dtype == LS_I32 || dtype == LS_I64;
        for (int reduction = whole ? LS_COMM_SUM : LS_COMM_MAX; reduction <= LS_COMM_MIN; reduction++) {
            ls_comm_op op = ring_op(LS_COMM_ALL_REDUCE, in, out, count);
            op.dtype = (ls_dtype)dtype;
            op.reduction = (ls_comm_reduction)reduction;
            expect_fill(in, op.dtype, count, t->rank);
            EXPECT_OK(run_op(t, op));
            EXPECT(expect_reduced(out, op.dtype, op.reduction, 0, count, t->size, false));
        }
    }
    return 0;
}

static int ring_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    const uint64_t sizes[] = {0, 1, 5, 4097, 20481, 100003, RING_PART, RING_FLOATS};
    float *in = malloc(RING_FLOATS * 4ul), *out = malloc(RING_FLOATS * 4ul);
    EXPECT_OK(open_tcp(&s, options, &t));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        EXPECT(check_ring_floats(t, in, out, sizes[i]) == 0);
        EXPECT(check_ring_scatter(t, in, out, sizes[i]) == 0);
    }
    EXPECT(check_ring_exact(t, (uint8_t *)in, (uint8_t *)out, 100003) == 0);
    t->calls->destroy(t);
    free(in);
    free(out);
    return 0;
}

static void ring_gives_all_ranks_the_same_sums(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 5; size++) {
        lanes = size == 3 ? 4 : size == 5 ? 2 : 1;
        run_ranks(size, ring_main);
    }
    lanes = 1;
}

/* Rank 2 differs in the fourth call. Nobody's output is touched. */
static int ring_differs_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float in[RING_PART], out[RING_PART];
    EXPECT_OK(open_tcp(&s, options, &t));
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(run_op(t, ring_op(LS_COMM_ALL_REDUCE, in, out, RING_PART)));
    }
    for (uint32_t i = 0; i < RING_PART; i++) {
        out[i] = 42;
    }
    const uint64_t count = t->rank == 2 ? RING_PART - 9 : RING_PART;
    EXPECT(run_op(t, ring_op(LS_COMM_ALL_REDUCE, in, out, count)) == LS_ERR_MISMATCH);
    EXPECT(says("400000") && says("400009") && says("rank 2 (host2"));
    for (uint32_t i = 0; i < RING_PART; i++) {
        EXPECT(out[i] == 42);
    }
    t->calls->destroy(t);
    return 0;
}

/* Rank 2 wants the tree's order. */
static int ring_order_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float data[RING_PART];
    EXPECT_OK(open_tcp(&s, options, &t));
    ls_comm_op op = ring_op(LS_COMM_ALL_REDUCE, data, data, RING_PART);
    op.flags = t->rank == 2 ? 0 : LS_COMM_ANY_ORDER;
    EXPECT(run_op(t, op) == LS_ERR_MISMATCH && says("rank 2 (host2"));
    t->calls->destroy(t);
    return 0;
}

static void rank_of_a_ring_that_differs_is_a_mismatch(void **state)
{
    (void)state;
    run_ranks(5, ring_differs_main);
    run_ranks(4, ring_order_main);
}

/* Rank 3 does not come. Ranks 0 and 1 are not beside it, and give up first. */
static int ring_absent_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float data[RING_PART];
    EXPECT_OK(open_tcp(&s, options, &t));
    deadline_ms = SHORT_MS;
    if (t->rank == 3) {
        EXPECT(wait_until_done(4));
        EXPECT(barrier(t) == LS_ERR_TIMEOUT && says("rank 3"));
    } else {
        usleep(t->rank < 2 ? 0 : 300000);
        EXPECT(run_op(t, ring_op(LS_COMM_ALL_REDUCE, data, data, RING_PART)) == LS_ERR_TIMEOUT);
        EXPECT(says("these ranks did not call it: rank 3 (host3"));
    }
    t->calls->destroy(t);
    EXPECT(say_done(options->rank));
    return 0;
}

static void rank_that_does_not_come_to_a_ring_is_named(void **state)
{
    (void)state;
    run_ranks(5, ring_absent_main);
}

/* Ends this process while data goes round. */
static void *die_in_the_middle(void *argument)
{
    const ls_transport *t = argument;
    ls_comm_stats stats = {0};
    while (stats.received_bytes < 20 << 20) {
        usleep(500);
        stats = (ls_comm_stats){0};
        t->calls->stats(t, &stats);
    }
    kill(getpid(), SIGKILL);
    return NULL;
}

static int ring_death_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    pthread_t thread;
    static float data[4000000];
    EXPECT_OK(open_tcp(&s, options, &t));
    if (t->rank == 1) {
        EXPECT(pthread_create(&thread, NULL, die_in_the_middle, t) == 0);
    }
    ls_status status = LS_OK;
    uint64_t begin = 0;
    for (int i = 0; i < 1000 && status == LS_OK; i++) {
        begin = ls_clock_monotonic_ns();
        status = run_op(t, ring_op(LS_COMM_ALL_REDUCE, data, data, 4000000));
    }
    EXPECT(status == LS_ERR_RANKS_LOST && says("rank 1 (host1"));
    EXPECT(ls_clock_monotonic_ns() - begin < 5000000000ull);
    t->calls->destroy(t);
    return 0;
}

static void rank_that_dies_in_a_ring_is_named(void **state)
{
    (void)state;
    pid_t pids[4];
    meeting_open();
    for (uint32_t rank = 0; rank < 4; rank++) {
        const ls_comm_options options = rank_options(rank, 4);
        pids[rank] = start_rank(ring_death_main, &options);
    }
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(end_rank(pids[rank]), rank == 1 ? 128 + SIGKILL : 0);
    }
    meeting_close();
}

/* ---- groups ---- */

static int groups_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t, *even, *both;
    EXPECT_OK(open_tcp(&s, options, &t));
    const uint32_t members[2][2] = {{0, 2}, {1, 3}}, all[4] = {3, 2, 1, 0};
    const ls_comm_subgroup half = {
        .members = members[t->rank % 2], .count = 2, .self = t->rank / 2, .id = 100 + t->rank % 2};
    const ls_comm_subgroup turned = {.members = all, .count = 4, .self = 3 - t->rank, .id = 200};
    EXPECT_OK(t->calls->split(t, &half, &even));
    EXPECT_OK(t->calls->split(t, &turned, &both));
    float *in = malloc(400000), *out = malloc(400000);
    for (uint64_t count = 10; count <= 100000; count *= 100) {
        for (uint64_t i = 0; i < count; i++) {
            in[i] = (float)(t->rank + 1);
        }
        EXPECT_OK(run_op(even, reduce_op(in, out, count)));
        EXPECT(out[0] == (t->rank % 2 ? 6.0f : 4.0f) && out[count - 1] == out[0]);
        EXPECT_OK(run_op(both, reduce_op(in, out, count)));
        EXPECT(out[0] == 10.0f);
        EXPECT_OK(run_op(t, reduce_op(in, out, count)));
        EXPECT(out[0] == 10.0f);
    }
    both->calls->destroy(both);
    even->calls->destroy(even);
    t->calls->destroy(t);
    free(in);
    free(out);
    return 0;
}

static void groups_share_the_sockets(void **state)
{
    (void)state;
    run_ranks(4, groups_main);
}

typedef struct worker {
    ls_transport *t;
    uint64_t count;
    int result;
} worker;

static int worker_run(const worker *w)
{
    float *in = malloc(w->count * 4), *out = malloc(w->count * 4);
    for (int turn = 0; turn < 30; turn++) {
        expect_fill(in, LS_F32, w->count, w->t->rank);
        EXPECT_OK(run_op(w->t, reduce_op(in, out, w->count)));
        EXPECT(expect_reduced(out, LS_F32, LS_COMM_SUM, 0, w->count, w->t->size, false));
    }
    free(in);
    free(out);
    return 0;
}

static void *worker_main(void *argument)
{
    worker *w = argument;
    w->result = worker_run(w);
    return NULL;
}

static int threads_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t, *second;
    pthread_t thread;
    const uint32_t all[3] = {0, 1, 2};
    EXPECT_OK(open_tcp(&s, options, &t));
    const ls_comm_subgroup same = {.members = all, .count = 3, .self = t->rank, .id = 300};
    EXPECT_OK(t->calls->split(t, &same, &second));
    worker small = {.t = t, .count = 100}, large = {.t = second, .count = 50000};
    EXPECT(pthread_create(&thread, NULL, worker_main, &small) == 0);
    worker_main(&large);
    pthread_join(thread, NULL);
    EXPECT(small.result == 0 && large.result == 0);
    second->calls->destroy(second);
    t->calls->destroy(t);
    return 0;
}

static void groups_of_two_threads_do_not_hold_each_other_up(void **state)
{
    (void)state;
    run_ranks(3, threads_main);
}

/* ---- what goes wrong ---- */

static int count_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float data[200000];
    EXPECT_OK(open_tcp(&s, options, &t));
    EXPECT_OK(barrier(t));
    const uint64_t begin = ls_clock_monotonic_ns();
    const ls_status status = run_op(t, reduce_op(data, data, t->rank == 1 ? 150000 : 200000));
    EXPECT(status == LS_ERR_MISMATCH && says("150000") && says("200000"));
    EXPECT(ls_clock_monotonic_ns() - begin < 3000000000ull);
    EXPECT(barrier(t) == LS_ERR_MISMATCH); /* and stays so */
    t->calls->destroy(t);
    return 0;
}

static void call_with_another_count_is_a_mismatch(void **state)
{
    (void)state;
    run_ranks(3, count_main);
}

static int kind_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float data[70000];
    EXPECT_OK(open_tcp(&s, options, &t));
    ls_status status;
    if (t->rank == 2) {
        status = barrier(t);
    } else {
        status = run_op(
            t,
            (ls_comm_op){.kind = LS_COMM_BROADCAST, .dtype = LS_F32, .peer = 0, .out = data, .count = 70000});
    }
    /* the root need not wait for the last of the chain: it learns in its next call */
    if (t->rank == 0 && status == LS_OK) {
        status = barrier(t);
    }
    EXPECT(status == LS_ERR_MISMATCH && says("barrier") && says("broadcast"));
    t->calls->destroy(t);
    return 0;
}

static void call_of_another_kind_is_a_mismatch(void **state)
{
    (void)state;
    run_ranks(3, kind_main);
}

static int crossed_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    float x = 1;
    EXPECT_OK(open_tcp(&s, options, &t));
    const ls_status status =
        t->rank == 0
            ? run_op(t,
                     (ls_comm_op){.kind = LS_COMM_RECEIVE, .dtype = LS_F32, .peer = 1, .out = &x, .count = 1})
            : barrier(t);
    EXPECT(status == LS_ERR_MISMATCH && says("receive") && says("barrier"));
    t->calls->destroy(t);
    return 0;
}

static void receive_against_a_barrier_is_a_mismatch(void **state)
{
    (void)state;
    run_ranks(2, crossed_main);
}

static int blocks_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float in[200000], out[200000];
    EXPECT_OK(open_tcp(&s, options, &t));
    const uint64_t counts_sent[2] = {65536, 65536}, at[2] = {0, 65536};
    const uint64_t counts_received[2] = {65536, t->rank == 0 ? 131072 : 65536};
    const ls_comm_blocks blocks = {counts_sent, at, counts_received, at};
    const ls_comm_op op = {.kind = LS_COMM_ALL_TO_ALL_BLOCKS,
                           .dtype = LS_F32,
                           .peer = UINT32_MAX,
                           .in = in,
                           .out = out,
                           .blocks = &blocks};
    EXPECT(run_op(t, op) == LS_ERR_MISMATCH && says("262144 bytes") && says("524288"));
    t->calls->destroy(t);
    return 0;
}

static void blocks_of_a_pair_have_to_agree(void **state)
{
    (void)state;
    run_ranks(2, blocks_main);
}

static int absent_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float data[100000];
    EXPECT_OK(open_tcp(&s, options, &t));
    deadline_ms = SHORT_MS;
    if (t->rank == 2) {
        EXPECT(wait_until_done(options->size - 1));
        EXPECT(barrier(t) == LS_ERR_TIMEOUT && says("rank 2"));
    } else {
        const uint64_t begin = ls_clock_monotonic_ns();
        EXPECT(run_op(t, reduce_op(data, data, t->size == 3 ? 100000 : 10)) == LS_ERR_TIMEOUT);
        EXPECT(says("these ranks did not call it: rank 2 (host2"));
        EXPECT(ls_clock_monotonic_ns() - begin < 3000000000ull);
    }
    t->calls->destroy(t);
    EXPECT(say_done(options->rank));
    return 0;
}

static void rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    run_ranks(3, absent_main);
    run_ranks(4, absent_main);
}

static int death_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    static float data[4000000];
    EXPECT_OK(open_tcp(&s, options, &t));
    EXPECT_OK(barrier(t));
    if (t->rank == 1) {
        usleep(100000);
        kill(getpid(), SIGKILL);
    }
    const uint64_t begin = ls_clock_monotonic_ns();
    const ls_status status = run_op(t, reduce_op(data, data, 4000000));
    EXPECT(status == LS_ERR_RANKS_LOST && says("rank 1 (host1"));
    EXPECT(ls_clock_monotonic_ns() - begin < 5000000000ull);
    t->calls->destroy(t);
    return 0;
}

static void rank_that_dies_is_named(void **state)
{
    (void)state;
    pid_t pids[3];
    meeting_open();
    for (uint32_t rank = 0; rank < 3; rank++) {
        const ls_comm_options options = rank_options(rank, 3);
        pids[rank] = start_rank(death_main, &options);
    }
    assert_int_equal(end_rank(pids[0]), 0);
    assert_int_equal(end_rank(pids[1]), 128 + SIGKILL);
    assert_int_equal(end_rank(pids[2]), 0);
    meeting_close();
}

static int leave_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    EXPECT_OK(open_tcp(&s, options, &t));
    EXPECT_OK(barrier(t));
    if (t->rank != 0) {
        EXPECT(barrier(t) == LS_ERR_RANKS_LOST && says("rank 0") && says("has left"));
    }
    t->calls->destroy(t);
    return 0;
}

static void rank_that_left_is_named(void **state)
{
    (void)state;
    run_ranks(3, leave_main);
}

static void *abort_soon(void *argument)
{
    ls_transport *t = argument;
    usleep(100000);
    t->calls->abort(t, LS_ERR_FAILED, "the roof is on fire");
    return (void *)(uintptr_t)ls_store_put((ls_store *)test_store, "aborted", "1", 1);
}

static int abort_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    pthread_t thread;
    EXPECT_OK(open_tcp(&s, options, &t));
    EXPECT_OK(barrier(t));
    if (t->rank == 0) {
        char one;
        size_t bytes;
        EXPECT_OK(ls_store_get((ls_store *)test_store, "aborted", 10, &one, 1, &bytes));
        /* The others had come: what they sent may be enough for this barrier, but not for the
         * next. */
        if (barrier(t) == LS_OK) {
            EXPECT(barrier(t) == LS_ERR_FAILED);
        }
        EXPECT(says("on fire"));
    } else {
        if (t->rank == 1) {
            EXPECT(pthread_create(&thread, NULL, abort_soon, t) == 0);
        }
        const uint64_t begin = ls_clock_monotonic_ns();
        EXPECT(barrier(t) == LS_ERR_FAILED && says("on fire"));
        EXPECT(ls_clock_monotonic_ns() - begin < 3000000000ull);
        if (t->rank == 1) {
            pthread_join(thread, NULL);
        }
    }
    t->calls->destroy(t);
    return 0;
}

static void abort_reaches_all(void **state)
{
    (void)state;
    run_ranks(3, abort_main);
}

/* ---- opening ---- */

static int token_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    ls_comm_options other = *options;
    other.timeout_s = 2;
    snprintf(other.token, sizeof other.token, options->rank == 1 ? "1234" : "5678");
    const ls_status status = open_tcp(&s, &other, &t);
    EXPECT(options->rank == 1 ? status == LS_ERR_INVALID && says("another token")
                              : status == LS_ERR_TIMEOUT && says("rank 1"));
    return 0;
}

static void wrong_token_is_refused(void **state)
{
    (void)state;
    run_ranks(2, token_main);
}

static int no_token_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    fill_setup(&s, options);
    s.options.token[0] = 0;
    EXPECT(ls_transport_open_tcp(&s.setup, &t) == LS_ERR_INVALID && says("LOCKSTEP_TOKEN"));
    return 0;
}

static void several_hosts_without_a_token_are_refused(void **state)
{
    (void)state;
    run_ranks(2, no_token_main);
}

static int interface_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    fill_setup(&s, options);
    s.options.interface = "nonesuch0";
    EXPECT(ls_transport_open_tcp(&s.setup, &t) == LS_ERR_INVALID && says("nonesuch0") &&
           says("lo 127.0.0.1"));
    return 0;
}

static void interface_that_is_not_there_is_named(void **state)
{
    (void)state;
    run_ranks(1, interface_main);
}

/* Rank 0 is a web server that has put its address where a rank's should be. */
static int web_server(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in bound;
    socklen_t bytes = sizeof bound;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(bind(listener, (const struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 8) == 0);
    EXPECT(getsockname(listener, (struct sockaddr *)&bound, &bytes) == 0);
    ls_tcp_book book = {.port = ntohs(bound.sin_port),
                        .count = 1,
                        .addresses = {{.family = 4, .prefix = 8, .loopback = true, .bytes = {127, 0, 0, 1}}}};
    uint8_t written[LS_TCP_BOOK_BYTES_MAX];
    const char *key = "5/test/1/tcp/0";
    EXPECT_OK(ls_store_put((ls_store *)test_store, key, written, ls_tcp_book_write(&book, written)));
    const int fd = accept(listener, NULL, NULL);
    EXPECT(fd >= 0 && write(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28) == 28);
    char rest[200];
    while (read(fd, rest, sizeof rest) > 0) {
    }
    close(fd);
    close(listener);
    return 0;
}

static int web_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    if (options->rank == 0) {
        return web_server();
    }
    EXPECT(open_tcp(&s, options, &t) == LS_ERR_INVALID && says("does not speak Lockstep") &&
           says("127.0.0.1:"));
    return 0;
}

static void peer_that_speaks_something_else_is_named(void **state)
{
    (void)state;
    run_ranks(2, web_main);
}

/* Strangers that call a rank are turned away and do no harm: rank 1 sends HTTP to rank 0 before it
 * calls properly. */
static int stranger_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    if (options->rank == 1) {
        uint8_t bytes[LS_TCP_BOOK_BYTES_MAX];
        size_t count = 0;
        ls_tcp_book book;
        const char *key = "5/test/1/tcp/0";
        EXPECT_OK(ls_store_get((ls_store *)test_store, key, 5, bytes, sizeof bytes, &count));
        EXPECT(ls_tcp_book_read(bytes, count, &book));
        const struct sockaddr_in to = {
            .sin_family = AF_INET, .sin_port = htons(book.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char answer[16];
        EXPECT(connect(fd, (const struct sockaddr *)&to, sizeof to) == 0);
        EXPECT(write(fd, "GET / HTTP/1.1\r\n\r\n", 18) == 18);
        EXPECT(read(fd, answer, sizeof answer) <= 0);
        close(fd);
    }
    EXPECT_OK(open_tcp(&s, options, &t));
    EXPECT_OK(barrier(t));
    t->calls->destroy(t);
    return 0;
}

static void strangers_are_turned_away(void **state)
{
    (void)state;
    run_ranks(2, stranger_main);
}

static int epoch_main(const ls_comm_options *options)
{
    rank_setup s;
    ls_transport *t;
    fill_setup(&s, options);
    s.options.timeout_s = 2;
    s.options.epoch = 5 + options->rank;
    const ls_status status = ls_transport_open_tcp(&s.setup, &t);
    EXPECT(options->rank == 1 ? status == LS_ERR_MISMATCH && says("another membership epoch")
                              : status == LS_ERR_TIMEOUT);
    return 0;
}

static void rank_of_another_epoch_is_refused(void **state)
{
    (void)state;
    run_ranks(2, epoch_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_give_the_bits_of_the_tree),
        cmocka_unit_test(small_calls_of_many_ranks_give_the_bits_of_the_tree),
        cmocka_unit_test(ring_gives_all_ranks_the_same_sums),
        cmocka_unit_test(rank_of_a_ring_that_differs_is_a_mismatch),
        cmocka_unit_test(rank_that_does_not_come_to_a_ring_is_named),
        cmocka_unit_test(rank_that_dies_in_a_ring_is_named),
        cmocka_unit_test(groups_share_the_sockets),
        cmocka_unit_test(groups_of_two_threads_do_not_hold_each_other_up),
        cmocka_unit_test(call_with_another_count_is_a_mismatch),
        cmocka_unit_test(call_of_another_kind_is_a_mismatch),
        cmocka_unit_test(receive_against_a_barrier_is_a_mismatch),
        cmocka_unit_test(blocks_of_a_pair_have_to_agree),
        cmocka_unit_test(rank_that_does_not_come_is_named),
        cmocka_unit_test(rank_that_dies_is_named),
        cmocka_unit_test(rank_that_left_is_named),
        cmocka_unit_test(abort_reaches_all),
        cmocka_unit_test(wrong_token_is_refused),
        cmocka_unit_test(several_hosts_without_a_token_are_refused),
        cmocka_unit_test(interface_that_is_not_there_is_named),
        cmocka_unit_test(peer_that_speaks_something_else_is_named),
        cmocka_unit_test(strangers_are_turned_away),
        cmocka_unit_test(rank_of_another_epoch_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
