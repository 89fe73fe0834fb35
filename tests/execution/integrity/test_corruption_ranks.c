// SPDX-License-Identifier: Apache-2.0
/*
 * Silent corruption among ranks, with real processes on one host and on several: a bit that flips
 * in a gradient, in the shared state, or in a host's copy of the weights is found by all before the
 * update, and who was wrong is named.
 */
#include "test.h"

#include "comm/store/comm_store.h"
#include "execution/parallel/data_parallel_world.h"

#include "base/random.h"
#include "execution/integrity/audit.h"

enum { LEAVES = 7 };

static uint64_t number(uint64_t trial, uint64_t sub, uint64_t bound)
{
    return ls_random_below(ls_random_stream(23, LS_RANDOM_TEST), trial, sub, bound);
}

static void prepare_flip(world *w, uint32_t rank, ls_step_settings *settings)
{
    (void)rank;
    settings->seed = w->seed;
    settings->audit_every_steps = 1;
    settings->flip = &w->flip;
}

static uint32_t bucket_of(const world *w, uint64_t at)
{
    uint32_t bucket = 0;
    while (bucket + 1 < w->model.layout.bucket_count &&
           (int64_t)at >= w->model.layout.buckets[bucket + 1].offset) {
        bucket++;
    }
    return bucket;
}

static uint32_t owner_of(const world *w, uint64_t at)
{
    uint32_t rank = 0;
    for (;; rank++) {
        const ls_slice slice = ls_slice_of(&w->model.layout, bucket_of(w, at), w->ranks, rank);
        if ((int64_t)at >= slice.offset && (int64_t)at < slice.offset + slice.count) {
            return rank;
        }
    }
}

/* One host of `ranks`, or hosts of as many as `hosts` says. */
static void open_world(world *w, const uint32_t *hosts, uint32_t host_count, uint32_t steps, uint64_t trial)
{
    if (host_count > 1) {
        test_store_open();
    }
    world_init_hosts(w, &tiny, LEAVES, hosts, host_count, 1, steps);
    w->prepare = prepare_flip;
    w->seed = trial;
    w->flip = (ls_bit_flip){.at = number(trial, 0, (uint64_t)w->model.layout.float_count),
                            .bit = (uint32_t)number(trial, 1, 32),
                            .times = 1};
}

static void close_world(world *w)
{
    const bool had_store = w->host_count > 1;
    world_release(w);
    if (had_store) {
        test_store_close();
    }
}

/* All ranks end step `step` with one text and one fault, and begin no update; rank 0's fault. */
static ls_step_fault agreed_fault(const world *w, uint32_t step)
{
    const rank_log *logs = w->shared->logs;
    for (uint32_t r = 0; r < w->ranks; r++) {
        assert_int_equal(logs[r].status[step], LS_ERR_MISMATCH);
        assert_string_equal(logs[r].text[step], logs[0].text[step]);
        assert_memory_equal(&logs[r].result[step].fault, &logs[0].result[step].fault, sizeof(ls_step_fault));
        assert_int_equal(logs[r].begun, step);
    }
    assert_int_equal(logs[0].result[step].fault.bucket, bucket_of(w, w->flip.at));
    return logs[0].result[step].fault;
}

/* ---- a leaf ---- */

/* The owner or the checker turns one bit over, the first `times` times that it computes the audited
 * leaf. */
static ls_step_fault run_wrong_leaf(const uint32_t *hosts, uint32_t host_count, uint64_t trial, bool is_owner,
                                    uint32_t times, char text_out[1024])
{
    world w;
    open_world(&w, hosts, host_count, 1, trial);
    float *before = malloc(flat_bytes(&w));
    memcpy(before, w.hosts[0].parameters, flat_bytes(&w));
    const ls_audit_roles roles = ls_audit_choose(w.seed, 0, 1, LEAVES, w.ranks);
    w.flip.kind = LS_BIT_FLIP_GRADIENT;
    w.flip.step = 1;
    w.flip.rank = is_owner ? roles.owner : roles.checker;
    w.flip.leaf = roles.leaf;
    w.flip.times = times;
    run_ranks(&w, RANKS_MAX);
    const ls_step_fault fault = agreed_fault(&w, 0);
    assert_int_equal(fault.kind, LS_STEP_FAULT_LEAF);
    assert_int_equal(fault.leaf, roles.leaf);
    assert_true(fault.rank == w.flip.rank || fault.rank == LS_NO_RANK);
    assert_memory_equal(before, w.hosts[0].parameters, flat_bytes(&w));
    snprintf(text_out, 1024, "%s", w.shared->logs[0].text[0]);
    free(before);
    close_world(&w);
    return fault;
}

/* With a third rank as the judge, who was wrong is known, whether the fault comes and goes or
 * stays. */
static void audit_names_the_rank_that_was_wrong(void **state)
{
    (void)state;
    enum { TRIALS = 24 };
    uint32_t named = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        char text[1024];
        const uint32_t ranks = 3 + (uint32_t)(trial % 3);
        const ls_step_fault fault =
            run_wrong_leaf(&ranks, 1, trial, trial % 2 == 0, trial % 4 < 2 ? 1 : 9, text);
        named += fault.rank != LS_NO_RANK && strstr(text, "COMPUTED WRONGLY") != NULL;
    }
    print_message("flips in an audited leaf, 3 to 5 ranks: %d of %d found, %u named\n", TRIALS, TRIALS,
                  named);
    assert_int_equal(named, TRIALS);
}

static void audit_names_a_rank_of_another_host(void **state)
{
    (void)state;
    static const uint32_t splits[][3] = {{2, 1, 0}, {1, 2, 0}, {2, 2, 0}, {1, 1, 1}};
    enum { TRIALS = 12 };
    uint32_t named = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        char text[1024];
        const uint32_t *split = splits[trial % 4];
        const ls_step_fault fault = run_wrong_leaf(split, split[2] ? 3 : 2, 200 + trial, trial % 2 == 0,
                                                   trial % 3 == 0 ? 9 : 1, text);
        named += fault.rank != LS_NO_RANK && strstr(text, "COMPUTED WRONGLY") != NULL;
    }
    print_message("flips in an audited leaf, 2 and 3 hosts: %d of %d found, %u named\n", TRIALS, TRIALS,
                  named);
    assert_int_equal(named, TRIALS);
}

/* Two ranks judge themselves: a fault that comes and goes is named, one that stays can't be. */
static void audit_of_two_ranks_names_what_comes_and_goes(void **state)
{
    (void)state;
    for (uint64_t trial = 100; trial < 112; trial++) {
        char text[1024];
        const bool lasting = trial % 3 == 0;
        static const uint32_t one[] = {2}, two[] = {1, 1};
        const ls_step_fault fault = run_wrong_leaf(trial % 4 < 2 ? one : two, trial % 4 < 2 ? 1 : 2, trial,
                                                   trial % 2 == 0, lasting ? 9 : 1, text);
        assert_int_equal(fault.rank == LS_NO_RANK, lasting);
        assert_non_null(strstr(text, lasting ? "computes wrongly all the time" : "COMPUTED WRONGLY"));
    }
}

/* ---- the state ---- */

/* A bit of the shared state flips between two updates: its owner finds it, and nobody updates. */
static void guard_names_the_owner_of_what_changed(void **state)
{
    (void)state;
    enum { TRIALS = 24 };
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        static const uint32_t one[] = {3}, two[] = {2, 1};
        world w;
        open_world(&w, trial % 4 == 0 ? two : one, trial % 4 == 0 ? 2 : 1, 2, trial);
        /* Its owner flips it, as it enters the step: everybody has hashed by then. */
        w.flip.kind = LS_BIT_FLIP_PARAMETER + (ls_bit_flip_kind)(trial % 3);
        w.flip.step = 2;
        w.flip.rank = owner_of(&w, w.flip.at);
        run_ranks(&w, RANKS_MAX);
        for (uint32_t r = 0; r < w.ranks; r++) {
            const rank_log *log = &w.shared->logs[r];
            assert_int_equal(log->status[0], LS_OK);
            assert_int_equal(log->status[1], LS_ERR_MISMATCH);
            assert_int_equal(log->begun, 1);
            assert_int_equal(log->result[1].fault.kind, LS_STEP_FAULT_STATE);
            assert_int_equal(log->result[1].fault.rank, w.flip.rank);
            assert_int_equal(log->result[1].fault.bucket, bucket_of(&w, w.flip.at));
            assert_non_null(strstr(log->text[1], "no longer what the update of step 1 left"));
        }
        close_world(&w);
    }
    print_message("flips in the shared state: %d of %d found and named\n", TRIALS, TRIALS);
}

/* A host's copy of weights that another host owns changes: the hosts find out before the next
 * update; of three, the odd one is named. */
static void replicas_that_differ_are_found_and_the_odd_host_named(void **state)
{
    (void)state;
    static const uint32_t splits[][3] = {{1, 1, 1}, {2, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    enum { TRIALS = 16 };
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        const uint32_t *split = splits[trial % 4], host_count = split[2] ? 3 : 2;
        world w;
        open_world(&w, split, host_count, 2, 300 + trial);
        /* with stage 0 each host updates its own copy, and the guard finds it */
        w.zero = 1 + (uint32_t)(trial % 2);
        w.flip.kind = LS_BIT_FLIP_PARAMETER;
        w.flip.step = 2;
        const uint32_t odd = (host_of(&w, owner_of(&w, w.flip.at)) + 1) % host_count;
        const uint32_t first = w.hosts[odd].first_rank;
        /* who hashes it, later */
        w.flip.rank = first + bucket_of(&w, w.flip.at) % w.hosts[odd].rank_count;
        run_ranks(&w, RANKS_MAX);
        const ls_step_fault fault = agreed_fault(&w, 1);
        assert_int_equal(fault.kind, LS_STEP_FAULT_STATE);
        assert_int_equal(fault.rank, host_count == 3 ? first : LS_NO_RANK);
        char named[64];
        snprintf(named, sizeof named, "HOST %u IS WRONG", odd);
        const char *text = w.shared->logs[0].text[1];
        assert_int_equal(strstr(text, named) != NULL, host_count == 3);
        assert_non_null(strstr(text, "step 2: silent corruption: the hosts have different weights in"));
        close_world(&w);
    }
    print_message("flips in a host's copy of the weights: %d of %d found\n", TRIALS, TRIALS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(audit_names_the_rank_that_was_wrong),
        cmocka_unit_test(audit_of_two_ranks_names_what_comes_and_goes),
        cmocka_unit_test(audit_names_a_rank_of_another_host),
        cmocka_unit_test(guard_names_the_owner_of_what_changed),
        cmocka_unit_test(replicas_that_differ_are_found_and_the_odd_host_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
