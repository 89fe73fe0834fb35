// SPDX-License-Identifier: Apache-2.0
/*
 * Attention on compute capability 9.0 against its definition in float64. Needs such a device.
 */
#include "compute/cuda/attention_sm90.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ls_queue *queue;

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double double_of(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static uint64_t random_state = 1;

/* About normal, variance 1. */
static double random_normal(void)
{
    double sum = 0.0;
    for (int i = 0; i < 6; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(random_state >> 40) / (double)(1 << 24) - 0.5;
    }
    return sum * 1.4142135623730951;
}

/* A matrix on the device and its values on the host; `padding` columns lie between rows. */
typedef struct matrix {
    ls_tensor view;
    void *memory;
    size_t bytes;
    double *values; /* (rows, cols), without padding */
} matrix;

enum { POISON = 0xff };

static matrix matrix_make(int64_t rows, int64_t cols, int64_t padding, ls_dtype dtype)
{
    const size_t count = (size_t)(rows * (cols + padding));
    matrix m = {.bytes = count * (size_t)ls_dtype_bytes(dtype),
                .values = calloc((size_t)(rows * cols), sizeof(double))};
    assert_int_equal(ls_device_alloc(queue, m.bytes, &m.memory), LS_OK);
    m.view = ls_tensor_of(m.memory, dtype, rows, cols);
    m.view.stride = cols + padding;
    return m;
}

static void matrix_release(matrix *m)
{
    ls_device_free(queue, m->memory, m->bytes);
    free(m->values);
}

static void matrix_poison(matrix *m)
{
    unsigned char *bytes = malloc(m->bytes);
    memset(bytes, POISON, m->bytes);
    assert_int_equal(ls_queue_move(queue, m->memory, bytes, m->bytes), LS_OK);
    assert_int_equal(ls_queue_wait(queue), LS_OK);
    free(bytes);
}

/* Random bfloat16 values; what lies between rows is NaN. */
static void matrix_fill(matrix *m)
{
    uint16_t *bytes = malloc(m->bytes);
    memset(bytes, POISON, m->bytes);
    for (int64_t i = 0; i < m->view.rows * m->view.cols; i++) {
        uint16_t *at = bytes + i / m->view.cols * m->view.stride + i % m->view.cols;
        *at = bf16_of((float)random_normal());
        m->values[i] = double_of(*at);
    }
    assert_int_equal(ls_queue_move(queue, m->memory, bytes, m->bytes), LS_OK);
    assert_int_equal(ls_queue_wait(queue), LS_OK);
    free(bytes);
}

static unsigned char *matrix_read(const matrix *m)
{
    unsigned char *bytes = malloc(m->bytes);
    assert_int_equal(ls_queue_move(queue, bytes, m->memory, m->bytes), LS_OK);
    const ls_status status = ls_queue_wait(queue);
    if (status != LS_OK) {
        print_error("%s\n", ls_error_text());
    }
    assert_int_equal(status, LS_OK);
    return bytes;
}

/* ||got - values|| / ||values||, and the first rows that are far off. Padding has to be
 * untouched. */
static double matrix_error(const matrix *m, const char *name)
{
    unsigned char *bytes = matrix_read(m);
    double square = 0.0, error = 0.0;
    int shown = 0;
    const int64_t element = ls_dtype_bytes(m->view.dtype);
    for (int64_t row = 0; row < m->view.rows; row++) {
        for (int64_t col = 0; col < m->view.stride; col++) {
            const unsigned char *at = bytes + (row * m->view.stride + col) * element;
            if (col >= m->view.cols) {
                assert_int_equal(at[0], POISON);
                continue;
            }
            float x = 0.0f;
            uint16_t half;
            memcpy(&x, at, element == 4 ? 4 : 2);
            memcpy(&half, at, 2);
            const double got = element == 2 ? double_of(half) : (double)x;
            const double expected = m->values[row * m->view.cols + col];
            square += expected * expected;
            error += (got - expected) * (got - expected);
            if (!(fabs(got - expected) < 0.05 * (1.0 + fabs(expected))) && shown++ < 8) {
                print_error("%s: row %ld column %ld is %g, expected %g\n", name, (long)row, (long)col, got,
                            expected);
            }
        }
    }
    free(bytes);
    const double relative = sqrt(error / square);
    print_message("  %s: relative error %.2e\n", name, relative);
    return relative;
}

/* ---- a case ---- */

typedef struct attention_case {
    ls_attention shape;
    matrix qkv, out, lse, dout, dqkv;
} attention_case;

/* q, k, v as columns of one tensor. */
static ls_tensor part(const matrix *fused, const ls_attention *a, int which)
{
    const int64_t wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    return ls_tensor_columns(fused->view, which == 0 ? 0 : wide + (which - 1) * narrow,
                             which == 0 ? wide : narrow);
}

static attention_case case_make(ls_attention shape, int64_t padding)
{
    const int64_t n = shape.sequences * shape.length,
                  cols = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    shape.scale = (float)(1.0 / sqrt((double)shape.head_dim));
    attention_case c = {.shape = shape,
                        .qkv = matrix_make(n, cols, padding, LS_BF16),
                        .out = matrix_make(n, shape.heads * shape.head_dim, padding, LS_BF16),
                        .lse = matrix_make(n, shape.heads, 0, LS_F32),
                        .dout = matrix_make(n, shape.heads * shape.head_dim, 0, LS_BF16),
                        .dqkv = matrix_make(n, cols, padding, LS_BF16)};
    matrix_fill(&c.qkv);
    matrix_fill(&c.dout);
    matrix_poison(&c.out);
    matrix_poison(&c.lse);
    matrix_poison(&c.dqkv);
    return c;
}

static void case_release(attention_case *c)
{
    matrix_release(&c->qkv);
    matrix_release(&c->out);
    matrix_release(&c->lse);
    matrix_release(&c->dout);
    matrix_release(&c->dqkv);
}

/* The rows of one query head in the values of the case. */
typedef struct head64 {
    const double *q, *k, *v, *dout;
    double *out, *lse, *dq, *dk, *dv;
    int64_t fused, wide; /* columns of qkv and of out */
} head64;

static head64 head_of(attention_case *c, int64_t sequence, int64_t head)
{
    const ls_attention *a = &c->shape;
    const int64_t row = sequence * a->length, d = a->head_dim, shared = head / (a->heads / a->kv_heads);
    head64 h = {.fused = c->qkv.view.cols, .wide = c->out.view.cols};
    const int64_t q = row * h.fused + head * d, k = row * h.fused + (a->heads + shared) * d,
                  v = k + a->kv_heads * d;
    h.q = c->qkv.values + q;
    h.k = c->qkv.values + k;
    h.v = c->qkv.values + v;
    h.dq = c->dqkv.values + q;
    h.dk = c->dqkv.values + k;
    h.dv = c->dqkv.values + v;
    h.out = c->out.values + row * h.wide + head * d;
    h.dout = c->dout.values + row * h.wide + head * d;
    h.lse = c->lse.values + row * a->heads + head;
    return h;
}

static double dot(const double *x, const double *y, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

/* Row i of a head: forward, and what it adds to the gradients. */
static void row64(const ls_attention *a, const head64 *h, int64_t i, double *p)
{
    const int64_t d = a->head_dim, first = a->window > 0 && i >= a->window ? i - a->window + 1 : 0;
    const double *q = h->q + i * h->fused, *dout = h->dout + i * h->wide, scale = (double)a->scale;
    double *out = h->out + i * h->wide, *dq = h->dq + i * h->fused, top = -INFINITY, sum = 0.0;
    for (int64_t j = first; j <= i; j++) {
        p[j] = scale * dot(q, h->k + j * h->fused, d);
        top = fmax(top, p[j]);
    }
    for (int64_t j = first; j <= i; j++) {
        p[j] = exp(p[j] - top);
        sum += p[j];
    }
    for (int64_t j = first; j <= i; j++) {
        p[j] /= sum;
        for (int64_t e = 0; e < d; e++) {
            out[e] += p[j] * h->v[j * h->fused + e];
        }
    }
    h->lse[i * a->heads] = top + log(sum);
    const double delta = dot(dout, out, d);
    for (int64_t j = first; j <= i; j++) {
        const double ds = scale * p[j] * (dot(dout, h->v + j * h->fused, d) - delta);
        for (int64_t e = 0; e < d; e++) {
            dq[e] += ds * h->k[j * h->fused + e];
            h->dk[j * h->fused + e] += ds * q[e];
            h->dv[j * h->fused + e] += p[j] * dout[e];
        }
    }
}

static void case_expect(attention_case *c)
{
    double *p = calloc((size_t)c->shape.length, sizeof *p);
    for (int64_t s = 0; s < c->shape.sequences; s++) {
        for (int64_t head = 0; head < c->shape.heads; head++) {
            const head64 h = head_of(c, s, head);
            for (int64_t i = 0; i < c->shape.length; i++) {
                row64(&c->shape, &h, i, p);
            }
        }
    }
    free(p);
}

static void case_forward(attention_case *c)
{
    const ls_tensor q = part(&c->qkv, &c->shape, 0), k = part(&c->qkv, &c->shape, 1),
                    v = part(&c->qkv, &c->shape, 2);
    const ls_status status =
        ls_cuda_attention_forward_sm90(queue, &c->shape, &q, &k, &v, &c->out.view, &c->lse.view);
    if (status != LS_OK) {
        print_error("%s\n", ls_error_text());
    }
    assert_int_equal(status, LS_OK);
}

static void case_backward(attention_case *c)
{
    const ls_tensor q = part(&c->qkv, &c->shape, 0), k = part(&c->qkv, &c->shape, 1),
                    v = part(&c->qkv, &c->shape, 2);
    const ls_tensor dq = part(&c->dqkv, &c->shape, 0), dk = part(&c->dqkv, &c->shape, 1),
                    dv = part(&c->dqkv, &c->shape, 2), none = {0};
    const ls_status status = ls_cuda_attention_backward_sm90(
        queue, &c->shape, &q, &k, &v, &c->out.view, &c->lse.view, &c->dout.view, &dq, &dk, &dv, &none);
    if (status != LS_OK) {
        print_error("%s\n", ls_error_text());
    }
    assert_int_equal(status, LS_OK);
}

static void assert_same_bits(attention_case *c, void (*run)(attention_case *), matrix *a, matrix *b)
{
    unsigned char *first_a = matrix_read(a), *first_b = matrix_read(b);
    matrix_poison(a);
    matrix_poison(b);
    run(c);
    unsigned char *second_a = matrix_read(a), *second_b = matrix_read(b);
    assert_memory_equal(first_a, second_a, a->bytes);
    assert_memory_equal(first_b, second_b, b->bytes);
    free(first_a);
    free(first_b);
    free(second_a);
    free(second_b);
}

static const struct {
    ls_attention shape;
    int64_t padding;
} cases[] = {
    {{.sequences = 1, .length = 64, .heads = 1, .kv_heads = 1, .head_dim = 64}, 0},
    {{.sequences = 1, .length = 128, .heads = 1, .kv_heads = 1, .head_dim = 128}, 0},
    {{.sequences = 2, .length = 200, .heads = 2, .kv_heads = 2, .head_dim = 64}, 8},
    {{.sequences = 2, .length = 140, .heads = 4, .kv_heads = 2, .head_dim = 128}, 16},
    {{.sequences = 1, .length = 389, .heads = 2, .kv_heads = 1, .head_dim = 64}, 0},
    {{.sequences = 1, .length = 270, .heads = 1, .kv_heads = 1, .head_dim = 128, .window = 70}, 0},
    {{.sequences = 1, .length = 330, .heads = 2, .kv_heads = 1, .head_dim = 64, .window = 140}, 0},
    {{.sequences = 3, .length = 1, .heads = 2, .kv_heads = 1, .head_dim = 64}, 0},
    {{.sequences = 1, .length = 129, .heads = 3, .kv_heads = 3, .head_dim = 128, .window = 1}, 0},
};

static void run_cases(bool backward)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_attention *a = &cases[i].shape;
        print_message("sequences %ld length %ld heads %ld/%ld head_dim %ld window %ld\n", (long)a->sequences,
                      (long)a->length, (long)a->heads, (long)a->kv_heads, (long)a->head_dim, (long)a->window);
        attention_case c = case_make(*a, cases[i].padding);
        case_expect(&c);
        case_forward(&c);
        double worst = fmax(matrix_error(&c.out, "out"), 100.0 * matrix_error(&c.lse, "lse"));
        if (backward) {
            case_backward(&c);
            worst = fmax(worst, matrix_error(&c.dqkv, "dq dk dv"));
            assert_same_bits(&c, case_backward, &c.dqkv, &c.dqkv);
        } else {
            assert_same_bits(&c, case_forward, &c.out, &c.lse);
        }
        assert_true(worst < 1e-2);
        case_release(&c);
    }
}

static void attention_forward_agrees_with_its_definition(void **state)
{
    (void)state;
    run_cases(false);
}

static void attention_backward_agrees_with_its_definition(void **state)
{
    (void)state;
    run_cases(true);
}

int main(void)
{
    const ls_cuda_options options = {0};
    if (ls_queue_create_cuda(&options, &queue) != LS_OK) {
        print_message("skipped: %s\n", ls_error_text());
        return 77;
    }
    const ls_attention usual = {
        .sequences = 1, .length = 1, .heads = 1, .kv_heads = 1, .head_dim = 64, .scale = 1.0f};
    if (!ls_cuda_attention_sm90_takes(ls_cuda_of(queue), &usual, LS_BF16)) {
        print_message("skipped: %s has capability %d\n", ls_queue_device_name(queue),
                      ls_cuda_of(queue)->capability);
        ls_queue_destroy(queue);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_forward_agrees_with_its_definition),
        cmocka_unit_test(attention_backward_agrees_with_its_definition),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ls_queue_destroy(queue);
    return failed;
}
