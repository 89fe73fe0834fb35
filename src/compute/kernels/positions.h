// SPDX-License-Identifier: Apache-2.0
/*
 * Which position each row of a batch has.
 *
 * Rows of a sequence are adjacent: row r is token r % length of sequence r / length. A window may
 * hold several records; positions then restart at the first token of each.
 */
#ifndef LS_COMPUTE_KERNELS_POSITIONS_H
#define LS_COMPUTE_KERNELS_POSITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_positions {
    /* Rows of a sequence, at least 1. */
    int64_t length;
    /* The token of row 0: how many are in a cache, or before a part of a sequence. */
    int64_t past;
    /* Per row, the token of its sequence at which its record begins, as ls_first_is_valid checks
     * for whole sequences. Memory of the device. NULL: every sequence is one record. */
    const int32_t *first;
} ls_positions;

/* Whether each token of `rows` rows begins a record or continues that of the token before it. */
static inline bool ls_first_is_valid(const int32_t *first, int64_t rows, int64_t length)
{
    for (int64_t r = 0; r < rows && first; r++) {
        const int64_t token = r % length;
        if (first[r] != token && (token == 0 || first[r] != first[r - 1])) {
            return false;
        }
    }
    return true;
}

static inline int64_t ls_position_of(const ls_positions *positions, int64_t row)
{
    return positions->past + row % positions->length - (positions->first ? positions->first[row] : 0);
}

#endif
