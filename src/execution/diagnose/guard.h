// SPDX-License-Identifier: Apache-2.0
/*
 * Guard: hashes of the state between two updates.
 *
 * After an update nobody may write to parameters and moments until the next one: a whole forward and backward only reads them. The guard
 * hashes them right behind the update and again right before the next; a difference is a stray write or a memory that fails. Each rank
 * guards the slices it owns, so that together they guard the one copy of a host. What is frozen has no moments and no update: it is hashed once.
 *
 * Cost: two passes over 12 bytes per parameter and guarded step.
 */
#ifndef LS_EXECUTION_DIAGNOSE_GUARD_H
#define LS_EXECUTION_DIAGNOSE_GUARD_H

#include "execution/diagnose/flat_hash.h"
#include "execution/state.h"

typedef struct ls_guard {
    const ls_state *state; /* borrowed */
    ls_flat_hasher hasher;
    uint32_t buffers;    /* 3: parameters, m, v; 1: parameters */
    uint32_t *buckets;   /* of each piece */
    ls_hash128 *kept[3]; /* of parameters, m, v, per piece */
    ls_hash128 *now;
    uint64_t finished; /* steps, when they were taken */
    bool taken;
} ls_guard;

/* Guards pieces of the state, with moments or of parameters alone: a copy is made. buckets: which bucket each lies in. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_guard_init(ls_guard *guard, const ls_state *state, bool moments,
                                      const ls_flat_piece *pieces, const uint32_t *buckets,
                                      uint32_t piece_count);
void ls_guard_release(ls_guard *guard); /* a zeroed one is fine */

/* Remembers the state after `finished` steps. */
void ls_guard_take(ls_guard *guard, uint64_t finished);

/* One number for what was remembered (ls_guard_take) of these pieces: of a guard over the same pieces elsewhere it is the same. */
ls_hash128 ls_guard_sum(const ls_guard *guard);

/* Forgets it: from here on the state may change. */
void ls_guard_forget(ls_guard *guard);

/* Compares the state with what was remembered; LS_OK when nothing was. bucket_out: the first that differs. rank: who this is, for the
 * text. Errors: LS_ERR_MISMATCH saying what changed. */
LS_MUST_CHECK ls_status ls_guard_check(ls_guard *guard, uint32_t rank, uint32_t *bucket_out);

#endif
