// SPDX-License-Identifier: Apache-2.0
/*
 * The fixed tiles of light kernels on the CPU.
 */
#ifndef LS_COMPUTE_CPU_SHAPE_H
#define LS_COMPUTE_CPU_SHAPE_H

#include "compute/kernels/shape.h"

/* Rows of a tile of about 16k elements, which take a light kernel about 5 us; at least one row.
 * Depends only on the shape. */
static inline int64_t ls_tile_rows(int64_t cols)
{
    enum { TILE_ELEMENTS = 16384 };
    return ls_max64(1, TILE_ELEMENTS / ls_max64(1, cols));
}

#endif
