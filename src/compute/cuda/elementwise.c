// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "compute/cuda/blocks.h"
#include "compute/cuda/device/elementwise.h"
#include "compute/cuda/queue_cuda.h"

/* The shape of `t`, one of operands of which all are flat or not, and all aligned or not. */
static ls_elementwise_shape shape_of(const ls_tensor *t, int64_t unit_elements, bool flat, bool aligned)
{
    ls_elementwise_shape shape = {.rows = t->rows, .cols = t->cols, .aligned = aligned};
    if (flat) {
        shape.rows = 1;
        shape.cols = t->rows * t->cols;
    }
    shape.row_units = ls_ceil_div(shape.cols, unit_elements);
    shape.units = shape.rows * shape.row_units;
    return shape;
}

static ls_status launch(ls_queue *queue, const char *name, const ls_elementwise_shape *shape,
                        const void *arguments)
{
    const uint32_t blocks = ls_cuda_blocks(shape->units, LS_ELEMENTWISE_THREADS * LS_ELEMENTWISE_UNITS);
    if (blocks == 0) {
        return LS_OK;
    }
    return ls_cuda_launch(ls_cuda_of(queue), (ls_cuda_kernel){"elementwise", name},
                          (ls_cuda_grid){.x = blocks, .threads = LS_ELEMENTWISE_THREADS}, arguments);
}

ls_status ls_cuda_add(ls_queue *queue, const ls_tensor *a, const ls_tensor *b, const ls_tensor *out)
{
    LS_ASSERT(a->dtype == out->dtype && b->dtype == out->dtype);
    LS_ASSERT(out->dtype == LS_F32 || out->dtype == LS_BF16);
    const bool flat = ls_cuda_is_flat(a) && ls_cuda_is_flat(b) && ls_cuda_is_flat(out);
    const bool aligned = ls_cuda_rows_are_aligned(a, 16) && ls_cuda_rows_are_aligned(b, 16) &&
                         ls_cuda_rows_are_aligned(out, 16);
    const ls_add_args args = {.shape = shape_of(out, 16 / ls_dtype_bytes(out->dtype), flat, aligned),
                              .a = a->data,
                              .b = b->data,
                              .out = out->data,
                              .a_stride = a->stride,
                              .b_stride = b->stride,
                              .out_stride = out->stride};
    return launch(queue, out->dtype == LS_F32 ? "add_f32" : "add_bf16", &args.shape, &args);
}

/* Kernel `f32` or `bf16` on the elements of `out`. */
static ls_status launch_with_value(ls_queue *queue, const char *f32, const char *bf16, const ls_tensor *out,
                                   float value)
{
    LS_ASSERT(out->dtype == LS_F32 || out->dtype == LS_BF16);
    const ls_fill_args args = {.shape = shape_of(out, 16 / ls_dtype_bytes(out->dtype), ls_cuda_is_flat(out),
                                                 ls_cuda_rows_are_aligned(out, 16)),
                               .out = out->data,
                               .out_stride = out->stride,
                               .value = value};
    return launch(queue, out->dtype == LS_F32 ? f32 : bf16, &args.shape, &args);
}

ls_status ls_cuda_fill(ls_queue *queue, const ls_tensor *out, float value)
{
    return launch_with_value(queue, "fill_f32", "fill_bf16", out, value);
}

ls_status ls_cuda_scale(ls_queue *queue, const ls_tensor *x, float factor)
{
    return launch_with_value(queue, "scale_f32", "scale_bf16", x, factor);
}

static const char *copy_kernel(ls_dtype from, ls_dtype to)
{
    if (from == LS_F32 && to == LS_BF16) {
        return "f32_to_bf16";
    }
    if (from == LS_BF16 && to == LS_F32) {
        return "bf16_to_f32";
    }
    LS_ASSERT(from == to && (ls_dtype_bytes(to) == 2 || ls_dtype_bytes(to) == 4));
    return ls_dtype_bytes(to) == 2 ? "copy_2_bytes" : "copy_4_bytes";
}

ls_status ls_cuda_copy(ls_queue *queue, const ls_tensor *from, const ls_tensor *to)
{
    /* A unit is 16 bytes of the wider type, so it may be 8 bytes of the other. */
    const int64_t from_bytes = ls_dtype_bytes(from->dtype), to_bytes = ls_dtype_bytes(to->dtype);
    const int64_t unit = 16 / (from_bytes > to_bytes ? from_bytes : to_bytes);
    const bool aligned = ls_cuda_rows_are_aligned(from, (uint32_t)(unit * from_bytes)) &&
                         ls_cuda_rows_are_aligned(to, (uint32_t)(unit * to_bytes));
    const bool flat = ls_cuda_is_flat(from) && ls_cuda_is_flat(to);
    const ls_copy_args args = {.shape = shape_of(to, unit, flat, aligned),
                               .from = from->data,
                               .to = to->data,
                               .from_stride = from->stride,
                               .to_stride = to->stride};
    return launch(queue, copy_kernel(from->dtype, to->dtype), &args.shape, &args);
}

ls_status ls_cuda_find_nonfinite(ls_queue *queue, const ls_tensor *x, int64_t *index_out)
{
    LS_ASSERT(x->dtype == LS_F32 || x->dtype == LS_BF16);
    ls_queue_cuda *q = ls_cuda_of(queue);
    unsigned long long lowest = ~0ull;
    void *on_device;
    LS_TRY(ls_cuda_scratch(q, sizeof lowest, &on_device));
    const ls_find_args args = {
        .shape =
            shape_of(x, 16 / ls_dtype_bytes(x->dtype), ls_cuda_is_flat(x), ls_cuda_rows_are_aligned(x, 16)),
        .x = x->data,
        .stride = x->stride,
        .lowest = on_device,
    };
    CU_TRY(q->driver, cuMemsetD8Async, (CUdeviceptr)on_device, 0xff, sizeof lowest, q->stream);
    LS_TRY(
        launch(queue, x->dtype == LS_F32 ? "find_nonfinite_f32" : "find_nonfinite_bf16", &args.shape, &args));
    LS_TRY(ls_queue_move(queue, &lowest, on_device, sizeof lowest));
    LS_TRY(ls_queue_wait(queue));
    *index_out = lowest == ~0ull ? -1 : (int64_t)lowest;
    return LS_OK;
}
