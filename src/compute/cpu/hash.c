// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/hash.h"

#include "compute/cpu/ops.h"
#include "compute/kernels/shape.h"

typedef struct hash_job {
    const float *values;
    int64_t count;
    ls_hash128 *hashes;
} hash_job;

static void hash_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const hash_job *job = context;
    const int64_t first = tile * LS_HASH_TILE;
    const int64_t count = ls_min64(LS_HASH_TILE, job->count - first);
    job->hashes[tile] = ls_xxh3_128(job->values + first, (size_t)count * sizeof *job->values);
}

ls_status ls_cpu_hash_tiles(ls_queue *queue, const ls_master *x, int64_t count, ls_hash128 *hashes_out)
{
    LS_ASSERT(count == 0 || x->values);
    hash_job job = {.values = x->values, .count = count, .hashes = hashes_out};
    ls_queue_run_tiles(queue, ls_ceil_div(count, LS_HASH_TILE), hash_tile, &job);
    return LS_OK;
}
