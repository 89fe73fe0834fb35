// SPDX-License-Identifier: Apache-2.0
/*
 * Data parallelism with real processes over one mapping: the bits of one process for any number of
 * ranks, and what happens when a rank stops, fails, differs or does not come.
 */
#include "test.h"

#include "execution/parallel/data_parallel_world.h"

static void compare(const shape *s, uint32_t leaves, uint32_t ranks, uint32_t threads, uint32_t steps)
{
    world w;
    world_init(&w, s, leaves, ranks, threads, steps);
    compare_world(&w);
    world_release(&w);
}

static void data_parallel_gives_the_bits_of_one_process(void **state)
{
    (void)state;
    const uint32_t counts[] = {1, 3, 5, 7, 12, 16, 64};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (uint32_t ranks = 1; ranks <= counts[c] && ranks <= 8; ranks++) {
            compare(&tiny, counts[c], ranks, 1 + (ranks + (uint32_t)c) % 2, 3);
        }
    }
}

/* Buckets of many norm blocks, several micro-batches, a head that shares its weights with the
 * embeddings. */
static void data_parallel_gives_the_bits_of_one_process_on_larger_models(void **state)
{
    (void)state;
    const shape wide = {.micro_batches = 2, .micro_batch = 2, .width = 64, .vocab = 300};
    const shape tied = {.micro_batches = 3, .micro_batch = 1, .width = 48, .vocab = 500, .tied = true};
    compare(&wide, 6, 4, 1, 3);
    compare(&wide, 5, 3, 2, 2);
    compare(&tied, 7, 2, 2, 3);
    compare(&tied, 12, 5, 1, 3);
}

/* As many leaves as there may be, and ranks among which they do not divide. */
static void data_parallel_gives_the_bits_of_one_process_with_1024_leaves(void **state)
{
    (void)state;
    compare(&tiny, 1024, 7, 1, 1);
    compare(&tiny, 1000, 3, 1, 1);
}

/* The tests above tell orders apart: leaves summed rank by rank in plain order give another
 * gradient. */
static void data_parallel_leaves_tell_orders_apart(void **state)
{
    (void)state;
    enum { LEAVES = 12, RANKS = 4 };
    world w;
    alone one;
    world_init(&w, &tiny, LEAVES, 1, 1, 1);
    alone_init(&one, &w, 1);
    const int64_t count = w.model.layout.float_count;
    float *sum = calloc((size_t)count, sizeof *sum), *part = calloc((size_t)count, sizeof *part);
    double loss;
    uint64_t tokens;
    for (uint32_t r = 0; r < RANKS; r++) {
        const ls_leaf_range range = ls_leaves_of_rank(LEAVES, RANKS, r);
        for (uint32_t i = 0; i < range.count; i++) {
            assert_int_equal(ls_stepper_run_leaf(one.stepper, 0, range.first + i, &loss, &tokens), LS_OK);
            for (int64_t k = 0; k < count; k++) {
                part[k] = i == 0 ? one.state.gradients[0][k] : part[k] + one.state.gradients[0][k];
            }
        }
        for (int64_t k = 0; k < count; k++) {
            sum[k] = r == 0 ? part[k] : sum[k] + part[k];
        }
    }
    ls_step_result result;
    assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_OK);
    int64_t differ = 0;
    for (int64_t k = 0; k < count; k++) {
        differ += sum[k] != one.state.gradients[0][k];
        assert_true(fabsf(sum[k] - one.state.gradients[0][k]) < 1e-3f);
    }
    assert_true(differ > count / 20);
    free(sum);
    free(part);
    alone_release(&one);
    world_release(&w);
}

/* One rank is asked to stop in step 1: nobody updates, and the next step goes on from the same
 * state. */
static void data_parallel_stopped_rank_stops_all_and_changes_nothing(void **state)
{
    (void)state;
    for (uint32_t culprit = 0; culprit < 3; culprit++) {
        world w;
        alone one;
        world_init(&w, &tiny, 7, 3, 1, 3);
        w.culprit = culprit;
        w.prepare = prepare_stop;
        w.stop_at = ls_leaves_of_rank(7, 3, culprit).count + 1;
        run_ranks(&w, RANKS_MAX);
        alone_init(&one, &w, 1);
        ls_step_result result;
        assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_OK);
        assert_int_equal(ls_stepper_run(one.stepper, 2, 1e-2, &result), LS_OK);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(w.shared->logs[r].status[0], LS_OK);
            assert_int_equal(w.shared->logs[r].status[1], LS_STOPPED);
            assert_int_equal(w.shared->logs[r].status[2], LS_OK);
        }
        assert_same_state(&w, &one);
        alone_release(&one);
        world_release(&w);
    }
}

static void data_parallel_error_of_one_rank_is_that_of_all(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 1);
    w.prepare = prepare_torn_sample;
    torn_sample = 5;
    run_ranks(&w, RANKS_MAX);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_ERR_DATA);
        assert_non_null(strstr(w.shared->logs[r].text[0], "sample 5 is torn"));
        assert_int_equal(w.shared->logs[r].begun, 0);
    }
    assert_non_null(strstr(w.shared->logs[0].text[0], "rank 2"));
    world_release(&w);
}

static void data_parallel_nonfinite_is_told_as_by_one_process(void **state)
{
    (void)state;
    world w;
    alone one;
    world_init(&w, &tiny, 5, 3, 1, 1);
    break_layer_1(&w, w.hosts[0].parameters);
    float *before = malloc(flat_bytes(&w));
    memcpy(before, w.hosts[0].parameters, flat_bytes(&w));
    run_ranks(&w, RANKS_MAX);
    alone_init(&one, &w, 1);
    break_layer_1(&w, one.state.parameters);
    ls_step_result result;
    assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_ERR_FAILED);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_ERR_FAILED);
        assert_string_equal(w.shared->logs[r].text[0], ls_error_text());
        assert_int_equal(w.shared->logs[r].result[0].fault.leaf, result.fault.leaf);
    }
    assert_non_null(strstr(ls_error_text(), "leaf 0"));
    assert_memory_equal(w.hosts[0].parameters, before, flat_bytes(&w));
    free(before);
    alone_release(&one);
    world_release(&w);
}

static double lr_of_rank_1_differs(uint32_t rank, uint32_t step)
{
    return rank == 1 && step == 1 ? 2e-2 : 1e-2;
}

static void data_parallel_other_settings_are_a_mismatch(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 2);
    w.lr = lr_of_rank_1_differs;
    run_ranks(&w, RANKS_MAX);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_OK);
        assert_int_equal(w.shared->logs[r].status[1], LS_ERR_MISMATCH);
        assert_non_null(strstr(w.shared->logs[r].text[1], "2 of 3 ranks (rank 0 among them)"));
        assert_non_null(strstr(w.shared->logs[r].text[1], "rank 1 (step 2"));
        assert_int_equal(w.shared->logs[r].begun, 1);
    }
    world_release(&w);
}

static void stop_before_step_1(world *w, uint32_t rank, uint32_t step)
{
    if (rank == w->culprit && step == 1) {
        raise(SIGSTOP);
    }
}

static void data_parallel_late_rank_is_named(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 2);
    w.culprit = 1;
    w.timeout_s = 0.3;
    w.before_step = stop_before_step_1;
    run_ranks(&w, 1);
    for (uint32_t r = 0; r < 3; r += 2) {
        assert_int_equal(w.shared->logs[r].status[0], LS_OK);
        assert_int_equal(w.shared->logs[r].status[1], LS_ERR_TIMEOUT);
        assert_non_null(strstr(w.shared->logs[r].text[1], "of rank 1"));
        assert_null(strstr(w.shared->logs[r].text[1], "of rank 1,"));
        assert_int_equal(w.shared->logs[r].begun, 1);
    }
    world_release(&w);
}

static void abort_before_step_1(world *w, uint32_t rank, uint32_t step)
{
    if (rank == w->culprit && step == 1) {
        w->shared->abort = LS_ERR_RANKS_LOST;
        raise(SIGSTOP);
    }
}

static void data_parallel_abort_ends_waits(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 2);
    w.culprit = 2;
    w.before_step = abort_before_step_1;
    run_ranks(&w, 2);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(w.shared->logs[r].status[1], LS_ERR_RANKS_LOST);
        assert_int_equal(w.shared->logs[r].begun, 1);
    }
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_parallel_gives_the_bits_of_one_process),
        cmocka_unit_test(data_parallel_gives_the_bits_of_one_process_on_larger_models),
        cmocka_unit_test(data_parallel_gives_the_bits_of_one_process_with_1024_leaves),
        cmocka_unit_test(data_parallel_leaves_tell_orders_apart),
        cmocka_unit_test(data_parallel_stopped_rank_stops_all_and_changes_nothing),
        cmocka_unit_test(data_parallel_error_of_one_rank_is_that_of_all),
        cmocka_unit_test(data_parallel_nonfinite_is_told_as_by_one_process),
        cmocka_unit_test(data_parallel_other_settings_are_a_mismatch),
        cmocka_unit_test(data_parallel_late_rank_is_named),
        cmocka_unit_test(data_parallel_abort_ends_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
