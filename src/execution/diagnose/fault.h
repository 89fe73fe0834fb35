// SPDX-License-Identifier: Apache-2.0
/*
 * What was wrong with a step that failed, in numbers, beside the text: for events and for whoever has to decide what to save.
 */
#ifndef LS_EXECUTION_DIAGNOSE_FAULT_H
#define LS_EXECUTION_DIAGNOSE_FAULT_H

#include <stdint.h>

#define LS_NO_LEAF   UINT32_MAX
#define LS_NO_RANK   UINT32_MAX
#define LS_NO_BUCKET UINT32_MAX

typedef enum ls_step_fault_kind {
    LS_STEP_FAULT_NONE,
    LS_STEP_FAULT_NOT_FINITE, /* LS_ERR_FAILED: leaf, or LS_NO_LEAF when it was not one alone */
    LS_STEP_FAULT_LEAF,       /* LS_ERR_MISMATCH: a leaf was computed wrongly; the state is sound */
    LS_STEP_FAULT_STATE, /* LS_ERR_MISMATCH: the state changed between two updates: it is not to be saved */
} ls_step_fault_kind;

typedef struct ls_step_fault {
    uint32_t kind; /* an ls_step_fault_kind */
    uint32_t leaf;
    uint32_t bucket;                /* the first that differs; LS_NO_BUCKET: not known */
    uint32_t rank;                  /* who was wrong, or holds the wrong state; LS_NO_RANK: not known */
    uint32_t owner, checker, judge; /* ranks; of a leaf */
} ls_step_fault;

#endif
