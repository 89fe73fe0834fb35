// SPDX-License-Identifier: Apache-2.0
/*
 * The undo record of an update: which blocks are done, and the old values of those that are in hand.
 *
 *   "in hand" -> piece by piece: keep old values, say so, update in place -> "done in step s" -> nothing in hand
 *
 * An update that is broken off anywhere leaves memory from which every block is updated exactly once: what is in hand and not done is put back
 * (ls_undo_put_back), what is done is skipped, the rest was not touched. Blocks are the norm blocks of the layout (slices.h).
 *
 * The old values lie here, one block per worker, which stays in its second-level cache, or in the snapshot when one is made.
 */
#ifndef LS_EXECUTION_PARALLEL_UNDO_H
#define LS_EXECUTION_PARALLEL_UNDO_H

#include "compute/kernels/elementwise.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LS_UNDO_WORKERS = 256 }; /* as many as a queue may have */

typedef struct ls_undo {
    _Alignas(64) _Atomic uint64_t in_hand; /* block + 1; 0: none. Stored behind everything else here */
    uint64_t target;                       /* what done[block] will be */
    int64_t offset;                        /* of the block in the flat buffers */
    _Atomic uint64_t kept; /* its first floats whose old values are kept; those behind them are untouched */
    bool in_snapshot;      /* the old values are there, not here */
    _Alignas(64) float old[3][LS_NORM_BLOCK]; /* parameters, m, v */
} ls_undo;

/* What an update writes down; both in memory that outlives the process, zeroed before the first. */
typedef struct ls_undo_record {
    _Atomic uint64_t *
        done; /* per norm block of the layout: count of steps behind which it is; NULL: nothing is written down */
    ls_undo *undo; /* per worker of one part */
} ls_undo_record;

/* Puts back what is in hand and not done. Nobody may be updating; again does no harm. flats, snapshot: parameters, m, v. Returns whether
 * there was something. */
bool ls_undo_put_back(ls_undo *undo, const _Atomic uint64_t *done, float *const flats[3],
                      float *const snapshot[3]);

#endif
