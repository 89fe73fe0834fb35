// SPDX-License-Identifier: Apache-2.0
/*
 * Tree sums on a GPU: the bits are those of one addition after the other; squares against float64.
 */
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/elementwise.h"
#include "compute/kernels/tree_sum.h"

typedef struct program {
    uint16_t code[2 * LS_TREE_SUM_INPUTS_MAX];
    uint32_t length, depth, deepest, next;
} program;

static void emit(program *p, uint16_t code)
{
    p->code[p->length++] = code;
    p->depth += code == LS_TREE_SUM_ADD ? (uint32_t)-1 : 1;
    p->deepest = p->depth > p->deepest ? p->depth : p->deepest;
}

/* Splits `count` inputs in two somewhere; to the right only `levels` times. */
static void write_tree(program *p, uint32_t count, uint32_t levels)
{
    if (count == 1) {
        emit(p, (uint16_t)p->next++);
        return;
    }
    const uint32_t left = levels == 0 ? count - 1 : (uint32_t)cuda_between(1, p->length, 1, count - 1);
    write_tree(p, left, levels);
    write_tree(p, count - left, levels > 0 ? levels - 1 : 0);
    emit(p, LS_TREE_SUM_ADD);
}

/* One element, by the definition. */
static float sum_at(const program *p, const double *const *inputs, int64_t i)
{
    float stack[LS_TREE_SUM_DEPTH_MAX + 1] = {0};
    uint32_t depth = 0;
    for (uint32_t k = 0; k < p->length; k++) {
        if (p->code[k] == LS_TREE_SUM_ADD) {
            depth--;
            stack[depth - 1] = stack[depth - 1] + stack[depth];
        } else {
            stack[depth++] = (float)inputs[p->code[k]][i];
        }
    }
    return stack[0];
}

typedef struct tree_case {
    uint32_t inputs, levels;
    int64_t count;
    /* Elements before the first of each buffer. */
    int64_t offset;
    /* Out is this input; -1: it is none. */
    int into;
    bool squares;
} tree_case;

static void check_squares(const float *sums, int64_t count, const double *squares)
{
    for (int64_t block = 0; block * LS_NORM_BLOCK < count; block++) {
        double wanted = 0.0;
        for (int64_t i = block * LS_NORM_BLOCK; i < count && i < (block + 1) * LS_NORM_BLOCK; i++) {
            wanted += (double)sums[i] * sums[i];
        }
        assert_true(fabs(squares[block] - wanted) <= 1e-13 * wanted);
    }
}

/* Buffer `k` of a case, a row of a matrix whose rows are aligned: it begins `offset` elements later. */
static float *buffer_at(const tree_case *c, const cuda_matrix *m, uint32_t k)
{
    return ls_tensor_row(&m->t, k) + c->offset;
}

/* The inputs, and last an output of poison. */
static cuda_matrix buffers_make(const tree_case *c)
{
    const int64_t cols = c->count + c->offset;
    cuda_matrix m = cuda_matrix_make(LS_F32, c->inputs + 1, cols, (cols + 3) / 4 * 4 - cols, 2, 1.0);
    for (int64_t i = 0; i < cols; i++) {
        m.x[c->inputs * cols + i] = (double)NAN;
    }
    cuda_matrix_write(&m);
    return m;
}

/* Also: what lies before the buffers and between them is untouched. */
static void run_case(const tree_case *c)
{
    static program p;
    p = (program){.next = 0};
    write_tree(&p, c->inputs, c->levels);
    cuda_matrix buffers = buffers_make(c);
    const int64_t cols = buffers.t.cols;
    const uint32_t into = c->into >= 0 ? (uint32_t)c->into : c->inputs;
    const float *addresses[LS_TREE_SUM_INPUTS_MAX];
    const double *values[LS_TREE_SUM_INPUTS_MAX];
    for (uint32_t k = 0; k < c->inputs; k++) {
        addresses[k] = buffer_at(c, &buffers, k);
        values[k] = buffers.x + k * cols + c->offset;
    }
    float *wanted = calloc((size_t)c->count, sizeof *wanted);
    double *all = cuda_doubles((c->inputs + 1) * cols);
    memcpy(all, buffers.x, (size_t)((c->inputs + 1) * cols) * sizeof *all);
    for (int64_t i = 0; i < c->count; i++) {
        wanted[i] = sum_at(&p, values, i);
        all[into * cols + c->offset + i] = (double)wanted[i];
    }
    const size_t square_bytes = (size_t)(c->count / LS_NORM_BLOCK + 1) * sizeof(double);
    double *squares = cuda_shared(square_bytes);
    memset(squares, 0xff, square_bytes);
    const ls_tree_sum sum = {p.code, p.length, p.deepest, c->inputs};
    CUDA_OK(ls_tree_sum_run(cuda_queue(), &sum, addresses, c->count, buffer_at(c, &buffers, into),
                            c->squares ? squares : NULL));
    /* The array of addresses may change as soon as the call has returned. */
    memset(addresses, 0xff, sizeof addresses);
    cuda_matrix_read(&buffers);
    for (int64_t i = 0; i < (c->inputs + 1) * cols; i++) {
        assert_true(buffers.x[i] == all[i] || (isnan(buffers.x[i]) && isnan(all[i])));
    }
    if (c->squares) {
        check_squares(wanted, c->count, squares);
    }
    ls_shared_free(cuda_queue(), squares, square_bytes);
    cuda_matrix_free(&buffers);
    free(wanted);
    free(all);
}

static void tree_sum_any_program_has_the_bits_of_additions(void **state)
{
    (void)state;
    const tree_case cases[] = {
        {1, 0, 1, 0, -1, true},       {1, 0, 9000, 0, 0, true},   {1, 0, 5000, 1, 0, true},
        {1, 0, 5000, 0, -1, false},   {2, 0, 4096, 0, 0, true},   {2, 1, 12290, 0, 1, true},
        {2, 1, 4100, 3, -1, false},   {3, 1, 8195, 0, -1, true},  {4, 2, 4096, 0, 3, false},
        {7, 3, 5001, 0, 2, true},     {8, 2, 4097, 1, 0, true},   {16, 9, 4099, 0, -1, true},
        {32, 14, 4098, 0, 31, true},  {33, 5, 4097, 0, 32, true}, {40, 14, 100, 1, 3, true},
        {1024, 10, 70, 0, 512, true}, {6, 0, 0, 0, -1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {

        run_case(&cases[i]);
    }
}

/* As deep as the stack may be. */
static void tree_sum_full_stack_is_exact(void **state)
{
    (void)state;
    program p = {.next = 0};
    for (uint32_t k = 0; k < LS_TREE_SUM_DEPTH_MAX; k++) {
        emit(&p, (uint16_t)k);
    }
    for (uint32_t k = 1; k < LS_TREE_SUM_DEPTH_MAX; k++) {
        emit(&p, LS_TREE_SUM_ADD);
    }
    enum { COUNT = 333 };
    cuda_matrix inputs[LS_TREE_SUM_DEPTH_MAX];
    const float *addresses[LS_TREE_SUM_DEPTH_MAX];
    const double *values[LS_TREE_SUM_DEPTH_MAX];
    for (int k = 0; k < LS_TREE_SUM_DEPTH_MAX; k++) {
        inputs[k] = cuda_matrix_make(LS_F32, 1, COUNT, 0, 50 + (uint64_t)k, 1.0);
        addresses[k] = inputs[k].t.data;
        values[k] = inputs[k].x;
    }
    cuda_matrix out = cuda_matrix_make(LS_F32, 1, COUNT, 0, 3, 0.0);
    const ls_tree_sum sum = {p.code, p.length, p.deepest, LS_TREE_SUM_DEPTH_MAX};
    CUDA_OK(ls_tree_sum_run(cuda_queue(), &sum, addresses, COUNT, out.t.data, NULL));
    cuda_matrix_read(&out);
    for (int64_t i = 0; i < COUNT; i++) {
        assert_true(out.x[i] == (double)sum_at(&p, values, i));
    }
    for (int k = 0; k < LS_TREE_SUM_DEPTH_MAX; k++) {
        cuda_matrix_free(&inputs[k]);
    }
    cuda_matrix_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_sum_any_program_has_the_bits_of_additions),
        cmocka_unit_test(tree_sum_full_stack_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
