// SPDX-License-Identifier: Apache-2.0
/*
 * Hashes of pieces of a flat buffer (model/layout.h), for comparing two results bit by bit.
 *
 * A piece is cut into tiles of LS_HASH_TILE floats from its start; its hash is XXH3-128 over the
 * hashes of its tiles, so it depends on the floats only, not on the number of threads. Padding is
 * included; it is zero everywhere.
 *
 * A hasher allocates in init only. Used by one thread.
 */
#ifndef LS_EXECUTION_INTEGRITY_FLAT_HASH_H
#define LS_EXECUTION_INTEGRITY_FLAT_HASH_H

#include "compute/kernels/hash.h"
#include "model/layout.h"

/* Floats [offset, offset + count) of a flat buffer. */
typedef struct ls_flat_piece {
    int64_t offset, count;
} ls_flat_piece;

typedef struct ls_flat_hasher {
    ls_flat_piece *pieces;
    int64_t *first_tile; /* piece_count + 1 */
    uint32_t piece_count;
    ls_hash128 *tiles;
    ls_status status; /* of the last run: an error of the device, and hashes that mean nothing */
} ls_flat_hasher;

/* pieces: copied. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_flat_hasher_init(ls_flat_hasher *hasher, const ls_flat_piece *pieces,
                                            uint32_t piece_count);
/* One piece per bucket of the layout. */
LS_MUST_CHECK ls_status ls_flat_hasher_init_buckets(ls_flat_hasher *hasher, const ls_layout *layout);
void ls_flat_hasher_release(ls_flat_hasher *hasher); /* zeroes it; a zeroed one is allowed */

/* flat: float32, or parameters as weight and rest. hashes_out: one per piece. An error of the
 * device is kept in hasher->status. */
void ls_flat_hasher_run(ls_flat_hasher *hasher, ls_queue *queue, const ls_master *flat,
                        ls_hash128 *hashes_out);

/* "embeddings", "layer 3", "final norm" or "final norm and head": the contents of bucket `bucket`.
 * text_out: at least 32 bytes. */
const char *ls_bucket_name(const ls_layout *layout, uint32_t bucket, char text_out[32]);

#endif
