// SPDX-License-Identifier: Apache-2.0
/*
 * Patience: ends a run whose validation loss no longer falls (eval.patience).
 *
 * Evaluations are added in order. One improves if its loss is below that of the last one that did
 * by min_delta or more; the first one always improves. After `limit` evaluations without
 * improvement patience is over.
 *
 * Pure: the same evaluations give the same answer. Only those of every eval.every_steps steps are
 * added, so a run that is interrupted and resumed ends at the same step as one that is not.
 */
#ifndef LS_EXECUTION_RUN_PATIENCE_H
#define LS_EXECUTION_RUN_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_patience {
    uint64_t limit;   /* 0: never over */
    double min_delta; /* nats per token, >= 0 */
    /* the last evaluation that improved; best_step 0: none */
    double best_loss;
    uint64_t best_step;
    uint64_t waited;    /* evaluations since */
    uint64_t last_step; /* of the last evaluation that was added; 0: none */
} ls_patience;

/* Returns whether the evaluation after `step` steps (>= 1) improved. A loss that is not finite does
 * not. A step that is not after the last one was counted before, and is ignored. */
bool ls_patience_add(ls_patience *patience, uint64_t step, double val_loss);

bool ls_patience_is_over(const ls_patience *patience);

#endif
