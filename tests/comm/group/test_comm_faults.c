// SPDX-License-Identifier: Apache-2.0
/* What collectives say when ranks disagree, come late, stop, die or leave. Real processes, real
 * signals. */
#include "test.h"

#include "comm/group/comm_ranks.h"

#include <dirent.h>
#include <stdlib.h>

/* How long ranks may wait where a verdict must come without it, and where the time-out is what is
 * tried. SOON_NS: the verdict did not wait for PATIENT_S. It comes in milliseconds on a quiet
 * machine; on a busy one a rank may first have to be given a core. */
enum { SIZE = 3, PATIENT_S = 40, BRIEF_S = 3 };
static const uint64_t soon_ns = 20000000000u;

typedef struct running {
    pid_t pids[RANKS_MAX];
    uint32_t size;
} running;

static running start(uint32_t size, double timeout_s, rank_main run)
{
    running r = {.size = size};
    results_open();
    meeting_open();
    for (uint32_t rank = 0; rank < size; rank++) {
        ls_comm_options options = rank_options(rank, size);
        options.timeout_s = timeout_s;
        r.pids[rank] = start_rank(run, &options);
    }
    return r;
}

static void finish(const running *r, int codes[RANKS_MAX])
{
    for (uint32_t rank = 0; rank < r->size; rank++) {
        codes[rank] = end_rank(r->pids[rank]);
    }
    meeting_close();
}

static void finish_all_well(const running *r)
{
    int codes[RANKS_MAX];
    finish(r, codes);
    for (uint32_t rank = 0; rank < r->size; rank++) {
        assert_int_equal(codes[rank], 0);
    }
}

static void assert_text_has(uint32_t rank, const char *part)
{
    if (!strstr(results[rank].text, part)) {
        fail_msg("rank %u does not say '%s': %s", rank, part, results[rank].text);
    }
}

static void assert_same_verdict(uint32_t size, ls_status status)
{
    for (uint32_t rank = 0; rank < size; rank++) {
        assert_int_equal(results[rank].status, status);
        assert_string_equal(results[rank].text, results[0].text);
        assert_true(results[rank].took_ns < soon_ns);
    }
}

static void wait_for_stage(uint32_t rank, uint32_t stage)
{
    for (int i = 0; i < 10000 && atomic_load(&results[rank].stage) < stage; i++) {
        usleep(1000);
    }
    assert_true(atomic_load(&results[rank].stage) >= stage);
}

/* In a rank, right before a call that waits for others. */
static void about_to_wait(uint32_t rank)
{
    results[rank].pid = getpid();
    atomic_store(&results[rank].stage, 1);
}

/* Whether the rank sleeps, which it does nowhere but in the call after about_to_wait. */
static bool waits(uint32_t rank)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)results[rank].pid);
    FILE *file = atomic_load(&results[rank].stage) > 0 ? fopen(path, "re") : NULL;
    if (file) {
        (void)!fgets(line, sizeof line, file);
        fclose(file);
    }
    const char *end = strrchr(line, ')');
    return end && strncmp(end, ") S", 3) == 0;
}

/* In a rank: until all ranks in [first, past) wait in their calls, at most 30 s. */
static void until_others_wait(uint32_t first, uint32_t past)
{
    for (int i = 0; i < 30000 && first < past; i++) {
        first += waits(first);
        usleep(1000);
    }
}

/* ---- ranks that disagree ---- */

static int rank_calls_another_kind(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    float x[16] = {0};
    EXPECT_OK(ls_comm_open(options, &comm));
    EXPECT_OK(ls_comm_all_reduce(comm, x, x, 16, LS_F32, LS_COMM_SUM, NULL));
    memset(x, 1, sizeof x);
    /* Who differs comes last: the majority is named when it is there, and others are not waited for
     * for long. */
    if (options->rank == 2) {
        until_others_wait(0, 2);
    } else {
        about_to_wait(options->rank);
    }
    const uint64_t start_ns = ls_clock_monotonic_ns();
    const ls_status status = options->rank == 2
                                 ? ls_comm_barrier(comm, NULL)
                                 : ls_comm_all_reduce(comm, x, x, 16, LS_F32, LS_COMM_SUM, NULL);
    note_result(options->rank, start_ns, status);
    for (size_t i = 0; i < sizeof x; i++) {
        EXPECT(((char *)x)[i] == 1); /* no byte of the output was written */
    }
    /* The first reason stays. */
    EXPECT(ls_comm_barrier(comm, NULL) == LS_ERR_MISMATCH);
    EXPECT(strcmp(ls_error_text(), results[options->rank].text) == 0);
    ls_comm_close(comm);
    return 0;
}

static void mismatch_of_kind_names_both_sides(void **state)
{
    (void)state;
    const running r = start(SIZE, PATIENT_S, rank_calls_another_kind);
    finish_all_well(&r);
    assert_same_verdict(SIZE, LS_ERR_MISMATCH);
    char pid[32];
    assert_text_has(0, "all_reduce sum of 16 f32 (tests/comm/group/test_comm_faults.c:");
    assert_text_has(0, "barrier (tests/comm/group/test_comm_faults.c:");
    assert_text_has(0, "2 of 3 agree on all_reduce");
    assert_text_has(0, "(call 2)");
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        snprintf(pid, sizeof pid, "pid %d", (int)r.pids[rank]);
        assert_text_has(0, pid);
    }
    results_close();
}

static int variant; /* of rank_differs; forked processes inherit it */

static ls_status differ(ls_comm *comm, bool odd, float *x)
{
    switch (variant) {
    case 0:
        return ls_comm_all_reduce(comm, x, x, odd ? 5 : 6, LS_F32, LS_COMM_SUM, NULL);
    case 1:
        return ls_comm_all_reduce(comm, x, x, 6, odd ? LS_I32 : LS_F32, LS_COMM_SUM, NULL);
    case 2:
        return ls_comm_all_reduce(comm, x, x, 6, LS_F32, odd ? LS_COMM_MAX : LS_COMM_SUM, NULL);
    case 3:
        return ls_comm_broadcast(comm, x, 6, LS_F32, odd, NULL);
    case 4: /* large and small take different ways */
        return ls_comm_all_reduce(comm, x, x, odd ? 100000 : 10, LS_F32, LS_COMM_SUM, NULL);
    default:
        return ls_comm_all_gather(comm, x, x + 50000 * odd, odd ? 50000 : 4, LS_F32, NULL);
    }
}

static int rank_differs(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    float *x = calloc(300000, sizeof *x);
    EXPECT_OK(ls_comm_open(options, &comm));
    const uint64_t start_ns = ls_clock_monotonic_ns();
    note_result(options->rank, start_ns, differ(comm, options->rank == 1, x));
    ls_comm_close(comm);
    free(x);
    return 0;
}

static void mismatch_of_each_part_is_found(void **state)
{
    (void)state;
    static const char *const words[][2] = {
        {"of 5 f32", "of 6 f32"},       {"of 6 i32", "of 6 f32"},
        {"max of 6", "sum of 6"},       {"root 1", "root 0"},
        {"of 100000 f32", "of 10 f32"}, {"all_gather of 50000", "all_gather of 4 "}};
    for (variant = 0; variant < (int)(sizeof words / sizeof words[0]); variant++) {
        const running r = start(2, PATIENT_S, rank_differs);
        finish_all_well(&r);
        assert_same_verdict(2, LS_ERR_MISMATCH);
        assert_text_has(0, words[variant][0]);
        assert_text_has(0, words[variant][1]);
        assert_text_has(0, "no side is the majority");
        results_close();
    }
}

/* Two ranks differ and the third never comes: that must not hide the difference. */
static int rank_differs_or_sleeps(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    EXPECT_OK(ls_comm_open(options, &comm));
    if (options->rank == 0) {
        for (int i = 0; i < 500 && results[1].took_ns == 0; i++) {
            usleep(10000);
        }
        note_result(0, ls_clock_monotonic_ns(), ls_comm_barrier(comm, NULL));
    } else {
        float x = 0;
        const uint64_t start_ns = ls_clock_monotonic_ns();
        note_result(options->rank, start_ns,
                    options->rank == 1 ? ls_comm_barrier(comm, NULL)
                                       : ls_comm_all_reduce(comm, &x, &x, 1, LS_F32, LS_COMM_SUM, NULL));
    }
    ls_comm_close(comm);
    return 0;
}

static void mismatch_is_found_while_others_are_missing(void **state)
{
    (void)state;
    const running r = start(SIZE, PATIENT_S, rank_differs_or_sleeps);
    finish_all_well(&r);
    assert_same_verdict(SIZE, LS_ERR_MISMATCH);
    results_close();
}

static int rank_receives_another_count(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    float x[8] = {0};
    EXPECT_OK(ls_comm_open(options, &comm));
    const uint64_t start_ns = ls_clock_monotonic_ns();
    ls_status status = LS_OK;
    if (options->rank == 0) {
        EXPECT_OK(ls_comm_send(comm, x, 8, LS_F32, 1, NULL)); /* small: on its way at once */
        status = ls_comm_receive(comm, x, 1, LS_F32, 1, NULL);
    } else {
        status = ls_comm_receive(comm, x, 7, LS_F32, 0, NULL);
    }
    note_result(options->rank, start_ns, status);
    ls_comm_close(comm);
    return 0;
}

static void mismatch_of_a_pair_names_both_sides(void **state)
{
    (void)state;
    const running r = start(2, PATIENT_S, rank_receives_another_count);
    finish_all_well(&r);
    assert_same_verdict(2, LS_ERR_MISMATCH);
    assert_text_has(0, "send of 8 f32 to 1");
    assert_text_has(0, "receive of 7 f32 from 0");
    results_close();
}

static int rank_expects_another_block(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    float in[8] = {0}, out[8] = {0};
    EXPECT_OK(ls_comm_open(options, &comm));
    const uint64_t two[2] = {2, 2}, at[2] = {0, 2}, wrong[2] = {2, 3};
    const ls_comm_blocks blocks = {two, at, options->rank == 0 ? wrong : two, at};
    const uint64_t start_ns = ls_clock_monotonic_ns();
    note_result(options->rank, start_ns, ls_comm_all_to_all_blocks(comm, in, out, &blocks, LS_F32, NULL));
    ls_comm_close(comm);
    return 0;
}

static void mismatch_of_a_block_names_both_sides(void **state)
{
    (void)state;
    const running r = start(2, PATIENT_S, rank_expects_another_block);
    finish_all_well(&r);
    assert_same_verdict(2, LS_ERR_MISMATCH);
    assert_text_has(0, "sends 2 elements");
    assert_text_has(0, "expects 3 (");
    results_close();
}

/* ---- ranks that don't come ---- */

static int rank_two_never_calls(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    float x = 1;
    EXPECT_OK(ls_comm_open(options, &comm));
    EXPECT_OK(ls_comm_broadcast(comm, &x, 1, LS_F32, 0, NULL));
    if (options->rank == 2) {
        while (results[0].took_ns == 0 || results[1].took_ns == 0) {
            usleep(1000);
        }
    }
    const uint64_t start_ns = ls_clock_monotonic_ns();
    note_result(options->rank, start_ns, ls_comm_all_reduce(comm, &x, &x, 1, LS_F32, LS_COMM_SUM, NULL));
    ls_comm_close(comm);
    return 0;
}

static void deadline_names_who_did_not_come(void **state)
{
    (void)state;
    const running r = start(SIZE, BRIEF_S, rank_two_never_calls);
    finish_all_well(&r);
    assert_same_verdict(SIZE, LS_ERR_TIMEOUT);
    assert_text_has(0, "1 of 3 ranks are missing; rank 2 (");
    assert_text_has(
        0, "its last call is broadcast of 1 f32 root 0 (call 1, tests/comm/group/test_comm_faults.c:");
    assert_text_has(0, "which it has left");
    results_close();
}

static int rank_works_until_it_fails(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    EXPECT_OK(ls_comm_open(options, &comm));
    enum { COUNT = 40000 };
    float *x = ls_comm_alloc(comm, COUNT * sizeof *x);
    EXPECT(x);
    ls_status status = LS_OK;
    uint64_t start_ns = 0;
    for (uint32_t i = 0; status == LS_OK; i++) {
        start_ns = ls_clock_monotonic_ns();
        status = ls_comm_all_reduce(comm, x, x, i % 2 ? 10 : COUNT, LS_F32, LS_COMM_MAX, NULL);
        atomic_store(&results[options->rank].stage, i);
    }
    note_result(options->rank, start_ns, status);
    ls_comm_close(comm);
    return 0;
}

static void stopped_rank_is_named(void **state)
{
    (void)state;
    running r = start(SIZE, BRIEF_S, rank_works_until_it_fails);
    wait_for_stage(1, 20);
    kill(r.pids[1], SIGSTOP);
    assert_int_equal(end_rank(r.pids[0]), 0);
    assert_int_equal(end_rank(r.pids[2]), 0);
    kill(r.pids[1], SIGCONT);
    assert_int_equal(end_rank(r.pids[1]), 0);
    meeting_close();
    assert_same_verdict(SIZE, LS_ERR_TIMEOUT);
    assert_text_has(0, "rank 1 (");
    assert_text_has(0, "1 of 3 ranks are missing");
    results_close();
}

static void killed_rank_is_named(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < SIZE; victim++) {
        running r = start(SIZE, PATIENT_S, rank_works_until_it_fails);
        const uint32_t witness = victim == 0 ? 1 : 0;
        char name[32];
        int codes[RANKS_MAX];
        wait_for_stage(victim, 20 + victim);
        kill(r.pids[victim], SIGKILL);
        finish(&r, codes);
        for (uint32_t rank = 0; rank < SIZE; rank++) {
            assert_int_equal(codes[rank], rank == victim ? 128 + SIGKILL : 0);
            if (rank != victim) {
                assert_int_equal(results[rank].status, LS_ERR_RANKS_LOST);
                assert_string_equal(results[rank].text, results[witness].text);
                assert_true(results[rank].took_ns < soon_ns);
            }
        }
        snprintf(name, sizeof name, "rank %u (", victim);
        assert_text_has(witness, name);
        assert_text_has(witness, "has died");
        results_close();
    }
}

static int rank_zero_leaves(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    EXPECT_OK(ls_comm_open(options, &comm));
    const uint64_t start_ns = ls_clock_monotonic_ns();
    if (options->rank > 0) {
        note_result(options->rank, start_ns, ls_comm_barrier(comm, NULL));
    }
    ls_comm_close(comm);
    for (int i = 0; options->rank == 0 && i < 5000 && results[1].took_ns == 0; i++) {
        usleep(1000); /* alive, so that it is the leaving that is noticed */
    }
    return 0;
}

static void rank_that_left_is_named(void **state)
{
    (void)state;
    const running r = start(2, PATIENT_S, rank_zero_leaves);
    finish_all_well(&r);
    assert_int_equal(results[1].status, LS_ERR_RANKS_LOST);
    assert_text_has(1, "rank 0 (");
    assert_text_has(1, "has left the group");
    results_close();
}

static int rank_receives_from_the_dead(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    int32_t x = 41;
    EXPECT_OK(ls_comm_open(options, &comm));
    if (options->rank == 0) {
        results[0].pid = getpid();
        EXPECT_OK(ls_comm_send(comm, &x, 1, LS_I32, 1, NULL));
        raise(SIGKILL);
    }
    for (int i = 0; i < 30000 && (results[0].pid == 0 || kill(results[0].pid, 0) == 0); i++) {
        usleep(1000); /* until the test has waited for it */
    }
    int32_t got = 0;
    EXPECT_OK(ls_comm_receive(comm, &got, 1, LS_I32, 0, NULL)); /* what was sent before arrives */
    EXPECT(got == 41);
    const uint64_t start_ns = ls_clock_monotonic_ns();
    note_result(1, start_ns, ls_comm_receive(comm, &got, 1, LS_I32, 0, NULL));
    ls_comm_close(comm);
    return 0;
}

static void receive_from_a_dead_rank_gets_what_was_sent(void **state)
{
    (void)state;
    const running r = start(2, PATIENT_S, rank_receives_from_the_dead);
    int codes[RANKS_MAX];
    finish(&r, codes);
    assert_int_equal(codes[0], 128 + SIGKILL);
    assert_int_equal(codes[1], 0);
    assert_int_equal(results[1].status, LS_ERR_RANKS_LOST);
    assert_true(results[1].took_ns < soon_ns);
    results_close();
}

static int rank_zero_aborts(const ls_comm_options *options)
{
    ls_comm *comm = NULL, *group = NULL;
    EXPECT_OK(ls_comm_open(options, &comm));
    EXPECT_OK(ls_comm_split(comm, options->rank > 0, 0, &group));
    const uint64_t start_ns = ls_clock_monotonic_ns();
    ls_status status = LS_OK;
    if (options->rank == 0) {
        until_others_wait(1, SIZE);
        ls_comm_abort(comm, "the loss is not a number");
        ls_comm_abort(comm, "a second thought");
        status = ls_comm_barrier(comm, NULL);
    } else {
        about_to_wait(options->rank);
        /* the group is that of ranks 1 and 2: it ends with the one it was split from */
        status = ls_comm_barrier(options->rank == 1 ? comm : group, NULL);
    }
    note_result(options->rank, start_ns, status);
    ls_comm_close(group);
    ls_comm_close(comm);
    return 0;
}

static void abort_ends_calls_of_all_members_and_groups(void **state)
{
    (void)state;
    const running r = start(SIZE, PATIENT_S, rank_zero_aborts);
    finish_all_well(&r);
    assert_same_verdict(SIZE, LS_ERR_FAILED);
    assert_string_equal(results[2].text, "the loss is not a number");
    results_close();
}

/* ---- opening ---- */

static int rank_opens(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    ls_comm_options mine = *options;
    mine.size = variant == 1 && options->rank == 1 ? 2 : options->size;
    mine.epoch = variant == 2 && options->rank == 2 ? 8 : 7;
    mine.flags = variant == 3 && options->rank == 2 ? LS_COMM_NO_SHM : 0;
    if (variant == 0 && options->rank == 2) {
        return 0;
    }
    const uint64_t start_ns = ls_clock_monotonic_ns();
    note_result(options->rank, start_ns, ls_comm_open(&mine, &comm));
    EXPECT(!comm);
    return 0;
}

static void open_names_ranks_that_did_not_come(void **state)
{
    (void)state;
    variant = 0;
    const running r = start(SIZE, BRIEF_S, rank_opens);
    finish_all_well(&r);
    assert_int_equal(results[0].status, LS_ERR_TIMEOUT);
    assert_int_equal(results[1].status, LS_ERR_TIMEOUT);
    assert_text_has(0, "1 of 3 ranks did not join group 'world' within ");
    assert_text_has(0, " s: 2; were they started with the coordinator's address ");
    assert_string_equal(results[1].text, results[0].text);
    results_close();
}

static void open_refuses_ranks_that_mean_another_group(void **state)
{
    (void)state;
    static const char *const words[] = {[1] = "number of ranks", [3] = "flags"};
    for (variant = 1; variant <= 3; variant += 2) {
        const running r = start(SIZE, PATIENT_S, rank_opens);
        finish_all_well(&r);
        assert_same_verdict(SIZE, LS_ERR_MISMATCH);
        assert_text_has(0, words[variant]);
        results_close();
    }
}

static void open_refuses_bad_options(void **state)
{
    (void)state;
    snprintf(meeting_folder, sizeof meeting_folder, "/nowhere");
    const ls_comm_options good = rank_options(0, 2);
    ls_comm_options bad[6];
    for (int i = 0; i < 6; i++) {
        bad[i] = good;
    }
    bad[0].size = 0;
    bad[1].size = LS_COMM_SIZE_MAX + 1;
    bad[2].rank = 2;
    bad[3].coordinator[0] = 0;
    bad[4].timeout_s = -1.0;
    bad[5].sockets_per_peer = 9;
    for (int i = 0; i < 6; i++) {
        ls_comm *comm = NULL;
        assert_int_equal(ls_comm_open(&bad[i], &comm), LS_ERR_INVALID);
        assert_null(comm);
        assert_string_not_equal(ls_error_text(), "");
    }
}

/* ---- calls that are wrong in themselves ---- */

static void call_refuses_bad_arguments(void **state)
{
    (void)state;
    const ls_comm_options alone = {.size = 1};
    ls_comm *comm = NULL;
    _Alignas(8) char x[64] = {0};
    assert_int_equal(ls_comm_open(&alone, &comm), LS_OK);
    assert_int_equal(ls_comm_all_reduce(comm, NULL, x, 1, LS_F32, LS_COMM_SUM, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_reduce(comm, x, NULL, 1, LS_F32, LS_COMM_SUM, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_reduce(comm, x + 1, x + 1, 1, LS_F32, LS_COMM_SUM, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_reduce(comm, x, x, 1, LS_U8, LS_COMM_SUM, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_reduce(comm, x, x, 1, LS_DTYPE_COUNT, LS_COMM_SUM, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_reduce(comm, x, x, 1, LS_F32, (ls_comm_reduction)3, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_reduce(comm, x, x, UINT64_MAX / 2, LS_F32, LS_COMM_SUM, NULL),
                     LS_ERR_INVALID);
    assert_int_equal(ls_comm_broadcast(comm, x, 1, LS_F32, 1, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_broadcast(comm, x, 1, LS_F32, UINT32_MAX, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_to_all(comm, x, x, 1, LS_F32, NULL), LS_ERR_INVALID);
    const uint64_t one = 1, zero = 0;
    const ls_comm_blocks blocks = {&one, &zero, &one, &zero}, uneven = {&one, &zero, &zero, &zero};
    assert_int_equal(ls_comm_all_to_all_blocks(comm, NULL, x, &blocks, LS_F32, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_to_all_blocks(comm, x, x + 2, &blocks, LS_F32, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_all_to_all_blocks(comm, x, x, &uneven, LS_F32, NULL), LS_ERR_MISMATCH);
    assert_int_equal(ls_comm_send(comm, x, 1, LS_F32, 0, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_comm_receive(comm, x, 1, LS_F32, 7, NULL), LS_ERR_INVALID);
    /* None of them was a reason to give up. */
    assert_int_equal(ls_comm_all_reduce(comm, NULL, NULL, 0, LS_F32, LS_COMM_SUM, NULL), LS_OK);
    assert_int_equal(ls_comm_barrier(comm, NULL), LS_OK);
    ls_comm_abort(comm, "enough");
    assert_int_equal(ls_comm_barrier(comm, NULL), LS_ERR_FAILED);
    assert_string_equal(ls_error_text(), "enough");
    ls_comm_close(comm);
}

/* ---- groups, and what is left behind ---- */

static int rank_splits(const ls_comm_options *options)
{
    ls_comm *comm = NULL, *parity = NULL, *alone = NULL, *none = (ls_comm *)&comm, *deeper = NULL;
    const uint32_t me = options->rank, size = options->size;
    EXPECT_OK(ls_comm_open(options, &comm));
    int32_t pending = (int32_t)me; /* a message under way must not get between */
    EXPECT_OK(ls_comm_send(comm, &pending, 1, LS_I32, (me + 1) % size, NULL));
    /* the highest first */
    EXPECT_OK(ls_comm_split(comm, (int32_t)(me % 2), -(int32_t)me, &parity));
    const uint32_t members = me % 2 ? size / 2 : (size + 1) / 2;
    EXPECT(ls_comm_size(parity) == members);
    EXPECT(ls_comm_rank(parity) == members - 1 - me / 2);
    EXPECT(ls_comm_local_size(parity) == members && ls_comm_host_count(parity) == 1);
    int32_t sum = (int32_t)me, expected = 0;
    for (uint32_t rank = me % 2; rank < size; rank += 2) {
        expected += (int32_t)rank;
    }
    EXPECT_OK(ls_comm_all_reduce(parity, &sum, &sum, 1, LS_I32, LS_COMM_SUM, NULL));
    EXPECT(sum == expected);
    EXPECT_OK(ls_comm_split(comm, (int32_t)me, 0, &alone));
    EXPECT(ls_comm_size(alone) == 1);
    EXPECT_OK(ls_comm_barrier(alone, NULL));
    EXPECT_OK(ls_comm_split(comm, -1, 0, &none));
    EXPECT(!none);
    EXPECT_OK(ls_comm_split(parity, 0, (int32_t)me, &deeper)); /* the lowest first again */
    EXPECT(ls_comm_rank(deeper) == me / 2);
    int64_t *shared = ls_comm_alloc(deeper, 100000 * sizeof *shared);
    EXPECT(shared && shared[99999] == 0);
    for (int i = 0; i < 100000; i++) {
        shared[i] = i + me;
    }
    EXPECT_OK(ls_comm_broadcast(deeper, shared, 100000, LS_I64, ls_comm_size(deeper) - 1, NULL));
    EXPECT(shared[500] == 500 + (int64_t)(me % 2 + 2 * (members - 1)));
    int32_t got = -1;
    EXPECT_OK(ls_comm_receive(comm, &got, 1, LS_I32, (me + size - 1) % size, NULL));
    EXPECT(got == (int32_t)((me + size - 1) % size));
    ls_comm_close(deeper);
    ls_comm_close(parity);
    ls_comm_close(alone);
    EXPECT_OK(ls_comm_barrier(comm, NULL));
    ls_comm_close(comm);
    return 0;
}

static void split_makes_groups_of_groups(void **state)
{
    (void)state;
    run_ranks(2, rank_splits);
    run_ranks(5, rank_splits);
}

static uint32_t count_descriptors(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count;
}

static uint32_t count_shared_maps(void)
{
    uint32_t count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        count += strstr(line, "lockstep") != NULL && strstr(line, "memfd") != NULL;
    }
    fclose(maps);
    return count;
}

static int rank_leaves_nothing(const ls_comm_options *options)
{
    const uint32_t descriptors = count_descriptors();
    for (int i = 0; i < 3; i++) { /* the same name again: openings are numbered */
        ls_comm *comm = NULL, *group = NULL;
        EXPECT_OK(ls_comm_open(options, &comm));
        EXPECT_OK(ls_comm_split(comm, 0, 0, &group));
        char *kept = ls_comm_alloc(comm, 3 << 20), *freed = ls_comm_alloc(comm, 100);
        EXPECT(kept && freed && count_shared_maps() >= 4);
        kept[(3 << 20) - 1] = freed[99] = 1;
        ls_comm_free(comm, freed);
        char *again = ls_comm_alloc(comm, 50);
        EXPECT(again && again[49] == 0 && again[0] == 0);
        /* more than there is: an error, not the end */
        EXPECT(!ls_comm_alloc(comm, (uint64_t)1 << 50));
        EXPECT(strstr(ls_error_text(), "available"));
        EXPECT_OK(ls_comm_barrier(group, NULL));
        EXPECT_OK(ls_comm_barrier(comm, NULL));
        ls_comm_close(group);
        ls_comm_close(comm);
        EXPECT(count_descriptors() == descriptors);
        EXPECT(count_shared_maps() == 0);
    }
    return 0;
}

static void close_leaves_nothing_behind(void **state)
{
    (void)state;
    run_ranks(SIZE, rank_leaves_nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatch_of_kind_names_both_sides),
        cmocka_unit_test(mismatch_of_each_part_is_found),
        cmocka_unit_test(mismatch_is_found_while_others_are_missing),
        cmocka_unit_test(mismatch_of_a_pair_names_both_sides),
        cmocka_unit_test(mismatch_of_a_block_names_both_sides),
        cmocka_unit_test(deadline_names_who_did_not_come),
        cmocka_unit_test(stopped_rank_is_named),
        cmocka_unit_test(killed_rank_is_named),
        cmocka_unit_test(rank_that_left_is_named),
        cmocka_unit_test(receive_from_a_dead_rank_gets_what_was_sent),
        cmocka_unit_test(abort_ends_calls_of_all_members_and_groups),
        cmocka_unit_test(open_names_ranks_that_did_not_come),
        cmocka_unit_test(open_refuses_ranks_that_mean_another_group),
        cmocka_unit_test(open_refuses_bad_options),
        cmocka_unit_test(call_refuses_bad_arguments),
        cmocka_unit_test(split_makes_groups_of_groups),
        cmocka_unit_test(close_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
