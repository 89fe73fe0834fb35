// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "compute/cuda/blocks.h"
#include "compute/cuda/device/hash.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/hash.h"

_Static_assert((int)LS_HASH_BLOCK_FLOATS == (int)LS_HASH_TILE, "a block of threads has one tile");
_Static_assert(sizeof(ls_hash128) == 16, "a kernel writes the two halves of a hash");

/* The hashes of all tiles of `count` floats, none of which is short. */
static ls_status hash_on_device(ls_queue *queue, const ls_master *x, int64_t count, ls_hash128 *hashes_out)
{
    const int64_t tiles = ls_ceil_div(count, LS_HASH_TILE);
    const size_t bytes = (size_t)tiles * sizeof *hashes_out;
    void *hashes;
    LS_TRY(ls_cuda_scratch(ls_cuda_of(queue), bytes, &hashes));
    const bool aligned = x->values ? ls_cuda_is_aligned(x->values, 16)
                                   : ls_cuda_is_aligned(x->weights, 8) && ls_cuda_is_aligned(x->rests, 8);
    const ls_hash_args args = {.values = x->values,
                               .weights = x->weights,
                               .rests = x->rests,
                               .count = count,
                               .aligned = aligned,
                               .hashes = hashes};
    const ls_cuda_grid grid = {.x = ls_cuda_blocks(tiles, 1), .threads = LS_HASH_THREADS};
    LS_TRY(ls_cuda_launch(ls_cuda_of(queue), (ls_cuda_kernel){"hash", "hash_tiles"}, grid, &args));
    return ls_queue_move(queue, hashes_out, hashes, bytes);
}

/* The floats of the last tile, copied to the host. */
typedef struct short_tile {
    float values[LS_HASH_FLOATS_MIN];
    uint16_t weights[LS_HASH_FLOATS_MIN];
    int16_t rests[LS_HASH_FLOATS_MIN];
} short_tile;

static ls_status fetch(ls_queue *queue, const ls_master *x, size_t count, short_tile *tile)
{
    if (x->values) {
        return ls_queue_move(queue, tile->values, x->values, count * sizeof *tile->values);
    }
    LS_TRY(ls_queue_move(queue, tile->weights, x->weights, count * sizeof *tile->weights));
    return ls_queue_move(queue, tile->rests, x->rests, count * sizeof *tile->rests);
}

ls_status ls_cuda_hash_tiles(ls_queue *queue, const ls_master *x, int64_t count, ls_hash128 *hashes_out)
{
    const int64_t rest = count % LS_HASH_TILE, short_count = rest < LS_HASH_FLOATS_MIN ? rest : 0;
    const int64_t whole = count - short_count;
    const ls_master last = ls_master_from(*x, whole);
    short_tile tile;
    if (whole > 0) {
        LS_TRY(hash_on_device(queue, x, whole, hashes_out));
    }
    const ls_status fetched = short_count > 0 ? fetch(queue, &last, (size_t)short_count, &tile) : LS_OK;
    LS_TRY(ls_queue_wait(queue)); /* even after an error: a copy into `tile` may be under way */
    LS_TRY(fetched);
    for (int64_t i = 0; i < short_count && !x->values; i++) {
        tile.values[i] = ls_master_join(tile.weights[i], tile.rests[i]);
    }
    if (short_count > 0) {
        hashes_out[whole / LS_HASH_TILE] = ls_xxh3_128(tile.values, (size_t)short_count * sizeof(float));
    }
    return LS_OK;
}
