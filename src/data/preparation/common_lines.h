// SPDX-License-Identifier: Apache-2.0
/*
 * Common lines: those that several documents have. dedup_lines keeps each in the first document
 * that has it and removes it from all later ones; short lines stay, and so do repeats within a
 * document. Lines are compared without the blanks around them, by a hash of 64 bits.
 */
#ifndef LS_DATA_PREPARATION_COMMON_LINES_H
#define LS_DATA_PREPARATION_COMMON_LINES_H

#include "base/file.h"
#include "data/preparation/first_table.h"
#include "data/preparation/step.h"
#include "data/preparation/step_scratch.h"

/* Appends the number of a passage's long lines (4 bytes) and the hash of each. */
void ls_common_lines_collect(const ls_step *step, const ls_passage *passage, ls_text *out);

/* Removes from a passage of document `document` the lines that an earlier one has. table: the file
 * of a table that was made. A passage of which nothing is left is removed. */
void ls_common_lines_remove(const ls_step *step, const ls_file_map *table, uint64_t document,
                            ls_step_scratch *scratch, ls_passage *passage, ls_removal *removal_out);

#endif
