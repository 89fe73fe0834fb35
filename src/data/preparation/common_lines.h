// SPDX-License-Identifier: Apache-2.0
/*
 * Common lines: those that several documents have. dedup_lines keeps each in the first document
 * that has it and removes it from all later ones; short lines stay, and so do repeats within a
 * document. Lines are compared without the blanks around them, by a hash of 64 bits.
 */
#ifndef LS_DATA_PREPARATION_COMMON_LINES_H
#define LS_DATA_PREPARATION_COMMON_LINES_H

#include "base/file.h"
#include "data/preparation/step.h"
#include "data/preparation/step_scratch.h"

#include <assert.h>

/* A line and the first document that has it, in a table by hash as it is in its file. */
typedef struct ls_common_line {
    uint64_t hash;
    /* Number of the document plus 1; 0: the slot is free. */
    uint32_t first;
    /* While the table is made: a later document has it too. */
    uint32_t is_common;
} ls_common_line;
static_assert(sizeof(ls_common_line) == 16, "part of the files");

/* A power of two of slots, or none. */
typedef struct ls_line_table {
    ls_common_line *slots;
    uint64_t mask, used;
} ls_line_table;

/* The slot of a hash: free if the table does not have it. */
ls_common_line *ls_line_table_find(const ls_line_table *table, uint64_t hash);
/* Puts a line in, with room for more. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_line_table_put(ls_line_table *table, ls_common_line line);

/* Appends the number of a passage's long lines (4 bytes) and the hash of each. */
void ls_common_lines_collect(const ls_step *step, const ls_passage *passage, ls_text *out);

/* Removes from a passage of document `document` the lines that an earlier one has. table: the file
 * of a table that was made. A passage of which nothing is left is removed. */
void ls_common_lines_remove(const ls_step *step, const ls_file_map *table, uint64_t document,
                            ls_step_scratch *scratch, ls_passage *passage, ls_removal *removal_out);

#endif
