// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/activation.h"

#include "compute/cpu/isa/activation.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

typedef struct activation_job {
    const ls_activation_kernels *kernels;
    const ls_tensor *x, *dy, *out; /* x: input or gate|up; out: y, dx or dgate|dup */
    int64_t rows, cols, tile_rows;
    void (*row)(const struct activation_job *job, int64_t row);
} activation_job;

static void row_gelu(const activation_job *job, int64_t r)
{
    job->kernels->gelu(ls_tensor_row(job->x, r), ls_tensor_row(job->out, r), job->cols);
}

static void row_gelu_backward(const activation_job *job, int64_t r)
{
    job->kernels->gelu_backward(ls_tensor_row(job->x, r), ls_tensor_row(job->dy, r),
                                ls_tensor_row(job->out, r), job->cols);
}

static void row_swiglu(const activation_job *job, int64_t r)
{
    const float *gate = ls_tensor_row(job->x, r);
    job->kernels->swiglu(gate, gate + job->cols, ls_tensor_row(job->out, r), job->cols);
}

static void row_swiglu_backward(const activation_job *job, int64_t r)
{
    const float *gate = ls_tensor_row(job->x, r);
    float *dgate = ls_tensor_row(job->out, r);
    job->kernels->swiglu_backward(gate, gate + job->cols, ls_tensor_row(job->dy, r), dgate, dgate + job->cols,
                                  job->cols);
}

static void tile_rows(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const activation_job *job = context;
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, job->rows);
    for (int64_t r = begin; r < end; r++) {
        job->row(job, r);
    }
}

static ls_status activation_run(ls_queue *queue, activation_job *job, int64_t cols)
{
    job->kernels = ls_queue_kernels(queue)->activation;
    job->rows = job->x->rows;
    job->cols = cols;
    job->tile_rows = ls_tile_rows(cols);
    ls_queue_run_tiles(queue, ls_ceil_div(job->rows, job->tile_rows), tile_rows, job);
    return LS_OK;
}

ls_status ls_cpu_gelu_forward(ls_queue *queue, const ls_tensor *x, const ls_tensor *y)
{
    return activation_run(queue, &(activation_job){.x = x, .out = y, .row = row_gelu}, y->cols);
}

ls_status ls_cpu_gelu_backward(ls_queue *queue, const ls_tensor *x, const ls_tensor *dy, const ls_tensor *dx)
{
    return activation_run(queue, &(activation_job){.x = x, .dy = dy, .out = dx, .row = row_gelu_backward},
                          dx->cols);
}

ls_status ls_cpu_swiglu_forward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *y)
{
    return activation_run(queue, &(activation_job){.x = gate_up, .out = y, .row = row_swiglu}, y->cols);
}

ls_status ls_cpu_swiglu_backward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *dy,
                                 const ls_tensor *dgate_up)
{
    return activation_run(
        queue, &(activation_job){.x = gate_up, .dy = dy, .out = dgate_up, .row = row_swiglu_backward},
        dy->cols);
}
