// SPDX-License-Identifier: Apache-2.0
/*
 * Embeddings on a GPU. Forward is exact; gradients are held against float64 and repeat bit for bit.
 */
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/embedding.h"

typedef struct embedding_case {
    int64_t rows, vocab, cols, gap, sequence, first_position;
    /* Of 100 rows, how many have the same token. */
    int64_t hot;
    ls_dtype dtype;
    bool positions;
    int64_t record; /* tokens of a record; 0: no records */
} embedding_case;

static int64_t position_of(const embedding_case *c, int64_t row)
{
    const int64_t token = row % c->sequence;
    return c->first_position + (c->record > 0 ? token % c->record : token);
}

static size_t token_bytes(const embedding_case *c)
{
    return (size_t)c->rows * sizeof(int32_t);
}

static int32_t *random_tokens(const embedding_case *c)
{
    int32_t *tokens = cuda_shared(token_bytes(c));
    for (int64_t r = 0; r < c->rows; r++) {
        const bool is_hot = cuda_between(1, (uint64_t)r, 0, 99) < c->hot;
        tokens[r] = (int32_t)(is_hot ? c->vocab / 2 : cuda_between(2, (uint64_t)r, 0, c->vocab - 1));
    }
    tokens[0] = 0;
    tokens[c->rows - 1] = (int32_t)(c->vocab - 1);
    return tokens;
}

static void forward_is_exact(const embedding_case *c)
{
    int32_t *tokens = random_tokens(c);
    cuda_matrix table = cuda_matrix_make(c->dtype, c->vocab, c->cols, c->gap, 3, 1.0);
    cuda_matrix positions =
        cuda_matrix_make(c->dtype, c->first_position + c->sequence, c->cols, c->gap, 4, 1.0);
    cuda_matrix out = cuda_matrix_make(c->dtype, c->rows, c->cols, c->gap, 5, 0.0);
    double *wanted = cuda_doubles(c->rows * c->cols);
    for (int64_t i = 0; i < c->rows * c->cols; i++) {
        const int64_t r = i / c->cols, col = i % c->cols, at = position_of(c, r);
        const float from = (float)table.x[tokens[r] * c->cols + col];
        const float position = (float)positions.x[at * c->cols + col];
        wanted[i] = c->positions ? cuda_rounded(c->dtype, from + position) : (double)from;
    }
    const ls_tensor none = {.dtype = c->dtype};
    int32_t *first = cuda_records(c->rows, c->sequence, c->record);
    CUDA_OK(ls_embedding_forward(
        cuda_queue(), tokens, &table.t, c->positions ? &positions.t : &none,
        &(ls_positions){.length = c->sequence, .past = c->first_position, .first = first}, &out.t));
    cuda_matrix_check(&out, wanted, 0.0, "embedding");
    cuda_matrix_free(&table);
    cuda_matrix_free(&positions);
    cuda_matrix_free(&out);
    free(wanted);
    ls_shared_free(cuda_queue(), tokens, token_bytes(c));
    ls_shared_free(cuda_queue(), first, token_bytes(c));
}

static void embedding_forward_is_exact(void **state)
{
    (void)state;
    const embedding_case cases[] = {
        {37, 50, 40, 0, 10, 3, 20, LS_F32, true},    {37, 50, 40, 8, 10, 0, 20, LS_BF16, true},
        {1, 5, 3, 0, 1, 7, 0, LS_F32, false},        {130, 20, 129, 2, 50, 2, 0, LS_BF16, true},
        {64, 300, 776, 0, 64, 0, 0, LS_BF16, false}, {90, 20, 33, 1, 30, 0, 2, LS_F32, true, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forward_is_exact(&cases[i]);
    }
}

typedef struct backward_call {
    const embedding_case *c;
    const int32_t *tokens, *first;
    cuda_matrix dout, dtable, dpositions;
} backward_call;

static void run_backward(void *context)
{
    const backward_call *call = context;
    const ls_tensor none = {.dtype = LS_F32};
    CUDA_OK(ls_embedding_backward(cuda_queue(), call->tokens, &call->dout.t,
                                  &(ls_positions){.length = call->c->sequence, .first = call->first},
                                  &call->dtable.t, call->c->positions ? &call->dpositions.t : &none));
}

static void backward_is_close(const embedding_case *c)
{
    int32_t *tokens = random_tokens(c), *first = cuda_records(c->rows, c->sequence, c->record);
    backward_call call = {.c = c,
                          .tokens = tokens,
                          .first = first,
                          .dout = cuda_matrix_make(c->dtype, c->rows, c->cols, c->gap, 6, 1.0),
                          .dtable = cuda_matrix_make(LS_F32, c->vocab, c->cols, c->gap, 7, 1.0),
                          .dpositions = cuda_matrix_make(LS_F32, c->sequence + 1, c->cols, c->gap, 8, 1.0)};
    double *table = cuda_doubles(c->vocab * c->cols);
    double *positions = cuda_doubles((c->sequence + 1) * c->cols);
    memcpy(table, call.dtable.x, (size_t)(c->vocab * c->cols) * sizeof *table);
    memcpy(positions, call.dpositions.x, (size_t)((c->sequence + 1) * c->cols) * sizeof *positions);
    for (int64_t i = 0; i < c->rows * c->cols; i++) {
        const int64_t r = i / c->cols, col = i % c->cols;
        table[tokens[r] * c->cols + col] += call.dout.x[i];
        positions[position_of(c, r) * c->cols + col] += c->positions ? call.dout.x[i] : 0.0;
    }
    cuda_matrix *const outputs[] = {&call.dtable, &call.dpositions};
    cuda_same_bits(run_backward, &call, outputs, 2);
    cuda_matrix_check(&call.dtable, table, 1e-6, "gradient of the table");
    cuda_matrix_check(&call.dpositions, positions, 1e-6, "gradient of the positions");
    free(table);
    free(positions);
    cuda_matrix_free(&call.dout);
    cuda_matrix_free(&call.dtable);
    cuda_matrix_free(&call.dpositions);
    ls_shared_free(cuda_queue(), tokens, token_bytes(c));
    ls_shared_free(cuda_queue(), first, token_bytes(c));
}

static void embedding_backward_is_close_and_repeats(void **state)
{
    (void)state;
    const embedding_case cases[] = {
        {1, 5, 3, 0, 1, 0, 0, LS_F32, true},
        {300, 50, 40, 0, 64, 0, 0, LS_F32, true},
        {2100, 40, 24, 8, 1024, 0, 60, LS_BF16, true},
        {1024, 3000, 8, 0, 512, 0, 30, LS_BF16, false},
        {500, 1, 130, 1, 100, 0, 0, LS_F32, true},
        {1500, 70000, 4, 0, 30, 0, 10, LS_F32, true},
        {40, 9, 1300, 4, 20, 0, 50, LS_BF16, true},
        {700, 13, 5, 0, 700, 0, 0, LS_BF16, true},
        {1030, 270000, 1, 0, 1030, 0, 5, LS_F32, false},
        {600, 50, 40, 0, 200, 0, 0, LS_F32, true, 33},
        {2048, 40, 24, 8, 1024, 0, 60, LS_BF16, true, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        backward_is_close(&cases[i]);
    }
}

static void embedding_backward_sums_in_the_order_of_the_rows(void **state)
{
    (void)state;
    /* 1 is lost in 2^24, so another order of these rows gives another sum. */
    const double rows[] = {1.0, 16777216.0, -16777216.0, 1.0};
    int32_t *tokens = cuda_shared(4 * sizeof *tokens);
    cuda_matrix dout = cuda_matrix_make(LS_F32, 4, 4, 0, 9, 1.0);
    cuda_matrix dtable = cuda_matrix_make(LS_F32, 3, 4, 0, 10, 0.0);
    const ls_tensor none = {.dtype = LS_F32};
    for (int i = 0; i < 16; i++) {
        tokens[i / 4] = 2;
        dout.x[i] = rows[i / 4];
    }
    memset(dtable.x, 0, 12 * sizeof *dtable.x);
    cuda_matrix_write(&dout);
    cuda_matrix_write(&dtable);
    CUDA_OK(
        ls_embedding_backward(cuda_queue(), tokens, &dout.t, &(ls_positions){.length = 4}, &dtable.t, &none));
    const double wanted[12] = {[8] = 1.0, 1.0, 1.0, 1.0};
    cuda_matrix_check(&dtable, wanted, 0.0, "gradient of the table");
    cuda_matrix_free(&dout);
    cuda_matrix_free(&dtable);
    ls_shared_free(cuda_queue(), tokens, 4 * sizeof *tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_forward_is_exact),
        cmocka_unit_test(embedding_backward_is_close_and_repeats),
        cmocka_unit_test(embedding_backward_sums_in_the_order_of_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
