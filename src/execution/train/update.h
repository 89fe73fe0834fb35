// SPDX-License-Identifier: Apache-2.0
/*
 * The update of parameters and moments: AdamW, block by block, so that one that is broken off can be finished by somebody else.
 *
 *   slice of a bucket   | block 0 | block 1 | block 2 | ...      blocks of 4,096 floats, counted from the bucket's start: the norm blocks
 *   weight decay        |--yes-----|--no--|.|---yes----- ...     spans of one weight decay; holes between parameters are left alone
 *
 * With a record (parallel/undo.h) each block is updated exactly once, however often and by whomever it is begun: blocks that are done in this
 * step are skipped. With a snapshot the old values of every block are kept there: behind the step it is the state before it, whole
 * (docs/design/003-nothing-is-lost.md). Without either it is the plain update.
 *
 * Allocates at creation only. Used by one thread.
 */
#ifndef LS_EXECUTION_TRAIN_UPDATE_H
#define LS_EXECUTION_TRAIN_UPDATE_H

#include "compute/kernels/adamw.h"
#include "execution/parallel/data_parallel.h"
#include "execution/parallel/undo.h"

/* The slices that one part updates. */
typedef struct ls_update ls_update;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_update_create(const ls_layout *layout, const ls_owned_slice *slices,
                                         uint32_t slice_count, ls_update **update_out);
void ls_update_destroy(ls_update *update); /* NULL allowed */

/* One update, of one step. */
typedef struct ls_update_options {
    ls_queue *queue;
    ls_adamw
        adamw; /* weight_decay: of the parameters that decay; adamw.step is what a block's `done` becomes */
    float *flats[3]; /* parameters, m, v */
    const float *gradients;
    ls_undo_record record; /* zeroed: none */
    float *snapshot[3];    /* of the same layout; NULL: none */
    /* For tests: called with a block in hand, half updated. NULL: not. */
    void (*halfway)(void *context);
    void *context;
} ls_update_options;

/* Updates slice `index`, and waits until it is. */
LS_MUST_CHECK ls_status ls_update_run(ls_update *update, uint32_t index, const ls_update_options *options);

#endif
