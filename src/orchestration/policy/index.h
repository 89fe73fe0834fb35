// SPDX-License-Identifier: Apache-2.0
/*
 * Index: from an id to a small number, in memory of fixed size (open addressing, linear probing,
 * deletion by shifting back).
 */
#ifndef LS_ORCHESTRATION_POLICY_INDEX_H
#define LS_ORCHESTRATION_POLICY_INDEX_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_INDEX_NONE = UINT32_MAX };

typedef struct ls_index {
    struct {
        uint64_t id; /* 0: empty */
        uint32_t value;
    } * slots;
    uint32_t mask, count;
} ls_index;

/* Room for `capacity` ids. */
void ls_index_init(ls_index *index, ls_arena *arena, uint32_t capacity);
/* LS_INDEX_NONE if the id is not there. */
uint32_t ls_index_find(const ls_index *index, uint64_t id);
/* The id must not be there yet, and not be 0. */
void ls_index_put(ls_index *index, uint64_t id, uint32_t value);
void ls_index_remove(ls_index *index, uint64_t id); /* id is there */

#endif
