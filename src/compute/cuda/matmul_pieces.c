// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/matmul_pieces.h"

#include "compute/cuda/device/matmul.h"

enum {
    PIECES_MAX = 16,
    PIECE_LENGTH_MIN = 1024,
    /* A cut has to save at least this many percent. */
    GAIN_MIN_PERCENT = 15,
};

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Rounds of blocks times the steps of a block, and the cost of the sums. */
static int64_t cost(const ls_matmul *p, const ls_matmul_tiling *t, int64_t pieces)
{
    const int64_t tiles = divide_up(p->m, t->tile_m) * divide_up(p->n, t->tile_n);
    const int64_t rounds = divide_up(tiles * pieces, t->blocks);
    return rounds * divide_up(p->k, pieces) +
           (pieces > 1 ? t->tile_cost * tiles * pieces + t->launch_cost : 0);
}

static int64_t cost_of_whole(const ls_matmul *p, const ls_matmul_tiling *t)
{
    ls_matmul_tiling half = *t;
    half.tile_n /= 2;
    const int64_t wide = cost(p, t, 1), narrow = cost(p, &half, 1) * t->half_tile_percent / 100;
    return t->half_tile_percent > 0 && narrow < wide ? narrow : wide;
}

ls_matmul_cut ls_matmul_cut_of(const ls_matmul *p, const ls_matmul_tiling *tiling)
{
    const int64_t whole = cost_of_whole(p, tiling);
    int64_t best = 1, best_cost = whole * (100 - GAIN_MIN_PERCENT) / 100;
    for (int64_t pieces = 2; pieces <= PIECES_MAX && p->k / pieces >= PIECE_LENGTH_MIN; pieces++) {
        const int64_t this_cost = cost(p, tiling, pieces);
        if (this_cost < best_cost) {
            best = pieces;
            best_cost = this_cost;
        }
    }
    const int64_t length = best == 1 ? p->k : p->k / best / LS_MATMUL_PIECE_GRAIN * LS_MATMUL_PIECE_GRAIN;
    return (ls_matmul_cut){.pieces = best, .length = length, .rest = p->k - best * length};
}

ls_status ls_matmul_combine(ls_queue_cuda *queue, const ls_matmul *p, const float *sums, int64_t count)
{
    const ls_matmul_combine_arguments arguments = {
        .pieces = sums,
        .c = p->c,
        .bias = p->bias,
        .c_stride = p->c_stride,
        .m = p->m,
        .n = p->n,
        .piece_count = (int32_t)count,
        .accumulate = p->accumulate,
    };
    const ls_cuda_kernel kernel = {"matmul",
                                   p->c_dtype == LS_F32 ? "matmul_combine_f32" : "matmul_combine_bf16"};
    const ls_cuda_grid grid = {
        .x = (uint32_t)divide_up(p->m * divide_up(p->n, 4), LS_MATMUL_COMBINE_THREADS),
        .threads = LS_MATMUL_COMBINE_THREADS,
    };
    return ls_cuda_launch(queue, kernel, grid, &arguments);
}
