// SPDX-License-Identifier: Apache-2.0
/* What was wrong with a step that failed, as numbers beside the error text: for events, and for
 * the decision what may be saved. */
#ifndef LS_EXECUTION_TEAM_FAULT_H
#define LS_EXECUTION_TEAM_FAULT_H

#include <stdint.h>

#define LS_NO_LEAF   UINT32_MAX
#define LS_NO_RANK   UINT32_MAX
#define LS_NO_BUCKET UINT32_MAX

typedef enum ls_step_fault_kind {
    LS_STEP_FAULT_NONE,
    /* LS_ERR_FAILED: a number that is not finite; `leaf` is LS_NO_LEAF when several have one */
    LS_STEP_FAULT_NOT_FINITE,
    /* LS_ERR_FAILED: the same of an outer gradient; some workers have made the step, some not */
    LS_STEP_FAULT_WORKER,
    /* LS_ERR_MISMATCH: a leaf was computed wrongly; the state is sound */
    LS_STEP_FAULT_LEAF,
    /* LS_ERR_MISMATCH: the state changed between two updates and must not be saved */
    LS_STEP_FAULT_STATE,
} ls_step_fault_kind;

typedef struct ls_step_fault {
    uint32_t kind; /* an ls_step_fault_kind */
    uint32_t leaf;
    uint32_t bucket; /* the first bucket that differs; LS_NO_BUCKET: not known */
    /* The rank that was wrong, or that has the wrong state; LS_NO_RANK: not known. */
    uint32_t rank;
    uint32_t owner, checker, judge; /* of a leaf: the ranks that computed and compared it */
} ls_step_fault;

#endif
