// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "base/assert.h"
#include "compute/cuda/device/activation.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/cuda/vector.h"

/* Both kernels of an op: float32, bfloat16. */
typedef struct kernel_pair {
    ls_cuda_kernel f32, bf16;
} kernel_pair;

/* Launches over rows * cols elements of the output y (or dx, or half of dgate_up). */
static ls_status launch(ls_queue *queue, const kernel_pair *kernels, ls_activation_args *args, ls_dtype dtype,
                        int64_t rows, int64_t cols)
{
    LS_ASSERT(cols <= INT32_MAX - 8);
    const int64_t row_octets = (cols + 7) / 8, octets = rows * row_octets;
    const int64_t block_octets = LS_ACTIVATION_THREADS * LS_ACTIVATION_OCTETS;
    LS_ASSERT(octets <= UINT32_MAX - block_octets);
    if (octets == 0) {
        return LS_OK;
    }
    args->cols = (int32_t)cols;
    args->row_octets = (uint32_t)row_octets;
    args->octets = (uint32_t)octets;
    return ls_cuda_launch(ls_cuda_of(queue), dtype == LS_BF16 ? kernels->bf16 : kernels->f32,
                          (ls_cuda_grid){.x = (uint32_t)((octets + block_octets - 1) / block_octets),
                                         .threads = LS_ACTIVATION_THREADS},
                          args);
}

static bool is_flat(const ls_tensor *t)
{
    return !t || t->rows == 1 || t->stride == t->cols;
}

/* gelu: x, dy (NULL in forward) and out have one shape. Without gaps between the rows it is one
 * row. */
static ls_status launch_gelu(ls_queue *queue, const kernel_pair *kernels, const ls_tensor *x,
                             const ls_tensor *dy, const ls_tensor *out)
{
    ls_activation_args args = {.x = x->data,
                               .dy = dy ? dy->data : NULL,
                               .out = out->data,
                               .x_stride = x->stride,
                               .dy_stride = dy ? dy->stride : 0,
                               .out_stride = out->stride,
                               .vector =
                                   ls_cuda_is_vector(x) && ls_cuda_is_vector(dy) && ls_cuda_is_vector(out)};
    const bool one_row = is_flat(x) && is_flat(dy) && is_flat(out) && x->rows * x->cols <= INT32_MAX - 8;
    return launch(queue, kernels, &args, x->dtype, one_row ? 1 : x->rows,
                  one_row ? x->rows * x->cols : x->cols);
}

ls_status ls_cuda_gelu_forward(ls_queue *queue, const ls_tensor *x, const ls_tensor *y)
{
    static const kernel_pair kernels = {{"activation", "gelu_forward_f32"},
                                        {"activation", "gelu_forward_bf16"}};
    return launch_gelu(queue, &kernels, x, NULL, y);
}

ls_status ls_cuda_gelu_backward(ls_queue *queue, const ls_tensor *x, const ls_tensor *dy, const ls_tensor *dx)
{
    static const kernel_pair kernels = {{"activation", "gelu_backward_f32"},
                                        {"activation", "gelu_backward_bf16"}};
    return launch_gelu(queue, &kernels, x, dy, dx);
}

/* The halves of a row of gate_up must be aligned too, not only the row. */
static bool is_vector_in_halves(const ls_tensor *t)
{
    return ls_cuda_is_vector(t) && t->cols / 2 % 8 == 0;
}

ls_status ls_cuda_swiglu_forward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *y)
{
    static const kernel_pair kernels = {{"activation", "swiglu_forward_f32"},
                                        {"activation", "swiglu_forward_bf16"}};
    ls_activation_args args = {.x = gate_up->data,
                               .out = y->data,
                               .x_stride = gate_up->stride,
                               .out_stride = y->stride,
                               .vector = is_vector_in_halves(gate_up) && ls_cuda_is_vector(y)};
    return launch(queue, &kernels, &args, y->dtype, y->rows, y->cols);
}

ls_status ls_cuda_swiglu_backward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *dy,
                                  const ls_tensor *dgate_up)
{
    static const kernel_pair kernels = {{"activation", "swiglu_backward_f32"},
                                        {"activation", "swiglu_backward_bf16"}};
    ls_activation_args args = {.x = gate_up->data,
                               .dy = dy->data,
                               .out = dgate_up->data,
                               .x_stride = gate_up->stride,
                               .dy_stride = dy->stride,
                               .out_stride = dgate_up->stride,
                               .vector = is_vector_in_halves(gate_up) && ls_cuda_is_vector(dy) &&
                                         is_vector_in_halves(dgate_up)};
    return launch(queue, &kernels, &args, dy->dtype, dy->rows, dy->cols);
}
