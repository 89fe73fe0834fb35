// SPDX-License-Identifier: Apache-2.0
/*
 * Pieces of a dimension along which sums are cut, and the tree in which their sums are added.
 *
 * A node of `pieces` pieces splits like an interval of leaves (comm/transport/tree.h): at the
 * largest power of two below. Its elements are divided in the same proportion, rounded down, so
 * that the pieces of a node follow from the size of the node alone:
 *
 *   10 elements in 4 pieces      [0,10)
 *                            [0,5)  [5,10)
 *                         [0,2)[2,5)[5,7)[7,10)
 *
 * A member of a group of n, where n and the number of pieces are powers of two, holds the node
 * [size m / n, ...) with pieces / n pieces. Pure functions, safe to call from any thread.
 */
#ifndef LS_BASE_PIECES_H
#define LS_BASE_PIECES_H

#include <stdint.h>

enum { LS_PIECES_MAX = 64 };

/* Pieces in the left half of a node of `pieces`, at least 2. */
static inline uint32_t ls_pieces_left(uint32_t pieces)
{
    return 1u << (31 - __builtin_clz(pieces - 1));
}

/* The first element of piece `piece` of `size` elements in `pieces` pieces; `size` for the piece
 * after the last. No piece is empty if size >= pieces. */
static inline int64_t ls_piece_first(int64_t size, uint32_t pieces, uint32_t piece)
{
    int64_t first = 0;
    while (pieces > 1) {
        const uint32_t left = ls_pieces_left(pieces);
        const int64_t left_size = size * left / pieces;
        if (piece < left) {
            size = left_size;
            pieces = left;
            continue;
        }
        first += left_size;
        size -= left_size;
        piece -= left;
        pieces -= left;
    }
    return piece > 0 ? first + size : first;
}

#endif
