// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "base/assert.h"
#include "compute/cuda/device/rotary.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/cuda/vector.h"

ls_status ls_cuda_rotary(ls_queue *queue, const ls_tensor *x, int64_t heads, int64_t head_dim,
                         const ls_positions *positions, const ls_tensor *cosine, const ls_tensor *sine,
                         bool backward)
{
    const int64_t half = head_dim / 2, half_octets = (half + 7) / 8;
    const int64_t row_threads = half_octets * ((heads + LS_ROTARY_HEADS - 1) / LS_ROTARY_HEADS);
    const int64_t threads = x->rows * row_threads;
    LS_ASSERT(threads <= UINT32_MAX - LS_ROTARY_THREADS && x->cols <= INT32_MAX);
    LS_ASSERT(positions->length <= UINT32_MAX);
    if (threads == 0) {
        return LS_OK;
    }
    const ls_rotary_args args = {
        .x = x->data,
        .cosine = cosine->data,
        .sine = sine->data,
        .stride = x->stride,
        .cosine_stride = cosine->stride,
        .sine_stride = sine->stride,
        .positions_per_sequence = (uint32_t)positions->length,
        .first_position = positions->past,
        .first = positions->first,
        .heads = (int32_t)heads,
        .half = (int32_t)half,
        .half_octets = (uint32_t)half_octets,
        .row_threads = (uint32_t)row_threads,
        .threads = (uint32_t)threads,
        .direction = backward ? -1.0f : 1.0f,
        .vector =
            half % 8 == 0 && ls_cuda_is_vector(x) && ls_cuda_is_vector(cosine) && ls_cuda_is_vector(sine),
    };
    return ls_cuda_launch(
        ls_cuda_of(queue),
        x->dtype == LS_BF16 ? (ls_cuda_kernel){"rotary", "rotary_bf16"}
                            : (ls_cuda_kernel){"rotary", "rotary_f32"},
        (ls_cuda_grid){.x = (uint32_t)((threads + LS_ROTARY_THREADS - 1) / LS_ROTARY_THREADS),
                       .threads = LS_ROTARY_THREADS},
        &args);
}
