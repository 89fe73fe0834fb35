// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/matmul_own.h"

#include "base/assert.h"
#include "compute/cuda/device/matmul.h"
#include "compute/cuda/device/matmul_sm90.h"
#include "compute/cuda/matmul_sm90.h"

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static bool is_aligned(const void *data, int64_t stride, ls_dtype dtype)
{
    return (uintptr_t)data % 16 == 0 && stride * ls_dtype_bytes(dtype) % 16 == 0;
}

/* -- which kernel -- */

static bool uses_tensor_cores(const ls_matmul *p)
{
    return p->dtype == LS_BF16 && is_aligned(p->a.data, p->a.stride, LS_BF16) &&
           is_aligned(p->b.data, p->b.stride, LS_BF16);
}

static ls_cuda_kernel tensor_core_kernel(const ls_matmul *p)
{
    /* [A transposed][B transposed][C is bf16] */
    static const char *const names[2][2][2] = {
        {{"matmul_bf16_nn_f32", "matmul_bf16_nn_bf16"}, {"matmul_bf16_nt_f32", "matmul_bf16_nt_bf16"}},
        {{"matmul_bf16_tn_f32", "matmul_bf16_tn_bf16"}, {"matmul_bf16_tt_f32", "matmul_bf16_tt_bf16"}},
    };
    return (ls_cuda_kernel){"matmul", names[p->a.transposed][p->b.transposed][p->c_dtype == LS_BF16]};
}

static ls_cuda_kernel plain_kernel(const ls_matmul *p)
{
    if (p->dtype == LS_F32) {
        return (ls_cuda_kernel){"matmul", "matmul_plain_f32_f32"};
    }
    return (ls_cuda_kernel){"matmul",
                            p->c_dtype == LS_F32 ? "matmul_plain_bf16_f32" : "matmul_plain_bf16_bf16"};
}

/* -- pieces of the inner dimension -- */

static const ls_matmul_tiling tensor_core_tiling = {
    .tile_m = LS_MATMUL_TILE_M,
    .tile_n = LS_MATMUL_TILE_N,
    .blocks = 264,
    .tile_cost = 2,
    .launch_cost = 200,
};
static const ls_matmul_tiling plain_tiling = {
    .tile_m = LS_MATMUL_PLAIN_TILE,
    .tile_n = LS_MATMUL_PLAIN_TILE,
    .blocks = 528,
    .tile_cost = 1,
    .launch_cost = 100,
};

/* The tiles of matmul_sm90.cu. */
static const ls_matmul_tiling sm90_tiling = {
    .tile_m = LS_MATMUL_SM90_TILE_M,
    .tile_n = LS_MATMUL_SM90_TILE_N,
    .blocks = 132,
    .tile_cost = 7,
    .launch_cost = 400,
};

ls_matmul_cut ls_matmul_own_cut(const ls_matmul *p)
{
    if (!uses_tensor_cores(p)) {
        return ls_matmul_cut_of(p, &plain_tiling);
    }
    return ls_matmul_cut_of(p, p->way == LS_MATMUL_OWN_SM90 ? &sm90_tiling : &tensor_core_tiling);
}

/* -- launches -- */

/* The kernels for compute capability 9.0 read their operands by the bulk copy engine. */
static bool uses_sm90(const ls_queue_cuda *queue, const ls_matmul *p)
{
    return p->way == LS_MATMUL_OWN_SM90 && queue->capability == 90 && uses_tensor_cores(p) &&
           p->m <= LS_MATMUL_SM90_SIZE_MAX && p->n <= LS_MATMUL_SM90_SIZE_MAX &&
           p->k <= LS_MATMUL_SM90_SIZE_MAX;
}

static ls_status launch(ls_queue_cuda *queue, const ls_matmul *p, const ls_matmul_arguments *arguments)
{
    if (uses_sm90(queue, p)) {
        return ls_matmul_sm90_launch(queue, p, arguments->k_piece);
    }
    const uint32_t pieces = (uint32_t)divide_up(p->k, arguments->k_piece);
    const bool tensor_cores = uses_tensor_cores(p);
    const int64_t tile_m = tensor_cores ? LS_MATMUL_TILE_M : LS_MATMUL_PLAIN_TILE;
    const int64_t tile_n = tensor_cores ? LS_MATMUL_TILE_N : LS_MATMUL_PLAIN_TILE;
    const int64_t tiles = divide_up(p->m, tile_m) * divide_up(p->n, tile_n);
    LS_ASSERT(tiles <= INT32_MAX);
    const ls_cuda_grid grid = {
        .x = (uint32_t)tiles,
        .z = pieces,
        .threads = tensor_cores ? LS_MATMUL_THREADS : LS_MATMUL_PLAIN_THREADS,
        .shared_bytes = tensor_cores ? LS_MATMUL_SHARED_BYTES : LS_MATMUL_PLAIN_SHARED_BYTES,
    };
    return ls_cuda_launch(queue, tensor_cores ? tensor_core_kernel(p) : plain_kernel(p), grid, arguments);
}

static ls_matmul_arguments arguments_of(const ls_matmul *p, int64_t k_piece)
{
    return (ls_matmul_arguments){
        .a = p->a.data,
        .b = p->b.data,
        .c = p->c,
        .bias = p->bias,
        .a_stride = p->a.stride,
        .b_stride = p->b.stride,
        .c_stride = p->c_stride,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a_transposed = p->a.transposed,
        .b_transposed = p->b.transposed,
        .accumulate = p->accumulate,
        .c_aligned = is_aligned(p->c, p->c_stride, p->c_dtype) && (uintptr_t)p->bias % 16 == 0,
        .k_piece = k_piece,
    };
}

/* Every piece to scratch memory in float32, then their sum in order. The rest joins the pieces. */
static ls_status run_pieces(ls_queue_cuda *queue, const ls_matmul *p, const ls_matmul_cut *cut)
{
    const int64_t length = cut->rest > 0 ? cut->length + LS_MATMUL_PIECE_GRAIN : cut->length;
    const int64_t pieces = divide_up(p->k, length);
    void *sums = NULL;
    LS_TRY(ls_cuda_scratch(queue, (size_t)(pieces * p->m * p->n) * sizeof(float), &sums));
    ls_matmul to_sums = *p;
    to_sums.c = sums;
    to_sums.c_dtype = LS_F32;
    to_sums.c_stride = p->n;
    to_sums.bias = NULL;
    to_sums.accumulate = false;
    const ls_matmul_arguments arguments = arguments_of(&to_sums, length);
    LS_TRY(launch(queue, &to_sums, &arguments));
    return ls_matmul_combine(queue, p, sums, pieces);
}

ls_status ls_matmul_own(ls_queue_cuda *queue, const ls_matmul *p)
{
    const ls_matmul_cut cut = ls_matmul_own_cut(p);
    if (cut.pieces > 1) {
        return run_pieces(queue, p, &cut);
    }
    const ls_matmul_arguments arguments = arguments_of(p, p->k);
    return launch(queue, p, &arguments);
}

ls_status ls_cuda_matmul_compare(ls_queue_cuda *queue, const void *a, const void *b, size_t bytes,
                                 uint32_t *differences)
{
    LS_ASSERT(bytes % sizeof(uint32_t) == 0);
    const ls_matmul_compare_arguments arguments = {
        .a = a, .b = b, .count = (int64_t)(bytes / sizeof(uint32_t)), .differences = differences};
    const int64_t blocks = divide_up(arguments.count, 16 * LS_MATMUL_COMPARE_THREADS);
    const ls_cuda_grid grid = {.x = (uint32_t)(blocks < 1024 ? blocks : 1024),
                               .threads = LS_MATMUL_COMPARE_THREADS};
    return ls_cuda_launch(queue, (ls_cuda_kernel){"matmul", "matmul_compare"}, grid, &arguments);
}
