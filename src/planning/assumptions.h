// SPDX-License-Identifier: Apache-2.0
/*
 * Assumptions: what an answer rests on besides the question: every price with its date and every
 * default that was used. They are printed with the answer.
 *
 * A list of lines in an arena; no line occurs twice. Not thread-safe: one owner.
 */
#ifndef LS_PLANNING_ASSUMPTIONS_H
#define LS_PLANNING_ASSUMPTIONS_H

#include "base/arena.h"

typedef struct ls_assumptions {
    ls_arena *arena; /* the caller's */
    const char **items;
    size_t count;
    size_t capacity; /* private */
} ls_assumptions;

/* Adds a line, unless it is in the list already, and returns it. NULL, and nothing happens, where
 * `list` is NULL. */
const char *ls_assumptions_add(ls_assumptions *list, const char *format, ...) LS_PRINTF(2, 3);

#endif
