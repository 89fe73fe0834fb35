// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/cross_entropy.h"

#include "compute/cpu/isa/cross_entropy.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <string.h>

typedef struct cross_entropy_job {
    const ls_cross_entropy_kernels *kernels;
    const ls_tensor *logits;
    const int32_t *targets;
    float *losses;
    bool with_gradient;
    int64_t tile_rows;
} cross_entropy_job;

static void row_run(const cross_entropy_job *job, int64_t r)
{
    const int64_t vocab = job->logits->cols;
    float *logits = ls_tensor_row(job->logits, r);
    const int32_t target = job->targets[r];
    if (target != LS_TARGET_IGNORED) {
        LS_ASSERT(target >= 0 && target < vocab);
        job->losses[r] = job->kernels->row(logits, vocab, target, job->with_gradient);
        return;
    }
    job->losses[r] = 0.0f;
    if (job->with_gradient) {
        memset(logits, 0, (size_t)vocab * sizeof *logits);
    }
}

static void tile_rows(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const cross_entropy_job *job = context;
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, job->logits->rows);
    for (int64_t r = begin; r < end; r++) {
        row_run(job, r);
    }
}

ls_status ls_cpu_cross_entropy(ls_queue *queue, const ls_tensor *logits, const int32_t *targets,
                               float *losses, bool with_gradient)
{
    cross_entropy_job job = {.kernels = ls_queue_kernels(queue)->cross_entropy,
                             .logits = logits,
                             .targets = targets,
                             .losses = losses,
                             .with_gradient = with_gradient,
                             .tile_rows = ls_tile_rows(logits->cols)};
    ls_queue_run_tiles(queue, ls_ceil_div(logits->rows, job.tile_rows), tile_rows, &job);
    return LS_OK;
}
