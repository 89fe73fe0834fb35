// SPDX-License-Identifier: Apache-2.0
/* Attention on a GPU against its definition in float64: every head size with a kernel of its own,
 * others, and rows that only the plain kernels take. */
#include "compute/cuda/cuda_test.h"

#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/attention.h"

/* q, k, v are columns of one fused matrix, as in a model; so are dq, dk, dv. */
typedef struct attention_case {
    ls_attention shape;
    ls_dtype dtype;
    cuda_matrix qkv, out, lse, dout, dqkv, workspace;
    double *out64, *lse64, *dqkv64;
} attention_case;

static ls_tensor part(const cuda_matrix *fused, const ls_attention *a, int which)
{
    const int64_t wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    const int64_t first = which == 0 ? 0 : wide + (which - 1) * narrow;
    return ls_tensor_columns(fused->t, first, which == 0 ? wide : narrow);
}

/* gap: elements between rows, beyond a row's own. */
static attention_case case_make(ls_attention a, ls_dtype dtype, int64_t gap)
{
    const int64_t n = a.sequences * a.length, wide = a.heads * a.head_dim;
    const int64_t cols = wide + 2 * a.kv_heads * a.head_dim;
    const uint64_t seed = (uint64_t)(a.length * 1000 + a.head_dim);
    a.scale = (float)(1.0 / sqrt((double)a.head_dim));
    return (attention_case){
        .shape = a,
        .dtype = dtype,
        .qkv = cuda_matrix_make(dtype, n, cols, gap, seed, 2.0),
        .out = cuda_matrix_make(dtype, n, wide, gap, 0, 0.0),
        .lse = cuda_matrix_make(LS_F32, n, a.heads, 1, 0, 0.0),
        .dout = cuda_matrix_make(dtype, n, wide, gap, seed + 1, 1.0),
        .dqkv = cuda_matrix_make(dtype, n, cols, gap, 0, 0.0),
        .workspace = cuda_matrix_make(LS_F32, 1, ls_attention_workspace_floats(cuda_queue(), &a), 0, 0, 0.0),
        .out64 = cuda_doubles(n * wide),
        .lse64 = cuda_doubles(n * a.heads),
        .dqkv64 = cuda_doubles(n * cols),
    };
}

static void case_release(attention_case *c)
{
    cuda_matrix *all[] = {&c->qkv, &c->out, &c->lse, &c->dout, &c->dqkv, &c->workspace};
    for (int i = 0; i < 6; i++) {
        cuda_matrix_free(all[i]);
    }
    free(c->out64);
    free(c->lse64);
    free(c->dqkv64);
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(double *to, const double *from, double factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] += factor * from[i];
    }
}

/* The definition, forward and backward, for one row and head. */
static void row64(attention_case *c, int64_t r, int64_t h)
{
    const ls_attention *a = &c->shape;
    const int64_t d = a->head_dim, cols = c->qkv.t.cols, i = r % a->length, base = r - i;
    const int64_t reached = a->window > 0 && i - a->window + 1 > 0 ? i - a->window + 1 : 0;
    const int64_t first = a->first && a->first[r] > reached ? a->first[r] : reached;
    const int64_t key = (a->heads + h / (a->heads / a->kv_heads)) * d, value = key + a->kv_heads * d;
    const double *x = c->qkv.x, *q = x + r * cols + h * d, *dout = c->dout.x + (r * a->heads + h) * d;
    double *out = c->out64 + (r * a->heads + h) * d, *dx = c->dqkv64, p[1024], top = -INFINITY, sum = 0.0;
    for (int64_t j = first; j <= i; j++) {
        p[j] = a->scale * dot(q, x + (base + j) * cols + key, d);
        top = fmax(top, p[j]);
    }
    for (int64_t j = first; j <= i; j++) {
        p[j] = exp(p[j] - top);
        sum += p[j];
    }
    for (int64_t j = first; j <= i; j++) {
        p[j] /= sum;
        add_scaled(out, x + (base + j) * cols + value, p[j], d);
    }
    c->lse64[r * a->heads + h] = top + log(sum);
    const double own = dot(dout, out, d);
    for (int64_t j = first; j <= i; j++) {
        const int64_t at = (base + j) * cols;
        const double ds = a->scale * p[j] * (dot(dout, x + at + value, d) - own);
        add_scaled(dx + r * cols + h * d, x + at + key, ds, d);
        add_scaled(dx + at + key, q, ds, d);
        add_scaled(dx + at + value, dout, p[j], d);
    }
}

static void run_forward(void *context)
{
    attention_case *c = context;
    const ls_attention *a = &c->shape;
    const ls_tensor q = part(&c->qkv, a, 0), k = part(&c->qkv, a, 1), v = part(&c->qkv, a, 2);
    CUDA_OK(ls_attention_forward(cuda_queue(), a, &q, &k, &v, &c->out.t, &c->lse.t));
}

static void run_backward(void *context)
{
    attention_case *c = context;
    const ls_attention *a = &c->shape;
    const ls_tensor q = part(&c->qkv, a, 0), k = part(&c->qkv, a, 1), v = part(&c->qkv, a, 2);
    const ls_tensor dq = part(&c->dqkv, a, 0), dk = part(&c->dqkv, a, 1), dv = part(&c->dqkv, a, 2);
    CUDA_OK(ls_attention_backward(cuda_queue(), a, &q, &k, &v, &c->out.t, &c->lse.t, &c->dout.t, &dq, &dk,
                                  &dv, &c->workspace.t));
}

/* dq, dk and dv apart, since one is often much larger than another. */
static void check_gradients(const attention_case *c, const char *name)
{
    const ls_attention *a = &c->shape;
    const int64_t cols = c->qkv.t.cols, wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    const double bound = cuda_tolerance(c->dtype);
    for (int which = 0; which < 3; which++) {
        const int64_t first = which == 0 ? 0 : wide + (which - 1) * narrow,
                      count = which == 0 ? wide : narrow;
        double off = 0.0, size = 0.0;
        for (int64_t i = 0; i < c->qkv.t.rows * count; i++) {
            const int64_t at = i / count * cols + first + i % count;
            off += (c->dqkv.x[at] - c->dqkv64[at]) * (c->dqkv.x[at] - c->dqkv64[at]);
            size += c->dqkv64[at] * c->dqkv64[at];
        }
        /* A sequence of one has probabilities of 1, and dq = dk = 0. */
        const double error = sqrt(off / fmax(size, 1e-4 * (double)c->qkv.t.rows));
        if (!(error < bound)) {
            fail_msg("%s: d%c is off by %.3g", name, "qkv"[which], error);
        }
    }
}

static void check_case(ls_attention shape, ls_dtype dtype, int64_t gap)
{
    char name[160];
    snprintf(name, sizeof name, "%s sequences %d length %d heads %d/%d dim %d window %d gap %d",
             dtype == LS_BF16 ? "bf16" : "f32", (int)shape.sequences, (int)shape.length, (int)shape.heads,
             (int)shape.kv_heads, (int)shape.head_dim, (int)shape.window, (int)gap);
    attention_case c = case_make(shape, dtype, gap);
    for (int64_t i = 0; i < c.lse.t.rows * shape.heads; i++) {
        row64(&c, i / shape.heads, i % shape.heads);
    }
    cuda_same_bits(run_forward, &c, (cuda_matrix *[]){&c.out, &c.lse}, 2);
    cuda_matrix_check(&c.out, c.out64, cuda_tolerance(dtype), name);
    cuda_matrix_check(&c.lse, c.lse64, 1e-5, name);
    cuda_same_bits(run_backward, &c, (cuda_matrix *[]){&c.dqkv, &c.workspace}, 2);
    cuda_matrix_read(&c.dqkv);
    check_gradients(&c, name);
    case_release(&c);
}

static ls_attention shape_of(int64_t sequences, int64_t length, int64_t heads, int64_t kv_heads,
                             int64_t head_dim, int64_t window)
{
    return (ls_attention){.sequences = sequences,
                          .length = length,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .window = window};
}

/* The kernels of capability 8.0, wherever the test runs. */
static void attention_bf16_matches_float64(void **state)
{
    (void)state;
    ls_queue_cuda *queue = ls_cuda_of(cuda_queue());
    const int capability = queue->capability;
    queue->capability = 80;
    check_case(shape_of(1, 1, 1, 1, 64, 0), LS_BF16, 0);
    check_case(shape_of(2, 135, 2, 1, 64, 0), LS_BF16, 8);
    check_case(shape_of(1, 200, 2, 2, 64, 70), LS_BF16, 0);
    check_case(shape_of(3, 30, 4, 1, 64, 1), LS_BF16, 0);
    check_case(shape_of(1, 77, 4, 2, 96, 0), LS_BF16, 0);
    check_case(shape_of(1, 140, 1, 1, 96, 9), LS_BF16, 0);
    check_case(shape_of(2, 65, 2, 1, 128, 0), LS_BF16, 16);
    check_case(shape_of(1, 150, 2, 2, 128, 33), LS_BF16, 0);
    check_case(shape_of(1, 99, 2, 1, 256, 0), LS_BF16, 0);
    check_case(shape_of(1, 70, 1, 1, 256, 20), LS_BF16, 0);
    queue->capability = capability;
}

static void attention_bf16_best_kernels_match_float64(void **state)
{
    (void)state;
    check_case(shape_of(1, 140, 2, 1, 64, 0), LS_BF16, 8);
    check_case(shape_of(1, 140, 2, 1, 128, 50), LS_BF16, 0);
}

/* Head sizes without a kernel of their own, and rows that are not whole 16-byte words. */
static void attention_bf16_plain_matches_float64(void **state)
{
    (void)state;
    check_case(shape_of(2, 67, 2, 1, 80, 0), LS_BF16, 0);
    check_case(shape_of(1, 20, 1, 1, 2, 0), LS_BF16, 0);
    check_case(shape_of(1, 70, 2, 1, 64, 0), LS_BF16, 1);
}

static void attention_f32_matches_float64(void **state)
{
    (void)state;
    check_case(shape_of(1, 1, 1, 1, 8, 0), LS_F32, 0);
    check_case(shape_of(2, 70, 2, 1, 64, 0), LS_F32, 4);
    check_case(shape_of(1, 150, 4, 1, 16, 33), LS_F32, 0);
    check_case(shape_of(1, 130, 1, 1, 128, 0), LS_F32, 0);
    check_case(shape_of(1, 40, 2, 2, 256, 3), LS_F32, 0);
    check_case(shape_of(3, 21, 2, 1, 6, 0), LS_F32, 1);
}

/* ---- records ---- */

/* Cuts every sequence into records of 1 to `longest` tokens. */
static void cut_records(const ls_attention *a, int64_t longest, int32_t *first)
{
    for (int64_t r = 0, end = 0; r < a->sequences * a->length; r++) {
        const int64_t token = r % a->length;
        const bool begins = token == 0 || token == end;
        end = begins ? token + cuda_between((uint64_t)longest, (uint64_t)r, 1, longest) : end;
        first[r] = begins ? (int32_t)token : first[r - 1];
    }
}

static int64_t record_end(const ls_attention *a, int64_t row)
{
    int64_t end = row + 1;
    while (end % a->length != 0 && a->first[end] == a->first[row]) {
        end++;
    }
    return end;
}

static void expect_same_rows(const cuda_matrix *x, const cuda_matrix *y, int64_t begin, int64_t end,
                             const char *what)
{
    const size_t bytes = (size_t)((end - begin) * x->t.cols) * sizeof *x->x;
    if (memcmp(x->x + begin * x->t.cols, y->x + begin * x->t.cols, bytes) != 0) {
        fail_msg("%s of rows %d to %d depend on other records", what, (int)begin, (int)end - 1);
    }
}

static void run_and_read(attention_case *c)
{
    run_forward(c);
    run_backward(c);
    cuda_matrix_read(&c->out);
    cuda_matrix_read(&c->lse);
    cuda_matrix_read(&c->dqkv);
}

/* The rows [begin, end), a record, have the same bits when all other tokens are others, and all of
 * those before or after it are one record. */
static void check_alone(const attention_case *packed, int64_t gap, int64_t begin, int64_t end)
{
    const ls_attention *a = &packed->shape;
    const int64_t n = a->sequences * a->length, cols = packed->qkv.t.cols, wide = packed->dout.t.cols;
    const int64_t sequence = begin / a->length * a->length;
    ls_attention shape = *a;
    int32_t *first = cuda_shared((size_t)n * sizeof *first);
    for (int64_t r = 0; r < n; r++) {
        const int32_t after = (int32_t)(end - sequence);
        first[r] = r >= begin && r < end                            ? a->first[r]
                   : r >= end && r / a->length == begin / a->length ? after
                                                                    : 0;
    }
    shape.first = first;
    attention_case c = case_make(shape, packed->dtype, gap);
    for (int64_t r = 0; r < n; r++) {
        const double sign = r >= begin && r < end ? 1.0 : -0.5;
        for (int64_t i = 0; i < cols; i++) {
            c.qkv.x[r * cols + i] = cuda_rounded(c.dtype, sign * c.qkv.x[r * cols + i]);
        }
        for (int64_t i = 0; i < wide; i++) {
            c.dout.x[r * wide + i] = cuda_rounded(c.dtype, sign * c.dout.x[r * wide + i]);
        }
    }
    cuda_matrix_write(&c.qkv);
    cuda_matrix_write(&c.dout);
    run_and_read(&c);
    expect_same_rows(&packed->out, &c.out, begin, end, "outputs");
    expect_same_rows(&packed->lse, &c.lse, begin, end, "lse");
    expect_same_rows(&packed->dqkv, &c.dqkv, begin, end, "gradients");
    case_release(&c);
    ls_shared_free(cuda_queue(), first, (size_t)n * sizeof *first);
}

static void check_records(ls_attention shape, int64_t longest, ls_dtype dtype, int64_t gap)
{
    const int64_t n = shape.sequences * shape.length;
    int32_t *first = cuda_shared((size_t)n * sizeof *first);
    cut_records(&shape, longest, first);
    assert_true(ls_first_is_valid(first, n, shape.length));
    shape.first = first;
    check_case(shape, dtype, gap);
    if (CUDA_RUNS > 1) { /* the same shape again and again */
        attention_case c = case_make(shape, dtype, gap);
        run_and_read(&c);
        for (int64_t row = 0, records = 0; row < n; row = record_end(&shape, row), records++) {
            if (records % 4 == 1) {
                check_alone(&c, gap, row, record_end(&shape, row));
            }
        }
        case_release(&c);
    }
    ls_shared_free(cuda_queue(), first, (size_t)n * sizeof *first);
}

static void attention_keeps_records_apart(void **state)
{
    (void)state;
    check_records(shape_of(2, 200, 2, 1, 64, 0), 90, LS_BF16, 0);
    check_records(shape_of(1, 300, 1, 1, 64, 40), 150, LS_BF16, 8);
    check_records(shape_of(1, 77, 4, 2, 96, 0), 20, LS_BF16, 0);
    check_records(shape_of(1, 150, 2, 2, 128, 0), 70, LS_BF16, 0);
    check_records(shape_of(1, 140, 1, 1, 256, 0), 65, LS_BF16, 0);
    check_records(shape_of(2, 135, 2, 1, 80, 0), 64, LS_BF16, 0);
    check_records(shape_of(2, 150, 2, 1, 64, 0), 75, LS_F32, 0);
    check_records(shape_of(1, 70, 1, 1, 6, 9), 3, LS_F32, 1);
}

/* The newest n positions of the only sequence of c. */
static void run_decode(attention_case *c, int64_t n)
{
    ls_attention a = c->shape;
    const int64_t past = a.length - n;
    const ls_tensor q = part(&c->qkv, &a, 0), k = part(&c->qkv, &a, 1), v = part(&c->qkv, &a, 2);
    const ls_tensor new_q = ls_tensor_rows(q, past, n), out = ls_tensor_rows(c->out.t, past, n);
    a.length = n;
    CUDA_OK(ls_attention_decode(cuda_queue(), &a, &new_q, &k, &v, past, &out));
    cuda_matrix_read(&c->out);
}

static void check_decode(ls_attention shape, ls_dtype dtype, int64_t gap)
{
    static const int64_t counts[] = {1, 3, 31, 40};
    attention_case c = case_make(shape, dtype, gap);
    const int64_t wide = c.out.t.cols, last = (shape.length - 1) * wide;
    double *newest = cuda_doubles(wide);
    for (int64_t i = 0; i < shape.length * shape.heads; i++) {
        row64(&c, i / shape.heads, i % shape.heads);
    }
    for (int i = 0; i < 4 && counts[i] <= shape.length; i++) {
        double off = 0.0, size = 0.0;
        run_decode(&c, counts[i]);
        for (int64_t j = (shape.length - counts[i]) * wide; j < last + wide; j++) {
            off += (c.out.x[j] - c.out64[j]) * (c.out.x[j] - c.out64[j]);
            size += c.out64[j] * c.out64[j];
        }
        if (!(sqrt(off / size) < cuda_tolerance(dtype))) {
            fail_msg("decode of %d in %d, dim %d, window %d is off by %.3g", (int)counts[i],
                     (int)shape.length, (int)shape.head_dim, (int)shape.window, sqrt(off / size));
        }
        /* Few queries: the bits do not depend on how many. */
        if (i == 0) {
            memcpy(newest, c.out.x + last, (size_t)wide * sizeof *newest);
        } else if (counts[i] < 32) {
            assert_memory_equal(newest, c.out.x + last, (size_t)wide * sizeof *newest);
        }
    }
    free(newest);
    case_release(&c);
}

static void attention_decode_matches_float64(void **state)
{
    (void)state;
    check_decode(shape_of(1, 1, 2, 1, 64, 0), LS_F32, 0);
    check_decode(shape_of(1, 600, 2, 1, 64, 0), LS_BF16, 0);
    check_decode(shape_of(1, 530, 2, 2, 128, 10), LS_BF16, 8);
    check_decode(shape_of(1, 300, 1, 1, 256, 0), LS_F32, 0);
    check_decode(shape_of(1, 300, 2, 1, 80, 290), LS_BF16, 1);
    check_decode(shape_of(1, 270, 2, 1, 6, 0), LS_F32, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_bf16_matches_float64),
        cmocka_unit_test(attention_bf16_best_kernels_match_float64),
        cmocka_unit_test(attention_bf16_plain_matches_float64),
        cmocka_unit_test(attention_f32_matches_float64),
        cmocka_unit_test(attention_keeps_records_apart),
        cmocka_unit_test(attention_decode_matches_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
