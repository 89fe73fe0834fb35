// SPDX-License-Identifier: Apache-2.0
/*
 * Linear layers against float64, on random shapes, layouts, strides and cuts; and the promises
 * about bits.
 *
 * Every matrix lies inside a larger one (a view into a fused tensor) whose other elements are
 * canaries.
 */
#include "test.h"

#include "base/random.h"
#include "compute/kernels/linear.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float canary = 12345.0f;

typedef struct matrix {
    float *memory;
    ls_tensor view;
    int64_t floats;
} matrix;

static uint64_t draw_count;

static int64_t draw(int64_t low, int64_t high)
{
    const ls_random_key key = ls_random_stream(7, LS_RANDOM_TEST);
    return low + (int64_t)ls_random_below(key, draw_count++, 0, (uint32_t)(high - low + 1));
}

/* A (rows, cols) view with canaries on all sides, filled with normal numbers. */
static matrix matrix_create(int64_t rows, int64_t cols)
{
    const ls_random_key key = ls_random_stream(8, LS_RANDOM_TEST);
    const int64_t left = draw(0, 9), right = draw(0, 9);
    matrix m = {.floats = (rows + 2) * (left + cols + right)};
    m.memory = malloc((size_t)m.floats * sizeof(float));
    assert_non_null(m.memory);
    for (int64_t i = 0; i < m.floats; i++) {
        m.memory[i] = canary;
    }
    m.view = ls_tensor_f32(m.memory + left + cols + right + left, rows, cols);
    m.view.stride = left + cols + right;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            ls_tensor_row(&m.view, r)[c] = ls_random_normal(key, draw_count++, 0);
        }
    }
    return m;
}

static matrix matrix_copy(const matrix *from)
{
    matrix m = *from;
    m.memory = malloc((size_t)m.floats * sizeof(float));
    assert_non_null(m.memory);
    memcpy(m.memory, from->memory, (size_t)m.floats * sizeof(float));
    m.view.data = m.memory + ((float *)from->view.data - from->memory);
    return m;
}

static bool matrix_equal(const matrix *a, const matrix *b)
{
    return memcmp(a->memory, b->memory, (size_t)a->floats * sizeof(float)) == 0;
}

/* Everything outside the view still holds the canary. */
static void matrix_check_canaries(const matrix *m)
{
    const float *data = m->view.data;
    for (int64_t i = 0; i < m->floats; i++) {
        const int64_t offset = m->memory + i - data;
        const bool inside =
            offset >= 0 && offset / m->view.stride < m->view.rows && offset % m->view.stride < m->view.cols;
        if (!inside && m->memory[i] != canary) {
            fail_msg("element %lld outside the view was written", (long long)offset);
        }
    }
}

static void matrix_free(matrix *m)
{
    free(m->memory);
}

static double at(const matrix *m, int64_t row, int64_t col)
{
    return (double)ls_tensor_row(&m->view, row)[col];
}

/* One linear layer with everything around it. */
typedef struct layer {
    ls_linear linear;
    int64_t n, in, out;
    matrix x, dy, weight, bias;
    float *workspace;
} layer;

typedef struct layer_shape {
    int64_t n, in;
    int64_t segment[LS_LINEAR_SEGMENTS_MAX];
    uint32_t segment_count, forward_cut, backward_cut;
    ls_weight_layout layout;
    bool bias;
} layer_shape;

static layer layer_create(const layer_shape *shape)
{
    layer l = {.n = shape->n, .in = shape->in};
    for (uint32_t s = 0; s < shape->segment_count; s++) {
        l.out += shape->segment[s];
    }
    const bool out_in = shape->layout == LS_WEIGHT_OUT_IN;
    l.x = matrix_create(l.n, l.in);
    l.dy = matrix_create(l.n, l.out);
    l.weight = matrix_create(out_in ? l.out : l.in, out_in ? l.in : l.out);
    l.bias = matrix_create(1, l.out);
    l.linear = (ls_linear){.weight = l.weight.view,
                           .layout = shape->layout,
                           .forward_cut = shape->forward_cut,
                           .backward_input_cut = shape->backward_cut,
                           .segment_count = shape->segment_count};
    memcpy(l.linear.segment, shape->segment, sizeof shape->segment);
    if (shape->bias) {
        l.linear.bias = l.bias.view;
    }
    const int64_t floats =
        ls_linear_workspace_floats(l.n, l.in, l.out, shape->forward_cut, shape->backward_cut);
    if (floats > 0) {
        l.workspace = malloc((size_t)floats * sizeof(float));
        assert_non_null(l.workspace);
        l.linear.workspace = ls_tensor_f32(l.workspace, 1, floats);
    }
    return l;
}

static void layer_free(layer *l)
{
    matrix_free(&l->x);
    matrix_free(&l->dy);
    matrix_free(&l->weight);
    matrix_free(&l->bias);
    free(l->workspace);
}

static double weight_at(const layer *l, int64_t out, int64_t in)
{
    return l->linear.layout == LS_WEIGHT_OUT_IN ? at(&l->weight, out, in) : at(&l->weight, in, out);
}

/* |got - want| against the error of any summation order: gamma_k times the sum of magnitudes. */
static void check_value(const char *what, double got, double want, double magnitude, int64_t terms)
{
    const double bound = (double)(terms + 4) * FLT_EPSILON * (magnitude + fabs(want)) + 1e-30;
    if (!(fabs(got - want) <= bound)) {
        fail_msg("%s: got %.9g, want %.9g, bound %.3g", what, got, want, bound);
    }
}

static void check_forward(const layer *l, const matrix *y)
{
    for (int64_t r = 0; r < l->n; r++) {
        for (int64_t o = 0; o < l->out; o++) {
            double sum = l->linear.bias.data ? at(&l->bias, 0, o) : 0.0, magnitude = fabs(sum);
            for (int64_t i = 0; i < l->in; i++) {
                const double term = at(&l->x, r, i) * weight_at(l, o, i);
                sum += term;
                magnitude += fabs(term);
            }
            check_value("y", at(y, r, o), sum, magnitude, l->in);
        }
    }
}

static void check_backward_input(const layer *l, const matrix *before, const matrix *dx)
{
    for (int64_t r = 0; r < l->n; r++) {
        for (int64_t i = 0; i < l->in; i++) {
            double sum = before ? at(before, r, i) : 0.0, magnitude = fabs(sum);
            for (int64_t o = 0; o < l->out; o++) {
                const double term = at(&l->dy, r, o) * weight_at(l, o, i);
                sum += term;
                magnitude += fabs(term);
            }
            check_value("dx", at(dx, r, i), sum, magnitude, l->out);
        }
    }
}

static void check_backward_weight(const layer *l, const matrix *before, const matrix *dweight)
{
    const bool out_in = l->linear.layout == LS_WEIGHT_OUT_IN;
    for (int64_t o = 0; o < l->out; o++) {
        for (int64_t i = 0; i < l->in; i++) {
            const int64_t row = out_in ? o : i, col = out_in ? i : o;
            double sum = before ? at(before, row, col) : 0.0, magnitude = fabs(sum);
            for (int64_t r = 0; r < l->n; r++) {
                const double term = at(&l->dy, r, o) * at(&l->x, r, i);
                sum += term;
                magnitude += fabs(term);
            }
            check_value("dweight", at(dweight, row, col), sum, magnitude, l->n);
        }
    }
}

static void check_bias(const layer *l, const matrix *before, const matrix *dbias)
{
    for (int64_t o = 0; o < l->out; o++) {
        double sum = before ? at(before, 0, o) : 0.0, magnitude = fabs(sum);
        for (int64_t r = 0; r < l->n; r++) {
            sum += at(&l->dy, r, o);
            magnitude += fabs(at(&l->dy, r, o));
        }
        check_value("dbias", at(dbias, 0, o), sum, magnitude, l->n);
    }
}

/* The results of one layer, computed by one queue. */
typedef struct outcome {
    matrix y, dx, dweight, dbias;
} outcome;

static outcome outcome_create(const layer *l)
{
    return (outcome){.y = matrix_create(l->n, l->out),
                     .dx = matrix_create(l->n, l->in),
                     .dweight = matrix_create(l->weight.view.rows, l->weight.view.cols),
                     .dbias = matrix_create(1, l->out)};
}

static outcome outcome_copy(const outcome *from)
{
    return (outcome){.y = matrix_copy(&from->y),
                     .dx = matrix_copy(&from->dx),
                     .dweight = matrix_copy(&from->dweight),
                     .dbias = matrix_copy(&from->dbias)};
}

static void outcome_free(outcome *o)
{
    matrix_free(&o->y);
    matrix_free(&o->dx);
    matrix_free(&o->dweight);
    matrix_free(&o->dbias);
}

static void outcome_check_canaries(const outcome *o)
{
    matrix_check_canaries(&o->y);
    matrix_check_canaries(&o->dx);
    matrix_check_canaries(&o->dweight);
    matrix_check_canaries(&o->dbias);
}

static void assert_outcomes_equal(const outcome *a, const outcome *b)
{
    assert_true(matrix_equal(&a->y, &b->y));
    assert_true(matrix_equal(&a->dx, &b->dx));
    assert_true(matrix_equal(&a->dweight, &b->dweight));
    assert_true(matrix_equal(&a->dbias, &b->dbias));
}

static ls_queue *queue_create(uint32_t threads)
{
    ls_queue *queue = NULL;
    assert_int_equal(ls_queue_create_cpu(threads, &queue), LS_OK);
    return queue;
}

static void layer_run(const layer *l, outcome *o, uint32_t threads, bool accumulate)
{
    ls_queue *queue = queue_create(threads);
    assert_int_equal(ls_linear_forward(queue, &l->linear, &l->x.view, &o->y.view), LS_OK);
    assert_int_equal(ls_linear_backward_input(queue, &l->linear, &l->dy.view, &o->dx.view, accumulate),
                     LS_OK);
    assert_int_equal(ls_linear_backward_weight(queue, &l->linear, &l->x.view, &l->dy.view, &o->dweight.view,
                                               &o->dbias.view, accumulate),
                     LS_OK);
    assert_int_equal(ls_queue_wait(queue), LS_OK);
    ls_queue_destroy(queue);
}

/* Runs everything with and without accumulation and compares it with float64. */
static void layer_check(const layer_shape *shape)
{
    layer l = layer_create(shape);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        outcome before = outcome_create(&l);
        outcome after = outcome_copy(&before);
        layer_run(&l, &after, 2, accumulate);
        check_forward(&l, &after.y);
        check_backward_input(&l, accumulate ? &before.dx : NULL, &after.dx);
        check_backward_weight(&l, accumulate ? &before.dweight : NULL, &after.dweight);
        check_bias(&l, accumulate ? &before.dbias : NULL, &after.dbias);
        outcome_check_canaries(&after);
        outcome_free(&before);
        outcome_free(&after);
    }
    layer_free(&l);
}

static layer_shape random_shape(int64_t largest)
{
    layer_shape shape = {.n = draw(1, largest),
                         .in = draw(1, largest),
                         .segment_count = (uint32_t)draw(1, LS_LINEAR_SEGMENTS_MAX),
                         .forward_cut = 1,
                         .backward_cut = 1,
                         .layout = draw(0, 1) ? LS_WEIGHT_OUT_IN : LS_WEIGHT_IN_OUT,
                         .bias = draw(0, 1)};
    for (uint32_t s = 0; s < shape.segment_count; s++) {
        shape.segment[s] = draw(1, largest);
    }
    return shape;
}

static void linear_matches_float64_on_random_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        const layer_shape shape = random_shape(i < 40 ? 40 : 110);
        layer_check(&shape);
    }
}

static void linear_matches_float64_beyond_one_block(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 800, 5}, {5, 3, 1000}, {900, 7, 9}, {130, 401, 391}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int layout = 0; layout < 2; layout++) {
            const layer_shape shape = {.n = sizes[i][0],
                                       .in = sizes[i][1],
                                       .segment = {sizes[i][2]},
                                       .segment_count = 1,
                                       .forward_cut = 1,
                                       .backward_cut = 1,
                                       .layout = (ls_weight_layout)layout,
                                       .bias = true};
            layer_check(&shape);
        }
    }
}

static void linear_matches_float64_for_every_cut(void **state)
{
    (void)state;
    static const uint32_t cuts[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        for (int variant = 0; variant < 4; variant++) {
            layer_shape shape = random_shape(20);
            shape.forward_cut = cuts[i];
            shape.backward_cut = cuts[variant];
            shape.in *= shape.forward_cut;
            for (uint32_t s = 0; s < shape.segment_count; s++) {
                shape.segment[s] *= shape.backward_cut;
            }
            layer_check(&shape);
        }
    }
}

static void linear_gives_the_same_bits_for_any_thread_count(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        layer_shape shape = random_shape(300);
        shape.n += 300;
        shape.in *= 4;
        shape.forward_cut = i % 2 ? 4 : 1;
        shape.segment[0] += 500;
        layer l = layer_create(&shape);
        outcome one = outcome_create(&l);
        outcome start = outcome_copy(&one);
        layer_run(&l, &one, 1, i % 3 == 0);
        for (uint32_t threads = 2; threads <= 4; threads++) {
            outcome other = outcome_copy(&start);
            layer_run(&l, &other, threads, i % 3 == 0);
            assert_outcomes_equal(&one, &other);
            outcome_free(&other);
        }
        outcome_free(&start);
        outcome_free(&one);
        layer_free(&l);
    }
}

/* What a tensor-parallel rank computes alone must be the piece that one rank computes for it. */
static void linear_cut_of_four_is_the_tree_over_its_pieces(void **state)
{
    (void)state;
    enum { N = 5, IN = 12, OUT = 7, CUT = 4, PIECE = IN / CUT };
    const layer_shape shape = {.n = N,
                               .in = IN,
                               .segment = {OUT},
                               .segment_count = 1,
                               .forward_cut = CUT,
                               .backward_cut = 1,
                               .layout = LS_WEIGHT_OUT_IN};
    layer l = layer_create(&shape);
    outcome whole = outcome_create(&l);
    layer_run(&l, &whole, 1, false);

    ls_queue *queue = queue_create(1);
    float piece[CUT][N * OUT];
    for (int p = 0; p < CUT; p++) {
        ls_linear part = l.linear;
        part.forward_cut = 1;
        part.weight = ls_tensor_columns(part.weight, p * PIECE, PIECE);
        const ls_tensor x = ls_tensor_columns(l.x.view, p * PIECE, PIECE);
        const ls_tensor y = ls_tensor_f32(piece[p], N, OUT);
        assert_int_equal(ls_linear_forward(queue, &part, &x, &y), LS_OK);
    }
    ls_queue_destroy(queue);
    for (int i = 0; i < N * OUT; i++) {
        const float left = piece[0][i] + piece[1][i], right = piece[2][i] + piece[3][i];
        const float sum = left + right;
        assert_memory_equal(&ls_tensor_row(&whole.y.view, i / OUT)[i % OUT], &sum, sizeof sum);
    }
    outcome_free(&whole);
    layer_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_matches_float64_on_random_shapes),
        cmocka_unit_test(linear_matches_float64_beyond_one_block),
        cmocka_unit_test(linear_matches_float64_for_every_cut),
        cmocka_unit_test(linear_gives_the_same_bits_for_any_thread_count),
        cmocka_unit_test(linear_cut_of_four_is_the_tree_over_its_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
