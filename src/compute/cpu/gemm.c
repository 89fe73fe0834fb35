// SPDX-License-Identifier: Apache-2.0
/* Cuts a matrix product into tiles, each computed by one thread (cpu/isa/gemm.c). The tiles change
 * only the speed, never the bits. */
#include "compute/cpu/gemm.h"

#include "base/assert.h"
#include "compute/cpu/isa/gemm.h"
#include "compute/cpu/queue_cpu.h"

#include <math.h>

/*
 * Tile sizes, which were measured (docs/design/001-own-gemm.md). A packed block of B takes 1.5 KB
 * of the L2 cache per column. A transposed A is packed again for every strip of columns, so its
 * strips are wider.
 */
enum {
    COLUMNS_MAX = 192,
    COLUMNS_MAX_TRANSPOSED = 384,
    /* Packing a column of B costs as much as the multiply-adds of this many more rows. */
    PACK_B_ROWS = 24,
    /* Fetching or packing a row of A costs as much as the multiply-adds of this many more
     * columns. */
    FETCH_A_COLUMNS = 4,
    PACK_A_COLUMNS = 16,
    DOWN_MAX_PER_THREAD = 16,
    /* Tiles of a product that reads B once. */
    ONCE_PER_THREAD = 16,
};

typedef struct tiling {
    const ls_gemm *gemm;
    const ls_gemm_kernels *kernels;
    ls_queue *queue;
    /* Of a tile. */
    int64_t rows, columns;
    /* Numbers of tiles. */
    int64_t down, across;
    /* Tiles are taken from as many strips as there are threads, in turn. */
    int64_t strips;
} tiling;

static int64_t divide_up(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The size of one of `parts` equal parts of `size`, rounded up to whole grains. */
static int64_t part_of(int64_t size, int64_t parts, int64_t grain)
{
    return divide_up(divide_up(size, parts), grain) * grain;
}

/* Time of the product in multiply-adds of one thread: full rounds of tiles, and a quarter of a tile
 * because threads don't end together. */
static double tiling_cost(const tiling *t)
{
    const double threads = ls_queue_threads(t->queue);
    const double rounds = ceil((double)(t->down * t->across) / threads) + 0.25;
    const double a_columns = t->gemm->a.transposed ? PACK_A_COLUMNS : FETCH_A_COLUMNS;
    return rounds * ((double)t->rows + PACK_B_ROWS) * ((double)t->columns + a_columns);
}

/* So few rows that B is read once and waited for: tiles are narrow, so that threads end together. A
 * kernel fetches what follows its tile, which is of use to the thread that computes that, too. */
static tiling tiling_once(ls_queue *queue, const ls_gemm *gemm)
{
    const ls_gemm_kernels *kernels = ls_queue_kernels(queue)->gemm;
    const int64_t threads = ls_queue_threads(queue);
    tiling t = {.gemm = gemm, .kernels = kernels, .queue = queue, .rows = gemm->m, .down = 1};
    t.columns = min64(part_of(gemm->n, ONCE_PER_THREAD * threads, kernels->column_grain), COLUMNS_MAX);
    t.across = divide_up(gemm->n, t.columns);
    t.strips = threads;
    return t;
}

/* The cheapest of the few dozen ways to cut C. */
static tiling tiling_choose(ls_queue *queue, const ls_gemm *gemm)
{
    const ls_gemm_kernels *kernels = ls_queue_kernels(queue)->gemm;
    if (gemm->m <= kernels->row_grain && gemm->b.transposed && !gemm->a.transposed) {
        return tiling_once(queue, gemm);
    }
    const int64_t columns_max = gemm->a.transposed ? COLUMNS_MAX_TRANSPOSED : COLUMNS_MAX;
    const int64_t down_max = DOWN_MAX_PER_THREAD * (int64_t)ls_queue_threads(queue);
    tiling best = {0};
    double best_cost = 0.0;
    for (int64_t across = divide_up(gemm->n, columns_max); across <= 4 * divide_up(gemm->n, columns_max);
         across++) {
        tiling t = {.gemm = gemm, .kernels = kernels, .queue = queue, .strips = 1};
        t.columns = part_of(gemm->n, across, kernels->column_grain);
        t.across = divide_up(gemm->n, t.columns);
        for (int64_t down = 1; down <= down_max; down++) {
            t.rows = part_of(gemm->m, down, kernels->row_grain);
            t.down = divide_up(gemm->m, t.rows);
            const double cost = tiling_cost(&t);
            if (best.down == 0 || cost < best_cost) {
                best = t;
                best_cost = cost;
            }
            if (t.rows == kernels->row_grain) {
                break;
            }
        }
    }
    return best;
}

/* Claims alternate between threads that are equally fast, so each goes through a strip. */
static int64_t tile_of_claim(const tiling *t, int64_t claim)
{
    const int64_t tiles = t->down * t->across, strip = claim % t->strips;
    return strip * (tiles / t->strips) + min64(strip, tiles % t->strips) + claim / t->strips;
}

static void run_tile(void *context, int64_t claim, uint32_t worker)
{
    const tiling *t = context;
    const int64_t tile = tile_of_claim(t, claim);
    const int64_t row = tile / t->across * t->rows, column = tile % t->across * t->columns;
    const ls_gemm_rect rect = {.row = row,
                               .rows = min64(t->gemm->m - row, t->rows),
                               .column = column,
                               .columns = min64(t->gemm->n - column, t->columns)};
    const size_t bytes = (size_t)t->kernels->scratch_floats(t->columns) * sizeof(float);
    t->kernels->tile(t->gemm, &rect, ls_queue_scratch(t->queue, worker, bytes));
}

ls_status ls_gemm_run(ls_queue *queue, const ls_gemm *gemm)
{
    LS_ASSERT(gemm->m >= 1 && gemm->n >= 1);
    LS_ASSERT(gemm->range_count >= 1 && gemm->range_count <= LS_GEMM_RANGES_MAX);
    for (uint32_t i = 0; i < gemm->range_count; i++) {
        LS_ASSERT(gemm->range[i].count >= 1);
    }
    tiling t = tiling_choose(queue, gemm);
    LS_ASSERT(t.kernels);
    LS_TRY(ls_queue_reserve_scratch(queue, (size_t)t.kernels->scratch_floats(t.columns) * sizeof(float)));
    ls_queue_run_tiles(queue, t.down * t.across, run_tile, &t);
    return LS_OK;
}
