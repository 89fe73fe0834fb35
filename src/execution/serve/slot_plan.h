// SPDX-License-Identifier: Apache-2.0
/* Slot plan: how many texts at once, and how long, the memory allows. */
#ifndef LS_EXECUTION_SERVE_SLOT_PLAN_H
#define LS_EXECUTION_SERVE_SLOT_PLAN_H

#include "execution/generate/generate.h"

typedef struct ls_slot_plan {
    ls_generator_options options;
    uint64_t slot_bytes;  /* of one slot */
    uint64_t total_bytes; /* of all, and of what they share */
} ls_slot_plan;

/*
 * Plans for `slots` texts of `context` tokens; LS_AUTO_U64 (base/options.h): 8 slots, the model's
 * context. What is auto gets smaller until the memory that is available now suffices: first fewer
 * slots, then a shorter context, then one slot.
 *
 * Errors: LS_ERR_INVALID for a context beyond the model's, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_slot_plan_make(const ls_model_on_device *model, uint64_t slots, uint64_t context,
                                          ls_slot_plan *plan_out);

#endif
