// SPDX-License-Identifier: Apache-2.0
/*
 * Add, copy and the search for numbers that are not finite on a GPU: every result is exact.
 */
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/elementwise.h"

static const struct shape {
    int64_t rows, cols, a_gap, b_gap, out_gap;
} shapes[] = {
    {1, 1, 0, 0, 0},   {3, 5, 0, 0, 0},   {7, 776, 0, 0, 0},  {5, 129, 7, 7, 7},
    {2, 999, 4, 0, 2}, {6, 40, 24, 0, 8}, {1, 9000, 0, 0, 0}, {4, 257, 8, 0, 0},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Columns [1, cols) of a matrix, which are not aligned. */
static ls_tensor without_first(const cuda_matrix *m)
{
    return ls_tensor_columns(m->t, 1, m->t.cols - 1);
}

static void add_is_exact(const struct shape *s, ls_dtype dtype, bool in_place)
{
    cuda_matrix a = cuda_matrix_make(dtype, s->rows, s->cols, s->a_gap, 1, 1.0);
    cuda_matrix b = cuda_matrix_make(dtype, s->rows, s->cols, s->b_gap, 2, 1.0);
    cuda_matrix other = cuda_matrix_make(dtype, s->rows, s->cols, s->out_gap, 3, 0.0);
    cuda_matrix *out = in_place ? &a : &other;
    double *wanted = cuda_doubles(s->rows * s->cols);
    for (int64_t i = 0; i < s->rows * s->cols; i++) {
        wanted[i] = cuda_rounded(dtype, (float)a.x[i] + (float)b.x[i]);
    }
    CUDA_OK(ls_add(cuda_queue(), &a.t, &b.t, &out->t));
    cuda_matrix_check(out, wanted, 0.0, "sum");
    cuda_matrix_free(&a);
    cuda_matrix_free(&b);
    cuda_matrix_free(&other);
    free(wanted);
}

static void add_any_shape_is_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        add_is_exact(&shapes[i], LS_F32, false);
        add_is_exact(&shapes[i], LS_BF16, false);
        add_is_exact(&shapes[i], LS_F32, true);
        add_is_exact(&shapes[i], LS_BF16, true);
    }
}

static void copy_is_exact(const struct shape *s, ls_dtype from_type, ls_dtype to_type)
{
    cuda_matrix from = cuda_matrix_make(from_type, s->rows, s->cols, s->a_gap, 4, 1.0);
    cuda_matrix to = cuda_matrix_make(to_type, s->rows, s->cols, s->b_gap, 5, 0.0);
    double *wanted = cuda_doubles(s->rows * s->cols);
    for (int64_t i = 0; i < s->rows * s->cols; i++) {
        wanted[i] = cuda_rounded(to_type, from.x[i]);
    }
    CUDA_OK(ls_copy(cuda_queue(), &from.t, &to.t));
    cuda_matrix_check(&to, wanted, 0.0, "copy");
    cuda_matrix_free(&from);
    cuda_matrix_free(&to);
    free(wanted);
}

static void copy_any_shape_and_type_is_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        copy_is_exact(&shapes[i], LS_F32, LS_F32);
        copy_is_exact(&shapes[i], LS_BF16, LS_BF16);
        copy_is_exact(&shapes[i], LS_F32, LS_BF16);
        copy_is_exact(&shapes[i], LS_BF16, LS_F32);
    }
}

/* Both kinds of columns that are not aligned; the first column stays poison. */
static void copy_from_the_second_column_is_exact(void **state)
{
    (void)state;
    const ls_dtype types[] = {LS_F32, LS_BF16};
    for (int i = 0; i < 4; i++) {
        cuda_matrix from = cuda_matrix_make(types[i / 2], 5, 65, 7, 6, 1.0);
        cuda_matrix to = cuda_matrix_make(types[i % 2], 5, 65, 7, 7, 0.0);
        const ls_tensor source = without_first(&from), target = without_first(&to);
        CUDA_OK(ls_copy(cuda_queue(), &source, &target));
        cuda_matrix_read(&to);
        for (int64_t k = 0; k < 5 * 65; k++) {
            assert_true(k % 65 == 0 ? isnan(to.x[k]) : to.x[k] == cuda_rounded(types[i % 2], from.x[k]));
        }
        cuda_matrix_free(&from);
        cuda_matrix_free(&to);
    }
}

/* Values that a copy could change: NaN of all kinds, infinities, subnormal numbers, ties. */
static void copy_keeps_bits_and_rounds_ties_to_even(void **state)
{
    (void)state;
    const uint32_t bits[] = {0x7f800001u, 0xffc12345u, 0x7f800000u, 0xff800000u, 0x00000001u, 0x807fffffu,
                             0x3f808000u, 0x3f818000u, 0x3f808001u, 0x7f7fffffu, 0x80000000u};
    enum { COUNT = sizeof bits / sizeof *bits };
    ls_queue *queue = cuda_queue();
    uint32_t same[COUNT];
    uint16_t halves[COUNT];
    void *from, *to;
    CUDA_OK(ls_device_alloc(queue, sizeof bits, &from));
    CUDA_OK(ls_device_alloc(queue, sizeof bits, &to));
    CUDA_OK(ls_queue_move(queue, from, bits, sizeof bits));
    const ls_tensor source = ls_tensor_of(from, LS_F32, 1, COUNT);
    const ls_tensor floats = ls_tensor_of(to, LS_F32, 1, COUNT),
                    half_floats = ls_tensor_of(to, LS_BF16, 1, COUNT);
    CUDA_OK(ls_copy(queue, &source, &floats));
    CUDA_OK(ls_queue_move(queue, same, to, sizeof same));
    CUDA_OK(ls_copy(queue, &source, &half_floats));
    CUDA_OK(ls_queue_move(queue, halves, to, sizeof halves));
    CUDA_OK(ls_queue_wait(queue));
    assert_memory_equal(same, bits, sizeof bits);
    for (int i = 0; i < COUNT; i++) {
        float value;
        memcpy(&value, &bits[i], sizeof value);
        const bool stays_nan = (halves[i] & 0x7fff) > 0x7f80;
        assert_true(isnan(value) ? stays_nan : halves[i] == cuda_to_bf16(value));
    }
    ls_device_free(queue, from, sizeof bits);
    ls_device_free(queue, to, sizeof bits);
}

static int64_t found_in(const ls_tensor *x)
{
    int64_t index = -2;
    CUDA_OK(ls_find_nonfinite(cuda_queue(), x, &index));
    return index;
}

static void find_nonfinite_in(ls_dtype dtype, int64_t rows, int64_t cols)
{
    cuda_matrix m = cuda_matrix_make(dtype, rows, cols, 0, 8, 1.0);
    assert_int_equal(found_in(&m.t), -1);
    /* From the last element to the first, so that the lowest of several has to be found. */
    int64_t lowest = rows * cols - 1;
    const double values[] = {(double)NAN, (double)INFINITY, (double)-INFINITY};
    for (uint64_t i = 0; i < 4; i++) {
        m.x[lowest] = values[i % 3];
        cuda_matrix_write(&m);
        assert_int_equal(found_in(&m.t), lowest);
        lowest = i == 2 ? 0 : cuda_between(9, i, 0, lowest);
    }
    cuda_matrix_free(&m);
}

static void find_nonfinite_finds_the_lowest(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        find_nonfinite_in(LS_F32, shapes[i].rows, shapes[i].cols);
        find_nonfinite_in(LS_BF16, shapes[i].rows, shapes[i].cols);
    }
}

static void find_nonfinite_takes_the_largest_numbers(void **state)
{
    (void)state;
    cuda_matrix m = cuda_matrix_make(LS_F32, 1, 101, 0, 10, 1.0);
    m.x[7] = 3.4028234e38;
    m.x[8] = -3.4028234e38;
    m.x[0] = (double)NAN;
    cuda_matrix_write(&m);
    const ls_tensor rest = without_first(&m);
    assert_int_equal(found_in(&m.t), 0);
    assert_int_equal(found_in(&rest), -1);
    cuda_matrix_free(&m);
}

/* An empty matrix is no work, for any of them. */
static void elementwise_nothing_is_no_work(void **state)
{
    (void)state;
    cuda_matrix m = cuda_matrix_make(LS_F32, 1, 8, 0, 11, 1.0);
    const ls_tensor none = ls_tensor_rows(m.t, 0, 0);
    CUDA_OK(ls_add(cuda_queue(), &none, &none, &none));
    CUDA_OK(ls_copy(cuda_queue(), &none, &none));
    assert_int_equal(found_in(&none), -1);
    cuda_matrix_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_any_shape_is_exact),
        cmocka_unit_test(copy_any_shape_and_type_is_exact),
        cmocka_unit_test(copy_from_the_second_column_is_exact),
        cmocka_unit_test(copy_keeps_bits_and_rounds_ties_to_even),
        cmocka_unit_test(find_nonfinite_finds_the_lowest),
        cmocka_unit_test(find_nonfinite_takes_the_largest_numbers),
        cmocka_unit_test(elementwise_nothing_is_no_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
