// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the embedding kernels.
 *
 * Backward sorts the rows by token, or by position where positions restart, and adds tiles of the
 * sorted rows:
 *
 *   tokens in order      4 4 | 4 7 | 7 7 | 7 9        (tiles of LS_SCATTER_ROWS, here 2)
 *   sums of a tile       4     4 7   7     7 9
 *
 * A token whose rows all lie in one tile is added to the table at once. The sums of a token that
 * spans tiles go to `partials`: slot 2 t for the run at the beginning of tile t, slot 2 t + 1 for
 * one that begins inside it. A second kernel adds them in the order of the tiles.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_EMBEDDING_H
#define LS_COMPUTE_CUDA_DEVICE_EMBEDDING_H

#include <stdint.h>

enum {
    LS_GATHER_THREADS = 256,
    LS_GATHER_ROWS = 16,
    LS_SORT_THREADS = 256,
    /* Keys of a block of the sort. */
    LS_SORT_TILE = 1024,
    LS_SORT_DIGIT_BITS_MAX = 9,
    LS_SCAN_THREADS = 1024,
    LS_SCATTER_THREADS_MAX = 256,
    LS_SCATTER_ROWS = 32,
    /* Columns of a thread. */
    LS_SCATTER_COLS = 4,
};

typedef struct ls_gather_args {
    const int32_t *tokens;
    const void *table, *positions;
    void *out;
    int64_t rows, cols, vocab;
    int64_t table_stride, positions_stride, out_stride;
    int64_t positions_per_sequence, first_position;
    /* Per row, the token at which its record begins; NULL: token 0. */
    const int32_t *first;
    int32_t aligned;
} ls_gather_args;

/* keys[r] = the position of row r, when positions restart with each record. */
typedef struct ls_position_keys_args {
    const int32_t *first;
    int32_t *keys;
    int64_t rows, length;
} ls_position_keys_args;

/* One pass of a radix sort from the lowest digit up. It is stable: equal keys keep their order. */
typedef struct ls_sort_args {
    const int32_t *keys;
    /* NULL: the rows are 0, 1, 2, ... */
    const int32_t *rows;
    int32_t *sorted_keys, *sorted_rows;
    /* (digits, tiles): how often a tile has a digit; then where its keys go. */
    uint32_t *counts;
    int64_t count, tiles, keys_below;
    int32_t shift, digit_bits;
} ls_sort_args;

typedef struct ls_scatter_args {
    /* The sorted tokens and their rows. */
    const int32_t *keys, *rows;
    int64_t count, tiles;
    const void *dout;
    float *dtable;
    /* (2 tiles, partial_stride). */
    float *partials;
    int64_t cols, dout_stride, dtable_stride, partial_stride;
    int32_t aligned;
} ls_scatter_args;

typedef struct ls_positions_args {
    const void *dout;
    float *dpositions;
    int64_t rows, cols, positions_per_sequence, dout_stride, dpositions_stride;
    int32_t aligned;
} ls_positions_args;

#endif
