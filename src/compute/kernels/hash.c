// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/hash.h"

#include "base/assert.h"
#include "compute/backend.h"

ls_status ls_hash_tiles(ls_queue *queue, const ls_master *x, int64_t count, ls_hash128 *hashes_out)
{
    LS_ASSERT(count >= 0 && (count == 0 || (hashes_out && (x->values || (x->weights && x->rests)))));
    return queue->backend->hash_tiles(queue, x, count, hashes_out);
}
