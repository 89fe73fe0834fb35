// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/checkasm.h"

#include "compute/kernels/attention.h"

/* q, k, v are columns of one fused tensor, as in a model; so are dq, dk, dv. */
typedef struct attention_case {
    ls_attention shape;
    ck_tensor qkv, out, lse, dout, dqkv, workspace;
    double *x64, *dout64, *out64, *lse64;
    int64_t past; /* decode */
} attention_case;

static ls_tensor part(const ck_tensor *fused, const ls_attention *a, int which)
{
    const int64_t wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    const int64_t first = which == 0 ? 0 : wide + (which - 1) * narrow;
    return ls_tensor_columns(fused->t, first, which == 0 ? wide : narrow);
}

static attention_case case_make(ls_attention a, uint64_t seed)
{
    const int64_t n = a.sequences * a.length, cols = (a.heads + 2 * a.kv_heads) * a.head_dim;
    a.scale = (float)(1.0 / sqrt((double)a.head_dim));
    return (attention_case){.shape = a,
                            .qkv = ck_make(n, cols, (int64_t)seed % 3, seed + 100, 2.0),
                            .out = ck_make(n, a.heads * a.head_dim, 1, 1, 0.0),
                            .lse = ck_make(n, a.heads, 0, 1, 0.0),
                            .dout = ck_make(n, a.heads * a.head_dim, 0, seed + 200, 1.0),
                            .dqkv = ck_make(n, cols, 2, 1, 0.0),
                            .workspace = ck_make(1, ls_attention_workspace_floats(NULL, &a), 0, 1, 0.0)};
}

static void case_release(attention_case *c)
{
    ck_tensor *all[] = {&c->qkv, &c->out, &c->lse, &c->dout, &c->dqkv, &c->workspace};
    for (int i = 0; i < 6; i++) {
        ck_free(all[i]);
    }
    free(c->x64);
    free(c->dout64);
    free(c->out64);
    free(c->lse64);
}

/* The definition for one row and head: its output (head_dim) and lse. */
static void row64(const attention_case *c, int64_t r, int64_t h, double *out, double *lse)
{
    const ls_attention *a = &c->shape;
    const int64_t cols = c->qkv.t.cols, d = a->head_dim, i = r % a->length, base = r - i;
    const int64_t shared = h / (a->heads / a->kv_heads);
    const int64_t reached = a->window > 0 && i - a->window + 1 > 0 ? i - a->window + 1 : 0;
    const int64_t first = a->first && a->first[r] > reached ? a->first[r] : reached;
    const double *q = c->x64 + r * cols + h * d;
    const double *k = c->x64 + (a->heads + shared) * d, *v = k + a->kv_heads * d;
    double p[512], top = -INFINITY, sum = 0.0;
    for (int64_t j = first; j <= i; j++) {
        p[j] = 0.0;
        for (int64_t e = 0; e < d; e++) {
            p[j] += q[e] * k[(base + j) * cols + e];
        }
        p[j] *= a->scale;
        top = fmax(top, p[j]);
    }
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t j = first; j <= i; j++) {
        p[j] = exp(p[j] - top);
        sum += p[j];
        for (int64_t e = 0; e < d; e++) {
            out[e] += p[j] * v[(base + j) * cols + e];
        }
    }
    for (int64_t e = 0; e < d; e++) {
        out[e] /= sum;
    }
    *lse = top + log(sum);
}

static void run_forward(ls_queue *queue, void *context)
{
    attention_case *c = context;
    const ls_tensor q = part(&c->qkv, &c->shape, 0), k = part(&c->qkv, &c->shape, 1),
                    v = part(&c->qkv, &c->shape, 2);
    assert_int_equal(ls_attention_forward(queue, &c->shape, &q, &k, &v, &c->out.t, &c->lse.t), LS_OK);
}

static void run_backward(ls_queue *queue, void *context)
{
    attention_case *c = context;
    const ls_attention *a = &c->shape;
    const ls_tensor q = part(&c->qkv, a, 0), k = part(&c->qkv, a, 1), v = part(&c->qkv, a, 2);
    const ls_tensor dq = part(&c->dqkv, a, 0), dk = part(&c->dqkv, a, 1), dv = part(&c->dqkv, a, 2);
    assert_int_equal(ls_attention_backward(queue, a, &q, &k, &v, &c->out.t, &c->lse.t, &c->dout.t, &dq, &dk,
                                           &dv, &c->workspace.t),
                     LS_OK);
}

static void check_forward(attention_case *c)
{
    const int64_t n = c->out.t.rows, h = c->shape.heads, d = c->shape.head_dim;
    ck_same_bits(run_forward, c, (ck_tensor *[]){&c->out, &c->lse}, 2, "attention forward");
    c->x64 = ck_initial(&c->qkv);
    c->dout64 = ck_initial(&c->dout);
    c->out64 = ck_zeros(n * h * d);
    c->lse64 = ck_zeros(n * h);
    for (int64_t i = 0; i < n * h; i++) {
        row64(c, i / h, i % h, c->out64 + i * d, &c->lse64[i]);
    }
    ck_close(&c->out, c->out64, 4e-6, 4e-6, "attention out");
    ck_close(&c->lse, c->lse64, 4e-6, 1e-6, "attention lse");
}

/* Sum of dout . out: the loss whose gradient backward gives. */
static double loss64(const void *context)
{
    const attention_case *c = context;
    const int64_t h = c->shape.heads, d = c->shape.head_dim;
    double loss = 0.0, out[256], lse;
    for (int64_t i = 0; i < c->out.t.rows * h; i++) {
        row64(c, i / h, i % h, out, &lse);
        for (int64_t e = 0; e < d; e++) {
            loss += out[e] * c->dout64[i * d + e];
        }
    }
    return loss;
}

static void check_backward(attention_case *c, int64_t probes)
{
    ck_same_bits(run_backward, c, (ck_tensor *[]){&c->dqkv}, 1, "attention backward");
    const int64_t count = c->qkv.t.rows * c->qkv.t.cols;
    for (int64_t p = 0; p < (probes < count ? probes : count); p++) {
        const int64_t i = probes < count ? ck_between((uint64_t)count, (uint64_t)p, 0, count - 1) : p;
        double want;
        ck_gradient(loss64, c, c->x64 + i, 1, &want);
        const double got = ck_at(&c->dqkv, i / c->qkv.t.cols, i % c->qkv.t.cols);
        if (!(fabs(got - want) <= 1e-5 + 1e-5 * fabs(want))) {
            fail_msg("gradient at row %lld column %lld of length %lld heads %lld/%lld dim %lld is %.9g, "
                     "float64 says %.9g",
                     (long long)(i / c->qkv.t.cols), (long long)(i % c->qkv.t.cols),
                     (long long)c->shape.length, (long long)c->shape.heads, (long long)c->shape.kv_heads,
                     (long long)c->shape.head_dim, got, want);
        }
    }
}

static void attention_matches_float64(void **state)
{
    (void)state;
    const struct {
        ls_attention shape;
        int64_t probes;
    } cases[] = {
        {{.sequences = 1, .length = 1, .heads = 1, .kv_heads = 1, .head_dim = 2}, 100},
        {{.sequences = 2, .length = 5, .heads = 2, .kv_heads = 1, .head_dim = 6}, 400},
        {{.sequences = 3, .length = 16, .heads = 1, .kv_heads = 1, .head_dim = 16}, 200},
        {{.sequences = 1, .length = 64, .heads = 2, .kv_heads = 2, .head_dim = 64}, 60},
        {{.sequences = 2, .length = 65, .heads = 3, .kv_heads = 1, .head_dim = 48}, 60},
        {{.sequences = 1, .length = 100, .heads = 4, .kv_heads = 2, .head_dim = 34}, 60},
        {{.sequences = 1, .length = 200, .heads = 1, .kv_heads = 1, .head_dim = 80}, 60},
        {{.sequences = 1, .length = 130, .heads = 2, .kv_heads = 1, .head_dim = 16, .window = 1}, 60},
        {{.sequences = 2, .length = 150, .heads = 2, .kv_heads = 2, .head_dim = 16, .window = 70}, 60},
        {{.sequences = 1, .length = 260, .heads = 1, .kv_heads = 1, .head_dim = 8, .window = 33}, 60},
        {{.sequences = 1, .length = 70, .heads = 1, .kv_heads = 1, .head_dim = 256, .window = 100}, 40},
        {{.sequences = 1, .length = 90, .heads = 2, .kv_heads = 1, .head_dim = 112}, 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attention_case c = case_make(cases[i].shape, i);
        check_forward(&c);
        check_backward(&c, cases[i].probes);
        case_release(&c);
    }
}

/* ---- records ---- */

/* Cuts every sequence into records of 1 to `longest` tokens. */
static void cut_records(const ls_attention *a, int64_t longest, uint64_t seed, int32_t *first)
{
    for (int64_t r = 0, end = 0; r < a->sequences * a->length; r++) {
        const int64_t token = r % a->length;
        const bool begins = token == 0 || token == end;
        end = begins ? token + ck_between(seed, (uint64_t)r, 1, longest) : end;
        first[r] = begins ? (int32_t)token : first[r - 1];
    }
    assert_true(ls_first_is_valid(first, a->sequences * a->length, a->length));
}

static void expect_same_rows(const ck_tensor *packed, int64_t row, const ck_tensor *alone, const char *what)
{
    for (int64_t i = 0; i < alone->t.rows * alone->t.cols; i++) {
        const int64_t r = i / alone->t.cols, col = i % alone->t.cols;
        const double got = ck_at(packed, row + r, col), want = ck_at(alone, r, col);
        if (memcmp(&got, &want, sizeof got) != 0) {
            fail_msg("%s: row %lld column %lld is %.9g packed and %.9g alone", what, (long long)(row + r),
                     (long long)col, got, want);
        }
    }
}

/* Runs rows [row, row + rows) as a sequence of their own. */
static void check_alone(const attention_case *packed, int64_t row, int64_t rows)
{
    ls_attention a = packed->shape;
    a.sequences = 1;
    a.length = rows;
    a.first = NULL;
    attention_case c = case_make(a, 3);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(ls_tensor_at(&c.qkv.t, i, 0), ls_tensor_at(&packed->qkv.t, row + i, 0),
               (size_t)c.qkv.t.cols * sizeof(float));
        memcpy(ls_tensor_at(&c.dout.t, i, 0), ls_tensor_at(&packed->dout.t, row + i, 0),
               (size_t)c.dout.t.cols * sizeof(float));
    }
    run_forward(ck_queue(0, 1), &c);
    run_backward(ck_queue(0, 1), &c);
    expect_same_rows(&packed->out, row, &c.out, "attention out");
    expect_same_rows(&packed->lse, row, &c.lse, "attention lse");
    expect_same_rows(&packed->dqkv, row, &c.dqkv, "attention gradients");
    case_release(&c);
}

static void attention_of_a_record_has_the_bits_of_the_record_alone(void **state)
{
    (void)state;
    const struct {
        ls_attention shape;
        int64_t longest, probes;
    } cases[] = {
        {{.sequences = 2, .length = 9, .heads = 2, .kv_heads = 1, .head_dim = 6}, 1, 100},
        {{.sequences = 2, .length = 37, .heads = 2, .kv_heads = 1, .head_dim = 6}, 5, 100},
        {{.sequences = 1, .length = 150, .heads = 4, .kv_heads = 2, .head_dim = 34}, 90, 60},
        {{.sequences = 3, .length = 201, .heads = 1, .kv_heads = 1, .head_dim = 16}, 140, 40},
        {{.sequences = 1, .length = 300, .heads = 2, .kv_heads = 2, .head_dim = 16, .window = 33}, 150, 40},
        {{.sequences = 1, .length = 260, .heads = 3, .kv_heads = 1, .head_dim = 48, .window = 3}, 64, 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_attention a = cases[i].shape;
        const int64_t n = a.sequences * a.length;
        int32_t first[1024];
        cut_records(&a, cases[i].longest, i + 1, first);
        a.first = first;
        attention_case c = case_make(a, i);
        check_forward(&c);
        check_backward(&c, cases[i].probes);
        int64_t records = 0;
        for (int64_t row = 0, rows = 0; row < n; row += rows, records++) {
            for (rows = 1; row + rows < n && first[row + rows] != (row + rows) % a.length;) {
                rows++;
            }
            check_alone(&c, row, rows);
        }
        assert_true(records > a.sequences);
        case_release(&c);
    }
}

static void run_decode(ls_queue *queue, void *context)
{
    attention_case *c = context;
    ls_attention a = c->shape;
    const ls_tensor q = part(&c->qkv, &a, 0), k = part(&c->qkv, &a, 1), v = part(&c->qkv, &a, 2);
    const ls_tensor q_new = ls_tensor_rows(q, c->past, a.length - c->past);
    const ls_tensor out = ls_tensor_rows(c->out.t, c->past, a.length - c->past);
    a.length -= c->past;
    assert_int_equal(ls_attention_decode(queue, &a, &q_new, &k, &v, c->past, &out), LS_OK);
}

/* Generating token by token, or a prompt and then a token, gives the bits of one forward over
 * everything. */
static void attention_decode_gives_the_bits_of_forward(void **state)
{
    (void)state;
    for (int64_t window = 0; window < 60; window += 40) {
        attention_case c = case_make(
            (ls_attention){
                .sequences = 1, .length = 141, .heads = 4, .kv_heads = 2, .head_dim = 24, .window = window},
            9);
        run_forward(ck_queue(0, 1), &c);
        const size_t bytes = c.out.floats * sizeof(float);
        float *want = malloc(bytes);
        memcpy(want, c.out.block, bytes);
        const int64_t pasts[] = {0, 3, 64, 127, 139, 140};
        for (size_t i = 0; i < sizeof pasts / sizeof pasts[0]; i++) {
            c.past = pasts[i];
            ck_same_bits(run_decode, &c, (ck_tensor *[]){&c.out}, 1, "attention decode");
            const size_t at = (size_t)(CK_GUARD + c.past * c.out.t.stride);
            assert_memory_equal(want + at, c.out.block + at, bytes - at * sizeof(float));
        }
        free(want);
        case_release(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_float64),
        cmocka_unit_test(attention_of_a_record_has_the_bits_of_the_record_alone),
        cmocka_unit_test(attention_decode_gives_the_bits_of_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
