// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/attention_sm90.h"

#include "base/assert.h"
#include "compute/cuda/device/attention_sm90.h"
#include "compute/cuda/tensor_map.h"

enum { ALIGNMENT_BYTES = 16, STAGES = 2, BARRIER_BYTES = 256 };

bool ls_cuda_attention_sm90_takes(const ls_queue_cuda *queue, const ls_attention *a, ls_dtype dtype)
{
    const int64_t items = (a->length + LS_SM90_KEYS) / LS_SM90_KEYS * a->heads * a->sequences;
    return queue->capability == 90 && dtype == LS_BF16 && (a->head_dim == 64 || a->head_dim == 128) &&
           a->scale > 0.0f && items < INT32_MAX / 2;
}

bool ls_cuda_attention_sm90_takes_view(const ls_tensor *view)
{
    return !view || !view->data ||
           (view->dtype == LS_BF16 && (uintptr_t)view->data % ALIGNMENT_BYTES == 0 &&
            view->stride * 2 % ALIGNMENT_BYTES == 0);
}

/* A map of the heads of a view that copies `rows` rows of 64 columns. */
static ls_status head_map(const ls_queue_cuda *queue, const ls_attention *a, const ls_tensor *view, uint32_t rows,
                          ls_tensor_map *map_out)
{
    LS_ASSERT(ls_cuda_attention_sm90_takes_view(view));
    const uint64_t dim = (uint64_t)a->head_dim, stride = (uint64_t)view->stride, length = (uint64_t)a->length;
    const ls_tensor_box box = {.data = view->data,
                               .rank = 4,
                               .dims = {dim, length, (uint64_t)view->cols / dim, (uint64_t)a->sequences},
                               .strides = {1, stride, dim, length * stride},
                               .box = {64, rows, 1, 1}};
    return ls_cuda_tensor_map(queue, &box, map_out);
}

static ls_sm90_shape shape_of(const ls_attention *a, int64_t tiles, int64_t work)
{
    /* A window of the whole sequence or more is none. */
    return (ls_sm90_shape){.length = (int32_t)a->length,
                           .heads = (int32_t)a->heads,
                           .kv_heads = (int32_t)a->kv_heads,
                           .sequences = (int32_t)a->sequences,
                           .window = a->window < a->length ? (int32_t)a->window : 0,
                           .tiles = (int32_t)tiles,
                           .work = (int32_t)work,
                           .scale = a->scale};
}

/* One block per multiprocessor, which stays; no more than there is work. */
static ls_cuda_grid grid_of(const ls_queue_cuda *queue, int64_t work, int64_t shared_bytes)
{
    return (ls_cuda_grid){.x = (uint32_t)(work < queue->multiprocessors ? work : queue->multiprocessors),
                          .threads = LS_SM90_THREADS,
                          .shared_bytes = (uint32_t)shared_bytes};
}

ls_status ls_cuda_attention_forward_sm90(ls_queue *base, const ls_attention *a, const ls_tensor *q,
                                         const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                         const ls_tensor *lse)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    LS_ASSERT(ls_cuda_attention_sm90_takes(queue, a, q->dtype) && ls_cuda_attention_sm90_takes_view(out));
    const int64_t tiles = (a->length + LS_SM90_QUERIES - 1) / LS_SM90_QUERIES, work = tiles * a->heads * a->sequences;
    ls_sm90_forward arguments = {.shape = shape_of(a, tiles, work), .out = out->data, .out_stride = out->stride};
    if (lse && lse->data) {
        arguments.lse = lse->data;
        arguments.lse_stride = lse->stride;
    }
    LS_TRY(head_map(queue, a, q, LS_SM90_QUERIES, &arguments.q));
    LS_TRY(head_map(queue, a, k, LS_SM90_KEYS, &arguments.k));
    LS_TRY(head_map(queue, a, v, LS_SM90_KEYS, &arguments.v));
    const ls_cuda_kernel kernel = {
        .file = "attention_sm90",
        .name = a->head_dim == 64 ? "attention_forward_sm90_64" : "attention_forward_sm90_128",
    };
    const int64_t tile_bytes = LS_SM90_KEYS * a->head_dim * 2;
    return ls_cuda_launch(queue, kernel, grid_of(queue, work, tile_bytes * (1 + 2 * STAGES) + BARRIER_BYTES),
                          &arguments);
}

ls_status ls_cuda_attention_backward_sm90(ls_queue *base, const ls_attention *a, const ls_tensor *q,
                                          const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                          const ls_tensor *lse, const ls_tensor *dout, const ls_tensor *dq,
                                          const ls_tensor *dk, const ls_tensor *dv, const ls_tensor *workspace)
{
    (void)workspace;
    (void)base, (void)a, (void)q, (void)k, (void)v, (void)out, (void)lse, (void)dout, (void)dq, (void)dk, (void)dv;
    return LS_ERR_UNSUPPORTED;
}
