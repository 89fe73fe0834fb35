// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/norm.h"

#include "compute/cpu/isa/norm.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <string.h>

/* Rows whose weight gradients are added up by one tile: at least ROWS_MIN, and at most BLOCKS_MAX
 * tiles. */
enum { BLOCK_ROWS_MIN = 32, BLOCKS_MAX = 64 };

typedef struct norm_job {
    const ls_norm_kernels *kernels;
    ls_norm_row norm;
    const ls_tensor *a, *b, *sum, *y; /* forward */
    const ls_tensor *x, *dy, *dx;     /* backward */
    const ls_tensor *mean, *rstd;
    bool accumulate;
    int64_t rows, tile_rows;
    float *parts; /* backward: per tile (2, width): dweight, dbias */
} norm_job;

static float *row_or_null(const ls_tensor *t, int64_t row)
{
    return ls_tensor_is_present(t) ? ls_tensor_row(t, row) : NULL;
}

static ls_norm_row norm_row(const ls_norm *norm, int64_t cols)
{
    const int64_t width = cols / norm->groups;
    return (ls_norm_row){.is_layer = norm->kind == LS_NORM_LAYER,
                         .eps = norm->eps,
                         .groups = norm->groups,
                         .width = width,
                         .weight = norm->weight.data,
                         .bias = norm->bias.data};
}

static void tile_forward(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const norm_job *job = context;
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, job->rows);
    for (int64_t r = begin; r < end; r++) {
        job->kernels->forward(&job->norm, ls_tensor_row(job->a, r), row_or_null(job->b, r),
                              row_or_null(job->sum, r), ls_tensor_row(job->y, r), row_or_null(job->mean, r),
                              ls_tensor_row(job->rstd, r));
    }
}

static ls_status forward_run(ls_queue *queue, norm_job *job)
{
    job->kernels = ls_queue_kernels(queue)->norm;
    job->rows = job->a->rows;
    job->tile_rows = ls_tile_rows(job->a->cols);
    ls_queue_run_tiles(queue, ls_ceil_div(job->rows, job->tile_rows), tile_forward, job);
    return LS_OK;
}

ls_status ls_cpu_norm_forward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x, const ls_tensor *y,
                              const ls_tensor *mean, const ls_tensor *rstd)
{
    return forward_run(
        queue, &(norm_job){.norm = norm_row(norm, x->cols), .a = x, .y = y, .mean = mean, .rstd = rstd});
}

ls_status ls_cpu_norm_forward_residual(ls_queue *queue, const ls_norm *norm, const ls_tensor *a,
                                       const ls_tensor *b, const ls_tensor *sum, const ls_tensor *y,
                                       const ls_tensor *mean, const ls_tensor *rstd)
{
    return forward_run(
        queue,
        &(norm_job){
            .norm = norm_row(norm, y->cols), .a = a, .b = b, .sum = sum, .y = y, .mean = mean, .rstd = rstd});
}

static int64_t block_rows(int64_t n)
{
    return ls_max64(BLOCK_ROWS_MIN, ls_ceil_div(n, BLOCKS_MAX));
}

int64_t ls_cpu_norm_workspace(int64_t n, int64_t cols, int64_t groups)
{
    return ls_ceil_div(n, block_rows(n)) * 2 * (cols / groups);
}

static void tile_backward(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const norm_job *job = context;
    const int64_t width = job->norm.width;
    float *dweight = job->parts + tile * 2 * width, *dbias = dweight + width;
    memset(dweight, 0, (size_t)(2 * width) * sizeof *dweight);
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, job->rows);
    for (int64_t r = begin; r < end; r++) {
        job->kernels->backward(&job->norm, ls_tensor_row(job->x, r), ls_tensor_row(job->dy, r),
                               row_or_null(job->mean, r), ls_tensor_row(job->rstd, r),
                               ls_tensor_row(job->dx, r), job->accumulate, dweight, dbias);
    }
}

ls_status ls_cpu_norm_backward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x, const ls_tensor *dy,
                               const ls_tensor *mean, const ls_tensor *rstd, const ls_tensor *dx,
                               bool accumulate_input, const ls_tensor *dweight, const ls_tensor *dbias,
                               bool accumulate_weight, const ls_tensor *workspace)
{
    const int64_t n = x->rows, cols = x->cols;
    norm_job job = {.kernels = ls_queue_kernels(queue)->norm,
                    .norm = norm_row(norm, cols),
                    .x = x,
                    .dy = dy,
                    .dx = dx,
                    .mean = mean,
                    .rstd = rstd,
                    .accumulate = accumulate_input,
                    .rows = n,
                    .tile_rows = block_rows(n),
                    .parts = workspace->data};
    const int64_t width = job.norm.width, blocks = ls_ceil_div(n, job.tile_rows);
    ls_queue_run_tiles(queue, blocks, tile_backward, &job);
    if (ls_tensor_is_present(dweight)) {
        job.kernels->combine(job.parts, blocks, 2 * width, width, dweight->data, accumulate_weight);
    }
    if (ls_tensor_is_present(dbias)) {
        job.kernels->combine(job.parts + width, blocks, 2 * width, width, dbias->data, accumulate_weight);
    }
    return LS_OK;
}
