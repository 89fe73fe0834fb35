// SPDX-License-Identifier: Apache-2.0
/*
 * Guard: hashes of the state between two updates.
 *
 * Between two updates parameters and moments must not change: the forward and backward passes only
 * read them. The guard hashes them right after an update and again right before the next one; a
 * difference means a stray write or failing memory. Each rank guards the slices it owns, so
 * together the ranks guard the one copy of the host. Frozen parameters have no moments and no
 * update: they are hashed once.
 *
 * Cost: two passes over 12 bytes per parameter in each guarded step.
 */
#ifndef LS_EXECUTION_INTEGRITY_GUARD_H
#define LS_EXECUTION_INTEGRITY_GUARD_H

#include "execution/executor/state.h"
#include "execution/integrity/flat_hash.h"

typedef struct ls_guard {
    const ls_state *state; /* borrowed */
    ls_flat_hasher hasher;
    uint32_t buffers;    /* 3: parameters, m, v; 1: parameters */
    uint32_t *buckets;   /* of each piece */
    ls_hash128 *kept[3]; /* of parameters, m, v, per piece */
    ls_hash128 *now;
    uint64_t finished; /* number of finished steps when the hashes were taken */
    bool taken;
} ls_guard;

/* Guards pieces of the state: of the parameters, and with `moments` also of m and v. pieces and
 * buckets (the bucket of each piece) are copied. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_guard_init(ls_guard *guard, const ls_state *state, bool moments,
                                      const ls_flat_piece *pieces, const uint32_t *buckets,
                                      uint32_t piece_count);
void ls_guard_release(ls_guard *guard); /* a zeroed one is allowed */

/* Remembers the state after `finished` steps. */
void ls_guard_take(ls_guard *guard, uint64_t finished);

/* One hash over everything remembered by ls_guard_take. Guards over equal pieces, on any rank, give
 * equal hashes. */
ls_hash128 ls_guard_sum(const ls_guard *guard);

/* Forgets the hashes: from here on the state may change. */
void ls_guard_forget(ls_guard *guard);

/* Compares the state with the remembered hashes; LS_OK if there are none. bucket_out: the first
 * bucket that differs. rank: this rank, for the text. Errors: LS_ERR_MISMATCH, which names what
 * changed. */
LS_MUST_CHECK ls_status ls_guard_check(ls_guard *guard, uint32_t rank, uint32_t *bucket_out);

#endif
