// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "compute/cuda/blocks.h"
#include "compute/cuda/device/embedding.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/shape.h"

static ls_cuda_kernel kernel(const char *name)
{
    return (ls_cuda_kernel){"embedding", name};
}

ls_status ls_cuda_embedding_forward(ls_queue *queue, const int32_t *tokens, const ls_tensor *table,
                                    const ls_tensor *position_table, const ls_positions *positions,
                                    const ls_tensor *out)
{
    LS_ASSERT(table->dtype == out->dtype && (out->dtype == LS_F32 || out->dtype == LS_BF16));
    LS_ASSERT(!ls_tensor_is_present(position_table) || position_table->dtype == out->dtype);
    const bool has_positions = ls_tensor_is_present(position_table);
    const ls_gather_args args = {
        .tokens = tokens,
        .table = table->data,
        .positions = has_positions ? position_table->data : NULL,
        .out = out->data,
        .rows = out->rows,
        .cols = out->cols,
        .vocab = table->rows,
        .table_stride = table->stride,
        .positions_stride = has_positions ? position_table->stride : 0,
        .out_stride = out->stride,
        .positions_per_sequence = positions->length,
        .first_position = positions->past,
        .first = positions->first,
        .aligned = ls_cuda_rows_are_aligned(table, 16) && ls_cuda_rows_are_aligned(out, 16) &&
                   (!has_positions || ls_cuda_rows_are_aligned(position_table, 16)),
    };
    const ls_cuda_grid grid = {.x = ls_cuda_blocks(out->rows, LS_GATHER_ROWS), .threads = LS_GATHER_THREADS};
    if (out->rows == 0) {
        return LS_OK;
    }
    return ls_cuda_launch(ls_cuda_of(queue), kernel(out->dtype == LS_F32 ? "gather_f32" : "gather_bf16"),
                          grid, &args);
}

/* Where backward keeps what it needs in the scratch memory. */
typedef struct backward_scratch {
    int32_t *keys[2], *rows[2];
    uint32_t *counts;
    float *partials;
    int64_t tiles, partial_stride;
} backward_scratch;

/* Takes `bytes` at *at and moves *at behind them. base NULL: only counts. */
static void *take(char *base, size_t *at, int64_t bytes)
{
    void *taken = base ? base + *at : NULL;
    *at += ((size_t)bytes + 255) & ~(size_t)255;
    return taken;
}

/* Lays the scratch out from `base` on. Returns its size. */
static size_t scratch_lay_out(char *base, int64_t rows, int64_t cols, backward_scratch *s)
{
    const int64_t digits = 1 << LS_SORT_DIGIT_BITS_MAX;
    size_t bytes = 0;
    s->tiles = ls_ceil_div(rows, LS_SCATTER_ROWS);
    s->partial_stride = (cols + 3) & ~(int64_t)3;
    for (int i = 0; i < 2; i++) {
        s->keys[i] = take(base, &bytes, rows * (int64_t)sizeof(int32_t));
        s->rows[i] = take(base, &bytes, rows * (int64_t)sizeof(int32_t));
    }
    s->counts = take(base, &bytes, digits * ls_ceil_div(rows, LS_SORT_TILE) * (int64_t)sizeof(uint32_t));
    s->partials = take(base, &bytes, 2 * s->tiles * s->partial_stride * (int64_t)sizeof(float));
    return bytes;
}

static ls_status sort_pass(ls_queue_cuda *q, const ls_sort_args *args)
{
    const ls_cuda_grid tiles = {.x = ls_cuda_blocks(args->tiles, 1), .threads = LS_SORT_THREADS};
    const ls_cuda_grid one = {.x = 1, .threads = LS_SCAN_THREADS};
    LS_TRY(ls_cuda_launch(q, kernel("sort_count"), tiles, args));
    LS_TRY(ls_cuda_launch(q, kernel("sort_scan"), one, args));
    return ls_cuda_launch(q, kernel("sort_move"), tiles, args);
}

static int32_t bits_below(int64_t limit)
{
    int32_t bits = 1;
    while ((int64_t)1 << bits < limit) {
        bits++;
    }
    return bits;
}

/* What rows are added by: their tokens, or, if these are NULL, their positions. */
typedef struct row_keys {
    const int32_t *tokens;
    const ls_positions *positions;
} row_keys;

/* Tokens are memory of the host: it is read once. */
static ls_status write_keys(ls_queue_cuda *q, const row_keys *from, int64_t rows, int32_t *keys)
{
    if (from->tokens) {
        return ls_queue_move(&q->base, keys, from->tokens, (size_t)rows * sizeof *keys);
    }
    const ls_position_keys_args args = {
        .first = from->positions->first, .keys = keys, .rows = rows, .length = from->positions->length};
    const ls_cuda_grid grid = {.x = ls_cuda_blocks(rows, LS_GATHER_THREADS), .threads = LS_GATHER_THREADS};
    return ls_cuda_launch(q, kernel("position_keys"), grid, &args);
}

/* Sorts rows 0 .. rows - 1 by key. *sorted_out: which of the two buffers has the result. */
static ls_status sort_rows(ls_queue_cuda *q, const row_keys *keys, int64_t rows, int64_t vocab,
                           const backward_scratch *s, int *sorted_out)
{
    LS_TRY(write_keys(q, keys, rows, s->keys[0]));
    const int32_t bits = bits_below(vocab);
    const int32_t passes = (bits + LS_SORT_DIGIT_BITS_MAX - 1) / LS_SORT_DIGIT_BITS_MAX;
    const int32_t digit_bits = (bits + passes - 1) / passes;
    for (int32_t pass = 0; pass < passes; pass++) {
        const int from = pass & 1, to = 1 - from;
        LS_TRY(sort_pass(q, &(ls_sort_args){.keys = s->keys[from],
                                            .rows = pass > 0 ? s->rows[from] : NULL,
                                            .sorted_keys = s->keys[to],
                                            .sorted_rows = s->rows[to],
                                            .counts = s->counts,
                                            .count = rows,
                                            .tiles = ls_ceil_div(rows, LS_SORT_TILE),
                                            .keys_below = vocab,
                                            .shift = pass * digit_bits,
                                            .digit_bits = digit_bits}));
    }
    *sorted_out = passes & 1;
    return LS_OK;
}

/* Blocks along x, and slices of columns along y. */
static ls_cuda_grid sliced_grid(int64_t x, int64_t cols)
{
    const int64_t runs = ls_ceil_div(cols, LS_SCATTER_COLS);
    const int64_t slices = ls_ceil_div(runs, LS_SCATTER_THREADS_MAX);
    const int64_t threads = ls_ceil_div(ls_ceil_div(runs, slices), 32) * 32;
    return (ls_cuda_grid){
        .x = ls_cuda_blocks(x, 1), .y = ls_cuda_blocks(slices, 1), .threads = (uint32_t)threads};
}

/* Runs of four columns of both can be read at once. */
static bool runs_are_aligned(const ls_tensor *dout, const ls_tensor *gradient)
{
    return ls_cuda_rows_are_aligned(dout, LS_SCATTER_COLS * (uint32_t)ls_dtype_bytes(dout->dtype)) &&
           ls_cuda_rows_are_aligned(gradient, 16);
}

static ls_status add_by_key(ls_queue_cuda *q, const row_keys *keys, const ls_tensor *dout,
                            const ls_tensor *dtable)
{
    LS_ASSERT(dout->rows <= INT32_MAX && dtable->rows <= INT32_MAX);
    backward_scratch s;
    void *memory;
    int sorted = 0;
    LS_TRY(ls_cuda_scratch(q, scratch_lay_out(NULL, dout->rows, dout->cols, &s), &memory));
    (void)scratch_lay_out(memory, dout->rows, dout->cols, &s);
    LS_TRY(sort_rows(q, keys, dout->rows, dtable->rows, &s, &sorted));
    const ls_scatter_args args = {.keys = s.keys[sorted],
                                  .rows = s.rows[sorted],
                                  .count = dout->rows,
                                  .tiles = s.tiles,
                                  .dout = dout->data,
                                  .dtable = dtable->data,
                                  .partials = s.partials,
                                  .cols = dout->cols,
                                  .dout_stride = dout->stride,
                                  .dtable_stride = dtable->stride,
                                  .partial_stride = s.partial_stride,
                                  .aligned = runs_are_aligned(dout, dtable)};
    const ls_cuda_grid grid = sliced_grid(s.tiles, dout->cols);
    LS_TRY(ls_cuda_launch(q, kernel(dout->dtype == LS_F32 ? "scatter_f32" : "scatter_bf16"), grid, &args));
    return ls_cuda_launch(q, kernel("scatter_spans"), grid, &args);
}

static ls_status add_positions(ls_queue_cuda *q, const ls_tensor *dout, const ls_positions *positions,
                               const ls_tensor *dpositions)
{
    if (positions->first) {
        return add_by_key(q, &(row_keys){.positions = positions}, dout, dpositions);
    }
    const ls_positions_args args = {.dout = dout->data,
                                    .dpositions = dpositions->data,
                                    .rows = dout->rows,
                                    .cols = dout->cols,
                                    .positions_per_sequence = positions->length,
                                    .dout_stride = dout->stride,
                                    .dpositions_stride = dpositions->stride,
                                    .aligned = runs_are_aligned(dout, dpositions)};
    return ls_cuda_launch(q, kernel(dout->dtype == LS_F32 ? "positions_f32" : "positions_bf16"),
                          sliced_grid(ls_min64(dout->rows, positions->length), dout->cols), &args);
}

ls_status ls_cuda_embedding_backward(ls_queue *queue, const int32_t *tokens, const ls_tensor *dout,
                                     const ls_positions *positions, const ls_tensor *dtable,
                                     const ls_tensor *dpositions)
{
    LS_ASSERT(dout->dtype == LS_F32 || dout->dtype == LS_BF16);
    LS_ASSERT(!ls_tensor_is_present(dtable) || dtable->dtype == LS_F32);
    LS_ASSERT(!ls_tensor_is_present(dpositions) || dpositions->dtype == LS_F32);
    if (dout->rows == 0 || dout->cols == 0) {
        return LS_OK;
    }
    if (ls_tensor_is_present(dtable)) {
        LS_TRY(add_by_key(ls_cuda_of(queue), &(row_keys){.tokens = tokens}, dout, dtable));
    }
    return ls_tensor_is_present(dpositions) ? add_positions(ls_cuda_of(queue), dout, positions, dpositions)
                                            : LS_OK;
}
