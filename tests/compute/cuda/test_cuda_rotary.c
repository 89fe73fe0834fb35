// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/rotary.h"

typedef struct rotary_case {
    int64_t heads, head_dim, positions_per_sequence, first_position;
    bool backward;
    int32_t *first; /* NULL: no records */
    cuda_matrix buffer, cosine, sine;
    /* Columns of the buffer. */
    ls_tensor x;
} rotary_case;

static void run(void *context)
{
    rotary_case *c = context;
    CUDA_OK(ls_rotary_apply(
        cuda_queue(), &c->x, c->heads, c->head_dim,
        &(ls_positions){.length = c->positions_per_sequence, .past = c->first_position, .first = c->first},
        &c->cosine.t, &c->sine.t, c->backward));
}

/* Tables of angles as a model has them. */
static void fill_tables(rotary_case *c)
{
    const int64_t half = c->head_dim / 2;
    for (int64_t p = 0; p < c->cosine.t.rows; p++) {
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)p * pow(10000.0, -2.0 * (double)i / (double)c->head_dim);
            c->cosine.x[p * half + i] = (double)(float)cos(angle);
            c->sine.x[p * half + i] = (double)(float)sin(angle);
        }
    }
    cuda_matrix_write(&c->cosine);
    cuda_matrix_write(&c->sine);
}

/* Rotates `buffer`, dense, from column `first` on. */
static void reference(const rotary_case *c, int64_t first, double *buffer)
{
    const int64_t half = c->head_dim / 2, cols = c->buffer.t.cols;
    for (int64_t r = 0; r < c->buffer.t.rows; r++) {
        const int64_t position =
            c->first_position + r % c->positions_per_sequence - (c->first ? c->first[r] : 0);
        for (int64_t k = 0; k < c->heads * half; k++) {
            double *x = buffer + r * cols + first + k / half * c->head_dim + k % half;
            const double cosine = c->cosine.x[position * half + k % half];
            const double sine = c->sine.x[position * half + k % half] * (c->backward ? -1.0 : 1.0);
            const double left = x[0], right = x[half];
            x[0] = left * cosine - right * sine;
            x[half] = right * cosine + left * sine;
        }
    }
}

static void check(uint64_t seed, ls_dtype dtype)
{
    static const int64_t head_dims[] = {64, 128, 256, 80, 96, 2, 10, 16};
    const bool is_odd = seed % 3 == 0;
    const int64_t rows = cuda_between(seed, 1, 1, 40), before = is_odd ? 3 : 16, after = is_odd ? 2 : 24;
    rotary_case c = {.heads = cuda_between(seed, 2, 1, 9),
                     .head_dim = head_dims[seed % 8],
                     .positions_per_sequence = cuda_between(seed, 3, 1, rows),
                     .first_position = cuda_between(seed, 4, 0, 5),
                     .backward = cuda_between(seed, 5, 0, 1)};
    if (seed % 4 == 3) {
        c.first_position = 0;
        c.first = cuda_records(rows, c.positions_per_sequence, 3);
    }
    const int64_t width = c.heads * c.head_dim, positions = c.first_position + c.positions_per_sequence;
    c.buffer = cuda_matrix_make(dtype, rows, before + width + after, is_odd ? 1 : 0, seed + 100, 2.0);
    c.x = ls_tensor_columns(c.buffer.t, before, width);
    c.cosine = cuda_matrix_make(LS_F32, positions, c.head_dim / 2, 0, 1, 1.0);
    c.sine = cuda_matrix_make(LS_F32, positions, c.head_dim / 2, 0, 1, 1.0);
    fill_tables(&c);
    const int64_t count = rows * c.buffer.t.cols;
    double *wanted = cuda_doubles(count), *old = cuda_doubles(count);
    memcpy(old, c.buffer.x, (size_t)count * sizeof *old);
    memcpy(wanted, old, (size_t)count * sizeof *old);
    reference(&c, before, wanted);
    cuda_same_bits(run, &c, (cuda_matrix *const[]){&c.buffer}, 1);
    cuda_matrix_check(&c.buffer, wanted, cuda_tolerance(dtype), "x");
    for (int64_t i = 0; i < count; i++) {
        const int64_t column = i % c.buffer.t.cols;
        if (column < before || column >= before + width) {
            assert_true(c.buffer.x[i] == old[i]);
        }
    }
    free(wanted);
    free(old);
    ls_shared_free(cuda_queue(), c.first, (size_t)rows * sizeof *c.first);
    cuda_matrix_free(&c.buffer);
    cuda_matrix_free(&c.cosine);
    cuda_matrix_free(&c.sine);
}

static void rotary_matches_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        check(seed, LS_F32);
        check(seed, LS_BF16);
    }
}

int main(void)
{
    (void)cuda_queue();
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotary_matches_the_definition)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
