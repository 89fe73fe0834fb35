// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/cross_entropy.h"

#include "base/pieces.h"
#include "compute/cpu/isa/cross_entropy.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <string.h>

typedef struct cross_entropy_job {
    const ls_cross_entropy_kernels *kernels;
    const ls_vocabulary_cut *cut;
    const ls_tensor *logits;
    const int32_t *targets;
    float *losses;
    bool with_gradient;
    int64_t tile_rows;
} cross_entropy_job;

/* What the stages hand on for a row. */
typedef struct row_statistics {
    float top, sum, target_logit;
} row_statistics;

/* The sum over the pieces of a row, in the tree over them. */
static float sum_pieces(const cross_entropy_job *job, float *logits, float top)
{
    float sums[LS_PIECES_MAX];
    const uint32_t pieces = job->cut->pieces;
    const int64_t vocab = job->logits->cols;
    for (uint32_t i = 0; i < pieces; i++) {
        const int64_t first = ls_piece_first(vocab, pieces, i), end = ls_piece_first(vocab, pieces, i + 1);
        sums[i] = job->kernels->sum_exp(logits + first, end - first, top, job->with_gradient);
    }
    for (uint32_t step = 1; step < pieces; step *= 2) {
        for (uint32_t i = 0; i + step < pieces; i += 2 * step) {
            sums[i] += sums[i + step];
        }
    }
    return sums[0];
}

static void row_sums(const cross_entropy_job *job, float *logits, int32_t target, row_statistics *row)
{
    LS_ASSERT(target >= 0 ? target < job->logits->cols
                          : target == LS_TARGET_ELSEWHERE && job->cut->stage != LS_LOSS_WHOLE);
    row->target_logit = target == LS_TARGET_ELSEWHERE ? -0.0f : logits[target];
    row->sum = sum_pieces(job, logits, row->top);
}

static void row_end(const cross_entropy_job *job, int64_t r, const row_statistics *row)
{
    float *logits = ls_tensor_row(job->logits, r);
    job->losses[r] = job->kernels->loss(row->sum, row->top, row->target_logit);
    if (!job->with_gradient) {
        return;
    }
    job->kernels->scale(logits, job->logits->cols, 1.0f / row->sum);
    if (job->targets[r] != LS_TARGET_ELSEWHERE) {
        logits[job->targets[r]] -= 1.0f;
    }
}

static void ignored_row(const cross_entropy_job *job, int64_t r)
{
    job->losses[r] = 0.0f;
    if (job->with_gradient) {
        memset(ls_tensor_row(job->logits, r), 0, (size_t)job->logits->cols * sizeof(float));
    }
}

static void row_whole(const cross_entropy_job *job, int64_t r)
{
    float *logits = ls_tensor_row(job->logits, r);
    row_statistics row = {.top = job->kernels->top(logits, job->logits->cols)};
    row_sums(job, logits, job->targets[r], &row);
    row_end(job, r, &row);
}

/* One stage of a row of a part of the vocabulary. */
static void row_stage(const cross_entropy_job *job, int64_t r)
{
    const ls_tensor *statistics = &job->cut->statistics;
    float *top = ls_tensor_row(statistics, 0) + r, *sum = ls_tensor_row(statistics, 1) + r;
    float *target_logit = ls_tensor_row(statistics, 2) + r, *logits = ls_tensor_row(job->logits, r);
    const bool ignored = job->targets[r] == LS_TARGET_IGNORED;
    row_statistics row = {.top = ignored ? 0.0f : *top};
    switch (job->cut->stage) {
    case LS_LOSS_WHOLE:
    case LS_LOSS_TOPS:
        *top = ignored ? 0.0f : job->kernels->top(logits, job->logits->cols);
        break;
    case LS_LOSS_SUMS:
        if (!ignored) {
            row_sums(job, logits, job->targets[r], &row);
        }
        *sum = row.sum;
        *target_logit = row.target_logit;
        break;
    case LS_LOSS_END:
        if (!ignored) {
            row.sum = *sum;
            row.target_logit = *target_logit;
            row_end(job, r, &row);
        } else {
            ignored_row(job, r);
        }
        break;
    }
}

static void tile_rows(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const cross_entropy_job *job = context;
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, job->logits->rows);
    for (int64_t r = begin; r < end; r++) {
        if (job->cut->stage != LS_LOSS_WHOLE) {
            row_stage(job, r);
        } else if (job->targets[r] == LS_TARGET_IGNORED) {
            ignored_row(job, r);
        } else {
            row_whole(job, r);
        }
    }
}

ls_status ls_cpu_cross_entropy(ls_queue *queue, const ls_vocabulary_cut *cut, const ls_tensor *logits,
                               const int32_t *targets, float *losses, bool with_gradient)
{
    cross_entropy_job job = {.kernels = ls_queue_kernels(queue)->cross_entropy,
                             .cut = cut,
                             .logits = logits,
                             .targets = targets,
                             .losses = losses,
                             .with_gradient = with_gradient,
                             .tile_rows = ls_tile_rows(logits->cols)};
    ls_queue_run_tiles(queue, ls_ceil_div(logits->rows, job.tile_rows), tile_rows, &job);
    return LS_OK;
}
