// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/column_sums.h"

#include "base/assert.h"
#include "compute/cuda/vector.h"

enum {
    /* Blocks: 4 on each of 132 multiprocessors, whatever the GPU has. */
    BLOCKS = 132 * 4,
    TILE_ROWS_MIN = 32,
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Rows of a tile, so that all columns of all tiles make about BLOCKS blocks. */
static int64_t rows_of_tile(int64_t rows, int64_t cols)
{
    const int64_t across = ceil_div(cols, LS_COLUMN_SUMS_COLUMNS);
    const int64_t tiles = across < BLOCKS ? BLOCKS / across : 1;
    const int64_t even = ceil_div(rows, tiles);
    return even > TILE_ROWS_MIN ? even : TILE_ROWS_MIN;
}

ls_status ls_cuda_combine_parts(ls_queue_cuda *queue, const ls_combine_parts_args *args)
{
    if (!args->out[0] && !args->out[1]) {
        return LS_OK;
    }
    return ls_cuda_launch(queue, (ls_cuda_kernel){"column_sums", "combine_parts"},
                          (ls_cuda_grid){.x = (uint32_t)ceil_div(args->cols, LS_COMBINE_COLUMNS),
                                         .y = args->out[1] ? 2 : 1,
                                         .threads = LS_COMBINE_COLUMNS * LS_COMBINE_LANES},
                          args);
}

ls_status ls_cuda_column_sums(ls_queue_cuda *queue, const ls_tensor *dy, const ls_tensor *sum,
                              bool accumulate)
{
    LS_ASSERT(dy->dtype == LS_F32 || dy->dtype == LS_BF16);
    LS_ASSERT(sum->dtype == LS_F32 && sum->cols == dy->cols);
    ls_column_sums_args args = {.x = dy->data,
                                .rows = dy->rows,
                                .cols = dy->cols,
                                .stride = dy->stride,
                                .tile_rows = rows_of_tile(dy->rows, dy->cols),
                                .vector = ls_cuda_is_vector(dy)};
    const int64_t tiles = ceil_div(args.rows, args.tile_rows);
    if (tiles > 0) {
        void *scratch = NULL;
        LS_TRY(ls_cuda_scratch(queue, (size_t)(tiles * args.cols) * sizeof(float), &scratch));
        args.parts = scratch;
        LS_TRY(ls_cuda_launch(queue,
                              dy->dtype == LS_BF16 ? (ls_cuda_kernel){"column_sums", "column_sums_bf16"}
                                                   : (ls_cuda_kernel){"column_sums", "column_sums_f32"},
                              (ls_cuda_grid){.x = (uint32_t)ceil_div(args.cols, LS_COLUMN_SUMS_COLUMNS),
                                             .y = (uint32_t)tiles,
                                             .threads = LS_COLUMN_SUMS_COLUMNS},
                              &args));
    }
    return ls_cuda_combine_parts(queue, &(ls_combine_parts_args){.parts = args.parts,
                                                                 .count = tiles,
                                                                 .cols = args.cols,
                                                                 .stride = args.cols,
                                                                 .out = {sum->data},
                                                                 .accumulate = accumulate});
}
