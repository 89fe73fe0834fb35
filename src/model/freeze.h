// SPDX-License-Identifier: Apache-2.0
/*
 * Which tensors are frozen: patterns over names (train.freeze). For model/layout.c alone.
 */
#ifndef LS_MODEL_FREEZE_H
#define LS_MODEL_FREEZE_H

#include "model/layout.h"

typedef struct ls_freeze {
    const char *const *patterns; /* borrowed */
    size_t count;
} ls_freeze;

/* Whether one of the patterns matches tensor `name`. */
bool ls_freeze_matches(const ls_freeze *freeze, const char *name);

/* Checks in the finished layout what ls_layout_build_frozen promises about patterns.
 * Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_freeze_check(const ls_freeze *freeze, const ls_layout *layout);

#endif
