// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/matmul_sm90.h"

#include "compute/cuda/device/matmul_sm90.h"
#include "compute/cuda/tensor_map.h"

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static ls_cuda_kernel kernel_of(const ls_matmul *p)
{
    /* [A transposed][B transposed][C is bf16] */
    static const char *const names[2][2][2] = {
        {{"matmul_sm90_nn_f32", "matmul_sm90_nn_bf16"}, {"matmul_sm90_nt_f32", "matmul_sm90_nt_bf16"}},
        {{"matmul_sm90_tn_f32", "matmul_sm90_tn_bf16"}, {"matmul_sm90_tt_f32", "matmul_sm90_tt_bf16"}},
    };
    return (ls_cuda_kernel){"matmul_sm90", names[p->a.transposed][p->b.transposed][p->c_dtype == LS_BF16]};
}

/* rows, cols: of the matrix in memory. box_rows: rows of a copy, whose columns are 64. */
static ls_status map_operand(const ls_queue_cuda *queue, const ls_matmul_operand *operand, int64_t rows,
                             int64_t cols, uint32_t box_rows, ls_tensor_map *map_out)
{
    const ls_tensor_box box = {
        .data = (void *)(uintptr_t)operand->data,
        .rank = 2,
        .dims = {(uint64_t)cols, (uint64_t)rows},
        .strides = {1, (uint64_t)operand->stride},
        .box = {64, box_rows},
    };
    return ls_cuda_tensor_map(queue, &box, map_out);
}

ls_status ls_matmul_sm90_launch(ls_queue_cuda *queue, const ls_matmul *p, int64_t k_piece)
{
    const bool is_aligned = (uintptr_t)p->c % 16 == 0 && p->c_stride * ls_dtype_bytes(p->c_dtype) % 16 == 0;
    ls_matmul_sm90 arguments = {
        .c = p->c,
        .bias = p->bias,
        .c_stride = p->c_stride,
        .m = (int32_t)p->m,
        .n = (int32_t)p->n,
        .k = (int32_t)p->k,
        .accumulate = p->accumulate,
        .c_aligned = is_aligned,
        .k_piece = (int32_t)k_piece,
        .pieces = (int32_t)divide_up(p->k, k_piece),
    };
    LS_TRY(ls_cuda_enter(queue));
    if (p->a.transposed) {
        LS_TRY(map_operand(queue, &p->a, p->k, p->m, LS_MATMUL_SM90_TILE_K, &arguments.a));
    } else {
        LS_TRY(map_operand(queue, &p->a, p->m, p->k, LS_MATMUL_SM90_TILE_M, &arguments.a));
    }
    if (p->b.transposed) {
        LS_TRY(map_operand(queue, &p->b, p->n, p->k, LS_MATMUL_SM90_TILE_N, &arguments.b));
    } else {
        LS_TRY(map_operand(queue, &p->b, p->k, p->n, LS_MATMUL_SM90_TILE_K, &arguments.b));
    }
    const int64_t work =
        divide_up(p->m, LS_MATMUL_SM90_TILE_M) * divide_up(p->n, LS_MATMUL_SM90_TILE_N) * arguments.pieces;
    const ls_cuda_grid grid = {
        .x = (uint32_t)(work < queue->multiprocessors ? work : queue->multiprocessors),
        .threads = LS_MATMUL_SM90_THREADS,
        .shared_bytes = LS_MATMUL_SM90_SHARED_BYTES,
    };
    return ls_cuda_launch(queue, kernel_of(p), grid, &arguments);
}
