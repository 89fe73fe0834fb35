// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/embedding.h"

#include "compute/cpu/isa/elementwise.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <string.h>

/* Columns of a tile of backward: four cache lines, so that tiles never share one when rows are
 * aligned. */
enum { SLICE_COLS = 64 };

typedef struct embedding_job {
    const ls_elementwise_kernels *kernels;
    const int32_t *tokens;
    const ls_tensor *table, *position_table; /* gradients in backward */
    const ls_tensor *rows;                   /* out in forward, dout in backward */
    const ls_positions *positions;
    int64_t tile_rows;
} embedding_job;

static void row_gather(const embedding_job *job, int64_t r)
{
    const int64_t cols = job->rows->cols;
    float *out = ls_tensor_row(job->rows, r);
    if (job->tokens[r] == LS_TOKEN_ELSEWHERE) {
        job->kernels->fill(out, -0.0f, cols);
        return;
    }
    LS_ASSERT(job->tokens[r] >= 0 && job->tokens[r] < job->table->rows);
    const float *from = ls_tensor_row(job->table, job->tokens[r]);
    if (!ls_tensor_is_present(job->position_table)) {
        memcpy(out, from, (size_t)cols * sizeof *out);
        return;
    }
    const int64_t position = ls_position_of(job->positions, r);
    job->kernels->add(from, ls_tensor_row(job->position_table, position), out, cols);
}

static void tile_gather(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const embedding_job *job = context;
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, job->rows->rows);
    for (int64_t r = begin; r < end; r++) {
        row_gather(job, r);
    }
}

ls_status ls_cpu_embedding_forward(ls_queue *queue, const int32_t *tokens, const ls_tensor *table,
                                   const ls_tensor *position_table, const ls_positions *positions,
                                   const ls_tensor *out)
{
    embedding_job job = {.kernels = ls_queue_kernels(queue)->elementwise,
                         .tokens = tokens,
                         .table = table,
                         .position_table = position_table,
                         .rows = out,
                         .positions = positions,
                         .tile_rows = ls_tile_rows(out->cols)};
    ls_queue_run_tiles(queue, ls_ceil_div(out->rows, job.tile_rows), tile_gather, &job);
    return LS_OK;
}

static void add_into(const embedding_job *job, const ls_tensor *gradient, int64_t to_row, int64_t from_row,
                     int64_t first_col, int64_t cols)
{
    float *to = ls_tensor_row(gradient, to_row) + first_col;
    job->kernels->add(to, ls_tensor_row(job->rows, from_row) + first_col, to, cols);
}

/* One tile is a slice of columns over all rows in order: no two tiles write the same element. */
static void tile_scatter(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const embedding_job *job = context;
    const int64_t first = tile * SLICE_COLS, cols = ls_min64(SLICE_COLS, job->rows->cols - first);
    for (int64_t r = 0; r < job->rows->rows; r++) {
        if (ls_tensor_is_present(job->table) && job->tokens[r] != LS_TOKEN_ELSEWHERE) {
            LS_ASSERT(job->tokens[r] >= 0 && job->tokens[r] < job->table->rows);
            add_into(job, job->table, job->tokens[r], r, first, cols);
        }
        if (ls_tensor_is_present(job->position_table)) {
            add_into(job, job->position_table, ls_position_of(job->positions, r), r, first, cols);
        }
    }
}

ls_status ls_cpu_embedding_backward(ls_queue *queue, const int32_t *tokens, const ls_tensor *dout,
                                    const ls_positions *positions, const ls_tensor *dtable,
                                    const ls_tensor *dpositions)
{
    embedding_job job = {.kernels = ls_queue_kernels(queue)->elementwise,
                         .tokens = tokens,
                         .table = dtable,
                         .position_table = dpositions,
                         .rows = dout,
                         .positions = positions};
    ls_queue_run_tiles(queue, ls_ceil_div(dout->cols, SLICE_COLS), tile_scatter, &job);
    return LS_OK;
}
