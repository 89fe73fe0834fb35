// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/attention_sm90.h"

#include "base/assert.h"
#include "compute/cuda/device/attention_sm90.h"
#include "compute/cuda/tensor_map.h"

#include <assert.h>

enum { ALIGNMENT_BYTES = 16, BARRIER_BYTES = 256 };

/* What a section may take of the L2 cache, of which half is near to a multiprocessor. */
static const int64_t SECTION_BYTES = 12 << 20;

static int64_t round_up(int64_t count, int64_t to)
{
    return (count + to - 1) / to * to;
}

bool ls_cuda_attention_sm90_takes(const ls_queue_cuda *queue, const ls_attention *a, ls_dtype dtype)
{
    const int64_t items = round_up(a->length, LS_SM90_KEYS) / LS_SM90_KEYS * a->heads * a->sequences;
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
static ls_status head_map(const ls_queue_cuda *queue, const ls_attention *a, const ls_tensor *view,
                          uint32_t rows, ls_tensor_map *map_out)
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

/*
 * heads: those that have tiles, of one sequence. unit: how many of them read the same rows, which
 * take head_bytes. A section is a whole number of units, as many as the cache holds.
 */
static ls_sm90_shape shape_of(const ls_attention *a, int64_t heads, int64_t unit, int64_t head_bytes)
{
    const int64_t tiles = round_up(a->length, LS_SM90_KEYS) / LS_SM90_KEYS;
    const int64_t units = SECTION_BYTES / head_bytes, all = heads * a->sequences;
    const int64_t section = (units > 1 ? units : 1) * unit;
    /* A window of the whole sequence or more is none. */
    return (ls_sm90_shape){.length = (int32_t)a->length,
                           .heads = (int32_t)a->heads,
                           .kv_heads = (int32_t)a->kv_heads,
                           .sequences = (int32_t)a->sequences,
                           .window = a->window < a->length ? (int32_t)a->window : 0,
                           .tiles = (int32_t)tiles,
                           .section = (int32_t)(section < all ? section : all),
                           .work = (int32_t)(tiles * all),
                           .scale = a->scale};
}

/* Tiles of queries: the query heads of a key head read its rows of k and v. */
static ls_sm90_shape shape_of_queries(const ls_attention *a)
{
    static_assert((int)LS_SM90_QUERIES == (int)LS_SM90_KEYS, "as many tiles of queries as of keys");
    return shape_of(a, a->heads, a->heads / a->kv_heads, 2 * a->length * a->head_dim * 2);
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
    ls_sm90_forward arguments = {.shape = shape_of_queries(a), .out = out->data, .out_stride = out->stride};
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
    const int64_t stages = a->head_dim == 64 ? LS_SM90_FORWARD_STAGES_64 : LS_SM90_FORWARD_STAGES_128;
    const int64_t bytes = LS_SM90_KEYS * a->head_dim * 2 * (1 + 2 * stages) + BARRIER_BYTES;
    return ls_cuda_launch(queue, kernel, grid_of(queue, arguments.shape.work, bytes), &arguments);
}

/* ---- backward ---- */

typedef struct backward_views {
    const ls_tensor *q, *k, *v, *dout;
} backward_views;

/* Writes lse and delta for the two other kernels into the queue's scratch. */
static ls_status run_statistics(ls_queue_cuda *queue, const ls_attention *a, const ls_tensor *out,
                                const ls_tensor *lse, const ls_tensor *dout, ls_sm90_backward *backward)
{
    const int64_t padded = round_up(a->length, LS_SM90_QUERIES), count = padded * a->heads * a->sequences;
    void *memory = NULL;
    LS_TRY(ls_cuda_scratch(queue, (size_t)count * 2 * sizeof(float), &memory));
    const ls_sm90_statistics arguments = {.out = out->data,
                                          .dout = dout->data,
                                          .lse = lse->data,
                                          .out_stride = out->stride,
                                          .dout_stride = dout->stride,
                                          .lse_stride = lse->stride,
                                          .padded = padded,
                                          .length = (int32_t)a->length,
                                          .heads = (int32_t)a->heads,
                                          .sequences = (int32_t)a->sequences,
                                          .head_dim = (int32_t)a->head_dim,
                                          .lse_log2 = memory,
                                          .delta = (float *)memory + count};
    backward->lse_log2 = arguments.lse_log2;
    backward->delta = arguments.delta;
    backward->padded = padded;
    const int64_t threads = count * (a->head_dim / 8);
    const ls_cuda_kernel kernel = {.file = "attention_backward_sm90", .name = "attention_statistics_sm90"};
    const ls_cuda_grid grid = {
        .x = (uint32_t)(round_up(threads, LS_SM90_STATISTICS_THREADS) / LS_SM90_STATISTICS_THREADS),
        .threads = LS_SM90_STATISTICS_THREADS};
    return ls_cuda_launch(queue, kernel, grid, &arguments);
}

/* Maps that copy tiles of so many rows. */
static ls_status backward_maps(const ls_queue_cuda *queue, const ls_attention *a, const backward_views *views,
                               uint32_t queries, uint32_t keys, ls_sm90_backward *backward)
{
    LS_TRY(head_map(queue, a, views->q, queries, &backward->q));
    LS_TRY(head_map(queue, a, views->dout, queries, &backward->dout));
    LS_TRY(head_map(queue, a, views->k, keys, &backward->k));
    return head_map(queue, a, views->v, keys, &backward->v);
}

static ls_status run_keys(ls_queue_cuda *queue, const ls_attention *a, const backward_views *views,
                          ls_sm90_backward *backward)
{
    /* The query heads of a key head, in q and in dout. */
    const int64_t group_bytes = 2 * a->length * a->head_dim * 2 * (a->heads / a->kv_heads);
    backward->shape = shape_of(a, a->kv_heads, 1, group_bytes);
    LS_TRY(backward_maps(queue, a, views, LS_SM90_STEP_QUERIES, LS_SM90_KEYS, backward));
    const int64_t step_bytes = LS_SM90_STEP_QUERIES * (a->head_dim * 2 + 4) * 2;
    const int64_t bytes =
        2 * LS_SM90_KEYS * a->head_dim * 2 + LS_SM90_STEP_STAGES * step_bytes + BARRIER_BYTES;
    const ls_cuda_kernel kernel = {
        .file = "attention_backward_sm90",
        .name = a->head_dim == 64 ? "attention_backward_keys_sm90_64" : "attention_backward_keys_sm90_128",
    };
    return ls_cuda_launch(queue, kernel, grid_of(queue, backward->shape.work, bytes), backward);
}

static ls_status run_queries(ls_queue_cuda *queue, const ls_attention *a, const backward_views *views,
                             ls_sm90_backward *backward)
{
    backward->shape = shape_of_queries(a);
    LS_TRY(backward_maps(queue, a, views, LS_SM90_QUERIES, LS_SM90_KEYS, backward));
    const int64_t bytes = (2 + 2 * LS_SM90_KEY_STAGES) * LS_SM90_KEYS * a->head_dim * 2 + BARRIER_BYTES;
    const ls_cuda_kernel kernel = {
        .file = "attention_backward_sm90",
        .name =
            a->head_dim == 64 ? "attention_backward_queries_sm90_64" : "attention_backward_queries_sm90_128",
    };
    return ls_cuda_launch(queue, kernel, grid_of(queue, backward->shape.work, bytes), backward);
}

ls_status ls_cuda_attention_backward_sm90(ls_queue *base, const ls_attention *a, const ls_tensor *q,
                                          const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                          const ls_tensor *lse, const ls_tensor *dout, const ls_tensor *dq,
                                          const ls_tensor *dk, const ls_tensor *dv,
                                          const ls_tensor *workspace)
{
    (void)workspace;
    ls_queue_cuda *queue = ls_cuda_of(base);
    LS_ASSERT(ls_cuda_attention_sm90_takes(queue, a, q->dtype) && ls_cuda_attention_sm90_takes_view(out));
    LS_ASSERT(ls_cuda_attention_sm90_takes_view(dq) && ls_cuda_attention_sm90_takes_view(dk) &&
              ls_cuda_attention_sm90_takes_view(dv));
    const backward_views views = {.q = q, .k = k, .v = v, .dout = dout};
    ls_sm90_backward backward = {.dq = dq->data,
                                 .dk = dk->data,
                                 .dv = dv->data,
                                 .dq_stride = dq->stride,
                                 .dk_stride = dk->stride,
                                 .dv_stride = dv->stride};
    LS_TRY(run_statistics(queue, a, out, lse, dout, &backward));
    LS_TRY(run_keys(queue, a, &views, &backward));
    return run_queries(queue, a, &views, &backward);
}
