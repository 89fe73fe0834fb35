// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "compute/cuda/blocks.h"
#include "compute/cuda/device/cross_entropy.h"
#include "compute/cuda/queue_cuda.h"

/* Shared memory that a block has beside the kept units: its own variables, and what the device
 * reserves. */
enum { OTHER_SHARED_BYTES = 2048, UNIT_BYTES = 16 };

/* Units of a row that two blocks on one multiprocessor can keep. The first pass reads a row from
 * memory, the second takes it from there and the rest from the cache. */
static int64_t kept_units(const ls_queue_cuda *q, const ls_tensor *logits)
{
    const int64_t bytes_max = q->shared_bytes_max / 2 - OTHER_SHARED_BYTES;
    const int64_t groups_max = bytes_max / (LS_CROSS_ENTROPY_THREADS * UNIT_BYTES);
    const int64_t row_bytes = logits->stride * ls_dtype_bytes(logits->dtype);
    const int64_t groups = ls_ceil_div(row_bytes, LS_CROSS_ENTROPY_THREADS * UNIT_BYTES);
    return (groups < groups_max ? groups : groups_max) * LS_CROSS_ENTROPY_THREADS;
}

ls_status ls_cuda_cross_entropy(ls_queue *queue, const ls_vocabulary_cut *cut, const ls_tensor *logits,
                                const int32_t *targets, float *losses, bool with_gradient)
{
    if (cut->pieces > 1 || cut->stage != LS_LOSS_WHOLE) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "train.tensor_cut is above 1: on a GPU it can only be 1, because the vocabulary cannot "
            "be cut there yet");
    }
    LS_ASSERT(logits->dtype == LS_F32 || logits->dtype == LS_BF16);
    ls_queue_cuda *q = ls_cuda_of(queue);
    const bool aligned =
        ls_cuda_is_aligned(logits->data, 16) && logits->stride * ls_dtype_bytes(logits->dtype) % 16 == 0;
    const ls_cross_entropy_args args = {.logits = logits->data,
                                        .cols = logits->cols,
                                        .stride = logits->stride,
                                        .targets = targets,
                                        .losses = losses,
                                        .kept_units = aligned && with_gradient ? kept_units(q, logits) : 0,
                                        .aligned = aligned,
                                        .with_gradient = with_gradient};
    if (logits->rows == 0) {
        return LS_OK;
    }
    const ls_cuda_grid grid = {.x = ls_cuda_blocks(logits->rows, 1),
                               .threads = LS_CROSS_ENTROPY_THREADS,
                               .shared_bytes = (uint32_t)(args.kept_units * UNIT_BYTES)};
    return ls_cuda_launch(q,
                          (ls_cuda_kernel){"cross_entropy", logits->dtype == LS_F32 ? "cross_entropy_f32"
                                                                                    : "cross_entropy_bf16"},
                          grid, &args);
}
