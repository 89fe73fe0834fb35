// SPDX-License-Identifier: Apache-2.0
/*
 * Hashes of a flat buffer on a GPU (kernels/hash.h).
 */
#ifndef LS_COMPUTE_CUDA_HASH_H
#define LS_COMPUTE_CUDA_HASH_H

#include "base/hash.h"
#include "compute/queue.h"

struct ls_master;

LS_MUST_CHECK ls_status ls_cuda_hash_tiles(ls_queue *queue, const struct ls_master *x, int64_t count,
                                           ls_hash128 *hashes_out);

#endif
