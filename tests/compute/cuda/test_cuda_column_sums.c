// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/cuda_test.h"

#include "compute/cuda/column_sums.h"

typedef struct sums_case {
    cuda_matrix dy, sum;
    bool accumulate;
} sums_case;

static void run(void *context)
{
    sums_case *c = context;
    CUDA_OK(ls_cuda_column_sums(ls_cuda_of(cuda_queue()), &c->dy.t, &c->sum.t, c->accumulate));
}

static void check(ls_dtype dtype, int64_t rows, int64_t cols, int64_t gap, bool accumulate)
{
    const uint64_t seed = (uint64_t)(rows * 7 + cols);
    sums_case c = {.dy = cuda_matrix_make(dtype, rows, cols, gap, seed, 1.0),
                   .sum = cuda_matrix_make(LS_F32, 1, cols, 0, seed + 1, accumulate ? 1.0 : 0.0),
                   .accumulate = accumulate};
    double *wanted = cuda_doubles(cols);
    for (int64_t i = 0; i < cols; i++) {
        wanted[i] = accumulate ? c.sum.x[i] : 0.0;
    }
    for (int64_t i = 0; i < rows * cols; i++) {
        wanted[i % cols] += c.dy.x[i];
    }
    cuda_same_bits(run, &c, (cuda_matrix *const[]){&c.sum}, 1);
    cuda_matrix_check(&c.sum, wanted, 1e-5, "sum");
    free(wanted);
    cuda_matrix_free(&c.dy);
    cuda_matrix_free(&c.sum);
}

static void column_sums_match_the_definition(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 0},     {1, 8, 0},     {33, 256, 0},
                                        {100, 264, 8}, {257, 40, 3},  {70, 513, 0},
                                        {64, 768, 8},  {1000, 16, 0}, {129, 7, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int k = 0; k < 4; k++) {
            check(k & 1 ? LS_BF16 : LS_F32, shapes[i][0], shapes[i][1], shapes[i][2], k & 2);
        }
    }
}

int main(void)
{
    (void)cuda_queue();
    const struct CMUnitTest tests[] = {cmocka_unit_test(column_sums_match_the_definition)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
