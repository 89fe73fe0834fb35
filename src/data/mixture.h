// SPDX-License-Identifier: Apache-2.0
/*
 * Mixtures: which of several weighted corpora a global position draws from, computed without state.
 *
 * A loader that draws the corpus at random, or counts what it has drawn, must replay the first
 * 999,999 positions to answer for position 1,000,000, and so can't change its number of ranks. Here
 * the answer is arithmetic. A binary tree has the corpora as leaves. A node whose left part has the
 * share f of the node's weight sends position p left if the line f*x + phase passes a whole number
 * between p and p+1 (a rotation sequence, also called a Sturmian sequence):
 *
 *       left(p) = floor(p * f + phase)             how many of the first p positions went left
 *       p goes left   if left(p+1) > left(p), and is position left(p) there
 *       p goes right  otherwise, and is position p - left(p) there
 *
 * So among any n consecutive positions, a node's left part gets n*f, plus or minus one: proportions
 * are right in every batch, not just on average, and the position inside the corpus comes with the
 * answer. The phases come from the seed.
 *
 * Pure and thread-safe; allocates nothing. Takes O(log corpora).
 */
#ifndef LS_DATA_MIXTURE_H
#define LS_DATA_MIXTURE_H

#include "base/status.h"

#include <stdint.h>

/* Corpora in one mixture. */
enum { LS_MIXTURE_MAX = 256 };

typedef struct ls_mixture {
    uint32_t count;
    /* Entry i belongs to the node that splits before corpus i: the share of the node's weight that
     * is left of i, in units of 2^-63. */
    uint64_t left_share[LS_MIXTURE_MAX];
} ls_mixture;

/* Where a global position lands. */
typedef struct ls_mixture_draw {
    /* 0 to count-1. */
    uint32_t corpus;
    /* How many earlier global positions drew from this corpus. */
    uint64_t position;
} ls_mixture_draw;

/*
 * Prepares a mixture of `count` corpora with relative weights (they need not add up to 1).
 *
 * Errors: LS_ERR_INVALID if count is not 1 to LS_MIXTURE_MAX, or a weight is not finite, not above
 * 0, or below a billionth of the sum, so that no real run would ever draw from it. mixture_out is
 * then unchanged.
 */
LS_MUST_CHECK ls_status ls_mixture_init(const double *weights, uint32_t count, ls_mixture *mixture_out);

/* The draw at `position`, which is below 2^62. The phases come from `seed`. */
ls_mixture_draw ls_mixture_at(const ls_mixture *mixture, uint64_t seed, uint64_t position);

#endif
