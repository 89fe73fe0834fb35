// SPDX-License-Identifier: Apache-2.0
/* Matrix products as fixed tiles over single-threaded OpenBLAS. */
#include "compute/cpu/gemm.h"

#include "base/assert.h"
#include "base/log.h"

#include <cblas.h>
#include <pthread.h>

/* A tile is one call of the BLAS, so these sizes are part of the determinism class. */
enum { TILE_ROWS = 256, TILE_COLUMNS = 384 };

/*
 * One call at a time: the serial build of OpenBLAS 0.3.21 hands the same packing buffer to two threads now
 * and then, and both products come out wrong (seen by tests/compute/test_linear.c with 2 threads).
 */
static pthread_mutex_t blas_lock = PTHREAD_MUTEX_INITIALIZER;

/* Debian chooses among the serial, pthread and openmp builds when the program starts, not when it is linked.
 */
static void blas_check_variant(void)
{
    const int parallel = openblas_get_parallel();
    if (parallel == 0) {
        return;
    }
    openblas_set_num_threads(1);
    ls_log_warn("the %s build of OpenBLAS is loaded (%s); it is held to one thread, as the pool has its own: "
                "install libopenblas0-serial, or choose it with update-alternatives, to be sure",
                parallel == 1 ? "pthread" : "openmp", openblas_get_config());
}

static int64_t tiles_across(int64_t size, int64_t tile)
{
    return (size + tile - 1) / tile;
}

static const float *operand_at(const ls_gemm_operand *operand, int64_t row, int64_t column)
{
    return operand->transposed ? operand->data + column * operand->stride + row
                               : operand->data + row * operand->stride + column;
}

static void add_bias(float *c, int64_t stride, const float *bias, int64_t rows, int64_t columns)
{
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++) {
            c[row * stride + column] += bias[column];
        }
    }
}

static void gemm_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const ls_gemm *g = context;
    const int64_t across = tiles_across(g->n, TILE_COLUMNS);
    const int64_t row = tile / across * TILE_ROWS, column = tile % across * TILE_COLUMNS;
    const int64_t rows = g->m - row < TILE_ROWS ? g->m - row : TILE_ROWS;
    const int64_t columns = g->n - column < TILE_COLUMNS ? g->n - column : TILE_COLUMNS;
    float *c = g->c + row * g->c_stride + column;

    for (uint32_t i = 0; i < g->range_count; i++) {
        const ls_gemm_range range = g->range[i];
        pthread_mutex_lock(&blas_lock);
        cblas_sgemm(CblasRowMajor, g->a.transposed ? CblasTrans : CblasNoTrans,
                    g->b.transposed ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, (int)range.count,
                    1.0f, operand_at(&g->a, row, range.first), (int)g->a.stride,
                    operand_at(&g->b, range.first, column), (int)g->b.stride,
                    i > 0 || g->accumulate ? 1.0f : 0.0f, c, (int)g->c_stride);
        pthread_mutex_unlock(&blas_lock);
    }
    if (g->bias) {
        add_bias(c, g->c_stride, g->bias + column, rows, columns);
    }
}

void ls_gemm_run(ls_queue *queue, const ls_gemm *gemm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, blas_check_variant);
    LS_ASSERT(gemm->range_count >= 1 && gemm->range_count <= LS_GEMM_RANGES_MAX);
    ls_gemm copy = *gemm;
    const int64_t tiles = tiles_across(copy.m, TILE_ROWS) * tiles_across(copy.n, TILE_COLUMNS);
    ls_queue_run_tiles(queue, tiles, gemm_tile, &copy);
}
