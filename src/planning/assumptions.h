// SPDX-License-Identifier: Apache-2.0
/*
 * Assumptions: what an answer rests on beside what was asked: every price with its date, every default that was taken. They are printed with the answer.
 *
 * A list of lines in an arena. A text that is in the list already is not added again. Not thread-safe: one owner.
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

/* Adds a line; with `list` NULL nothing happens. */
void ls_assumptions_add(ls_assumptions *list, const char *format, ...) LS_PRINTF(2, 3);

#endif
