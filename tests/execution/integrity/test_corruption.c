// SPDX-License-Identifier: Apache-2.0
/*
 * Silent corruption: bits that flip in gradients and in the state are found by the audit and the
 * guard, and named.
 */
#include "test.h"

#include "base/random.h"
#include "execution/integrity/audit.h"
#include "execution/integrity/guard.h"
#include "execution/train/step_bench.h"

#include <stdlib.h>
#include <string.h>

enum { LEAVES = 4, TRIALS = 96 };

static uint64_t number(uint64_t index, uint64_t sub, uint64_t bound)
{
    return ls_random_below(ls_random_stream(11, LS_RANDOM_TEST), index, sub, bound);
}

/* The bucket that float `at` lies in. */
static uint32_t bucket_of(const ls_layout *layout, uint64_t at)
{
    uint32_t bucket = 0;
    while (bucket + 1 < layout->bucket_count && (int64_t)at >= layout->buckets[bucket + 1].offset) {
        bucket++;
    }
    return bucket;
}

/* ---- who audits what ---- */

static void audit_choose_is_due_covers_all_leaves_and_never_checks_itself(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 7; ranks++) {
        bool leaf_seen[12] = {false}, checker_seen[7] = {false};
        for (uint64_t step = 0; step < 3000; step++) {
            const ls_audit_roles roles = ls_audit_choose(5, step, 10, 12, ranks);
            assert_int_equal(roles.due, (step + 1) % 10 == 0);
            if (!roles.due) {
                continue;
            }
            assert_true(roles.leaf < 12 && roles.owner < ranks && roles.checker < ranks &&
                        roles.judge < ranks);
            const ls_leaf_range range = ls_leaves_of_rank(12, ranks, roles.owner);
            assert_true(roles.leaf >= range.first && roles.leaf < range.first + range.count);
            assert_true(ranks == 1 || roles.checker != roles.owner);
            assert_true(ranks == 1 || roles.judge != roles.checker);
            assert_true(ranks < 3 || roles.judge != roles.owner);
            leaf_seen[roles.leaf] = checker_seen[roles.checker] = true;
        }
        for (int i = 0; i < 12; i++) {
            assert_true(leaf_seen[i]);
        }
        for (uint32_t i = 0; i < ranks; i++) {
            assert_true(checker_seen[i]);
        }
    }
    assert_false(ls_audit_choose(5, 9, 0, 12, 1).due);
}

/* ---- one process ---- */

static void open_bench(bench *b, ls_bit_flip *flip)
{
    bench_init(b, LEAVES, LEAVES * 2, 1, 2);
    b->settings.audit_every_steps = b->settings.hash_every_steps = 1;
    b->settings.seed = 5;
    b->settings.flip = flip;
    ls_stepper_destroy(b->stepper);
    assert_int_equal(ls_stepper_create(&b->executor, &b->state, &b->settings, &b->stepper), LS_OK);
}

/* The audited leaf of each step has one random bit turned over, anywhere in its gradient: every one
 * is found, nothing is updated, and the same step then runs through. */
static void audit_finds_every_flip_in_the_audited_leaf(void **state)
{
    (void)state;
    ls_bit_flip flip = {0};
    bench b;
    open_bench(&b, &flip);
    float *before = malloc(flat_bytes(&b));
    uint32_t found = 0;
    for (uint64_t step = 0; step < TRIALS; step++) {
        const ls_audit_roles roles = ls_audit_choose(5, step, 1, LEAVES, 1);
        flip = (ls_bit_flip){.kind = LS_BIT_FLIP_GRADIENT,
                             .step = step + 1,
                             .leaf = roles.leaf,
                             .at = number(step, 0, (uint64_t)b.layout.float_count),
                             .bit = (uint32_t)number(step, 1, 32),
                             .times = 1};
        memcpy(before, b.state.parameters, flat_bytes(&b));
        ls_step_result result = {.tokens = 77};
        assert_int_equal(ls_stepper_run(b.stepper, step, 1e-3, &result), LS_ERR_MISMATCH);
        assert_memory_equal(before, b.state.parameters, flat_bytes(&b));
        assert_int_equal(result.tokens, 77);
        assert_int_equal(result.fault.kind, LS_STEP_FAULT_LEAF);
        assert_int_equal(result.fault.leaf, roles.leaf);
        assert_int_equal(result.fault.bucket, bucket_of(&b.layout, flip.at));
        assert_non_null(strstr(ls_error_text(), "agrees with the second one: the first one was wrong"));
        char bucket[48];
        snprintf(bucket, sizeof bucket, "(bucket %u)", result.fault.bucket);
        assert_non_null(strstr(ls_error_text(), bucket));
        found++;
        assert_int_equal(ls_stepper_run(b.stepper, step, 1e-3, &result), LS_OK);
        assert_int_equal(result.audited, roles.leaf);
    }
    print_message("flips in an audited leaf: %u of %u found and named\n", found, (unsigned)TRIALS);
    free(before);
    bench_release(&b);
}

/* A bit that turns over between two updates, in parameters or moments: found before the next
 * update. */
static void guard_finds_every_flip_in_the_state(void **state)
{
    (void)state;
    static const char *const names[] = {[LS_BIT_FLIP_PARAMETER] = "the parameters of",
                                        [LS_BIT_FLIP_M] = "the first moments of",
                                        [LS_BIT_FLIP_V] = "the second moments of"};
    ls_bit_flip flip = {0};
    bench b;
    open_bench(&b, &flip);
    ls_step_result result;
    assert_int_equal(ls_stepper_run(b.stepper, 0, 1e-3, &result), LS_OK);
    uint32_t found = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        flip = (ls_bit_flip){.kind = LS_BIT_FLIP_PARAMETER + (ls_bit_flip_kind)(trial % 3),
                             .step = trial + 2,
                             .at = number(trial, 2, (uint64_t)b.layout.float_count),
                             .bit = (uint32_t)number(trial, 3, 32),
                             .times = 1};
        const ls_bit_flip again = flip;
        assert_int_equal(ls_stepper_run(b.stepper, trial + 1, 1e-3, &result), LS_ERR_MISMATCH);
        assert_int_equal(result.fault.kind, LS_STEP_FAULT_STATE);
        assert_int_equal(result.fault.bucket, bucket_of(&b.layout, again.at));
        assert_non_null(strstr(ls_error_text(), names[again.kind]));
        ls_step_fault fault = {0};
        assert_int_equal(ls_stepper_check_state(b.stepper, &fault), LS_ERR_MISMATCH);
        assert_int_equal(fault.bucket, result.fault.bucket);
        found++;
        /* Turned back, it is the state again. */
        flip = again;
        const ls_bit_flip_site site = {.kind = flip.kind, .step = flip.step - 1, .leaf = LS_NO_LEAF};
        ls_bit_flip_apply(&flip, &site,
                          flip.kind == LS_BIT_FLIP_PARAMETER ? b.state.parameters
                          : flip.kind == LS_BIT_FLIP_M       ? b.state.m
                                                             : b.state.v,
                          b.layout.float_count);
        assert_int_equal(ls_stepper_check_state(b.stepper, &fault), LS_OK);
        assert_int_equal(ls_stepper_run(b.stepper, trial + 1, 1e-3, &result), LS_OK);
    }
    print_message("flips in the state: %u of %u found and named\n", found, (unsigned)TRIALS);
    bench_release(&b);
}

/* Watching changes no bit, and a fault in a leaf that is not audited is not seen: that is what
 * every_steps and leaves cost. */
static void watching_changes_nothing(void **state)
{
    (void)state;
    ls_bit_flip flip = {0};
    bench watched, plain;
    open_bench(&watched, &flip);
    bench_init(&plain, LEAVES, LEAVES * 2, 1, 1);
    ls_step_result a, b;
    for (uint64_t step = 0; step < 5; step++) {
        assert_int_equal(ls_stepper_run(watched.stepper, step, 1e-2, &a), LS_OK);
        assert_int_equal(ls_stepper_run(plain.stepper, step, 1e-2, &b), LS_OK);
        assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
        assert_int_equal(b.audited, LS_NO_LEAF);
    }
    assert_memory_equal(watched.state.parameters, plain.state.parameters, flat_bytes(&plain));
    flip = (ls_bit_flip){.kind = LS_BIT_FLIP_GRADIENT, .step = 6, .times = 1, .at = 40, .bit = 20};
    flip.leaf = (ls_audit_choose(5, 5, 1, LEAVES, 1).leaf + 1) % LEAVES;
    assert_int_equal(ls_stepper_run(watched.stepper, 5, 1e-2, &a), LS_OK);
    assert_int_equal(flip.times, 0);
    bench_release(&watched);
    bench_release(&plain);
}

static void flip_parse_reads_and_refuses(void **state)
{
    (void)state;
    ls_bit_flip flip;
    assert_int_equal(ls_bit_flip_parse("flip=gradient,step=12,rank=1,leaf=3,at=12345,bit=7,times=2", &flip),
                     LS_OK);
    assert_true(flip.kind == LS_BIT_FLIP_GRADIENT && flip.step == 12 && flip.rank == 1 && flip.leaf == 3 &&
                flip.at == 12345 && flip.bit == 7 && flip.times == 2);
    assert_int_equal(ls_bit_flip_parse("flip=v,step=1", &flip), LS_OK);
    assert_true(flip.kind == LS_BIT_FLIP_V && flip.times == 1 && flip.leaf == UINT32_MAX);
    const char *const bad[] = {"flip=x,step=1",        "flip=m",      "flip=m,step=1,bit=32", "flip=m,step=",
                               "flip=m,step=1,what=2", "flip=m,step", "step=-1,flip=m"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        flip.step = 99;
        assert_int_equal(ls_bit_flip_parse(bad[i], &flip), LS_ERR_INVALID);
        assert_int_equal(flip.step, 99);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(audit_choose_is_due_covers_all_leaves_and_never_checks_itself),
        cmocka_unit_test(audit_finds_every_flip_in_the_audited_leaf),
        cmocka_unit_test(guard_finds_every_flip_in_the_state),
        cmocka_unit_test(watching_changes_nothing),
        cmocka_unit_test(flip_parse_reads_and_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
