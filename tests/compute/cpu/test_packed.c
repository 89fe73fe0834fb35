// SPDX-License-Identifier: Apache-2.0
/*
 * Packed weights: the formats against their definitions, and the promise about products: the same
 * bits as with the unpacked float32 weight, on every instruction set, for any shape, cut, layout
 * and thread count.
 */
#include "test.h"

#include "base/half.h"
#include "base/random.h"
#include "compute/kernels/linear.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t draw_count;

static int64_t draw(int64_t low, int64_t high)
{
    const ls_random_key key = ls_random_stream(27, LS_RANDOM_TEST);
    return low + (int64_t)ls_random_below(key, draw_count++, 0, (uint64_t)(high - low + 1));
}

static ls_tensor tensor_create(int64_t rows, int64_t cols)
{
    const ls_random_key key = ls_random_stream(28, LS_RANDOM_TEST);
    const int64_t stride = cols + draw(0, 5);
    float *values = malloc((size_t)(rows * stride) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < rows * stride; i++) {
        values[i] = ls_random_normal(key, draw_count++, 0);
    }
    ls_tensor t = ls_tensor_f32(values, rows, cols);
    t.stride = stride;
    return t;
}

static ls_packed packed_create(ls_packed_kind kind, int64_t rows, int64_t cols)
{
    const size_t bytes = (size_t)ls_packed_bytes(kind, rows, cols);
    void *memory = aligned_alloc(64, bytes);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes);
    return ls_packed_of(kind, rows, cols, memory);
}

static ls_packed packed_from(ls_packed_kind kind, const ls_tensor *weight, ls_weight_layout layout)
{
    const bool out_in = layout == LS_WEIGHT_OUT_IN;
    ls_packed packed =
        packed_create(kind, out_in ? weight->rows : weight->cols, out_in ? weight->cols : weight->rows);
    assert_int_equal(ls_packed_pack(&packed, weight, layout), LS_OK);
    return packed;
}

/* -- formats -- */

static void packed_bf16_is_the_nearest_bfloat16(void **state)
{
    (void)state;
    const ls_tensor w = tensor_create(37, 53);
    ls_packed p = packed_from(LS_PACKED_BF16, &w, LS_WEIGHT_OUT_IN);
    for (int64_t r = 0; r < w.rows; r++) {
        for (int64_t c = 0; c < w.cols; c++) {
            const float want = ls_f32_from_bf16(ls_bf16_from_f32(ls_tensor_row(&w, r)[c]));
            assert_true(ls_packed_value(&p, r, c) == want);
        }
    }
    free(p.codes);
    free(w.data);
}

/* Every weight within half a step of its row's scale; the largest exactly. */
static void packed_int8_rounds_to_the_nearest_step_of_its_row(void **state)
{
    (void)state;
    const ls_tensor w = tensor_create(33, 131);
    ls_packed p = packed_from(LS_PACKED_INT8, &w, LS_WEIGHT_OUT_IN);
    for (int64_t r = 0; r < w.rows; r++) {
        double largest = 0.0;
        for (int64_t c = 0; c < w.cols; c++) {
            largest = fmax(largest, fabs((double)ls_tensor_row(&w, r)[c]));
        }
        assert_true((double)p.scales[r] == largest);
        for (int64_t c = 0; c < w.cols; c++) {
            const double value = (double)ls_tensor_row(&w, r)[c];
            const double error = fabs((double)ls_packed_value(&p, r, c) - value);
            assert_true(error <= largest / 254.0 * (1.0 + 1e-5));
        }
    }
    free(p.codes);
    free(w.data);
}

/* All 256 codes of a row whose scale is 127: the code is the value. */
static void packed_int8_holds_every_code(void **state)
{
    (void)state;
    float values[255];
    for (int i = 0; i < 255; i++) {
        values[i] = (float)(i - 127);
    }
    const ls_tensor w = ls_tensor_f32(values, 1, 255);
    ls_packed p = packed_from(LS_PACKED_INT8, &w, LS_WEIGHT_OUT_IN);
    for (int i = 0; i < 255; i++) {
        assert_int_equal((int8_t)p.codes[i * LS_PACKED_GROUP], i - 127);
        assert_true(ls_packed_value(&p, 0, i) == values[i] * 127.0f * (1.0f / 127.0f));
    }
    free(p.codes);
}

/* The index of the level nearest to x, in float64; -1 where two are as near as rounding decides. */
static int nearest(const float *levels, int count, double x)
{
    int best = 0;
    double second = INFINITY;
    for (int i = 1; i < count; i++) {
        const double distance = fabs(x - (double)levels[i]), so_far = fabs(x - (double)levels[best]);
        second = fmin(second, fmax(distance, so_far));
        best = distance < so_far ? i : best;
    }
    return second - fabs(x - (double)levels[best]) < 1e-6 ? -1 : best;
}

/* The format in float64: scale of each block, its nested code, the codes. */
static void check_nf4(const ls_tensor *w)
{
    ls_packed p = packed_from(LS_PACKED_NF4, w, LS_WEIGHT_OUT_IN);
    const int64_t total = w->rows * w->cols, blocks = (total + 63) / 64;
    double *scale = calloc((size_t)blocks, sizeof *scale), mean = 0.0;
    assert_non_null(scale);
    for (int64_t i = 0; i < total; i++) {
        const double size = fabs((double)ls_tensor_row(w, i / w->cols)[i % w->cols]);
        scale[i / 64] = fmax(scale[i / 64], size);
    }
    for (int64_t b = 0; b < blocks; b++) {
        mean += scale[b] / (double)blocks;
    }
    assert_float_equal(p.mean[0], (float)mean, 1e-6 * mean);
    for (int64_t b = 0; b < blocks; b++) {
        double largest = 0.0;
        for (int64_t i = b / 256 * 256; i < blocks && i < b / 256 * 256 + 256; i++) {
            largest = fmax(largest, fabs(scale[i] - (double)p.mean[0]));
        }
        const int code =
            nearest(ls_nf4_scale_levels, 256, (scale[b] - (double)p.mean[0]) / fmax(largest, 1e-38));
        if (code >= 0) {
            assert_int_equal(p.scale_codes[b], code);
        }
    }
    for (int64_t i = 0; i < total; i++) {
        const double value = (double)ls_tensor_row(w, i / w->cols)[i % w->cols];
        const int code = nearest(ls_nf4_levels, 16, value / scale[i / 64]);
        const float got = ls_packed_value(&p, i / w->cols, i % w->cols);
        if (code >= 0) {
            assert_true(got == ls_nf4_levels[code] * ls_packed_scale(&p, i / 64));
        }
    }
    free(scale);
    free(p.codes);
}

static void packed_nf4_is_its_definition(void **state)
{
    (void)state;
    /* Whole blocks; rows that are no multiple of a block; odd rows; a short block; many nested. */
    static const int64_t shapes[][2] = {{64, 64}, {48, 96}, {17, 33}, {1, 5}, {3, 128}, {300, 200}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const ls_tensor w = tensor_create(shapes[i][0], shapes[i][1]);
        check_nf4(&w);
        free(w.data);
    }
}

/* A block that holds the 16 levels: every code is met, and every value comes back. */
static void packed_nf4_holds_every_code(void **state)
{
    (void)state;
    float values[64];
    for (int i = 0; i < 64; i++) {
        values[i] = ls_nf4_levels[i % 16] * 0.5f;
    }
    const ls_tensor w = ls_tensor_f32(values, 1, 64);
    ls_packed p = packed_from(LS_PACKED_NF4, &w, LS_WEIGHT_OUT_IN);
    assert_true(p.mean[0] == 0.5f && p.scales[0] == 0.0f);
    for (int i = 0; i < 64; i += 2) {
        assert_int_equal(p.codes[i / 2 * LS_PACKED_GROUP], i % 16 | (i + 1) % 16 << 4);
        assert_true(ls_packed_value(&p, 0, i) == values[i]);
    }
    free(p.codes);
}

/* The table is that of create_dynamic_map: for each of 7 decades, the middles of 2^i equal parts of
 * [0.1, 1], with both signs; zero; and one. */
static void packed_scale_levels_are_the_dynamic_map(void **state)
{
    (void)state;
    static const float decade[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int at = 128;
    assert_true(ls_nf4_scale_levels[127] == 0.0f);
    for (int i = 0; i < 7; i++) {
        const int parts = 1 << i;
        const float step = (1.0f - 0.1f) / (float)parts;
        for (int j = 0; j < parts; j++) {
            float edge[2];
            for (int e = 0; e < 2; e++) {
                const bool low = j + e < (parts + 1) / 2;
                edge[e] = low ? fmaf(step, (float)(j + e), 0.1f) : fmaf(-step, (float)(parts - j - e), 1.0f);
            }
            const float level = decade[i] * ((edge[0] + edge[1]) / 2.0f);
            assert_true(ls_nf4_scale_levels[at] == level);
            assert_true(ls_nf4_scale_levels[254 - at] == -level);
            at++;
        }
    }
    assert_int_equal(at, 255);
    assert_true(ls_nf4_scale_levels[255] == 1.0f);
}

static void packed_zeros_and_denormals_are_held(void **state)
{
    (void)state;
    float values[4 * 64] = {0};
    for (int i = 64; i < 192; i++) {
        values[i] = (float)(i - 128) * FLT_MIN / 1024.0f;
    }
    values[200] = 1.0f;
    const ls_tensor w = ls_tensor_f32(values, 4, 64);
    for (int kind = LS_PACKED_BF16; kind < LS_PACKED_KINDS; kind++) {
        ls_packed p = packed_from((ls_packed_kind)kind, &w, LS_WEIGHT_OUT_IN);
        for (int i = 0; i < 4 * 64; i++) {
            const float got = ls_packed_value(&p, i / 64, i % 64);
            assert_true(fabsf(got - values[i]) <= (kind == LS_PACKED_NF4 ? 1e-3f : FLT_MIN));
        }
        free(p.codes);
    }
}

static void packed_refuses_what_is_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int kind = LS_PACKED_BF16; kind < LS_PACKED_KINDS; kind++) {
        for (int i = 0; i < 3; i++) {
            const ls_tensor w = tensor_create(9, 70);
            ls_tensor_row(&w, 3)[61] = bad[i];
            ls_packed p = packed_create((ls_packed_kind)kind, 9, 70);
            assert_int_equal(ls_packed_pack(&p, &w, LS_WEIGHT_OUT_IN), LS_ERR_DATA);
            assert_non_null(strstr(ls_error_text(), "row 3, column 61"));
            ls_packed turned = packed_create((ls_packed_kind)kind, 70, 9);
            assert_int_equal(ls_packed_pack(&turned, &w, LS_WEIGHT_IN_OUT), LS_ERR_DATA);
            assert_non_null(strstr(ls_error_text(), "row 3, column 61"));
            free(turned.codes);
            free(p.codes);
            free(w.data);
        }
    }
    const ls_tensor w = tensor_create(1, 1);
    *(float *)w.data = FLT_MAX;
    ls_packed p = packed_create(LS_PACKED_BF16, 1, 1);
    assert_int_equal(ls_packed_pack(&p, &w, LS_WEIGHT_OUT_IN), LS_ERR_DATA);
    free(p.codes);
    free(w.data);
}

/* A transposed file gives the same memory, to the last byte of padding. */
static void packed_layouts_give_the_same_memory(void **state)
{
    (void)state;
    for (int kind = LS_PACKED_BF16; kind < LS_PACKED_KINDS; kind++) {
        const ls_tensor w = tensor_create(19, 77), turned = tensor_create(77, 19),
                        back = tensor_create(77, 19);
        for (int64_t r = 0; r < 19; r++) {
            for (int64_t c = 0; c < 77; c++) {
                ls_tensor_row(&turned, c)[r] = ls_tensor_row(&w, r)[c];
            }
        }
        ls_packed a = packed_from((ls_packed_kind)kind, &w, LS_WEIGHT_OUT_IN);
        ls_packed b = packed_from((ls_packed_kind)kind, &turned, LS_WEIGHT_IN_OUT);
        assert_memory_equal(a.codes, b.codes, (size_t)ls_packed_bytes((ls_packed_kind)kind, 19, 77));
        ls_packed_unpack(&a, LS_WEIGHT_IN_OUT, &back);
        for (int64_t r = 0; r < 19; r++) {
            for (int64_t c = 0; c < 77; c++) {
                assert_true(ls_tensor_row(&back, c)[r] == ls_packed_value(&b, r, c));
            }
        }
        free(a.codes);
        free(b.codes);
        free(w.data);
        free(turned.data);
        free(back.data);
    }
}

/* Codes and scales as a file has them, unaligned, and back. */
static void packed_take_keeps_every_bit(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{64, 128}, {300, 200}, {19, 33}};
    for (int i = 0; i < 6; i++) {
        const bool nf4 = i % 2 == 0;
        const int64_t rows = shapes[i / 2][0], cols = shapes[i / 2][1], blocks = (rows * cols + 63) / 64;
        const ls_tensor w = tensor_create(rows, cols);
        const ls_packed_kind kind = nf4 ? LS_PACKED_NF4 : LS_PACKED_INT8;
        ls_packed want = packed_from(kind, &w, LS_WEIGHT_OUT_IN), got = packed_create(kind, rows, cols);
        uint8_t *codes = calloc((size_t)(rows * cols), 1);
        char *scales = malloc((size_t)blocks * sizeof(float) + (size_t)rows * sizeof(float) + 1);
        assert_true(codes && scales);
        memcpy(scales + 1, want.scales, (size_t)(nf4 ? (blocks + 255) / 256 : rows) * sizeof(float));
        for (int64_t at = 0; at < rows * cols; at++) {
            const int64_t row = at / cols, col = at % cols, group = row / 16;
            const int64_t columns = nf4 ? (cols + 1) / 2 : cols;
            const uint8_t byte = want.codes[(group * columns + (nf4 ? col / 2 : col)) * 16 + row % 16];
            const int code = col % 2 ? byte >> 4 : byte & 15;
            codes[nf4 ? at / 2 : at] |= nf4 ? (uint8_t)(at % 2 ? code : code << 4) : byte;
        }
        const ls_bnb_matrix file = {.nf4 = nf4,
                                    .rows = rows,
                                    .cols = cols,
                                    .codes = codes,
                                    .scales = scales + 1,
                                    .scale_codes = nf4 ? want.scale_codes : NULL,
                                    .mean = nf4 ? want.mean[0] : 0.0f,
                                    .lowest = -1.0f};
        if (nf4) {
            want.mean[1] = -1.0f;
        }
        ls_packed_take(&got, &file);
        assert_memory_equal(got.codes, want.codes, (size_t)ls_packed_bytes(kind, rows, cols));
        ls_bnb_values(&file, w.data);
        for (int64_t at = 0; at < rows * cols; at++) {
            assert_true(((float *)w.data)[at] == ls_packed_value(&got, at / cols, at % cols));
        }
        free(codes);
        free(scales);
        free(want.codes);
        free(got.codes);
        free(w.data);
    }
}

static void packed_bytes_are_few(void **state)
{
    (void)state;
    const double floats = 1024.0 * 1024.0 * 4.0;
    assert_true((double)ls_packed_bytes(LS_PACKED_NF4, 1024, 1024) <= 0.13 * floats);
    assert_true((double)ls_packed_bytes(LS_PACKED_INT8, 1024, 1024) <= 0.252 * floats);
    assert_true((double)ls_packed_bytes(LS_PACKED_BF16, 1024, 1024) <= 0.5 * floats);
}

/* -- products -- */

static const char *const isas[] = {"generic", "avx2", "avx512"};
enum { ISA_COUNT = sizeof isas / sizeof isas[0] };

/* Creates a queue on one instruction set; NULL if this processor or build lacks it. */
static ls_queue *queue_create(const char *isa, uint32_t threads)
{
    ls_queue *queue = NULL;
    setenv("LS_ISA", isa, 1);
    const ls_status status = ls_queue_create_cpu(threads, &queue);
    unsetenv("LS_ISA");
    if (status == LS_ERR_UNSUPPORTED) {
        return NULL;
    }
    assert_int_equal(status, LS_OK);
    return queue;
}

typedef struct layer_shape {
    int64_t n, in;
    int64_t part[LS_LINEAR_SEGMENTS_MAX];
    uint32_t parts, forward_cut, backward_cut;
    ls_weight_layout layout;
} layer_shape;

/* A layer twice: packed, and with the unpacked float32 weight. */
typedef struct layer {
    ls_linear packed, plain;
    ls_packed part[LS_LINEAR_SEGMENTS_MAX];
    int64_t n, in, out;
    ls_tensor weight, bias, x, dy, workspace;
} layer;

static layer layer_create(ls_packed_kind kind, const layer_shape *s)
{
    layer l = {.n = s->n, .in = s->in};
    for (uint32_t i = 0; i < s->parts; i++) {
        l.out += s->part[i];
    }
    const bool out_in = s->layout == LS_WEIGHT_OUT_IN;
    l.weight = tensor_create(out_in ? l.out : l.in, out_in ? l.in : l.out);
    l.bias = tensor_create(1, l.out);
    l.x = tensor_create(l.n, l.in);
    l.dy = tensor_create(l.n, l.out);
    int64_t first = 0;
    for (uint32_t i = 0; i < s->parts; first += s->part[i++]) {
        const ls_tensor view = out_in ? ls_tensor_rows(l.weight, first, s->part[i])
                                      : ls_tensor_columns(l.weight, first, s->part[i]);
        l.part[i] = packed_from(kind, &view, s->layout);
        ls_packed_unpack(&l.part[i], s->layout, &view);
    }
    const int64_t floats = ls_linear_workspace_floats(l.n, l.in, l.out, s->forward_cut, s->backward_cut);
    l.workspace = tensor_create(1, floats + 1);
    l.plain = (ls_linear){.weight = l.weight,
                          .bias = l.bias,
                          .layout = s->layout,
                          .forward_cut = s->forward_cut,
                          .backward_input_cut = s->backward_cut,
                          .segment_count = s->parts,
                          .workspace = l.workspace};
    memcpy(l.plain.segment, s->part, sizeof s->part);
    l.packed = l.plain;
    l.packed.weight.data = NULL;
    l.packed.packed_count = s->parts;
    return l;
}

static void layer_free(layer *l)
{
    for (uint32_t i = 0; i < l->packed.packed_count; i++) {
        free(l->part[i].codes);
    }
    free(l->weight.data);
    free(l->bias.data);
    free(l->x.data);
    free(l->dy.data);
    free(l->workspace.data);
}

static void assert_same_bits(const ls_tensor *got, const ls_tensor *want)
{
    for (int64_t r = 0; r < want->rows; r++) {
        if (memcmp(ls_tensor_row(got, r), ls_tensor_row(want, r), (size_t)want->cols * sizeof(float)) != 0) {
            fail_msg("row %lld of (%lld, %lld) differs", (long long)r, (long long)want->rows,
                     (long long)want->cols);
        }
    }
}

static void check_products(ls_packed_kind kind, const layer_shape *shape, uint32_t threads)
{
    layer l = layer_create(kind, shape);
    l.packed.packed = l.part;
    const ls_tensor y = tensor_create(l.n, l.out), want_y = tensor_create(l.n, l.out);
    const ls_tensor dx = tensor_create(l.n, l.in), want_dx = tensor_create(l.n, l.in);
    ls_queue *plain = queue_create("", 1);
    assert_int_equal(ls_linear_forward(plain, &l.plain, &l.x, &want_y), LS_OK);
    assert_int_equal(ls_linear_backward_input(plain, &l.plain, &l.dy, &want_dx, false), LS_OK);
    ls_queue_destroy(plain);
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        ls_queue *queue = queue_create(isas[isa], threads);
        if (!queue) {
            continue;
        }
        assert_int_equal(ls_linear_forward(queue, &l.packed, &l.x, &y), LS_OK);
        assert_same_bits(&y, &want_y);
        assert_int_equal(ls_linear_backward_input(queue, &l.packed, &l.dy, &dx, false), LS_OK);
        assert_same_bits(&dx, &want_dx);
        ls_queue_destroy(queue);
    }
    free(y.data);
    free(want_y.data);
    free(dx.data);
    free(want_dx.data);
    layer_free(&l);
}

static void check_kinds(const layer_shape *shape, uint32_t threads)
{
    for (int kind = LS_PACKED_BF16; kind < LS_PACKED_KINDS; kind++) {
        check_products((ls_packed_kind)kind, shape, threads);
    }
}

static void packed_products_have_the_bits_of_float32(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        layer_shape shape = {.n = draw(1, 20),
                             .in = draw(1, 130),
                             .parts = (uint32_t)draw(1, 3),
                             .forward_cut = 1,
                             .backward_cut = 1,
                             .layout = i % 2 ? LS_WEIGHT_IN_OUT : LS_WEIGHT_OUT_IN};
        for (uint32_t part = 0; part < shape.parts; part++) {
            shape.part[part] = draw(1, 70);
        }
        check_kinds(&shape, 1 + (uint32_t)(i % 3));
    }
}

/* Shapes of models: whole groups and blocks, several blocks of the inner dimension. */
static void packed_products_have_the_bits_of_float32_in_whole_groups(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 9; n++) {
        const layer_shape shape = {.n = n,
                                   .in = 64 * draw(1, 13),
                                   .part = {192, 64, 64},
                                   .parts = 3,
                                   .forward_cut = 1,
                                   .backward_cut = 1};
        check_kinds(&shape, 2);
    }
}

static void packed_products_have_the_bits_of_float32_when_cut(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const layer_shape shape = {.n = draw(1, 30),
                                   .in = 6 * draw(1, 90),
                                   .part = {4 * draw(1, 20), 4 * draw(1, 20)},
                                   .parts = 2,
                                   .forward_cut = i % 2 ? 2 : 6,
                                   .backward_cut = 4,
                                   .layout = i % 2 ? LS_WEIGHT_IN_OUT : LS_WEIGHT_OUT_IN};
        check_kinds(&shape, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_bf16_is_the_nearest_bfloat16),
        cmocka_unit_test(packed_int8_rounds_to_the_nearest_step_of_its_row),
        cmocka_unit_test(packed_int8_holds_every_code),
        cmocka_unit_test(packed_nf4_is_its_definition),
        cmocka_unit_test(packed_nf4_holds_every_code),
        cmocka_unit_test(packed_scale_levels_are_the_dynamic_map),
        cmocka_unit_test(packed_zeros_and_denormals_are_held),
        cmocka_unit_test(packed_refuses_what_is_not_finite),
        cmocka_unit_test(packed_layouts_give_the_same_memory),
        cmocka_unit_test(packed_take_keeps_every_bit),
        cmocka_unit_test(packed_bytes_are_few),
        cmocka_unit_test(packed_products_have_the_bits_of_float32),
        cmocka_unit_test(packed_products_have_the_bits_of_float32_in_whole_groups),
        cmocka_unit_test(packed_products_have_the_bits_of_float32_when_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
