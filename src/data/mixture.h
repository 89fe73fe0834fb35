// SPDX-License-Identifier: Apache-2.0
/*
 * Mixtures: which of several weighted corpora a global position draws from, without any state.
 *
 * Loaders that draw the corpus at random, or that count what they have drawn, can't be asked about position
 * 1,000,000 without replaying the first 999,999, and so can't change their number of ranks. Here the answer
 * is arithmetic. A binary tree has the corpora as leaves; a node whose left part has the share f of its
 * weight sends position p left when the line f*x + phase passes a whole number between p and p+1 (a
 * "rotation", or Sturmian, sequence):
 *
 *       left(p) = floor(p * f + phase)             how many of the first p positions went left
 *       p goes left   if left(p+1) > left(p), and is position left(p) there
 *       p goes right  otherwise, and is position p - left(p) there
 *
 * So among any n consecutive positions a node's left part gets n*f, give or take one: proportions are exact
 * over every batch, not just on average, and the position inside the corpus comes with the answer. The phases
 * come from the seed.
 *
 * Pure, thread-safe, no allocation; O(log corpora).
 */
#ifndef LS_DATA_MIXTURE_H
#define LS_DATA_MIXTURE_H

#include "base/status.h"

#include <stdint.h>

enum { LS_MIXTURE_MAX = 256 }; /* corpora in one mixture */

typedef struct ls_mixture {
    uint32_t count;
    uint64_t left_share[LS_MIXTURE_MAX]; /* of the node that splits before corpus i: weight left of i in the
                                            node, in 2^-63 */
} ls_mixture;

/* Where a global position lands. */
typedef struct ls_mixture_draw {
    uint32_t corpus;   /* 0 to count-1 */
    uint64_t position; /* how many earlier global positions drew from this corpus */
} ls_mixture_draw;

/*
 * Prepares a mixture of `count` corpora with relative weights (they need not add up to 1).
 *
 * Errors: LS_ERR_INVALID when count is not 1 to LS_MIXTURE_MAX, or a weight is not finite, not above 0, or
 * below a billionth of the sum (it would never be drawn in a run of any length); mixture_out is then
 * untouched.
 */
LS_MUST_CHECK ls_status ls_mixture_init(const double *weights, uint32_t count, ls_mixture *mixture_out);

/* The draw at `position` (below 2^62). seed: moves the phases. */
ls_mixture_draw ls_mixture_at(const ls_mixture *mixture, uint64_t seed, uint64_t position);

#endif
