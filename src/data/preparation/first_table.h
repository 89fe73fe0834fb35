// SPDX-License-Identifier: Apache-2.0
/* First table: where each hash of 64 bits was first, for lines of documents and for sequences of
 * words of evaluation files. One owner. */
#ifndef LS_DATA_PREPARATION_FIRST_TABLE_H
#define LS_DATA_PREPARATION_FIRST_TABLE_H

#include "base/status.h"

#include <assert.h>
#include <stdint.h>

/* As it is in the file of a table. */
typedef struct ls_first_place {
    uint64_t hash;
    /* Number of the document or record plus 1; 0: the slot is free. */
    uint32_t first;
    /* While the table of lines is made: a later document has it too. */
    uint32_t is_common;
} ls_first_place;
static_assert(sizeof(ls_first_place) == 16, "part of the files");

/* A power of two of slots, or none. */
typedef struct ls_first_table {
    ls_first_place *slots;
    uint64_t mask, used;
} ls_first_table;

/* The slot of a hash, in a table with slots: free if the table does not have it. */
static inline ls_first_place *ls_first_table_find(const ls_first_table *table, uint64_t hash)
{
    uint64_t slot = (hash ^ hash >> 32) & table->mask;
    while (table->slots[slot].first && table->slots[slot].hash != hash) {
        slot = (slot + 1) & table->mask;
    }
    return &table->slots[slot];
}

/* Puts a place in, with room for more. The caller frees `slots`. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_first_table_put(ls_first_table *table, ls_first_place place);

#endif
