// SPDX-License-Identifier: Apache-2.0
/*
 * The matrix product's promise: an element's bits follow from its row, its column and the ranges
 * alone.
 *
 * The reference is the definition itself, written out with fmaf: blocks of 384, chains from zero,
 * block sums in order, bias last. Every instruction set, thread count and sub-matrix must agree
 * with it bit for bit.
 */
#include "test.h"

#include "base/random.h"
#include "compute/cpu/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFINED_BLOCK = 384 };

static const float canary = -777.0f;

static uint64_t draw_count;

static int64_t draw(int64_t low, int64_t high)
{
    const ls_random_key key = ls_random_stream(17, LS_RANDOM_TEST);
    return low + (int64_t)ls_random_below(key, draw_count++, 0, (uint64_t)(high - low + 1));
}

static float *floats_create(int64_t count)
{
    const ls_random_key key = ls_random_stream(18, LS_RANDOM_TEST);
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = ls_random_normal(key, draw_count++, 0);
    }
    return values;
}

/* A product with its own memory; `start` is what C held before. */
typedef struct fixture {
    ls_gemm gemm;
    float *a, *b, *bias, *start;
    int64_t c_floats;
} fixture;

static ls_gemm_operand operand_create(int64_t rows, int64_t columns, float **memory_out)
{
    const bool transposed = draw(0, 1);
    const int64_t stride = (transposed ? rows : columns) + draw(0, 20);
    *memory_out = floats_create((transposed ? columns : rows) * stride);
    return (ls_gemm_operand){.data = *memory_out, .stride = stride, .transposed = transposed};
}

static fixture fixture_create(int64_t m, int64_t n, int64_t k, uint32_t ranges)
{
    fixture f = {.gemm = {.m = m, .n = n, .range_count = ranges}};
    ls_gemm *g = &f.gemm;
    int64_t first = 0;
    for (uint32_t i = 0; i < ranges; i++) {
        g->range[i] = (ls_gemm_range){.first = first, .count = draw(1, k)};
        first += g->range[i].count + draw(0, 3);
    }
    g->a = operand_create(m, first, &f.a);
    g->b = operand_create(first, n, &f.b);
    g->c_stride = n + draw(0, 20);
    f.c_floats = m * g->c_stride;
    f.start = floats_create(f.c_floats);
    for (int64_t i = 0; i < f.c_floats; i++) {
        if (i % g->c_stride >= n) {
            f.start[i] = canary;
        }
    }
    f.bias = floats_create(n);
    g->bias = draw(0, 1) ? f.bias : NULL;
    g->accumulate = draw(0, 1);
    return f;
}

static void fixture_free(fixture *f)
{
    free(f->a);
    free(f->b);
    free(f->bias);
    free(f->start);
}

static float element(const ls_gemm_operand *operand, int64_t row, int64_t column)
{
    return operand->transposed ? operand->data[column * operand->stride + row]
                               : operand->data[row * operand->stride + column];
}

/* One element by the definition. */
static float defined_value(const ls_gemm *g, float before, int64_t row, int64_t column)
{
    float value = before;
    bool add = g->accumulate;
    for (uint32_t i = 0; i < g->range_count; i++) {
        const int64_t end = g->range[i].first + g->range[i].count;
        for (int64_t first = g->range[i].first; first < end; first += DEFINED_BLOCK) {
            float sum = 0.0f;
            for (int64_t k = first; k < end && k < first + DEFINED_BLOCK; k++) {
                sum = fmaf(element(&g->a, row, k), element(&g->b, k, column), sum);
            }
            value = add ? value + sum : sum;
            add = true;
        }
    }
    return g->bias ? value + g->bias[column] : value;
}

static float *defined_result(const fixture *f)
{
    float *c = malloc((size_t)f->c_floats * sizeof *c);
    assert_non_null(c);
    memcpy(c, f->start, (size_t)f->c_floats * sizeof *c);
    for (int64_t row = 0; row < f->gemm.m; row++) {
        for (int64_t column = 0; column < f->gemm.n; column++) {
            float *value = &c[row * f->gemm.c_stride + column];
            *value = defined_value(&f->gemm, *value, row, column);
        }
    }
    return c;
}

/* Creates a queue on one instruction set; NULL when this processor or build lacks it. */
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

static float *computed_result(const fixture *f, ls_queue *queue)
{
    float *c = malloc((size_t)f->c_floats * sizeof *c);
    assert_non_null(c);
    memcpy(c, f->start, (size_t)f->c_floats * sizeof *c);
    ls_gemm gemm = f->gemm;
    gemm.c = c;
    assert_int_equal(ls_gemm_run(queue, &gemm), LS_OK);
    return c;
}

static void assert_same_bits(const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0) {
            fail_msg("element %lld: got %a, want %a", (long long)i, (double)got[i], (double)want[i]);
        }
    }
}

static const char *const isas[] = {"generic", "avx2", "avx512"};
enum { ISA_COUNT = sizeof isas / sizeof isas[0] };

static void check_every_isa(const fixture *f, uint32_t threads_max)
{
    float *want = defined_result(f);
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        for (uint32_t threads = 1; threads <= threads_max; threads++) {
            ls_queue *queue = queue_create(isas[isa], threads);
            if (!queue) {
                continue;
            }
            float *got = computed_result(f, queue);
            assert_same_bits(got, want, f->c_floats);
            free(got);
            ls_queue_destroy(queue);
        }
    }
    free(want);
}

static void gemm_is_its_definition_on_every_instruction_set(void **state)
{
    (void)state;
    for (int i = 0; i < 80; i++) {
        const int64_t largest = i < 60 ? 60 : 130;
        fixture f = fixture_create(draw(1, largest), draw(1, largest), draw(1, 50), (uint32_t)draw(1, 3));
        check_every_isa(&f, 1);
        fixture_free(&f);
    }
}

static void gemm_is_its_definition_beyond_one_block(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        fixture f = fixture_create(draw(1, 40), draw(1, 60), 1000, (uint32_t)draw(1, 3));
        check_every_isa(&f, 1);
        fixture_free(&f);
    }
}

/* Every width and height up to two micro tiles: all edges of all instruction sets. */
static void gemm_is_its_definition_at_every_edge(void **state)
{
    (void)state;
    for (int64_t m = 1; m <= 17; m += 2) {
        for (int64_t n = 1; n <= 100; n += 3) {
            fixture f = fixture_create(m + n % 2, n, 20, 1);
            check_every_isa(&f, 1);
            fixture_free(&f);
        }
    }
}

/* Few rows against a transposed B, as in generation: blocks that are whole, and blocks that end in
 * the middle of a vector, where A must not be read any further. */
static void gemm_is_its_definition_with_few_rows(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 15, 16, 17, 384, 390, 768};
    for (int64_t m = 1; m <= 9; m++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            fixture f = {0};
            do {
                fixture_free(&f);
                f = fixture_create(m, draw(1, 70), 800, 1);
            } while (f.gemm.a.transposed || !f.gemm.b.transposed || f.gemm.range[0].count < counts[i]);
            f.gemm.range[0].count = counts[i];
            for (int64_t row = 0; row < m; row++) {
                for (int64_t k = counts[i]; k < f.gemm.a.stride; k++) {
                    f.a[row * f.gemm.a.stride + k] = NAN;
                }
            }
            check_every_isa(&f, 2);
            fixture_free(&f);
        }
    }
}

static void gemm_gives_the_same_bits_for_any_thread_count(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        fixture f = fixture_create(draw(1, 700), draw(1, 500), 40, 1);
        check_every_isa(&f, 4);
        fixture_free(&f);
    }
}

/* What decides about exactness when ranks share a batch: half of the rows alone, or one row, same
 * bits. */
static void gemm_gives_the_same_bits_for_part_of_the_rows_and_columns(void **state)
{
    (void)state;
    ls_queue *queue = queue_create("", 2);
    for (int i = 0; i < 10; i++) {
        fixture f = fixture_create(draw(2, 600), draw(2, 400), 800, 1);
        float *whole = computed_result(&f, queue);
        fixture part = f;
        const int64_t row = draw(0, f.gemm.m - 1), column = draw(0, f.gemm.n - 1);
        part.gemm.m = draw(1, f.gemm.m - row);
        part.gemm.n = draw(1, f.gemm.n - column);
        part.gemm.a.data += f.gemm.a.transposed ? row : row * f.gemm.a.stride;
        part.gemm.b.data += f.gemm.b.transposed ? column * f.gemm.b.stride : column;
        part.gemm.bias = f.gemm.bias ? f.gemm.bias + column : NULL;
        const int64_t offset = row * f.gemm.c_stride + column;
        part.start = f.start + offset;
        part.c_floats = (part.gemm.m - 1) * f.gemm.c_stride + part.gemm.n;
        float *got = computed_result(&part, queue);
        for (int64_t r = 0; r < part.gemm.m; r++) {
            assert_same_bits(got + r * f.gemm.c_stride, whole + offset + r * f.gemm.c_stride, part.gemm.n);
        }
        free(got);
        free(whole);
        fixture_free(&f);
    }
    ls_queue_destroy(queue);
}

static void queue_gemm_peak_flops_never_falls(void **state)
{
    (void)state;
    ls_queue *queue = queue_create("", 1);
    const double first = ls_queue_gemm_peak_flops(queue, LS_F32);
    assert_true(first > 1e6 && first < 1e15);
    assert_true(ls_queue_gemm_peak_flops(queue, LS_F32) >= first);
    ls_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_is_its_definition_on_every_instruction_set),
        cmocka_unit_test(gemm_is_its_definition_beyond_one_block),
        cmocka_unit_test(gemm_is_its_definition_at_every_edge),
        cmocka_unit_test(gemm_is_its_definition_with_few_rows),
        cmocka_unit_test(gemm_gives_the_same_bits_for_any_thread_count),
        cmocka_unit_test(gemm_gives_the_same_bits_for_part_of_the_rows_and_columns),
        cmocka_unit_test(queue_gemm_peak_flops_never_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
