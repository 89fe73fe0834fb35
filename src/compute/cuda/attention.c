// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "base/assert.h"
#include "compute/cuda/attention_sm90.h"
#include "compute/cuda/device/attention.h"
#include "compute/cuda/queue_cuda.h"

/* How the tensor-core kernels of one head size cut their work: the numbers are the arguments of the
 * templates in device/attention.cu and device/attention_backward.cu. */
typedef struct attention_tiling {
    int64_t head_dim;
    const char *forward, *keys, *queries;
    /* Queries of a block of forward; it reads 64 keys at a time. */
    uint32_t forward_queries, forward_threads;
    /* Keys of a block of attention_keys, and queries of one of attention_queries, which read
     * `stage` rows at a time; `parts` blocks share the columns of a tile of keys. */
    uint32_t block_rows, block_threads, stage, parts;
} attention_tiling;

static const attention_tiling TILINGS[] = {
    {64, "attention_forward_64", "attention_keys_64", "attention_queries_64", 128, 128, 128, 128, 64, 1},
    {96, "attention_forward_96", "attention_keys_96", "attention_queries_96", 128, 128, 64, 128, 32, 1},
    {128, "attention_forward_128", "attention_keys_128", "attention_queries_128", 128, 128, 64, 128, 32, 1},
    {256, "attention_forward_256", "attention_keys_256", "attention_queries_256", 64, 128, 64, 128, 32, 2},
};

enum { FORWARD_KEYS = 64 };

static int64_t tiles_of(int64_t rows, int64_t tile)
{
    return (rows + tile - 1) / tile;
}

/* Bytes of `rows` rows of a tile in shared memory, as row_stride() in device/attention_tile.h. */
static uint32_t tile_bytes(uint32_t rows, int64_t head_dim)
{
    return rows * (uint32_t)(head_dim + 8) * 2;
}

static uint32_t forward_bytes(const attention_tiling *tiling)
{
    return tile_bytes(tiling->forward_queries + 2 * FORWARD_KEYS, tiling->head_dim);
}

/* Two tiles that stay, two stages of two tiles each, and two numbers for each row of a stage. */
static uint32_t backward_bytes(const attention_tiling *tiling)
{
    return tile_bytes(2 * tiling->block_rows + 4 * tiling->stage, tiling->head_dim) +
           4 * tiling->stage * (uint32_t)sizeof(float);
}

static bool is_aligned(const ls_tensor *t)
{
    const int64_t words = 16 / ls_dtype_bytes(t->dtype);
    return (uintptr_t)t->data % 16 == 0 && t->stride % words == 0;
}

/* The tensor-core kernels of a head size whose blocks, forward or backward, fit into a
 * multiprocessor, or NULL. */
static const attention_tiling *tiling_of(const ls_queue_cuda *queue, int64_t head_dim, bool backward)
{
    for (size_t i = 0; i < sizeof TILINGS / sizeof *TILINGS; i++) {
        const uint32_t bytes = backward ? backward_bytes(&TILINGS[i]) : forward_bytes(&TILINGS[i]);
        if (TILINGS[i].head_dim == head_dim && bytes <= (uint32_t)queue->shared_bytes_max) {
            return &TILINGS[i];
        }
    }
    return NULL;
}

/* Whether the tensor-core kernels can copy rows of all these tensors. */
static bool are_fast(const ls_tensor *const *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        if (tensors[i]->dtype != LS_BF16 || !is_aligned(tensors[i])) {
            return false;
        }
    }
    return true;
}

/* Whether the kernels for capability 9.0 take these tensors. They know no records: their sums
 * would depend on tiles in which nothing is visible. */
static bool sm90_takes(const ls_queue_cuda *queue, const ls_attention *a, const ls_tensor *const *tensors,
                       int count)
{
    bool takes = !a->first && ls_cuda_attention_sm90_takes(queue, a, tensors[0]->dtype);
    for (int i = 0; i < count; i++) {
        takes = takes && ls_cuda_attention_sm90_takes_view(tensors[i]);
    }
    return takes;
}

/* Scores are compared before they are scaled. */
static ls_attention_args args_of(const ls_attention *a, const ls_tensor *q, const ls_tensor *k,
                                 const ls_tensor *v, const ls_tensor *out)
{
    LS_ASSERT(a->scale > 0.0f);
    return (ls_attention_args){
        .q = q->data,
        .k = k->data,
        .v = v->data,
        .out = out->data,
        .q_stride = q->stride,
        .k_stride = k->stride,
        .v_stride = v->stride,
        .out_stride = out->stride,
        .sequences = (int32_t)a->sequences,
        .length = (int32_t)a->length,
        .keys = (int32_t)a->length,
        .heads = (int32_t)a->heads,
        .kv_heads = (int32_t)a->kv_heads,
        .head_dim = (int32_t)a->head_dim,
        .reach = a->window > 0
                     ? (int32_t)(a->window < LS_ATTENTION_NO_WINDOW ? a->window : LS_ATTENTION_NO_WINDOW)
                     : LS_ATTENTION_NO_WINDOW,
        .first = a->first,
        .scale = a->scale,
    };
}

/* Blocks of tiles x heads x sequences. */
static ls_cuda_grid grid_of(const ls_attention *a, int64_t tile, int64_t heads)
{
    LS_ASSERT(heads <= UINT16_MAX && a->sequences <= UINT16_MAX);
    return (ls_cuda_grid){
        .x = (uint32_t)tiles_of(a->length, tile), .y = (uint32_t)heads, .z = (uint32_t)a->sequences};
}

/* A kernel of attention_plain: blocks of one tile of each head. */
static ls_status plain_launch(ls_queue_cuda *queue, const char *name, const ls_attention *a, int64_t heads,
                              const void *arguments)
{
    ls_cuda_grid grid = grid_of(a, LS_ATTENTION_PLAIN_TILE, heads);
    grid.threads = LS_ATTENTION_PLAIN_THREADS;
    grid.shared_bytes = LS_ATTENTION_PLAIN_BYTES;
    return ls_cuda_launch(queue, (ls_cuda_kernel){"attention_plain", name}, grid, arguments);
}

static ls_status forward_launch(ls_queue_cuda *queue, const ls_attention *a, bool fast, ls_dtype dtype,
                                const ls_attention_args *arguments)
{
    const attention_tiling *tiling = fast ? tiling_of(queue, a->head_dim, false) : NULL;
    if (!tiling) {
        const char *name = dtype == LS_BF16 ? "attention_forward_bf16" : "attention_forward_float";
        return plain_launch(queue, name, a, a->heads, arguments);
    }
    ls_cuda_grid grid = grid_of(a, tiling->forward_queries, a->heads);
    grid.threads = tiling->forward_threads;
    grid.shared_bytes = forward_bytes(tiling);
    return ls_cuda_launch(queue, (ls_cuda_kernel){"attention", tiling->forward}, grid, arguments);
}

ls_status ls_cuda_attention_forward(ls_queue *queue, const ls_attention *a, const ls_tensor *q,
                                    const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                    const ls_tensor *lse)
{
    const ls_tensor *tensors[] = {q, k, v, out};
    if (sm90_takes(ls_cuda_of(queue), a, tensors, 4)) {
        return ls_cuda_attention_forward_sm90(queue, a, q, k, v, out, lse);
    }
    ls_attention_args arguments = args_of(a, q, k, v, out);
    arguments.lse = lse->data;
    arguments.lse_stride = lse->stride;
    return forward_launch(ls_cuda_of(queue), a, are_fast(tensors, 4), q->dtype, &arguments);
}

static int64_t padded_length(const ls_attention *a)
{
    return tiles_of(a->length, LS_ATTENTION_PADDING) * LS_ATTENTION_PADDING;
}

int64_t ls_cuda_attention_workspace(const ls_attention *a)
{
    return 2 * a->sequences * a->heads * padded_length(a);
}

/* Writes lse2 and dots. */
static ls_status dots_launch(ls_queue_cuda *queue, const ls_attention *a, ls_dtype dtype,
                             const ls_attention_gradient_args *arguments)
{
    const char *name = dtype == LS_BF16 ? "attention_dots_bf16" : "attention_dots_float";
    const int64_t blocks = padded_length(a) / 32 * a->heads * a->sequences;
    LS_ASSERT(blocks <= INT32_MAX);
    const ls_cuda_grid grid = {.x = (uint32_t)blocks, .threads = 256};
    return ls_cuda_launch(queue, (ls_cuda_kernel){"attention_plain", name}, grid, arguments);
}

static ls_status gradients_launch(ls_queue_cuda *queue, const ls_attention *a, const attention_tiling *tiling,
                                  const ls_attention_gradient_args *arguments)
{
    ls_cuda_grid grid = grid_of(a, tiling->block_rows, a->kv_heads * tiling->parts);
    grid.threads = tiling->block_threads;
    grid.shared_bytes = backward_bytes(tiling);
    LS_TRY(ls_cuda_launch(queue, (ls_cuda_kernel){"attention_backward", tiling->keys}, grid, arguments));
    grid.y = (uint32_t)a->heads;
    return ls_cuda_launch(queue, (ls_cuda_kernel){"attention_backward", tiling->queries}, grid, arguments);
}

ls_status ls_cuda_attention_backward(ls_queue *base, const ls_attention *a, const ls_tensor *q,
                                     const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                     const ls_tensor *lse, const ls_tensor *dout, const ls_tensor *dq,
                                     const ls_tensor *dk, const ls_tensor *dv, const ls_tensor *workspace)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    const ls_tensor *tensors[] = {q, k, v, dout, dq, dk, dv};
    if (sm90_takes(queue, a, tensors, 7) && ls_cuda_attention_sm90_takes_view(out)) {
        return ls_cuda_attention_backward_sm90(base, a, q, k, v, out, lse, dout, dq, dk, dv, workspace);
    }
    ls_attention_gradient_args arguments = {
        .forward = args_of(a, q, k, v, out),
        .dout = dout->data,
        .dq = dq->data,
        .dk = dk->data,
        .dv = dv->data,
        .dout_stride = dout->stride,
        .dq_stride = dq->stride,
        .dk_stride = dk->stride,
        .dv_stride = dv->stride,
        .lse2 = workspace->data,
        .dots = (float *)workspace->data + ls_cuda_attention_workspace(a) / 2,
        .padded = (int32_t)padded_length(a),
        .aligned = is_aligned(out) && is_aligned(dout) && a->head_dim * ls_dtype_bytes(out->dtype) % 16 == 0,
    };
    arguments.forward.lse = lse->data;
    arguments.forward.lse_stride = lse->stride;
    LS_TRY(dots_launch(queue, a, q->dtype, &arguments));

    const attention_tiling *tiling = are_fast(tensors, 7) ? tiling_of(queue, a->head_dim, true) : NULL;
    if (tiling) {
        return gradients_launch(queue, a, tiling, &arguments);
    }
    const bool bf16 = q->dtype == LS_BF16;
    LS_TRY(plain_launch(queue, bf16 ? "attention_keys_bf16" : "attention_keys_float", a, a->kv_heads,
                        &arguments));
    return plain_launch(queue, bf16 ? "attention_queries_bf16" : "attention_queries_float", a, a->heads,
                        &arguments);
}

static ls_status decode_launch(ls_queue_cuda *queue, const ls_attention *a, bool bf16,
                               ls_attention_decode_args *arguments)
{
    const int64_t parts = a->length * a->heads * arguments->chunks;
    void *partial = NULL;
    LS_TRY(ls_cuda_scratch(queue, (size_t)(parts * (a->head_dim + 2)) * sizeof(float), &partial));
    arguments->partial = partial;
    LS_ASSERT(a->heads <= UINT16_MAX);
    ls_cuda_grid grid = {.x = (uint32_t)arguments->chunks,
                         .y = (uint32_t)a->heads,
                         .z = (uint32_t)a->length,
                         .threads = LS_ATTENTION_DECODE_THREADS,
                         .shared_bytes = LS_ATTENTION_DECODE_BYTES};
    ls_cuda_kernel kernel = {"attention_decode", bf16 ? "attention_decode_bf16" : "attention_decode_float"};
    LS_TRY(ls_cuda_launch(queue, kernel, grid, arguments));
    kernel.name = bf16 ? "attention_combine_bf16" : "attention_combine_float";
    grid.x = grid.y;
    grid.y = grid.z;
    grid.z = 1;
    return ls_cuda_launch(queue, kernel, grid, arguments);
}

ls_status ls_cuda_attention_decode(ls_queue *base, const ls_attention *a, const ls_tensor *q,
                                   const ls_tensor *k_cache, const ls_tensor *v_cache, int64_t past,
                                   const ls_tensor *out)
{
    ls_queue_cuda *queue = ls_cuda_of(base);
    ls_attention_args forward = args_of(a, q, k_cache, v_cache, out);
    forward.past = (int32_t)past;
    forward.keys = (int32_t)(past + a->length);
    if (a->length >= LS_CUDA_DECODE_QUERIES) {
        const bool fast = are_fast((const ls_tensor *[]){q, k_cache, v_cache, out}, 4);
        return forward_launch(queue, a, fast, q->dtype, &forward);
    }
    ls_attention_decode_args arguments = {
        .forward = forward,
        .chunks = (int32_t)tiles_of(forward.keys, LS_ATTENTION_CHUNK),
        .aligned = is_aligned(q) && is_aligned(k_cache) && is_aligned(v_cache) &&
                   a->head_dim * ls_dtype_bytes(q->dtype) % 16 == 0,
    };
    return decode_launch(queue, a, q->dtype == LS_BF16, &arguments);
}
