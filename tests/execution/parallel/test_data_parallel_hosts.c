// SPDX-License-Identifier: Apache-2.0
/*
 * Data parallelism across hosts: processes in groups with memory of their own, that talk through a
 * communicator. The bits of one process with every ZeRO stage, what stays on a host, and errors
 * that all hosts hear of.
 */
#include "test.h"

#include "comm/store/comm_store.h"
#include "execution/parallel/data_parallel_world.h"
#include "planning/step/link.h"

/* Moments of a run that has been going on, so that a lost or misplaced slice shows. */
static void fill_moments(world *w)
{
    const ls_layout *layout = &w->model.layout;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        for (int64_t k = p->offset; k < p->offset + p->rows * p->cols; k++) {
            w->first_m[k] = (float)(k % 1013) * 1e-5f;
            w->first_v[k] = (float)(k % 733) * 1e-7f;
        }
    }
    memcpy(w->hosts[0].m, w->first_m, flat_bytes(w));
    memcpy(w->hosts[0].v, w->first_v, flat_bytes(w));
}

/* Host 0, which gathered them, has all moments. Of what its ranks own, or those of the host before
 * it with shadows, a host has the same; of the rest nothing was ever written. With stage 3 it is so
 * for the weights too, which are given back (page by page). */
static void assert_hosts_keep_what_is_theirs(const world *w)
{
    for (uint32_t i = 1; i < w->host_count; i++) {
        const host_memory *h = &w->hosts[i], *ward = &w->hosts[i - 1], *first = &w->hosts[0];
        for (uint32_t b = 0; b < w->model.layout.bucket_count; b++) {
            for (uint32_t r = 0; r < w->ranks; r++) {
                const ls_slice s = ls_slice_of(&w->model.layout, b, w->ranks, r);
                const bool shadowed =
                    w->shadow && r >= ward->first_rank && r < ward->first_rank + ward->rank_count;
                const bool kept = shadowed || (r >= h->first_rank && r < h->first_rank + h->rank_count);
                for (int64_t k = s.offset; k < s.offset + s.count; k++) {
                    assert_true(h->m[k] == (kept ? first->m[k] : 0.0f));
                    assert_true(h->v[k] == (kept ? first->v[k] : 0.0f));
                    assert_true(!kept || h->parameters[k] == first->parameters[k]);
                }
            }
        }
    }
}

typedef struct split {
    uint32_t leaves, host_count, hosts[HOSTS_MAX];
} split;

static const split splits[] = {
    {2, 2, {1, 1}},    {3, 2, {2, 1}},     {5, 2, {1, 2}},        {7, 2, {2, 2}},     {12, 2, {3, 2}},
    {7, 3, {1, 1, 1}}, {12, 3, {2, 2, 1}}, {16, 4, {1, 1, 1, 1}}, {13, 3, {1, 3, 2}}, {64, 3, {1, 2, 1}},
};
enum { SPLITS = sizeof splits / sizeof splits[0] };

static void compare_hosts(const shape *s, const split *cut, uint32_t zero, uint32_t flags, uint32_t threads,
                          bool shadow)
{
    world w;
    test_store_open();
    world_init_hosts(&w, s, cut->leaves, cut->hosts, cut->host_count, threads, 3);
    w.zero = zero;
    w.shadow = shadow;
    w.comm_flags = flags;
    fill_moments(&w);
    compare_world(&w);
    if (zero > 0) {
        assert_hosts_keep_what_is_theirs(&w);
    }
    world_release(&w);
    test_store_close();
}

static void hosts_give_the_bits_of_one_process(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPLITS; i++) {
        compare_hosts(&tiny, &splits[i], 1, 0, 1, false);
    }
}

/* Hosts that hold many canonical nodes each: 1,023 leaves among 2 + 3 + 2 ranks. */
static void hosts_give_the_bits_of_one_process_with_many_leaves(void **state)
{
    (void)state;
    const split many = {1023, 3, {2, 3, 2}};
    compare_hosts(&tiny, &many, 1, LS_COMM_NO_SHM, 1, false);
    compare_hosts(&tiny, &many, 3, 0, 1, false);
}

static void hosts_give_the_same_bits_with_every_stage(void **state)
{
    (void)state;
    const uint32_t stages[] = {0, 2, 3};
    for (size_t z = 0; z < 3; z++) {
        for (size_t i = 0; i < SPLITS; i++) {
            compare_hosts(&tiny, &splits[i], stages[z], 0, 1, false);
        }
    }
}

static void hosts_give_the_same_bits_with_shadows(void **state)
{
    (void)state;
    for (uint32_t zero = 1; zero <= 3; zero++) {
        for (size_t i = 0; i < SPLITS; i++) {
            compare_hosts(&tiny, &splits[i], zero, 0, 1, true);
        }
    }
}

static bool gathers_before_its_step(uint32_t rank, uint32_t step)
{
    return step == rank;
}

/* With stage 0 the trainer's host does not wait for the ranks of others to gather: each does it
 * when it is told, if need be after the next step. */
static void hosts_gather_in_any_order_with_stage_0(void **state)
{
    (void)state;
    const uint32_t hosts[] = {1, 3};
    world w;
    test_store_open();
    world_init_hosts(&w, &tiny, 7, hosts, 2, 1, 4);
    w.zero = 0;
    w.timeout_s = 20.0;
    w.gathers = gathers_before_its_step;
    compare_world(&w);
    world_release(&w);
    test_store_close();
}

/* Buckets of many norm blocks in several groups, over sockets, too. */
static void hosts_give_the_bits_of_one_process_on_larger_models(void **state)
{
    (void)state;
    const shape wide = {.micro_batches = 2, .micro_batch = 2, .width = 64, .vocab = 5000};
    const shape tied = {.micro_batches = 1, .micro_batch = 1, .width = 48, .vocab = 500, .tied = true};
    compare_hosts(&wide, &splits[4], 1, 0, 1, false);
    compare_hosts(&wide, &splits[3], 0, LS_COMM_NO_SHM, 2, false);
    compare_hosts(&wide, &splits[1], 2, LS_COMM_NO_SHM, 1, false);
    compare_hosts(&tied, &splits[6], 1, LS_COMM_NO_SHM, 1, false);
    compare_hosts(&tied, &splits[6], 3, 0, 1, false);
    compare_hosts(&wide, &splits[4], 3, LS_COMM_NO_SHM, 1, false);
    compare_hosts(&wide, &splits[7], 3, 0, 1, true);
    compare_hosts(&wide, &splits[6], 2, LS_COMM_NO_SHM, 1, true);
    compare_hosts(&tied, &splits[9], 1, LS_COMM_NO_SHM, 1, true);
}

/* ---- errors ---- */

static const uint32_t two_by_two[] = {2, 2};

static void hosts_stopped_rank_stops_all_and_changes_nothing(void **state)
{
    (void)state;
    for (uint32_t culprit = 0; culprit < 4; culprit += 3) {
        world w;
        alone one;
        test_store_open();
        world_init_hosts(&w, &tiny, 7, two_by_two, 2, 1, 3);
        w.culprit = culprit;
        w.zero = culprit == 0 ? 3 : 1;
        w.prepare = prepare_stop;
        /* asked before each leaf: the first of step 1 */
        w.stop_at = ls_leaves_of_rank(7, 4, culprit).count;
        run_ranks(&w, RANKS_MAX);
        alone_init(&one, &w, 1);
        ls_step_result result;
        assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_OK);
        assert_int_equal(ls_stepper_run(one.stepper, 2, 1e-2, &result), LS_OK);
        for (uint32_t r = 0; r < 4; r++) {
            assert_int_equal(w.shared->logs[r].status[1], LS_STOPPED);
            assert_int_equal(w.shared->logs[r].status[2], LS_OK);
        }
        assert_same_state(&w, &one);
        alone_release(&one);
        world_release(&w);
        test_store_close();
    }
}

static void hosts_error_of_one_rank_is_that_of_all(void **state)
{
    (void)state;
    world w;
    test_store_open();
    world_init_hosts(&w, &tiny, 7, two_by_two, 2, 1, 1);
    w.prepare = prepare_torn_sample;
    torn_sample = 6;
    run_ranks(&w, RANKS_MAX);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_ERR_DATA);
        assert_string_equal(w.shared->logs[r].text[0], "rank 3: sample 6 is torn");
    }
    world_release(&w);
    test_store_close();
}

static double lr_of_rank_3_differs(uint32_t rank, uint32_t step)
{
    return rank >= 2 && step == 1 ? 2e-2 : 1e-2;
}

static void hosts_of_other_settings_are_a_mismatch(void **state)
{
    (void)state;
    world w;
    test_store_open();
    world_init_hosts(&w, &tiny, 7, two_by_two, 2, 1, 2);
    w.lr = lr_of_rank_3_differs;
    run_ranks(&w, RANKS_MAX);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(w.shared->logs[r].status[1], LS_ERR_MISMATCH);
        assert_non_null(strstr(w.shared->logs[r].text[1], "rank 2 (step 2"));
        assert_int_equal(w.shared->logs[r].begun, 1);
    }
    world_release(&w);
    test_store_close();
}

/* What the next step reads is not touched. */
static void assert_residuals_are_zero(const world *w)
{
    const uint32_t count = residuals_of(w);
    for (uint32_t i = 0; i < w->host_count * count; i++) {
        const float *residual = w->hosts[i / count].residuals[0][i % count];
        for (size_t k = 0; k < flat_bytes(w) / sizeof *residual; k++) {
            assert_true(residual[k] == 0.0f);
        }
    }
}

static void check_nonfinite(const shape *s, uint32_t zero)
{
    world w;
    alone one;
    test_store_open();
    world_init_hosts(&w, s, 7, two_by_two, 2, 1, 1);
    alone_init(&one, &w, 1);
    break_layer_1(&w, w.hosts[0].parameters);
    break_layer_1(&w, one.state.parameters);
    w.zero = zero;
    ls_step_result result;
    assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_ERR_FAILED);
    char *want = strdup(ls_error_text());
    run_ranks(&w, RANKS_MAX);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_ERR_FAILED);
        assert_string_equal(w.shared->logs[r].text[0], want);
    }
    assert_residuals_are_zero(&w);
    free(want);
    alone_release(&one);
    world_release(&w);
    test_store_close();
}

static void hosts_tell_of_values_that_are_not_finite_as_one_process(void **state)
{
    (void)state;
    check_nonfinite(&tiny, 1);
    check_nonfinite(&tiny, 3);
}

static void prepare_audits(world *w, uint32_t rank, ls_step_settings *settings)
{
    (void)w;
    (void)rank;
    settings->audit_every_steps = settings->hash_every_steps = 1;
    settings->seed = 5;
}

/* Each step a leaf is computed twice and hashes are taken: with stage 3 the weights have to come
 * for that, too. */
static void hosts_with_stage_3_pass_audits(void **state)
{
    (void)state;
    world w;
    test_store_open();
    world_init_hosts(&w, &tiny, 7, two_by_two, 2, 1, 4);
    w.zero = 3;
    w.prepare = prepare_audits;
    fill_moments(&w);
    compare_world(&w);
    world_release(&w);
    test_store_close();
}

/* ---- memory ---- */

static size_t resident_bytes(const void *memory, size_t bytes)
{
    const size_t pages = bytes / 4096;
    unsigned char *there = calloc(pages, 1);
    assert_int_equal(mincore((void *)(uintptr_t)memory, pages * 4096, there), 0);
    size_t count = 0;
    for (size_t i = 0; i < pages; i++) {
        count += there[i] & 1;
    }
    free(there);
    return count * 4096;
}

/* Stage 3 keeps of the weights what ranks of a host own: half of them, on each of two hosts. */
static void hosts_with_stage_3_keep_their_own_weights(void **state)
{
    (void)state;
    const shape wide = {.micro_batches = 2, .micro_batch = 1, .width = 128, .vocab = 5000};
    world w;
    test_store_open();
    world_init_hosts(&w, &wide, 4, two_by_two, 2, 1, 2);
    w.zero = 3;
    run_ranks(&w, RANKS_MAX);
    const size_t all = flat_bytes(&w), resident = resident_bytes(w.hosts[1].parameters, all);
    assert_true(resident > all / 3 && resident < all * 2 / 3);
    assert_true(resident_bytes(w.hosts[1].m, all) < all * 2 / 3);
    world_release(&w);
    test_store_close();
}

/* Stage 2 gives gradients back; what is left behind a step is less than a tenth. */
static void hosts_with_stage_2_keep_no_gradients(void **state)
{
    (void)state;
    const shape wide = {.micro_batches = 1, .micro_batch = 1, .width = 128, .vocab = 5000};
    size_t resident[3] = {0}, all = 0;
    for (uint32_t zero = 1; zero <= 2; zero++) {
        world w;
        test_store_open();
        world_init_hosts(&w, &wide, 4, two_by_two, 2, 1, 2);
        w.zero = zero;
        run_ranks(&w, RANKS_MAX);
        for (uint32_t i = 0; i < 2; i++) {
            all = 2 * flat_bytes(&w);
            resident[zero] += resident_bytes(w.hosts[i].gradients, all);
        }
        world_release(&w);
        test_store_close();
    }
    assert_true(resident[1] > all);
    assert_true(resident[2] < resident[1] / 10);
}

static const ls_compression compressions[] = {
    {.kind = LS_COMPRESSION_BF16}, {.kind = LS_COMPRESSION_INT8}, {.kind = LS_COMPRESSION_TOPK, .keep = 41}};

/* One host and several; groups that are whole on a host, and groups of which hosts have parts. */
static void hosts_give_the_bits_of_one_process_with_compression(void **state)
{
    (void)state;
    static const struct {
        split split;
        uint32_t group;
    } cuts[] = {
        {{8, 1, {3}}, 2},        {{8, 2, {1, 1}}, 4}, {{8, 3, {1, 1, 1}}, 4}, {{16, 4, {1, 1, 1, 1}}, 4},
        {{12, 3, {2, 2, 1}}, 2}, {{6, 2, {2, 1}}, 1}, {{8, 3, {1, 2, 1}}, 8},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        shape s = tiny;
        s.group = cuts[i].group;
        s.compression = compressions[i % 3];
        s.compression_warmup = 2;
        compare_hosts(&s, &cuts[i].split, 0, 0, 1 + i % 2, false);
        s.changes.kind = i % 2 == 0 ? LS_COMPRESSION_INT8 : LS_COMPRESSION_BF16;
        compare_hosts(&s, &cuts[i].split, 1, 0, 1 + i % 2, false);
    }
}

/* The step is given up as without compression, by all alike, and no residual keeps anything of it. */
static void hosts_tell_of_values_that_are_not_finite_with_compression(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        shape s = tiny;
        s.group = 1;
        s.compression = compressions[i % 3];
        s.changes.kind = i < 3 ? LS_COMPRESSION_NONE : LS_COMPRESSION_INT8;
        check_nonfinite(&s, i >= 3);
    }
}

/* What the runtime counts is what the planner says, to the byte: 16 leaves in as many or half as many
 * groups as hosts, topk whose sum is all in bfloat16, changes of weights, and dense. */
static void hosts_send_as_many_bytes_as_planned(void **state)
{
    (void)state;
    static const split four = {16, 4, {1, 1, 1, 1}};
    static const struct {
        ls_compression form, changes;
        uint32_t group;
    } cases[] = {
        {{.kind = LS_COMPRESSION_BF16}, {0}, 4},
        {{.kind = LS_COMPRESSION_INT8}, {0}, 4},
        {{.kind = LS_COMPRESSION_TOPK, .keep = 41}, {0}, 4},
        {{.kind = LS_COMPRESSION_TOPK, .keep = 41}, {0}, 2},
        {{.kind = LS_COMPRESSION_TOPK, .keep = 410}, {0}, 2},
        {{.kind = LS_COMPRESSION_INT8}, {.kind = LS_COMPRESSION_INT8}, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        shape s = {.micro_batches = 1, .micro_batch = 1, .width = 64, .vocab = 700};
        s.group = cases[i].group;
        s.compression = cases[i].form;
        s.changes = cases[i].changes;
        test_store_open();
        world_init_hosts(&w, &s, four.leaves, four.hosts, four.host_count, 1, 2);
        w.zero = s.changes.kind != LS_COMPRESSION_NONE;
        run_ranks(&w, RANKS_MAX);
        uint64_t sent = 0, dense = 0;
        for (uint32_t r = 0; r < 4; r++) {
            sent += w.shared->logs[r].result[1].traffic.link_bytes;
            dense += w.shared->logs[r].result[1].traffic.dense_bytes;
        }
        const ls_layout *layout = &w.model.layout;
        const uint64_t values = (uint64_t)layout->float_count;
        const ls_link_scheme scheme = {.form = s.compression, .steps = 1};
        assert_int_equal(sent, ls_link_bytes_exchange(&scheme, values, layout, 4, 16 / s.group));
        assert_int_equal(dense, ls_link_bytes_exchange(&ls_link_schemes[0], values, layout, 4, 4));
        world_release(&w);
        test_store_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_give_the_bits_of_one_process),
        cmocka_unit_test(hosts_give_the_bits_of_one_process_with_many_leaves),
        cmocka_unit_test(hosts_give_the_same_bits_with_every_stage),
        cmocka_unit_test(hosts_give_the_same_bits_with_shadows),
        cmocka_unit_test(hosts_gather_in_any_order_with_stage_0),
        cmocka_unit_test(hosts_give_the_bits_of_one_process_on_larger_models),
        cmocka_unit_test(hosts_stopped_rank_stops_all_and_changes_nothing),
        cmocka_unit_test(hosts_error_of_one_rank_is_that_of_all),
        cmocka_unit_test(hosts_of_other_settings_are_a_mismatch),
        cmocka_unit_test(hosts_tell_of_values_that_are_not_finite_as_one_process),
        cmocka_unit_test(hosts_with_stage_3_pass_audits),
        cmocka_unit_test(hosts_with_stage_2_keep_no_gradients),
        cmocka_unit_test(hosts_with_stage_3_keep_their_own_weights),
        cmocka_unit_test(hosts_give_the_bits_of_one_process_with_compression),
        cmocka_unit_test(hosts_tell_of_values_that_are_not_finite_with_compression),
        cmocka_unit_test(hosts_send_as_many_bytes_as_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
