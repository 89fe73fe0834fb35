// SPDX-License-Identifier: Apache-2.0
/*
 * Tree sums against one ls_add per addition, on all instruction sets and thread counts, and their
 * squares against float64.
 */
#include "compute/cpu/checkasm.h"

#include "compute/kernels/elementwise.h"
#include "compute/kernels/tree_sum.h"

enum { INPUTS = 1024 };

typedef struct program {
    uint16_t code[2 * INPUTS];
    uint32_t length, depth, deepest, next;
} program;

static void emit(program *p, uint16_t code)
{
    p->code[p->length++] = code;
    p->depth += code == LS_TREE_SUM_ADD ? (uint32_t)-1 : 1;
    p->deepest = p->depth > p->deepest ? p->depth : p->deepest;
}

/* Splits `count` inputs in two somewhere, again and again. */
static void write_tree(program *p, uint32_t count, uint64_t seed, uint32_t levels)
{
    if (count == 1) {
        emit(p, (uint16_t)p->next++);
        return;
    }
    /* Chains to the left are as deep as they like; to the right only while the stack allows. */
    const uint32_t left =
        levels == 0 ? count - 1 : (uint32_t)ck_between(seed, p->length, (count + 1) / 2, count - 1);
    write_tree(p, left, seed, levels);
    write_tree(p, count - left, seed, levels > 0 ? levels - 1 : 0);
    emit(p, LS_TREE_SUM_ADD);
}

/* The definition: whole buffers, one addition after the other. */
static void plain_sum(const program *p, float *const *inputs, int64_t first, int64_t count, float *out)
{
    float **stack = calloc(LS_TREE_SUM_DEPTH_MAX, sizeof *stack);
    uint32_t depth = 0;
    for (uint32_t i = 0; i < p->length; i++) {
        if (p->code[i] != LS_TREE_SUM_ADD) {
            stack[depth] = malloc((size_t)count * sizeof(float) + 1);
            memcpy(stack[depth++], inputs[p->code[i]] + first, (size_t)count * sizeof(float));
            continue;
        }
        depth--;
        for (int64_t k = 0; k < count; k++) {
            stack[depth - 1][k] = stack[depth - 1][k] + stack[depth][k];
        }
        free(stack[depth]);
    }
    memcpy(out, stack[0], (size_t)count * sizeof(float));
    free(stack[0]);
    free(stack);
}

typedef struct sum_case {
    const ls_tree_sum *sum;
    const float *inputs[INPUTS];
    int64_t count;
    ck_tensor out, squares; /* squares: doubles as pairs of floats */
} sum_case;

static void run_sum(ls_queue *queue, void *context)
{
    sum_case *c = context;
    assert_int_equal(ls_tree_sum_run(queue, c->sum, c->inputs, c->count, c->out.t.data,
                                     (double *)(void *)c->squares.t.data),
                     LS_OK);
}

static void check(uint32_t input_count, int64_t first, int64_t count, uint64_t seed)
{
    program p = {0};
    write_tree(&p, input_count, seed, 6);
    const ls_tree_sum sum = {
        .program = p.code, .length = p.length, .depth = p.deepest, .input_count = input_count};
    float *inputs[INPUTS];
    ck_tensor held[INPUTS];
    for (uint32_t k = 0; k < input_count; k++) {
        held[k] = ck_make(1, first + count, 0, seed * 1000 + k, k % 3 == 0 ? 1e4 : 1.0);
        inputs[k] = held[k].t.data;
    }
    const int64_t blocks = (count + LS_NORM_BLOCK - 1) / LS_NORM_BLOCK;
    sum_case *c = calloc(1, sizeof *c);
    *c = (sum_case){.sum = &sum,
                    .count = count,
                    .out = ck_make(1, count, 0, 1, 0.0),
                    .squares = ck_make(1, 2 * blocks, 0, 1, 0.0)};
    for (uint32_t k = 0; k < input_count; k++) {
        c->inputs[k] = inputs[k] + first;
    }
    float *want = malloc((size_t)count * sizeof *want);
    plain_sum(&p, inputs, first, count, want);
    ck_same_bits(run_sum, c, (ck_tensor *[]){&c->out, &c->squares}, 2, "tree sum");
    assert_memory_equal(c->out.t.data, want, (size_t)count * sizeof *want);
    for (int64_t b = 0; b < blocks; b++) {
        double got, squares = 0.0;
        memcpy(&got, (const float *)c->squares.t.data + 2 * b, sizeof got);
        for (int64_t i = b * LS_NORM_BLOCK; i < count && i < (b + 1) * LS_NORM_BLOCK; i++) {
            squares += (double)want[i] * want[i];
        }
        assert_true(fabs(got - squares) <= 1e-13 * squares);
    }

    /* In place: the sum replaces an input. */
    const uint32_t target = (uint32_t)(seed % input_count);
    assert_int_equal(ls_tree_sum_run(ck_queue(0, 2), &sum, c->inputs, count, inputs[target] + first, NULL),
                     LS_OK);
    assert_memory_equal(inputs[target] + first, want, (size_t)count * sizeof *want);
    for (uint32_t k = 0; k < input_count; k++) {
        ck_free(&held[k]);
    }
    ck_free(&c->out);
    ck_free(&c->squares);
    free(want);
    free(c);
}

static void tree_sum_gives_the_bits_of_single_additions(void **state)
{
    (void)state;
    for (uint32_t inputs = 1; inputs <= 9; inputs++) {
        check(inputs, 0, 3 * LS_NORM_BLOCK + 77, inputs);
        check(inputs, 4096, ck_between(inputs, 9, 1, 40000), inputs + 50);
    }
    check(2, 3, 1, 5);
    check(33, 16, LS_NORM_BLOCK, 6);
    check(100, 0, 5000, 7);
    check(INPUTS, 0, 1025, 8);
}

static void tree_sum_of_nothing_does_nothing(void **state)
{
    (void)state;
    const ls_tree_sum sum = {.program = (uint16_t[]){0}, .length = 1, .depth = 1, .input_count = 1};
    const float *inputs[1] = {NULL};
    assert_int_equal(ls_tree_sum_run(ck_queue(0, 1), &sum, inputs, 0, NULL, NULL), LS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_sum_gives_the_bits_of_single_additions),
        cmocka_unit_test(tree_sum_of_nothing_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
