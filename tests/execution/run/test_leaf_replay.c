// SPDX-License-Identifier: Apache-2.0
/*
 * One leaf alone: what the op trace shows, where it finds what is not finite, and the hashes of
 * flat buffers.
 */
#include "test.h"

#include "execution/integrity/flat_hash.h"
#include "execution/train/step_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- op trace ---- */

typedef struct seen {
    uint32_t outputs, gradients, last_step;
    int64_t nonfinite, elements;
    uint32_t end_after; /* outputs; 0: never */
} seen;

static bool look(void *context, const ls_op_range *range)
{
    seen *s = context;
    s->outputs++;
    s->gradients += range->is_gradient;
    s->nonfinite += range->nonfinite;
    s->elements += range->is_gradient ? range->rows * range->cols : 0;
    s->last_step = range->step;
    assert_non_null(range->name);
    assert_true(range->min <= range->max && range->rms >= 0.0);
    assert_true(range->rms <= fmax(fabs(range->min), fabs(range->max)) * (1.0 + 1e-12));
    return s->outputs != s->end_after;
}

static void trace_leaf_leaves_the_gradient_of_run_leaf(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 3, 12, 2, 2);
    double loss = 0.0;
    uint64_t tokens = 0;
    assert_int_equal(ls_stepper_run_leaf(b.stepper, 4, 1, &loss, &tokens), LS_OK);
    float *want = malloc(flat_bytes(&b));
    memcpy(want, b.state.gradients[0], flat_bytes(&b));
    memset(b.state.gradients[0], 0, flat_bytes(&b));
    seen s = {0};
    assert_int_equal(ls_stepper_trace_leaf(b.stepper, 4, 1, look, &s), LS_OK);
    assert_memory_equal(b.state.gradients[0], want, flat_bytes(&b));
    assert_int_equal(s.nonfinite, 0);
    assert_int_equal(s.last_step, b.plan.step_count - 1);
    /* Two micro-batches, each of which shows every parameter's gradient (an untied model's
     * once). */
    assert_int_equal(s.gradients, 2 * b.layout.parameter_count);
    assert_int_equal(s.elements, 2 * b.layout.element_count);
    free(want);
    bench_release(&b);
}

static void trace_leaf_ends_when_told(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 1, 4, 1, 1);
    for (uint32_t end = 1; end < 60; end += 7) {
        seen s = {.end_after = end};
        assert_int_equal(ls_stepper_trace_leaf(b.stepper, 0, 0, look, &s), LS_OK);
        assert_int_equal(s.outputs, end);
    }
    /* A run after it is complete. */
    ls_step_result result;
    assert_int_equal(ls_stepper_run(b.stepper, 0, 1e-3, &result), LS_OK);
    assert_int_equal(result.tokens, 4 * LENGTH);
    bench_release(&b);
}

static void range_measure_counts_what_is_not_finite(void **state)
{
    (void)state;
    float x[3 * 4] = {1, -2, 99, 99, NAN, 2, 99, 99, INFINITY, -INFINITY, 99, 99};
    ls_tensor t = ls_tensor_f32(x, 3, 4);
    t = ls_tensor_columns(t, 0, 2);
    ls_op_range range = {0};
    ls_op_range_measure(&t, &range);
    assert_true(range.min == -2.0 && range.max == 2.0);
    assert_float_equal(range.rms, sqrt(3.0), 1e-15);
    assert_int_equal(range.nonfinite, 3);
    assert_int_equal(range.bad_row, 1);
    assert_int_equal(range.bad_col, 0);
    float bad[2] = {NAN, NAN};
    t = ls_tensor_f32(bad, 1, 2);
    ls_op_range_measure(&t, &range);
    assert_true(range.min == 0.0 && range.max == 0.0 && range.rms == 0.0 && range.nonfinite == 2);
}

/* Every parameter in turn holds one infinity: it is found in the leaf, in the layer that reads it
 * first. */
static void find_nonfinite_names_the_layer_of_each_parameter(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 2, 4, 1, 2);
    for (uint32_t i = 1; i < b.layout.parameter_count;
         i++) { /* 0, the embeddings: only rows that occur count */
        const ls_parameter *p = &b.layout.parameters[i];
        const float kept = b.state.parameters[p->offset];
        b.state.parameters[p->offset] = INFINITY;
        ls_leaf_fault fault;
        assert_int_equal(ls_stepper_find_nonfinite(b.stepper, 3, 1, &fault), LS_OK);
        b.state.parameters[p->offset] = kept;
        assert_true(fault.found);
        assert_int_equal(fault.position, 3 * 4 + 2);
        const char *layer = strstr(p->name, "layers.");
        char want[32];
        snprintf(want, sizeof want, "layer %c ", layer ? layer[7] : '?');
        if (layer && !strstr(fault.where, want)) {
            fail_msg("%s: %s", p->name, fault.where);
        }
        if (!layer && strstr(fault.where, "layer 0")) {
            fail_msg("%s: %s", p->name, fault.where);
        }
    }
    ls_leaf_fault fault = {.found = true};
    assert_int_equal(ls_stepper_find_nonfinite(b.stepper, 3, 1, &fault), LS_OK);
    assert_false(fault.found);
    bench_release(&b);
}

static void stepper_run_reports_the_leaf_that_failed(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 4, 4, 1, 1);
    const ls_parameter *p = ls_layout_find(&b.layout, "model.layers.1.mlp.gate_proj.weight");
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        b.state.parameters[p->offset + i] = 3e38f; /* finite weights whose products are not */
    }
    ls_step_result result = {.tokens = 77};
    assert_int_equal(ls_stepper_run(b.stepper, 2, 1e-3, &result), LS_ERR_FAILED);
    assert_int_equal(result.fault.kind, LS_STEP_FAULT_NOT_FINITE);
    assert_int_equal(result.fault.leaf, 0);
    assert_int_equal(result.tokens, 77);
    /* A parameter that is not finite is not the fault of any leaf. */
    b.state.parameters[p->offset] = NAN;
    result.fault = (ls_step_fault){0};
    assert_int_equal(ls_stepper_run(b.stepper, 2, 1e-3, &result), LS_ERR_FAILED);
    assert_int_equal(result.fault.leaf, LS_NO_LEAF);
    bench_release(&b);
}

/* ---- hashes ---- */

static void flat_hasher_depends_on_every_bit_and_on_nothing_else(void **state)
{
    (void)state;
    enum { COUNT = 3 * LS_HASH_TILE + 100 };
    float *flat = malloc(COUNT * sizeof *flat);
    for (int i = 0; i < COUNT; i++) {
        flat[i] = (float)i * 0.25f;
    }
    const ls_flat_piece pieces[] = {
        {0, 10}, {16, LS_HASH_TILE}, {16, 0}, {20, 2 * LS_HASH_TILE + 1}, {COUNT - 1, 1}};
    enum { PIECES = sizeof pieces / sizeof pieces[0] };
    ls_flat_hasher hasher;
    assert_int_equal(ls_flat_hasher_init(&hasher, pieces, PIECES), LS_OK);
    ls_hash128 want[PIECES], got[PIECES];
    const ls_master floats = {.values = flat};
    for (uint32_t threads = 1; threads <= 3; threads++) {
        ls_queue *queue = NULL;
        assert_int_equal(ls_queue_create_cpu(threads, &queue), LS_OK);
        ls_flat_hasher_run(&hasher, queue, &floats, threads == 1 ? want : got);
        if (threads > 1) {
            assert_memory_equal(want, got, sizeof want);
        }
        /* One bit flips: exactly the hashes of the pieces that hold it change. */
        for (int trial = 0; trial < 40 && threads == 3; trial++) {
            const int64_t at = trial == 0 ? 0 : trial == 1 ? COUNT - 1 : (int64_t)trial * 4987 % COUNT;
            const uint32_t bit = UINT32_C(1) << (trial * 7 % 32);
            uint32_t word;
            memcpy(&word, flat + at, sizeof word);
            word ^= bit;
            memcpy(flat + at, &word, sizeof word);
            ls_flat_hasher_run(&hasher, queue, &floats, got);
            word ^= bit;
            memcpy(flat + at, &word, sizeof word);
            for (int i = 0; i < PIECES; i++) {
                const bool inside = at >= pieces[i].offset && at < pieces[i].offset + pieces[i].count;
                assert_int_equal(ls_hash128_equal(want[i], got[i]), !inside);
            }
        }
        ls_queue_destroy(queue);
    }
    ls_flat_hasher_release(&hasher);
    free(flat);
}

static void bucket_name_says_what_it_holds(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, 1, 1, 1, 1);
    char text[32];
    assert_string_equal(ls_bucket_name(&b.layout, 0, text), "embeddings");
    assert_string_equal(ls_bucket_name(&b.layout, 2, text), "layer 1");
    assert_string_equal(ls_bucket_name(&b.layout, 3, text), "final norm and head");
    bench_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_leaf_leaves_the_gradient_of_run_leaf),
        cmocka_unit_test(trace_leaf_ends_when_told),
        cmocka_unit_test(range_measure_counts_what_is_not_finite),
        cmocka_unit_test(find_nonfinite_names_the_layer_of_each_parameter),
        cmocka_unit_test(stepper_run_reports_the_leaf_that_failed),
        cmocka_unit_test(flat_hasher_depends_on_every_bit_and_on_nothing_else),
        cmocka_unit_test(bucket_name_says_what_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
