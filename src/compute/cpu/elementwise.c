// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/elementwise.h"

#include "compute/cpu/isa/elementwise.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <stdatomic.h>
#include <string.h>

/* Elements of one tile of a contiguous buffer: 256 KiB per operand, so that claims cost nothing. */
enum { SPAN_ELEMENTS = 65536 };
_Static_assert(SPAN_ELEMENTS % LS_NORM_BLOCK == 0, "a tile is whole norm blocks");

typedef struct rows_job {
    const ls_elementwise_kernels *kernels;
    const ls_tensor *a, *b, *out;
    float value;
    int64_t tile_rows;
    void (*row)(const struct rows_job *job, int64_t row, int64_t first, int64_t count);
} rows_job;

static bool tensor_is_flat(const ls_tensor *t)
{
    return !t || t->stride == t->cols;
}

/* Runs job->row over tiles: whole rows, or spans of the flat buffer when every operand is
 * contiguous. */
static void tile_rows(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const rows_job *job = context;
    const ls_tensor *out = job->out;
    if (job->tile_rows == 0) {
        const int64_t first = tile * SPAN_ELEMENTS;
        job->row(job, 0, first, ls_min64(SPAN_ELEMENTS, out->rows * out->cols - first));
        return;
    }
    const int64_t begin = tile * job->tile_rows;
    const int64_t end = ls_min64(begin + job->tile_rows, out->rows);
    for (int64_t r = begin; r < end; r++) {
        job->row(job, r, 0, out->cols);
    }
}

static ls_status rows_run(ls_queue *queue, rows_job *job)
{
    job->kernels = ls_queue_kernels(queue)->elementwise;
    const ls_tensor *out = job->out;
    const bool flat = tensor_is_flat(job->a) && tensor_is_flat(job->b) && tensor_is_flat(out);
    job->tile_rows = flat ? 0 : ls_tile_rows(out->cols);
    const int64_t tiles =
        flat ? ls_ceil_div(out->rows * out->cols, SPAN_ELEMENTS) : ls_ceil_div(out->rows, job->tile_rows);
    ls_queue_run_tiles(queue, tiles, tile_rows, job);
    return LS_OK;
}

static void row_add(const rows_job *job, int64_t row, int64_t first, int64_t count)
{
    job->kernels->add(ls_tensor_row(job->a, row) + first, ls_tensor_row(job->b, row) + first,
                      ls_tensor_row(job->out, row) + first, count);
}

static void row_fill(const rows_job *job, int64_t row, int64_t first, int64_t count)
{
    job->kernels->fill(ls_tensor_row(job->out, row) + first, job->value, count);
}

static void row_scale(const rows_job *job, int64_t row, int64_t first, int64_t count)
{
    float *x = ls_tensor_row(job->out, row) + first;
    for (int64_t i = 0; i < count; i++) {
        x[i] *= job->value;
    }
}

static void row_copy(const rows_job *job, int64_t row, int64_t first, int64_t count)
{
    memcpy(ls_tensor_row(job->out, row) + first, ls_tensor_row(job->a, row) + first,
           (size_t)count * sizeof(float));
}

ls_status ls_cpu_add(ls_queue *queue, const ls_tensor *a, const ls_tensor *b, const ls_tensor *out)
{
    return rows_run(queue, &(rows_job){.a = a, .b = b, .out = out, .row = row_add});
}

ls_status ls_cpu_fill(ls_queue *queue, const ls_tensor *out, float value)
{
    return rows_run(queue, &(rows_job){.out = out, .value = value, .row = row_fill});
}

ls_status ls_cpu_scale(ls_queue *queue, const ls_tensor *x, float factor)
{
    return rows_run(queue, &(rows_job){.out = x, .value = factor, .row = row_scale});
}

ls_status ls_cpu_copy(ls_queue *queue, const ls_tensor *from, const ls_tensor *to)
{
    return rows_run(queue, &(rows_job){.a = from, .out = to, .row = row_copy});
}

typedef struct span_job {
    const ls_elementwise_kernels *kernels;
    const float *x;
    int64_t count;
    _Atomic int64_t first_bad; /* smallest index so far; count: none */
} span_job;

static void tile_find_nonfinite(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    span_job *job = context;
    const int64_t first = tile * SPAN_ELEMENTS;
    const int64_t found =
        job->kernels->find_nonfinite(job->x + first, ls_min64(SPAN_ELEMENTS, job->count - first));
    if (found < 0) {
        return;
    }
    int64_t best = atomic_load(&job->first_bad);
    while (first + found < best && !atomic_compare_exchange_weak(&job->first_bad, &best, first + found)) {
    }
}

ls_status ls_cpu_find_nonfinite(ls_queue *queue, const ls_tensor *x, int64_t *index_out)
{
    const int64_t count = x->rows * x->cols;
    span_job job = {
        .kernels = ls_queue_kernels(queue)->elementwise, .x = x->data, .count = count, .first_bad = count};
    ls_queue_run_tiles(queue, ls_ceil_div(count, SPAN_ELEMENTS), tile_find_nonfinite, &job);
    const int64_t found = atomic_load(&job.first_bad);
    *index_out = found < count ? found : -1;
    return LS_OK;
}
