// SPDX-License-Identifier: Apache-2.0
/*
 * The undo record of an update: which blocks are done, and the old values of the blocks that are
 * being updated.
 *
 *   per block:   in_hand = block
 *                per piece:  copy old values, kept = end of piece, update the piece in place
 *                done[block] = step
 *                in_hand = none
 *
 * Wherever the process dies in this sequence, memory is left such that every block can still be
 * updated exactly once:
 *   in hand, not done    its old values are put back (ls_undo_put_back), and it is updated again
 *   done                 it is skipped
 *   otherwise            it was not touched
 * The stores must be in this order: `kept` before the piece changes, so that no changed float lacks
 * its old value; `done` after the last piece; in_hand = none after `done`.
 *
 * Blocks are the norm blocks of the layout (slices.h). The old values lie here, one block per
 * worker, which fits in the second-level cache, or in the snapshot when one is being made.
 */
#ifndef LS_EXECUTION_PARALLEL_UNDO_H
#define LS_EXECUTION_PARALLEL_UNDO_H

#include "compute/kernels/elementwise.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* the largest number of threads of a queue */
enum { LS_UNDO_WORKERS = 256 };

typedef struct ls_undo {
    /* block + 1; 0: none. Stored after the members below it */
    _Alignas(64) _Atomic uint64_t in_hand;
    /* the value that done[block] will get */
    uint64_t target;
    /* of the block in the flat buffers */
    int64_t offset;
    /* number of floats, from the start of the block, whose old values are kept; the rest of the
     * block is unchanged */
    _Atomic uint64_t kept;
    /* the old values are in the snapshot, not in `old` */
    bool in_snapshot;
    /* parameters, m, v */
    _Alignas(64) float old[3][LS_NORM_BLOCK];
} ls_undo;

/* What an update records; both arrays are in memory that outlives the process, initially zero. */
typedef struct ls_undo_record {
    /* per norm block of the layout: the number of steps after which the block is; NULL: nothing is
     * recorded */
    _Atomic uint64_t *done;
    ls_undo *undo; /* one per worker of one part */
} ls_undo_record;

/* Puts back the block that is in hand and not done, while no process updates. Calling it again is
 * harmless. flats, snapshot: parameters, m, v. Returns whether a block was put back. */
bool ls_undo_put_back(ls_undo *undo, const _Atomic uint64_t *done, float *const flats[3],
                      float *const snapshot[3]);

#endif
