// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/rotary.h"

#include "compute/cpu/isa/rotary.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

typedef struct rotary_job {
    const ls_rotary_kernels *kernels;
    const ls_tensor *x, *cosine, *sine;
    const ls_positions *positions;
    int64_t heads, head_dim, tile_rows;
    float direction;
} rotary_job;

static void tile_rotate(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const rotary_job *job = context;
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, job->x->rows);
    for (int64_t r = begin; r < end; r++) {
        const int64_t position = ls_position_of(job->positions, r);
        job->kernels->rotate(ls_tensor_row(job->x, r), job->heads, job->head_dim / 2,
                             ls_tensor_row(job->cosine, position), ls_tensor_row(job->sine, position),
                             job->direction);
    }
}

ls_status ls_cpu_rotary(ls_queue *queue, const ls_tensor *x, int64_t heads, int64_t head_dim,
                        const ls_positions *positions, const ls_tensor *cosine, const ls_tensor *sine,
                        bool backward)
{
    rotary_job job = {.kernels = ls_queue_kernels(queue)->rotary,
                      .x = x,
                      .cosine = cosine,
                      .sine = sine,
                      .heads = heads,
                      .head_dim = head_dim,
                      .positions = positions,
                      .tile_rows = ls_tile_rows(x->cols),
                      .direction = backward ? -1.0f : 1.0f};
    ls_queue_run_tiles(queue, ls_ceil_div(x->rows, job.tile_rows), tile_rotate, &job);
    return LS_OK;
}
