// SPDX-License-Identifier: Apache-2.0
/*
 * The training step: the tree of leaves, what a stopped or failed step leaves behind, and that
 * nothing is allocated while it runs.
 */
#include "test.h"

#include "execution/count_allocations.h"
#include "execution/train/step_bench.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The tree by its definition: an interval splits at the largest power of two below its length. */
static void tree_sum(bench *b, uint32_t first, uint32_t past, float *out, double *loss, uint64_t *tokens)
{
    if (past - first == 1) {
        assert_int_equal(ls_stepper_run_leaf(b->stepper, 0, first, loss, tokens), LS_OK);
        memcpy(out, b->state.gradients[0], flat_bytes(b));
        return;
    }
    uint32_t half = 1;
    while (2 * half < past - first) {
        half *= 2;
    }
    float *right = malloc(flat_bytes(b));
    double right_loss = 0.0;
    uint64_t right_tokens = 0;
    tree_sum(b, first, first + half, out, loss, tokens);
    tree_sum(b, first + half, past, right, &right_loss, &right_tokens);
    for (int64_t i = 0; i < b->layout.float_count; i++) {
        out[i] += right[i];
    }
    *loss += right_loss;
    *tokens += right_tokens;
    free(right);
}

static void stepper_run_sums_leaves_in_the_defined_tree(void **state)
{
    (void)state;
    const uint32_t counts[] = {1, 2, 3, 5, 6, 7, 12, 13};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        bench b;
        bench_init(&b, counts[c], counts[c] * 2, 1, 1 + (uint32_t)c % 3);
        float *want = malloc(flat_bytes(&b));
        double loss = 0.0;
        uint64_t tokens = 0;
        tree_sum(&b, 0, counts[c], want, &loss, &tokens);
        ls_step_result result;
        assert_int_equal(ls_stepper_run(b.stepper, 0, 1e-3, &result), LS_OK);
        assert_memory_equal(b.state.gradients[0], want, flat_bytes(&b));
        assert_int_equal(result.tokens, tokens);
        assert_true(result.loss == (float)(loss / (double)tokens));
        double square = 0.0;
        for (int64_t i = 0; i < b.layout.float_count; i++) {
            square += (double)want[i] * (double)want[i];
        }
        assert_float_equal(result.grad_norm, sqrt(square) / (double)tokens, 1e-9);
        free(want);
        bench_release(&b);
    }
}

static void stepper_run_micro_batches_add_up(void **state)
{
    (void)state;
    bench one, four;
    bench_init(&one, 1, 4, 4, 2);
    bench_init(&four, 1, 4, 1, 2);
    ls_step_result a, b;
    assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-3, &a), LS_OK);
    assert_int_equal(ls_stepper_run(four.stepper, 0, 1e-3, &b), LS_OK);
    assert_float_equal(a.loss, b.loss, 1e-6);
    assert_float_equal(a.grad_norm, b.grad_norm, 1e-6);
    bench_release(&one);
    bench_release(&four);
}

static void stepper_run_stopped_leaves_the_state_alone(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 3, 6, 1, 2);
    float *before = malloc(flat_bytes(&b));
    memcpy(before, b.state.parameters, flat_bytes(&b));
    for (uint64_t after = 1; after < 6; after++) {
        b.stop_after = after;
        b.asked = 0;
        ls_step_result result = {.tokens = 77};
        assert_int_equal(ls_stepper_run(b.stepper, 0, 1e-3, &result), LS_STOPPED);
        assert_int_equal(result.tokens, 77);
        assert_memory_equal(b.state.parameters, before, flat_bytes(&b));
        for (int64_t i = 0; i < b.layout.float_count; i++) {
            assert_true(b.state.m[i] == 0.0f && b.state.v[i] == 0.0f);
        }
    }
    free(before);
    bench_release(&b);
}

static void stepper_run_nonfinite_names_leaf_and_layer(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 2, 4, 1, 1);
    const ls_parameter *p = ls_layout_find(&b.layout, "model.layers.1.mlp.gate_proj.weight");
    assert_non_null(p);
    /* Finite weights whose products are not. */
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        b.state.parameters[p->offset + i] = 3e38f;
    }
    float *before = malloc(flat_bytes(&b));
    memcpy(before, b.state.parameters, flat_bytes(&b));
    ls_step_result result;
    assert_int_equal(ls_stepper_run(b.stepper, 4, 1e-3, &result), LS_ERR_FAILED);
    assert_non_null(strstr(ls_error_text(), "step 5"));
    assert_non_null(strstr(ls_error_text(), "leaf 0"));
    assert_non_null(strstr(ls_error_text(), "layer 1"));
    assert_memory_equal(b.state.parameters, before, flat_bytes(&b));
    free(before);
    bench_release(&b);
}

static void stepper_run_allocates_nothing(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 3, 6, 2, 3);
    ls_step_result result;
    assert_int_equal(ls_stepper_run(b.stepper, 0, 1e-3, &result), LS_OK); /* scratch grows here */
    const long before = allocations;
    assert_int_equal(ls_stepper_run(b.stepper, 1, 1e-3, &result), LS_OK);
    assert_int_equal(ls_stepper_run(b.stepper, 2, 1e-3, &result), LS_OK);
    assert_int_equal(allocations - before, 0);
    bench_release(&b);
    if (COUNTS_ALLOCATIONS) {
        free(malloc(1));
        assert_true(allocations > before); /* the counter counts */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stepper_run_sums_leaves_in_the_defined_tree),
        cmocka_unit_test(stepper_run_micro_batches_add_up),
        cmocka_unit_test(stepper_run_stopped_leaves_the_state_alone),
        cmocka_unit_test(stepper_run_nonfinite_names_leaf_and_layer),
        cmocka_unit_test(stepper_run_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
