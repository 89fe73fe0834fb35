// SPDX-License-Identifier: Apache-2.0
/*
 * The update of parameters and moments: AdamW, block by block, so that another process can complete
 * an update that was interrupted.
 *
 *   slice of a bucket   | block 0 | block 1 | block 2 | ...      blocks of 4,096 floats, counted from
 *                                                                the start of the bucket: norm
 *                                                                blocks
 *   weight decay        |--yes-----|--no--|.|---yes----- ...     spans with one weight decay; gaps
 *                                                                between parameters stay untouched
 *
 * With a record (parallel/undo.h) each block is updated exactly once, however often the update is
 * started and by whichever process: blocks that are done in this step are skipped. With a snapshot,
 * the old values of every block are kept there; after the step it is the complete state before the
 * step (docs/design/003-nothing-is-lost.md). Without either it is the plain update.
 *
 * In a run with local steps (train/local.h) this is also how a worker takes over the shared
 * parameters, block by block with its first update of a round, and how the outer step is made.
 *
 * Allocates during creation only. Used by one thread.
 */
#ifndef LS_EXECUTION_TRAIN_UPDATE_H
#define LS_EXECUTION_TRAIN_UPDATE_H

#include "compute/kernels/adamw.h"
#include "execution/parallel/data_parallel.h"
#include "execution/parallel/undo.h"
#include "execution/train/local.h"

/* The slices that one part updates. */
typedef struct ls_update ls_update;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_update_create(const ls_layout *layout, const ls_owned_slice *slices,
                                         uint32_t slice_count, ls_update **update_out);
void ls_update_destroy(ls_update *update); /* NULL allowed */

/* One update, of one step. */
typedef struct ls_update_options {
    ls_queue *queue;
    uint64_t target;      /* the value that a block's `done` gets */
    ls_adamw adamw;       /* weight_decay applies to the spans that decay */
    ls_master parameters; /* on a GPU */
    float *flats[3];      /* parameters.values, m, v */
    /* Of a worker: floats from the state's flat buffers to its own; the parameters that are taken
     * over first, NULL: its own; and whether its moments become zero first. */
    int64_t shift;
    const float *from;
    bool mixes; /* only half of them */
    bool resets;
    /* An outer step, of parameters and momentum (m), if it applies the outer gradient; else this is
     * kept in v. NULL: AdamW. */
    const ls_local *outer;
    bool applies;
    const float *gradients;
    ls_undo_record record; /* zeroed: none */
    /* Of the slice, on the CPU without a snapshot: its weights get what is packed. */
    ls_packed_change change;
    float *snapshot[3]; /* of the same layout; NULL: none */
    /* For tests: called when half of a block is updated. NULL: none. */
    void (*halfway)(void *context);
    void *context;
} ls_update_options;

/* Updates slice `index`; returns when it is done, or, on a GPU, when it is enqueued. A GPU has no
 * record, no snapshot and no halfway: the host keeps copies instead (executor/state.h). */
LS_MUST_CHECK ls_status ls_update_run(ls_update *update, uint32_t index, const ls_update_options *options);

#endif
