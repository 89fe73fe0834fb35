// SPDX-License-Identifier: Apache-2.0
/*
 * Linear layers on a GPU against float64: layouts, sizes, strides, bias, accumulation, both element
 * types, by cuBLASLt and by our own kernels.
 *
 * Every matrix lies inside a larger one whose other elements are canaries.
 */
#include "compute/cuda/cuda_test.h"

#include "base/half.h"
#include "base/random.h"
#include "compute/cuda/matmul.h"
#include "compute/kernels/linear.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times that a pass of the last shape runs: all results must be equal. */
enum { RUNS_MAX = CUDA_RUNS == 1 ? 1 : 5 };

static uint64_t draw_count;

static int64_t draw(int64_t low, int64_t high)
{
    const ls_random_key key = ls_random_stream(21, LS_RANDOM_TEST);
    return low + (int64_t)ls_random_below(key, draw_count++, 0, (uint64_t)(high - low + 1));
}

/* -- matrices on the device -- */

/* A view into a block of the device, and the block as the host last wrote it. */
typedef struct matrix {
    ls_tensor view;
    void *device;
    uint8_t *image;
    size_t bytes;
    int64_t first; /* element of the block where the view begins */
} matrix;

/* What a view's neighbours hold: a NaN, which no result may take in. */
static void put_canaries(uint8_t *image, size_t bytes)
{
    memset(image, 0x7f, bytes);
    for (size_t i = 1; i < bytes; i += 2) {
        image[i - 1] = 0xc5;
    }
}

static void put(uint8_t *image, ls_dtype dtype, int64_t index, float value)
{
    const uint16_t half = ls_bf16_from_f32(value);
    memcpy(image + index * ls_dtype_bytes(dtype), dtype == LS_BF16 ? (void *)&half : (void *)&value,
           (size_t)ls_dtype_bytes(dtype));
}

static float get(const uint8_t *image, ls_dtype dtype, int64_t index)
{
    if (dtype == LS_BF16) {
        uint16_t half;
        memcpy(&half, image + index * 2, sizeof half);
        return ls_f32_from_bf16(half);
    }
    float value;
    memcpy(&value, image + index * 4, sizeof value);
    return value;
}

static void upload(ls_queue *queue, const matrix *m)
{
    assert_int_equal(ls_queue_move(queue, m->device, m->image, m->bytes), LS_OK);
    assert_int_equal(ls_queue_wait(queue), LS_OK);
}

/* grain: the view begins at a multiple of it, and so does each row. `value` fills it, NAN: random. */
static matrix matrix_create(ls_queue *queue, int64_t rows, int64_t cols, ls_dtype dtype, int64_t grain)
{
    const ls_random_key key = ls_random_stream(22, LS_RANDOM_TEST);
    const int64_t left = draw(0, 2) * grain, right = draw(0, 2) * grain;
    const int64_t stride = left + (cols + grain - 1) / grain * grain + right;
    matrix m = {.bytes = (size_t)((rows + 2) * stride * ls_dtype_bytes(dtype)), .first = stride + left};
    m.image = malloc(m.bytes);
    assert_non_null(m.image);
    assert_int_equal(ls_device_alloc(queue, m.bytes, &m.device), LS_OK);
    put_canaries(m.image, m.bytes);
    m.view = (ls_tensor){.dtype = dtype, .rows = rows, .cols = cols, .stride = stride};
    m.view.data = (char *)m.device + m.first * ls_dtype_bytes(dtype);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            put(m.image, dtype, m.first + r * stride + c, ls_random_normal(key, draw_count++, 0));
        }
    }
    upload(queue, &m);
    return m;
}

static void matrix_free(ls_queue *queue, matrix *m)
{
    ls_device_free(queue, m->device, m->bytes);
    free(m->image);
}

static double at_of(const matrix *m, int64_t row, int64_t col)
{
    return (double)get(m->image, m->view.dtype, m->first + row * m->view.stride + col);
}

static uint8_t *download(ls_queue *queue, const matrix *m)
{
    uint8_t *image = malloc(m->bytes);
    assert_non_null(image);
    assert_int_equal(ls_queue_move(queue, image, m->device, m->bytes), LS_OK);
    assert_int_equal(ls_queue_wait(queue), LS_OK);
    return image;
}

/* Everything outside the view is as it was. */
static void check_canaries(const matrix *m, const uint8_t *image)
{
    const int64_t size = ls_dtype_bytes(m->view.dtype), count = (int64_t)m->bytes / size;
    for (int64_t i = 0; i < count; i++) {
        const int64_t offset = i - m->first;
        const bool inside =
            offset >= 0 && offset / m->view.stride < m->view.rows && offset % m->view.stride < m->view.cols;
        if (!inside && memcmp(image + i * size, m->image + i * size, (size_t)size) != 0) {
            fail_msg("element %lld outside the view was written", (long long)offset);
        }
    }
}

/* -- a layer -- */

typedef struct layer_shape {
    int64_t n, in;
    int64_t segment[LS_LINEAR_SEGMENTS_MAX];
    uint32_t segment_count;
    ls_weight_layout layout;
    bool bias;
    int64_t grain;
} layer_shape;

typedef struct layer {
    ls_queue *queue;
    ls_linear linear;
    int64_t n, in, out, grain;
    ls_dtype dtype;
    double tolerance;
    int runs;
    matrix x, dy, weight, bias;
} layer;

static layer layer_create(ls_queue *queue, const layer_shape *shape, ls_dtype dtype, double tolerance)
{
    layer l = {.queue = queue,
               .n = shape->n,
               .in = shape->in,
               .grain = shape->grain,
               .dtype = dtype,
               .tolerance = tolerance,
               .runs = CUDA_RUNS};
    for (uint32_t s = 0; s < shape->segment_count; s++) {
        l.out += shape->segment[s];
    }
    const bool out_in = shape->layout == LS_WEIGHT_OUT_IN;
    l.x = matrix_create(queue, l.n, l.in, dtype, l.grain);
    l.dy = matrix_create(queue, l.n, l.out, dtype, l.grain);
    l.weight = matrix_create(queue, out_in ? l.out : l.in, out_in ? l.in : l.out, dtype, l.grain);
    l.bias = matrix_create(queue, 1, l.out, dtype, l.grain);
    l.linear = (ls_linear){.weight = l.weight.view,
                           .layout = shape->layout,
                           .forward_cut = 1,
                           .backward_input_cut = 1,
                           .segment_count = shape->segment_count};
    memcpy(l.linear.segment, shape->segment, sizeof shape->segment);
    if (shape->bias) {
        l.linear.bias = l.bias.view;
    }
    return l;
}

static void layer_free(layer *l)
{
    matrix_free(l->queue, &l->x);
    matrix_free(l->queue, &l->dy);
    matrix_free(l->queue, &l->weight);
    matrix_free(l->queue, &l->bias);
}

static double weight_at(const layer *l, int64_t out, int64_t in)
{
    return l->linear.layout == LS_WEIGHT_OUT_IN ? at_of(&l->weight, out, in) : at_of(&l->weight, in, out);
}

typedef enum pass { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD_BIAS } pass;

/* Element (row, col) of the pass's result in float64, without what was there before. */
static double reference(const layer *l, pass what, int64_t row, int64_t col)
{
    double sum = 0.0;
    switch (what) {
    case FORWARD:
        for (int64_t i = 0; i < l->in; i++) {
            sum += at_of(&l->x, row, i) * weight_at(l, col, i);
        }
        return sum + (l->linear.bias.data ? at_of(&l->bias, 0, col) : 0.0);
    case BACKWARD_INPUT:
        for (int64_t o = 0; o < l->out; o++) {
            sum += at_of(&l->dy, row, o) * weight_at(l, o, col);
        }
        return sum;
    case BACKWARD_WEIGHT: {
        const bool out_in = l->linear.layout == LS_WEIGHT_OUT_IN;
        for (int64_t n = 0; n < l->n; n++) {
            sum += at_of(&l->dy, n, out_in ? row : col) * at_of(&l->x, n, out_in ? col : row);
        }
        return sum;
    }
    case BACKWARD_BIAS:
        for (int64_t n = 0; n < l->n; n++) {
            sum += at_of(&l->dy, n, col);
        }
        return sum;
    }
    return sum;
}

static ls_status run(const layer *l, pass what, const matrix *to, bool accumulate)
{
    const ls_tensor absent = {0};
    switch (what) {
    case FORWARD:
        return ls_linear_forward(l->queue, &l->linear, &l->x.view, &to->view);
    case BACKWARD_INPUT:
        return ls_linear_backward_input(l->queue, &l->linear, &l->dy.view, &to->view, accumulate);
    case BACKWARD_WEIGHT:
        return ls_linear_backward_weight(l->queue, &l->linear, &l->x.view, &l->dy.view, &to->view, NULL,
                                         accumulate);
    case BACKWARD_BIAS:
        return ls_linear_backward_weight(l->queue, &l->linear, &l->x.view, &l->dy.view, &absent, &to->view,
                                         accumulate);
    }
    return LS_OK;
}

/* Runs a pass several times from the same start: all results are equal, and one is right. */
static void check_pass(const layer *l, pass what, bool accumulate)
{
    const bool is_weight = what == BACKWARD_WEIGHT, is_bias = what == BACKWARD_BIAS;
    const int64_t rows = is_weight ? l->weight.view.rows : is_bias ? 1 : l->n;
    const int64_t cols = is_weight ? l->weight.view.cols : what == BACKWARD_INPUT ? l->in : l->out;
    matrix to = matrix_create(l->queue, rows, cols, is_weight || is_bias ? LS_F32 : l->dtype, l->grain);
    uint8_t *first = NULL;
    for (int i = 0; i < l->runs; i++) {
        upload(l->queue, &to);
        assert_int_equal(run(l, what, &to, accumulate), LS_OK);
        uint8_t *image = download(l->queue, &to);
        if (!first) {
            first = image;
            continue;
        }
        if (memcmp(first, image, to.bytes) != 0) {
            fail_msg("run %d of pass %d has other bits", i, what);
        }
        free(image);
    }
    check_canaries(&to, first);
    double error = 0.0, norm = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            const double wanted = reference(l, what, r, c) + (accumulate ? at_of(&to, r, c) : 0.0);
            const double got = (double)get(first, to.view.dtype, to.first + r * to.view.stride + c);
            error += (got - wanted) * (got - wanted);
            norm += wanted * wanted;
        }
    }
    if (!(sqrt(error / norm) < l->tolerance)) {
        fail_msg("pass %d, n %lld, in %lld, out %lld%s: relative error %g", what, (long long)l->n,
                 (long long)l->in, (long long)l->out, accumulate ? ", accumulated" : "", sqrt(error / norm));
    }
    free(first);
    matrix_free(l->queue, &to);
}

static const layer_shape shapes[] = {
    {.n = 1, .in = 1, .segment = {1}, .segment_count = 1, .grain = 1},
    {.n = 37, .in = 40, .segment = {56}, .segment_count = 1, .bias = true, .grain = 8},
    {.n = 130, .in = 72, .segment = {24, 16, 16}, .segment_count = 3, .bias = true, .grain = 8},
    {.n = 64, .in = 33, .segment = {129}, .segment_count = 1, .grain = 8},
    {.n = 19, .in = 45, .segment = {31, 22}, .segment_count = 2, .bias = true, .grain = 1},
    {.n = 150, .in = 136, .segment = {264}, .segment_count = 1, .bias = true, .grain = 8},
};

static void check_shapes(ls_queue *queue, ls_dtype dtype, double tolerance)
{
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++) {
        layer_shape shape = shapes[i / 2];
        shape.layout = i % 2 ? LS_WEIGHT_OUT_IN : LS_WEIGHT_IN_OUT;
        layer l = layer_create(queue, &shape, dtype, tolerance);
        l.runs = i / 2 + 1 == sizeof shapes / sizeof shapes[0] ? RUNS_MAX : CUDA_RUNS;
        check_pass(&l, FORWARD, false);
        check_pass(&l, BACKWARD_INPUT, i % 4 < 2);
        check_pass(&l, BACKWARD_WEIGHT, false);
        check_pass(&l, BACKWARD_WEIGHT, true);
        check_pass(&l, BACKWARD_BIAS, i % 4 < 2);
        layer_free(&l);
    }
}

/* -- queues -- */

/* The tests' driver also has the functions of cuBLASLt (tests/compute/cuda_on_cpu/cublaslt.cpp). */
static bool is_on_cpu(void)
{
    const char *driver = getenv("LOCKSTEP_CUDA_DRIVER");
    return driver && strstr(driver, "cuda_on_cpu");
}

/* A queue whose products come from `products`: own or cublaslt. */
static ls_queue *open_queue(const char *products, bool tf32)
{
    assert_int_equal(setenv("LS_CUDA_PRODUCTS", products, 1), 0);
    ls_queue *queue = NULL;
    const ls_cuda_options options = {.tf32 = tf32};
    const ls_status status = ls_queue_create_cuda(&options, &queue);
    assert_int_equal(unsetenv("LS_CUDA_PRODUCTS"), 0);
    if (status == LS_ERR_UNSUPPORTED && strcmp(products, "cublaslt") == 0) {
        print_message("%s\n", ls_error_text());
        skip();
    }
    assert_int_equal(status, LS_OK);
    return queue;
}

static void linear_own_f32_matches_float64(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("own", false);
    check_shapes(queue, LS_F32, 1e-5);
    ls_queue_destroy(queue);
}

static void linear_own_bf16_matches_float64(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("own", false);
    check_shapes(queue, LS_BF16, 1e-2);
    ls_queue_destroy(queue);
}

static void linear_cublaslt_f32_matches_float64(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("cublaslt", false);
    check_shapes(queue, LS_F32, 1e-5);
    ls_queue_destroy(queue);
}

static void linear_cublaslt_tf32_matches_float64(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("cublaslt", true);
    /* Two operands cut to 11 bits each: 2^-11 on average, all to the same side. */
    check_shapes(queue, LS_F32, 1e-3);
    ls_queue_destroy(queue);
}

static void linear_cublaslt_bf16_matches_float64(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("cublaslt", false);
    check_shapes(queue, LS_BF16, 1e-2);
    ls_queue_destroy(queue);
}

/* A long inner dimension, which is cut into pieces and a rest. */
static void check_pieces(const char *products)
{
    ls_queue *queue = open_queue(products, false);
    for (int i = 0; i < 4; i++) {
        const layer_shape shape = {.n = 2500,
                                   .in = 17 + 7 * i,
                                   .segment = {24},
                                   .segment_count = 1,
                                   .grain = 8,
                                   .layout = i % 2 ? LS_WEIGHT_OUT_IN : LS_WEIGHT_IN_OUT};
        const layer_shape wide = {.n = 9 + i,
                                  .in = 2600,
                                  .segment = {21},
                                  .segment_count = 1,
                                  .grain = 8,
                                  .bias = true,
                                  .layout = shape.layout};
        layer l = layer_create(queue, &shape, i < 2 ? LS_F32 : LS_BF16, 1e-5);
        check_pass(&l, BACKWARD_WEIGHT, false);
        check_pass(&l, BACKWARD_WEIGHT, true);
        layer_free(&l);
        l = layer_create(queue, &wide, i < 2 ? LS_F32 : LS_BF16, i < 2 ? 1e-5 : 1e-2);
        check_pass(&l, FORWARD, false);
        layer_free(&l);
    }
    ls_queue_destroy(queue);
}

static void linear_own_pieces_match_float64(void **state)
{
    (void)state;
    check_pieces("own");
}

static void linear_cublaslt_pieces_match_float64(void **state)
{
    (void)state;
    check_pieces("cublaslt");
}

static void linear_cut_is_unsupported(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("own", false);
    const layer_shape shape = {.n = 4, .in = 8, .segment = {8}, .segment_count = 1, .grain = 8};
    layer l = layer_create(queue, &shape, LS_F32, 1e-5);
    matrix workspace = matrix_create(queue, 64, 64, LS_F32, 8);
    l.linear.workspace = ls_tensor_of(workspace.device, LS_F32, 64, 64);
    l.linear.forward_cut = 2;
    l.linear.backward_input_cut = 2;
    assert_int_equal(ls_linear_forward(queue, &l.linear, &l.x.view, &l.dy.view), LS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ls_error_text(), "train.tensor_cut is 2"));
    assert_int_equal(ls_linear_backward_input(queue, &l.linear, &l.dy.view, &l.x.view, false),
                     LS_ERR_UNSUPPORTED);
    matrix_free(queue, &workspace);
    layer_free(&l);
    ls_queue_destroy(queue);
}

/* -- our own kernels for capability 9.0 -- */

/* C = A B or C += A B of one shape, straight from compute/cuda/matmul.h. */
static void check_sm90(ls_queue *queue, int64_t m, int64_t n, int64_t k, int variant)
{
    const bool at = variant & 1, bt = variant & 2, is_f32 = variant & 4, accumulate = variant & 8;
    const int64_t grain = variant & 16 ? 1 : 8;
    matrix a = matrix_create(queue, at ? k : m, at ? m : k, LS_BF16, 8);
    matrix b = matrix_create(queue, bt ? n : k, bt ? k : n, LS_BF16, 8);
    matrix c = matrix_create(queue, m, n, is_f32 ? LS_F32 : LS_BF16, grain);
    matrix bias = matrix_create(queue, 1, n, is_f32 ? LS_F32 : LS_BF16, grain);
    const bool has_bias = !accumulate && k % 2;
    const ls_matmul product = {
        .m = m,
        .n = n,
        .k = k,
        .a = {a.view.data, a.view.stride, at},
        .b = {b.view.data, b.view.stride, bt},
        .dtype = LS_BF16,
        .c = c.view.data,
        .c_stride = c.view.stride,
        .c_dtype = c.view.dtype,
        .bias = has_bias ? bias.view.data : NULL,
        .accumulate = accumulate,
        .way = LS_MATMUL_OWN_SM90,
    };
    assert_int_equal(ls_cuda_matmul(ls_cuda_of(queue), &product), LS_OK);
    uint8_t *image = download(queue, &c);
    check_canaries(&c, image);
    double error = 0.0, norm = 0.0;
    for (int64_t row = 0; row < m; row++) {
        for (int64_t col = 0; col < n; col++) {
            double wanted = accumulate ? at_of(&c, row, col) : has_bias ? at_of(&bias, 0, col) : 0.0;
            for (int64_t i = 0; i < k; i++) {
                wanted += (at ? at_of(&a, i, row) : at_of(&a, row, i)) *
                          (bt ? at_of(&b, col, i) : at_of(&b, i, col));
            }
            const double got = (double)get(image, c.view.dtype, c.first + row * c.view.stride + col);
            error += (got - wanted) * (got - wanted);
            norm += wanted * wanted;
        }
    }
    if (!(sqrt(error / norm) < (is_f32 ? 1e-5 : 1e-2))) {
        fail_msg("m %lld, n %lld, k %lld, variant %d: relative error %g", (long long)m, (long long)n,
                 (long long)k, variant, sqrt(error / norm));
    }
    free(image);
    matrix_free(queue, &a);
    matrix_free(queue, &b);
    matrix_free(queue, &c);
    matrix_free(queue, &bias);
}

static void matmul_sm90_matches_float64(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("own", false);
    if (ls_cuda_of(queue)->capability != 90) {
        ls_queue_destroy(queue);
        skip();
    }
    for (int variant = 0; variant < 16; variant++) {
        check_sm90(queue, draw(1, 140), draw(1, 200), draw(1, 90), variant | (variant % 3 == 0 ? 16 : 0));
    }
    /* Whole tiles of C, more than one step for each stage, several tiles, and pieces. */
    for (int variant = 0; variant < 8; variant++) {
        check_sm90(queue, 128, 256, 72, variant);
    }
    check_sm90(queue, 150, 264, 400, 2);
    check_sm90(queue, 24, 40, 2500, 5);
    ls_queue_destroy(queue);
}

/* -- products of cuBLASLt -- */

static void matmul_class_names_the_library(void **state)
{
    (void)state;
    ls_queue *queue = open_queue("own", false);
    assert_non_null(strstr(ls_queue_determinism_class(queue), "own"));
    ls_queue_destroy(queue);
    queue = open_queue("cublaslt", false);
    assert_non_null(strstr(ls_queue_determinism_class(queue), "-lt1"));
    ls_queue_destroy(queue);
}

/* The digest names the algorithms, whatever the order of the products. */
static void matmul_digest_ignores_the_order(void **state)
{
    (void)state;
    uint64_t digest[2];
    for (int64_t turn = 0; turn < 2; turn++) {
        ls_queue *queue = open_queue("cublaslt", false);
        assert_int_equal(ls_cuda_matmuls_digest(ls_cuda_of(queue)), 0);
        for (int64_t i = 0; i < 40; i++) {
            const int64_t size = 8 * (turn ? 40 - i : i + 1);
            const layer_shape shape = {.n = 8, .in = size, .segment = {8}, .segment_count = 1, .grain = 8};
            draw_count = 1000 * (uint64_t)size;
            layer l = layer_create(queue, &shape, LS_BF16, 1e-2);
            assert_int_equal(ls_linear_backward_input(queue, &l.linear, &l.dy.view, &l.x.view, false), LS_OK);
            assert_int_equal(ls_linear_backward_input(queue, &l.linear, &l.dy.view, &l.x.view, false), LS_OK);
            assert_int_equal(ls_queue_wait(queue), LS_OK);
            layer_free(&l);
        }
        digest[turn] = ls_cuda_matmuls_digest(ls_cuda_of(queue));
        ls_queue_destroy(queue);
    }
    assert_true(digest[0] == digest[1] && digest[0] != 0);
}

/* Each call of the library fails once: the error names the product, and the next try succeeds. */
static void matmul_reports_each_failure(void **state)
{
    (void)state;
    if (!is_on_cpu()) {
        skip();
    }
    ls_queue *queue = open_queue("cublaslt", false);
    int failures = 0;
    for (;; failures++) {
        const layer_shape shape = {
            .n = 3 + failures, .in = 8, .segment = {8}, .segment_count = 1, .grain = 8, .bias = true};
        layer l = layer_create(queue, &shape, LS_BF16, 1e-2);
        char text[64];
        snprintf(text, sizeof text, "any:%d:13", failures + 1);
        assert_int_equal(setenv("LS_CUDA_FAIL", text, 1), 0);
        const ls_status status = ls_linear_forward(queue, &l.linear, &l.x.view, &l.dy.view);
        const bool has_failed = status != LS_OK;
        if (has_failed) {
            assert_non_null(strstr(ls_error_text(), "bf16 product ("));
        }
        assert_int_equal(unsetenv("LS_CUDA_FAIL"), 0);
        assert_int_equal(ls_linear_forward(queue, &l.linear, &l.x.view, &l.dy.view), LS_OK);
        assert_int_equal(ls_queue_wait(queue), LS_OK);
        layer_free(&l);
        if (!has_failed) {
            break;
        }
    }
    assert_true(failures >= 10);
    ls_queue_destroy(queue);
}

static void matmul_unknown_products_are_refused(void **state)
{
    (void)state;
    ls_queue *queue = NULL;
    const ls_cuda_options options = {0};
    assert_int_equal(setenv("LS_CUDA_PRODUCTS", "fast", 1), 0);
    assert_int_equal(ls_queue_create_cuda(&options, &queue), LS_ERR_INVALID);
    assert_null(queue);
    assert_int_equal(unsetenv("LS_CUDA_PRODUCTS"), 0);
}

int main(void)
{
    if (is_on_cpu() && !getenv("LOCKSTEP_CUBLASLT")) {
        setenv("LOCKSTEP_CUBLASLT", getenv("LOCKSTEP_CUDA_DRIVER"), 1);
    }
    ls_queue *queue = NULL;
    if (ls_queue_create_cuda(&(ls_cuda_options){.device = 0}, &queue) == LS_ERR_DEVICE) {
        print_message("skipped: %s\n", ls_error_text());
        return 77;
    }
    ls_queue_destroy(queue);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_own_f32_matches_float64),
        cmocka_unit_test(linear_own_bf16_matches_float64),
        cmocka_unit_test(linear_cublaslt_f32_matches_float64),
        cmocka_unit_test(linear_cublaslt_tf32_matches_float64),
        cmocka_unit_test(linear_cublaslt_bf16_matches_float64),
        cmocka_unit_test(linear_own_pieces_match_float64),
        cmocka_unit_test(linear_cublaslt_pieces_match_float64),
        cmocka_unit_test(linear_cut_is_unsupported),
        cmocka_unit_test(matmul_sm90_matches_float64),
        cmocka_unit_test(matmul_class_names_the_library),
        cmocka_unit_test(matmul_digest_ignores_the_order),
        cmocka_unit_test(matmul_reports_each_failure),
        cmocka_unit_test(matmul_unknown_products_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
