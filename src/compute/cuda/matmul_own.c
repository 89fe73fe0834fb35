// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/matmul_own.h"

#include "base/assert.h"
#include "compute/cuda/device/matmul.h"

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

enum {
    /* Blocks that run at once: two on each multiprocessor of an H100. A constant, never asked of
     * the device, because the pieces decide about the bits. */
    BLOCKS_AT_ONCE = 264,
    /* A piece's length along k is at least this. */
    PIECE_K_MIN = 1024,
    PIECES_MAX = 16,
    /* What a piece costs, for writing and reading its sums, in thousandths of the whole product. */
    PIECE_COST = 10,
};

/* Rounds of blocks, as thousandths of the time in which one block does the whole of k, and the cost
 * of the pieces. */
static int64_t cost_of_pieces(int64_t tiles, int64_t pieces)
{
    return 1000 * divide_up(tiles * pieces, BLOCKS_AT_ONCE) / pieces + PIECE_COST * (pieces - 1);
}

static int64_t piece_length(const ls_matmul *p, int64_t tile_m, int64_t tile_n)
{
    const int64_t tiles = divide_up(p->m, tile_m) * divide_up(p->n, tile_n);
    int64_t best = 1;
    for (int64_t pieces = 2; pieces <= PIECES_MAX && p->k / pieces >= PIECE_K_MIN; pieces++) {
        best = cost_of_pieces(tiles, pieces) < cost_of_pieces(tiles, best) ? pieces : best;
    }
    return best == 1 ? p->k : divide_up(divide_up(p->k, best), LS_MATMUL_TILE_K) * LS_MATMUL_TILE_K;
}

static int64_t own_piece_length(const ls_matmul *p)
{
    if (uses_tensor_cores(p)) {
        return piece_length(p, LS_MATMUL_TILE_M, LS_MATMUL_TILE_N);
    }
    return piece_length(p, LS_MATMUL_PLAIN_TILE, LS_MATMUL_PLAIN_TILE);
}

int64_t ls_matmul_own_pieces(const ls_matmul *p)
{
    return divide_up(p->k, own_piece_length(p));
}

/* -- launches -- */

static ls_status launch(ls_queue_cuda *queue, const ls_matmul *p, const ls_matmul_arguments *arguments)
{
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

/* Every piece to scratch memory in float32, then their sum in order. */
static ls_status run_pieces(ls_queue_cuda *queue, const ls_matmul *p, int64_t k_piece)
{
    const int64_t pieces = divide_up(p->k, k_piece);
    void *sums = NULL;
    LS_TRY(ls_cuda_scratch(queue, (size_t)(pieces * p->m * p->n) * sizeof(float), &sums));

    ls_matmul piece = *p;
    piece.c = sums;
    piece.c_dtype = LS_F32;
    piece.c_stride = p->n;
    const ls_matmul_arguments arguments = {
        .a = p->a.data,
        .b = p->b.data,
        .c = sums,
        .a_stride = p->a.stride,
        .b_stride = p->b.stride,
        .c_stride = p->n,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a_transposed = p->a.transposed,
        .b_transposed = p->b.transposed,
        .c_aligned = p->n % 4 == 0,
        .k_piece = k_piece,
    };
    LS_TRY(launch(queue, &piece, &arguments));

    const ls_matmul_combine_arguments combine = {
        .pieces = sums,
        .c = p->c,
        .bias = p->bias,
        .c_stride = p->c_stride,
        .m = p->m,
        .n = p->n,
        .piece_count = (int32_t)pieces,
        .accumulate = p->accumulate,
    };
    const ls_cuda_kernel kernel = {"matmul",
                                   p->c_dtype == LS_F32 ? "matmul_combine_f32" : "matmul_combine_bf16"};
    const ls_cuda_grid grid = {.x = (uint32_t)divide_up(p->m * p->n, 4 * LS_MATMUL_COMBINE_THREADS),
                               .threads = LS_MATMUL_COMBINE_THREADS};
    return ls_cuda_launch(queue, kernel, grid, &combine);
}

ls_status ls_matmul_own(ls_queue_cuda *queue, const ls_matmul *p)
{
    const int64_t k_piece = own_piece_length(p);
    if (k_piece < p->k) {
        return run_pieces(queue, p, k_piece);
    }
    const ls_matmul_arguments arguments = {
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
        .k_piece = p->k,
    };
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
