// SPDX-License-Identifier: Apache-2.0
/*
 * Hashes of a flat buffer in device memory, for comparing two results bit by bit.
 */
#ifndef LS_COMPUTE_KERNELS_HASH_H
#define LS_COMPUTE_KERNELS_HASH_H

#include "base/hash.h"
#include "compute/kernels/adamw.h"

/* Floats of a tile. */
enum { LS_HASH_TILE = 65536 };

/*
 * hashes_out[t] = XXH3 of 128 bits of the floats [t LS_HASH_TILE, (t + 1) LS_HASH_TILE) of x, of
 * which there are `count`; the last tile may be shorter. The hashes are the same on every device
 * and in both forms of x: what is hashed is the float32 value. hashes_out is any memory of the
 * host.
 *
 * Waits for the queue. Errors: those of the device.
 */
LS_MUST_CHECK ls_status ls_hash_tiles(ls_queue *queue, const ls_master *x, int64_t count,
                                      ls_hash128 *hashes_out);

#endif
